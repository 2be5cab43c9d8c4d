"""Questions for the benches of the rollout path: many short conversations, and a judge that costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from coevo.interfaces import Brief
from coevo.numerics.seeds import derive
from coevo.records import Completion, Context, EpisodeResult, Example, Message, Request, Sampling

TOPICS = ("the sea", "a mountain", "bread", "a clock", "winter", "a letter", "trains", "an island")


def conversation(number: int) -> tuple[Message, ...]:
    """One of any number of different questions."""
    topic = TOPICS[number % len(TOPICS)]
    return ({"role": "user", "content": f"Story {number}: write a short story about {topic} and the number {number}."},)


@dataclass(slots=True)
class Talk:
    """An episode of `answers` answers, each of so many tokens at most; every answer becomes part of the next question.

    Attributes:
        answers: Tokens of each answer at most.
    """

    messages: tuple[Message, ...]
    answers: tuple[int, ...]
    given: list[str] = field(default_factory=list[str])

    def requests(self) -> Sequence[Request]:
        """The next question, or none."""
        if len(self.given) == len(self.answers):
            return ()
        sampling = Sampling(temperature=1.0, max_new_tokens=self.answers[len(self.given)])
        return (Request(self.messages, sampling=sampling),)

    def step(self, completions: Sequence[Completion]) -> None:
        """Takes the answer."""
        [said] = completions
        self.given.append(said.text)
        self.messages = (
            *self.messages,
            {"role": "assistant", "content": said.text or "…"},
            {"role": "user", "content": "Go on."},
        )

    def result(self) -> EpisodeResult:
        """Any answer is as good as any other."""
        return EpisodeResult("ok", float(len(self.given)))


@dataclass(slots=True)
class Talks:
    """A task of so many episodes; `lengths` gives each the tokens of its answers."""

    lengths: Sequence[tuple[int, ...]]

    def brief(self) -> Brief:
        """Nothing to learn here."""
        return Brief(name="bench", title="bench", description="", max_calls=max(len(each) for each in self.lengths))

    def examples(self, split: str) -> Sequence[Example]:
        """One an episode."""
        return [Example(str(number)) for number in range(len(self.lengths))]

    def episode(self, example: Example, context: Context) -> Talk:
        """A fresh one."""
        number = int(example.id)
        return Talk(conversation(number), self.lengths[number])


def varied(episodes: int, steps: int, tokens: int, spread: int, seed: int = 0) -> list[tuple[int, ...]]:
    """Answers of episodes whose lengths vary `spread`-fold, spread evenly on a logarithmic scale.

    Args:
        episodes: How many.
        steps: Answers of the longest.
        tokens: Tokens of the longest answer at most.
        spread: Longest over shortest, of the number of answers and of the tokens of each.
        seed: Of the lengths.
    """

    def between(longest: int, *coordinates: int) -> int:
        share = derive(seed, "bench", *coordinates) / 2**64
        return max(1, round(longest * spread**-share))

    return [
        tuple(between(tokens, episode, step) for step in range(between(steps, episode))) for episode in range(episodes)
    ]
