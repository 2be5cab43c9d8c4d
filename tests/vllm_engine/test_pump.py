"""The thread that owns vLLM, with a fake LLM that answers a request after so many steps."""

import threading
from types import SimpleNamespace

import pytest

from coevo.errors import RunError
from coevo_vllm.pump import Pump

PATIENCE_SECONDS = 300


class FakeLLM:
    """`add_request(name, steps, _)`: the answer comes after `steps` steps and is the name."""

    def __init__(self, *, dies_at=None):
        self.llm_engine = self
        self.left, self.aborted, self.batches = {}, [], []
        self.dies_at = dies_at
        self.gate = threading.Semaphore(0)
        self.free = True

    def add_request(self, name, prompt, parameters):
        if prompt < 0:
            raise ValueError("a negative prompt")
        self.left[name] = prompt

    def abort_request(self, names):
        self.aborted += names
        for name in names:
            self.left.pop(name, None)

    def step(self):
        if not self.free:
            self.gate.acquire()
        self.batches.append(sorted(self.left))
        if self.dies_at is not None and len(self.batches) >= self.dies_at:
            raise MemoryError("no more room")
        done = []
        for name in list(self.left):
            self.left[name] -= 1
            if self.left[name] <= 0:
                del self.left[name]
                done.append(SimpleNamespace(request_id=name, finished=True))
        return done


@pytest.fixture
def make():
    pumps = []

    def build(**options):
        pump = Pump(lambda: FakeLLM(**options))
        pumps.append(pump)
        return pump

    yield build
    for pump in pumps:
        pump.close(lambda llm: None)


def test_requests_that_are_asked_together_are_in_the_first_step_together(make):
    pump = make()
    for future in pump.ask([(1, None), (3, None), (2, None)]):
        future.result(timeout=PATIENCE_SECONDS)
    assert pump.llm.batches[0] == ["0", "1", "2"]
    assert len(pump.llm.batches) == 3


def test_a_request_joins_while_others_are_being_answered(make):
    pump = make()
    pump.llm.free = False
    first = pump.ask([(3, None)])
    pump.llm.gate.release()
    second = pump.ask([(1, None)])
    pump.llm.gate.release(5)
    for future in first + second:
        future.result(timeout=PATIENCE_SECONDS)
    assert ["0", "1"] in pump.llm.batches


def test_a_refused_request_fails_alone(make):
    pump = make()
    bad, good = pump.ask([(-1, None), (1, None)])
    with pytest.raises(ValueError, match="negative"):
        bad.result(timeout=PATIENCE_SECONDS)
    assert good.result(timeout=PATIENCE_SECONDS).finished


def test_a_dropped_request_is_aborted(make):
    pump = make()
    pump.llm.free = False
    futures = pump.ask([(50, None)])
    pump.drop(futures)
    pump.llm.gate.release(3)
    pump.llm.free = True
    pump.do(lambda: None)
    assert pump.llm.aborted == ["0"]
    assert pump.llm.left == {}


def test_when_vllm_dies_everybody_is_told_and_later_requests_too(make):
    pump = make(dies_at=2)
    for future in pump.ask([(5, None), (5, None)]):
        with pytest.raises(RunError, match="vLLM stopped: MemoryError: no more room"):
            future.result(timeout=PATIENCE_SECONDS)
    with pytest.raises(RunError, match="vLLM stopped"):
        pump.ask([(1, None)])[0].result(timeout=PATIENCE_SECONDS)


def test_what_making_the_llm_raises_is_raised_to_who_wanted_it():
    def fail():
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"):
        Pump(fail)


def test_the_thread_ends_when_it_is_closed():
    pump = Pump(FakeLLM)
    shut = []
    pump.close(shut.append)
    assert shut == [pump.llm]
    assert not pump._thread.is_alive()
    pump.close(shut.append)
    assert len(shut) == 1
