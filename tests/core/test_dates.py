"""A chat template that prints today's date prints the day on which the run began, also after it was resumed."""

import datetime
import tomllib
from pathlib import Path

import fakes
import pytest
from loop_kit import config, plugins

import coevo
from coevo.app.blueprint import Blueprint
from coevo.app.launch import resume
from coevo.cli.serving import configured
from coevo.errors import RunInterrupted, UserError
from coevo.host.config import build
from coevo.runs.folder import RunFolder
from coevo.tools.study.frame import Subject
from coevo.tools.study.plan import PlannedRun, check_same

NOW = datetime.date.today().isoformat()


class Dated(fakes.NumberEngine):
    """Prints the date in its prompts if it is `printing`, and tells on which day it was made."""

    made: list = []  # noqa: RUF012 - what the tests read

    def __init__(self, model: str = "", *, date: datetime.date | None = None, printing: bool = True):
        super().__init__(model)
        self.date, self.printing = date, printing
        Dated.made.append(date)

    def describe(self):
        return {"device": "numpy", **({"date": str(self.date)} if self.printing else {})}


class Pool(fakes.NumberEngine):
    """A pool of another engine."""

    def __init__(self, model: str = "", *, engine: str = "dated", options: dict | None = None):
        super().__init__(model)
        self.inner = Dated(date=datetime.date.fromisoformat((options or {})["date"]))

    def describe(self):
        return self.inner.describe()


class Engines:
    @coevo.hookimpl
    def register_engines(self, engines):
        engines.register("dated", Dated)
        engines.register("pool", Pool)


class Interrupt:
    @coevo.hookimpl
    def batch_finished(self, report):
        raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Dated.made.clear()


def kept():
    return tomllib.loads(Path("runs/a/config.toml").read_text())


def yesterday(text):
    """The run's folder as if it had begun a day earlier."""
    file = Path("runs/a/config.toml")
    file.write_text(file.read_text().replace(NOW, text))


@pytest.mark.parametrize(("engine", "place"), [("dated", ["dated"]), ("pool", ["pool", "options"])])
def test_a_resumed_run_keeps_the_day_on_which_it_began(engine, place):
    with pytest.raises(RunInterrupted):
        coevo.run(config(engine=engine), plugins(Engines(), Interrupt()))
    table = kept()
    for key in place:
        table = table[key]
    assert table["date"] == NOW
    yesterday("2020-02-29")
    resume("a", plugins=plugins(Engines()), accept_changes=True)
    assert Dated.made == [datetime.date.fromisoformat(NOW), datetime.date(2020, 2, 29)]


def test_a_day_that_is_in_no_prompt_is_not_kept():
    coevo.run(config(engine="dated", dated={"printing": False}), plugins(Engines()))
    assert kept()["dated"] == {"printing": False}


def test_an_engine_without_the_option_is_given_no_day():
    coevo.run(config(), plugins(Engines()))
    assert "numbers" not in kept()


@pytest.mark.parametrize("day", ["2026-01-31", datetime.date(2026, 1, 31)])
def test_another_day_may_be_chosen(day):
    coevo.run(config(engine="dated", dated={"date": day}), plugins(Engines()))
    assert kept()["dated"]["date"] == "2026-01-31"
    assert Dated.made == [datetime.date(2026, 1, 31)]


def test_what_is_no_day_is_refused_in_one_line():
    with pytest.raises(UserError, match="engine 'dated': option 'date' got 'tomorrow': input should be a valid date"):
        coevo.run(config(engine="dated", dated={"date": "tomorrow"}), plugins(Engines()))


def blueprint(registries, **data):
    return Blueprint(build(data, registries.names), registries)


def test_a_day_that_is_there_stays():
    registries = plugins(Engines()).registries()
    for engine in ("dated", "pool"):
        fresh = blueprint(registries, engine=engine).dated("2026-01-01")
        assert fresh.date() == "2026-01-01"
        assert fresh.dated("2027-07-07") == fresh
    assert blueprint(registries, engine="numbers").date() == ""


def test_a_study_goes_on_with_runs_that_began_on_other_days():
    coevo.run(config(engine="dated"), plugins(Engines()))
    registries = plugins(Engines()).registries()
    run = Subject("arm", 0, "a", Path("runs/a"))
    asked = build(config(engine="dated"), registries.names)
    assert check_same(PlannedRun(run, asked), registries) == ""
    yesterday("2020-02-29")
    assert check_same(PlannedRun(run, asked), registries) == ""
    other = build(config(engine="dated", dated={"date": "2021-01-01"}), registries.names)
    with pytest.raises(UserError, match=r"made with dated.date = '2020-02-29' and the study"):
        check_same(PlannedRun(run, other), registries)


@pytest.mark.parametrize("engine", ["dated", "pool"])
def test_a_served_model_is_told_the_real_day_unless_another_is_asked_for(engine):
    coevo.run(config(engine=engine), plugins(Engines()))
    registries = plugins(Engines()).registries()
    served, _ = configured(RunFolder.find("a"), registries, engine, [])
    assert served.date() == ""
    if engine == "dated":
        served, _ = configured(RunFolder.find("a"), registries, engine, ["dated.date=2026-05-05"])
        assert served.date() == "2026-05-05"
