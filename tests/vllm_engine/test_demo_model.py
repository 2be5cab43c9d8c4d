"""The demo model on vLLM: the weights of a transformers run, rebuilt and served, and proved to be what generates."""

import asyncio
import importlib

import numpy as np
import pytest

import coevo
from coevo.models.catalogue import resolve
from coevo.records import Perturbation
from coevo.runs.folder import RunFolder
from coevo.runs.journal import update_from_json
from tests.asking_kit import ask, complete
from tests.vllm_engine.conftest import needs_vllm

pytestmark = [pytest.mark.vllm, pytest.mark.model]

PROMPTS = (
    "Say hello.", "Name a colour.", "What is 2 + 2?", "Write a line about the sea.", "Who wrote Hamlet?",
    "Give me a recipe.", "Translate 'cat' into French.", "List three animals.",
)  # fmt: skip
SIGMA = 1e-2
MEMBERS = [Perturbation(seed, SIGMA) for seed in range(1, 6)]
LIKELIEST = 50


@pytest.fixture(scope="module")
def vllm_engine(make_vllm):
    return make_vllm("smollm2-135m", rolling=False, options={"max_logprobs": -1})


@pytest.fixture(scope="module")
def transformers_engine():
    needs_vllm()
    from coevo_transformers.engine import TransformersEngine

    engine = TransformersEngine("smollm2-135m", canary=False)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """The journal of three generations that the transformers engine ran."""
    needs_vllm()
    folder = tmp_path_factory.mktemp("runs")
    coevo.run(
        {
            "task": "tsp_construct", "param": "es", "context": "sample", "generations": 3, "population": 4,
            "name": "here", "runs": str(folder), "loggers": [], "es": {"answers": 2},
            "probe": {"every": 0}, "sampling": {"max_new_tokens": 12},
        }
    )  # fmt: skip
    return RunFolder.find("here", str(folder)).journal.history()


def test_every_tensor_is_proved(vllm_engine):
    canary = vllm_engine._session.canary
    assert canary.unproved == ()
    selected = vllm_engine._session.weights.selection.tensors
    # What is packed is proved through the answers, and so is the second use of the tied embedding.
    assert canary.read_back + canary.reached == len(selected) + 1
    assert "model.embed_tokens.weight as lm_head.weight" in canary.proved


def test_the_journal_of_a_transformers_run_gives_its_digests_on_vllm(vllm_engine, journal):
    assert vllm_engine.digest() == journal.base["digest"]
    assert len(journal.batches) == 3
    moved = 0
    for line in journal.batches:
        update = update_from_json(line["update"])
        if update is not None:
            vllm_engine.apply(update)
            moved += bool(update.terms)
        assert vllm_engine.digest() == line["digest"]
    assert moved, "no update of the run moved the weights: nothing was tested"


def test_answers_agree_between_the_engines_as_at_the_base_and_a_wrong_member_does_not(
    vllm_engine, transformers_engine, journal
):
    """Own rollouts of two engines are not equal: other kernels round otherwise. Members must not be further apart."""
    for line in journal.batches:  # the same weights as vLLM has now
        update = update_from_json(line["update"])
        if update is not None:
            transformers_engine.apply(update)
    assert transformers_engine.digest() == vllm_engine.digest()
    by_transformers = {member: first_tokens(transformers_engine, member) for member in (None, *MEMBERS)}
    by_vllm = {member: first_tokens_of_vllm(vllm_engine, member) for member in (None, *MEMBERS)}
    base = distance(by_transformers[None], by_vllm[None])
    for member, other in zip(MEMBERS, MEMBERS[1:] + MEMBERS[:1], strict=True):
        apart = distance(by_transformers[member], by_vllm[member])
        wrong = distance(by_transformers[member], by_vllm[other])
        assert apart < 2 * base, (member, apart, base)
        assert wrong > 5 * max(apart, base), (member, wrong, apart, base)


def first_tokens(engine, member):
    """Log-probabilities (8, V) of the first token by the transformers engine's own forward."""
    torch = importlib.import_module("torch")
    session = engine._session

    @torch.inference_mode()
    def look():
        session.weights.serve(member)
        rows = [session.decoder._prefill([session.prompts(ask(text)).ids], 1).logits[0] for text in PROMPTS]
        return torch.log_softmax(torch.stack(rows).float(), -1).numpy()

    return engine._here(look)


def first_tokens_of_vllm(engine, member):
    """The same as vLLM tells them, through the engine's own lease."""
    vllm = importlib.import_module("vllm")
    parameters = vllm.SamplingParams(temperature=0.0, max_tokens=1, logprobs=-1, detokenize=False)

    async def look():
        async with engine.lease(member) as policy:
            session = engine._session
            asked = [
                ({"prompt_token_ids": list(session.prompts(ask(text)).ids), "cache_salt": policy.id}, parameters)
                for text in PROMPTS
            ]
            rows = []
            for future in session.pump.ask(asked):
                told = future.result().outputs[0].logprobs[0]
                row = np.full(len(told), np.nan, dtype=np.float32)
                row[list(told)] = [each.logprob for each in told.values()]
                rows.append(row)
            return np.stack(rows)

    return asyncio.run(look())


def distance(one, other):
    """Mean absolute difference over the tokens that the first finds likeliest, in nats."""
    top = np.argsort(-one, axis=-1)[:, :LIKELIEST]
    return float(np.abs(np.take_along_axis(one, top, -1) - np.take_along_axis(other, top, -1)).mean())


def test_the_same_question_gets_the_same_answer_and_another_member_another(vllm_engine):
    questions = [ask("Tell me a story.", seed=5, logprobs=True), ask("Count to ten.", seed=6, logprobs=True)]
    centre = complete(vllm_engine, questions)
    member = complete(vllm_engine, questions, MEMBERS[0])
    assert complete(vllm_engine, questions, MEMBERS[0]) == member
    assert complete(vllm_engine, questions) == centre
    assert [c.logprobs for c in member] != [c.logprobs for c in centre]


def test_what_it_says_of_itself_is_what_the_run_needs(vllm_engine):
    record = vllm_engine.record()
    assert record["base"] == str(resolve("smollm2-135m"))
    assert len(record["selection"]["tensors"]) == len(vllm_engine._session.weights.selection.tensors)
    assert vllm_engine.capabilities.adapts
