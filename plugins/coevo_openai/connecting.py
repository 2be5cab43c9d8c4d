"""Clients of the openai package that take from the environment what is meant for the server, and no more.

By itself the package sends OPENAI_ORG_ID, OPENAI_PROJECT_ID and OPENAI_CUSTOM_HEADERS to whatever server it is given,
goes through a proxy to a server on this machine, follows a server that sends requests on, and fails in the words of
the library below it where a variable is wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from coevo.errors import UserError
from coevo.machine.network import Proxy, certificates, is_loopback, proxy_for

if TYPE_CHECKING:
    import ssl

    from openai import AsyncOpenAI

OPENAI = "https://api.openai.com/v1"
"""The package's own server."""
QUICK_SECONDS = 10.0
"""For a connection, and for a list of models."""
LARGEST = 16 << 20
"""Bytes of an answer, unpacked; no completion has so many, nor any list of models."""
_LARGEST_ERROR = 256 << 10
"""Bytes of a body that is no success, as they come: the package reads it whole."""


class Connections:
    """How one server is reached.

    Attributes:
        address: its URL, without a slash at the end.
        proxy: what is between, None where there is nothing.
        way: the same, for the end of a message.
    """

    def __init__(self, address: str, key: str, own: bool) -> None:
        """Reads the environment; connects to nothing.

        Args:
            address: of the server.
            key: that it gets, empty for none.
            own: whether the environment's other variables for the package are meant for this server.

        Raises:
            UserError: a variable of the environment is wrong.
        """
        self.address, self._key, self._own = address, key, own
        self.proxy: Proxy | None = proxy_for(address)
        self.way = f" (through {self.proxy})" if self.proxy else ""
        # Without TLS there is nothing to verify; reading all certificates takes longer than most requests.
        secure = address.lower().startswith("https:") or self.proxy is not None
        self._verify: ssl.SSLContext | bool = (certificates() or True) if secure else False

    def client(self, seconds: float) -> AsyncOpenAI:
        """A client for the running event loop; so many seconds may pass without a byte."""
        import openai

        return openai.AsyncOpenAI(**self._arguments(seconds, openai.DefaultAsyncHttpxClient))

    def _arguments(self, seconds: float, http: Any) -> dict[str, Any]:
        """Of a client. Its own retries are off: they know neither budget nor ledger."""
        import openai

        timeout = openai.Timeout(seconds, connect=min(seconds, QUICK_SECONDS))
        try:
            made = http(
                trust_env=False,  # what it would find there was looked up and checked
                proxy=self.proxy.url if self.proxy else None,
                verify=self._verify,
                follow_redirects=False,
                timeout=timeout,
                event_hooks={"response": [_cut_short]},
            )
        except (OSError, ValueError) as error:
            log = os.environ.get("SSLKEYLOGFILE")
            named = f"; the environment variable SSLKEYLOGFILE names {log!r}" if log else ""
            raise UserError(f"no connection to {self.address} can be prepared: {error}{named}") from None
        return {
            "api_key": self._key or "none",  # the package insists on one
            "base_url": self.address,
            "max_retries": 0,
            "timeout": timeout,
            "http_client": made,
            "default_headers": self._headers(),
        }

    def _headers(self) -> dict[str, Any]:
        """The key's, and what keeps those of another server back."""
        import openai

        # Given in any case, or one of OPENAI_CUSTOM_HEADERS would take its place.
        headers = {"Authorization": f"Bearer {self._key or 'none'}"}
        if self._own:
            return headers
        lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
        strange = [name for line in lines if (name := line.partition(":")[0].strip()).lower() != "authorization"]
        return {
            **{name: openai.Omit() for name in (*strange, "OpenAI-Organization", "OpenAI-Project") if name},
            **headers,
        }

    @property
    def unkeyed(self) -> dict[str, Any]:
        """Headers of every request, which leave the key's out where there is none."""
        import openai

        return {} if self._key else {"Authorization": openai.Omit()}

    def failed(self, what: str) -> str:
        """What to do about a server that cannot be reached, in words that begin with why.

        Args:
            what: the error in a line.
        """
        here = is_loopback(urlsplit(self.address).hostname or "")
        if "CERTIFICATE_VERIFY_FAILED" in what:
            file = os.environ.get("SSL_CERT_FILE")
            now = f"it is {file!r} now" if file else "it is not set now"
            return (
                f"({what}); its certificate is not known here: let the environment variable SSL_CERT_FILE name the "
                f"file of who signed it ({now})"
            )
        if "WRONG_VERSION_NUMBER" in what:
            return f"({what}); it does not speak https: give its address as http://… with --set openai.base_url=URL"
        if self.proxy:
            return (
                f"through {self.proxy} ({what}); mend or unset {self.proxy.variable}, or list the server in the "
                "environment variable NO_PROXY"
            )
        start = "start it" if here else "see that it runs and can be reached from here"
        return f"({what}); {start}, or give its address with --set openai.base_url=URL"


async def received(answering: Any) -> tuple[bytes, Any]:
    """The body of a success, unpacked, and the response that it came in; where it has more than LARGEST, its beginning.

    Args:
        answering: what a method of the package gives `with_streaming_response`.
    """
    async with answering as response:
        content = bytearray()
        async for part in response.iter_bytes():
            content += part
            if len(content) > LARGEST:
                break
        return bytes(content), response.http_response


async def _cut_short(response: Any) -> None:
    """Let an error have no endless body."""
    if response.status_code < 300:
        return
    # Of the library that the package came with; see `coevo_openai.failures.is_of_http`.
    library: Any = sys.modules[type(response).__module__.partition(".")[0]]
    whole = response.stream

    class Beginning(library.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = _LARGEST_ERROR
            async for part in whole:
                yield part[:left]
                left -= len(part)
                if left <= 0:
                    return

        async def aclose(self) -> None:
            await whole.aclose()

    response.stream = Beginning()
