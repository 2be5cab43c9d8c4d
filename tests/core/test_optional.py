"""Optional parts of plugins: who has all members of a part has it, through a guard as well."""

import pytest

from coevo.host.guard import Guard
from coevo.optional import AdaptsIn, Closes, KeepsAnchors, always_adapts, closed, described, never_adapts, offers


class Anchored:
    def save_anchor(self, path): ...
    def load_anchor(self, path): ...
    def apply_seconds(self):
        return 1.0


class Door:
    shut = False

    def close(self):
        self.shut = True


@pytest.mark.parametrize("seen", [lambda thing: thing, lambda thing: Guard(thing, "engine 'x'", {})])
def test_a_part_is_there_with_all_of_its_members(seen):
    assert offers(seen(Anchored()), KeepsAnchors)
    assert not offers(seen(Door()), KeepsAnchors)
    half = Anchored()
    half.load_anchor = None
    assert not offers(seen(half), KeepsAnchors)


def test_an_attribute_is_a_part_as_well_and_nothing_has_none():
    thing = Door()
    thing.adapting_batches = 0.0
    assert offers(thing, AdaptsIn)
    assert not offers(None, Closes)


def test_what_can_be_closed_is_closed_and_what_cannot_is_left():
    door = Door()
    closed(door)
    closed(Anchored())
    assert door.shut


def test_parts_describe_themselves_together():
    first, second = Door(), Door()
    second.describe = lambda: {"device": "cpu"}
    assert described(first, second) == {"device": "cpu"}


def test_a_factory_that_says_nothing_neither_adapts_nor_refuses_to():
    said = [type("Says", (), {"adapts": adapts}) for adapts in (True, False)]
    assert [(always_adapts(each), never_adapts(each)) for each in (*said, Door)] == [
        (True, False), (False, True), (False, False),
    ]  # fmt: skip
