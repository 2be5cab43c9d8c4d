"""Who may ask a server: by which name it was asked, from which web page, with which key, in which form.

A web page that somebody opens on this machine can send requests to its loopback, and by a name of its own that it lets
point there (DNS rebinding) it could read the answers. So a server answers to its own names only, and to no other page.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from coevo.endpoint.errors import ApiError

Headers = Sequence[tuple[bytes, bytes]]
"""As ASGI has them: names in small letters."""

OPEN = ("/health",)
"""Paths that tell everybody whether the server is up, and nothing else."""
_NAME = r"[A-Za-z0-9._-]+"
_AUTHORITY = re.compile(rf"(\[[0-9A-Fa-f:.]+\]|{_NAME})(?::[0-9]{{1,5}})?")
_SAFE = ("GET", "HEAD", "OPTIONS")
_ONCE = ("host", "origin", "authorization", "content-type", "content-length", "transfer-encoding")


def is_name(name: str) -> bool:
    """Whether a host could have this name."""
    return re.fullmatch(_NAME, name) is not None


def listens_here_only(host: str) -> bool:
    """Whether no other machine reaches a server that listens on `host`."""
    address = _address(host)
    if address is None:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")
    return address.is_loopback


@dataclass(frozen=True, slots=True)
class Access:
    """What a request must bring.

    Attributes:
        key: the bearer token, empty for none.
        names: that the server answers to, in small letters.
        here_only: whether it listens on loopback. Elsewhere it answers to every number as well: a page cannot make a
            number point to another machine, and behind a forwarded port the number is not the server's own.
    """

    key: str = field(repr=False)
    names: frozenset[str]
    here_only: bool

    @classmethod
    def of(cls, host: str, key: str, names: Iterable[str] = ()) -> Access:
        """The access to a server that listens on `host` and has other names besides.

        Args:
            host: as given, a name or a number.
            key: the bearer token, empty for none.
            names: more names that clients use, such as that of a proxy before it.
        """
        here_only = listens_here_only(host)
        own = {"localhost", host, *names}
        if not here_only:
            own.add(socket.gethostname())
        return cls(key, frozenset(name.lower().rstrip(".") for name in own) - {""}, here_only)

    def check(self, method: str, path: str, headers: Headers) -> None:
        """Let a request pass, by nothing but its head.

        Raises:
            ApiError: 400, 401, 403, 415 or 421; one line that says what is wrong.
        """
        given = _single(headers)
        self._check_host(given.get("host"))
        _check_origin(given.get("origin"), given["host"])
        if not (path in OPEN and method in _SAFE):
            self._check_key(given.get("authorization", ""))
        if "content-length" in given and "transfer-encoding" in given:
            # Proxies and servers that take different ones of the two see different requests.
            raise ApiError(400, "the request has both Content-Length and Transfer-Encoding; expected one of them")
        if method not in _SAFE:
            _check_content_type(given.get("content-type", ""))

    def _check_host(self, host: str | None) -> None:
        if host is None:
            raise ApiError(400, "the header Host is missing")
        found = _AUTHORITY.fullmatch(host)
        name = found[1].lower().rstrip(".") if found else ""
        address = _address(name)
        if name in self.names or (address is not None and (address.is_loopback or not self.here_only)):
            return
        raise ApiError(
            421, f"this server does not answer to the name {host[:80]!r}; ask it by the address that it told, or start "
            "it with --allow-host NAME", "wrong_host",
        )  # fmt: skip

    def _check_key(self, authorization: str) -> None:
        scheme, _, given = authorization.partition(" ")
        right = secrets.compare_digest(given.strip().encode(), self.key.encode())
        if self.key and not (right and scheme.lower() == "bearer"):
            raise ApiError(
                401, "the key is missing or wrong; send the header: Authorization: Bearer KEY", "invalid_api_key"
            )


def _single(headers: Headers) -> dict[str, str]:
    """The headers that decide, which there must not be twice: somebody else may have read the other one."""
    found: dict[str, str] = {}
    for raw, value in headers:
        name = raw.decode("latin-1")
        if name in _ONCE:
            if name in found:
                raise ApiError(400, f"the header {name.title()} is there more than once")
            found[name] = value.decode("latin-1").strip()
    return found


def _check_origin(origin: str | None, host: str) -> None:
    if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
        raise ApiError(403, f"the web page of {origin[:80]!r} may not ask this server", "wrong_origin")


def _check_content_type(given: str) -> None:
    if given.partition(";")[0].strip().lower() != "application/json":
        raise ApiError(
            415, f"the content type is {given[:80]!r}; send the header: Content-Type: application/json",
            "unsupported_media_type",
        )  # fmt: skip


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
