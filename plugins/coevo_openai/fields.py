"""Fields of a request that are the user's to add or to leave out, and those that are not."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from coevo.errors import did_you_mean
from coevo.records import Json

_LIMITS = ("max_tokens", "max_completion_tokens")
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "presence_penalty")
_SET_ELSEWHERE = {
    "model": "the model is chosen with --model",
    "messages": "the messages are the task's",
    "stop": "the task says where an answer ends",
    "seed": "seeds are the run's: --seed, and openai.seed_bits for how long they may be",
    "continue_final_message": "openai.prefill says how an answer is begun",
    "add_generation_prompt": "openai.prefill says how an answer is begun",
    **dict.fromkeys(_LIMITS, "the length of answers is set with --set sampling.max_new_tokens=N"),
    **{name: f"it is set with --set sampling.{name}=X" for name in _SAMPLING},
}
"""What every request has already, and what says otherwise."""
_ONE_WHOLE_ANSWER: Mapping[str, Json] = {"n": 1, "best_of": 1, "stream": False, "echo": False}
"""Fields that would ask for something else than one whole answer, and the value that does not."""
_NEEDED = ("model", "messages", "continue_final_message", "add_generation_prompt")
_OPTIONAL = (*_LIMITS, *_SAMPLING, "seed", "stop", "logprobs", "repetition_penalty", "chat_template_kwargs")


def check_added(extra: Mapping[str, Json]) -> None:
    """Refuse what would take the place of what is asked: the answers would be those to another question.

    Raises:
        ValueError: names the field, and what to use instead.
    """
    for name, value in extra.items():
        if name in _SET_ELSEWHERE:
            raise ValueError(f"extra_body has {name!r}, which every request has already; {_SET_ELSEWHERE[name]}")
        if name in _ONE_WHOLE_ANSWER and repr(value) != repr(_ONE_WHOLE_ANSWER[name]):  # 1 is no true, and 0 no false
            only = str(_ONE_WHOLE_ANSWER[name]).lower()
            raise ValueError(
                f"extra_body has {name}={value!r}; expected {name}={only} or nothing: one whole answer is read"
            )
    template = extra.get("chat_template_kwargs", {})
    if not isinstance(template, dict):
        raise ValueError(f"extra_body has chat_template_kwargs={template!r}; expected a table such as {{name=value}}")


def check_left_out(omit: Collection[str], capped: bool) -> None:
    """Refuse to leave out what a request cannot be without, and names that are never sent.

    Args:
        omit: names of fields.
        capped: whether the cost has a cap, which holds only for answers that have one.

    Raises:
        ValueError: names the field.
    """
    for name in omit:
        if name in _NEEDED:
            raise ValueError(f"omit has {name!r}, without which there is no request; {_SET_ELSEWHERE[name]}")
        if name not in _OPTIONAL:
            raise ValueError(f"omit has {name!r}, which is never sent{did_you_mean(name, _OPTIONAL)}")
        if capped and name in _LIMITS:
            raise ValueError(f"omit has {name!r}, without which max_cost cannot hold; leave out one of both")
