"""A small study of the fakes, as the text of a file."""

from pathlib import Path

FAKES = str(Path(__file__).parent / "fakes.py")
STUDY = f"""
name = "small"
seeds = [3, 1]

[base]
plugins = ["{FAKES}"]
task = "aim"
engine = "numbers"
context = "fixed"
generations = 2

[base.es]
population = 4
sigma = 0.3

[base.probe]
every = 1
answers = 6

[arms."none+fixed"]
param = "none"

[arms."es+fixed"]
param = "es"

[arms."es+fixed".fixed]
samples = 3
"""
