"""Updaters, of the weights and of the context."""

from __future__ import annotations

from typing import cast

from coevo.host.contracts.common import choices, holds
from coevo.host.contracts.tasks import makes_episodes
from coevo.host.guard import Guard, Rule, anything
from coevo.host.registry import require
from coevo.host.shapes import Wrong, choice, many, number, numbers, of, plain, shown, table, texts, whole
from coevo.interfaces import ContextUpdater, ParameterUpdater
from coevo.optional import AdaptsIn, offers
from coevo.records import (
    Batch,
    Buffer,
    Context,
    DenseUpdate,
    GradientUpdate,
    Perturbation,
    Rollout,
    SeedsUpdate,
)

_SEEDS = 1 << 64
MOST_SAMPLES = 1_000_000
"""Of an example in a batch: a plan of more does not fit in memory."""


def parameter_updater(thing: ParameterUpdater, who: str) -> ParameterUpdater:
    """An optimizer of the weights whose methods are checked.

    Raises:
        PluginError: a method or attribute is missing, or an attribute is none of its kind.
    """
    require(thing, ParameterUpdater, who)
    holds(who, lambda: whole(thing.population, "population"))
    holds(who, lambda: whole(thing.answers, "answers", 1))
    holds(who, lambda: choice(thing.needs, ("", "adapts", "gradients"), "needs"))
    if thing.common_random_numbers is not None:
        holds(who, lambda: of(bool, thing.common_random_numbers, "True, False or None", "common_random_numbers"))
    return cast(ParameterUpdater, Guard(thing, who, _PARAMETERS))


def context_updater(thing: ContextUpdater, who: str) -> ContextUpdater:
    """An optimizer of the context whose methods are checked.

    Raises:
        PluginError: a method is missing, or an attribute is none of its kind.
    """
    require(thing, ContextUpdater, who)
    if offers(thing, AdaptsIn):
        batches = thing.adapting_batches
        holds(who, lambda: number(batches, "adapting_batches"))
    return cast(ContextUpdater, Guard(thing, who, {**_CONTEXTS, "wrap": makes_episodes(f"{who}: wrap")}))


def _state(given: object, *_: object) -> object:
    return plain(given, "a state")


def _members(given: object, *_: object) -> object:
    members = many(Perturbation, given, "a coevo.Perturbation")
    for member in members:
        _seed(member.seed, "a member whose seed is")
        number(member.sigma, "a member whose sigma is")
    return members


def _seed(value: object, where: str) -> None:
    whole(value, where)
    if cast(int, value) >= _SEEDS:
        raise Wrong(f"{where} {value}; expected 64 bits at most")


def _update(given: object, *_: object) -> object:
    if given is None:
        return None
    kinds = "a SeedsUpdate, GradientUpdate or DenseUpdate of coevo.records, or None"
    if not isinstance(given, SeedsUpdate | GradientUpdate | DenseUpdate):
        raise Wrong(f"{shown(given)}; expected {kinds}")
    of(str, given.reason, "a text", "an update whose reason is")
    numbers(given.metrics, "an update whose metrics are")
    if isinstance(given, SeedsUpdate):
        kind = cast(type[tuple[object, ...]], tuple)
        for term in many(kind, given.terms, "a pair (seed, coefficient)", "an update whose terms"):
            if len(term) != 2:
                raise Wrong(f"an update with the term {shown(term)}; expected a pair (seed, coefficient)")
            _seed(term[0], "an update with a term whose seed is")
            number(term[1], "an update with a term whose coefficient is")
    return given


_PARAMETERS = {
    "ask": Rule(_members),
    "tell": Rule(_update),
    "state_dict": Rule(_state),
    "load_state_dict": Rule(anything),
}


def _batch(given: object, *_: object) -> object:
    if given is None:
        return None
    batch = of(Batch, given, "a coevo.Batch, or None to end a generation")
    for context in many(Context, batch.contexts, "a coevo.Context", "a batch whose contexts"):
        _context(context, "a batch with a context whose")
    for name in ("pairing", "purpose"):
        choice(getattr(batch, name), choices(Batch, name), f"a batch whose {name} is")
    for name in ("split", "operator"):
        of(str, getattr(batch, name), "a text", f"a batch whose {name} is")
    if batch.examples is not None:
        many(str, batch.examples, "the id of an example", "a batch whose examples")
    whole(batch.samples, "a batch whose samples are", 1)
    if batch.samples > MOST_SAMPLES:
        raise Wrong(f"a batch whose samples are {batch.samples}; expected at most {MOST_SAMPLES:,}")
    of(bool, batch.adapt, "True or False", "a batch whose adapt is")
    return batch


def _context(context: Context, what: str) -> None:
    texts(context.components, f"{what} components are")
    of(str, context.operator, "a text", f"{what} operator is")
    many(str, context.parents, "a text", f"{what} parents")
    plain(table(context.data, f"{what} data is", "a mapping"), f"{what} data is")


def _learned(given: object, *_: object) -> object:
    if given is not None:
        _context(of(Context, given, "a coevo.Context, or None"), "a context whose")
    return given


def _credited(given: object, before: object = None, *_: object) -> object:
    buffer = of(Buffer, given, "the coevo.Buffer with credits (coevo.numerics.credit.with_credits makes it)")
    rollouts = many(Rollout, buffer.rollouts, "a coevo.Rollout", "a buffer whose rollouts")
    told = cast(Buffer, before).rollouts
    if [r.id for r in rollouts] != [r.id for r in told]:
        raise Wrong(
            f"a buffer of {len(rollouts)} rollouts that are not the {len(told)} that it got; expected the same in order"
        )
    for rollout in rollouts:
        if rollout.credit is not None:
            number(rollout.credit, f"rollout {rollout.id!r} a credit of", "a finite number, or None")
    return buffer


_CONTEXTS = {
    "ask": Rule(_batch),
    "tell": Rule(anything),
    "credit": Rule(_credited),
    "learned": Rule(_learned),
    "state_dict": Rule(_state),
    "load_state_dict": Rule(anything),
}
