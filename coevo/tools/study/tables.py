"""The comparison as rows, as text and as Markdown: one row for each arm of each cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from coevo.records import Json
from coevo.report.numbers import ABSENT, count, duration, number, objective, percent, table
from coevo.tools.study.comparison import cells_of, runs_of
from coevo.tools.study.results import DAMAGED, FINISHED, Reading
from coevo.tools.study.statistics import CONFIDENCE

Rows = list[list[str]]
Result = Mapping[str, Json]
Column = tuple[str, Callable[[Result], str]]

EACH = "seed by seed"
INTERVAL = f"{100 * CONFIDENCE:.0f} % interval"
RUN = (
    "run", "status", "valid", "better", "score", "best", "gap", "test", "test gap", "valid in all", "updates", "zero",
    "calls", "tokens", "time",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grid:
    """A table before it is drawn; columns named in `words` hold words."""

    caption: str
    heads: Sequence[str]
    rows: Rows
    words: Sequence[str] = ("problem", "budget", "arm", "runs", EACH, "run", "status", INTERVAL)


def grids(result: Result) -> list[Grid]:
    """What the weights answer at the end, what the search has found and spent, what reached the served weights."""
    arms = [arm for cell in cells_of(result) for arm in cell["arms"].values()]
    found = [_found(result), _spent(result)]
    if any(run["valid_rate"] is not None for run in runs_of(result)):
        found.insert(0, _at_end(result))
    return [*found, _weights(result)] if any(arm["cosine"] is not None for arm in arms) else found


def text(result: Result) -> str:
    """The tables for a terminal, then what failed."""
    spent = (
        f"{count(result['calls'], 'call')}, {count(result['tokens'], 'token')}, {duration(result['seconds'])} in all"
    )
    head = f"{_titled(result)}: {finished(result)}; {spent}"
    # A mean leaves out what is not finished, so its numbers are told by themselves.
    unfinished = [every_run(result)] if failed(result) and not result["file"] else []
    drawn = (f"{grid.caption}:\n{table(grid.rows, grid.heads)}" for grid in [*grids(result), *unfinished])
    return "\n\n".join([head, *drawn, *_lines(measures(result)), *_lines(cut_off(result)), *_lines(failures(result))])


def markdown(result: Result) -> str:
    """The same for documentation."""
    seeds = ", ".join(str(seed) for seed in result["seeds"])
    parts = [f"## {_escaped(str(result['study']))}", f"{finished(result)}; seeds {seeds}, in that order below."]
    for grid in grids(result):
        parts += [f"{grid.caption}:", _pipes(grid)]
    lists = (_lines([f"- {line}" for line in lines]) for lines in (measures(result), cut_off(result), failures(result)))
    return "\n\n".join([*parts, *(part for lines in lists for part in lines)]) + "\n"


def every_run(result: Result) -> Grid:
    """One row for each run."""
    rows = [
        [
            str(r["name"]), str(r["status"]), percent(r["valid_rate"], 1), percent(r["better_rate"], 1),
            number(r["score"], 3), objective(r["best"]), percent(r["gap"], 2), objective(r["test"]),
            percent(r["test_gap"], 2), percent(r["run_valid_rate"]), number(r["updates"]), number(r["zero_updates"]),
            number(r["calls"]), number(r["tokens"]), _time(r["seconds"]),
        ]
        for r in runs_of(result)
    ]  # fmt: skip
    return Grid("Every run", RUN, rows)


def ending(reading: Reading) -> str:
    """How one run ended, in words."""
    numbers = reading.numbers
    words = [reading.status]
    if numbers["valid_rate"] is not None:
        words.append(f"{percent(numbers['valid_rate'])} of the last probe valid")
    if numbers["best"] is not None:
        words.append(f"best {objective(numbers['best'])}")
    return ", ".join([*words, duration(numbers["seconds"] or 0.0)])


def failed(result: Result) -> list[Mapping[str, Json]]:
    """Runs that are not finished."""
    return [run for run in runs_of(result) if run["status"] != FINISHED]


def damaged(result: Result) -> list[Mapping[str, Json]]:
    """Runs whose folder is damaged."""
    return [run for run in runs_of(result) if run["status"] == DAMAGED]


def failures(result: Result) -> list[str]:
    """A line for each of them."""
    return [
        f"{run['path']}: {run['status']}{': ' if run['message'] else ''}{' '.join(str(run['message']).split())}"
        for run in failed(result)
    ]


def finished(result: Result) -> str:
    """`11 of 12 runs finished`."""
    every = len(runs_of(result))
    return f"{every - len(failed(result))} of {every} runs finished"


def measures(result: Result) -> list[str]:
    """A line for each problem: what its gaps are measured to."""
    lines: dict[str, None] = {}
    for cell in cells_of(result):
        told = [f"{split} to {name} {objective(value)}" for split, (name, value) in cell["references"].items() if value]
        if told:
            lines[f"gaps{' of ' if cell['problem'] else ''}{cell['problem']}: {', '.join(told)}"] = None
    return list(lines)


def cut_off(result: Result) -> list[str]:
    """A line where calls are left out that `coevo show` counts."""
    if not result.get("cut_off_calls"):
        return []
    lost = count(result["cut_off_calls"], "call")
    return [f"calls and tokens leave out {lost} of batches that a kill cut off; coevo show counts them"]


def _lines(lines: Sequence[str]) -> list[str]:
    return ["\n".join(lines)] if lines else []


def _titled(result: Result) -> str:
    return f"study {result['study']}" if result["file"] else str(result["study"])


def _arms(result: Result) -> Iterator[tuple[list[str], str, Result]]:
    """(names of its cell, its own, its numbers) of every arm."""
    for cell in cells_of(result):
        for name, arm in cell["arms"].items():
            yield [cell[axis] for axis in _axes(result)], str(name), arm


def _axes(result: Result) -> list[str]:
    return [axis for axis in ("problem", "budget") if cells_of(result)[0][axis]]


def _grid(result: Result, caption: str, columns: Sequence[Column], only: str = "") -> Grid:
    rows = [
        [*cell, name, *(told(arm) for _, told in columns)]
        for cell, name, arm in _arms(result)
        if not only or arm[only] is not None
    ]
    return Grid(caption, (*_axes(result), "arm", *(head for head, _ in columns)), rows)


def _at_end(result: Result) -> Grid:
    first = str(result["baseline_arm"])
    columns: list[Column] = [
        ("runs", _counted),
        ("valid", lambda arm: percent(arm["valid_rate"], 1)),
        (EACH, lambda arm: _each(arm, "valid_rate", _bare)),
        # An arm that is the first is 0 points above itself: nothing is said.
        (f"points above {first}", lambda arm: _each(arm, "valid_points", _signed)),
        ("better", lambda arm: percent(arm["better_rate"], 1)),
        (EACH, lambda arm: _each(arm, "better_rate", _bare)),
        ("score", lambda arm: number(arm["score"], 3)),
        (EACH, lambda arm: _each(arm, "score", lambda score: number(score, 3))),
    ]
    grid = _grid(result, "At the end of the runs (last probe), mean and each seed", columns)
    name, points = len(_axes(result)), grid.heads.index(f"points above {first}")
    rows = [[*row[:points], ABSENT, *row[points + 1 :]] if row[name] == first else row for row in grid.rows]
    return Grid(grid.caption, grid.heads, rows)


def _found(result: Result) -> Grid:
    columns: list[Column] = [
        ("runs", _counted),
        ("best, mean", lambda arm: objective(arm["best"])),
        ("spread", lambda arm: number(arm["spread"]["best"], 2)),
        (INTERVAL, lambda arm: _interval(arm["interval"]["best"])),
        ("best of all", lambda arm: objective(arm["best_of_seeds"])),
        ("gap", lambda arm: percent(arm["gap"], 2)),
        ("test", lambda arm: objective(arm["test"])),
        ("test gap", lambda arm: percent(arm["test_gap"], 2)),
    ]
    return _grid(result, "The best program of each run, mean over seeds", columns)


def _spent(result: Result) -> Grid:
    columns: list[Column] = [
        ("valid in all", lambda arm: percent(arm["run_valid_rate"])),
        ("valid at its end", lambda arm: percent(arm["search_valid_rate"])),
        ("updates", lambda arm: number(arm["updates"], 3)),
        ("zero", lambda arm: number(arm["zero_updates"], 3)),
        ("calls", lambda arm: number(arm["calls"])),
        ("tokens", lambda arm: number(arm["tokens"])),
        ("time", lambda arm: _time(arm["seconds"])),
    ]
    return _grid(result, "The search itself, mean over seeds", columns)


def _weights(result: Result) -> Grid:
    columns: list[Column] = [
        ("variance ratio", lambda arm: number(arm["variance_ratio"], 3)),
        ("moved", lambda arm: percent(arm["moved"])),
        ("cosine of an update", lambda arm: number(arm["cosine"], 3)),
        ("of all updates", lambda arm: number(arm["cosine_run"], 4)),
        ("drift (rms)", lambda arm: number(arm["drift"], 3)),
        ("drifted", lambda arm: percent(arm["drifted"], 1)),
    ]
    return _grid(result, "How much of the updates reached the served weights, mean over seeds", columns, only="cosine")


def _counted(arm: Result) -> str:
    return f"{arm['finished']} of {len(arm['runs'])}{', so far' if arm['so_far'] else ''}"


def _time(seconds: float | None) -> str:
    return ABSENT if seconds is None else duration(seconds)


def _interval(ends: Sequence[float] | None) -> str:
    return ABSENT if ends is None else f"{objective(ends[0])} to {objective(ends[1])}"


def _each(arm: Result, name: str, told: Callable[[float | None], str]) -> str:
    """One number a seed, or nothing where there is none at all."""
    cells = [told(run[name]) for run in arm["runs"]]
    return ABSENT if all(cell == ABSENT for cell in cells) else " ".join(cells)


def _bare(share: float | None) -> str:
    return ABSENT if share is None else f"{100.0 * share:.1f}"


def _signed(points: float | None) -> str:
    return ABSENT if points is None else f"{points:+.1f}"


def _pipes(grid: Grid) -> str:
    marks = ["---" if head in grid.words else "--:" for head in grid.heads]
    lines = [grid.heads, marks, *grid.rows]
    return "\n".join(f"| {' | '.join(_escaped(cell) for cell in line)} |" for line in lines)


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")
