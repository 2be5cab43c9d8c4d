"""What a stranger's plugin gives that it should not is one line: whose it is, which method, what it gave and where."""

import re
from dataclasses import replace
from pathlib import Path

import fakes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_kit import config, plugins
from stranger_kit import Stranger, changed, contexts, engine, episode, parameters, policy, raises, start, task

import coevo
from coevo.cli import main
from coevo.errors import PluginError, UnknownSplitError, UserError
from coevo.host.guard import Guard, Rule, anything
from coevo.host.registry import Registry
from coevo.host.shapes import Wrong, plain
from coevo.records import Batch, Context, EpisodeResult, Example, SeedsUpdate
from coevo.runs.folder import RunFolder


@pytest.fixture(autouse=True)
def _in_tmp(in_empty_folder):
    pass


def result(**fields):
    given = {"status": "ok", "return_": 1.0, **fields}
    return episode(result=lambda self: EpisodeResult(**given))


def too_few(self, requests):
    return fakes.NumberPolicy.complete(self, requests[:-1])


async def number_texts(self, requests):
    return [replace(c, text=3) for c in await fakes.NumberPolicy.complete(self, requests)]


async def nothing(self, *arguments):
    return None


def not_async(self, requests):
    return []


def forgets_one(self, buffer):
    return replace(buffer, rollouts=buffer.rollouts[1:])


def nan_credits(self, buffer):
    return replace(buffer, rollouts=tuple(replace(r, credit=float("nan")) for r in buffer.rollouts))


def brief(**fields):
    return task(brief=lambda self: replace(fakes.AimTask.brief(self), **fields))


BATCH = Batch((Context({"prompt": "say number"}),))
HERE = r"\((test_contracts|stranger_kit)\.py:\d+, in [\w<>]+\)"

