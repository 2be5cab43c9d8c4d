"""The gate of coevo before vLLM's own server, which takes such layers by their name (its option `middleware`).

vLLM asks for its key below `/v1` and some other prefixes only, while other paths generate as well, and answers to
whatever name and web page asks. A process of its own has to be told: by its environment, as with the key.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

from coevo.endpoint.access import Access
from coevo.endpoint.gate import App, Gate
from coevo.endpoint.limits import Limits

NAME = f"{__name__}.VllmGate"
KEY = "VLLM_API_KEY"
"""Where vLLM reads its key; on a command line every user of the machine could read it."""
HOSTS = "COEVO_SERVED_NAMES"
"""Where it listens, and the other names that it answers to, with spaces between."""


class VllmGate(Gate):
    """A gate by the environment."""

    def __init__(self, app: App) -> None:
        """Stand before vLLM's application; without the environment of `tell` nobody is let in by any other name."""
        host, *names = os.environ.get(HOSTS, "localhost").split()
        super().__init__(app, Access.of(host, os.environ.get(KEY, ""), names), Limits())


def tell(environment: MutableMapping[str, str], key: str, host: str, names: tuple[str, ...]) -> None:
    """Put into the environment of vLLM's server what the gate is to know."""
    environment.pop(KEY, None)
    if key:
        environment[KEY] = key
    environment[HOSTS] = " ".join((host, *names))
