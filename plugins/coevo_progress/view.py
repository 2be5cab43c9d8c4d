"""The live view: a small table that redraws itself until it is stopped."""

from __future__ import annotations

import sys
from statistics import fmean
from typing import TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from coevo.numerics.objectives import written
from coevo.text import PrintableStream, printable
from coevo_progress.state import State, against_baseline, beside_first, clock, gap, signs_of_life

REDRAWS_A_SECOND = 4
BAR_WIDTH = 30


class View:
    """A live display of a state. It vanishes when stopped: the lines above it are the record."""

    def __init__(self, state: State, console: Console) -> None:
        self._state, self._before = state, (sys.stdout, sys.stderr)
        self._live = Live(
            get_renderable=self.render,
            console=console,
            refresh_per_second=REDRAWS_A_SECOND,
            transient=True,
        )

    def start(self) -> None:
        """Begin to draw."""
        self._before = sys.stdout, sys.stderr
        self._live.start()
        # What is printed meanwhile, rich puts above the view, colours and links included.
        sys.stdout, sys.stderr = (cast(TextIO, PrintableStream(stream)) for stream in (sys.stdout, sys.stderr))

    def stop(self) -> None:
        """Leave the terminal as it was."""
        self._live.stop()
        sys.stdout, sys.stderr = self._before

    def render(self) -> Table:
        """The view as it is now."""
        state = self._state
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True, min_width=len("generation"))
        grid.add_column(overflow="ellipsis", no_wrap=True)
        grid.add_row("generation", self._generation())
        grid.add_row("", ProgressBar(state.info.generations, self._share(), width=BAR_WIDTH))
        grid.add_row("batch", self._batch())
        best = state.best_now()
        if best is not None:
            words = [written(best), gap(best, state.info), against_baseline(best, state.info)]
            grid.add_row("best", _text(", ".join(filter(None, words))))
        if state.adapted is not None:
            alive = signs_of_life(state.adapted.metrics, state.adapted.members)
            if state.adapted.zero_update:
                grid.add_row("weights", _text(f"did not move: {state.adapted.zero_update}", style="yellow"))
            elif alive:
                grid.add_row("weights", _text(", ".join(alive)))
        if state.last_probe is not None and state.first_probe is not None:
            grid.add_row("centre", _text(beside_first(state.last_probe, state.first_probe)))
        grid.add_row("time", self._time())
        return grid

    def _generation(self) -> Text:
        state = self._state
        operator = f", operator {state.tally.operator}" if state.tally.operator else ""
        return _text(f"{state.generation + 1}/{state.info.generations}{operator}")

    def _share(self) -> float:
        """Generations done, the one under way in part."""
        state = self._state
        expected = state.expected()
        part = min(state.tally.done / expected, 1.0) if expected else 0.0
        return state.done + (state.tally.batch + part) / max(len(state.sizes), 1) if expected else state.done

    def _batch(self) -> Text:
        tally, expected = self._state.tally, self._state.expected()
        if not tally.done:
            return _text("first answers under way")
        words = [f"{tally.done}{f'/{expected}' if expected else ''} answers"]
        words.append(f"{100.0 * tally.valid / tally.done:.0f} % valid")
        if tally.objectives:
            words.append(f"mean {written(fmean(tally.objectives))}")
        seconds = self._state.clock() - self._state.batch_started
        if seconds > 0.0:
            words.append(f"{tally.tokens / seconds:.0f} tokens/s")
        return _text(", ".join(words))

    def _time(self) -> Text:
        remaining = self._state.remaining()
        left = "" if remaining is None else f", about {clock(remaining)} left"
        return _text(f"{clock(self._state.elapsed())} elapsed{left}")


def _text(words: str, style: str = "") -> Text:
    """A cell: names of tasks, operators and reasons are an author's."""
    return Text(printable(words), style)
