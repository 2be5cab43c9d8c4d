import pytest

from coevo.errors import CheckFailedError, UserError
from coevo.host.registry import Registry
from coevo.tools.bench import rollout, rounds, serve
from coevo_transformers.engine import TransformersEngine


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """The engine without the entry point, so that the test does not depend on how coevo is installed."""
    engines = Registry("engine")
    engines.register("transformers", TransformersEngine)

    class Found:
        def registries(self):
            return self

    Found.engines = engines
    monkeypatch.setattr(rounds, "load", Found)


def test_both_ways_are_timed_and_the_centre_comes_back(tiny):
    found = serve.bench_serve(str(tiny), rounds=3, members=40)
    assert found["ratio_min"] <= found["ratio"] <= found["ratio_max"]
    assert found["members"] == 40
    assert found["parameters"] == 90_624
    assert found["ours_seconds"] > 0


def test_a_centre_that_does_not_come_back_fails(tiny, monkeypatch):
    from coevo_transformers.served import ServedWeights

    real = ServedWeights.serve

    def forgetful(self, perturbation):
        real(self, perturbation)
        if perturbation is not None:
            self._current = None  # believes that it is at the centre

    monkeypatch.setattr(ServedWeights, "serve", forgetful)
    monkeypatch.setattr("coevo_transformers.session.run_canary", lambda *a: None)
    with pytest.raises(CheckFailedError, match="after 5 members the centre's weights are others"):
        serve.bench_serve(str(tiny), rounds=1, members=5)


def test_numbers_below_one_are_refused():
    with pytest.raises(UserError, match="rounds got 0: it should be 1 or more"):
        serve.bench_serve(rounds=0)


def test_the_way_from_plan_to_saved_rollouts_is_timed_against_the_library(tiny):
    found = rollout.bench_rollout(model=str(tiny), rounds=2, episodes=6, tokens=4)
    assert found["ratio_min"] <= found["ratio"] <= found["ratio_max"]
    assert 6 <= found["tokens"] <= 24


def test_episodes_at_their_own_pace_are_timed_against_episodes_in_step(tiny):
    found = rollout.bench_episodes(
        "transformers", str(tiny), rounds=1, episodes=6, steps=3, tokens=4, options={"rolling": True}
    )
    assert found["answers"] >= 6
    assert found["ratio"] > 0
    with pytest.raises(UserError, match="rolling = true"):
        rollout.bench_episodes("transformers", str(tiny), rounds=1, episodes=2)


def test_an_engine_without_a_library_to_compare_with_says_so(tiny, monkeypatch):
    monkeypatch.delattr(TransformersEngine, "library_chat")
    with pytest.raises(UserError, match="no chat call of its library"):
        rollout.bench_rollout(model=str(tiny), rounds=1, episodes=2)
