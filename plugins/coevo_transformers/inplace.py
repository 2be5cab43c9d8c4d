"""Perturb and restore in place, as published ES scripts do: inexact, only to be compared with.

What is modelled. The served weights, in their own format, are their only copy. With w a served weight, n the
member's noise, cast = round to nearest even to the served format and R = round to fp32:

- member: w = cast(R(w + d)) with d = cast(R(s·n)), s = R(sigma·scale)
- after it: the same with -s, which is subtracting the same d
- update, once the last member is subtracted, in the order of the journal, terms of one seed merged:
  `inplace`: for each term w = cast(R(w + cast(R(c·n)))), c = R(coefficient·scale)
  `inplace-sum`: acc = 0; for each term acc = R(acc + R(c·n)); then once w = cast(R(w + cast(acc)))

Members are added and subtracted so in es-at-scale (arXiv 2509.24372) and Agentic-ESOpt. Their current code sums
an update in fp32 and adds it once, which is `inplace-sum`; term by term was the older, accelerated path.
What differs from them: the noise is coevo's (`normal-v1`, the same seeds), so that only the arithmetic is
compared, and it is rounded to the served format once, after sigma, where they draw or round n in that format
before. A member stays in place while its chunks follow one another. Coefficients are coevo's.

Beside it the fp32 master moves exactly by the same updates: digest, journal, replay, export and anchors say what
was meant, and `reached` measures what is served against it. What is served is a function of every member served
since the start and is in no journal: a resumed run, or one loaded from an anchor, serves other weights.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import torch

from coevo.errors import RunError, UserError
from coevo.records import Perturbation
from coevo.weights import kernels, noise
from coevo.weights.derived import Served
from coevo.weights.torch_memory import as_numpy
from coevo_transformers.served import ServedWeights

WeightsOption: TypeAlias = Literal["exact", "inplace", "inplace-sum"]


class InplaceWeights(ServedWeights):
    """`ServedWeights` whose parameters are changed in place; see the module for the arithmetic.

    `moved` is the master's: what a member would move if it were served from there. `drift` and `drifted` in
    `reached` are of the centre after the update, against cast(master). An anchor is served as it is loaded,
    without what members had left.
    """

    derived = False

    def __init__(self, *arguments: Any, summed: bool, **options: Any) -> None:
        """Serves the base. Arguments as for `ServedWeights`; `summed` adds the fp32 sum of an update at once."""
        self._summed = summed
        self._writes = 0
        self._begun = False  # whether they were written from the master, which happens once
        update = ", update summed in fp32" if summed else ""
        self.note = f"in place{update} (inexact, for comparison)"
        super().__init__(*arguments, **options)

    def identity(self) -> str:
        """The master's digest and how often the parameters were changed: no two states share a name."""
        return f"{self.digest()} in place {self._writes}"

    def _write(self, was: Served, perturbation: Perturbation | None) -> None:
        """Subtract what is there and add what is wanted, in one pass over memory.

        Raises:
            ValueError: Sigma is not finite in fp32; nothing has been changed then.
            RunError: An earlier change ended half way.
        """
        if not self._begun:
            super()._write(was, None)
            self._begun, was = True, None
        if was == "nothing":
            raise RunError("the in-place weights were lost half way through a change; they exist nowhere else")
        out = [(was.seed, -was.sigma)] if was is not None else []
        to = [(perturbation.seed, perturbation.sigma)] if perturbation is not None else []
        try:
            self._add(out + to, together=False)
        except ValueError:
            self._current = was
            raise

    def _add(self, terms: Sequence[tuple[int, float]], *, together: bool) -> None:
        plans = [
            (spec, [(seed, noise.step32(number, spec.scale)) for seed, number in terms])
            for spec in self.selection.tensors
        ]
        self._writes += 1
        for spec, steps in plans:
            weights = as_numpy(self._parameters[spec.name].data)
            kernels.add(weights, name=spec.name, terms=steps, together=together)

    def _settle(self) -> None:
        """Before an update: subtract the last member."""
        self.serve(None)

    def _move(self, terms: Sequence[tuple[int, float]]) -> None:
        self._digest = ""
        self.master.apply(terms)  # first: it changes nothing if it refuses the terms
        self._current = "nothing"
        self._add(noise.merge_terms(terms), together=self._summed)
        self._current = None
        self._reach.check(None, 0.0)

    def _changed(self) -> None:
        super()._changed()
        self._begun = False


def serving(weights: WeightsOption) -> Callable[..., ServedWeights]:
    """What makes the served weights."""
    return ServedWeights if weights == "exact" else partial(InplaceWeights, summed=weights == "inplace-sum")


def refuse_elsewhere(weights: WeightsOption, device: torch.device, master: str) -> None:
    """In-place weights are for the CPU.

    Raises:
        UserError: The model is on another device, or the master is to be copied there.
    """
    if device.type != "cpu":
        raise UserError(f"weights = {weights!r} runs on the CPU only, for comparison; the model is on {device}")
    if master == "device":
        raise UserError(f"weights = {weights!r} serves nothing from the master; set master = 'host' or 'disk'")