MISTAKES = {
    "result is a number": (
        episode(result=lambda self: 3.5),
        r"task 'mine': episode: result\(\) gave 3\.5; expected a coevo.EpisodeResult",
    ),
    "return is nan": (
        result(return_=float("nan")),
        r"task 'mine': episode: result\(\) gave a return of nan; expected a finite number",
    ),
    "return is numpy's": (
        result(return_=np.float32(2.0)),
        r"gave a return of .*2\.0.*; expected a finite number .*float\(x\) makes one",
    ),
    "metric is a text": (
        result(metrics={"objective": "low"}),
        r"result\(\) gave metrics with, at \['objective'\], 'low'; expected a finite number",
    ),
    "artifact is an array": (
        result(artifacts={"seen": [np.arange(2)]}),
        r"gave artifacts with, at \['seen'\]\[0\], array.*JSON cannot hold.*tolist",
    ),
    "artifact has numbers as keys": (
        result(artifacts={"count": {1: 2}}),
        r"gave artifacts with, at \['count'\] the key 1; expected a text",
    ),
    "requests is one request": (
        episode(requests=lambda self: coevo.Request(())),
        r"requests\(\) gave Request\(.*; expected a list, each a coevo.Request",
    ),
    "messages is a text": (
        episode(requests=lambda self: [coevo.Request("hello")]),
        r"requests\(\) gave a request whose messages are 'hello'; expected a list",
    ),
    "content is missing": (
        episode(requests=lambda self: [coevo.Request(({"role": "user"},))]),
        r"a request with a message whose 'content' is None; expected a text",
    ),
    "stop is a text": (
        episode(requests=lambda self: [coevo.Request(({"role": "user", "content": "x"},), stop="end")]),
        r"a request whose stop are 'end'; expected a list",
    ),
    "episode is nothing": (
        task(episode=lambda self, e, c: None),
        r"task 'mine': episode\(\) gave None, which lacks 'requests', 'result', 'step'; expected an episode",
    ),
    "brief is a dict": (
        task(brief=lambda self: {"name": "mine"}),
        r"task 'mine': brief\(\) gave \{'name': 'mine'\}; expected a coevo.Brief",
    ),
    "direction is misspelt": (
        brief(direction="minimise"),
        r"brief\(\) gave a brief whose direction is 'minimise'; did you mean 'minimize'\?",
    ),
    "failure is a word": (
        brief(failure="above"),
        r"a brief whose failure is 'above'; expected 'below' or a finite number",
    ),
    "stop of a brief is a text": (brief(stop="end"), r"a brief whose stop are 'end'; expected a list"),
    "a prompt is a number": (
        brief(components={"prompt": 3}),
        r"a brief whose components are with, at \['prompt'\], 3; expected a text",
    ),
    "max_calls is 0": (
        brief(max_calls=0),
        r"a brief whose max_calls is 0; expected a whole number of at least 1",
    ),
    "brief raises": (
        task(brief=raises(KeyError("title"))),
        rf"task 'mine': brief\(\) raised KeyError: 'title' {HERE}",
    ),
    "brief is async": (
        task(brief=nothing),
        r"task 'mine': brief\(\) is an async function; write it as: def",
    ),
    "examples are texts": (
        task(examples=lambda self, split: ["a"]),
        r"examples\(\) gave a list with 'a' at \[0\]; expected a coevo.Example",
    ),
    "examples are two of one id": (
        task(examples=lambda self, split: [Example("a"), Example("a")]),
        r"examples\(\) gave two examples with the id 'a'; expected every id once",
    ),
    "an id is a number": (
        task(examples=lambda self, split: [Example(1)]),
        r"an example whose id is 1; expected a text",
    ),
    "start leaves": (
        task(start=raises(SystemExit(3))),
        rf"task 'mine': start\(\) raised SystemExit: 3 {HERE}",
    ),
    "describe tells numbers": (
        task(describe=lambda self: {"workers": 2}),
        r"describe\(\) gave words about it with, at \['workers'\], 2; expected a text",
    ),
    "a file is elsewhere": (
        task(best_files=lambda self, rollout, header: {"../x": ""}),
        r"best_files\(\) gave a file named '\.\./x'; expected a name without a folder",
    ),
    "run gives a number": (
        task(run=nothing),
        r"task 'mine': run\(\) gave None; expected a coevo.EpisodeResult, or a pair",
    ),
    "ask gives a list": (
        contexts(ask=lambda self: [BATCH]),
        r"context updater 'mine': ask\(\) gave \[Batch.*; expected a coevo.Batch, or None to end a generation",
    ),
    "ask gives no contexts": (
        contexts(ask=lambda self: Batch(())),
        rf"ask\(\) raised ValueError: a batch needs at least one context {HERE}",
    ),
    "ask gives no samples": (
        contexts(ask=lambda self: replace(BATCH, samples=0)),
        r"ask\(\) raised ValueError: samples must be at least 1, got 0",
    ),
    "samples are half": (
        contexts(ask=lambda self: replace(BATCH, samples=1.5)),
        r"a batch whose samples are 1\.5; expected a whole number",
    ),
    "samples are too many to plan": (
        contexts(ask=lambda self: replace(BATCH, samples=10**12)),
        r"a batch whose samples are 1000000000000; expected at most 1,000,000",
    ),
    "contexts stand alone": (
        contexts(ask=lambda self: Batch(Context({"prompt": "x"}), adapt=False)),
        r"a batch whose contexts are Context.*; expected a list, each a coevo.Context",
    ),
    "pairing is misspelt": (
        contexts(ask=lambda self: replace(BATCH, pairing="zipp")),
        r"a batch whose pairing is 'zipp'; did you mean 'zip'\?",
    ),
    "examples of a batch are a text": (
        contexts(ask=lambda self: replace(BATCH, examples="12")),
        r"a batch whose examples are '12'; expected a list",
    ),
    "split is unknown": (contexts(ask=lambda self: replace(BATCH, split="trian")), r"split 'trian'"),
    "ask raises": (
        contexts(ask=raises(KeyError("prompt"))),
        rf"context updater 'mine': ask\(\) raised KeyError: 'prompt' {HERE}",
    ),
    "tell leaves": (
        contexts(tell=raises(SystemExit())),
        rf"context updater 'mine': tell\(\) raised SystemExit {HERE}",
    ),
    "state is a set": (
        contexts(state_dict=lambda self: {"seen": [{1}]}),
        r"context updater 'mine': state_dict\(\) gave a state with, at \['seen'\]\[0\], \{1\}, which JSON cannot hold",
    ),
    "state has numbers as keys": (
        contexts(state_dict=lambda self: {1: "a"}),
        r"state_dict\(\) gave a state the key 1; expected a text, since JSON has no other keys",
    ),
    "state is nan": (
        contexts(state_dict=lambda self: {"best": float("nan")}),
        r"a state with, at \['best'\], nan; expected a finite number",
    ),
    "wrap gives nothing": (
        contexts(wrap=lambda self, inner: None),
        r"context updater 'mine': wrap\(\) gave None, which lacks",
    ),
    "credit gives nothing": (
        contexts(credit=lambda self, buffer: None),
        r"context updater 'mine': credit\(\) gave None; expected the coevo.Buffer with credits",
    ),
    "credit loses one": (
        contexts(credit=forgets_one),
        r"credit\(\) gave a buffer of \d+ rollouts that are not the \d+ that it got",
    ),
    "credit is nan": (
        contexts(credit=nan_credits),
        r"credit\(\) gave rollout 'g0-.*' a credit of nan; expected a finite number, or None",
    ),
    "batches are a word": (
        contexts(adapting_batches="one"),
        r"context updater 'mine' has adapting_batches 'one'; expected a finite number",
    ),
    "update is a text": (
        parameters(tell=lambda self, buffer: "up"),
        r"parameter updater 'mine': tell\(\) gave 'up'; expected a SeedsUpdate",
    ),
    "update has a nan": (
        parameters(tell=lambda self, buffer: SeedsUpdate(((1, float("nan")),))),
        r"tell\(\) gave an update with a term whose coefficient is nan",
    ),
    "update has one number": (
        parameters(tell=lambda self, buffer: SeedsUpdate((1,))),
        r"gave an update whose terms are with 1 at \[0\]; expected a pair",
    ),
    "members are numbers": (
        parameters(ask=lambda self, batch: [1, 2]),
        r"ask\(\) gave a list with 1 at \[0\]; expected a coevo.Perturbation",
    ),
    "population is a text": (
        parameters(__init__=lambda self, **_: None, population="4", answers=1, needs="", common_random_numbers=None),
        r"parameter updater 'mine' has population '4'; expected a whole number",
    ),
    "needs is misspelt": (
        parameters(__init__=lambda self, **_: None, population=4, answers=1, needs="adapt", common_random_numbers=None),
        r"parameter updater 'mine' has needs 'adapt'; did you mean 'adapts'\?",
    ),
    "too few completions": (
        policy(too_few),
        r"engine 'mine': the policy's: complete\(\) gave \d completions for \d requests",
    ),
    "texts are numbers": (
        policy(number_texts),
        r"complete\(\) gave a completion whose text is 3; expected a text",
    ),
    "completions are nothing": (
        policy(nothing),
        r"complete\(\) gave None; expected a list, each a coevo.Completion",
    ),
    "complete is not async": (
        policy(not_async),
        r"complete\(\) is no async function; write it as: async def",
    ),
    "lease is a coroutine": (
        engine(lease=nothing),
        r"engine 'mine': lease\(\) is an async function; write it as: def",
    ),
    "lease gives a policy": (
        engine(lease=lambda self, p: fakes.NumberPolicy(self, 0, "")),
        r"lease\(\) gave .*expected an async context manager",
    ),
    "digest is nothing": (
        engine(digest=lambda self: None),
        r"engine 'mine': digest\(\) gave None; expected a text",
    ),
    "moved is nan": (
        engine(moved=lambda self, p: float("nan")),
        r"moved\(\) gave nan; expected a finite number",
    ),
    "apply raises": (
        engine(apply=raises(RuntimeError("no memory"))),
        rf"engine 'mine': apply\(\) raised RuntimeError: no memory {HERE}",
    ),
    "factory gives nothing": ({"tasks": lambda: None}, r"task 'mine' cannot be made: its factory gave None"),
    "factory raises": (
        {"context_updaters": lambda brief: brief["x"]},
        rf"context updater 'mine' cannot be made: TypeError: .* {HERE}",
    ),
    "task is half": (
        {"tasks": lambda: object()},
        r"task 'mine' lacks 'brief', 'episode', 'examples'; see coevo.interfaces.Task",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_a_plugin_should_not_give_is_one_line_that_names_it(name):
    part, said = MISTAKES[name]
    with pytest.raises(UserError) as refused:
        start(part)
    text = str(refused.value)
    assert re.search(said, text), text
    assert "\n" not in text
    assert refused.value.exit_code == 2


def test_a_fault_after_the_first_rollouts_leaves_a_run_that_can_go_on():
    with pytest.raises(PluginError, match="once that is mended, go on with: coevo resume a --accept-changes"):
        start(contexts(tell=raises(KeyError("best"))))
    assert "tell() raised KeyError" in coevo.app.launch.summarize(RunFolder.find("a"))["message"]


def test_a_fault_before_the_first_rollout_leaves_no_run():
    with pytest.raises(PluginError):
        start(MISTAKES["result is a number"][0])
    assert not Path("runs/a").exists()


def test_a_state_that_cannot_be_taken_back_is_one_line():
    class Watch:
        @coevo.hookimpl
        def batch_finished(self):
            raise KeyboardInterrupt

    part = Stranger(contexts(load_state_dict=lambda self, state: state["gone"]))
    with pytest.raises(coevo.errors.RunInterrupted):
        coevo.run({**config(), "context": "mine"}, plugins(part, Watch()))
    with pytest.raises(
        PluginError, match=rf"context updater 'mine': load_state_dict\(\) raised KeyError: 'gone' {HERE}"
    ):
        coevo.app.launch.resume("a", plugins=plugins(part))


def test_a_task_that_raises_loses_its_rollouts_and_the_first_is_told_once_with_its_place(capsys):
    def judge(self):
        if self.index == 1:
            raise ZeroDivisionError("division by zero")
        return fakes.AimEpisode.result(self)

    summary = start(episode(result=judge))
    said = capsys.readouterr().err
    assert summary["statuses"]["judge_error"] > 1
    assert re.fullmatch(
        rf"coevo: note: task 'mine' failed on rollout \S+: ZeroDivisionError: division by zero {HERE}; such rollouts "
        r"are left out as 'judge_error', and this is said once\n",
        said,
    )


def test_a_task_that_fails_on_everything_ends_the_run_long_before_the_end_of_its_first_batch():
    asked = []

    def judge(self):
        asked.append(self.index)
        raise ValueError("no such file")

    part = episode(result=judge)
    with pytest.raises(
        coevo.errors.RunError, match=rf"each of the first \d+ rollouts failed with 'judge_error': .*{HERE}"
    ):
        start(part, fixed={"samples": 400}, rollouts={"chunk": 8, "retries": 0})
    assert 32 <= len(asked) < 1200
    folder = RunFolder.find("a")
    assert not folder.has_rollouts()  # once the task is mended, a resumed run asks again


def test_a_task_that_cannot_say_what_it_asks_is_one_line_under_a_budget_of_tokens_too():
    part = task(episode=raises(KeyError("x")))
    with pytest.raises(PluginError, match=rf"say what it asks, .* --tokens cannot be kept: KeyError: 'x' {HERE}"):
        start(part, tokens=10_000)


def test_leaving_in_the_middle_of_a_judge_loses_only_its_rollout():
    def judge(self):
        if self.index == 1:
            raise SystemExit(1)
        return fakes.AimEpisode.result(self)

    assert start(episode(result=judge))["statuses"]["judge_error"] > 0


@pytest.mark.parametrize("error", [ValueError("there is 'train'"), KeyError("test")])
def test_a_split_that_a_task_has_not_is_told_from_a_fault_in_reading_it(error):
    made = Registry("task", coevo.host.contracts.task)
    made.register("mine", changed(fakes.AimTask, examples=raises(error)))
    with pytest.raises(UnknownSplitError):
        made.create("mine", {}).examples("test")
    with pytest.raises(UserError) as refused:
        made.create("mine", {}).examples("train")
    assert isinstance(refused.value, PluginError) is isinstance(error, KeyError)


def test_a_guard_is_the_object_but_for_its_rules():
    engine = fakes.NumberEngine()
    guard = Guard(engine, "engine 'mine'", {"digest": Rule(anything)})
    assert guard.digest() == engine.digest()
    assert guard.theta is engine.theta
    assert repr(guard) == repr(engine)
    assert not hasattr(guard, "reached")


NOT_A_NAME = [1, "", None]


@pytest.mark.parametrize("name", NOT_A_NAME)
def test_a_factory_without_a_name_is_refused(name):
    with pytest.raises(PluginError, match="expected a name"):
        Registry("task").register(name, fakes.AimTask)


def test_what_is_no_factory_is_refused():
    with pytest.raises(PluginError, match=r"as task 'mine'; expected a class or a function that makes one"):
        Registry("task").register("mine", fakes.AimTask())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=8,
)


@given(JSON)
def test_what_is_plain_is_what_json_gives_back(value):
    import json

    assert plain(value, "a value") == json.loads(json.dumps(value))


@given(JSON, st.sampled_from([{1}, b"x", object(), np.float32(1), float("inf"), 1j, {2: 3}]))
def test_what_json_cannot_hold_is_found_wherever_it_is(value, foreign):
    with pytest.raises(Wrong):
        plain([value, {"deep": (value, foreign)}], "a value")


def test_the_whole_traceback_is_there_for_who_wants_it(capsys, monkeypatch):
    Path("mine.py").write_text(
        "import coevo\n\n\ndef make():\n    raise KeyError('x')\n\n\n"
        "@coevo.hookimpl\ndef register_tasks(tasks):\n    tasks.register('mine', make)\n"
    )
    line = "coevo: task 'mine' cannot be made: KeyError: 'x' (mine.py:5, in make)\n"
    arguments = ["run", "--plugin", "mine.py", "--task", "mine", "--param", "none", "--context", "none", "--quiet"]
    assert main(arguments) == 2
    assert capsys.readouterr().err == line
    monkeypatch.setenv("COEVO_TRACEBACK", "1")
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.endswith(line)
    assert 'mine.py", line 5, in make' in said
