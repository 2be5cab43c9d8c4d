"""The observer: hands what happens to the state, and the state to a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from coevo import BatchReport, GenerationReport, Rollout, RunInfo, hookimpl
from coevo.machine.streams import standard_output
from coevo.text import printable
from coevo_progress.state import State, batch_line, start_line
from coevo_progress.view import View


class Progress:
    """Shows a run: live where standard output is a terminal, else a line a batch.

    Args:
        plain: a line a batch even in a terminal.
        console: where to; None is standard output.
    """

    def __init__(self, *, plain: bool = False, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, file=standard_output())
        self._live = self._console.is_terminal and not self._console.is_dumb_terminal and not plain
        self._state: State | None = None
        self._view: View | None = None
        self._reader_is_gone = False

    @hookimpl
    def run_started(self, info: RunInfo) -> None:
        """Say what starts."""
        self._state = State(info)
        self._line(start_line(info))
        if self._live:
            self._view = View(self._state, self._console)
            self._view.start()

    @hookimpl
    def rollouts_finished(self, generation: int, rollouts: Sequence[Rollout]) -> None:
        """Count a chunk; the live view redraws by itself."""
        if self._state is not None:
            self._state.rollouts(generation, rollouts)

    @hookimpl
    def batch_finished(self, report: BatchReport) -> None:
        """A line a batch; above the live view there is one too, so that the history stays."""
        if self._state is not None:
            self._state.batch(report)
            self._line(batch_line(report, self._state.info))

    @hookimpl
    def probe_finished(self, report: BatchReport) -> None:
        """What the centre answers now."""
        if self._state is not None:
            self._line(self._state.probe(report))

    @hookimpl
    def generation_finished(self, report: GenerationReport) -> None:
        """For the pace."""
        if self._state is not None:
            self._state.finished(report)

    @hookimpl
    def run_finished(self) -> None:
        """Give the terminal back: cursor, echo, nothing half drawn."""
        view, self._view = self._view, None
        if view is not None:
            view.stop()

    def _line(self, text: str) -> None:
        text = printable(text)  # consoles write past what makes all other output so
        if self._view is not None:
            self._console.print(text, markup=False)
        elif not self._reader_is_gone:
            try:
                print(text, file=self._console.file, flush=True)
            except BrokenPipeError:
                # `coevo run | head`: the run itself goes on.
                self._reader_is_gone = True
