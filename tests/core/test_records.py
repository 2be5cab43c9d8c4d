import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.records import (
    EXCLUDED,
    STATUSES,
    Batch,
    Context,
    EpisodeResult,
    Perturbation,
    Provenance,
    Rollout,
    Step,
    Trajectory,
)
from coevo.reports import BatchReport, Best
from coevo.runs.codec import report_from_json, rollout_from_json, to_json

TEXT = st.text(max_size=12)
PROVENANCE = Provenance(
    generation=1, batch=2, chunk=3, member=4, seed=2**64 - 1, sigma=-1e-3, context=5, context_id="ab", example="e",
    sample=6, sampling_seed=7, policy_id="p", operator="m1",
)  # fmt: skip
STEP = Step(
    messages=({"role": "user", "content": "Grüße → 🜁"},), prompt_ids=(1, 2), completion_ids=(3,),
    finish_reason="stop", text="x", generated_mask=(True,), logprobs=(-0.5,), observation="seen",
)  # fmt: skip
ROLLOUT = Rollout(
    PROVENANCE, "ok", -7.5, Trajectory((STEP,)), credit=0.25, metrics={"objective": 7.5},
    artifacts={"seconds": 3, "return_": [1, None]}, prompt_tokens=2, completion_tokens=1, seconds=0.5,
)  # fmt: skip


def test_records_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ROLLOUT.status = "syntax"


@given(components=st.dictionaries(TEXT, TEXT, max_size=4), other=st.dictionaries(TEXT, TEXT, max_size=4))
def test_contexts_are_the_same_if_and_only_if_their_texts_are(components, other):
    one = Context(components, operator="m1", parents=("a",), data={"reference": 1.0})
    reordered = Context(dict(reversed(components.items())))
    assert one.id == reordered.id
    assert (Context(other).id == one.id) == (other == components)


def test_a_batch_needs_a_context_and_an_answer():
    with pytest.raises(ValueError, match="at least one context"):
        Batch(())
    with pytest.raises(ValueError, match="samples must be at least 1, got 0"):
        Batch((Context(),), samples=0)


@pytest.mark.parametrize("purpose", ["gate", "probe"])
def test_a_gate_or_a_probe_never_adapts(purpose):
    assert Batch((Context(),), purpose=purpose, adapt=False).purpose == purpose
    with pytest.raises(ValueError, match=f"a {purpose} batch must not adapt"):
        Batch((Context(),), purpose=purpose)


@pytest.mark.parametrize("status", STATUSES)
def test_only_an_ok_episode_has_a_return(status):
    return_ = 1.0 if status == "ok" else None
    assert EpisodeResult(status, return_).return_ == return_
    with pytest.raises(ValueError, match="only 'ok' has a return"):
        EpisodeResult(status, None if status == "ok" else 0.0)


def test_a_status_of_ones_own_is_refused():
    with pytest.raises(ValueError, match="unknown status 'failed'; expected one of ok"):
        EpisodeResult("failed")


def test_what_is_excluded_are_statuses():
    assert set(STATUSES) > EXCLUDED == {"engine_error", "judge_error"}


def test_a_rollout_is_named_after_its_place():
    assert ROLLOUT.id == "g1-b2-m4-c5-e-s6"
    centre = dataclasses.replace(ROLLOUT, provenance=dataclasses.replace(PROVENANCE, member=None))
    assert centre.id == "g1-b2-centre-c5-e-s6"
    assert ROLLOUT.calls == 1


def test_a_rollout_survives_json():
    text = json.dumps(to_json(ROLLOUT), allow_nan=False)
    assert rollout_from_json(json.loads(text)) == ROLLOUT


@given(seed=st.integers(0, 2**64 - 1), sampling_seed=st.integers(0, 2**64 - 1))
def test_seeds_are_written_as_16_hex_digits(seed, sampling_seed):
    provenance = dataclasses.replace(PROVENANCE, seed=seed, sampling_seed=sampling_seed)
    data = to_json(dataclasses.replace(ROLLOUT, provenance=provenance))
    assert data["provenance"]["seed"] == f"{seed:016x}"
    assert rollout_from_json(json.loads(json.dumps(data))).provenance == provenance
    assert to_json(Perturbation(seed, 1e-3))["seed"] == f"{seed:016x}"


def test_wall_time_is_the_one_thing_under_time():
    data = to_json(ROLLOUT)
    assert data.pop("time") == {"seconds": 0.5}
    assert "seconds" not in data


def test_keys_of_a_tasks_own_artifacts_stay_as_they_are():
    assert to_json(ROLLOUT)["artifacts"] == {"seconds": 3, "return_": [1, None]}


def report(**changes) -> BatchReport:
    fields = {
        "generation": 0, "batch": 1, "operator": "m1", "purpose": "search", "adapt": True, "members": 2,
        "statuses": {"ok": 3, "syntax": 1}, "objectives": (7.0, 8.0, 9.0), "best": Best("r", 0, 1, -7.0, 7.0),
        "metrics": {"sigma": 1e-3}, "zero_update": "", "digest": "d", "calls": 4, "prompt_tokens": 5,
        "completion_tokens": 6, "seconds": 0.5,
    }  # fmt: skip
    return BatchReport(**(fields | changes))


@pytest.mark.parametrize("best", [Best("r", 0, 1, -7.0, 7.0), None])
def test_a_report_survives_json(best):
    one = report(best=best)
    assert report_from_json(json.loads(json.dumps(to_json(one), allow_nan=False))) == one


def test_the_valid_rate_is_the_share_of_ok():
    assert report().valid_rate == 0.75
    assert report(statuses={"syntax": 2}).valid_rate == 0.0
    assert report(statuses={}).valid_rate == 0.0


def test_a_context_has_an_id_whatever_a_server_put_into_its_text():
    odd = Context({"prompt": "half a pair \ud800"})
    assert odd.id != Context({"prompt": "half a pair "}).id
