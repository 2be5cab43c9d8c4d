"""EoH as ask/tell over batches, variant *paper*: each operator makes N offspring, one after the other.

Evolution of Heuristics (arXiv 2401.02051), with the weights in the loop as in Agentic ESOpt (arXiv
2608.17310). Generation 0 begins by filling the population from the task's own prompt (`i1`).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias, cast

import numpy as np
from pydantic import Field

from coevo import Batch, Brief, Buffer, Context, Services
from coevo.buffer import with_credits
from coevo.records import Json
from coevo_eoh.credit import parent_data, tiered_credits
from coevo_eoh.population import Heuristic, draw_parents, spread, survivors
from coevo_eoh.prompts import OPERATORS, render

PARENTS = {"m1": 1, "m2": 1}
"""Operators with a fixed number of parents; `e1` and `e2` take the option."""

ADAPTING = ("m1", "m2")

Count: TypeAlias = Annotated[int, Field(ge=1, le=100_000)]


class EvolutionOfHeuristics:
    """A population of programs, improved by prompts that show some of them.

    A generation is one batch per operator; the population is managed after each, so `e2` already sees what
    `e1` found. An operator in `adapt` deals its prompts to the members of the parameter updater, whose
    credit is relative to the best parent shown. Without parents to show (nothing valid yet) an operator
    asks the task's own prompt instead and is labelled `m1/i1`.

    Args:
        services: seeds, place in the run, and how many answers an adapting batch needs.
        brief: the prompts are rendered from it.
        population: N, heuristics kept.
        operators: in order: `e1` (unlike its parents), `e2` (their common idea), `m1` (change one), `m2`
            (its numbers), `i1` (from scratch).
        adapt: operators whose batches train the weights; None: `m1` and `m2` (as far as they are used).
        parents: shown by `e1` and `e2`.
        offspring: answers per operator; None: N. An adapting batch is enlarged to give every member of
            the parameter updater its answers.
        show_objectives: whether prompts tell how good the parents are.
        shared_prompts: whether all members of an adapting batch are asked the same prompts, as many as each has
            answers: they are then compared by their weights and not by the parents that they happened to get. Without,
            every answer has a prompt of its own (Agentic ESOpt).
        initial_batches: tries, of N answers each, to fill the population with N distinct programs.

    Raises:
        ValueError: no program search, an unknown operator, or `adapt` names one that is not used.
    """

    def __init__(
        self,
        *,
        services: Services,
        brief: Brief,
        population: Count = 10,
        operators: tuple[str, ...] = ("e1", "e2", "m1", "m2"),
        adapt: tuple[str, ...] | None = None,
        parents: Count = 2,
        offspring: Annotated[int | None, Field(ge=1)] = None,
        show_objectives: bool = True,
        shared_prompts: bool = True,
        initial_batches: Count = 4,
    ) -> None:
        if brief.hole == "none":
            raise ValueError(
                f"task {brief.name!r} is no program search (its brief says hole 'none'); use --context none"
            )
        if "prompt" not in brief.components:
            raise ValueError(f"task {brief.name!r} gives no prompt: Brief.components needs the key 'prompt'")
        _check_names("operators", operators, ("i1", *OPERATORS))
        if not operators:
            raise ValueError("operators is empty; name at least one, such as 'e1'")
        if adapt is None:
            adapt = tuple(operator for operator in operators if operator in ADAPTING)
        _check_names("adapt", adapt, operators)
        self.adapting_batches = sum(operator in adapt for operator in operators)
        self._services, self._brief = services, brief
        self._size, self._offspring = population, offspring or population
        self._operators, self._adapt = operators, frozenset(adapt)
        self._parents, self._show_objectives = parents, show_objectives
        self._shared = shared_prompts
        self._initial_batches = initial_batches
        baseline = brief.baseline()
        sign = -1.0 if brief.direction == "minimize" else 1.0
        self._baseline = None if baseline is None else sign * baseline.value
        self._population: tuple[Heuristic, ...] = ()
        self._filling, self._filled = True, 0
        self._generation, self._position = -1, 0

    @property
    def population(self) -> tuple[Heuristic, ...]:
        """The heuristics kept, best first."""
        return self._population

    def ask(self) -> Batch | None:
        """The next operator's batch, None after the last. Asking twice gives the same batch."""
        if self._generation != self._services.generation:
            self._generation, self._position = self._services.generation, 0
        if self._filling:
            first = self._context("i1", ())
            return Batch((first,) * self._size, "zip", adapt=False, operator="i1")
        if self._position == len(self._operators):
            return None
        return self._offspring_batch(self._operators[self._position])

    def _offspring_batch(self, operator: str) -> Batch:
        adapts = operator in self._adapt
        count = self._offspring
        if adapts and (answers := self._services.batch_answers):
            if self._shared and count <= answers:
                count = self._services.member_answers
            else:
                count = -(-count // answers) * answers  # the same number for every member
        asked = operator if self._population else "i1"
        rng = np.random.default_rng(self._services.seed("parents"))
        shown = 0 if asked == "i1" else PARENTS.get(asked, self._parents)
        contexts = tuple(self._context(asked, draw_parents(rng, self._population, shown)) for _ in range(count))
        label = operator if asked == operator else f"{operator}/{asked}"
        return Batch(contexts, "zip", adapt=adapts, operator=label)

    def _context(self, operator: str, parents: tuple[Heuristic, ...]) -> Context:
        components = dict(self._brief.components)
        if parents:
            components["prompt"] = render(self._brief, operator, parents, self._show_objectives)
        ids = tuple(parent.id for parent in parents)
        return Context(components, operator, ids, parent_data(parents, spread(self._population)))

    def credit(self, buffer: Buffer) -> Buffer:
        """Credit in tiers, against the best parent shown; see `coevo_eoh.credit`."""
        return with_credits(buffer, tiered_credits(buffer, self._population, self._baseline))

    def tell(self, buffer: Buffer) -> None:
        """Let the batch's valid programs compete for a place in the population."""
        contexts = buffer.batch.contexts
        made = (Heuristic.of(r, contexts[r.provenance.context].parents) for r in buffer.rollouts)
        offspring = [heuristic for heuristic in made if heuristic is not None]
        self._population = survivors([*self._population, *offspring], self._size)
        if not self._filling:
            self._position += 1
            return
        self._filled += 1
        self._filling = len(self._population) < self._size and self._filled < self._initial_batches

    def state_dict(self) -> Json:
        """The population and the place within the generation."""
        return {
            "generation": self._generation,
            "position": self._position,
            "filling": self._filling,
            "filled": self._filled,
            "population": [heuristic.to_json() for heuristic in self._population],
        }

    def load_state_dict(self, state: Json) -> None:
        """The inverse of `state_dict`."""
        saved = cast(Mapping[str, Any], state)
        self._generation, self._position = int(saved["generation"]), int(saved["position"])
        self._filling, self._filled = bool(saved["filling"]), int(saved["filled"])
        self._population = tuple(Heuristic.from_json(h) for h in saved["population"])


def _check_names(option: str, given: Sequence[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"expected one of: {', '.join(known)}"
            raise ValueError(f"{option} names {name!r}; {hint}")
