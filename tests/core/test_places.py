"""Home folders that there are not, and a Python that may not be started, are told in a line that says so."""

import os
import sys
from pathlib import Path

import pytest

from coevo.errors import UserError
from coevo.machine import places
from coevo.sandbox import Sandbox
from coevo.sandbox.author import Author


@pytest.fixture
def homeless(monkeypatch):
    """A user without HOME and without an entry in the list of users, as in many containers."""

    def unknown(uid):
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("COEVO_CACHE", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)


def test_a_path_below_home_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    assert str(places.expanded("~/models")) == "/somewhere/models"
    assert str(places.expanded("models/~x")) == "models/~x"


def test_a_user_without_a_home_is_told_which_variable_is_missing(homeless):
    with pytest.raises(
        UserError, match=r"^'~/m' begins in a home folder, and the environment variable HOME is not set"
    ):
        places.expanded("~/m")
    with pytest.raises(UserError, match=r"HOME is not set and user \d+ has no entry .*; set HOME, or COEVO_CACHE"):
        places.home("COEVO_CACHE")
    assert str(places.expanded("models")) == "models"


def test_a_home_of_nobody_is_told():
    with pytest.raises(UserError, match="there is no user 'nobody-of-that-name'; give the whole path"):
        places.expanded("~nobody-of-that-name/m")


@pytest.mark.parametrize(
    "line",
    [
        ["model", "list"],
        ["run", "--param", "none"],
        ["run", "--param", "none", "--model", "~/m"],
        ["check", "~/p"],
        ["new", "problem", "p", "--folder", "~"],
        ["plan", "--model", "~/m"],
    ],
    ids=" ".join,
)
def test_every_command_says_so_in_one_line(homeless, tmp_path, monkeypatch, coevo, line):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COEVO_EVALUATIONS", "on")
    code, out, err = coevo(*line)
    assert (code, out) == (2, ""), err
    assert "HOME is not set" in err
    assert err.count("\n") == 1


def test_the_doctor_names_it_and_how_to_mend_it(homeless, tmp_path, monkeypatch, coevo):
    monkeypatch.chdir(tmp_path)
    code, out, err = coevo("doctor")
    assert (code, err) == (1, "")
    assert "HOME is not set" in out
    assert "mend: set HOME, or COEVO_CACHE to a folder" in out


def test_a_cache_that_is_named_needs_no_home(homeless, tmp_path, monkeypatch, coevo):
    monkeypatch.setenv("COEVO_CACHE", str(tmp_path))
    assert coevo("model", "list")[0] == 0


@pytest.fixture
def no_python(tmp_path, monkeypatch):
    """A Python that this user, even root, may not execute."""
    file = tmp_path / "python"
    file.touch(0o644)
    monkeypatch.setattr("sys.executable", str(file))
    return file


def test_this_python_may_be_started():
    assert places.interpreter() == sys.executable


@pytest.mark.parametrize("start", [lambda f: Sandbox(f, "train", entry="f"), lambda f: Author(f, "train")])
def test_a_python_that_this_user_may_not_execute_is_told_in_one_line(no_python, start):
    with pytest.raises(
        UserError, match=f"^user {os.geteuid()} may not execute '{no_python}', the Python that coevo runs"
    ):
        start(Path("evaluate.py"))


@pytest.mark.parametrize("python", ["", None])
def test_an_unknown_python_is_told_in_one_line(monkeypatch, python):
    monkeypatch.setattr("sys.executable", python)
    with pytest.raises(UserError, match="the Python that coevo runs in"):
        places.interpreter()
