"""Configuration: files, assignments and tables become one checked model, and every refusal says what to do."""

import tomllib
from pathlib import Path

import pytest

from coevo.errors import UserError
from coevo.host.config import (
    FIELDS,
    RunConfig,
    build,
    merge,
    own_options,
    parse_assignment,
    plugin_files,
    read_file,
    to_toml,
)
from coevo.host.options import bounds_text

TABLES = ["eoh", "es", "heuristics", "tsp_construct"]


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("es.sigma=1e-3", ["es", "sigma"], 1e-3),
        ("generations = 3", ["generations"], 3),
        ("es.antithetic=true", ["es", "antithetic"], True),
        ('name="a b"', ["name"], "a b"),
        ("name=a b", ["name"], "a b"),
        ("es.shaping=zscore", ["es", "shaping"], "zscore"),
        ("model=owner/name", ["model"], "owner/name"),
        ("name=a=b", ["name"], "a=b"),
        ("loggers=[]", ["loggers"], []),
        ("name=", ["name"], ""),
    ],
)
def test_an_assignment_is_read_as_toml_or_as_text(text, path, value):
    assert parse_assignment(text) == (path, value)


@pytest.mark.parametrize("text", ["foo", "=3", "a..b=3", ".=1", ""])
def test_what_is_no_assignment_is_refused(text):
    with pytest.raises(UserError, match="is no assignment"):
        parse_assignment(text)


def test_later_assignments_win_and_the_data_stays_as_it_was():
    data = {"es": {"sigma": 1}, "seed": 1}
    merged = merge(data, [(["es", "sigma"], 2), (["es", "alpha"], 3), (["es", "sigma"], 4), (["eoh", "x"], 5)])
    assert merged == {"es": {"sigma": 4, "alpha": 3}, "seed": 1, "eoh": {"x": 5}}
    assert data == {"es": {"sigma": 1}, "seed": 1}
    with pytest.raises(UserError, match="'seed' is a value, not a table"):
        merge(data, [(["seed", "x"], 1)])


def test_a_resolved_configuration_reads_back_as_itself():
    config = build({"generations": 2, "es": {"sigma": 0.1}, "sampling": {"temperature": 0.5}}, TABLES)
    again = build(tomllib.loads(to_toml(config.to_toml_data())), TABLES)
    assert again == config
    assert again.options == {"es": {"sigma": 0.1}}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"generatons": 1}, "unknown configuration key 'generatons'; did you mean 'generations'?"),
        ({"eohh": {}}, "unknown configuration key 'eohh'; did you mean 'eoh'?"),
        ({"options": {}}, "unknown configuration key 'options'"),
        ({"es": 1}, "'es' got 1: it should be a table of options; write es.option = value"),
        ({"seed": -1}, "seed got -1: input should be greater than or equal to 0"),
        ({"seed": 2**63}, "seed got 9223372036854775808: input should be less than"),
        ({"seed": 1.5}, "seed got 1.5"),
        ({"anchor_seconds": float("nan")}, "anchor_seconds got nan: input should be a finite number"),
        ({"name": ""}, "name got ''"),
        ({"runs": "a\0b"}, "runs got 'a\\x00b'"),
        (
            {"sampling": {"temprature": 1}},
            "unknown configuration key 'sampling.temprature'; did you mean 'temperature'?",
        ),
        ({"sampling": {"top_p": 0}}, "sampling.top_p got 0: input should be greater than 0"),
        ({"rollouts": {"chunk": 0}}, "rollouts.chunk got 0"),
        ({"task": "no/such"}, "no folder 'no/such' to read a problem from"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(data, said):
    with pytest.raises(UserError) as refused:
        build(data, TABLES)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_message_of_a_wrong_value_ends_with_what_the_setting_is():
    with pytest.raises(UserError, match=r"than 0 \(sampling.top_p: share of the probability that is drawn from\)$"):
        build({"sampling": {"top_p": 0}}, TABLES)
    with pytest.raises(UserError, match=r"\(generations: how many generations the run has\)$"):
        build({"generations": 0}, TABLES)


def test_every_setting_of_a_run_is_listed_with_help_and_its_own_default():
    listed = {option.name: option for option in own_options()}
    data = RunConfig().model_dump()
    for name, option in listed.items():
        table, _, key = name.rpartition(".")
        assert option.default == (data[table][key] if table else data[name]), name
        assert option.help, name
    assert bounds_text(listed["sampling.top_p"].annotation) == "0 < x ≤ 1"
    assert len(listed) == len(FIELDS) - 3 + sum(len(data[table]) for table in ("sampling", "probe", "rollouts"))


def test_a_task_that_is_a_folder_becomes_the_task_for_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("tsp_construct").mkdir()
    for given in ("mine", "./mine", str(tmp_path / "mine")):
        config = build({"task": given, "heuristics": {"hole": "function"}}, TABLES)
        assert config.task == "heuristics"
        assert config.options["heuristics"] == {"hole": "function", "folder": str(tmp_path / "mine")}
    # A registered name is that task, whatever lies in the working folder.
    assert build({"task": "tsp_construct"}, TABLES).task == "tsp_construct"
    assert build({"task": "./tsp_construct"}, TABLES).task == "heuristics"
    assert build({"task": "nowhere"}, TABLES).task == "nowhere"  # for the registry to refuse


def test_plugin_files_are_a_list_of_names():
    assert plugin_files({}) == []
    assert plugin_files({"plugins": ["a.py"]}) == ["a.py"]
    for wrong in (3, "a.py", [1], {"a": 1}):
        with pytest.raises(UserError, match="plugins got"):
            plugin_files({"plugins": wrong})


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="no configuration file"):
        read_file(tmp_path / "none.toml")
    with pytest.raises(UserError, match="Is a directory"):
        read_file(tmp_path)
    broken = tmp_path / "b.toml"
    broken.write_bytes(b"\xff")
    with pytest.raises(UserError, match="is not UTF-8: byte 0xff in line 1, column 1"):
        read_file(broken)


def test_the_default_is_the_main_job():
    config = RunConfig()
    assert (config.param, config.context, config.task) == ("es", "eoh", "tsp_construct")
