"""Serving with coevo's own endpoint, over an engine in this process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from coevo.endpoint import serve
from coevo.endpoint.limits import FOR_PEOPLE
from coevo.interfaces import Engine
from coevo.tools.serve.learned import Learned
from coevo.tools.serve.where import Where


async def serve_own(engine: Engine, what: Learned, where: Where, seed: int, ready: Callable[[str], None]) -> None:
    """Serve the engine's centre until SIGINT or SIGTERM.

    Args:
        engine: at the weights to serve.
        what: gives model name, context and sampling.
        where: to listen, and who may ask.
        seed: for requests that bring none.
        ready: told the base URL once it can be asked.

    Raises:
        UserError: nothing can listen there.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with (
        engine.lease(None) as policy,
        serve(
            policy,
            sampling=what.sampling,
            seed=seed,
            system=what.system,
            model=what.name,
            host=where.host,
            port=where.port,
            key=where.key.value,
            names=where.names,
            limits=FOR_PEOPLE,
        ) as endpoint,
    ):
        ready(endpoint.base_url)
        await stop.wait()
