"""What comes from elsewhere is shown and does not act."""

import io
import sys
import unicodedata

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from coevo.text import PrintableStream, is_terminal, print_safely, printable, printing_safely

HOSTILE = "\x1b[2J\x1b]0;mine\x07\x00\x08\x7f\x9b31m\u202e\u2066\u2069\u200f\u2028\ufeff\U000e0041\ud800"
JOINED = "می\u200cخواهم, 👩\u200d🚀, naïve, 東京\u3000都, 10\u202f000"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def acts(letter: str) -> bool:
    """Whether Unicode calls it a control, a format, half a surrogate pair or an end of a line that is not ours."""
    return unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") and letter not in "\n\t\u200c\u200d"


def test_what_acts_on_a_terminal_is_shown_as_an_escape() -> None:
    shown = printable(f"a{HOSTILE}b")
    assert shown == (
        "a\\x1b[2J\\x1b]0;mine\\x07\\x00\\x08\\x7f\\x9b31m\\u202e\\u2066\\u2069\\u200f\\u2028\\ufeff\\U000e0041\\ud800b"
    )
    assert shown.isascii()


def test_every_control_character_and_every_mark_of_direction_is_escaped() -> None:
    every = [chr(code) for code in range(sys.maxunicode + 1)]
    directions = [letter for letter in every if unicodedata.bidirectional(letter) in
                  ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")]  # fmt: skip
    controls = [letter for letter in every if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")]
    assert len(directions) == 9
    left = {letter for letter in [*directions, *controls] if printable(letter) == letter}
    assert left == {"\n", "\t"}


def test_what_people_write_is_left_as_it_is() -> None:
    assert printable(JOINED) == JOINED
    assert printable("a\tb\nc\r\nd") == "a\tb\nc\r\nd"


def test_a_carriage_return_within_a_text_cannot_paint_over_what_was_said() -> None:
    assert printable("refused\rok     ") == "refused\\rok     "


@given(st.text())
def test_a_text_that_was_made_printable_stays_as_it_is_and_loses_no_letter(text: str) -> None:
    shown = printable(text)
    assert printable(shown) == shown
    assert all(letter in shown for letter in text if not acts(letter) and letter != "\r")


def test_what_is_printed_is_printable_wherever_it_is_printed_from(capsys) -> None:
    with printing_safely():
        print(HOSTILE)
        print("a", HOSTILE, file=sys.stderr)
        typer.echo("\x07\u202e")
        sys.stdout.writelines(["\rhalf done", HOSTILE])
    print("\x1b", end="")
    out, err = capsys.readouterr()
    safe = printable(HOSTILE)
    assert out == f"{safe}\n\\x07\\u202e\n\rhalf done{safe}\x1b"
    assert err == f"a {safe}\n"


def test_libraries_leave_out_colours_that_would_not_get_through(monkeypatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    with printing_safely():
        assert not sys.stdout.isatty()
        assert is_terminal(sys.stdout)
        typer.secho("red", fg="red")
    assert terminal.getvalue() == "red\n"
    assert is_terminal(terminal)
    assert not is_terminal(io.StringIO())


def test_a_console_of_rich_keeps_its_own_colours(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    with printing_safely():
        Console().print("[red]red[/red]")
    assert terminal.getvalue() == "\x1b[31mred\x1b[0m\n"


def test_a_process_without_standard_output_prints_nothing_and_goes_on(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    before = print_safely()
    try:
        assert sys.stdout is None
        print("nowhere")
        assert isinstance(sys.stderr, PrintableStream)
    finally:
        sys.stdout, sys.stderr = before
    assert not isinstance(sys.stderr, PrintableStream)


@pytest.mark.parametrize("name", ["encoding", "errors", "buffer", "flush", "fileno"])
def test_all_else_is_the_streams_own(name: str) -> None:
    below = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    assert getattr(PrintableStream(below), name) == getattr(below, name)
