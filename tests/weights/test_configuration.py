"""Which entry of a configuration is to blame is found by doing without it, whatever fails."""

import json
from pathlib import Path

import pytest

from coevo.weights.configuration import blamed, words


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"size": 16, "heads": 0, "inner": {"kind": "odd", "more": []}}))
    (tmp_path / "other.json").write_text("{}")
    return tmp_path


def config_of(place: Path):
    return json.loads((place / "config.json").read_text())


def divide(place: Path) -> None:
    """Fails as long as there are no heads, and reads another file of the folder."""
    config = config_of(place)
    config.get("size", 4096) % config.get("heads", 3)
    if config.get("size", 4096) % config.get("heads", 3):
        raise ValueError("not divisible")
    (place / "other.json").read_text()


def look_up(place: Path) -> None:
    {"even": 1}[config_of(place).get("inner", {}).get("kind", "even")]


def error_of(attempt, folder: Path) -> Exception:
    with pytest.raises(Exception) as caught:
        attempt(folder)
    return caught.value


def test_an_entry_is_found_where_neither_its_absence_nor_the_error_names_it(folder: Path):
    said = blamed(folder, divide, error_of(divide, folder))
    assert said == f"'{folder}/config.json' has heads = 0"


def test_an_entry_of_a_table_is_named_with_its_table(folder: Path):
    assert blamed(folder, look_up, error_of(look_up, folder)) == f"'{folder}/config.json' has inner.kind = 'odd'"


def test_nothing_is_blamed_for_what_fails_in_any_case(folder: Path):
    def fail(place: Path) -> None:
        raise RuntimeError("in any case")

    assert blamed(folder, fail, error_of(fail, folder)) == ""


def test_nothing_is_blamed_for_what_does_not_fail_again(folder: Path):
    assert blamed(folder, lambda place: None, RuntimeError("size 16")) == ""


def test_the_folder_is_left_as_it_was(folder: Path):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    blamed(folder, divide, error_of(divide, folder))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_long_value_is_cut(folder: Path):
    (folder / "config.json").write_text(json.dumps({"inner": {"kind": "x" * 500}}))
    said = blamed(folder, look_up, error_of(look_up, folder))
    assert said.endswith("xxx …")
    assert len(said) < len(str(folder)) + 120


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("one\n  two"), "one two"),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (TypeError("Validation error for field 'a':\n    TypeError: Field 'a' is no int. Errors: of all kinds"),
         "Field 'a' is no int."),
        (KeyError("odd"), "'odd'"),
    ],
)  # fmt: skip
def test_what_transformers_says_is_one_line_without_its_lists(error: Exception, said: str):
    assert words(error) == said
