"""`coevo compare`: runs that are on disk, whoever made them, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from coevo.codec import dumps
from coevo.errors import UserError
from coevo.folder import RunFolder
from coevo.records import Json
from coevo.study.comparison import comparison
from coevo.study.frame import Cell, Frame, Subject
from coevo.study.output import Place, publish
from coevo.study.results import Reading, read
from coevo.study.standing import NO_RESULT


def compare_runs(runs: Sequence[str], folder: str = "runs", out: Path | None = None) -> dict[str, Json]:
    """What `coevo compare --json` prints.

    Runs that differ by seed and task only are one arm; every task is a problem of its own.

    Args:
        runs: names or paths.
        folder: of the runs that are named.
        out: a folder for table, curves and page; None writes nothing.

    Raises:
        UserError: there is no such run, or one is named twice.
        RunError: `out` cannot be written.
    """
    found = [RunFolder.find(run, folder) for run in runs]
    places = [run.path.resolve() for run in found]
    for run, place in zip(found, places, strict=True):
        if places.count(place) > 1:
            raise UserError(f"run {run.address!r} is named twice")
    frame, subjects = arrange({run.path: run.config() for run in found})
    readings: list[Reading] = [read(subject) for subject in subjects]
    result = comparison(frame, readings)
    if out is not None:
        again = "choose another with --out"
        publish(Place(out, "compare", again), frame, result, readings)
    return result


def arrange(configs: Mapping[Path, Mapping[str, Json]]) -> tuple[Frame, list[Subject]]:
    """Which runs are an arm, from folder → configuration."""
    several = len({str(config.get("task")) for config in configs.values()}) > 1
    kinds: dict[str, str] = {}
    subjects: list[Subject] = []
    for path, config in configs.items():
        seed, name = int(config.get("seed", 0)), str(config.get("name") or path.name)
        cell = Cell(str(config.get("task"))) if several else Cell()
        kind, taken = _kind(config), {(s.cell, s.arm, s.seed) for s in subjects}
        short = name.removesuffix(f"-s{seed}")
        for arm in (short, name, str(path)):
            if kinds.get(arm, kind) == kind and (cell, arm, seed) not in taken:
                break
        kinds[arm] = kind
        subjects.append(Subject(arm, seed, name, path, cell))
    arms, seeds, cells = (tuple(dict.fromkeys(getattr(s, key) for s in subjects)) for key in ("arm", "seed", "cell"))
    return Frame("comparison", arms, seeds, cells, ""), subjects


def _kind(config: Mapping[str, Json]) -> str:
    """What runs of an arm have in common: all that may change a result but seed and task."""
    left_out = {*NO_RESULT, "seed", "task", "plugins", str(config.get("task")), *config.get("loggers", ())}
    return dumps({key: value for key, value in config.items() if key not in left_out})
