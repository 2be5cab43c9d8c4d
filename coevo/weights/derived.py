"""Weights that an engine serves from its fp32 master: what every adapting engine does in the same way.

An engine says how a member is written into what generates (`_write`); which member it is, what an update does
and what the policy is called are decided here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from coevo.errors import CheckFailedError, UserError
from coevo.records import Perturbation, SeedsUpdate, Update
from coevo.weights import noise
from coevo.weights.dtypes import DType
from coevo.weights.identity import policy_id
from coevo.weights.master import Master
from coevo.weights.reach import Reach, Read
from coevo.weights.selection import Selection, TensorSpec
from coevo.weights.stored import open_file

Served: TypeAlias = Perturbation | Literal["nothing"] | None
"""What generates: a member, the centre (None), or weights that are out of date."""


class DerivedWeights:
    """The master and which member of it is being served; subclasses write it.

    A subclass calls `begin` once it can write.

    Attributes:
        master: The fp32 master.
        selection: Its tensors.
        apply_seconds: Wall time of all updates so far.
        derived: Whether what is served is a function of the master.
    """

    derived = True

    def __init__(self, master: Master) -> None:
        self.master = master
        self.selection: Selection = master.selection
        self.apply_seconds = 0.0
        self._current: Served = "nothing"
        self._digest = ""

    def begin(self, dtype: Callable[[TensorSpec], DType], read: Read | None) -> None:
        """Serves the centre for the first time.

        Args:
            dtype: The format that a tensor is served in.
            read: Reads elements back from what generates; None where they cannot be read.
        """
        self._dtype = dtype
        self.serve(None)
        self._reach = Reach(self.master, dtype, read, derived=self.derived)

    @property
    def dtype(self) -> DType:
        """The format of most of the weights that are served."""
        return self._dtype(max(self.selection.tensors, key=lambda spec: spec.size))

    def serve(self, perturbation: Perturbation | None) -> None:
        """Make what generates a member, or the centre; free where it is already.

        Raises:
            ValueError: The noise family is unknown, or sigma is not finite in fp32.
        """
        if perturbation is not None:
            if perturbation.family != noise.FAMILY:
                raise ValueError(f"noise family {perturbation.family!r} is unknown; expected {noise.FAMILY!r}")
            if perturbation.sigma == 0:
                perturbation = None
        if self._current == perturbation:
            return
        was, self._current = self._current, "nothing"  # an exception half way leaves neither the old nor the new
        self._write(was, perturbation)
        self._current = perturbation

    def _write(self, was: Served, perturbation: Perturbation | None) -> None:
        """Make what generates the weights of `perturbation`; `was` is what it held."""
        raise NotImplementedError

    def digest(self) -> str:
        """The `weights_digest` of the master; made once an update."""
        if not self._digest:
            self._digest = self.master.digest()
        return self._digest

    def identity(self) -> str:
        """What of the centre goes into a policy's name."""
        return self.digest()

    def policy_id(self, perturbation: Perturbation | None) -> str:
        """The name of the weights that a perturbation serves now."""
        return policy_id(self.identity(), perturbation, self.selection)

    def apply(self, update: Update) -> None:
        """Move the master; what is served is made anew at the next `serve`.

        Raises:
            ValueError: An update that is no `seeds` update of the known family.
            RunError: Weights became NaN.
        """
        if not isinstance(update, SeedsUpdate):
            raise ValueError(f"this engine applies seeds updates, got a {type(update).__name__}")
        if update.family != noise.FAMILY:
            raise ValueError(f"noise family {update.family!r} is unknown; expected {noise.FAMILY!r}")
        if not update.terms:
            return
        started = time.monotonic()
        self._settle()
        with self._reach.update():
            self._move(update.terms)
        self.apply_seconds += time.monotonic() - started

    def _settle(self) -> None:
        """Before an update: compare what has been serving until now with what it should have been."""
        if self._current is None:
            self._reach.check(None, 0.0)
        elif self._current != "nothing":
            self._reach.check(self._current.seed, self._current.sigma)

    def _move(self, terms: Sequence[tuple[int, float]]) -> None:
        self._changed()
        self.master.apply(terms)

    def load_anchor(self, path: Path) -> None:
        """Take the master from an anchor; one that does not hold what it says leaves it as it was."""
        try:
            self.master.load_anchor(path, open_file(path)[1].get("digest", ""))
        except (CheckFailedError, UserError):
            return  # torn or damaged: the caller compares digests and takes an older one
        self._changed()

    def _changed(self) -> None:
        self._current, self._digest = "nothing", ""

    def reached(self) -> dict[str, float]:
        """How much of the updates reached what generates; see `coevo.weights.reach`.

        `drift` and `drifted`, where it can be read back, are of what was serving when the update came, against its
        definition.
        """
        return self._reach.told()

    def moved(self, perturbation: Perturbation) -> float:
        """Share of a fixed sample of weights whose served value the perturbation changes, 0 to 1."""
        return self.master.moved(perturbation.seed, perturbation.sigma, self.dtype)
