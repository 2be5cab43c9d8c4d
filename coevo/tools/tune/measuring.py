"""One pass over the sigmas on a real engine and task."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from coevo.app.blueprint import Blueprint
from coevo.interfaces import Brief, Engine, Task
from coevo.loop.collector import Collector
from coevo.loop.services import RunServices
from coevo.optional import Wraps, offers
from coevo.records import Rollout
from coevo.report.numbers import count, duration, number, percent
from coevo.tools.tune.asking import Questions, credits_of, equal_share, moved_share, valid_share
from coevo.tools.tune.proposal import Finding
from coevo.tools.tune.statistics import CONFIDENCE, change, spread

Tell = Callable[[str], None]

CENTRE = 4
"""The centre, with which every sigma is compared, is asked that many times what a member is."""


@dataclass(slots=True)
class Measuring:
    """What is asked of whom, and who is told meanwhile."""

    task: Task
    engine: Engine
    brief: Brief
    questions: Questions
    sigmas: Sequence[float]
    members: int
    tell: Tell

    def run(self, blueprint: Blueprint) -> tuple[tuple[Rollout, ...], list[Finding]]:
        """The centre's answers, and what was found at each sigma."""
        config, sampling = blueprint.config, blueprint.sampling(self.brief)
        _, contexts = blueprint.make_updaters(self.brief, RunServices(config.seed, blueprint.run_path()))
        wrap = contexts.wrap if offers(contexts, Wraps) else None
        scorers = ThreadPoolExecutor(max_workers=2 * (os.cpu_count() or 1), thread_name_prefix="score")
        try:
            collector = Collector(
                engine=self.engine, task=self.task, sampling=sampling, scorers=scorers, wrap=wrap,
                retries=config.rollouts.retries,
            )  # fmt: skip
            return asyncio.run(self._every(collector))
        finally:
            scorers.shutdown(cancel_futures=True)

    async def _every(self, collector: Collector) -> tuple[tuple[Rollout, ...], list[Finding]]:
        started, many = time.monotonic(), len(self.sigmas)
        centre = await self.questions.wider(CENTRE).ask(collector)
        seconds = time.monotonic() - started
        self.tell(f"centre: {count(len(centre), 'answer')}, {percent(valid_share(centre))} valid, {duration(seconds)}")
        findings: list[Finding] = []
        for done, sigma in enumerate(self.sigmas, 1):
            finding = await self._at(sigma, centre, collector)
            findings.append(finding)
            left = sum(f.seconds for f in findings) / done * (many - done)
            about = f", about {duration(left)} left" if done < many else ""
            self.tell(
                f"sigma {number(sigma)} ({done} of {many}): {percent(finding.valid)} valid, "
                f"F {number(finding.spread.f, 3)}, {duration(finding.seconds)}{about}"
            )
        return centre, findings

    async def _at(self, sigma: float, centre: tuple[Rollout, ...], collector: Collector) -> Finding:
        started = time.monotonic()
        members = self.questions.members(self.members, sigma)
        rollouts = await self.questions.ask(collector, members)
        credits = credits_of(self.questions, members, centre, rollouts, self.brief)
        # The intervals of all sigmas hold together: six chances of a lucky one would be six times as many.
        found = spread(credits.members, 1.0 - (1.0 - CONFIDENCE) / len(self.sigmas))
        difference, margin = change(credits.members, credits.centre, credits.wide, found.between)
        return Finding(
            sigma=sigma,
            moved=moved_share(self.engine, members),
            valid=valid_share(rollouts),
            credit=float(credits.members.mean()),
            centre_credit=float(credits.wide.mean()),
            change=difference,
            change_margin=margin,
            spread=found,
            equal=equal_share(rollouts, len(members)),
            calls=sum(r.calls for r in rollouts),
            tokens=tokens_of(rollouts),
            seconds=time.monotonic() - started,
        )


def tokens_of(rollouts: Sequence[Rollout]) -> int:
    """Prompt and completion tokens together."""
    return sum(r.prompt_tokens + r.completion_tokens for r in rollouts)
