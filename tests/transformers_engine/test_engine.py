"""The engine's weights: what is leased, applied, exported and restored."""

import asyncio

import numpy as np
import pytest
import torch

import coevo
from coevo.errors import CheckFailedError, MissingExtraError, UserError
from coevo.host.registry import Registry
from coevo.interfaces import Engine, Policy
from coevo.records import DenseUpdate, GradientUpdate, Perturbation, SeedsUpdate
from coevo.weights import noise
from coevo.weights.identity import policy_id
from coevo.weights.torch_memory import as_numpy
from coevo_transformers.engine import TransformersEngine
from tests.asking_kit import ask, complete
from tests.tiny_llama import save_tiny_llama

MEMBER = Perturbation(seed=0xABCDEF, sigma=0.01)
UPDATE = SeedsUpdate(terms=((3, 1e-2), (4, -2e-2)))


def served(engine):
    weights = engine._session.weights
    return {spec.name: weights.read(spec.name).copy() for spec in weights.selection.tensors}


def lease(engine, perturbation):
    async def run():
        async with engine.lease(perturbation) as policy:
            return policy.id, served(engine)

    return asyncio.run(run())


def test_the_engine_is_what_the_protocols_say(shared_engine):
    assert isinstance(shared_engine, Engine)

    async def run():
        async with shared_engine.lease(None) as policy:
            assert isinstance(policy, Policy)

    asyncio.run(run())
    assert shared_engine.capabilities == coevo.Capabilities(adapts=True, logprobs=True)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_a_member_serves_what_the_definition_says(new_engine, dtype):
    engine = new_engine(dtype=dtype)
    master = engine._session.weights.master
    _, found = lease(engine, MEMBER)
    for spec in master.selection.tensors:
        expected = noise.served_reference(
            master.view(spec.name), MEMBER.seed, spec.name, MEMBER.sigma, spec.scale, dtype
        )
        assert np.array_equal(expected, found[spec.name]), spec.name


def test_the_same_weights_are_served_from_a_copy_on_the_device(new_engine):
    _, there = lease(new_engine(dtype="bfloat16", master="device"), MEMBER)
    _, here = lease(new_engine(dtype="bfloat16"), MEMBER)
    assert all(np.array_equal(here[name], there[name]) for name in here)


def test_a_copy_on_the_device_follows_the_updates(new_engine):
    engine, other = new_engine(master="device"), new_engine()
    for one in (engine, other):
        lease(one, MEMBER)
        one.apply(UPDATE)
    assert engine.digest() == other.digest()
    (_, a), (_, b) = lease(engine, None), lease(other, None)
    assert all(np.array_equal(a[name], b[name]) for name in a)


def test_the_centre_comes_back_to_the_bit_after_many_members(new_engine):
    engine = new_engine(dtype="bfloat16")
    digest, before = engine.served_digest(), engine._session.logits()
    for seed in range(100):
        lease(engine, Perturbation(seed, 0.05 * (-1) ** seed))
    assert engine.served_digest() != digest
    lease(engine, None)
    assert engine.served_digest() == digest
    after = engine._session.logits()
    assert all(np.array_equal(before[key], after[key]) for key in ("prefill", "decode"))


def test_leasing_what_is_served_already_writes_nothing(new_engine, monkeypatch):
    engine = new_engine()
    lease(engine, MEMBER)
    monkeypatch.setattr(engine._session.weights.master, "serve", lambda *a, **k: pytest.fail("served again"))
    lease(engine, MEMBER)


def test_sigma_zero_is_the_centre(new_engine):
    engine = new_engine()
    (centre_id, centre), (zero_id, zero) = lease(engine, None), lease(engine, Perturbation(9, 0.0))
    assert centre_id == zero_id
    assert all(np.array_equal(centre[name], zero[name]) for name in centre)


def test_a_tied_group_is_one_tensor(shared_engine):
    names = [spec.name for spec in shared_engine._session.weights.selection.tensors]
    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names
    model = shared_engine._session.decoder.model
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()


