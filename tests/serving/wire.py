"""A server, and clients of it that write bytes, as an attacker would."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress

from coevo.endpoint import serve
from coevo.records import Completion

PATIENCE_SECONDS = 600
SHORT = 0.2
"""A limit for what must be stopped; nothing honest in these tests meets it."""
HELLO = json.dumps({"messages": [{"role": "user", "content": "hello"}]}).encode()


class Answers:
    """Says hello, or waits until it is told to."""

    id = "0"

    def __init__(self, gate=None):
        self.gate, self.asked, self.all_in, self.expected = gate, 0, asyncio.Event(), 0

    async def complete(self, requests):
        self.asked += len(requests)
        if self.asked == self.expected:
            self.all_in.set()
        if self.gate is not None:
            await self.gate.wait()
        return [Completion("hello", (1,), (2,), "stop") for _ in requests]


class Wire:
    """A connection of bytes."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def send(self, data):
        self.writer.write(data)
        with suppress(ConnectionError):
            await self.writer.drain()

    async def answer(self):
        """(status, headers, body) of the next answer."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(first.split()[1]), headers, body

    async def closed(self):
        """What still comes before the other side closes."""
        with suppress(ConnectionError):
            return await self.reader.read()
        return b""


class Server:
    def __init__(self, endpoint):
        self.endpoint = endpoint
        self.port = int(endpoint.base_url.split(":")[2].removesuffix("/v1"))
        self.host = f"127.0.0.1:{self.port}"

    @asynccontextmanager
    async def wire(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        try:
            yield Wire(reader, writer)
        finally:
            writer.close()

    def head(self, method="POST", path="/v1/chat/completions", version="1.1", **changed):
        """A request's head; a header that is None is left out, one that is a list comes as often."""
        headers = {
            "host": self.host, "authorization": f"Bearer {self.endpoint.key}", "content-type": "application/json",
            **{name.replace("_", "-"): value for name, value in changed.items()},
        }  # fmt: skip
        lines = [
            f"{name}: {value}\r\n"
            for name, given in headers.items()
            for value in (given if isinstance(given, list) else [given])
            if value is not None
        ]
        return f"{method} {path} HTTP/{version}\r\n{''.join(lines)}\r\n".encode()

    def post(self, body=HELLO, **changed):
        return self.head(content_length=len(body), **changed) + body

    async def honest(self):
        """Ask until it answers: a machine that stands still for a moment may meet a short limit."""
        while (await self.status(self.post()))[0] != 200:
            await asyncio.sleep(0.05)

    async def status(self, data):
        async with self.wire() as wire:
            await wire.send(data)
            status, headers, body = await wire.answer()
            return status, headers, json.loads(body)


def attacked(test, policy=None, **options):
    """Run `test(server)`; whatever was done to it, it answers the next one who may ask."""

    async def run():
        asked = policy or Answers()
        async with serve(asked, **options) as endpoint:
            server = Server(endpoint)
            found = await test(server)
            await server.honest()
            return found

    return asyncio.run(asyncio.wait_for(run(), PATIENCE_SECONDS))


def said(policy=None, body=HELLO, options=None, **changed):
    """(status, headers, JSON) of one request with some headers changed."""

    async def test(server):
        return await server.status(server.post(body, **changed))

    return attacked(test, policy, **(options or {}))
