"""An agent that knows a URL, a key and a model's name is evolved unchanged, on a real engine."""

import asyncio
import json

import agents
import pytest
from loop_kit import journal, plugins, rollouts

import coevo
from coevo.app.launch import resume
from coevo.errors import RunInterrupted
from coevo.records import Perturbation

pytest.importorskip("openai")
QUESTION = "Say something."


def said(engine, perturbation):
    """What the agent says with a member, and the policy that is gone by then."""

    async def run():
        async with engine.lease(perturbation) as policy, policy.endpoint() as served:
            return await asyncio.to_thread(agents.chat_twice, served.base_url, served.key, served.model, QUESTION)

    return asyncio.run(run())


def test_two_members_say_different_things_and_each_says_the_same_again(engine):
    members = [Perturbation(1, 0.05), Perturbation(2, 0.05)]
    first = [said(engine, member) for member in members]
    again = [said(engine, member) for member in members]
    assert first == again
    assert first[0] != first[1]
    assert said(engine, None) not in first


def test_an_endpoint_ends_with_its_lease(engine):
    import httpx

    async def run():
        async with engine.lease(None) as policy:
            kept = policy.endpoint()
            served = await kept.__aenter__()
            body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {served.key}"}, timeout=180) as client:
            try:
                return await client.post(f"{served.base_url}/chat/completions", json=body)
            finally:
                await kept.__aexit__(None, None, None)

    answer = asyncio.run(run())
    assert answer.status_code == 500
    assert "after the policy's lease ended" in answer.json()["error"]["message"]


def test_it_answers_as_complete_does(engine):
    import httpx

    request = coevo.Request(
        ({"role": "user", "content": "x"},), "so ", ("z",), coevo.Sampling(0.8, max_new_tokens=6), 3, logprobs=True
    )
    body = {
        "messages": [*request.messages, {"role": "assistant", "content": "so "}], "continue_final_message": True,
        "stop": ["z"], "temperature": 0.8, "max_tokens": 6, "seed": 3, "logprobs": True,
    }  # fmt: skip

    async def run():
        async with engine.lease(None) as policy, policy.endpoint() as served:
            (direct,) = await policy.complete([request])
            async with httpx.AsyncClient(headers={"authorization": f"Bearer {served.key}"}, timeout=180) as client:
                answer = await client.post(f"{served.base_url}/chat/completions", json=body)
        return direct, answer.json()

    direct, answer = asyncio.run(run())
    (choice,) = answer["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (direct.text, direct.finish_reason)
    assert tuple(token["logprob"] for token in choice["logprobs"]["content"]) == direct.logprobs
    assert answer["usage"]["prompt_tokens"] == len(direct.prompt_ids)


def test_a_prompt_that_does_not_fit_the_model_is_said_so(engine):
    import openai

    async def run():
        messages = [{"role": "user", "content": "x" * 600}]
        async with (
            engine.lease(None) as policy,
            policy.endpoint() as served,
            openai.AsyncOpenAI(base_url=served.base_url, api_key=served.key) as client,
        ):
            await client.chat.completions.create(model=served.model, messages=messages)

    with pytest.raises(openai.BadRequestError) as refused:
        asyncio.run(run())
    assert refused.value.code == "context_length_exceeded"


@pytest.fixture
def config(tiny, in_empty_folder):
    def make(name, **changes):
        es = {"population": 4, "sigma": 0.05, "alpha": 0.05, "sigma_schedule": "constant"}
        return {
            "task": "chat", "engine": "transformers", "model": str(tiny), "context": "none", "param": "es",
            "generations": 3, "name": name, "loggers": [], "es": es, "probe": {"every": 0},
            "transformers": {"dtype": "float32"}, **changes,
        }  # fmt: skip

    return make


class StopAfter:
    def __init__(self, generation):
        self.generation = generation

    @coevo.hookimpl
    def batch_finished(self, report):
        if report.generation == self.generation:
            raise KeyboardInterrupt


def all_plugins(*extra):
    import coevo_transformers

    return plugins(agents, coevo_transformers, *extra)


def test_the_agent_is_evolved_and_its_run_is_as_good_as_any_other(config, coevo):
    import coevo as library

    whole = library.run(config("whole"), all_plugins())
    assert (whole["status"], whole["updates"]) == ("finished", 3)
    kept = rollouts("whole")
    assert len(kept) == 3 * 4 * 2
    assert {r["status"] for r in kept} <= {"ok", "no_answer"}
    steps = kept[0]["trajectory"]["steps"]
    assert [m["content"] for m in steps[1]["messages"]] == ["Question 0", steps[0]["text"], "Say more."]
    assert whole["calls"] == 2 * len(kept)
    # Members differ, so there is something to learn from.
    assert len({r["return"] for r in kept if r["provenance"]["generation"] == 0}) > 2

    code, out, _ = coevo("replay", "whole", "--json")
    assert (code, json.loads(out)["weights_digest"]) == (0, whole["weights_digest"])

    with pytest.raises(RunInterrupted):
        library.run(config("broken"), all_plugins(StopAfter(0)))
    assert resume("broken", plugins=all_plugins())["weights_digest"] == whole["weights_digest"]
    assert rollouts("broken") == kept
    kept_lines, others = journal("whole"), journal("broken")
    assert [line for line in others if line["kind"] == "batch"] == [li for li in kept_lines if li["kind"] == "batch"]


def test_the_agent_of_the_page_evolves(in_empty_folder):
    import re
    from pathlib import Path

    import fakes

    page = (Path(__file__).parents[2] / "docs/agents.md").read_text(encoding="utf-8")
    Path("asker.py").write_text(re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[1])
    summary = coevo.run(
        {
            "plugins": [fakes.__file__, "asker.py"], "task": "ask-twice", "engine": "numbers", "context": "none",
            "param": "es", "es": {"population": 4, "sigma": 0.3}, "generations": 2, "loggers": [], "name": "a",
        }
    )  # fmt: skip
    assert (summary["status"], summary["updates"]) == ("finished", 2)
    assert {r["status"] for r in rollouts("a")} == {"ok"}
