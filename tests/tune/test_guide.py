"""The numbers of docs/choosing-sigma-and-alpha.md agree with each other and with the code."""

import math
import re
from pathlib import Path

import pytest

from coevo.tools.tune.proposal import DAMAGE, LEAST_ANSWERS, MOST_ANSWERS, RELIABILITY
from coevo.tools.tune.tables import HEADS

PAGE = (Path(__file__).parents[2] / "docs/choosing-sigma-and-alpha.md").read_text(encoding="utf-8")


def rows():
    """The printed table, a dictionary a row."""
    head, *lines = re.search(r"^sigma +moved .*\n(?:0\.\d+ .*\n)+", PAGE, re.MULTILINE)[0].splitlines()
    assert tuple(head.split()) == HEADS
    starts = [re.search(rf"(?:^|  ){name}(?:  |$)", head).start() for name in HEADS]
    starts = [start and start + 2 for start in starts]
    ends = [*starts[1:], None]
    return [{n: line[a:b].strip() for n, a, b in zip(HEADS, starts, ends, strict=True)} for line in lines]


def test_every_column_that_is_printed_is_explained():
    told = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    assert {*re.findall(r"`(\w+)`", " ".join(told)), "sigma"} == set(HEADS)


def test_reliability_and_gain_follow_from_the_printed_spread():
    assert len(rows()) == 6
    for row in rows():
        between, within = float(row["between"]), float(row["within"])
        reliability = between**2 / (between**2 + within**2 / 16)
        assert float(row["reliability"]) == pytest.approx(reliability, abs=0.01)
        assert float(row["gain"]) == pytest.approx(2 * between * math.sqrt(reliability), abs=0.003)
        low, high = map(float, row["interval"].split("-"))
        assert low < float(row["F"]) < high
        assert (row["note"] == "noise") == (low <= 1.0)


def test_one_row_is_proposed_with_the_rule_for_alpha():
    (proposed,) = (row for row in rows() if row["note"] == "proposed")
    able = [row for row in rows() if row["note"] in ("", "proposed")]
    assert float(proposed["gain"]) == max(float(row["gain"]) for row in able)
    sigma = float(proposed["sigma"])
    assert f"--set es.sigma={sigma} --set es.alpha={2 * sigma} " in PAGE
    # The expected gains of the second table are for 12 members.
    expected = dict(re.findall(r"^\| (0\.\d+) \| \+?(\.?\d+) \| [+-]", PAGE, re.MULTILINE))
    for row in rows()[:5]:
        assert float(expected[row["sigma"]]) == pytest.approx(float(row["gain"]) * math.sqrt(12 / 16), abs=0.002)


def test_the_bounds_are_those_of_the_code():
    assert f"clearly lose more than {DAMAGE:.0%}".replace("%", " %") in " ".join(PAGE.split())
    text = " ".join(PAGE.split())
    assert f"a reliability of {RELIABILITY} (a power of two, {LEAST_ANSWERS} to {MOST_ANSWERS})" in text