def test_an_untied_head_is_its_own_tensor(tmp_path, new_engine):
    engine = new_engine(save_tiny_llama(tmp_path / "untied", tied=False))
    assert "lm_head.weight" in [spec.name for spec in engine._session.weights.selection.tensors]


def test_an_update_moves_the_master_and_the_served_weights(new_engine):
    engine = new_engine()
    digest, (first_id, before) = engine.digest(), lease(engine, None)
    engine.apply(UPDATE)
    second_id, after = lease(engine, None)
    assert engine.digest() != digest
    assert first_id != second_id
    name = "model.norm.weight"
    expected = noise.update_reference(before[name], UPDATE.terms, name, 1.0)
    assert np.array_equal(after[name], expected)
    assert engine.apply_seconds() > 0


def test_a_zero_update_changes_nothing(new_engine):
    engine = new_engine()
    digest = engine.digest()
    engine.apply(SeedsUpdate(terms=(), reason="equal credits"))
    assert engine.digest() == digest


@pytest.mark.parametrize(
    "update", [GradientUpdate(("r",), (1.0,)), DenseUpdate("x", "y"), SeedsUpdate(((1, 1.0),), family="other-v2")]
)
def test_updates_it_cannot_apply_are_refused(shared_engine, update):
    with pytest.raises(ValueError, match=r"seeds updates|noise family"):
        shared_engine.apply(update)


def test_an_unknown_noise_family_is_refused(shared_engine):
    with pytest.raises(ValueError, match="'other-v2' is unknown; expected 'normal-v1'"):
        lease(shared_engine, Perturbation(1, 0.1, "other-v2"))
    lease(shared_engine, None)


def test_equal_weights_have_equal_policy_ids_and_others_do_not(shared_engine):
    selection = shared_engine._session.weights.selection
    members = [None, Perturbation(1, 0.1), Perturbation(1, -0.1), Perturbation(2, 0.1)]
    ids = [policy_id(digest, member, selection) for digest in ("a", "b") for member in members]
    assert len(set(ids)) == 8
    assert ids[1] == policy_id("a", Perturbation(1, 0.1), selection)
    assert len(ids[0]) == 32


def test_leases_queue_and_end(new_engine):
    engine = new_engine()
    order = []

    async def one(name, perturbation):
        async with engine.lease(perturbation) as policy:
            order.append(f"{name}+")
            await policy.complete([ask(name)])
            order.append(f"{name}-")
            return policy

    async def run():
        first, _ = await asyncio.gather(one("a", MEMBER), one("b", None))
        with pytest.raises(RuntimeError, match="after the policy's lease ended"):
            await first.complete([ask("late")])

    asyncio.run(run())
    assert order == ["a+", "a-", "b+", "b-"]


def test_members_answer_differently_and_a_member_repeats_itself(new_engine):
    engine = new_engine()
    requests = [ask("hello", seed=i, max_new_tokens=12) for i in range(4)]
    centre, member = complete(engine, requests), complete(engine, requests, MEMBER)
    assert centre != member
    assert complete(engine, requests) == centre
    assert complete(engine, requests, MEMBER) == member


def test_moved_is_the_share_of_weights_that_a_member_changes(new_engine):
    engine = new_engine(dtype="bfloat16")
    assert engine.moved(Perturbation(1, 0.0)) == 0.0
    assert engine.moved(Perturbation(1, 1e-7)) < 0.01
    assert engine.moved(Perturbation(1, 0.1)) > 0.95


def test_nothing_has_reached_anything_before_an_update(new_engine):
    engine = new_engine()
    assert engine.reached() == {}
    engine.apply(SeedsUpdate(terms=(), reason="equal credits"))
    assert engine.reached() == {}


def test_in_float32_all_of_an_update_arrives(new_engine):
    engine = new_engine()
    lease(engine, MEMBER)
    engine.apply(UPDATE)
    assert engine.reached() == {"cosine": 1.0, "cosine_run": 1.0, "drift": 0.0, "drifted": 0.0}


