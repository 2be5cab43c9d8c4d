"""Whether a problem folder is as it should be: its parts, and what happens to bad candidates (`coevo check`)."""

from coevo_heuristics.checking.conduct import Check
from coevo_heuristics.checking.rows import Row
from coevo_heuristics.checking.trials import Timing

__all__ = ["Check", "Row", "Timing"]
