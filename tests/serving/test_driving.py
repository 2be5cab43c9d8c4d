"""A task that drives itself: what it asks is seeded, recorded and counted, and what it breaks is its own."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import fakes
import httpx
import pytest

import coevo
from coevo.errors import MissingExtraError, RunError
from coevo.loop.collector import Collector
from coevo.loop.plan import Plan, PlanSettings, Prepared
from coevo.numerics.seeds import derive
from coevo.records import Batch, Context, EpisodeResult, Request, Sampling, Step, Trajectory


def say(text):
    return Request(({"role": "user", "content": text},))


class Driven(fakes.AimTask):
    """Runs `agent(example, policy)` as its episode."""

    def __init__(self, agent, max_calls=9):
        super().__init__()
        self.agent, self.max_calls = agent, max_calls

    def brief(self):
        return coevo.Brief("driven", "Driven", "Say the number.", direction="minimize", max_calls=self.max_calls)

    async def run(self, example, context, policy):
        return await self.agent(example, policy)


def collect(agent, engine=None, retries=2, max_calls=9):
    """The rollouts of one member-less batch over three examples, and the engine that answered."""
    engine, task = engine or fakes.NumberEngine(), Driven(agent, max_calls)
    batch = Batch((Context(),), adapt=False)
    settings = PlanSettings(7, 0, 0)
    chunks, out = Plan(batch, task.examples("train"), 0, settings), []
    with ThreadPoolExecutor(2) as scorers:
        collector = Collector(engine, task, Sampling(0.7, max_new_tokens=4), scorers, retries=retries)
        prepared = Prepared(batch, (), task.examples("train"), settings, chunks)
        asyncio.run(asyncio.wait_for(collector.collect(prepared, chunks, out.extend), 60))
    return out


class Recording(fakes.NumberEngine):
    """Keeps the requests that reach it."""

    def __init__(self):
        super().__init__()
        self.requests = []

    def lease(self, perturbation):
        outer, inner = self, super().lease(perturbation)

        class Lease:
            async def __aenter__(self):
                policy = await inner.__aenter__()
                complete = policy.complete

                async def recorded(requests):
                    outer.requests += requests
                    return await complete(requests)

                policy.complete = recorded
                return policy

            async def __aexit__(self, *error):
                return await inner.__aexit__(*error)

        return Lease()


async def three_calls(example, policy):
    (first,) = await policy.complete([say(f"say {example.id}")])
    await policy.complete([say(f"more {example.id}"), say(f"less {example.id}")])
    return EpisodeResult("ok", float(first.text))


def test_requests_get_the_runs_sampling_and_the_seeds_of_any_other_episode():
    engine = Recording()
    (rollout, *_) = collect(three_calls, engine)
    seed = rollout.provenance.sampling_seed
    mine = [r for r in engine.requests if r.messages[0]["content"].endswith(" 0")]
    assert [r.seed for r in mine] == [seed, derive(seed, "step", 1, 0), derive(seed, "step", 1, 1)]
    assert {r.sampling for r in mine} == {Sampling(0.7, max_new_tokens=4)}


def test_what_was_answered_is_the_trajectory_and_its_tokens_are_counted():
    (rollout, *_) = collect(three_calls)
    assert rollout.status == "ok"
    assert [step.messages[0]["content"] for step in rollout.trajectory.steps] == ["say 0", "more 0", "less 0"]
    assert (rollout.calls, rollout.prompt_tokens, rollout.completion_tokens) == (3, 9, 6)


def test_a_request_keeps_a_seed_and_a_sampling_of_its_own():
    async def agent(example, policy):
        own = Request(say(f"say {example.id}").messages, sampling=Sampling(0.0), seed=5)
        await policy.complete([own])
        return EpisodeResult("no_answer")

    engine = Recording()
    collect(agent, engine)
    assert {(r.seed, r.sampling) for r in engine.requests} == {(5, Sampling(0.0))}


def test_asking_over_http_is_asking():
    async def agent(example, policy):
        async with policy.endpoint() as served, httpx.AsyncClient(timeout=180) as client:
            headers = {"authorization": f"Bearer {served.key}"}
            url = f"{served.base_url}/chat/completions"
            messages = list(say(f"say {example.id}").messages)
            first = await client.post(url, headers=headers, json={"messages": messages})
            await client.post(url, headers=headers, json={"messages": messages, "n": 2, "max_tokens": 3})
        return EpisodeResult("ok", float(first.json()["choices"][0]["message"]["content"]))

    direct, engine = collect(three_calls), Recording()
    served = collect(agent, engine)
    assert [r.return_ for r in served] == [r.return_ for r in direct]
    assert [[s.text for s in r.trajectory.steps] for r in served] == [
        [s.text for s in r.trajectory.steps] for r in direct
    ]
    assert {r.sampling for r in engine.requests} == {Sampling(0.7, max_new_tokens=4), Sampling(0.7, max_new_tokens=3)}


def test_concurrent_requests_are_recorded_in_the_order_in_which_they_were_asked():
    class Backwards(fakes.NumberEngine):
        """The later a request comes, the sooner it is answered."""

        def lease(self, perturbation):
            self.delay = 0.2
            return super().lease(perturbation)

    engine = Backwards()

    async def agent(example, policy):
        async def one(i):
            engine.delay = 0.2 - 0.05 * i
            return await policy.complete([say(f"{i} say {example.id}")])

        await asyncio.gather(*(one(i) for i in range(3)))
        return EpisodeResult("no_answer")

    for rollout in collect(agent, engine):
        assert [s.messages[0]["content"][0] for s in rollout.trajectory.steps] == ["0", "1", "2"]


def test_an_agent_may_annotate_its_trajectory_but_hide_no_answer():
    async def agent(example, policy):
        (answer,) = await policy.complete([say(f"say {example.id}")])
        step = Step((), answer.prompt_ids, answer.completion_ids, "stop", answer.text, observation="seen")
        steps = {"0": (step,), "1": (step, step), "2": ()}[example.id]
        return EpisodeResult("no_answer"), Trajectory(steps)

    rollouts = collect(agent)
    assert [[s.observation for s in r.trajectory.steps] for r in rollouts] == [["seen"], ["seen", "seen"], [""]]


def raises_once_asked(example, policy):
    async def agent():
        await policy.complete([say(f"say {example.id}")])
        raise KeyError("no answer\nin it")

    return agent()


def test_an_agent_that_raises_after_an_answer_failed_by_what_the_model_said():
    async def agent(example, policy):
        return await (raises_once_asked if example.id == "1" else three_calls)(example, policy)

    engine = Recording()
    rollouts = collect(agent, engine)
    assert [r.status for r in rollouts] == ["ok", "exception", "ok"]
    assert rollouts[1].artifacts["message"] == r"KeyError: 'no answer\nin it'"
    assert rollouts[1].calls == 1  # it is kept, and nothing was asked twice
    assert len(engine.requests) == 7


def test_an_agent_that_raises_before_any_answer_is_begun_again_and_is_no_fault_of_the_model():
    tries = {"0": 0, "1": 0, "2": 0}

    async def agent(example, policy):
        tries[example.id] += 1
        if example.id == "2" or (example.id == "1" and tries["1"] < 3):
            raise OSError("the browser did not start")
        return await three_calls(example, policy)

    rollouts = collect(agent)
    assert [r.status for r in rollouts] == ["ok", "ok", "judge_error"]
    assert tries == {"0": 1, "1": 3, "2": 3}
    assert [r.return_ for r in rollouts[:2]] == [r.return_ for r in collect(three_calls)[:2]]


def test_a_hiccup_of_the_engine_is_not_seen_by_the_agent():
    engine = fakes.NumberEngine()
    engine.fail_next = 2
    assert [r.return_ for r in collect(three_calls, engine)] == [r.return_ for r in collect(three_calls)]


def test_an_engine_that_goes_on_failing_loses_the_rollout_whatever_the_agent_does():
    async def agent(example, policy):
        try:
            return await three_calls(example, policy)
        except Exception:  # noqa: BLE001 - an agent may do that
            return EpisodeResult("ok", 0.0)

    for retries in (0, 1):
        engine = fakes.NumberEngine()
        engine.fail_next = 99
        rollouts = collect(agent, engine, retries=retries)
        assert {r.status for r in rollouts} == {"engine_error"}
        assert rollouts[0].artifacts["message"] == "RuntimeError: the engine hiccuped"
        assert engine.calls == 3 * (1 + retries)


def test_over_http_a_failed_engine_is_asked_no_more():
    async def agent(example, policy):
        async with policy.endpoint() as served:
            import openai

            async with openai.AsyncOpenAI(base_url=served.base_url, api_key=served.key) as client:
                answer = await client.chat.completions.create(model=served.model, messages=[*say("say 1").messages])
        return EpisodeResult("ok", float(answer.choices[0].message.content))

    engine = fakes.NumberEngine()
    engine.fail_next = 99
    assert {r.status for r in collect(agent, engine, retries=1)} == {"engine_error"}
    assert engine.calls == 6  # OpenAI's client would have asked three times as much


def test_an_error_for_the_user_ends_the_run_even_if_the_agent_swallows_it():
    class Dead(fakes.NumberPolicy):
        async def complete(self, requests):
            raise RunError("the device is gone")

    async def agent(example, policy):
        try:
            return await three_calls(example, policy)
        except Exception:  # noqa: BLE001 - an agent may do that
            return EpisodeResult("ok", 0.0)

    class DeadEngine(fakes.NumberEngine):
        def lease(self, perturbation):
            from contextlib import asynccontextmanager

            @asynccontextmanager
            async def lease():
                yield Dead(self, self.theta, "dead")

            return lease()

    with pytest.raises(RunError, match="the device is gone"):
        collect(agent, DeadEngine())


class SwallowingTask:
    """Ways of an agent's framework to lose an exception."""

    @staticmethod
    async def returns(policy):
        try:
            async with policy.endpoint():
                raise AssertionError("there is no package to serve with")
        except Exception:  # noqa: BLE001 - an agent may do that
            return EpisodeResult("judge_error")

    @staticmethod
    async def wraps(policy):
        async def inside():
            async with policy.endpoint():
                pass

        async with asyncio.TaskGroup() as group:
            group.create_task(inside())

    @staticmethod
    async def renames(policy):
        try:
            await policy.endpoint().__aenter__()
        except Exception as error:
            raise RuntimeError("the agent's framework failed") from error


