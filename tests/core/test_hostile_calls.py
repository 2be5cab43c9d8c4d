"""What a plugin raises, cancels, forges or asks in ways that nobody would think of hangs nothing and is one line."""

import asyncio
import shutil
from dataclasses import replace

import fakes
import pytest
from loop_kit import config, journal, plugins, rollouts
from stranger_kit import Stranger, contexts, engine, episode, policy, raises, start, task

import coevo
from coevo.errors import PluginError, RunError
from coevo.host.faults import told
from coevo.records import Completion, EpisodeResult, Example, Sampling


@pytest.fixture(autouse=True)
def _in_tmp(in_empty_folder):
    pass


class UnspeakableError(Exception):
    def __str__(self):
        raise ValueError("no text")


async def cancels_itself(self, *arguments):
    asyncio.current_task().cancel()
    await asyncio.sleep(0)
    return EpisodeResult("ok", 1.0)


async def cancels_itself_without_waiting(self, *arguments):
    asyncio.current_task().cancel()
    return EpisodeResult("ok", 1.0)


def cancels(self, *arguments):
    asyncio.current_task().cancel()


def cancels_and_asks(self):
    asyncio.current_task().cancel()
    return fakes.AimEpisode.requests(self)


class CancellingLease:
    def __init__(self, *arguments):
        pass

    __aenter__ = cancels_itself

    async def __aexit__(self, *error):
        return None


@pytest.mark.parametrize("error", [StopIteration("mine"), UnspeakableError()])
def test_a_judge_may_raise_what_no_future_holds_and_what_has_no_text(error):
    kind = type(error).__name__
    with pytest.raises(RunError, match=rf"every rollout of the batch failed with 'judge_error': .*{kind}"):
        start(episode(result=raises(error)))


class Unusual(BaseException):
    """No `Exception`, so that `except Exception` lets it through."""


@pytest.mark.parametrize("error", [Unusual("mine"), GeneratorExit("mine")], ids=["of its own", "GeneratorExit"])
def test_what_is_raised_past_every_handler_is_the_plugins_fault_in_one_line(error):
    kind = type(error).__name__
    with pytest.raises(PluginError, match=rf"context updater 'mine': tell\(\) raised {kind}: mine"):
        start(contexts(tell=raises(error)))
    shutil.rmtree("runs")
    with pytest.raises(RunError, match=rf"every rollout of the batch failed with 'judge_error': .*{kind}"):
        start(episode(result=raises(error)))


def test_a_policy_that_raises_past_every_handler_loses_its_rollouts_and_hangs_nothing():
    async def unusual(self, *arguments):
        raise Unusual("mine")

    with pytest.raises(RunError, match=r"every rollout of the batch failed with 'engine_error': .*Unusual"):
        start(policy(unusual))


def test_an_exception_whose_text_fails_is_told_all_the_same():
    assert told(UnspeakableError()) == "UnspeakableError: a message that cannot be told, since its __str__ fails"


def test_an_exception_without_a_message_has_no_stray_colon():
    async def run(self, example, context, policy):
        await policy.complete([coevo.Request(({"role": "user", "content": "say 0"},))])
        raise MemoryError

    start(task(run=run))
    said = {r["artifacts"]["message"] for r in rollouts("a")}
    assert said == {"MemoryError"}


@pytest.mark.parametrize("method", [cancels_itself, cancels_itself_without_waiting])
def test_an_agent_that_cancels_the_current_task_loses_its_rollouts_and_hangs_nothing(method):
    with pytest.raises(RunError, match=r"every rollout of the batch failed with 'judge_error': .*CancelledError"):
        start(task(run=method))


@pytest.mark.parametrize(
    "part",
    [policy(cancels_itself), engine(lease=CancellingLease), episode(requests=cancels_and_asks), contexts(tell=cancels)],
    ids=["complete", "lease", "requests", "tell"],
)
def test_what_cancels_a_task_of_the_run_ends_it_in_one_line(part):
    with pytest.raises(PluginError, match="a plugin cancelled the asyncio task"):
        start(part)


def ledger_lines(name):
    return [line["ledger"] for line in journal(name) if line["kind"] in ("batch", "probe")]


