"""The comparison of a study as rows, as text and as Markdown: one row for each arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coevo.records import Json
from coevo.report.numbers import ABSENT, duration, number, percent, table
from coevo.study.results import FINISHED, Reading

Rows = list[list[str]]
Result = Mapping[str, Json]

EACH = "seed by seed"
RUN = (
    "run", "status", "valid", "better", "score", "best", "valid in search", "updates", "zero", "calls", "tokens",
    "time",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grid:
    """A table before it is drawn; columns named in `words` hold words."""

    caption: str
    heads: Sequence[str]
    rows: Rows
    words: Sequence[str] = ("arm", "runs", EACH, "run", "status")


def grids(result: Result) -> list[Grid]:
    """What the weights answer at the end, what the search has found and spent, what reached the served weights."""
    trained = [(name, arm) for name, arm in result["arms"].items() if arm["cosine"] is not None]
    return [_at_end(result), _search(result), *([_weights(trained)] if trained else [])]


def text(result: Result) -> str:
    """The tables for a terminal, then what failed."""
    head = f"study {result['study']}: {finished(result)}, {duration(result['seconds'])} in all"
    drawn = (f"{grid.caption}:\n{table(grid.rows, grid.heads)}" for grid in grids(result))
    return "\n\n".join([head, *drawn, *_lines(failures(result))])


def markdown(result: Result) -> str:
    """The same for documentation."""
    seeds = ", ".join(str(seed) for seed in result["seeds"])
    parts = [f"## {_escaped(str(result['study']))}", f"{finished(result)}; seeds {seeds}, in that order below."]
    for grid in grids(result):
        parts += [f"{grid.caption}:", _pipes(grid)]
    return "\n\n".join([*parts, *_lines([f"- {line}" for line in failures(result)])]) + "\n"


def every_run(result: Result) -> Grid:
    """One row for each run."""
    runs: list[Mapping[str, Json]] = [run for arm in result["arms"].values() for run in arm["runs"]]
    rows = [
        [
            str(r["name"]), str(r["status"]), percent(r["valid_rate"], 1), percent(r["better_rate"], 1),
            number(r["score"], 3), number(r["best"]), percent(r["search_valid_rate"]), number(r["updates"]),
            number(r["zero_updates"]), number(r["calls"]), number(r["tokens"]), _time(r["seconds"]),
        ]
        for r in runs
    ]  # fmt: skip
    return Grid("Every run", RUN, rows)


def ending(reading: Reading) -> str:
    """How one run ended, in words."""
    numbers = reading.numbers
    words = [reading.status]
    if numbers["valid_rate"] is not None:
        words.append(f"{percent(numbers['valid_rate'])} of the last probe valid")
    if numbers["best"] is not None:
        words.append(f"best {number(numbers['best'])}")
    return ", ".join([*words, duration(numbers["seconds"] or 0.0)])


def failed(result: Result) -> list[Mapping[str, Json]]:
    """Runs that are not finished."""
    return [run for arm in result["arms"].values() for run in arm["runs"] if run["status"] != FINISHED]


def failures(result: Result) -> list[str]:
    """A line for each of them."""
    return [
        f"{run['path']}: {run['status']}{': ' if run['message'] else ''}{' '.join(str(run['message']).split())}"
        for run in failed(result)
    ]


def finished(result: Result) -> str:
    """`11 of 12 runs finished`."""
    every = sum(len(arm["runs"]) for arm in result["arms"].values())
    return f"{every - len(failed(result))} of {every} runs finished"


def _lines(lines: Sequence[str]) -> list[str]:
    return ["\n".join(lines)] if lines else []


def _at_end(result: Result) -> Grid:
    first = result["baseline_arm"]
    heads = ("arm", "runs", "valid", EACH, f"points above {first}", "better", EACH, "score", EACH)
    rows: Rows = []
    for name, arm in result["arms"].items():
        runs: Sequence[Mapping[str, Json]] = arm["runs"]
        rows.append(
            [
                name,
                f"{arm['finished']} of {len(runs)}",
                percent(arm["valid_rate"], 1),
                _each([_bare(run["valid_rate"]) for run in runs]),
                ABSENT if name == first else _each([_signed(run["valid_points"]) for run in runs]),
                percent(arm["better_rate"], 1),
                _each([_bare(run["better_rate"]) for run in runs]),
                number(arm["score"], 3),
                _each([number(run["score"], 3) for run in runs]),
            ]
        )
    return Grid("At the end of the runs (last probe), mean and each seed", heads, rows)


def _search(result: Result) -> Grid:
    heads = ("arm", "best, mean", "best of all", "valid in search", "updates", "zero", "calls", "tokens", "time")
    rows = [
        [
            str(name), number(arm["best"]), number(arm["best_of_seeds"]), percent(arm["search_valid_rate"]),
            number(arm["updates"], 3), number(arm["zero_updates"], 3), number(arm["calls"]), number(arm["tokens"]),
            _time(arm["seconds"]),
        ]
        for name, arm in result["arms"].items()
    ]  # fmt: skip
    return Grid("The search itself, mean over seeds", heads, rows)


def _weights(arms: Sequence[tuple[str, Mapping[str, Json]]]) -> Grid:
    heads = ("arm", "variance ratio", "moved", "cosine of an update", "of all updates", "drift (rms)", "drifted")
    rows = [
        [
            name, number(arm["variance_ratio"], 3), percent(arm["moved"]), number(arm["cosine"], 3),
            number(arm["cosine_run"], 4), number(arm["drift"], 3), percent(arm["drifted"], 1),
        ]
        for name, arm in arms
    ]  # fmt: skip
    return Grid("How much of the updates reached the served weights, mean over seeds", heads, rows)


def _time(seconds: float | None) -> str:
    return ABSENT if seconds is None else duration(seconds)


def _each(cells: Sequence[str]) -> str:
    """One number a seed, or nothing where there is none at all."""
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
