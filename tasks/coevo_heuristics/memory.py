"""What is known of programs, so that none is evaluated twice: in this process, and on disk for the next.

What an answer is told depends on its program and its bar alone, never on what else has been evaluated. Where values
are known, a race is therefore run over them as the sandbox would run it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Protocol, TypeAlias

from coevo.records import OUTRACED
from coevo.sandbox import Bar, Evaluation, Evaluator
from coevo.sandbox.racing import SAID, Track

Name: TypeAlias = tuple[str, str]


class Keeper(Protocol):
    """Where results outlive the process."""

    def get(self, split: str, program: str) -> Evaluation | None:
        """What is known of a program."""
        ...

    def put(self, split: str, program: str, code: str, found: Evaluation) -> None:
        """Keep a result, if it is one to keep."""
        ...


class Memory:
    """Evaluates programs, or answers from what is known of them; for many threads."""

    def __init__(self, evaluator: Callable[[str], Evaluator], keeper: Keeper | None = None) -> None:
        """Begin with nothing known in this process.

        Args:
            evaluator: of a split.
            keeper: of results of other processes, None for none.
        """
        self._evaluator, self._keeper = evaluator, keeper
        self._lock = threading.Lock()
        self._known: dict[Name, Evaluation] = {}
        self._running: dict[tuple[str, str, Bar | None], Future[Evaluation]] = {}

    def evaluate(self, code: str, split: str, program: str, bar: Bar | None = None) -> Evaluation:
        """The result of `code`, whose canonical key is `program`.

        Of two threads with the same program and bar one works and the other waits for it.

        Raises:
            RunError: the sandbox itself failed.
        """
        name = (split, program, bar)
        with self._lock:
            future = self._running.get(name)
            mine = future is None
            if future is None:
                future = self._running[name] = Future[Evaluation]()
        if mine:
            try:
                future.set_result(self._evaluated(code, split, program, bar))
            except BaseException as error:  # noqa: BLE001 - handed on
                # The sandbox failed, not the code: whoever waits hears of it, whoever comes later tries again.
                future.set_exception(error)
            finally:
                with self._lock:
                    del self._running[name]
        return future.result()

    def _evaluated(self, code: str, split: str, program: str, bar: Bar | None) -> Evaluation:
        known = self._recall(split, program)
        if known is not None and (answer := settled(known, bar, lambda: self._evaluator(split).track)) is not None:
            return answer
        found = self._evaluator(split).evaluate(code, bar)
        if known is not None and known.status != OUTRACED and found.status != OUTRACED:
            # It failed before, without a race; what came first stands, also of what does not end alike each time.
            found = replace(known, raced=True, seen=found.seen or found.per_instance)
        if known is None or _tells_more(found, known):
            self.learn(split, program, found)
            if self._keeper is not None:
                self._keeper.put(split, program, code, found)
        return found

    def learn(self, split: str, program: str, found: Evaluation) -> None:
        """Know a result from here on."""
        with self._lock:
            self._known[split, program] = found

    def _recall(self, split: str, program: str) -> Evaluation | None:
        with self._lock:
            known = self._known.get((split, program))
        if known is None and self._keeper is not None:
            known = self._keeper.get(split, program)
            if known is not None:
                with self._lock:
                    self._known.setdefault((split, program), known)
        return known


def settled(known: Evaluation, bar: Bar | None, track: Callable[[], Track]) -> Evaluation | None:
    """What an evaluation against `bar` would end with, given that it ended like `known` once; None if that is open."""
    final = known.status != OUTRACED
    if bar is None or not track().stages:
        return known if final else None
    values = known.per_instance or known.seen
    if track().outraced(values, bar):
        return Evaluation(
            status=OUTRACED,
            objective=None,
            per_instance=(),
            message=SAID,
            stdout="",
            cpu_seconds=0.0,
            seconds=0.0,
            raced=True,
            seen=values,
        )
    # Of a failure outside a race nobody knows how far it came.
    return known if known.status == "ok" or (final and known.raced) else None


def _tells_more(found: Evaluation, known: Evaluation) -> bool:
    def rank(one: Evaluation) -> tuple[bool, bool, int]:
        return one.status != OUTRACED, one.status == "ok" or one.raced, len(one.seen)

    return rank(found) > rank(known)
