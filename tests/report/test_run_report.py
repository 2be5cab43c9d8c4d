"""The report of a run in every state that a run can be in."""

import re

import pytest
from report_kit import EVIL, INFO, Author, read, rich_run

from coevo.errors import CheckFailedError, UserError
from coevo.report import run_report
from coevo.report.curves import groups
from coevo.report.numbers import ABSENT, number, objective, percent
from coevo.report.run_facts import learning
from coevo.runs.journal import Journal
from coevo.runs.yardstick import Judge, points

BARE = {"task": {"title": "t", "direction": "maximize", "reference": None, "baseline": None}}


def report(folder):
    """The words of a run's report, white space collapsed."""
    return words(run_report.write(folder))


def words(written):
    text = written.html.read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", read(text[text.index("</style>") :]).text)


def titles(folder, info=INFO):
    lines = [line for line in folder.journal.lines() if line["kind"] in ("batch", "probe")]
    return [panel.title for group in groups(*points(lines, Judge.of(info)), info["task"]) for panel in group.panels]


def test_a_rich_run_is_told_whole(written):
    text = words(written)
    for expected in (
        "Run rich finished", "Task tsp_construct, param es, context eoh, model smollm2-135m",
        "to optimum (5.7047); beats nearest_neighbour (7.00437)", "231 zero update besides",
        "select_next_node", "all credits are equal", "16 in 2 tensors", "[es] population = 4", "b" * 64, "numpy2.4.6",
    ):  # fmt: skip
        assert expected in text
    assert "Is it learning? the centre gets better" in text


def test_the_curves_of_a_rich_run_are_all_there(rich):
    assert titles(rich) == [
        "Probe: score", "Probe: share of the answers", "Best so far", "Objective of the valid answers of a batch",
        "Valid answers of a batch", "Answers of a batch better than nearest_neighbour", "Size of perturbation and step",
        "Weights that a perturbation moves", "Members that are informative", "Variance between members over within",
        "Update that reaches the served weights",
    ]  # fmt: skip


def test_a_report_is_the_same_bytes_every_time_and_leaves_three_files(rich, written):
    files = (written.html, written.svg, written.png)
    assert files == tuple(rich.path / name for name in ("report.html", "curves.svg", "curves.png"))
    before, names = [path.read_bytes() for path in files], sorted(path.name for path in rich.path.iterdir())
    again = run_report.write(rich)
    assert again == written
    assert [path.read_bytes() for path in files] == before
    assert sorted(path.name for path in rich.path.iterdir()) == names
    assert not [name for name in names if name.endswith(".new")]


def test_a_run_that_has_not_begun_has_a_report(tmp_path):
    folder = Author(tmp_path / "empty", info=None).folder
    text = report(folder)
    assert "No batch was committed yet" in text
    assert "Go on with: coevo resume" in text
    assert "not loaded yet" in text
    assert (folder.path / "curves.svg").read_text(encoding="utf-8").count("Nothing to plot yet") == 1


def test_a_run_with_neither_baseline_nor_probes_nor_es_shows_what_it_has(tmp_path):
    author = Author(tmp_path / "poor", {"param": "none"}, info=BARE)
    author.batch(0, 0, "i1", [9.0, 8.0], {"syntax": 2})
    assert titles(author.folder, BARE) == [
        "Best so far", "Objective of the valid answers of a batch", "Valid answers of a batch",
    ]  # fmt: skip
    text = report(author.folder)
    assert "maximize; reference none; baseline none" in text
    assert "The run was interrupted" in text
    assert "Probes" not in text


def test_probes_without_a_baseline_show_their_mean_objective(tmp_path):
    author = Author(tmp_path / "a", info=BARE)
    author.probe(0, [3.0, 4.0], {"syntax": 1})
    assert titles(author.folder, BARE) == ["Probe: share of the answers", "Probe: mean objective"]
    assert "No batch was committed yet" in report(author.folder)


def test_a_run_without_a_valid_answer_says_so(tmp_path):
    author = Author(tmp_path / "bad")
    author.batch(0, 0, "i1", [], {"syntax": 5})
    text = report(author.finish("failed", "the engine <b>hiccuped</b>"))
    assert "No valid answer was found." in text
    assert "The run failed: the engine <b>hiccuped</b>. Go on with: coevo resume" in text
    assert "Best answer" not in text


