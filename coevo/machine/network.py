"""What the environment says about connections: proxies and certificates. Loopback never goes through a proxy.

Libraries read these variables each in its own way and fail in words that name none of them. Here they are read once,
by the rules of Python's own library, and what is wrong with one is said in a line with its name.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from coevo.errors import UserError

if TYPE_CHECKING:
    import ssl
    import urllib.request
    from collections.abc import MutableMapping

_SCHEMES = ("http", "https", "socks5", "socks5h")
_HERE = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Proxy:
    """What stands between this machine and a server.

    Attributes:
        url: as a client takes it; it may hold a password, so show the proxy as text only.
        variable: of the environment, that names it.
    """

    url: str
    variable: str

    def __str__(self) -> str:
        """Where it is and who named it, without a password."""
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"the proxy {parts.scheme}://{host}{f':{parts.port}' if parts.port else ''} of {self.variable}"


def is_loopback(host: str) -> bool:
    """Whether a host, given by name or number, is this machine."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def proxy_for(url: str) -> Proxy | None:
    """The proxy that the environment names for a URL, None where it is asked directly.

    Raises:
        UserError: the variable names no proxy that could be used.
    """
    import urllib.request

    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = urllib.request.getproxies()
    if is_loopback(host) or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    scheme = next((name for name in (parts.scheme, "all") if proxies.get(name)), None)
    if scheme is None:
        return None
    given, variable = proxies[scheme], _variable(scheme)
    proxy = Proxy(given if "://" in given else f"http://{given}", variable)
    _check(proxy)
    return proxy


def certificates() -> ssl.SSLContext | None:
    """How servers are verified where the environment says so (SSL_CERT_FILE, SSL_CERT_DIR), else None.

    Raises:
        UserError: what a variable names cannot be used.
    """
    import ssl

    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not file and not folder:
        return None
    variable, given = ("SSL_CERT_FILE", file) if file else ("SSL_CERT_DIR", folder)
    wrong = f"the environment variable {variable} names {given!r}"
    if not file and not os.path.isdir(str(folder)):
        raise UserError(f"{wrong}, which is no folder; unset it, or name a folder with certificates")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=file or None, capath=None if file else folder)
    except (OSError, ValueError) as error:  # errors of ssl are of the system, too
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise UserError(f"{wrong}, which holds no certificates ({reason}); unset it, or name a file in PEM") from None
    return context


def local_opener() -> urllib.request.OpenerDirector:
    """A client for servers on this machine, whatever the environment says."""
    import urllib.request

    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def spare_loopback(environment: MutableMapping[str, str] | None = None) -> None:
    """Add this machine to NO_PROXY where there is a proxy: clients that others wrote ask servers of ours, too.

    Args:
        environment: None is that of this process, which its children inherit.
    """
    variables = os.environ if environment is None else environment
    if not any(name.lower().endswith("_proxy") and name.lower() != "no_proxy" for name in variables):
        return
    for name in ("NO_PROXY", "no_proxy"):
        # Of the two the one in small letters is read where both are set.
        given = variables.get(name) or variables.get("no_proxy") or variables.get("NO_PROXY") or ""
        listed = [host.strip() for host in given.split(",") if host.strip()]
        if "*" not in listed:
            variables[name] = ",".join([*listed, *(host for host in _HERE if host not in listed)])


def _variable(scheme: str) -> str:
    named = [name for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper()) if os.environ.get(name)]
    return named[0] if named else "the system's settings"


def _check(proxy: Proxy) -> None:
    scheme = proxy.url.partition("://")[0].lower()
    try:
        parts = urlsplit(proxy.url)
        wrong = scheme not in _SCHEMES or not parts.hostname or parts.port == 0
    except ValueError:
        wrong = True
    if wrong:
        shown = proxy.url.rpartition("@")[2]  # not the password before it
        raise UserError(
            f"the environment variable {proxy.variable} names the proxy {shown!r}; expected one such as "
            "http://HOST:PORT or socks5://HOST:PORT; mend or unset it, or list the server in NO_PROXY"
        )
    if scheme.startswith("socks") and importlib.util.find_spec("socksio") is None:
        raise UserError(
            f"the environment variable {proxy.variable} names a SOCKS proxy, and the package 'socksio' for that is not "
            "installed; mend it with: pip install socksio; or unset the variable, or list the server in NO_PROXY"
        )
