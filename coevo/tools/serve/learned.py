"""What of a run is served: the weights of a place in its journal, and the context that it had come to by then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from coevo.app.parts import make_updaters, sampling_of
from coevo.host.config import RunConfig
from coevo.host.discovery import Registries
from coevo.interfaces import Brief, ContextUpdater, Task
from coevo.loop.services import RunServices
from coevo.records import Context, Json, Sampling
from coevo.runs.folder import RunFolder
from coevo.runs.journal import History


@dataclass(frozen=True, slots=True)
class Learned:
    """What is served.

    Attributes:
        name: of the run, and of the model that is served.
        history: up to the place that was asked for.
        system: the learned context as a system message, empty where nothing of it applies.
        context: of the context, in words.
        sampling: the run's, for what a request leaves open.
    """

    name: str
    history: History
    system: str
    context: str
    sampling: Sampling

    def line(self, base_url: str, by: str) -> str:
        """What the user is told once it can be asked."""
        batches = self.history.batches
        place = f"after generation {batches[-1]['generation']}" if batches else "of the base model"
        weights = f"weights {self.history.digest[:16]} {place}"
        return f"serving {base_url} as model {self.name!r} with {by}: {weights}; {self.context}"


def learned(folder: RunFolder, history: History, config: RunConfig, registries: Registries) -> Learned:
    """What a run had learned by the end of `history`.

    The task says how a context steers its model (`system(context)`), and the context updater which context it is
    (`learned()`), restored to its state of then. Where the updater has no word for it, the task's own context is what
    the model worked with.

    Raises:
        UserError: the task or the updater refuses its options.
    """
    task = registries.tasks.create(config.task, config.options.get(config.task, {}))
    try:
        brief = task.brief()
        system, said = _context(folder, history, config, registries, task, brief)
        return Learned(folder.name, history, system, said, sampling_of(config, brief))
    finally:
        getattr(task, "close", lambda: None)()


def _context(
    folder: RunFolder, history: History, config: RunConfig, registries: Registries, task: Task, brief: Brief
) -> tuple[str, str]:
    """The system message, and what there is to say about it."""
    system: Callable[[Context], str] | None = getattr(task, "system", None)
    if system is None:
        return "", (
            f"no context applied: that of task {config.task!r} is the prompt of a search, no message for a served model"
        )
    _, updater = make_updaters(config, registries, brief, RunServices(config.seed, folder.path))
    context = _restored(updater, history.states)
    whose = "the learned context" if context is not None else "the task's own context, which was not learned,"
    text = system(context or Context(dict(brief.components)))
    if not text:
        return "", f"no context applied: {whose} is empty"
    return text, f"{whose} applied as a system message of {len(text)} characters"


def _restored(updater: ContextUpdater, states: Mapping[str, Json]) -> Context | None:
    arrived: Callable[[], Context | None] | None = getattr(updater, "learned", None)
    if arrived is None:
        return None
    if states:
        updater.load_state_dict(states["contexts"])
    return arrived()
