"""Curves: what is drawn, that it is the same every time, and that nothing of matplotlib is heard."""

import math
import os
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coevo.report.axes import COLOURS
from coevo.report.plots import Panel, comparison, describe, legend, mean_curve, save, svg_text

SVG = "{http://www.w3.org/2000/svg}"


def panel(curves=None, **changes):
    seeds = [[(0, 9.0), (100, 8.0)], [(0, 8.5), (100, 7.0)]]
    given_curves = {"es": seeds, "none": [[(0, 9.0), (100, 8.9)]]} if curves is None else curves
    return Panel("Best so far", "model calls", "objective", given_curves, **changes)


def lines(axes):
    """(colour, width) of what is drawn, without reference lines."""
    return [(line.get_color(), line.get_linewidth()) for line in axes.lines if line.get_label() or line.get_alpha()]


def test_a_figure_is_the_same_bytes_every_time(tmp_path):
    first = save(comparison([panel(lines={"baseline": 7.0})], "Title"), tmp_path / "a")
    second = save(comparison([panel(lines={"baseline": 7.0})], "Title"), tmp_path / "b")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    assert [p.name for p in first] == ["a.svg", "a.png"]
    assert first[1].read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "a.svg", "b.png", "b.svg"]


def test_a_name_with_dots_keeps_them(tmp_path):
    assert [p.name for p in save(comparison([panel()]), tmp_path / "v1.2")] == ["v1.2.svg", "v1.2.png"]


def test_an_arm_has_the_same_colour_in_every_panel_and_seeds_are_thin():
    figure = comparison([panel(), panel({"none": [[(0, 1.0)]], "new": [[(0, 1.0), (1, 2.0)]]})])
    first, second = figure.axes
    assert lines(first) == [(COLOURS[0], 0.8), (COLOURS[0], 0.8), (COLOURS[0], 1.8), (COLOURS[1], 1.8)]
    assert lines(second) == [(COLOURS[1], 1.8), (COLOURS[2], 1.8)]


def test_panels_with_arms_of_their_own_begin_with_the_first_colour():
    figure = comparison([panel({"a": [[(0, 1.0)]]}), panel({"b": [[(0, 1.0)]]})], own=True)
    assert [lines(axes) for axes in figure.axes] == [[(COLOURS[0], 1.8)]] * 2


def test_panels_with_the_same_x_axis_show_the_same_stretch_of_it():
    other = Panel("Other", "generation", "", {"a": [[(3, 1.0)]]})
    figure = comparison([panel({"a": [[(0, 1.0), (10, 1.0)]]}), panel({"a": [[(5, 1.0), (20, 1.0)]]}), other])
    first, second, third = (axes.get_xlim() for axes in figure.axes)
    assert first == second == pytest.approx((-0.8, 20.8))
    assert third == (2.5, 3.5)


def test_a_legend_is_there_once_where_all_panels_have_the_same_arms():
    figure = comparison([panel(), panel()])
    assert len(figure.legends) == 1
    assert [axes.get_legend() for axes in figure.axes] == [None, None]


def test_the_mean_covers_only_where_every_seed_is():
    assert mean_curve([[(0, 0.0), (10, 10.0)], [(5, 0.0), (20, 15.0)]]) == [(5, 2.5), (10, 7.5)]
    assert mean_curve([[(0, 1.0), (1, 3.0)]]) == [(0, 1.0), (1, 3.0)]
    assert mean_curve([[(0, 1.0)], [(5, 1.0)]]) == []
    assert mean_curve([[], [(1, 2.0)], []]) == [(1, 2.0)]


def test_the_mean_of_steps_holds_what_each_seed_was_last():
    assert mean_curve([[(0, 8.0), (10, 4.0)], [(0, 6.0), (4, 2.0), (10, 2.0)]], steps=True) == [
        (0, 7.0), (4, 5.0), (10, 3.0),
    ]  # fmt: skip


def test_the_text_of_a_figure_says_where_curves_begin_and_end():
    assert describe([panel()]) == "Best so far: es from 8.75 to 7.5, none from 9 to 8.9."
    assert describe([panel({"a": [[]]}), panel({}), panel({"v": [[(0, 0.5)]]}, percent=True)]) == (
        "Best so far: a no data. Best so far: no data. Best so far: v 50 %."
    )
    assert describe([]) == "Nothing to plot yet."


def test_an_inlined_figure_has_a_title_a_description_and_ids_of_its_own():
    one, two = svg_text(comparison([panel()], "One")), svg_text(comparison([panel()], "Two"))
    ids = [{e.get("id") for e in ElementTree.fromstring(text).iter() if e.get("id")} for text in (one, two)]
    assert not ids[0] & ids[1]
    root = ElementTree.fromstring(one)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text == "One"
    assert "es from 8.75 to 7.5" in root.find(f"{SVG}desc").text
    named = root.get("aria-labelledby").split()
    assert named == [root.find(f"{SVG}title").get("id"), root.find(f"{SVG}desc").get("id")]
    assert not one.startswith("<?xml")
    assert "<text" not in one  # outlines: the same without the font
    assert "DOCTYPE" not in one


