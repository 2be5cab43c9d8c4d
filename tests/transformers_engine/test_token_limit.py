"""A limit of tokens on a real engine: what it counts before it asks is what it spends."""

import loop_kit
import pytest

import coevo
import coevo_sample
import coevo_transformers
from coevo.records import Request, Sampling
from coevo.runs.chunks import read_chunks
from coevo.runs.folder import RunFolder

LONGEST = 6


class Plugin:
    """Any text is an answer of this search."""

    @coevo.hookimpl
    def register_tasks(self, tasks):
        import fakes

        class Words(fakes.LettersTask):
            def brief(self):
                return coevo.Brief(
                    "words", "Words", "Say anything.", hole="expression", prefill="x =", direction="minimize",
                    components={"prompt": "Say a word."}, max_new_tokens=LONGEST,
                )  # fmt: skip

            def examples(self, split):
                return super().examples(split)[:1]

        tasks.register("words", Words)


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("tokens", [400, 1000])
def test_the_prompt_is_counted_as_it_is_served_and_no_answer_is_longer_than_planned(tiny, shared_engine, tokens):
    config = {
        "task": "words", "engine": "transformers", "model": str(tiny), "param": "none", "context": "sample",
        "transformers": {"dtype": "float32", "canary": False}, "sample": {"batch": 5}, "generations": 99,
        "tokens": tokens, "name": "a", "loggers": [], "probe": {"every": 0},
    }  # fmt: skip
    done = coevo.run(config, loop_kit.plugins(coevo_transformers, coevo_sample, Plugin()))
    files = sorted(RunFolder.find("a").path.joinpath("rollouts").iterdir())
    steps = [step for file in files for chunk in read_chunks(file) for r in chunk for step in r.trajectory.steps]
    spent = 0
    for step in steps:
        request = Request(step.messages, prefill=step.prefill, sampling=Sampling(max_new_tokens=LONGEST))
        assert shared_engine.count_tokens(request) == len(step.prompt_ids)
        assert len(step.completion_ids) <= LONGEST
        spent += len(step.prompt_ids) + len(step.completion_ids)
    assert spent == done["tokens"] <= tokens
    assert done["reason"] == "tokens"
    batch = 5 * (len(steps[0].prompt_ids) + LONGEST)
    assert spent + batch > tokens  # the next one could have broken it