def test_an_updater_that_falsifies_the_ledger_falsifies_its_own_copy():
    def ask(self):
        self.services.ledger.calls = -1000
        self.services.ledger.prompt_tokens = -(10**6)
        return fakes.FixedContext.ask(self)

    start(contexts(ask=ask), name="a")
    coevo.run({**config("b"), "generations": 1}, plugins())
    assert ledger_lines("a") == ledger_lines("b")


@pytest.mark.parametrize("name", ["budget", "ledger", "generation"])
def test_what_the_run_has_of_its_own_cannot_be_set_by_an_updater(name):
    with pytest.raises(PluginError, match=r"context updater 'mine': ask\(\) raised AttributeError"):
        start(contexts(ask=lambda self: setattr(self.services, name, None)))


def test_an_observer_cannot_forge_the_best(capsys):
    class Forger:
        @coevo.hookimpl
        def batch_finished(self, report):
            object.__setattr__(report.best, "return_", 1e9)
            report.metrics["forged"] = 1.0

        @coevo.hookimpl
        def generation_finished(self, report):
            object.__setattr__(report.best, "return_", 1e9)
            object.__setattr__(report.batches[-1].best, "return_", 1e9)

    coevo.run(config("a"), plugins(Forger()))
    assert "failed" not in capsys.readouterr().err
    coevo.run(config("b"), plugins())
    assert [line.get("best") for line in journal("a")] == [line.get("best") for line in journal("b")]


def asks(**sampling):
    def requests(self):
        made = fakes.AimEpisode.requests(self)
        return [replace(request, sampling=Sampling(**sampling)) for request in made]

    return episode(requests=requests)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("max_new_tokens", value) for value in (2.5, "5", float("nan"), 0, -100)),
        *(("temperature", value) for value in (float("nan"), -1.0, "1")),
        ("top_k", 1.5),
        ("top_p", None),
    ],
)
def test_a_sampling_that_nothing_can_be_drawn_with_is_one_line(name, value):
    with pytest.raises(PluginError, match=rf"task 'mine': episode: requests\(\) gave a request whose sampling.{name} "):
        start(asks(**{name: value}))


def test_an_episode_that_asks_for_longer_answers_than_were_planned_is_stopped_before_it_costs_more():
    class Longer:
        def __init__(self, inner):
            self.inner, self.step, self.result = inner, inner.step, inner.result

        def requests(self):
            return [replace(request, sampling=Sampling(max_new_tokens=5000)) for request in self.inner.requests()]

    part = contexts(wrap=lambda self, inner: Longer(inner))
    with pytest.raises(PluginError, match="something else than was planned, so that --tokens cannot be kept"):
        start(part, tokens=2000)
    assert start(part, name="b")["calls"] > 0


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (engine(count_tokens=lambda self, request: 10**5000), r"count_tokens\(\) gave an int of 16,610 bits"),
        (task(examples=lambda self, split: [Example("\ud800")]), r"examples\(\) gave an example whose id is .*surrog"),
        (task(best_files=lambda self, r, h: {"a\ud800": "x"}), r"best_files\(\) gave a file named .*surrogates"),
        (task(best_files=lambda self, r, h: {"a" * 300: "x"}), r"best_files\(\) gave a file .* at most 200 bytes"),
        (
            task(brief=lambda s: replace(fakes.AimTask().brief(), references=(coevo.Reference(5, "train", 1.0),))),
            r"brief\(\) gave a brief with a reference whose name is 5; expected a text",
        ),
        (contexts(credit=property(lambda self: 1 / 0)), r"the attribute 'credit' raised ZeroDivisionError"),
    ],
    ids=["count", "example", "surrogate", "long name", "reference", "property"],
)
def test_what_no_file_holds_and_what_has_no_value_is_one_line(part, said):
    with pytest.raises(PluginError, match=said):
        start(part, tokens=2000) if "engines" in part else start(part)


def test_an_id_that_no_machine_holds_is_one_line():
    async def complete(self, requests):
        return [Completion("1.0", (1, 2), (10**5000,), "stop") for _ in requests]

    with pytest.raises(PluginError, match="a completion with one of completion_ids of 16,610 bits"):
        start(policy(complete))


def test_two_plugins_that_hang_each_other_do_not_hang_the_run():
    parts = Stranger(policy(cancels_itself)), Stranger(episode(result=raises(StopIteration())))
    with pytest.raises(PluginError, match="a plugin cancelled the asyncio task"):
        coevo.run({**config(), "engine": "mine", "task": "mine", "generations": 1}, plugins(*parts))