def test_every_reference_inside_an_inlined_figure_finds_its_target():
    root = ElementTree.fromstring(svg_text(comparison([panel(lines={"baseline": 7.5})])))
    ids = {e.get("id") for e in root.iter()}
    links = [e.get("{http://www.w3.org/1999/xlink}href") for e in root.iter(f"{SVG}use")]
    clips = [e.get("clip-path") for e in root.iter() if e.get("clip-path")]
    assert links
    assert clips
    assert {link.removeprefix("#") for link in links} <= ids
    assert {clip.removeprefix("url(#").removesuffix(")") for clip in clips} <= ids


@pytest.mark.parametrize(
    "name", ["$x$ and $\\frac", "<script>alert(1)</script>", "a\x00b\x1b[0m", "日本語", "\ud800", "--> -- -", "x" * 500]
)
def test_a_name_may_be_anything(name, tmp_path):
    svg, _ = save(comparison([panel({name: [[(0, 1.0), (1, 2.0)]]}, lines={name: 1.5})], name), tmp_path / "a")
    text = svg.read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).find(f"{SVG}title").text
    assert "<script" not in text


@pytest.fixture
def no_other_fonts(monkeypatch):
    monkeypatch.setattr("coevo.report.lettering._at_hand", list)


def drawn_texts(figure):
    texts = [figure.get_suptitle(), *(text.get_text() for text in figure.axes[0].texts)]
    return [*texts, figure.axes[0].get_title(loc="left"), *(line.get_label() for line in figure.axes[0].lines)]


def test_letters_that_no_font_has_are_numbers_with_a_legend(no_other_fonts):
    curves = {"日本語+es": [[(0, 1.0), (1, 2.0)]], "日本": [[(0, 1.0), (1, 2.0)]], "[1]": [[(0, 1.0)]]}
    figure = comparison([Panel("日本: best", "calls", "", curves, {"基準": 1.5})], "研究")
    assert [text for text in drawn_texts(figure) if not text.startswith("_")] == [
        "[2]", "[5] 1.5", "[3]: best", "[4]+es", "[3]", "[1]"
    ]  # fmt: skip
    said = "No font at hand has the letters of some names: [2] is 研究, [3] is 日本, [4] is 日本語, [5] is 基準."
    assert legend(figure) == said
    root = ElementTree.fromstring(svg_text(figure))
    assert root.find(f"{SVG}desc").text.endswith(said)
    assert "日本語+es from 1 to 2" in root.find(f"{SVG}desc").text


def test_letters_that_another_font_has_are_drawn_by_it():
    # Of the fonts that come with matplotlib only another than the usual one has this letter.
    figure = comparison([panel({"\u2312": [[(0, 1.0), (1, 2.0)]]})], "\u2312")
    assert figure.get_suptitle() == "\u2312"
    assert legend(figure) == ""
    assert svg_text(figure).startswith("<svg")


def test_names_that_can_be_drawn_need_no_legend():
    assert legend(comparison([panel()], "Größe α → β")) == ""


def test_a_curve_that_is_drawn_first_shows_its_markers_around_those_above():
    curves = {name: [[(0, 1.0), (1, 2.0)]] for name in "abcdefgh"}
    sizes = [line.get_markersize() for line in comparison([panel(curves)]).axes[0].lines]
    assert sizes == sorted(set(sizes), reverse=True)
    assert (len(sizes), sizes[-1]) == (8, 3.8)
    assert sizes[0] < 10.0


@pytest.mark.parametrize(
    "values",
    [
        [], [math.nan], [1.0, math.inf, 2.0], [1e308, -1e308], [1e99, -1e99], [0.0, 0.0], [5.7047], [1e-300, 1.0],
        [-1e-12, 1e-12], [0.001, 7.0, 1e9],
    ],
)  # fmt: skip
@pytest.mark.parametrize("look", [{}, {"percent": True}, {"wide": True}, {"steps": True, "span": 0.1}])
def test_values_may_be_anything(values, look):
    figure = comparison([panel({"a": [list(enumerate(values))]}, **look, lines={"b": math.nan, "c": 1e300})])
    assert svg_text(figure).startswith("<svg")


def test_a_wide_range_has_a_logarithmic_axis_if_that_is_asked_for():
    curves = {"a": [[(0, 7.0), (1, 9000.0)]]}
    scales = [comparison([panel(curves, wide=wide)]).axes[0].get_yscale() for wide in (True, False)]
    assert scales == ["log", "linear"]


def test_noise_does_not_fill_an_axis_of_shares():
    figure = comparison([panel({"a": [[(0, 0.500), (1, 0.501)]]}, percent=True, span=0.1)])
    low, high = figure.axes[0].get_ylim()
    assert high - low > 0.1


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.floats(0.0, 1.0)), max_size=4), max_size=3))
def test_a_mean_lies_between_its_seeds(seeds):
    values = [y for seed in seeds for _, y in seed]
    assert all(min(values) - 1e-9 <= y <= max(values) + 1e-9 for _, y in mean_curve(seeds))


QUIET = """
import sys
from coevo.report.plots import Panel, comparison, svg_text
svg_text(comparison([Panel("t", "x", "y", {"a": [[(0, 1.0), (1, 2.0)]]})]))
assert "matplotlib.pyplot" not in sys.modules
assert "matplotlib" in sys.modules
"""


def test_nothing_is_said_where_the_home_cannot_be_written_and_the_users_settings_are_wrong(tmp_path):
    (tmp_path / "matplotlibrc").write_text("font.size: 40\nsvg.fonttype: none\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MPL", "XDG"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", QUIET],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=kept | {"HOME": "/dev/null/none"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