@pytest.mark.parametrize("master", ["host", "device"])
def test_in_bfloat16_the_run_arrives_better_than_its_updates(new_engine, master):
    """Updates far below a step of bfloat16 do not show at once; the master keeps them until they do."""
    engine = new_engine(dtype="bfloat16", master=master)
    told = []
    for generation in range(20):
        lease(engine, Perturbation(generation, 1e-3))
        engine.apply(SeedsUpdate(terms=((7, 2e-4),)))
        told.append(engine.reached())
    assert all(found["cosine"] < 0.7 for found in told)
    assert told[0]["cosine_run"] == told[0]["cosine"]
    assert told[-1]["cosine_run"] > max(0.8, told[-1]["cosine"], told[0]["cosine_run"])
    assert all(found["drift"] == found["drifted"] == 0.0 for found in told)


def test_a_resumed_run_tells_what_an_unbroken_one_does(new_engine, tmp_path):
    later = SeedsUpdate(terms=((9, 1e-3),))
    engine, resumed, replayed = (new_engine(dtype="bfloat16") for _ in range(3))
    lease(engine, MEMBER)
    engine.apply(UPDATE)
    engine.save_anchor(tmp_path / "anchor")
    lease(engine, MEMBER)
    engine.apply(later)
    resumed.load_anchor(tmp_path / "anchor")
    resumed.apply(later)
    replayed.apply(UPDATE)
    replayed.apply(later)
    assert engine.reached() == resumed.reached() == replayed.reached()
    assert engine.reached()["cosine_run"] != engine.reached()["cosine"]


def test_weights_that_are_served_wrong_show_as_drift(new_engine):
    engine = new_engine(dtype="bfloat16")
    lease(engine, MEMBER)
    engine._session.weights._parameters["model.norm.weight"].data.fill_(3.0)
    engine.apply(UPDATE)
    assert engine.reached()["drift"] > 0
    assert engine.reached()["drifted"] == pytest.approx(64 / engine._session.weights.selection.size, rel=0.5)


def test_frozen_tensors_stay_at_the_centre(new_engine):
    engine = new_engine(scales={"*norm*": 0.0, "*mlp*": 2.0})
    (_, before), (_, after) = lease(engine, None), lease(engine, MEMBER)
    for name, array in before.items():
        assert np.array_equal(array, after[name]) == ("norm" in name), name


def test_an_anchor_restores_the_master(new_engine, tmp_path):
    engine, other = new_engine(), new_engine()
    engine.apply(UPDATE)
    engine.save_anchor(tmp_path / "a.safetensors")
    other.load_anchor(tmp_path / "a.safetensors")
    assert other.digest() == engine.digest()
    (_, a), (_, b) = lease(engine, None), lease(other, None)
    assert all(np.array_equal(a[name], b[name]) for name in a)


