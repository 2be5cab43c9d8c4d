"""What stands before every server of coevo, as ASGI: it lets in whole requests of those who may ask, and not too many.

It is put around coevo's own endpoint, and around vLLM's server by that server's option for such layers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.responses import JSONResponse

from coevo.endpoint.access import Access
from coevo.endpoint.errors import ApiError, busy
from coevo.endpoint.limits import Limits

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Gate:
    """An application that only sees requests which have passed."""

    def __init__(self, app: App, access: Access, limits: Limits) -> None:
        """Stand before `app`."""
        self._app, self._access, self._limits = app, access, limits
        self._running = self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as ASGI asks for."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        http = scope["type"] == "http"
        try:
            self._access.check(scope["method"] if http else "GET", scope["path"], scope["headers"])
            if http:
                await self._let_in(scope, receive, send)
        except ApiError as error:
            if http:
                # Where requests begin and end is not sure after one whose head is wrong.
                more = {"connection": "close"} if error.status == 400 else {}
                await JSONResponse(error.body(), error.status, {**error.headers(), **more})(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008, "reason": error.message[:120]})
            return
        if not http:
            await self._app(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._running >= self._limits.requests:
            raise busy(f"{self._running} requests are being answered")
        self._check_size(_declared(scope))
        body = bytearray()
        self._running += 1
        try:
            # A body is read as a whole first: so it is bounded in size and time whatever the application would do.
            if await self._read(receive, body):
                await self._app(scope, _again(bytes(body), receive), send)
        finally:
            self._running -= 1
            self._held -= len(body)

    async def _read(self, receive: Receive, body: bytearray) -> bool:
        """Read into `body`; false if the client has gone."""
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return False
                    part: bytes = message.get("body", b"")
                    self._check_size(len(body) + len(part))
                    if self._held + len(part) > self._limits.held_bytes:
                        raise busy(f"requests of {self._held >> 20} MB are being answered")
                    body += part
                    self._held += len(part)
                    if not message.get("more_body"):
                        return True
        except TimeoutError:
            seconds = self._limits.body_seconds
            raise ApiError(408, f"the request did not arrive within {seconds:g} s", "request_timeout") from None

    def _check_size(self, size: int) -> None:
        if size > self._limits.body_bytes:
            raise ApiError(
                413, f"the request is larger than {self._limits.body_bytes / (1 << 20):g} MB", "request_too_large"
            )


def _declared(scope: Scope) -> int:
    given = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    # Python refuses to read a number of thousands of digits, and none that long fits.
    return int(given[:20]) if given.isdigit() else 0


def _again(body: bytes, receive: Receive) -> Receive:
    """Gives `body`, and then what else there is to know of the client."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def give() -> Message:
        return left.pop() if left else await receive()

    return give