def test_a_run_that_is_going_says_so(tmp_path):
    author = Author(tmp_path / "going")
    author.batch(0, 0, "i1", [7.0], {})
    with author.folder.lock():
        assert "The run is going on. This page shows what was committed" in report(author.folder)


def test_what_a_model_wrote_never_becomes_markup(tmp_path):
    info = {**INFO, "task": {**INFO["task"], "reference": [EVIL, 5.7], "baseline": [EVIL, 7.0]}, "python": EVIL}
    texts = []
    for name, word, about in (("plain", "plain", INFO), ("evil", EVIL, info)):
        config = {"task": word, "model": word, "context": word}
        folder = rich_run(tmp_path / name, 2, operators=(word, "m1"), code=word, config=config, info=about)
        written = run_report.write(folder)
        assert "<script" not in written.svg.read_text(encoding="utf-8")
        text = written.html.read_text(encoding="utf-8")
        texts.append([tag for tag, _ in read(re.sub(r"<svg.*?</svg>", "<svg>", text, flags=re.DOTALL)).tags])
        assert text.count("<svg") == 3
    assert texts[0] == texts[1]


def test_more_operators_than_colours_are_one_curve(tmp_path):
    author = Author(tmp_path / "many")
    for b in range(9):
        author.batch(0, b, f"o{b}", [7.0], {"syntax": 1})
    lines = list(author.folder.journal.lines())[1:]
    search = groups(*points(lines, Judge.of(INFO)), INFO["task"])[0]
    assert list(search.panels[2].curves) == ["all"]
    assert len(search.panels[2].curves["all"][0]) == 9


def test_values_that_no_axis_holds_do_no_harm(tmp_path):
    author = Author(tmp_path / "wild", info=BARE)
    author.batch(0, 0, "i1", [1e308, -1e308, 0.0], {}, {"sigma": 0.0, "moved": None, "variance_ratio": 1e300})
    author.batch(1, 0, "", [], {})
    assert "1e+308" in report(author.folder)


def test_the_verdict_and_its_numbers_are_shown_where_the_summary_has_them():
    said = {
        "verdict": "ES moves nothing.",
        "probe": {"first": 0.5, "last": None},
        "steps": 3,
        "sure": False,
        "all": [{}],
    }
    note, fold = learning({"learning": said})
    assert note.text == "ES moves nothing."
    assert fold.blocks[0].rows == [("probe first", "0.5"), ("steps", "3"), ("sure", "no")]
    assert learning({}) == learning({"learning": {"verdict": "", "steps": 0}}) == []


def test_a_report_elsewhere_names_its_curves_after_itself(rich, tmp_path):
    written = run_report.write(rich, tmp_path / "a.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-curves.png", "a-curves.svg", "a.html"]
    assert written.svg == tmp_path / "a-curves.svg"


@pytest.mark.parametrize(("out", "said"), [("", "which is a folder; give a file"), ("none/a.html", "No such file")])
def test_a_place_that_cannot_be_written_is_named(rich, tmp_path, out, said):
    with pytest.raises(UserError, match=said):
        run_report.write(rich, tmp_path / out)


def test_a_best_file_that_is_gone_is_no_obstacle(tmp_path):
    folder = rich_run(tmp_path / "gone", 1)
    (folder.path / "best" / "heuristic.py").unlink()
    assert "return min(unvisited)" in report(folder)
    (folder.path / "best" / "best.json").unlink()
    assert "cannot be read" in report(folder)


def test_a_torn_last_line_is_left_out_and_a_damaged_one_is_refused(tmp_path):
    author = Author(tmp_path / "torn")
    author.batch(0, 0, "i1", [7.0], {})
    path = author.folder.journal.path
    with path.open("a", encoding="utf-8") as file:
        file.write('{"kind": "ba')
    assert "7" in report(author.folder)
    path.write_text(path.read_text(encoding="utf-8").replace("nearest", "n").replace('"i1"', '"i2"'), encoding="utf-8")
    assert isinstance(author.folder.journal, Journal)
    with pytest.raises(CheckFailedError, match="differs from its checksum"):
        run_report.write(author.folder)


@pytest.mark.parametrize("value", [None, float("inf"), float("-inf"), float("nan")])
def test_a_value_that_is_no_number_is_written_as_one_that_is_absent(value):
    assert [write(value) for write in (number, objective, percent)] == [ABSENT] * 3
