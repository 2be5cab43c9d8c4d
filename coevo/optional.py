"""What a plugin's object may have besides its Protocol, each part a small Protocol of its own.

Nothing here is inherited from: an object, or a factory, that has the members has the part. `offers` is the one place
of the core that asks; a part that is missing changes what the run can do, never whether it runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from coevo.interfaces import Episode, ServedPolicy
from coevo.records import Buffer, Context, EpisodeResult, Example, Json, Perturbation, Request, Rollout, Trajectory

if TYPE_CHECKING:
    from typing_extensions import TypeIs  # of the standard library from 3.13 on

P = TypeVar("P")


def offers(thing: object, part: type[P]) -> TypeIs[P]:
    """Whether an object has an optional part: all members of it, none of them None.

    Args:
        thing: a plugin's object, or a factory.
        part: a Protocol of this module.
    """
    return all(getattr(thing, name, None) is not None for name in _members(part))


@cache
def _members(part: type) -> tuple[str, ...]:
    return tuple(n for n in (*vars(part), *inspect.get_annotations(part)) if not n.startswith("_"))


class Closes(Protocol):
    """Of anything that a factory makes: it holds what has to be given back."""

    def close(self) -> None:
        """Called once at the end, when the run is on disk."""
        ...


class Describes(Protocol):
    """Of a task or an engine: what the start line and run.json say of it."""

    def describe(self) -> Mapping[str, str]:
        """Such as device, dtype, master, isolation."""
        ...


class Starts(Protocol):
    """Of a task: it starts something that wants no threads yet, as a sandbox does."""

    def start(self) -> None:
        """Called before an engine is made."""
        ...


class DrivesItself(Protocol):
    """Of a task: an agent with a loop of its own; it needs no `episode`."""

    async def run(
        self, example: Example, context: Context, policy: ServedPolicy
    ) -> tuple[EpisodeResult, Trajectory] | EpisodeResult:
        """One episode; `EpisodeResult` alone takes the trajectory that was recorded."""
        ...


class WritesBest(Protocol):
    """Of a task: what the run's folder `best/` shall hold."""

    def best_files(self, rollout: Rollout, header: str) -> Mapping[str, str]:
        """File name → text."""
        ...


class Instructs(Protocol):
    """Of a task: how its context steers a model that somebody uses, for `coevo serve`."""

    def system(self, context: Context) -> str:
        """The system message; empty where there is none."""
        ...


class Moves(Protocol):
    """Of an engine: how much of a perturbation reaches the served weights."""

    def moved(self, perturbation: Perturbation) -> float:
        """Share of sampled weights whose served value differs from the centre's."""
        ...


class Reaches(Protocol):
    """Of an engine: how much of the last update reached the served weights."""

    def reached(self) -> Mapping[str, float]:
        """`cosine`, `cosine_run` since the base, `drift`, `drifted`; empty before an update."""
        ...


class CountsTokens(Protocol):
    """Of an engine: a run on it may have a budget of tokens."""

    def count_tokens(self, request: Request) -> int:
        """Of the prompt."""
        ...


class Spends(Protocol):
    """Of an engine: what it has used besides tokens, for the journal."""

    def spent(self) -> Mapping[str, float]:
        """Since the last call: `cost` and more."""
        ...


class Records(Protocol):
    """Of an engine: what run.json shall hold of it."""

    def record(self) -> Mapping[str, Json]:
        """An adapting engine gives at least `base` (folder of the checkpoint) and `selection`."""
        ...


class KeepsAnchors(Protocol):
    """Of an engine: its master can be written and read, so that a resumed run need not apply every update again."""

    def save_anchor(self, path: Path) -> None:
        """Write the fp32 master."""
        ...

    def load_anchor(self, path: Path) -> None:
        """Read it."""
        ...

    def apply_seconds(self) -> float:
        """Seconds that all updates of this process took: what an anchor saves."""
        ...


class ServedDigest(Protocol):
    """Of an engine: a digest of the weights that generate, read back from where they are."""

    def served_digest(self) -> str:
        """In hexadecimal digits."""
        ...


class Credits(Protocol):
    """Of a context updater: what the parameter updater learns from, where contexts differ between members."""

    def credit(self, buffer: Buffer) -> Buffer:
        """The buffer with `credit` set on every rollout that is to be learned from."""
        ...


class Wraps(Protocol):
    """Of a context updater: it acts inside an episode, never where a best is judged on held-out splits."""

    def wrap(self, episode: Episode) -> Episode:
        """The episode that is run in its place."""
        ...


class Learned(Protocol):
    """Of a context updater: the context that the run has come to, for who uses the model afterwards."""

    def learned(self) -> Context | None:
        """None where nothing was learned."""
        ...


class AdaptsIn(Protocol):
    """Of a context updater of whose batches not one a generation adapts, which the sigma schedule needs to know."""

    adapting_batches: float
    """Batches of a generation that adapt, on average."""


class SizedBy(Protocol):
    """Of a context updater: for who has a budget that is too small for its first batch."""

    sized_by: str
    """The option that makes a batch smaller, such as `eoh.population`."""


class ChecksModel(Protocol):
    """Of an engine's factory: models are its own to know."""

    def check_model(self, model: str) -> object:
        """Raises UserError for a model that it could not load, before anything is started."""
        ...


class CountsBeforehand(Protocol):
    """Of an engine's factory: it can count the tokens of prompts without the weights."""

    def token_counter(self, model: str, options: Mapping[str, Json]) -> Callable[[Request], int] | None:
        """What counts as `count_tokens` of the engine will, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Footprint:
    """What of an engine's options decides how much memory it needs, for `coevo plan`.

    Attributes:
        shards: devices over which the model's tensors are cut; `cuts` whether the engine can at all.
        context: longest prompt plus answer in tokens, 0 for the model's own.
        rows: answers that are computed at once at most, 0 where nothing limits them.
        memory: of each device: a share up to 1, above it GB; 0 where that is not how it is limited.
        cache_tokens, cache_gb: size of the key/value cache; None where it takes what is left. GB are of the CPU.
        master: where the fp32 master is: `host`, `disk` or `device`.
        dtype, device: as the options say, or `auto`.
        remote: a server has the model, and nothing of it is here.
    """

    shards: int = 1
    cuts: bool = False
    context: int = 0
    rows: int = 0
    memory: float = 0.0
    cache_tokens: int | None = None
    cache_gb: float | None = None
    master: str = "host"
    dtype: str = "auto"
    device: str = "auto"
    remote: bool = False


class TellsFootprint(Protocol):
    """Of an engine's factory: `coevo plan` can say what it needs."""

    def footprint(self, options: Mapping[str, Any]) -> Footprint:
        """Of an engine with these options, all of them, checked."""
        ...


class SaysWhetherAdapts(Protocol):
    """Of an engine's factory: whether all of its engines, or none, can be trained."""

    adapts: bool


def closed(thing: object) -> None:
    """Close what a factory made, where it can be."""
    if offers(thing, Closes):
        thing.close()


def described(*parts: object) -> dict[str, str]:
    """What parts of a run say of the machine, for the start line and run.json."""
    return {key: value for part in parts if offers(part, Describes) for key, value in part.describe().items()}


def drives_itself(task: object) -> bool:
    """Whether a task runs its own episodes."""
    return offers(task, DrivesItself)


def always_adapts(factory: object) -> bool:
    """Whether every engine of a factory can be trained."""
    return offers(factory, SaysWhetherAdapts) and factory.adapts is True


def never_adapts(factory: object) -> bool:
    """Whether no engine of a factory can be trained."""
    return offers(factory, SaysWhetherAdapts) and factory.adapts is False
