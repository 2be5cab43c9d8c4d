"""Engines that fail in every way a process can, as a plugin file."""

import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import coevo
from coevo.errors import CheckFailedError, MissingExtraError


class WordEngine:
    """Says one word."""

    def __init__(self, model: str = "", *, word: str = "yes", adapts: bool = False, reason: str = "length"):
        self.capabilities = coevo.Capabilities(adapts=adapts)
        self.id, self.word, self.reason = "word", word, reason

    @asynccontextmanager
    async def lease(self, perturbation):
        yield self

    async def complete(self, requests):
        print("words on standard output are not the answer")
        tokens = tuple(range(len(self.word)))
        return [coevo.Completion(self.word, (1,), tokens, self.reason) for _ in requests]

    def apply(self, update):
        raise ValueError("a word has no weights")

    def digest(self):
        return "0" * 64


class HangingEngine(WordEngine):
    """Starts a process and never comes up."""

    def __init__(self, model: str = "", *, note: str = "pids.txt"):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        Path(note).write_text(f"{os.getpid()} {child.pid}")
        time.sleep(1000)


class CrashingEngine(WordEngine):
    """Dies as a broken library does."""

    def __init__(self, model: str = ""):
        print("about to die", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)


class LeavingEngine(WordEngine):
    """Ends the process by itself."""

    def __init__(self, model: str = ""):
        print("goodbye", file=sys.stderr, flush=True)
        os._exit(7)


class UnprovenEngine(WordEngine):
    """Fails its canary."""

    def __init__(self, model: str = ""):
        raise CheckFailedError("canary: 3 of 9 tensors are not the weights that were served: 'a'")


class LackingEngine(WordEngine):
    """Needs a package that is not there."""

    def __init__(self, model: str = ""):
        raise MissingExtraError("engine 'lacking'", "unobtainium", "lacking")


@coevo.hookimpl
def register_engines(engines):
    for engine in (WordEngine, HangingEngine, CrashingEngine, LeavingEngine, UnprovenEngine, LackingEngine):
        engines.register(engine.__name__.removesuffix("Engine").lower(), engine)
