"""`coevo compare`: runs that are on disk, whoever made them, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from coevo.codec import dumps
from coevo.config import problem_name
from coevo.errors import UserError
from coevo.folder import RunFolder
from coevo.records import Json
from coevo.study.comparison import comparison
from coevo.study.frame import Cell, Frame, Subject
from coevo.study.output import Place, publish
from coevo.study.results import read
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
    if out is not None and any((out / name).exists() for name in ("study.json", "config.toml")):
        raise UserError(f"--out got {str(out)!r}, which is the folder of a study or a run; choose another")
    frame, subjects = arrange({run.path: run.config() for run in found})
    readings = [read(subject) for subject in subjects]
    result = comparison(frame, readings)
    if out is not None:
        publish(Place(out, "compare", "choose another with --out"), frame, result, readings)
    return result


def arrange(configs: Mapping[Path, Mapping[str, Json]]) -> tuple[Frame, list[Subject]]:
    """Which runs are an arm, from folder → configuration."""
    problems = {path: _problem(config) for path, config in configs.items()}
    labels = _labels({problems[path]: _name(config) for path, config in configs.items()})
    kinds: dict[str, str] = {}
    subjects: list[Subject] = []
    for path, config in configs.items():
        seed, name = int(config.get("seed", 0)), str(config.get("name") or path.name)
        cell = Cell(labels[problems[path]]) if len(labels) > 1 else Cell()
        kind, taken = _kind(config), {(s.cell, s.arm, s.seed) for s in subjects}
        alike = [arm for arm, of_arm in kinds.items() if of_arm == kind]
        free = (
            label
            for label in (*alike, name.removesuffix(f"-s{seed}"), name)
            if kinds.get(label, kind) == kind and (cell, label, seed) not in taken
        )
        arm = next(free, str(path))
        kinds[arm] = kind
        subjects.append(Subject(arm, seed, name, path, cell))
    arms, seeds, cells = (tuple(dict.fromkeys(getattr(s, key) for s in subjects)) for key in ("arm", "seed", "cell"))
    return Frame("comparison", arms, seeds, cells, ""), subjects


def _problem(config: Mapping[str, Json]) -> str:
    """Task and options but those that change no result: other rules or another folder are another problem."""
    task = str(config.get("task"))
    options = {k: v for k, v in config.get(task, {}).items() if k not in ("cache", "workers")}
    return dumps([task, options])


def _name(config: Mapping[str, Json]) -> str:
    return problem_name(str(config.get("task")), config)


def _labels(names: Mapping[str, str]) -> dict[str, str]:
    """Problem → its name, numbered where another has it already."""
    labels: dict[str, str] = {}
    for problem, name in names.items():
        numbered = (name if number == 1 else f"{name} {number}" for number in count(1))
        labels[problem] = next(label for label in numbered if label not in labels.values())
    return labels


def _kind(config: Mapping[str, Json]) -> str:
    """What runs of an arm have in common: all that may change a result but seed and task."""
    left_out = {*NO_RESULT, "seed", "task", "plugins", str(config.get("task")), *config.get("loggers", ())}
    return dumps({key: value for key, value in config.items() if key not in left_out})
