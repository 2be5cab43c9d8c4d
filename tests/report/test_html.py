"""A page: every kind of block, everything escaped, nothing fetched."""

import re
from html import escape
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from report_kit import EVIL, read

from coevo.report.html import Code, Facts, Fold, Note, Picture, Section, Table, Tiles, page
from coevo.report.plots import Panel, comparison, svg_text

ROOT = Path(__file__).parents[2]


def every_block(text):
    return [
        Facts([(text, text)]), Tiles([(text, text, text)]), Table(text, [text], [[text]], words=[text]),
        Code(text, text), Note(text, "bad"), Fold(text, [Note(text)]),
    ]  # fmt: skip


def test_nothing_of_a_run_becomes_markup():
    plain = read(page("t", [Section("s", every_block("plain"))], subtitle="u", badge="b"))
    evil = read(page(EVIL, [Section(EVIL, every_block(EVIL))], subtitle=EVIL, badge=EVIL))
    assert [tag for tag, _ in evil.tags] == [tag for tag, _ in plain.tags]
    assert evil.text.count("alert(1)") > 10
    assert "{{ 7 * 7 }}" in evil.text


def test_nothing_of_a_run_acts_on_a_terminal_or_turns_a_line_round():
    acts = "a\x1b[2Jb\u202ec"
    text = page(acts, [Section(acts, every_block(acts))], subtitle=acts, badge=acts)
    assert not set("\x1b\u202e") & set(text)
    assert text.count(r"a\x1b[2Jb\u202ec") > 10


def test_a_code_is_shown_as_it_is():
    code = "\n\n  def f():\n\treturn '<b>'\n"
    text = page("t", [Section("s", [Code("f.py", code)])])
    assert f"<code>{escape(code).replace('&#x27;', '&#39;')}</code></pre>" in text


def test_a_figure_is_inlined_and_captioned():
    svg = svg_text(comparison([Panel("t", "x", "y", {"a": [[(0, 1.0)]]})]))
    text = page("t", [Section("s", [Picture(svg, "what it shows")])])
    assert svg in text
    assert "<figcaption>what it shows</figcaption>" in text


def test_a_page_fetches_nothing_and_runs_nothing():
    text = page("t", [Section("s", every_block("plain"))])
    tags = read(text).tags
    assert not {tag for tag, _ in tags} & {"script", "link", "img", "iframe", "object", "base"}
    assert not [attributes for _, attributes in tags if {"src", "onload", "onclick"} & set(attributes)]
    assert not re.search(r"@import|url\(", text)
    policy = next(a["content"] for t, a in tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_headings_and_tables_are_named_for_those_who_listen():
    tags = read(page("t", [Section("s", [Table("what", ["a"], [["1"]])]), Section("empty", [])])).tags
    assert [tag for tag, _ in tags if re.fullmatch("h[1-6]", tag)] == ["h1", "h2"]
    assert next(a for tag, a in tags if tag == "html") == {"lang": "en"}
    assert [a["scope"] for tag, a in tags if tag == "th"] == ["col"]
    assert next(a for _, a in tags if a.get("role") == "region")["aria-label"] == "what"
    names = [a["id"] for _, a in tags if "id" in a]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("builder", [WheelBuilder, SdistBuilder])
def test_the_template_is_part_of_every_distribution(builder):
    files = {file.relative_path for file in builder(str(ROOT)).recurse_included_files()}
    assert "coevo/report/report.html.j2" in files
