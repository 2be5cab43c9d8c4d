"""`coevo compare`: runs that are on disk, whoever made them, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from coevo.errors import UserError
from coevo.files import why_not
from coevo.host.config import problem_name
from coevo.records import Json
from coevo.runs.codec import dumps
from coevo.runs.folder import RunFolder
from coevo.tools.study.comparison import comparison
from coevo.tools.study.frame import Cell, Frame, Subject
from coevo.tools.study.output import publish
from coevo.tools.study.plan import NO_RESULT
from coevo.tools.study.results import read, whole


def compare_runs(runs: Sequence[str], folder: str = "runs", out: Path | None = None) -> dict[str, Json]:
    """What `coevo compare --json` prints.

    Runs that differ by seed and task only are one arm; every task is a problem of its own.

    Args:
        runs: names or paths.
        folder: of the runs that are named.
        out: a folder for table, curves and page; None writes nothing.

    Raises:
        UserError: there is no such run, one is named twice, or nothing can be made in `out`.
        RunError: `out` cannot be written to its end.
    """
    found = [RunFolder.find(run, folder) for run in runs]
    places = [run.path.resolve() for run in found]
    for run, place in zip(found, places, strict=True):
        if places.count(place) > 1:
            raise UserError(f"run {run.address!r} is named twice")
    if out is not None and any((out / name).exists() for name in ("study.json", "config.toml")):
        raise UserError(f"--out got {str(out)!r}, which is the folder of a study or a run; choose another")
    if out is not None and (reason := why_not(out / "compare.json")):
        raise UserError(f"--out got {str(out)!r}, where nothing can be written: {reason}; choose another")
    frame, subjects = arrange({run.path: run.config() for run in found})
    readings = [whole(read(subject)) for subject in subjects]
    if out is None:
        return comparison(frame, readings)
    return publish(out, frame, readings, stem="compare", again="choose another with --out")


def arrange(configs: Mapping[Path, Mapping[str, Json]]) -> tuple[Frame, list[Subject]]:
    """Which runs are an arm, from folder → configuration."""
    problems = {path: _problem(config) for path, config in configs.items()}
    labels = _labels({problems[path]: _name(config) for path, config in configs.items()})
    # Of an arm there is one run with a seed in a cell; equal ones besides are arms of their own.
    arms: list[tuple[str, list[Path]]] = []
    cells = {path: Cell(labels[problems[path]]) if len(labels) > 1 else Cell() for path in configs}
    for path, config in configs.items():
        place, kind = (cells[path], _seed(config)), _kind(config)
        free = [runs for of, runs in arms if of == kind and all((cells[p], _seed(configs[p])) != place for p in runs)]
        # Runs of one folder belong together.
        near = [runs for runs in free if any(p.parent == path.parent for p in runs)]
        if chosen := (near or free)[:1]:
            chosen[0].append(path)
        else:
            arms.append((kind, [path]))
    names = _named({runs[0]: _own_names(runs[0], configs[runs[0]]) for _, runs in arms})
    arm_of = {path: names[runs[0]] for _, runs in arms for path in runs}
    called = {
        path: name
        for cell in set(cells.values())
        for path, name in _apart({p: _own_names(p, c)[-1] for p, c in configs.items() if cells[p] == cell}).items()
    }
    subjects = [
        Subject(arm_of[path], _seed(config), called[path], path, cells[path]) for path, config in configs.items()
    ]
    arm, seed, cell = (tuple(dict.fromkeys(getattr(s, key) for s in subjects)) for key in ("arm", "seed", "cell"))
    return Frame("comparison", arm, seed, cell, ""), subjects


def _seed(config: Mapping[str, Json]) -> int:
    return int(config.get("seed", 0))


def _own_names(path: Path, config: Mapping[str, Json]) -> tuple[str, str]:
    """A run's name without its seed, and whole."""
    name = str(config.get("name") or path.name)
    return name.removesuffix(f"-s{_seed(config)}"), name


def _named(own: Mapping[Path, tuple[str, str]]) -> dict[Path, str]:
    """A name for each arm, from the names of its first run: the shortest that no other arm has.

    Arms of one name are told apart by the whole names of their runs, those whose names are equal by what differs in
    their paths.
    """
    names: dict[Path, str] = {}
    for path, (short, full) in own.items():
        rivals = [others[1] for others in own.values() if others[0] == short]
        names[path] = full if len(rivals) > 1 and len(set(rivals)) == len(rivals) else short
    return _apart(names)


def _apart(names: Mapping[Path, str]) -> dict[Path, str]:
    """`names` with what differs in their paths before those that are equal."""
    found: dict[Path, str] = {}
    for path, name in names.items():
        place = _differing(path, [other for other in names if names[other] == name])
        found[path] = f"{place}/{name}" if place else name
    taken = list(found.values())
    # Nothing but the whole path is sure to be no other's.
    return {path: name if taken.count(name) == 1 else str(path) for path, name in found.items()}


def _differing(path: Path, rivals: Sequence[Path]) -> str:
    """The parts of a path's folders that not all of `rivals` begin or end with."""
    every = [rival.absolute().parent.parts for rival in rivals]
    least = min(len(parts) for parts in every)
    begin = next((i for i in range(least) if len({parts[i] for parts in every}) > 1), least)
    rest = [parts[begin:] for parts in every]
    least = min(len(parts) for parts in rest)
    end = next((i for i in range(least) if len({parts[-1 - i] for parts in rest}) > 1), least)
    own = path.absolute().parent.parts[begin:]
    return "/".join(own[: len(own) - end])


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