@pytest.mark.parametrize("way", [SwallowingTask.returns, SwallowingTask.wraps, SwallowingTask.renames])
def test_a_missing_package_ends_the_run_at_once_whoever_swallows_it(way, monkeypatch):
    tries = []

    async def agent(example, policy):
        tries.append(example.id)
        return await way(policy)

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtraError, match=r"an endpoint needs the package 'uvicorn'.*'coevo\[serve\]'"):
        collect(agent)
    assert len(tries) == len(set(tries))  # nobody was tried again


def test_over_http_a_call_too_many_is_forbidden_and_not_worth_another_try():
    seen = []

    async def agent(example, policy):
        async with policy.endpoint() as served, httpx.AsyncClient(timeout=180) as client:
            headers = {"authorization": f"Bearer {served.key}"}
            for _ in range(3):
                body = {"messages": list(say("say 1").messages)}
                seen.append(await client.post(f"{served.base_url}/chat/completions", headers=headers, json=body))
        return EpisodeResult("no_answer")

    collect(agent, max_calls=2)
    assert sorted(answer.status_code for answer in seen) == [200] * 6 + [403] * 3
    refused = [answer for answer in seen if answer.status_code == 403]
    assert {answer.json()["error"]["code"] for answer in refused} == {"call_limit"}
    assert {answer.headers["x-should-retry"] for answer in refused} == {"false"}


