"""The plan is a pure function; `collect` turns failures into data and keeps the plan's order."""

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import fakes
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coevo
from coevo.errors import RequestFailedError, RunError
from coevo.loop.collector import Collector
from coevo.loop.plan import Plan, PlanSettings, Prepared
from coevo.records import Batch, Context, EpisodeResult, Example, Perturbation, Sampling


def contexts(count):
    return tuple(Context({"prompt": f"say {i}"}) for i in range(count))


def examples(count):
    return [Example(str(i)) for i in range(count)]


SIZES = st.integers(1, 5)


@given(count=SIZES, given_examples=SIZES, samples=SIZES, members=st.integers(0, 5), chunk=SIZES)
def test_in_a_cross_batch_every_member_sees_every_context_and_example(count, given_examples, samples, members, chunk):
    batch = Batch(contexts(count), "cross", samples=samples)
    chunks = Plan(batch, examples(given_examples), members, PlanSettings(7, 1, 2, chunk=chunk))
    seen = [(c.member, x.context, x.example, x.sample) for c in chunks for x in c.cells]
    assert len(seen) == len(set(seen)) == max(members, 1) * count * given_examples * samples
    assert chunks.size == len(seen)
    assert [c.index for c in chunks] == list(range(len(chunks)))
    assert max(len(c.cells) for c in chunks) <= chunk


@given(count=st.integers(1, 30), answers=SIZES, members=SIZES, chunk=SIZES)
def test_in_a_zip_batch_every_context_is_answered_and_every_member_has_its_block(count, answers, members, chunk):
    batch = Batch(contexts(count), "zip")
    chunks = Plan(batch, examples(1), members, PlanSettings(7, 1, 2, answers=answers, chunk=chunk))
    cells = [(c.member, x) for c in chunks for x in c.cells]
    assert len(cells) == max(count, members * answers) == chunks.size
    assert {x.context for _, x in cells} == set(range(count))
    assert len({(x.context, x.sample) for _, x in cells}) == len(cells)
    for member in range(members):
        assert sum(m == member for m, _ in cells) >= min(answers, count)


@given(members=st.integers(2, 5))
def test_random_numbers_are_common_in_cross_and_own_in_zip_unless_told_otherwise(members):
    def seeds(pairing, common=None):
        batch = Batch(contexts(1), pairing)
        chunks = Plan(batch, examples(1), members, PlanSettings(7, 1, 2, common=common))
        return {x.seed for c in chunks for x in c.cells}

    assert len(seeds("cross")) == 1
    assert len(seeds("cross", common=False)) == members
    assert len(seeds("zip")) == members


def test_different_coordinates_never_share_a_sampling_seed():
    batch = Batch(contexts(3), "cross", samples=4)
    seeds = [
        x.seed
        for generation in range(3)
        for number in range(3)
        for c in Plan(batch, examples(3), 0, PlanSettings(7, generation, number))
        for x in c.cells
    ]
    assert len(seeds) == len(set(seeds))


def collect(task, engine, batch=None, retries=2, chunk=2, members=(), finished=None):
    batch = batch or Batch((Context({"prompt": "say"}),), samples=2, adapt=False)
    settings = PlanSettings(7, 0, 0, chunk=chunk)
    given_examples = task.examples("train")
    chunks = Plan(batch, given_examples, len(members), settings)
    out = []
    with ThreadPoolExecutor(4) as scorers:
        collector = Collector(engine, task, Sampling(max_new_tokens=4), scorers, retries=retries)
        prepared = Prepared(batch, members, given_examples, settings, chunks)
        asyncio.run(collector.collect(prepared, chunks, finished or out.append))
    return out


def test_a_failed_engine_call_is_tried_again_and_leaves_no_trace():
    engine = fakes.NumberEngine()
    engine.fail_next = 2
    rollouts = [r for chunk in collect(fakes.AimTask(), engine) for r in chunk]
    assert {r.status for r in rollouts} == {"ok"}


def test_an_engine_that_goes_on_failing_loses_only_the_rollouts_it_failed():
    engine = fakes.NumberEngine()
    engine.fail_next = 3
    chunks = collect(fakes.AimTask(), engine)
    assert [{r.status for r in chunk} for chunk in chunks] == [{"engine_error"}, {"ok"}, {"ok"}]
    assert chunks[0][0].artifacts["message"] == "RuntimeError: the engine hiccuped"
    assert chunks[0][0].return_ is None


def test_a_request_that_an_engine_has_given_up_is_not_tried_again_and_loses_only_its_own_rollout():
    class GivesUp(fakes.NumberPolicy):
        async def complete(self, requests):
            self.engine.calls += len(requests)
            if requests[0].messages[-1]["content"].endswith("1"):
                raise RequestFailedError("no answer in time")
            return [self._one(request) for request in requests]

    class Engine(fakes.NumberEngine):
        def __init__(self):
            super().__init__()
            self.capabilities = coevo.Capabilities(adapts=False, rolling=True)

        @asynccontextmanager
        async def lease(self, perturbation):
            yield GivesUp(self, self.theta, "fixed")

    engine = Engine()
    rollouts = [r for chunk in collect(fakes.AimTask(), engine) for r in chunk]
    assert [r.status for r in rollouts] == ["ok"] * 2 + ["engine_error"] * 2 + ["ok"] * 2
    assert {r.artifacts["message"] for r in rollouts[2:4]} == {"RequestFailedError: no answer in time"}
    assert engine.calls == 6


