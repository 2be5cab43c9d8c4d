"""What `--param none` and `--context none` do: keep one side of the policy fixed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import Field

from coevo import Batch, Brief, Buffer, Context, Perturbation, Services
from coevo.records import Json

PROGRAM_ANSWERS = 20
"""Answers a generation where the task is one program search and the weights are fixed as well."""


class FixedParameters:
    """Keep the weights: every batch runs at the centre."""

    population = 0
    answers = 1
    common_random_numbers: bool | None = None
    needs = ""

    def ask(self, batch: Batch) -> list[Perturbation]:
        """No members: the centre answers."""
        return []

    def tell(self, buffer: Buffer) -> None:
        """Nothing to apply and nothing to journal."""

    def state_dict(self) -> Json:
        """Empty."""
        return {}

    def load_state_dict(self, state: Json) -> None:
        """Nothing to restore."""


class FixedContext:
    """Keep the task's own context: one batch a generation, over the whole train split.

    With `--param es` this is plain ES training: every member answers every example (`cross`), and credits
    are the task's returns. A program search has one example and one prompt, so its members are dealt
    answers instead (`zip`), with sampling seeds of their own.

    Args:
        services: place in the run, and how many answers an adapting batch needs.
        brief: gives the context's components.
        samples: answers per example (and member); None: 1, or 20 where the task is a program search.
            A program search under ES ignores it: `es.population` × `es.answers` decide.
    """

    adapting_batches = 1

    def __init__(
        self,
        *,
        services: Services,
        brief: Brief,
        samples: Annotated[int | None, Field(ge=1)] = None,
    ) -> None:
        self._services = services
        self._context = Context(dict(brief.components))
        self._is_program = brief.hole != "none"
        self._samples = samples or (PROGRAM_ANSWERS if self._is_program else 1)
        self._finished = -1

    def ask(self) -> Batch | None:
        """The one batch of this generation, then None."""
        if self._finished == self._services.generation:
            return None
        if not self._is_program:
            return Batch((self._context,), "cross", samples=self._samples)
        # Where members are dealt answers, their number is the parameter updater's.
        samples = 1 if self._services.batch_answers else self._samples
        return Batch((self._context,), "zip", samples=samples)

    def tell(self, buffer: Buffer) -> None:
        """Learn nothing; this generation is done."""
        self._finished = self._services.generation

    def state_dict(self) -> Json:
        """The last finished generation."""
        return {"finished": self._finished}

    def load_state_dict(self, state: Json) -> None:
        """The inverse of `state_dict`."""
        self._finished = int(cast(Mapping[str, Any], state)["finished"])
