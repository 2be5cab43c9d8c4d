"""Where the server is, the key that it wants, and which models it has."""

from __future__ import annotations

import ipaddress
import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from coevo.errors import UserError
from coevo_openai.failures import one_line, refused_key, said_in

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_QUICK_SECONDS = 10.0
"""For a connection, and for a list of models."""
_MOST_NAMES = 20
_SHORTEST_SECRET = 16


class Server:
    """A server and how to open connections to it.

    Attributes:
        key, key_env: the key, empty without one, and the environment variable that it is in.
        secret: the key where it is long enough to be one; it is taken out of all that a server says.
        address: its URL.
    """

    def __init__(self, base_url: str, key_env: str, seconds: float) -> None:
        """Reads the environment; asks nothing.

        Args:
            base_url: as in the engine's options.
            key_env: likewise.
            seconds: that a request may take.

        Raises:
            UserError: there is no key, and the server is not on this machine.
            ValueError: an address or a name of a variable that cannot be one, or that would write a secret to disk.
        """
        _check_name(key_env)
        self._url = base_url or os.environ.get("OPENAI_BASE_URL") or None
        if self._url is not None:
            _check_url(self._url)
        self.key_env = key_env
        self.key = os.environ.get(key_env, "").strip() if key_env else ""
        _check_key(self.key, key_env)
        # What local servers are often started with ("EMPTY", "token") may be a word of an answer.
        self.secret = self.key if len(self.key) >= _SHORTEST_SECRET else ""
        self._seconds = seconds
        self.address = self._find_address()

    def client(self) -> AsyncOpenAI:
        """Connections for the running event loop; close them with `async with`."""
        import openai

        return openai.AsyncOpenAI(**self._arguments(self._seconds))

    def _arguments(self, seconds: float) -> dict[str, Any]:
        """Of a client. Its own retries are off: they know neither budget nor ledger."""
        import openai

        timeout = openai.Timeout(seconds, connect=min(seconds, _QUICK_SECONDS))
        # The package insists on a key; a server that needs none does not read it.
        return {"api_key": self.key or "none", "base_url": self._url, "max_retries": 0, "timeout": timeout}

    def _find_address(self) -> str:
        import openai

        with openai.OpenAI(**self._arguments(self._seconds)) as client:
            address = str(client.base_url).rstrip("/")
        if not self.key and self.key_env and not _is_here(address):
            raise UserError(
                f"engine 'openai' needs a key for {address}: set the environment variable {self.key_env}, or name "
                "another with --set openai.key_env=NAME"
            )
        return address

    def models(self) -> list[tuple[str, str]]:
        """Names and owners of the models; empty where the server does not list them. Blocks.

        Raises:
            UserError: it cannot be reached, or does not accept the key.
        """
        import openai

        try:
            with openai.OpenAI(**self._arguments(min(self._seconds, _QUICK_SECONDS))) as client:
                return [(str(model.id), str(model.owned_by)) for model in client.models.list().data or []]
        except openai.AuthenticationError as error:
            raise UserError(
                f"{self.address}: {refused_key(401, one_line(said_in(error), self.key), self.key_env)}"
            ) from None
        except openai.APITimeoutError:
            return []  # busy; a request will say more
        except openai.APIConnectionError as error:
            raise UserError(
                f"no server can be reached at {self.address} ({one_line(error.__cause__ or error, self.key)}); start "
                "it, or give its address with --set openai.base_url=URL"
            ) from None
        except (openai.OpenAIError, ValueError, TypeError, AttributeError):
            return []  # it has no such list, or keeps it from this key

    async def offered(self, client: AsyncOpenAI) -> str:
        """Which models the server has, in words that end a message."""
        import openai

        try:
            page = await client.models.list(timeout=_QUICK_SECONDS)
            names = [str(model.id) for model in page.data or []]
        except (openai.OpenAIError, ValueError, TypeError, AttributeError):
            return "check --model, and that the address of the server ends as it should, usually in /v1"
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"it offers {', '.join(names[:_MOST_NAMES]) or 'none'}{more}; choose with --model"


def _check_name(key_env: str) -> None:
    """Refuse a key in place of its variable's name, without repeating it: it would be written to disk.

    Raises:
        ValueError: it cannot be a name.
    """
    if key_env and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", key_env):
        raise ValueError(
            "key_env is the name of an environment variable, such as OPENAI_API_KEY, and never the key itself; it may "
            "hold upper-case letters, digits and _"
        )


def _check_key(key: str, key_env: str) -> None:
    """Refuse what no header can carry: libraries repeat it in their errors, in forms that cannot be taken out.

    Raises:
        UserError: names the variable and never the key.
    """
    if not re.fullmatch(r"[!-~]*", key):
        raise UserError(
            f"the environment variable {key_env} holds {len(key)} characters that are no key: expected printable ASCII "
            "without spaces or line breaks"
        )


def _check_url(url: str) -> None:
    """Refuse what is no address of a server, and secrets in one: it is written to disk.

    Raises:
        ValueError: what is wrong.
    """
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query:
        raise ValueError(
            "base_url may hold no user, password or query; put the key into the variable that key_env names"
        )
    try:
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        wrong = True
    if wrong:
        raise ValueError(f"base_url got {url!r}: expected one such as http://127.0.0.1:8000/v1")


def _is_here(address: str) -> bool:
    """Whether an address is of this machine."""
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
