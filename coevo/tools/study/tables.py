"""The comparison as tables, as text and as Markdown: one row for each arm of each cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from coevo.records import Json
from coevo.report.numbers import ABSENT, count, duration, number, objective, percent
from coevo.report.tables import Column, Table, escaped
from coevo.tools.study.comparison import CONFIDENCE, cells_of, runs_of
from coevo.tools.study.results import DAMAGED, FINISHED, Reading

Result = Mapping[str, Json]


def text(result: Result) -> str:
    """The tables for a terminal, then what failed."""
    spent = (
        f"{count(result['calls'], 'call')}, {count(result['tokens'], 'token')}, {duration(result['seconds'])} in all"
    )
    head = f"{'study ' if result['file'] else ''}{result['study']}: {finished(result)}; {spent}"
    # A mean leaves out what is not finished, so its numbers are told by themselves.
    unfinished = [every_run(result)] if failed(result) and not result["file"] else []
    drawn = (f"{table.caption}:\n{table.text()}" for table in [*tables(result), *unfinished])
    return "\n\n".join([head, *drawn, *("\n".join(lines) for lines in (remarks(result), failures(result)) if lines)])


def markdown(result: Result) -> str:
    """The same for documentation."""
    seeds = ", ".join(str(seed) for seed in result["seeds"])
    parts = [f"## {escaped(str(result['study']))}", f"{finished(result)}; seeds {seeds}, in that order below."]
    for table in tables(result):
        parts += [f"{table.caption}:", table.markdown()]
    lists = ("\n".join(f"- {line}" for line in lines) for lines in (remarks(result), failures(result)) if lines)
    return "\n\n".join([*parts, *lists]) + "\n"


def tables(result: Result) -> list[Table]:
    """What the weights answer at the end, what the search has found and spent, what reached the served weights."""
    axes = [_words(axis, axis) for axis in ("problem", "budget") if cells_of(result)[0][axis]]
    arms = [
        {"problem": cell["problem"], "budget": cell["budget"], "arm": name, **arm}
        for cell in cells_of(result)
        for name, arm in cell["arms"].items()
    ]

    def table(caption: str, columns: Sequence[Column[Result]], rows: Sequence[Result] = arms) -> list[Table]:
        return [Table.of(caption, [*axes, _words("arm", "arm"), *columns], rows)] if rows else []

    probed = any(run["valid_rate"] is not None for run in runs_of(result))
    return [
        *table(
            "At the end of the runs (last probe), mean and each seed",
            _at_end(str(result["baseline_arm"])),
            arms if probed else (),
        ),
        *table("The best program of each run, mean over seeds", FOUND),
        *table("The search itself, mean over seeds", SPENT),
        *table(
            "How much of the updates reached the served weights, mean over seeds",
            REACHED,
            [arm for arm in arms if arm["cosine"] is not None],
        ),
    ]


def every_run(result: Result) -> Table:
    """One row for each run."""
    return Table.of("Every run", RUN, runs_of(result))


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
    """A line for each run that is not finished."""
    return [
        f"{run['path']}: {run['status']}{': ' if run['message'] else ''}{' '.join(str(run['message']).split())}"
        for run in failed(result)
    ]


def finished(result: Result) -> str:
    """`11 of 12 runs finished`."""
    every = len(runs_of(result))
    return f"{every - len(failed(result))} of {every} runs finished"


def remarks(result: Result) -> list[str]:
    """Lines that say what the gaps of each problem are measured to, and which calls `coevo show` counts besides."""
    lines: dict[str, None] = {}
    for cell in cells_of(result):
        told = [f"{split} to {name} {objective(value)}" for split, (name, value) in cell["references"].items() if value]
        if told:
            lines[f"gaps{' of ' if cell['problem'] else ''}{cell['problem']}: {', '.join(told)}"] = None
    if result.get("cut_off_calls"):
        lost = count(result["cut_off_calls"], "call")
        lines[f"calls and tokens leave out {lost} of batches that a kill cut off; coevo show counts them"] = None
    return list(lines)


def _words(head: str, key: str) -> Column[Result]:
    return Column(head, lambda row: str(row[key]), words=True)


def _share(head: str, key: str, decimals: int = 0) -> Column[Result]:
    return Column(head, lambda row: percent(row[key], decimals))


def _number(head: str, key: str, digits: int = 5) -> Column[Result]:
    return Column(head, lambda row: number(row[key], digits))


def _objective(head: str, key: str) -> Column[Result]:
    return Column(head, lambda row: objective(row[key]))


def _each(key: str, told: Callable[[float | None], str], head: str = "seed by seed") -> Column[Result]:
    """One number a seed, or nothing where there is none at all."""

    def cell(arm: Result) -> str:
        cells = [told(run[key]) for run in arm["runs"]]
        return ABSENT if all(cell == ABSENT for cell in cells) else " ".join(cells)

    return Column(head, cell, words=True)


def _at_end(first: str) -> list[Column[Result]]:
    points = _each("valid_points", _signed)
    return [
        RUNS,
        _share("valid", "valid_rate", 1),
        _each("valid_rate", _bare),
        # An arm that is the first is 0 points above itself: nothing is said.
        Column(f"points above {first}", lambda arm: ABSENT if arm["arm"] == first else points.cell(arm)),
        _share("better", "better_rate", 1),
        _each("better_rate", _bare),
        _number("score", "score", 3),
        _each("score", lambda score: number(score, 3)),
    ]


def _counted(arm: Result) -> str:
    return f"{arm['finished']} of {len(arm['runs'])}{', so far' if arm['so_far'] else ''}"


def _interval(arm: Result) -> str:
    ends: Sequence[float] | None = arm["interval"]["best"]
    return ABSENT if ends is None else f"{objective(ends[0])} to {objective(ends[1])}"


def _bare(share: float | None) -> str:
    return ABSENT if share is None else f"{100.0 * share:.1f}"


def _signed(points: float | None) -> str:
    return ABSENT if points is None else f"{points:+.1f}"


TIME: Column[Result] = Column("time", lambda row: ABSENT if row["seconds"] is None else duration(row["seconds"]))
RUNS: Column[Result] = Column("runs", _counted, words=True)
GAP, TEST, TEST_GAP = _share("gap", "gap", 2), _objective("test", "test"), _share("test gap", "test_gap", 2)
VALID_IN_ALL = _share("valid in all", "run_valid_rate")
FOUND: Sequence[Column[Result]] = (
    RUNS,
    _objective("best, mean", "best"),
    Column("spread", lambda arm: number(arm["spread"]["best"], 2)),
    Column(f"{100 * CONFIDENCE:.0f} % interval", _interval, words=True),
    _objective("best of all", "best_of_seeds"),
    GAP,
    TEST,
    TEST_GAP,
)
SPENT: Sequence[Column[Result]] = (
    VALID_IN_ALL,
    _share("valid at its end", "search_valid_rate"),
    _number("updates", "updates", 3),
    _number("zero", "zero_updates", 3),
    _number("calls", "calls"),
    _number("tokens", "tokens"),
    TIME,
)
REACHED: Sequence[Column[Result]] = (
    _number("variance ratio", "variance_ratio", 3),
    _share("moved", "moved"),
    _number("cosine of an update", "cosine", 3),
    _number("of all updates", "cosine_run", 4),
    _number("drift (rms)", "drift", 3),
    _share("drifted", "drifted", 1),
)
RUN: Sequence[Column[Result]] = (
    _words("run", "name"),
    _words("status", "status"),
    _share("valid", "valid_rate", 1),
    _share("better", "better_rate", 1),
    _number("score", "score", 3),
    _objective("best", "best"),
    GAP,
    TEST,
    TEST_GAP,
    VALID_IN_ALL,
    _number("updates", "updates"),
    _number("zero", "zero_updates"),
    _number("calls", "calls"),
    _number("tokens", "tokens"),
    TIME,
)
