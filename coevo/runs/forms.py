"""What is in the files of a run's folder has to look like: it may come from a stranger, and is held against this first.

What a writer of coevo writes always passes; keys that nobody reads are not looked at. `check` names the first key that
is wrong.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal, NoReturn, NotRequired, TypeAlias

import pydantic
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from coevo.errors import CheckFailedError

_DEEPEST = 100
"""Levels of nesting: what walks through a value calls itself for each."""
_MOST_DIGITS = 300
"""Of a whole number: a longer one is no float."""
_KINDS = ("batch", "probe", "base", "stop", "float", "bool", "str")
"""Names that pydantic puts among the keys where there are several forms."""
_LONGEST_VALUE = 60
"""Characters of a wrong value that are shown."""

Whole: TypeAlias = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Number: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Text: TypeAlias = Annotated[str, Field(strict=True)]
Seconds: TypeAlias = Annotated[float, Field(strict=True, ge=0, le=1e12)]
_MOST_ANSWERS = 1_000_000
"""Of one batch, as `coevo.loop.plan` has it: lists as long as that are made of such a number."""


def _in_all(counts: dict[str, int]) -> dict[str, int]:
    if sum(counts.values()) > _MOST_ANSWERS:
        raise ValueError(f"there should be {_MOST_ANSWERS:,} answers in all at most")
    return counts


Counts: TypeAlias = Annotated[dict[Text, Whole], AfterValidator(_in_all)]
Pair: TypeAlias = Annotated[tuple[Text, Number], Field(strict=False)] | None


def loads(data: str | bytes) -> Any:
    """A value from JSON text that cannot hurt who reads it.

    Raises:
        ValueError: it is no JSON, or has a number that is not finite or is endless, or is nested without end.
    """
    try:
        value = json.loads(data, parse_constant=_refuse, parse_float=_finite, parse_int=_whole)
    except RecursionError:
        raise ValueError("it is nested without end") from None
    text = data if isinstance(data, bytes) else data.encode(errors="surrogatepass")
    if text.count(b"[") + text.count(b"{") > _DEEPEST and _deeper(value):
        raise ValueError(f"it is nested deeper than {_DEEPEST} levels")
    return value


def _deeper(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(_DEEPEST + 1):
        inner: list[Any] = []
        for each in level:
            inner += each.values() if hasattr(each, "values") else each
        level = [each for each in inner if isinstance(each, dict | list)]
    return bool(level)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text[:_LONGEST_VALUE])


def _whole(text: str) -> int:
    return int(text) if len(text) <= _MOST_DIGITS else _refuse(f"a number of {len(text)} digits")


def check(value: Any, form: TypeAdapter[Any], where: str) -> None:
    """Refuse a value that does not look like `form`.

    Args:
        value: read from a file.
        form: one of this module.
        where: the file and the place in it, for the reader.

    Raises:
        CheckFailedError: the first key that is wrong, its value and what is expected.
    """
    try:
        form.validate_python(value)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        loc = [str(part) for part in first["loc"] if part not in _KINDS and not str(part).startswith("function-")]
        key = ".".join(loc)
        said = first["msg"][:1].lower() + first["msg"][1:]
        shown = "" if first["type"] == "missing" else f" got {_shown(first['input'])}"
        raise CheckFailedError(
            f"{where}: {f'key {key!r}' if key else 'it'}{shown}: {said}; the run's folder is damaged"
        ) from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


@with_config(ConfigDict(extra="forbid"))
class _Ledger(TypedDict):
    calls: Whole
    prompt_tokens: Whole
    completion_tokens: Whole


_Best = with_config(ConfigDict(extra="forbid"))(
    TypedDict("_Best", {"rollout": Text, "generation": Whole, "batch": Whole, "return": Number, "objective": Number})
)


class _Time(TypedDict):
    seconds: Seconds


class _Told(TypedDict):
    """What batches and probes have in common."""

    generation: Whole
    batch: Whole
    operator: Text
    purpose: Text
    adapt: bool
    members: Whole
    statuses: Counts
    objectives: list[Number]
    best: _Best | None
    metrics: dict[Text, Number | bool | None]
    zero_update: Text
    digest: Text
    calls: Whole
    prompt_tokens: Whole
    completion_tokens: Whole
    ledger: _Ledger
    time: _Time


class _Update(TypedDict):
    kind: Text
    terms: NotRequired[list[tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{1,16}$")], Number]]]


class _States(TypedDict, total=False):
    parameters: dict[Text, Any]
    contexts: dict[Text, Any]


class _BatchLine(_Told):
    kind: Literal["batch"]
    update: _Update | None
    states: _States
    credits: NotRequired[list[Number | None]]


class _ProbeLine(_Told):
    kind: Literal["probe"]
    outcomes: NotRequired[list[Number | None]]


class _BaseLine(TypedDict):
    kind: Literal["base"]
    digest: Text


class _StopLine(TypedDict):
    kind: Literal["stop"]
    reason: Text
    message: Text
    generation: NotRequired[Whole]


LINE: TypeAdapter[Any] = TypeAdapter(
    Annotated[_BatchLine | _ProbeLine | _BaseLine | _StopLine, Field(discriminator="kind")]
)
"""A line of `journal.jsonl`."""


class _Task(TypedDict, total=False):
    title: Text
    direction: Literal["minimize", "maximize"]
    failure: Text | Number
    reference: Pair
    baseline: Pair
    references: dict[Text, Pair]


class _Tensor(TypedDict):
    name: Text
    shape: Annotated[list[Whole], Field(max_length=8)]


class _Selection(TypedDict):
    tensors: list[_Tensor]


class _Engine(TypedDict, total=False):
    base: Text
    selection: _Selection


class _Plugin(TypedDict):
    source: Text
    files: dict[Text, Text]
    beside: dict[Text, Text]


class _Inputs(TypedDict):
    folder: Text
    config: dict[Text, Any]
    parts: dict[Text, Text]
    plugins: dict[Text, _Plugin]
    files: dict[Text, dict[Text, Text]]
    environment: dict[Text, Text]


class _Accepted(TypedDict):
    generation: Whole
    batch: Whole
    changes: list[Text]


class _Info(TypedDict, total=False):
    task: _Task
    versions: dict[Text, Text]
    python: Text
    machine: Text
    processor: Text
    engine: _Engine
    describe: dict[Text, Text]
    model_files: dict[Text, Text]
    inputs: _Inputs
    accepted: list[_Accepted]


INFO: TypeAdapter[Any] = TypeAdapter(_Info)
"""`run.json`."""


class _Verdict(TypedDict):
    status: Text
    objective: NotRequired[Number]
    instances: NotRequired[Whole]


class _BestFile(TypedDict, total=False):
    answer: Any
    splits: dict[Text, _Verdict]


BEST: TypeAdapter[Any] = TypeAdapter(_BestFile)
"""`best/best.json`."""


class _Provenance(TypedDict):
    generation: Whole
    batch: Whole
    chunk: Whole
    seed: Annotated[str, Field(pattern=r"^[0-9a-f]{1,16}$")]
    sampling_seed: Annotated[str, Field(pattern=r"^[0-9a-f]{1,16}$")]


class _Trajectory(TypedDict):
    steps: list[dict[Text, Any]]


ROLLOUT: TypeAdapter[Any] = TypeAdapter(
    TypedDict(
        "_Rollout",
        {
            "provenance": _Provenance, "status": Text, "return": Number | None, "trajectory": _Trajectory,
            "credit": Number | None, "metrics": dict[Text, Any], "artifacts": dict[Text, Any],
            "prompt_tokens": Whole, "completion_tokens": Whole, "time": _Time,
        },
    )
)  # fmt: skip
"""A line of a chunk in `rollouts/`."""


class _Config(TypedDict, total=False):
    task: Text
    param: Text
    context: Text
    engine: Text
    model: Text
    name: Text
    runs: Text
    seed: Whole
    generations: Whole
    calls: Whole
    tokens: Whole
    loggers: list[Text]
    plugins: list[Text]


CONFIG: TypeAdapter[Any] = TypeAdapter(_Config)
"""`config.toml`; what plugins own of it is theirs to check."""
