"""Where the server is, the key that it wants, and which models it has."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

from coevo.errors import UserError
from coevo.machine.network import is_loopback
from coevo.records import Json
from coevo_openai.connecting import LARGEST, OPENAI, QUICK_SECONDS, Connections, received
from coevo_openai.failures import NoCompletionError, is_of_http, of_connection, one_line, refused_key, said_in, sent_on
from coevo_openai.replies import parsed

if TYPE_CHECKING:
    from openai import AsyncOpenAI

T = TypeVar("T")

_MOST_NAMES = 20
_SHORTEST_SECRET = 16


class Server:
    """A server and how to open connections to it.

    Attributes:
        key, key_env: the key, empty without one, and the environment variable that it is in.
        secret: the key where it is long enough to be one; it is taken out of all that a server says.
        address: its URL.
        way: how it is reached where that is not directly, for the end of a message.
        headers: of every request.
    """

    def __init__(self, base_url: str, key_env: str, seconds: float) -> None:
        """Reads the environment; asks nothing.

        Args:
            base_url: as in the engine's options.
            key_env: likewise.
            seconds: that a request may take.

        Raises:
            UserError: there is no key, and the server is not on this machine; or a variable of the environment is
                wrong.
            ValueError: an address or a name of a variable that cannot be one, or that would write a secret to disk.
        """
        _check_name(key_env)
        self.address = _address(base_url)
        self.key_env = key_env
        self.key = os.environ.get(key_env, "").strip() if key_env else ""
        _check_key(self.key, key_env)
        # What local servers are often started with ("EMPTY", "token") may be a word of an answer.
        self.secret = self.key if len(self.key) >= _SHORTEST_SECRET else ""
        self._seconds = seconds
        if not self.key and self.key_env and not is_loopback(urlsplit(self.address).hostname or ""):
            raise UserError(
                f"engine 'openai' needs a key for {self.address}: set the environment variable {self.key_env}, or name "
                "another with --set openai.key_env=NAME"
            )
        self._connections = Connections(self.address, self.key, own=not base_url or _is_openais(self.address))
        self.way, self.headers = self._connections.way, self._connections.unkeyed

    def client(self) -> AsyncOpenAI:
        """Connections for the running event loop; close them with `async with`."""
        return self._connections.client(self._seconds)

    def models(self) -> list[tuple[str, str]]:
        """Names and owners of the models; empty where the server does not list them. Blocks.

        Raises:
            UserError: it cannot be reached, does not accept the key, or is somewhere else.
        """
        import openai

        try:
            return _done(self._own_models)
        except openai.AuthenticationError as error:
            said = one_line(said_in(error).text or "no more words", self.key)
            raise UserError(f"{self.address}: {refused_key(401, said, self.key_env)}") from None
        except (openai.APITimeoutError, TimeoutError):
            return []  # busy; a request will say more
        except openai.APIConnectionError as error:
            what = of_connection(error.__cause__ or error, self.key)
            raise UserError(f"no server can be reached at {self.address} {self._connections.failed(what)}") from None
        except openai.APIStatusError as error:
            if 300 <= error.status_code < 400:
                raise UserError(f"{self.address}: {sent_on(error.response, self.key)}") from None
            return []
        except Exception as error:
            if _is_no_list(error):
                return []  # it has no such list, or keeps it from this key
            raise

    async def _own_models(self) -> list[tuple[str, str]]:
        async with self._connections.client(min(self._seconds, QUICK_SECONDS)) as client:
            return await self._listed(client)

    async def _listed(self, client: AsyncOpenAI) -> list[tuple[str, str]]:
        """Names and owners of the models. The time is all that it may take: bytes that drip would last for ever."""
        models: Any = client.models
        async with asyncio.timeout(min(self._seconds, QUICK_SECONDS)):
            content, response = await received(models.with_streaming_response.list(extra_headers=self.headers))
        if len(content) > LARGEST:
            raise NoCompletionError(f"the list of models has more than {LARGEST >> 20} MB")
        listed = parsed(content, str(response.headers.get("content-type", ""))).get("data")
        if not isinstance(listed, list):
            raise NoCompletionError("the list of models is no list")
        models = [cast(Mapping[str, Json], model) for model in cast(list[Json], listed) if isinstance(model, dict)]
        return [(str(model.get("id")), str(model.get("owned_by"))) for model in models]

    async def offered(self, client: AsyncOpenAI) -> str:
        """Which models the server has, in words that end a message."""
        import openai

        try:
            names = [one_line(name, self.key) for name, _ in await self._listed(client)]
        except Exception as error:
            if not isinstance(error, openai.OpenAIError | TimeoutError) and not _is_no_list(error):
                raise
            return "check --model, and that the address of the server ends as it should, usually in /v1"
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"it offers {', '.join(names[:_MOST_NAMES]) or 'none'}{more}; choose with --model"


def _is_no_list(error: Exception) -> bool:
    """Whether there was an answer, and no list of models in it."""
    return isinstance(error, NoCompletionError) or is_of_http(error)


def _done(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What a coroutine gives, also for a caller within a running event loop, which waits."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    with ThreadPoolExecutor(1) as elsewhere:
        return elsewhere.submit(lambda: asyncio.run(work())).result()


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


def _check_url(url: str, name: str = "base_url") -> None:
    """Refuse what is no address of a server, and secrets in one: it is written to disk.

    Raises:
        ValueError: what is wrong.
    """
    try:
        parts = urlsplit(url)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
        secret = parts.username or parts.password or parts.query
    except ValueError:
        wrong, secret = True, ""
    if secret or "@" in url:  # what is no address may hold a password all the same
        raise ValueError(
            f"{name} may hold no user, password or query; put the key into the variable that key_env names"
        )
    if wrong:
        raise ValueError(f"{name} got {url!r}: expected one such as http://127.0.0.1:8000/v1")


def _address(base_url: str) -> str:
    """The server's URL: the option, else the environment's, else OpenAI's own."""
    if base_url:
        _check_url(base_url)
        return base_url.rstrip("/")
    named = os.environ.get("OPENAI_BASE_URL", "").strip()
    if not named:
        return OPENAI
    try:
        _check_url(named, "the environment variable OPENAI_BASE_URL")
    except ValueError as error:
        raise UserError(str(error)) from None
    return named.rstrip("/")


def _is_openais(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    return host == "openai.com" or host.endswith(".openai.com")
