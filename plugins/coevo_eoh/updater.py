"""EoH as ask/tell over batches, one per operator.

Evolution of Heuristics (arXiv 2401.02051), with the weights in the loop as in Agentic ESOpt (arXiv
2608.17310). Generation 0 begins by filling the population from the task's own prompt (`i1`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias, cast

import numpy as np
from pydantic import Field

from coevo import Batch, Brief, Buffer, Context, Services
from coevo.records import BAR, Json
from coevo_eoh.credit import CreditKind, credited, parent_data
from coevo_eoh.failures import Broken, latest, to_mend
from coevo_eoh.population import Heuristic, draw_parents, spread, survivors
from coevo_eoh.prompts import OPERATORS, render, render_repair
from coevo_eoh.turns import Turn, Turns, Variant, check_names, check_once

PARENTS = {"m1": 1, "m2": 1, "m3": 1}
"""Operators with a fixed number of parents; `e1` and `e2` take the option."""

ADAPTING = ("m1", "m2")
PARENTS_SHOWN = 2

FIRST_BATCHES: Mapping[Variant, int] = {"paper": 4, "v0.2": 1}
FIRST_DRAWS: Mapping[Variant, int] = {"paper": 1, "v0.2": 2}
"""Answers of a batch that fills the population, as multiples of N."""

Count: TypeAlias = Annotated[int, Field(ge=1, le=100_000)]


class EvolutionOfHeuristics:
    """A population of programs, improved by prompts that show some of them.

    A generation is one batch per operator that takes a turn. An operator in `adapt` deals its prompts to the members
    of the parameter updater, whose credit is relative to the best parent shown. Without parents to show (nothing
    valid yet) an operator asks the task's own prompt instead and is labelled `m1/i1`.

    Args:
        services: seeds, place in the run, and how many answers an adapting batch needs.
        brief: the prompts are rendered from it.
        population: N, heuristics kept.
        variant: `paper`: each operator makes N offspring and the population is managed after each, so `e2` already
            sees what `e1` found; begins with up to 4 batches of N, until N differ. `v0.2`: N offspring in all, each
            with an operator drawn by weight and parents of the generation before; begins with one batch of 2N.
        operators: in order: `e1` (unlike its parents), `e2` (their common idea), `m1` (change one), `m2`
            (its numbers), `m3` (simplify it), `i1` (from scratch).
        weights: of operators, 1 where not given. `paper`: the probability that it takes part in a generation;
            `v0.2`: its share of the draws is its share of all weights.
        multiples: of `offspring` that some operators make, only in `paper`; Agentic ESOpt's larger budget has 3 for
            `m1` and `m2`.
        adapt: operators whose batches train the weights; None: `m1` and `m2` (as far as they are used).
        parents: shown by `e1` and `e2`.
        offspring: answers per operator (`v0.2`: per generation); None: N. An adapting batch is enlarged to give every
            member of the parameter updater its answers.
        show_objectives: whether prompts tell how good the parents are.
        show_failures: whether prompts tell why the latest invalid answers were invalid.
        repair: whether invalid answers (at most N of a batch, no two equal) go back to the model once, with what is
            wrong with them: a batch of its own right after, such as `m1/repair`, at the centre of the weights.
        shared_prompts: whether all members of an adapting batch are asked the same prompts, as many as each has
            answers: they are then compared by their weights and not by the parents that they happened to get. Without,
            every answer has a prompt of its own (Agentic ESOpt).
        credit: what the weights learn from an answer, in tiers failure < duplicate < worse < better: against the best
            `parent` shown, or against the `best` of the population; `paper` is the gain over the parent alone, a
            failure losing at most 1 (Agentic ESOpt).
        initial_batches: tries to fill the population with N distinct programs; None: the variant's.
        race: whether a task may stop an answer that is certain to find no place in a full population, in batches that
            do not adapt. The populations are the same without, only later. Not with `repair` or `show_failures`, since
            of an answer that was stopped nobody knows whether it would have failed; nor in `v0.2` where weights learn,
            since their credit counts what equals other offspring of the generation.

    Raises:
        ValueError: no program search, an unknown operator or one that is named twice, a weight out of range, more
            parents than there are, or `adapt` or `weights` names an operator that is not used.
    """

    def __init__(
        self,
        *,
        services: Services,
        brief: Brief,
        population: Count = 10,
        variant: Variant = "paper",
        operators: tuple[str, ...] = ("e1", "e2", "m1", "m2"),
        weights: dict[str, float] | None = None,
        multiples: dict[str, int] | None = None,
        adapt: tuple[str, ...] | None = None,
        parents: Count = PARENTS_SHOWN,
        offspring: Annotated[int | None, Field(ge=1, le=100_000)] = None,
        show_objectives: bool = True,
        show_failures: bool = False,
        repair: bool = False,
        shared_prompts: bool = True,
        credit: CreditKind = "parent",
        initial_batches: Annotated[int | None, Field(ge=1, le=100_000)] = None,
        race: bool = True,
    ) -> None:
        if brief.hole == "none":
            raise ValueError(
                f"task {brief.name!r} is no program search (its brief says hole 'none'); use --context none"
            )
        if "prompt" not in brief.components:
            raise ValueError(f"task {brief.name!r} gives no prompt: Brief.components needs the key 'prompt'")
        check_names("operators", operators, ("i1", *OPERATORS))
        self._size, self._offspring = population, offspring or population
        self._turns = Turns(variant, operators, weights or {}, self._offspring, multiples)
        for name in adapt or ():
            check_names("adapt", [name], operators)
            if not self._turns.expected([name]):
                raise ValueError(f"adapt names {name!r}, whose weight is 0, so that it never has a batch")
        if adapt is None:
            adapt = tuple(operator for operator in operators if operator in ADAPTING)
        check_once("adapt", adapt)
        if parents > max(population, PARENTS_SHOWN):
            raise ValueError(f"parents got {parents}, and a population of {population} has no more than that to show")
        self.adapting_batches = self._turns.expected(adapt)
        self._services, self._brief = services, brief
        self._variant: Variant = variant
        self._adapt = frozenset(adapt)
        self._parents, self._show_objectives = parents, show_objectives
        self._show_failures, self._repair = show_failures, repair
        self._shared = shared_prompts
        self._race = race and not (repair or show_failures)
        self._credit: CreditKind = credit
        self._initial_batches = initial_batches or FIRST_BATCHES[variant]
        self._baseline = brief.baseline_return()
        self._population: tuple[Heuristic, ...] = ()
        self._waiting: tuple[Heuristic, ...] = ()  # offspring that compete when the generation ends (v0.2)
        self._broken: tuple[Broken, ...] = ()  # to be mended in the next batch
        self._failures: tuple[str, ...] = ()
        self._filling, self._filled = True, 0
        self._asked_for = ""  # the operator of the batch before a repair
        self._generation, self._position = -1, 0
        self._order: tuple[Turn, ...] | None = None  # the turns of this generation, once they are drawn

    sized_by = "eoh.population"
    """What makes the first batch smaller, for whoever has a budget that is too small for it."""

    @property
    def population(self) -> tuple[Heuristic, ...]:
        """The heuristics kept, best first."""
        return self._population

    def ask(self) -> Batch | None:
        """The next operator's batch, None after the last. Asking twice gives the same batch."""
        if self._generation != self._services.generation:
            self._generation, self._position, self._order = self._services.generation, 0, None
        if self._broken:
            return self._repair_batch()
        if self._filling:
            first = self._context("i1", ())
            return Batch((first,) * (self._size * FIRST_DRAWS[self._variant]), "zip", adapt=False, operator="i1")
        if self._order is None:
            self._order = self._turns.draw(np.random.default_rng(self._services.seed("operators")))
        if self._position == len(self._order):
            return None
        return self._offspring_batch(*self._order[self._position])

    def _repair_batch(self) -> Batch:
        contexts = tuple(
            Context(
                {**self._brief.components, "prompt": render_repair(self._brief, broken)},
                "repair", broken.parents, {"repairs": broken.id},
            )
            for broken in self._broken
        )  # fmt: skip
        return Batch(contexts, "zip", adapt=False, operator=f"{self._asked_for}/repair")

    def _offspring_batch(self, operator: str, count: int) -> Batch:
        answers = self._services.batch_answers  # none where no weights learn
        adapts = operator in self._adapt and answers > 0
        if adapts:
            if self._shared and count <= answers:
                count = self._services.member_answers
            else:
                count = -(-count // answers) * answers  # the same number for every member
        asked = operator if self._population else "i1"
        rng = np.random.default_rng(self._services.seed("parents"))
        shown = 0 if asked == "i1" else PARENTS.get(asked, self._parents)
        bar = {} if adapts else self._bar()
        contexts = tuple(self._context(asked, draw_parents(rng, self._population, shown), bar) for _ in range(count))
        label = operator if asked == operator else f"{operator}/{asked}"
        return Batch(contexts, "zip", adapt=adapts, operator=label)

    def _bar(self) -> dict[str, float]:
        """For `Context.data`: what the worst of a full population is worth; whoever is below will never be in it."""
        learns = self._services.batch_answers > 0
        if not self._race or (self._variant == "v0.2" and learns):
            return {}
        kept = survivors([*self._population, *self._waiting], self._size)
        return {BAR: kept[-1].value} if len(kept) == self._size else {}

    def _context(
        self, operator: str, parents: tuple[Heuristic, ...], bar: Mapping[str, float] = MappingProxyType({})
    ) -> Context:
        components = dict(self._brief.components)
        if parents:
            components["prompt"] = render(
                self._brief, operator, parents, self._show_objectives, self._failures if self._show_failures else ()
            )
        ids = tuple(parent.id for parent in parents)
        return Context(components, operator, ids, {**parent_data(parents, spread(self._population)), **bar})

    def credit(self, buffer: Buffer) -> Buffer:
        """Credit in tiers, against the best parent shown, or as `credit` says; see `coevo_eoh.credit`."""
        return credited(buffer, self._credit, (*self._population, *self._waiting), self._baseline)

    def tell(self, buffer: Buffer) -> None:
        """Let the batch's valid programs compete for a place in the population."""
        contexts = buffer.batch.contexts
        made = (Heuristic.of(r, contexts[r.provenance.context].parents) for r in buffer.rollouts)
        self._waiting = (*self._waiting, *(heuristic for heuristic in made if heuristic is not None))
        if self._show_failures:
            self._failures = latest(self._failures, buffer.rollouts)
        if self._broken:
            self._broken = ()
        else:
            self._finish_turn(buffer)
        last = self._order is not None and self._position == len(self._order) and not self._broken
        if self._filling or self._variant == "paper" or last:
            self._population = survivors([*self._population, *self._waiting], self._size)
            self._waiting = ()
        if self._filling and not self._broken:
            self._filling = len(self._population) < self._size and self._filled < self._initial_batches

    def _finish_turn(self, buffer: Buffer) -> None:
        if self._filling:
            self._filled += 1
        else:
            self._position += 1
        if self._repair:
            self._broken, self._asked_for = to_mend(buffer, self._size), buffer.batch.operator

    def state_dict(self) -> Json:
        """The population and the place within the generation."""
        return {
            "generation": self._generation,
            "position": self._position,
            "order": None if self._order is None else [list(turn) for turn in self._order],
            "filling": self._filling,
            "filled": self._filled,
            "population": [heuristic.to_json() for heuristic in self._population],
            "waiting": [heuristic.to_json() for heuristic in self._waiting],
            "broken": [broken.to_json() for broken in self._broken],
            "asked_for": self._asked_for,
            "failures": list(self._failures),
        }

    def load_state_dict(self, state: Json) -> None:
        """The inverse of `state_dict`; runs of before there were turns and repairs lack some of it."""
        saved = cast(Mapping[str, Any], state)
        self._generation, self._position = int(saved["generation"]), int(saved["position"])
        order = saved.get("order")
        self._order = None if order is None else tuple((str(name), int(count)) for name, count in order)
        self._filling, self._filled = bool(saved["filling"]), int(saved["filled"])
        self._population = tuple(Heuristic.from_json(h) for h in saved["population"])
        self._waiting = tuple(Heuristic.from_json(h) for h in saved.get("waiting", ()))
        self._broken = tuple(Broken.from_json(b) for b in saved.get("broken", ()))
        self._asked_for = str(saved.get("asked_for", ""))
        self._failures = tuple(saved.get("failures", ()))
