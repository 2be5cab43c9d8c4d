"""`coevo.run` from Python: checks come before anything is started, and a summary comes out."""

from pathlib import Path

import fakes
import pluggy
import pytest

import coevo
import coevo_es
import coevo_none
from coevo.app.launch import resume
from coevo.errors import RunInterrupted, UserError
from coevo.host import hookspecs
from coevo.host.discovery import Plugins
from coevo.runs.folder import RunFolder
from coevo.runs.summary import gap_to, summarize


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def plugins(*extra):
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    for plugin in (fakes, coevo_es, coevo_none, *extra):
        manager.register(plugin)
    return Plugins(manager)


def config(**changes):
    base = {"task": "aim", "engine": "numbers", "context": "fixed", "generations": 2, "loggers": [], "name": "a"}
    return {**base, "es": {"population": 4, "sigma": 0.3}, **changes}


class Watch:
    def __init__(self, stop_after=0):
        self.heard, self.stop_after = [], stop_after

    @coevo.hookimpl
    def run_started(self, info):
        self.info = info

    @coevo.hookimpl
    def batch_finished(self, report):
        self.heard.append((report.generation, report.batch))
        if len(self.heard) == self.stop_after:
            raise KeyboardInterrupt

    @coevo.hookimpl
    def run_finished(self, error):
        self.error = error


def test_a_run_gives_the_summary_that_show_prints():
    watch = Watch()
    summary = coevo.run(config(), plugins(watch))
    assert summary == summarize(RunFolder.find("a"))
    assert (summary["status"], summary["batches"], summary["updates"]) == ("finished", 4, 2)
    assert watch.heard == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert watch.error is None
    assert (watch.info.reference, watch.info.baseline) == (("exact", 0.0), ("zero", 3.5 / 3))


def test_an_interrupted_run_tells_observers_and_goes_on():
    watch = Watch(stop_after=3)
    with pytest.raises(RunInterrupted, match="interrupted; go on with: coevo resume a"):
        coevo.run(config(), plugins(watch))
    assert isinstance(watch.error, RunInterrupted)
    assert summarize(RunFolder.find("a"))["status"] == "interrupted"
    resumed = resume("a", plugins=plugins())
    whole = coevo.run(config(name="b"), plugins())
    assert resumed["weights_digest"] == whole["weights_digest"]


class Never:
    def __init__(self, model: str):
        raise AssertionError("the engine was made")


class Fragile(fakes.AimTask):
    def start(self):
        raise AssertionError("the task was started")


class NeverStarted:
    @coevo.hookimpl
    def register_engines(self, engines):
        engines.register("never", Never)

    @coevo.hookimpl
    def register_tasks(self, tasks):
        tasks.register("fragile", Fragile)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"population": 1}, "population must be at least 2"),
        ({"param": "none"}, "options are given for 'es', which this run does not use"),
        ({"param": "none", "population": 3}, "parameter updater 'none' has no population"),
        ({"es": {"sigm": 1}}, "did you mean 'sigma'"),
        ({"model": "./nowhere"}, "there is no model folder './nowhere'"),
        ({"model": "nowhere"}, "no model named 'nowhere'"),
        ({"loggers": ["nobody"]}, "no logger named 'nobody'"),
    ],
)
def test_a_mistake_is_found_before_anything_is_started(changes, said, tmp_path):
    options = {"task": "fragile", "engine": "never", **changes}
    with pytest.raises(UserError) as refused:
        coevo.run(config(**options), plugins(NeverStarted()))
    assert said in str(refused.value)
    assert not (tmp_path / "runs").exists()


def test_an_engine_that_does_not_adapt_refuses_es():
    with pytest.raises(UserError, match=r"cannot train on engine 'numbers'.*or --param none"):
        coevo.run(config(numbers={"adapts": False}), plugins())


def test_a_run_that_another_process_has_is_refused():
    coevo.run(config(), plugins())
    folder = RunFolder.find("a")
    with (
        folder.lock(),
        pytest.raises(UserError, match=r"run 'a' is going in process \d+; watch it with: coevo show a"),
    ):
        resume("a", plugins=plugins())


@pytest.mark.parametrize(
    ("value", "target", "direction", "gap"),
    [(11, 10, "minimize", 0.1), (9, 10, "minimize", -0.1), (9, 10, "maximize", 0.1), (-9, -10, "minimize", 0.1),
     (1, 0, "minimize", None)],
)  # fmt: skip
def test_a_gap_is_how_much_worse(value, target, direction, gap):
    assert gap_to(value, target, direction) == gap


@pytest.mark.parametrize("left", [[], ["rollouts"], ["rollouts", "contexts", "best", ".0123456789abcdef.new"]])
def test_what_a_kill_left_before_the_configuration_was_written_is_no_obstacle(left):
    folder = Path("runs/a")
    folder.mkdir(parents=True)
    for part in left:
        (folder / part).touch() if "." in part else (folder / part).mkdir()
    assert coevo.run(config(), plugins())["status"] == "finished"


def test_a_folder_with_anything_in_it_is_left_alone():
    folder = Path("runs/a/rollouts")
    folder.mkdir(parents=True)
    (folder / "mine.txt").write_text("keep")
    with pytest.raises(UserError, match="exists and is no run"):
        coevo.run(config(), plugins())
    assert (folder / "mine.txt").read_text() == "keep"
