"""Which operators a generation uses, and how many offspring each makes: the variants of EoH.

- `paper` (arXiv 2401.02051, v0.1 of its code, Agentic ESOpt): each operator makes N offspring, one operator after the
  other; a weight is the probability that an operator takes part in a generation.
- `v0.2` (of its code): N offspring in all; each draws its operator by weight.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np

Variant: TypeAlias = Literal["paper", "v0.2"]
Turn: TypeAlias = tuple[str, int]
"""An operator and how many offspring it makes."""


MOST_OFFSPRING = 1_000_000
"""Of one operator in a generation: more would not fit into memory."""


class Turns:
    """Draws the turns of a generation.

    Args:
        variant: whose rule.
        operators: in the order in which they take their turns.
        weights: of some of them; the others have 1. `paper`: probabilities; `v0.2`: only their ratios matter.
        offspring: of each operator (`paper`) or of a generation (`v0.2`).
        multiples: of `offspring` that some operators of `paper` make; the others make it once.

    Raises:
        ValueError: a weight or multiple of an operator that is not used, out of range, or no weight above 0.
    """

    def __init__(
        self,
        variant: Variant,
        operators: Sequence[str],
        weights: Mapping[str, float],
        offspring: int,
        multiples: Mapping[str, int] | None = None,
    ) -> None:
        if not operators:
            raise ValueError("operators is empty; name at least one, such as 'e1'")
        more = "multiples" if variant == "paper" else "weights"
        check_once("operators", operators, f"; for more of its offspring: {more}.{{name}} = 2")
        check_names("weights", list(weights), operators)
        for name, weight in weights.items():
            most = 1.0 if variant == "paper" else math.inf
            if not (0.0 <= weight <= most and math.isfinite(weight)):
                expected = "a probability from 0 to 1" if variant == "paper" else "a finite number of at least 0"
                raise ValueError(f"weights gives {name!r} {weight}; expected {expected} with variant {variant!r}")
        self._multiples = dict(multiples or {})
        check_names("multiples", list(self._multiples), operators)
        for name, multiple in self._multiples.items():
            if multiple < 1:
                raise ValueError(f"multiples gives {name!r} {multiple}; expected at least 1, or weights.{name} = 0")
            if multiple * offspring > MOST_OFFSPRING:
                raise ValueError(
                    f"multiples gives {name!r} {multiple}, which makes {multiple * offspring:,} offspring; expected at "
                    f"most {MOST_OFFSPRING:,}"
                )
        if self._multiples and variant != "paper":
            raise ValueError(f"multiples are for variant 'paper'; in {variant!r} weights say who makes how many")
        self._variant: Variant = variant
        self._operators, self._offspring = tuple(operators), offspring
        self._weights = np.array([weights.get(name, 1.0) for name in operators], dtype=np.float64)
        if not self._weights.any():
            raise ValueError("weights are all 0, so that no operator is ever used; give one of them more")

    def draw(self, rng: np.random.Generator) -> tuple[Turn, ...]:
        """The turns of one generation, at least one.

        Where no operator of `paper` is drawn, one is, by weight: a generation without offspring would be none.
        """
        if self._variant == "v0.2":
            counts = rng.multinomial(self._offspring, self._weights / self._weights.sum()).tolist()
            return tuple((name, count) for name, count in zip(self._operators, counts, strict=True) if count)
        chosen = rng.random(len(self._operators)) < self._weights
        if not chosen.any():
            chosen[rng.choice(len(chosen), p=self._weights / self._weights.sum())] = True
        return tuple(
            (name, self._offspring * self._multiples.get(name, 1))
            for name, used in zip(self._operators, chosen, strict=True)
            if used
        )

    def expected(self, of: Collection[str]) -> float:
        """How many turns of a generation are taken by operators in `of`, on average."""
        shares = self._weights / self._weights.sum()
        if self._variant == "v0.2":
            chances = 1.0 - (1.0 - shares) ** self._offspring
        else:
            chances = self._weights + float(np.prod(1.0 - self._weights)) * shares
        return float(sum(chance for name, chance in zip(self._operators, chances, strict=True) if name in of))


def check_once(option: str, given: Sequence[str], more: str = "") -> None:
    """Refuse a name that is there twice; `more` says what to do instead, with `{name}` in it.

    Raises:
        ValueError: which.
    """
    for name in given:
        if given.count(name) > 1:
            raise ValueError(f"{option} names {name!r} twice{more.format(name=name)}")


def check_names(option: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Refuse a name that is not known.

    Raises:
        ValueError: which, with a did-you-mean.
    """
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"expected one of: {', '.join(known)}"
            raise ValueError(f"{option} names {name!r}; {hint}")
