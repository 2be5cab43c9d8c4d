from typing import Annotated, Literal

import pytest
from annotated_types import Lt
from pydantic import Field

from coevo.errors import PluginError, UserError, did_you_mean
from coevo.host.options import HELP_WIDTH, bounds_text, declared, type_text
from coevo.host.registry import Registry


class Thing:
    """A thing with options.

    More words.
    """

    def __init__(
        self,
        *,
        services: object,
        size: Annotated[int, Field(ge=1)] = 3,
        rate: Annotated[float | None, Field(ge=0.0)] = None,
        kind: Literal["round", "square"] = "round",
        free=None,
    ) -> None:
        """Makes one.

        Args:
            services: of the run.
            size: how large it is,
                in metres.
            kind: what it looks like from the front, from the side and from above, as far as anybody has ever been
                able to say who looked at it for long enough, which few have done.
        """
        if size == 13:
            raise ValueError("size 13 is unlucky")
        self.services, self.size, self.rate, self.kind, self.free = services, size, rate, kind, free


def bounded(
    above: Annotated[float, Field(gt=0)] = 1.0,
    share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5,
    below: Annotated[float, Lt(0.5)] = 0.1,
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0,
    word: Annotated[str, Field(min_length=1)] = "a",
    maybe: Annotated[int, Field(ge=2)] | None = None,
    free: int = 0,
) -> None:
    """A thing with bounds."""


def needy(target: str) -> str:
    """A thing that cannot do without."""
    return target


@pytest.fixture
def registry() -> Registry[object]:
    made: Registry[object] = Registry("context updater")
    made.plugin = "first"
    made.register("thing", Thing)
    made.register("needy", needy, summary="Given in the hook.")
    return made


def test_entries_are_sorted_and_carry_plugin_and_summary(registry):
    assert registry.names == ["needy", "thing"]
    assert [e.name for e in registry] == ["needy", "thing"]
    assert "thing" in registry
    assert "thin" not in registry
    assert registry.entry("thing").plugin == "first"
    assert registry.entry("thing").summary == "A thing with options."
    assert registry.entry("needy").summary == "Given in the hook."


def test_a_name_registered_twice_names_both_plugins(registry):
    registry.plugin = "second"
    with pytest.raises(PluginError, match="'thing' is registered twice: by plugin 'first' and by plugin 'second'"):
        registry.register("thing", Thing)


def test_a_text_may_be_what_toml_writes_a_number_as(registry):
    def worded(word: str, perhaps: str | None = None, number: float = 0.0, either: str | float = ""):
        """Has texts."""

    registry.register("worded", worded)
    given = {"word": float("nan"), "perhaps": float("-inf")}
    assert registry.validate("worded", given) == {"word": "nan", "perhaps": "-inf"}
    for key in ("number", "either"):
        with pytest.raises(UserError, match=f"option {key!r} must be a finite number, got nan"):
            registry.validate("worded", {"word": "a", key: float("nan")})


def test_an_unknown_name_gets_a_hint(registry):
    with pytest.raises(UserError, match=r"no context updater named 'thng'; did you mean 'thing'\?"):
        registry.entry("thng")
    with pytest.raises(UserError, match="expected one of: needy, thing"):
        registry.create("zzz", {})


def test_a_hint_is_empty_where_nothing_is_known():
    assert did_you_mean("x", []) == ""


def test_options_are_what_the_user_can_give(registry):
    assert [(o.name, o.default) for o in registry.options("thing")] == [
        ("size", 3),
        ("rate", None),
        ("kind", "round"),
        ("free", None),
    ]


def test_help_is_what_the_docstring_says(registry):
    told = {o.name: o.help for o in registry.options("thing")}
    assert told["size"] == "how large it is, in metres."
    assert (told["rate"], told["free"]) == ("", "")


def test_a_type_reads_as_it_is_written(registry):
    types = {o.name: type_text(o.annotation) for o in registry.options("thing")}
    assert types == {"size": "int", "rate": "float", "kind": "'round' | 'square'", "free": ""}


def test_bounds_read_as_in_mathematics():
    assert {o.name: bounds_text(o.annotation) for o in declared(bounded)} == {
        "above": "> 0", "share": "0 < x ≤ 1", "below": "< 0.5", "seed": "0 ≤ x < 2**63", "word": "not empty",
        "maybe": "≥ 2", "free": "",
    }  # fmt: skip


def test_the_message_of_a_wrong_value_ends_with_the_help_of_the_option(registry):
    with pytest.raises(UserError, match=r"greater than or equal to 1 \(size: how large it is, in metres\)$"):
        registry.validate("thing", {"size": 0})
    with pytest.raises(UserError, match=r"input should be a number \(size: how large it is, in metres\)$"):
        registry.validate("thing", {"size": True})
    with pytest.raises(UserError, match=r"greater than or equal to 0$"):  # it has no help
        registry.validate("thing", {"rate": -1})
    with pytest.raises(UserError, match=r"\(kind: what it looks like from the front.* …\)$") as caught:
        registry.validate("thing", {"kind": "oval"})
    assert len(str(caught.value).partition(" (kind: ")[2]) <= HELP_WIDTH + len(")")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"siez": 1}, "has no option 'siez'; did you mean 'size'?"),
        ({"size": 0}, "option 'size' got 0: input should be greater than or equal to 1"),
        ({"size": "many"}, "option 'size' got 'many'"),
        ({"rate": -0.5}, "greater than or equal to 0"),
        ({"rate": float("nan")}, "must be a finite number"),
        ({"kind": "oval"}, "'round' or 'square'"),
        ({"size": 13}, "size 13 is unlucky"),
    ],
)
def test_a_wrong_option_is_told_in_one_line(registry, options, said):
    with pytest.raises(UserError) as caught:
        registry.create("thing", options, services=object())
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_are_converted_to_the_declared_types(registry):
    thing = registry.create("thing", {"size": "4", "rate": 1, "free": [1]}, services=object())
    assert (thing.size, thing.rate, thing.free) == (4, 1.0, [1])
    assert isinstance(thing.rate, float)


def test_a_factory_is_given_only_what_it_asks_for(registry):
    services = object()
    assert registry.create("thing", {}, services=services, brief="unasked").services is services
    assert registry.create("needy", {"target": "x"}, services=services) == "x"


def test_what_the_run_provides_is_no_option(registry):
    with pytest.raises(UserError, match="no option 'services'"):
        registry.create("thing", {"services": 1}, services=object())


def test_a_missing_option_is_named(registry):
    with pytest.raises(UserError, match="needs option 'target'"):
        registry.create("needy", {})
