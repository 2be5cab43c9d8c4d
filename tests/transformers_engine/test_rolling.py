"""Requests are batched as they come: nobody waits for an episode that goes on, and a failure is told to its batch."""

import asyncio

import pytest

from coevo.records import Completion, Perturbation
from coevo_transformers.rolling import Rolling
from tests.asking_kit import ask


class Answers:
    """Says the question back after a while, and remembers its batches."""

    def __init__(self, *, fails_at=None):
        self.batches, self.fails_at = [], fails_at

    async def __call__(self, requests):
        self.batches.append([request.messages[0]["content"] for request in requests])
        if len(self.batches) == self.fails_at:
            raise ValueError("this batch failed")
        await asyncio.sleep(0.05)
        return [Completion(request.messages[0]["content"], (), (), "stop") for request in requests]


async def episode(rolling, name, steps):
    for step in range(steps):
        [said] = await rolling.complete([ask(f"{name}{step}")])
        assert said.text == f"{name}{step}"


def test_short_episodes_make_room_and_long_ones_never_wait_for_them():
    answers = Answers()

    async def run():
        rolling = Rolling(answers, rows=2)
        await asyncio.gather(
            *(episode(rolling, name, steps) for name, steps in (("a", 4), ("b", 1), ("c", 2), ("d", 1)))
        )

    asyncio.run(run())
    assert sorted(question for batch in answers.batches for question in batch) == [
        "a0", "a1", "a2", "a3", "b0", "c0", "c1", "d0",
    ]  # fmt: skip
    assert all(len(batch) <= 2 for batch in answers.batches)
    assert len(answers.batches) < 6  # in step it would be 4 for a and b, and 2 for c and d


def test_a_failed_batch_fails_who_was_in_it_and_the_next_is_answered():
    answers = Answers(fails_at=1)

    async def run():
        rolling = Rolling(answers, rows=8)
        first = await asyncio.gather(*(rolling.complete([ask(name)]) for name in "ab"), return_exceptions=True)
        return first, await rolling.complete([ask("c")])

    first, [second] = asyncio.run(run())
    assert [str(error) for error in first] == ["this batch failed"] * 2
    assert second.text == "c"


def test_who_no_longer_waits_is_not_asked_for():
    answers = Answers()

    async def run():
        rolling = Rolling(answers, rows=1)
        first, second, third = (asyncio.create_task(rolling.complete([ask(name)])) for name in "abc")
        await asyncio.sleep(0.02)  # the first is being answered
        second.cancel()
        await asyncio.gather(first, third)

    asyncio.run(run())
    assert answers.batches == [["a"], ["c"]]


def test_the_end_of_the_lease_stops_what_is_still_asked():
    async def forever(requests):
        await asyncio.sleep(3600)

    async def run():
        rolling = Rolling(forever, rows=4)
        waiting = asyncio.create_task(rolling.complete([ask("a")]))
        await asyncio.sleep(0.01)
        await rolling.end()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())


def test_the_engine_answers_rolling_requests_as_it_answers_them_alone(new_engine):
    engine = new_engine(rolling=True, rows=3)
    assert engine.capabilities.rolling
    assert not engine.capabilities.deterministic
    questions = [ask(text, seed=seed, temperature=0.0) for seed, text in enumerate("abcdefg")]

    async def run(together):
        async with engine.lease(Perturbation(3, 0.05)) as policy:
            if together:
                return [a for [a] in await asyncio.gather(*(policy.complete([q]) for q in questions))]
            return [(await policy.complete([question]))[0] for question in questions]

    assert [a.text for a in asyncio.run(run(True))] == [a.text for a in asyncio.run(run(False))]
