"""What the environment says of folders and connections, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator

from coevo.errors import UserError
from coevo.machine.network import certificates, proxy_for
from coevo.models.catalogue import cache_folder
from coevo.tools.doctor.checks import Check, one_line


def folders() -> Check | None:
    """A failure where there is no folder for what coevo keeps, None where there is one."""
    try:
        cache_folder()
    except UserError as error:
        found, _, mend = str(error).partition("; ")
        return Check("home", "failure", one_line(found), mend)
    return None


def connections() -> Iterator[Check]:
    """Proxies and certificates; a warning, because a run on this machine needs neither."""
    told: list[str] = []
    for scheme in ("http", "https"):
        try:
            # Any server elsewhere: `.invalid` is nobody's.
            proxy = proxy_for(f"{scheme}://server.invalid")
        except UserError as error:
            yield _wrong("proxy", error)
            return
        told += [f"{scheme} through {proxy}"] if proxy else []
    yield Check("proxy", "ok", "; ".join(told) or "none: servers are asked directly")
    try:
        certificates()
    except UserError as error:
        yield _wrong("certificates", error)


def _wrong(name: str, error: UserError) -> Check:
    found, _, mend = str(error).partition("; ")
    return Check(name, "warning", one_line(found), mend)