class BrokenJudge(fakes.AimTask):
    def episode(self, example, context):
        episode = super().episode(example, context)
        if example.id == "1":
            episode.result = lambda: 1 / 0
        return episode


def test_a_judge_that_raises_loses_only_its_rollout():
    rollouts = [r for chunk in collect(BrokenJudge(), fakes.NumberEngine()) for r in chunk]
    assert [r.status for r in rollouts] == ["ok", "ok", "judge_error", "judge_error", "ok", "ok"]
    assert "ZeroDivisionError" in rollouts[2].artifacts["message"]


def test_an_error_for_the_user_is_not_retried_and_ends_the_batch():
    class Dead(fakes.NumberEngine):
        def lease(self, perturbation):
            raise RunError("the canary died")

    with pytest.raises(RunError, match="the canary died"):
        collect(fakes.AimTask(), Dead())


class SlowFirst(fakes.AimTask):
    def episode(self, example, context):
        episode = super().episode(example, context)
        judge = episode.result
        if example.id == "0":
            import time

            episode.result = lambda: (time.sleep(0.1), judge())[1]
        return episode


def test_when_several_episodes_fail_for_good_one_error_is_told_and_the_others_are_no_news(caplog):
    class Dead(fakes.NumberEngine):
        def __init__(self):
            super().__init__()
            self.capabilities = replace(self.capabilities, rolling=True)

        @asynccontextmanager
        async def lease(self, perturbation):
            class Policy:
                id = "dead"

                async def complete(self, requests):
                    await asyncio.sleep(0)
                    raise RunError("the model is gone")

            yield Policy()

    with pytest.raises(RunError, match="the model is gone"):
        collect(fakes.AimTask(), Dead(), chunk=9)
    gc.collect()
    assert caplog.records == []  # asyncio logs what nobody took


def test_what_ends_a_batch_is_told_also_where_another_chunk_is_answered_in_the_same_moment():
    answered = asyncio.Event()

    class LateSecond(fakes.NumberEngine):
        def __init__(self):
            super().__init__()
            self.capabilities, self.calls = replace(self.capabilities, slots=9), 0

        @asynccontextmanager
        async def lease(self, perturbation):
            async with super().lease(perturbation) as inner:

                async def complete(requests):
                    self.calls, first = self.calls + 1, not self.calls
                    completions = await inner.complete(requests)
                    if not first:
                        await answered.wait()
                    return completions

                yield SimpleNamespace(id=inner.id, complete=complete)

    def finished(rollouts):
        answered.set()
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        collect(fakes.AimTask(), LateSecond(), chunk=1, finished=finished)
    gc.collect()  # a coroutine that nobody awaits would say so now


def test_chunks_are_finished_in_plan_order_even_if_the_first_is_scored_last():
    chunks = collect(SlowFirst(), fakes.NumberEngine())
    assert [chunk[0].provenance.chunk for chunk in chunks] == [0, 1, 2]


def test_what_a_member_answers_does_not_depend_on_who_else_is_asked():
    members = (Perturbation(1, 0.5), Perturbation(2, 0.5))
    batch = Batch((Context({"prompt": "say"}),), samples=2)
    small = [
        r for chunk in collect(fakes.AimTask(), fakes.NumberEngine(), batch, members=members, chunk=1) for r in chunk
    ]
    large = [
        r for chunk in collect(fakes.AimTask(), fakes.NumberEngine(), batch, members=members, chunk=9) for r in chunk
    ]
    assert [(r.id, r.return_) for r in small] == [(r.id, r.return_) for r in large]


def test_a_prompt_that_does_not_fit_is_a_failure_of_its_own_rollout():
    class Narrow(fakes.NumberPolicy):
        def _one(self, request):
            done = super()._one(request)
            if request.messages[-1]["content"].endswith("2"):
                return type(done)("", done.prompt_ids, (), "context_overflow")
            return done

    engine = fakes.NumberEngine()
    old = fakes.NumberPolicy
    try:
        fakes.NumberPolicy = Narrow
        rollouts = [r for chunk in collect(fakes.AimTask(), engine) for r in chunk]
    finally:
        fakes.NumberPolicy = old
    assert [r.status for r in rollouts] == ["ok"] * 4 + ["context_overflow"] * 2


class DrivesItself(fakes.AimTask):
    async def run(self, example, context, policy):
        import coevo

        request = coevo.Request(({"role": "user", "content": f"say {example.id}"},), seed=5)
        (answer,) = await policy.complete([request])
        step = coevo.Step(request.messages, answer.prompt_ids, answer.completion_ids, "stop", answer.text)
        return EpisodeResult("ok", -(float(answer.text) ** 2)), coevo.Trajectory((step,))


def test_a_task_may_drive_its_own_episodes():
    rollouts = [r for chunk in collect(DrivesItself(), fakes.NumberEngine()) for r in chunk]
    assert {r.status for r in rollouts} == {"ok"}
    assert all(r.calls == 1 and r.prompt_tokens == 3 for r in rollouts)
