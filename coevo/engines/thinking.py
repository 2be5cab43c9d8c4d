"""Thinking aloud: the marks that models put around it, and what they say outside of it.

One table for all who need it: parsers of answers, engines that decode, and prompts that begin the assistant's turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Marks:
    """One way to mark thinking; the three patterns are regular expressions without groups.

    Attributes:
        opening: what begins it.
        closing: what ends it, once it has begun.
        lone: what ends it where nothing began it, because the chat template did.
        end: what is written to end it; "" where the opening mark says it, as `<think>` does.
        tokens: tokens that make up the marks where those are several; the first tells that a model has such marks.
    """

    opening: str
    closing: str
    lone: str
    end: str = ""
    tokens: tuple[str, ...] = ()


def _tag(name: str) -> Marks:
    closing = rf"(?i:</\s*{name}\s*>)"
    return Marks(rf"(?i:<{name}\s*>)", closing, closing)


def _pair(opening: str, closing: str, before: str = "", answer: str = "") -> Marks:
    """Marks by their text; `answer` is one that begins the answer after them, and ends thinking even without them."""
    end = re.escape(closing) + (rf"(?:\s*{re.escape(answer)})?|{re.escape(answer)}" if answer else "")
    return Marks(before + re.escape(opening), end, end, closing)


_FINAL = r"(?:<\|start\|>assistant\s*)?<\|channel\|>\s*final\b[^<]{0,200}(?:<\|constrain\|>[^<]{0,200})?<\|message\|>"

MARKS: tuple[Marks, ...] = (
    _tag(r"(?:\w+[:_])?think(?:ing)?"),  # Qwen, DeepSeek, GLM, Nemotron, Kimi; with a prefix Seed-OSS, LongCat
    _tag(r"thoughts?"),  # EXAONE
    _tag(r"reasoning"),
    _tag(r"reflection"),
    _tag(r"scratch_?pad"),
    _tag(r"(?:analysis|planning|(?:inner_)?monologue)"),
    # A block of code that says that it is none. Nothing else would end what a template began like that.
    Marks(
        r"(?<!`)`{3,}+[ \t]*(?i:think(?:ing)?|thoughts?|reasoning|scratch_?pad)[ \t]*\n",
        r"(?m:^)[ \t]*`{3,}+[ \t]*(?m:$)",
        r"(?!)",
        "```",
    ),
    # Magistral. Not an index that is called so.
    _pair("[THINK]", "[/THINK]", before=r"(?<![\w\])])"),
    _pair("◁think▷", "◁/think▷"),  # Kimi-VL
    _pair("<|begin_of_thought|>", "<|end_of_thought|>", answer="<|begin_of_solution|>"),  # OpenThinker, Sky-T1
    _pair("<|START_THINKING|>", "<|END_THINKING|>", answer="<|START_RESPONSE|>"),  # Command A
    _pair("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    Marks(  # Gemma 4
        r"<\|channel>thought\b", r"<channel\|>", r"<channel\|>", "<channel|>", ("<|channel>", "<channel|>")
    ),
    Marks(  # gpt-oss (Harmony): what is not in the channel `final` is no answer
        r"(?:<\|start\|>assistant\s*)?<\|channel\|>\s*(?:analysis|commentary)\b[^<]{0,200}(?:<\|constrain\|>[^<]{0,200})?<\|message\|>",
        rf"<\|end\|>|<\|call\|>|{_FINAL}",
        # A server that leaves special tokens out leaves the words between them; "analysis" may be the template's.
        rf"{_FINAL}|\Aanalysis(?=\S)(?s:.*?)assistantfinal|(?<!_)assistantfinal(?![ \t]*[=.(\[])",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
        ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|constrain|>"),
    ),
)

# In a string or a comment of Python a mark is text. A string over several lines ends before a line that begins with it;
# prose has its own quotes and hashes, and within thinking only a string on one line hides a closing mark.
_STARTS_LINE = "|".join(part for marks in MARKS[:-1] for part in (marks.opening, marks.lone))
# An escaped quote begins a string that ends with another; were it as any other, each would cost 300 looks.
_STRING = (
    r"(?<![\w\\])[rbfuRBFU]{0,2}(?P<quote>[\"'])(?:\\.|(?!(?P=quote))[^\\\n]){0,300}+(?P=quote)(?!\w)"
    r"|\\(?P<escaped>[\"'])[^\"'\\\n]{0,300}+\\(?P=escaped)"
)
_LONG_STRING = rf"(?P<quotes>\"\"\"|''')(?:(?!(?m:^)[ \t]*(?:{_STARTS_LINE}))[\s\S])*?(?P=quotes)"
_COMMENT = r"(?m:^|(?<=\s))\#[ \t][^\n]*"
_MARK = "|".join(f"(?P<opening{i}>{marks.opening})|(?P<lone{i}>{marks.lone})" for i, marks in enumerate(MARKS))
_OUTSIDE = re.compile("|".join([_LONG_STRING, _STRING, _COMMENT, _MARK]))
_INSIDE = [re.compile(f"{_STRING}|(?P<closing>{marks.closing})") for marks in MARKS]
_ANY = re.compile(_MARK)
# Around an answer: what ends a turn, which a server should leave out, and what says that this is the answer.
_TURN = r"<\|(?!channel\|)\w+\|>|<｜[\w▁]+｜>|</s>|<end_of_turn>"
_WORD = r"(?:final_)?answer|solution|response|output"
_LEADING = re.compile(rf"\A\s*(?:(?:<\|begin_of_solution\|>|<\|START_RESPONSE\|>|(?i:<(?:{_WORD})>))\s*)+")
_TRAILING = re.compile(rf"(?:{_TURN}|(?i:</(?:{_WORD})>))\Z")
_LONGEST_MARK, _MOST_MARKS = 100, 8
_OPEN_AT_END = re.compile("|".join(rf"(?P<opening{i}>{marks.opening})\s*\Z" for i, marks in enumerate(MARKS)))


class Said(NamedTuple):
    """What a model said outside of its thinking, and whether its thinking never ended."""

    answer: str
    unfinished: bool


def said(text: str) -> Said:
    """Take the thinking out of a completion.

    Thinking that never ends takes the rest of the text with it, and a closing mark without an opening one all that
    came before it. Marks in strings and comments of Python are text. Marks around the answer are no part of it.
    """
    kept: list[str] = []
    start = at = 0
    while found := _OUTSIDE.search(text, at):
        at = found.end()
        kind = found.lastgroup or ""
        if kind.startswith("lone"):
            kept, start = [], at
        elif kind.startswith("opening"):
            kept.append(text[start : found.start()])
            inside = _INSIDE[_index(kind)].finditer(text, at)
            end = next((each.end() for each in inside if each.lastgroup == "closing"), None)
            if end is None:
                return Said("".join(kept), True)
            start = at = end
    return Said(_bare("".join([*kept, text[start:]])), False)


def _bare(text: str) -> str:
    """An answer without the marks around it."""
    text = _LEADING.sub("", text)
    for _ in range(_MOST_MARKS):
        end = len(text.rstrip())
        found = _TRAILING.search(text, max(end - _LONGEST_MARK, 0), end)
        if found is None:
            break
        text = text[: found.start()].rstrip()
    return text


def opened(text: str) -> str:
    """The opening mark that `text` ends with, and the whitespace after it; empty where it ends with none."""
    found = _OPEN_AT_END.search(text)
    return found[0] if found else ""


def begins(text: str) -> bool:
    """Whether `text` begins with an opening mark."""
    found = _ANY.match(text.lstrip())
    return found is not None and (found.lastgroup or "").startswith("opening")


def closed(text: str) -> str:
    """`text` with the thinking ended that it opens at its end; on a line of its own where the opening mark has one."""
    found = _OPEN_AT_END.search(text)
    if found is None:
        return text
    marks = MARKS[_index(found.lastgroup or "")]
    end = marks.end or found[0].strip().replace("<", "</")
    return f"{text}\n{end}\n\n" if found[0].endswith("\n") else f"{text}{end}"


def mark_tokens(special: Iterable[str]) -> frozenset[str]:
    """Those of a tokenizer's special tokens that marks are made of: without them thinking reads as an answer."""
    all_of_them = frozenset(special)
    found = {token for token in all_of_them if _ANY.fullmatch(token)}
    for marks in MARKS:
        if marks.tokens and marks.tokens[0] in all_of_them:
            found |= all_of_them.intersection(marks.tokens)
    return frozenset(found)


def _index(group: str) -> int:
    return int(group.removeprefix("opening"))
