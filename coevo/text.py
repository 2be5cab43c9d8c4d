"""Text from elsewhere, as it may be shown: a server, a model, a plugin or a name may hold what acts on a terminal.

Control characters move the cursor, paint over what was said, set a window's title or fill the clipboard; marks of
direction make a line read as something else. They are shown as escapes. `printing_safely` does that to all that a
process prints, so that no place which prints can forget it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, TextIO, cast

# Left as they are: line ends and tabs, and the joiners that Persian, Indian scripts and emoji are written with.
_ACTS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]|\r(?!\n)"
)


def printable(text: str) -> str:
    r"""`text` with what acts on a terminal, or cannot be seen, as escapes such as `\x1b`; line ends and tabs stay."""
    return _ACTS.sub(lambda found: repr(found[0])[1:-1], text)


class PrintableStream:
    """A text stream whose texts are made printable on their way to another.

    It calls itself no terminal, so that libraries which colour what they write leave that out. Consoles of rich have
    their own way to what is below: their colours are their own, and what they show is the business of who made them.

    Attributes:
        stream: where it goes.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write what is printable; the carriage return that a progress bar begins with stays."""
        kept = len(text) - len(text.lstrip("\r"))
        self.stream.write(text[:kept] + printable(text[kept:]))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def isatty(self) -> bool:
        """Never: what colours a terminal would not get through."""
        return False

    @property
    def rich_proxied_file(self) -> TextIO:
        """Where rich writes, below whatever streams of ours and of rich lie upon one another."""
        file = self.stream
        while (below := getattr(file, "rich_proxied_file", None)) is not None:
            file = cast(TextIO, below)
        return file

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def is_terminal(stream: TextIO) -> bool:
    """Whether somebody reads along where a stream leads to."""
    return cast(TextIO, getattr(stream, "stream", stream)).isatty()


def print_safely() -> tuple[TextIO, TextIO]:
    """Make standard output and standard error printable from now on; returns what they were."""
    before = sys.stdout, sys.stderr
    # A process may have been started without one of them.
    sys.stdout, sys.stderr = (cast(TextIO, PrintableStream(stream)) if stream else stream for stream in before)
    return before


@contextmanager
def printing_safely() -> Generator[None]:
    """Make standard output and standard error printable for the length of a block."""
    before = print_safely()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
