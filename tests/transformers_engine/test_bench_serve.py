import pytest

from coevo.bench import serve
from coevo.errors import CheckFailedError, UserError
from coevo.registry import Registry
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
    monkeypatch.setattr(serve, "load", Found)


def test_both_ways_are_timed_and_the_centre_comes_back(tiny):
    found = serve.bench_serve(str(tiny), rounds=3, members=40)
    assert found["ratio_min"] <= found["ratio"] <= found["ratio_max"]
    assert found["members"] == 40
    assert found["parameters"] == 90_624
    assert 0 < found["ours_seconds"] < 60


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
    with pytest.raises(UserError, match="must be 1 or more"):
        serve.bench_serve(rounds=0)
