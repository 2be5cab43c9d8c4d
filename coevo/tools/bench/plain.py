"""The plain evaluator of a problem, `plain.py` in its folder: a yardstick for speed, and a second opinion.

It defines `evaluate(function, instance) -> objective`, where `function` is the candidate's entry and `instance` one
of evaluate.py's. Only the bench calls it, in its own process, for the problem's own seed.
"""

from __future__ import annotations

import math
import random
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import TypeAlias, cast

import numpy as np

from coevo.errors import CheckFailedError, UserError
from coevo.sandbox.problem import import_file

PLAIN = "plain.py"
PATIENCE = 3.0
"""Seconds of CPU time after which the plain evaluator gets no further instance."""
_MOST = 64
_TOLERANCE = 1e-9  # a sum depends on the order of its terms

Plain: TypeAlias = Callable[[Callable[..., object], object], float]


def load_plain(file: Path) -> Plain | None:
    """The function `evaluate` of `file`; None where there is no such file.

    Raises:
        UserError: it cannot be imported, or defines no such function.
    """
    if not file.is_file():
        return None
    evaluate = getattr(import_file(file, "coevo_plain"), "evaluate", None)
    if not callable(evaluate):
        raise UserError(f"{str(file)!r} defines no function 'evaluate'; expected evaluate(function, instance)")
    return cast(Plain, evaluate)


class Reference:
    """The plain evaluator, on as many instances as fit into `PATIENCE`, or one.

    Attributes:
        instances: those.
        total: how many there are.
    """

    def __init__(
        self,
        plain: Plain,
        source: str,
        entry: str,
        instances: Sequence[object],
        expected: Sequence[float],
        seconds: float,
    ) -> None:
        """Evaluate once, to know how long it takes and that both evaluators agree.

        Args:
            plain: the evaluator.
            source: of the candidate.
            entry: the function that it defines.
            instances: of the split.
            expected: their objectives by evaluate.py.
            seconds: how long `rate` takes, about.

        Raises:
            CheckFailedError: they do not agree.
        """
        self._plain = plain
        self._source = source
        self._entry = entry
        self.total = len(instances)
        function = self._function()
        self.instances: list[object] = []
        # The choice of instances shall not depend on how busy the machine is, the number of repeats may.
        began, began_cpu = perf_counter(), process_time()
        for number, (instance, value) in enumerate(zip(instances, expected, strict=True)):
            found = float(plain(function, instance))
            if not math.isclose(found, value, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
                raise CheckFailedError(f"instance {number}: {PLAIN} comes to {found!r}, evaluate.py to {value!r}")
            self.instances.append(instance)
            if process_time() - began_cpu > PATIENCE:
                break
        self._repeats = max(1, min(_MOST, math.ceil(seconds / (perf_counter() - began))))

    def _function(self) -> Callable[..., object]:
        """The candidate as the sandbox's worker loads it, in this process."""
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002 - what a candidate calls without thinking
        module = types.ModuleType("candidate")
        # `dataclass` and others look a class's module up.
        sys.modules["candidate"] = module
        exec(compile(self._source, "<candidate>", "exec", dont_inherit=True), module.__dict__)
        return module.__dict__[self._entry]

    def rate(self) -> float:
        """Evaluations of the whole set a second; of a part of it the time is scaled by the number of instances."""
        began = perf_counter()
        for _ in range(self._repeats):
            function = self._function()
            for instance in self.instances:
                self._plain(function, instance)
        return self._repeats / (perf_counter() - began) * len(self.instances) / self.total