def test_more_calls_than_the_brief_allows_are_refused():
    engine = Recording()
    rollouts = collect(three_calls, engine, max_calls=2)
    assert {r.status for r in rollouts} == {"exception"}
    assert "asks for call 3; its task's brief says max_calls = 2" in rollouts[0].artifacts["message"]
    assert len(engine.requests) == 3


def spent(agent, engine, **changes):
    """What a run says it asked, and its rollouts."""
    from loop_kit import config, plugins, rollouts

    class Plugin:
        @coevo.hookimpl
        def register_tasks(self, tasks):
            tasks.register("driven", lambda: Driven(agent, max_calls=3))

        @coevo.hookimpl
        def register_engines(self, engines):
            engines.register("given", lambda model="": engine)

    asked = {"task": "driven", "engine": "given", "context": "none", "param": "none", "generations": 1, **changes}
    data = {key: value for key, value in config(**asked).items() if key != "es"}
    return coevo.run(data, plugins(Plugin())), rollouts("a")


class Patient(fakes.NumberEngine):
    """Never answers what begins with `slow`."""

    @asynccontextmanager
    async def lease(self, perturbation):
        outer = self

        class Policy(fakes.NumberPolicy):
            async def complete(self, requests):
                outer.calls += len(requests)
                if requests[0].messages[0]["content"].startswith("slow"):
                    await asyncio.Event().wait()
                return [self._one(request) for request in requests]

        yield Policy(outer, outer.theta, "any")


