"""Where to serve, who may ask there, and how the user is told a key that was made."""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import dataclass, field

from coevo.endpoint.access import listens_here_only
from coevo.errors import UserError


@dataclass(frozen=True, slots=True)
class Key:
    """A key.

    Attributes:
        value: the bearer token, empty where none is asked for.
        made: whether it was made for this start, so that nobody knows it yet.
    """

    value: str = field(repr=False)
    made: bool = False

    def tell(self) -> None:
        """Print a key that was made, once, in one line on standard error."""
        if self.made:
            print(
                "coevo: the key of this start, to be sent as 'Authorization: Bearer KEY' (OpenAI's clients: api_key); "
                f"--key-env NAME takes one of yours, --no-key none: {self.value}",
                file=sys.stderr, flush=True,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Where:
    """A place to serve at.

    Attributes:
        host: to listen on.
        port: to listen on, 0 for any.
        key: to ask for.
        names: that it answers to, besides its address and `localhost`.
    """

    host: str
    port: int
    key: Key
    names: tuple[str, ...] = ()


def key_of(variable: str | None, without: bool, host: str) -> Key:
    """The key of an environment variable, one that is made, or none.

    Args:
        variable: its name, if one was given.
        without: whether none is to be asked for.
        host: where the server listens.

    Raises:
        UserError: the variable has none, or there has to be one.
    """
    if without and variable is not None:
        raise UserError(f"--key-env {variable} and --no-key exclude each other; give one of them")
    if without:
        if not listens_here_only(host):
            raise UserError(
                f"--no-key with --host {host}: it is reached from other machines, and anybody could use the model; "
                "leave out --no-key, or give a key with --key-env NAME"
            )
        return Key("")
    if variable is None:
        return Key(secrets.token_urlsafe(32), made=True)
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UserError(f"--key-env {variable}: there is no such environment variable, or it is empty")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UserError(
            f"--key-env {variable}: the key has a letter that no header can hold; expected letters, digits and signs "
            "of ASCII without spaces"
        )
    return Key(key)
