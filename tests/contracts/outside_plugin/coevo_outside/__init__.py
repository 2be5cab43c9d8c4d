"""A context updater that adds a sentence to the prompt when answers stop improving."""

from coevo import Batch, Brief, Buffer, Context, hookimpl


class Encourage:
    """Ask one batch a generation; encourage after one without progress."""

    def __init__(self, *, brief: Brief, sentence: str = "Try something bolder.") -> None:
        self.components = dict(brief.components) or {"prompt": brief.description}
        self.sentence = sentence
        self.best: float | None = None  # no infinity: a state is JSON
        self.asked = False

    def ask(self) -> Batch | None:
        self.asked = not self.asked
        return Batch((Context(self.components),)) if self.asked else None

    def tell(self, buffer: Buffer) -> None:
        best = max((r.return_ for r in buffer.rollouts if r.return_ is not None), default=None)
        if best is None or (self.best is not None and best <= self.best):
            name = next(iter(self.components))
            self.components[name] = f"{self.sentence} {self.components[name]}"
        else:
            self.best = best

    def state_dict(self) -> dict[str, object]:
        return {"components": self.components, "best": self.best, "asked": self.asked}

    def load_state_dict(self, state) -> None:
        self.components, self.best, self.asked = state["components"], state["best"], state["asked"]


@hookimpl
def register_context_updaters(updaters):
    updaters.register("encourage", Encourage)