def test_a_request_that_an_agent_gives_up_was_asked_and_counts(in_empty_folder):
    async def agent(example, policy):
        asking = asyncio.ensure_future(policy.complete([say(f"slow {example.id}")]))
        await asyncio.sleep(0)
        (answer,) = await policy.complete([say(f"say {example.id}")])
        asking.cancel()
        return EpisodeResult("ok", float(answer.text), artifacts={"answer": answer.text})

    engine = Patient()
    done, found = spent(agent, engine, calls=12)
    assert {(r["status"], len(r["trajectory"]["steps"])) for r in found} == {("ok", 1)}
    assert done["calls"] == engine.calls == 6


def test_an_agent_that_is_begun_again_goes_on_with_the_calls_that_it_had_left(in_empty_folder):
    async def agent(example, policy):
        asking = asyncio.ensure_future(policy.complete([say(f"slow {example.id}"), say("slow")]))
        await asyncio.sleep(0)
        asking.cancel()
        raise TimeoutError("the model takes too long")

    engine = Patient()
    with pytest.raises(RunError, match=r"every rollout of the batch failed with 'judge_error': "):
        spent(agent, engine, calls=9)
    assert engine.calls == 6  # two of three in the first try, and no two more in any other


def test_an_answer_after_the_end_of_its_episode_counts_though_no_rollout_tells_it(in_empty_folder):
    late = []

    async def agent(example, policy):
        late.append(asyncio.ensure_future(policy.complete([say(f"say {example.id}")])))
        await asyncio.sleep(0)
        return EpisodeResult("no_answer")

    done, found = spent(agent, fakes.NumberEngine(delay=0.001), calls=9)
    assert done["calls"] == 3
    assert [r["trajectory"]["steps"] for r in found] == [[]] * 3
    assert all(each.cancelled() or "ended before" in str(each.exception()) for each in late)


def test_a_trajectory_of_an_agents_own_does_not_hide_tokens(in_empty_folder):
    async def agent(example, policy):
        (answer,) = await policy.complete([say(f"say {example.id}")])
        step = Step((), (), (), "stop", answer.text, observation="looked around")
        return EpisodeResult("ok", float(answer.text), artifacts={"answer": answer.text}), Trajectory((step,))

    done, found = spent(agent, fakes.NumberEngine())
    assert {r["trajectory"]["steps"][0]["observation"] for r in found} == {"looked around"}
    assert (done["prompt_tokens"], done["completion_tokens"]) == (9, 6)


def test_a_prompt_that_does_not_fit_is_the_reason_if_the_agent_falls_over_it():
    class Narrow(fakes.NumberPolicy):
        def _one(self, request):
            return coevo.Completion("", (1, 2), (), "context_overflow")

    class NarrowEngine(fakes.NumberEngine):
        def lease(self, perturbation):
            from contextlib import asynccontextmanager

            @asynccontextmanager
            async def lease():
                yield Narrow(self, self.theta, "narrow")

            return lease()

    async def falls(example, policy):
        (answer,) = await policy.complete([say(f"say {example.id}")])
        return EpisodeResult("ok", float(answer.text), artifacts={"answer": answer.text})

    async def copes(example, policy):
        await policy.complete([say(f"say {example.id}")])
        return EpisodeResult("no_answer")

    assert {r.status for r in collect(falls, NarrowEngine())} == {"context_overflow"}
    assert {r.status for r in collect(copes, NarrowEngine())} == {"no_answer"}


def test_a_verdict_that_is_none_is_the_tasks_fault():
    async def agent(example, policy):
        return 1.0

    (rollout, *_) = collect(agent)
    assert rollout.status == "judge_error"
    assert "run() returned 'float'; expected EpisodeResult" in rollout.artifacts["message"]


def test_after_its_episode_a_policy_answers_nobody():
    kept = []

    async def agent(example, policy):
        kept.append(policy)
        await three_calls(example, policy)
        return EpisodeResult("no_answer")

    collect(agent)
    with pytest.raises(RuntimeError, match="after the episode ended"):
        asyncio.run(kept[0].complete([say("say 0")]))


def test_a_limit_of_tokens_cannot_be_planned_for_an_agent(in_empty_folder):
    from loop_kit import config, plugins

    class OneCall:
        @coevo.hookimpl
        def register_tasks(self, tasks):
            tasks.register("one-call", lambda: Driven(three_calls, max_calls=1))

    with pytest.raises(coevo.UserError, match=r"--tokens needs .* a task of one call an episode; use --calls instead"):
        coevo.run(config(task="one-call", context="none", tokens=10_000), plugins(OneCall()))
