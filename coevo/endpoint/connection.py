"""A connection that does not wait for ever. uvicorn has a time limit between two requests, and none within one."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from coevo.endpoint.errors import ApiError, busy
from coevo.endpoint.limits import Limits


class Connection(H11Protocol):
    """uvicorn's, with clocks for what a client owes: its headers, the rest of a body that was refused, its reading."""

    def __init__(self, *, limits: Limits, **given: Any) -> None:
        """`given`: uvicorn's own arguments."""
        super().__init__(**given)
        self._limits = limits
        self._owed: tuple[str, object] | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Accept, unless there are too many."""
        super().connection_made(transport)
        # uvicorn's own limit would answer, and keep the connection.
        if len(self.connections) > self._limits.connections:
            self._refuse(busy(f"{self._limits.connections} connections are open"))
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        if not self.transport.is_closing():
            super().data_received(data)
            self._watch()

    def on_response_complete(self) -> None:
        """Go on with the next request."""
        super().on_response_complete()
        self._watch()

    def timeout_keep_alive_handler(self) -> None:
        """Close what is not used."""
        super().timeout_keep_alive_handler()
        self._watch()

    def shutdown(self) -> None:
        """Close as soon as nothing is being answered."""
        super().shutdown()
        self._watch()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._unread = self.loop.call_later(self._limits.rest_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        _stop(self._unread)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is owed any more."""
        super().connection_lost(exc)
        for clock in (self._clock, self._unread, self.timeout_keep_alive_task):
            _stop(clock)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; uvicorn would fail here if it came after an answer had begun."""
        # Why exactly is not said: h11's words repeat bytes, which may be another client's behind a bad proxy.
        status = getattr(sys.exception(), "error_status_hint", 400)
        self._refuse(ApiError(status, "this is no valid request of HTTP/1.1", "invalid_http"))

    def _watch(self) -> None:
        """Start the clock for what is owed now, unless it runs."""
        owed = self._now_owed()
        if owed == self._owed:
            return
        self._owed = owed
        _stop(self._clock)
        if owed is not None:
            clocks: dict[str, tuple[float, Callable[[], None]]] = {
                "head": (self._limits.head_seconds, self._late_head),
                "rest": (self._limits.rest_seconds, self.transport.abort),
            }
            self._clock = self.loop.call_later(*clocks[owed[0]])

    def _now_owed(self) -> tuple[str, object] | None:
        """What the client owes, and of which request."""
        if self.transport.is_closing():
            return "rest", None
        if self.conn.their_state is h11.IDLE:
            return "head", self.cycle
        if self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            return "rest", self.cycle
        return None  # the body of a request is the gate's

    def _late_head(self) -> None:
        seconds = self._limits.head_seconds
        self._refuse(ApiError(408, f"the headers did not arrive within {seconds:g} s", "request_timeout"))

    def _refuse(self, error: ApiError) -> None:
        """Say why where no answer has begun, and close."""
        answering: Any = self.cycle  # None before the first request, whatever uvicorn's types say
        if answering is not None and answering.response_started and not answering.response_complete:
            self.transport.abort()
            return
        body = json.dumps(error.body()).encode()
        headers = {"content-type": "application/json", "content-length": len(body), "connection": "close"}
        lines = [f"{name}: {value}\r\n" for name, value in {**headers, **error.headers()}.items()]
        phrase = HTTPStatus(error.status).phrase
        # Not by h11: it may be in a state of error, and knows no answer without a request.
        self.transport.write(f"HTTP/1.1 {error.status} {phrase}\r\n{''.join(lines)}\r\n".encode() + body)
        self.transport.close()
        self._watch()


def _stop(clock: asyncio.TimerHandle | None) -> None:
    if clock is not None:
        clock.cancel()
