"""The texts of EoH's operators, rendered from a task's brief and the parents.

The task comes first and is the same in every prompt, so that engines can share the prefix. Two families:

- *expression*: for models that follow no instruction but imitate what they see, so operators differ in which
  lines are shown and in one sentence. Measured on SmolLM2-135M (24 to 32 answers each): a fifth to a half of the
  valid answers are new, whatever the sentence says. Numbers are imitated too: an objective in front of each
  line took the valid rate from .67 and .88 to .38 and .67. Behind the line, as a comment, it does no harm (96
  answers an operator, without and with: e1 .70 .69, e2 .71 .75, m1 .83 .91, m2 .71 .80 valid), because the
  task's stop strings end an answer at `#`.
- *function*: thought and code, as in EoH (arXiv 2401.02051); the wording is ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from coevo import Brief
from coevo_eoh.failures import Broken
from coevo_eoh.population import Heuristic

Parents = Sequence[Heuristic]

_LINE = {
    "e1": "Write one new line that is different from all of these.",
    "e2": "Write one new line that combines these.",
    "m1": "Write one new line that changes a part of the last one.",
    "m2": "Write this line again with other numbers.",
    "m3": "Write this line again in a simpler form.",
}

_FUNCTION = {
    "e1": "Design an algorithm that works on a different principle from {all}. Do not vary what is shown.",
    "e2": "Find the idea that {all} share or that makes {them} work. Design an algorithm that keeps this "
    "idea and differs in everything else.",
    "m1": "Improve this algorithm: change one of its mechanisms or add a new one.",
    "m2": "Keep the structure of this algorithm. Find the numbers that decide how it behaves, and choose better ones.",
    "m3": "Some parts of this algorithm may suit only the instances on which it was tried. Find them, and leave them "
    "out or put something simpler in their place, so that it does well on other instances too. Keep the signature.",
}

_FORM = (
    "First state your idea in one sentence within braces, {like this}. Then give the complete function in one "
    "Python code block, with the imports that it needs. Write nothing else."
)

OPERATORS = tuple(_LINE)
"""Operators that need parents."""


def render(
    brief: Brief, operator: str, parents: Parents, show_objectives: bool = True, failures: Sequence[str] = ()
) -> str:
    """The whole user message of `operator`.

    Args:
        brief: of a task with an `expression` or a `function` hole.
        operator: one of `OPERATORS`.
        parents: at least one, best first.
        show_objectives: whether the model sees how good each parent is.
        failures: what was wrong with earlier answers, a line each. Not the answers: a small model would imitate them.
    """
    family = _expression if brief.hole == "expression" else _function
    return family(brief, operator, parents, show_objectives, _failures(failures))


def render_repair(brief: Brief, broken: Broken) -> str:
    """The whole user message that gives an invalid answer back, with what is wrong with it."""
    if brief.hole == "expression":
        parts = [
            *_expression_task(brief),
            f"{_begin(brief)}\nThis line fails:\n{_line(brief, broken.answer)}\nThe reason: {broken.reason}",
            "Write the line again so that it works. Answer with the line only.",
        ]
    else:
        fence = "````" if "```" in broken.answer else "```"
        parts = [
            *_function_task(brief),
            f"This answer was given, and it fails:\n{fence}python\n{broken.answer}\n{fence}",
            f"The reason: {broken.reason}",
            "Find the cause and mend it. Keep the idea of the algorithm.",
            _FORM,
        ]
    return _joined(parts)


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part)


def _failures(reasons: Sequence[str]) -> str:
    listed = "\n".join(f"- {reason}" for reason in reasons)
    return f"Answers before yours failed, for these reasons:\n{listed}" if reasons else ""


def _expression_task(brief: Brief) -> list[str]:
    names = f"You may use these names:\n{_arguments(brief)}" if brief.arguments else ""
    return [brief.description.strip(), names]


def _begin(brief: Brief) -> str:
    return f"Write one line of Python that begins with {brief.prefill.strip()!r}."


def _function_task(brief: Brief) -> list[str]:
    return [
        brief.description.strip(),
        f"Write a Python function with exactly this signature:\n```python\n{brief.signature.strip()}\n```",
        f"Arguments:\n{_arguments(brief)}" if brief.arguments else "",
    ]


def _arguments(brief: Brief) -> str:
    return "\n".join(f"- {name}: {meaning}" for name, meaning in brief.arguments)


def _better(brief: Brief) -> str:
    return "smaller" if brief.direction == "minimize" else "larger"


def _expression(brief: Brief, operator: str, parents: Parents, show_objectives: bool, failures: str) -> str:
    # Best last: a small model copies most from what it read last.
    own = [_line(brief, parent.answer) for parent in reversed(parents)]
    # A lone line invites a copy; the task's examples show m1 what else a line can be made of.
    forms = [_line(brief, example) for example in brief.examples] if operator == "m1" else []
    shown = [
        f"{line}  # {parent.objective:.4g}" if show_objectives else line
        for line, parent in zip(own, reversed(parents), strict=True)
    ]
    lines = [*(line for line in forms if line not in own), *shown]
    heading = "Examples of such lines" if len(lines) > 1 else "Example of such a line"
    if show_objectives:
        heading += f", with the objective that was reached ({_better(brief)} is better)"
    parts = [
        *_expression_task(brief),
        "\n".join([_begin(brief), f"{heading}:", *lines]),
        failures,
        f"{_LINE[operator]} Answer with the line only.",
    ]
    return _joined(parts)


def _line(brief: Brief, answer: str) -> str:
    start = brief.prefill.strip()
    return answer if not start or answer.startswith(start) else f"{start} {answer}"


def _function(brief: Brief, operator: str, parents: Parents, show_objectives: bool, failures: str) -> str:
    many = len(parents) > 1
    words = {"all": "all of these" if many else "this one", "them": "them" if many else "it"}
    shown = [_algorithm(i, p, many, show_objectives) for i, p in enumerate(parents, 1)]
    order = f" ({_better(brief)} objectives are better)" if show_objectives else ""
    heading = f"{'Algorithms' if many else 'An algorithm'} tried so far{order}:"
    parts = [*_function_task(brief), heading, *shown, failures, _FUNCTION[operator].format(**words), _FORM]
    return _joined(parts)


def _algorithm(number: int, parent: Heuristic, many: bool, show_objectives: bool) -> str:
    title = f"Algorithm {number}" if many else "Algorithm"
    score = f", objective {parent.objective:.6g}" if show_objectives else ""
    idea = f"\n{{{parent.thought}}}" if parent.thought else ""
    return f"{title}{score}:{idea}\n```python\n{parent.answer.strip()}\n```"
