"""A world in which runs die: whatever writes or asks may be the last that a process does.

Death is what `kill -9` leaves: the folder as it is at that moment, and nothing that happens afterwards.
"""

import os
import shutil
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import loop_kit
import numpy as np
import search_kit

import coevo
import coevo_eoh
import coevo_sample
from coevo.app.launch import resume
from coevo.errors import RunError, UserError
from coevo.records import EpisodeResult, Request
from coevo.runs.folder import RunFolder
from coevo.runs.summary import summarize


class Killed(BaseException):
    """Nothing in coevo catches it."""


class World:
    """What engines have seen, and how long the process at work has to live.

    Attributes:
        calls, tokens: of all processes together. A request that was not answered cost all that it may.
        left: moments until death, None for never.
        enough: calls after which death comes at the next moment.
    """

    def __init__(self, enough=None):
        self.calls, self.tokens, self.left, self.dead = 0, 0, None, False
        self.enough = enough
        # Whoever sees that the process is dead goes on from what is left, which another thread may still be copying.
        self.dying = threading.Lock()

    def moment(self):
        with self.dying:
            self._moment()

    def _moment(self):
        if self.dead:
            raise Killed
        if self.left is not None:
            self.left -= 1
        if (self.left is not None and self.left < 0) or (self.enough is not None and self.calls >= self.enough):
            self.dead = True
            shutil.rmtree("left", ignore_errors=True)
            if Path("runs").exists():
                shutil.copytree("runs", "left")
            raise Killed

    def live(self, moments, start):
        """`start()` with that many moments to live; None where it died, else what it gives. `enough` holds once."""
        self.left, self.dead = moments, False
        try:
            return start()
        except Killed:
            self.enough = None
            shutil.rmtree("runs", ignore_errors=True)
            if Path("left").exists():
                Path("left").rename("runs")
            return None


class MortalEngine(search_kit.CountingEngine):
    def __init__(self, model="", *, world=None, **options):
        super().__init__(model, **options)
        self.world = world

    @asynccontextmanager
    async def lease(self, perturbation):
        yield MortalPolicy(self, self.theta, "any")


class MortalPolicy(search_kit.CountingPolicy):
    async def complete(self, requests):
        world = self.engine.world
        world.moment()
        world.calls += len(requests)
        most = sum(search_kit.words(r) + r.sampling.max_new_tokens for r in requests)
        world.tokens += most
        world.moment()
        before = self.engine.tokens
        answers = await super().complete(requests)
        world.tokens += self.engine.tokens - before - most
        return answers


class MortalTask(search_kit.NumbersTask):
    """Episodes whose judge may be the last to act; their briefs may promise fewer calls than they make."""

    def __init__(self, *, calls=1, promised=None, world=None):
        super().__init__(calls=calls)
        self.promised, self.world = promised or calls, world

    def brief(self):
        return coevo.Brief(
            "mortal", "Mortal", "Say a small number.", hole="expression", signature="x =", prefill="x =",
            direction="minimize", components={"prompt": "Say a number."}, max_new_tokens=4, max_calls=self.promised,
        )  # fmt: skip

    def episode(self, example, context):
        episode = super().episode(example, context)
        result = episode.result

        def judged():
            self.world.moment()
            return result()

        episode.result = judged
        return episode


class DrivenTask(MortalTask):
    """The same by an agent of its own, which gives up on some of its requests before they are answered."""

    async def run(self, example, context, policy):
        import asyncio

        asking = asyncio.ensure_future(policy.complete([Request(({"role": "user", "content": "Say it."},))]))
        await asyncio.sleep(0)
        (answer,) = await policy.complete([Request(({"role": "user", "content": "Say it."},))])
        self.world.moment()
        if np.frombuffer(answer.text.encode(), np.uint8).sum() % 2:
            asking.cancel()
        else:
            await asking
        if answer.text.startswith("broken"):
            return EpisodeResult("no_answer")
        value = float(answer.text)
        return EpisodeResult("ok", -value, {"objective": value}, {"answer": answer.text, "code_key": answer.text})


def plugins(world):
    class Plugin:
        @coevo.hookimpl
        def register_tasks(self, tasks):
            tasks.register(
                "mortal", lambda calls=1, promised=None: MortalTask(calls=calls, promised=promised, world=world)
            )
            tasks.register("driven", lambda: DrivenTask(calls=2, world=world))

        @coevo.hookimpl
        def register_engines(self, engines):
            def make(model: str = "", *, fails: float = 0.0, seed: int = 0, rolling: bool = False):
                return MortalEngine(model, fails=fails, seed=seed, rolling=rolling, world=world)

            engines.register("dying", make)

    return loop_kit.plugins(coevo_eoh, coevo_sample, Plugin())


def lived(config, deaths, world, watch):
    """A run that dies after so many moments each, and is gone on with until it ends; its summary, None if it failed.

    Args:
        config: of a run named `a`.
        deaths: moments of each process; the last has no end.
        world: that it lives in.
        watch: called with the run's summary whenever a process has ended.
    """

    def start():
        if Path("runs/a/config.toml").exists():
            return resume("a", plugins=plugins(world))
        return coevo.run(config, plugins(world))

    summary = None
    for moments in [*deaths, None]:
        try:
            summary = world.live(moments, start)
        except (UserError, RunError) as error:
            known = ("too small", "engine_error", "judge_error")
            assert any(words in str(error) for words in known), error  # noqa: PT017 - a run may end so
        if Path("runs/a/config.toml").exists():
            watch(summarize(RunFolder.find("a")))
    return summary


def mortal(monkeypatch, world):
    """Let whatever is written be the last that is."""
    monkeypatch.setattr(os, "fsync", lambda _: world.moment())
