"""What the task says of itself, and the first prompt, both rendered from problem.toml.

The prompt for an expression is written for a 135M chat model: few lines, every name with its meaning, three
example lines. Such a model imitates the forms it sees, so the examples decide what it can find; none of them
may be better than the baseline, or the prompt would give the answer away.

The wording is measured (TSP, SmolLM2-135M, 128 samples at temperature 1): 65 % valid, 11 % better than nearest
neighbour. The same facts with a closing "Write another line that computes a better score": 29 % and 1 %.
"""

from __future__ import annotations

from coevo.interfaces import Brief, Reference
from coevo_heuristics.problem import HoleKind, HoleTable, Problem
from coevo_heuristics.rendering import Template

PROMPT = "prompt"
"""The context component that the task reads."""


def make_brief(problem: Problem, template: Template, references: bool = True) -> Brief:
    """The brief of a problem with one of its holes.

    Args:
        problem: what is solved.
        template: of the hole in use.
        references: False where the instances are not those that the known values belong to.
    """
    table = problem.table
    hole = table.holes[template.kind]
    expression = template.kind == "expression"
    return Brief(
        name=table.name,
        title=table.title,
        description=table.description.strip(),
        hole=template.kind,
        signature=hole.signature,
        arguments=hole.arguments,
        returns=hole.returns,
        examples=hole.examples,
        prefill=hole.signature if expression else "",
        # A comment is no part of an answer; prompts may carry a parent's objective in one.
        stop=("\n", "#") if expression else (),
        direction=table.direction,
        references=_references(problem) if references else (),
        failure="below",
        components={PROMPT: first_prompt(problem, template.kind)},
        max_new_tokens=problem.max_new_tokens(template.kind),
    )


def _references(problem: Problem) -> tuple[Reference, ...]:
    """All known values, also under the short name of a split; a baseline is one on every split."""
    listed = problem.table.references
    baselines = {r.name for r in listed if r.baseline}
    found: list[Reference] = []
    for split, actual in problem.splits.items():
        for r in listed:
            if r.split == split or (r.split == actual and not any(x.split == split for x in listed)):
                found.append(
                    Reference(
                        name=r.name,
                        split=split,
                        value=r.value,
                        method=r.method,
                        proved=r.proved,
                        baseline=r.name in baselines,
                    )
                )
    return tuple(found)


def first_prompt(problem: Problem, kind: HoleKind) -> str:
    """The prompt that asks for a heuristic from the description alone (EoH's i1)."""
    hole = problem.table.holes[kind]
    description = problem.table.description.strip()
    return _ask_expression(description, hole) if kind == "expression" else _ask_function(description, hole)


def _listed(hole: HoleTable) -> str:
    return "\n".join(f"- {name}: {meaning}" for name, meaning in hole.arguments)


def _ask_expression(description: str, hole: HoleTable) -> str:
    lines = [description, "", "You may use these names and numpy as np:", _listed(hole), ""]
    lines += [f"Write one line of Python that computes {hole.returns}."]
    if hole.examples:
        lines += ["Examples of such lines:", *(f"{hole.signature} {example}" for example in hole.examples)]
    lines += ["", "Write one new line that is different from the examples. Answer with the line only."]
    return "\n".join(lines)


def _ask_function(description: str, hole: HoleTable) -> str:
    return "\n".join(
        [
            description,
            "",
            "Invent a heuristic for this and write it as a Python function with exactly this signature:",
            "```python",
            hole.signature,
            "```",
            "Arguments:",
            _listed(hole),
            f"It returns {hole.returns}.",
            "",
            "First state the idea of your heuristic in one sentence within braces, {like this}. Then give the "
            "complete function in one Python code block, with the imports that it needs. Write nothing else: no "
            "example calls, no explanation.",
        ]
    )
