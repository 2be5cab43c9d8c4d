"""A policy as an OpenAI-compatible endpoint, so that an agent of any framework can be evolved unchanged.

Whatever has `complete(requests)` can be served. Importing this loads neither starlette nor uvicorn.
"""

from __future__ import annotations

import importlib.util
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from coevo.endpoint.access import Access
from coevo.endpoint.limits import Limits
from coevo.errors import MissingExtraError
from coevo.interfaces import Endpoint, Policy
from coevo.machine.network import spare_loopback
from coevo.records import Sampling

MODEL = "coevo"
"""The model's name where nobody chose one: the same for all members, since an agent may read it."""


@asynccontextmanager
async def serve(
    policy: Policy,
    *,
    sampling: Sampling | None = None,
    seed: int | None = 0,
    system: str = "",
    model: str = MODEL,
    host: str = "127.0.0.1",
    port: int = 0,
    key: str | None = None,
    names: Sequence[str] = (),
    limits: Limits | None = None,
) -> AsyncGenerator[Endpoint]:
    """Serve `policy` in the running event loop until the context ends; requests after that are refused.

    Requests may come at once; each is a call of `complete` of its own. Where the environment names a proxy, loopback is
    added to NO_PROXY for good: whoever asks the endpoint, in this process or a child, would go through the proxy.

    Args:
        policy: who answers.
        sampling: for what a request leaves open.
        seed: requests without a seed are numbered as they come, and their seed is made of this one and the
            number. None: their seed is left at 0, for a policy that gives seeds itself.
        system: a system message that is put before all others.
        model: the name that requests have to give.
        host: the address to listen on; anything but loopback is seen by other machines.
        port: 0 lets the system choose.
        key: the bearer token to ask for; None makes a random one, since other users of a machine reach its loopback
            too, and an empty one asks for none.
        names: by which it may be asked besides its address and `localhost`, such as that of a proxy before it.
        limits: of what clients may have; None are `Limits()`.

    Yields:
        Where it is, once it can be asked.

    Raises:
        MissingExtraError: starlette or uvicorn is not installed, or not whole.
        UserError: nothing can listen at that host and port.
    """
    check_packages()
    spare_loopback()
    from coevo.endpoint.ports import listen

    try:
        from coevo.endpoint.application import Application
        from coevo.endpoint.server import running
    except ModuleNotFoundError as error:  # one that the two packages need
        raise MissingExtraError("an endpoint", error.name or "starlette", "serve") from error

    wanted = secrets.token_urlsafe(32) if key is None else key
    with listen(host, port) as (socket, origin):
        bounds = limits or Limits()
        application = Application(
            policy=policy,
            sampling=sampling or Sampling(),
            seed=seed,
            system=system,
            model=model,
            patience=bounds.answer_seconds,
        )
        async with running(application, socket, Access.of(host, wanted, names), bounds):
            yield Endpoint(f"{origin}/v1", wanted, model)


def check_packages() -> None:
    """Refuse to go on without what serves HTTP.

    Raises:
        MissingExtraError: which package.
    """
    for package in ("starlette", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError("an endpoint", package, "serve")