def test_a_damaged_anchor_changes_nothing(new_engine, tmp_path):
    engine = new_engine()
    digest = engine.digest()
    path = tmp_path / "a.safetensors"
    engine.save_anchor(path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    engine.load_anchor(path)
    path.write_bytes(data[:100])
    engine.load_anchor(path)
    assert engine.digest() == digest


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_an_export_is_a_folder_that_transformers_loads(new_engine, tmp_path, dtype):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    engine = new_engine(dtype="bfloat16")
    engine.apply(UPDATE)
    lease(engine, MEMBER)  # what is exported is the centre, whatever is served
    engine.export(tmp_path / "out", dtype)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.dtype == (torch.float32 if dtype else torch.bfloat16)
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template
    assert model.generation_config.eos_token_id == 258
    if dtype is None:
        _, centre = lease(engine, None)
        assert all(np.array_equal(as_numpy(p.data), centre[n]) for n, p in model.named_parameters())
    again = new_engine(tmp_path / "out", dtype="bfloat16")
    requests = [ask("x", temperature=0.0, max_new_tokens=20), ask("yy", seed=3)]
    assert complete(again, requests) == complete(engine, requests)


def test_an_export_does_not_overwrite(shared_engine, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="it is not empty; give a folder that does not exist"):
        shared_engine.export(tmp_path)
    with pytest.raises(UserError, match="cannot export as 'int4'"):
        shared_engine.export(tmp_path / "new", "int4")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


def test_the_canary_runs_at_start(tiny):
    engine = TransformersEngine(str(tiny), dtype="bfloat16")
    try:
        canary = engine._session.canary
        assert (canary.read_back, canary.repeats) == (20, True)
        assert "20 tensors proved" in engine.describe()["canary"]
    finally:
        engine.close()


def test_an_engine_with_a_hidden_copy_refuses_to_start(tiny, monkeypatch):
    from coevo_transformers.served import ServedWeights

    real = ServedWeights._serve_from_host

    def packed(self, name, parameter, seed, sigma):
        if "down_proj" not in name or seed is None:
            real(self, name, parameter, seed, sigma)

    monkeypatch.setattr(ServedWeights, "_serve_from_host", packed)
    with pytest.raises(CheckFailedError, match=r"2 of 20 tensors .* 'model.layers.0.mlp.down_proj.weight'"):
        TransformersEngine(str(tiny), dtype="bfloat16")


def test_the_record_names_the_selection_and_the_machine(shared_engine, tiny):
    record = shared_engine.record()
    assert record["base"] == str(tiny)
    assert len(record["selection"]["tensors"]) == 20
    assert record["dtype"] == "float32"
    import json

    json.dumps(record, allow_nan=False)


def test_prompt_tokens_are_counted_as_they_are_used(shared_engine):
    request = ask("count me", prefill="x =")
    assert shared_engine.count_tokens(request) == len(complete(shared_engine, [request])[0].prompt_ids)


def test_torch_missing_is_named_with_the_extra_that_brings_it(tiny, monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "torch" else real(name, *a))
    with pytest.raises(MissingExtraError, match=r"engine 'transformers' needs .* 'torch'.*coevo\[transformers\]"):
        TransformersEngine(str(tiny))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "warp"}, "cannot use device 'warp'"),
        ({"context": 10_000}, "context 10000 is longer than the model's 512"),
        ({"scales": {"*nothing*": 0.0}}, "no selected tensor matches '\\*nothing\\*'"),
    ],
)
def test_options_that_cannot_be_are_one_line(tiny, options, said):
    with pytest.raises(UserError, match=said):
        TransformersEngine(str(tiny), canary=False, **options)


def test_the_context_option_shortens_the_context(new_engine):
    engine = new_engine(context=40)
    assert complete(engine, [ask("x" * 30)])[0].finish_reason == "context_overflow"


def test_a_folder_without_a_causal_model_is_one_line(tmp_path, tiny):
    import shutil

    shutil.copytree(tiny, tmp_path / "broken")
    (tmp_path / "broken" / "config.json").write_text('{"model_type": "no-such-thing"}')
    with pytest.raises(UserError, match=r"transformers knows no text model in .*no-such-thing"):
        TransformersEngine(str(tmp_path / "broken"))


def test_importing_the_plugin_imports_nothing_heavy():
    import subprocess
    import sys

    code = "import sys, coevo_transformers; print([m for m in ('torch', 'transformers', 'numba') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_registry_reads_the_options(tiny):
    registry = Registry("engine")
    registry.register("transformers", TransformersEngine)
    assert {"dtype", "threads", "rows"} <= {option.name for option in registry.options("transformers")}
    with pytest.raises(UserError, match="did you mean 'threads'"):
        registry.create("transformers", {"thread": 2}, model=str(tiny))
    engine = registry.create("transformers", {"dtype": "float32", "canary": False}, model=str(tiny))
    engine.close()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", b"\x07" * 1000),
        ("model.safetensors", b""),
        ("config.json", b"[]"),
        ("config.json", b"{broken"),
        ("tokenizer.json", b"{}"),
    ],
)
def test_a_broken_model_folder_is_one_line(new_engine, tmp_path, file, content):
    from tiny_llama import save_tiny_llama

    folder = save_tiny_llama(tmp_path / "model")
    (folder / file).write_bytes(content)
    with pytest.raises(UserError) as caught:
        TransformersEngine(str(folder))
    assert "\n" not in str(caught.value)


def test_a_download_that_was_cut_is_one_line(tmp_path):
    from tiny_llama import save_tiny_llama

    folder = save_tiny_llama(tmp_path / "model")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(UserError):
        TransformersEngine(str(folder))
