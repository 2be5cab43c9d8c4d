"""What of a run is served: the weights of a place in its journal, and the context that it had come to by then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coevo.app.blueprint import Blueprint
from coevo.interfaces import Brief, ContextUpdater, Task
from coevo.loop.services import RunServices
from coevo.optional import Instructs, closed, offers
from coevo.optional import Learned as LearnedContext
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


def learned(folder: RunFolder, history: History, blueprint: Blueprint) -> Learned:
    """What a run had learned by the end of `history`.

    The task says how a context steers its model (`system(context)`), and the context updater which context it is
    (`learned()`), restored to its state of then. Where the updater has no word for it, the task's own context is what
    the model worked with.

    Raises:
        UserError: the task or the updater refuses its options.
    """
    task = blueprint.make_task()
    try:
        brief = task.brief()
        system, said = _context(folder, history, blueprint, task, brief)
        return Learned(folder.name, history, system, said, blueprint.sampling(brief))
    finally:
        closed(task)


def _context(folder: RunFolder, history: History, blueprint: Blueprint, task: Task, brief: Brief) -> tuple[str, str]:
    """The system message, and what there is to say about it."""
    config = blueprint.config
    if not offers(task, Instructs):
        return "", (
            f"no context applied: that of task {config.task!r} is the prompt of a search, no message for a served model"
        )
    _, updater = blueprint.make_updaters(brief, RunServices(config.seed, folder.path))
    context = _restored(updater, history.states)
    whose = "the learned context" if context is not None else "the task's own context, which was not learned,"
    text = task.system(context or Context(dict(brief.components)))
    if not text:
        return "", f"no context applied: {whose} is empty"
    return text, f"{whose} applied as a system message of {len(text)} characters"


def _restored(updater: ContextUpdater, states: Mapping[str, Json]) -> Context | None:
    if not offers(updater, LearnedContext):
        return None
    if states:
        updater.load_state_dict(states["contexts"])
    return updater.learned()
