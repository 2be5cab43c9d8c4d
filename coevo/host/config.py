"""A run's configuration: TOML and command line → one checked, frozen model.

Top-level keys are the run's own; every other table is named after a plugin and holds its options::

    task = "tsp_construct"
    generations = 6

    [es]
    sigma = 2e-3
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

import pydantic
import tomli_w
from pydantic import Field

from coevo.errors import UserError, did_you_mean
from coevo.files import read_toml
from coevo.host.options import Option, reminder
from coevo.records import Json

FOLDER_TASK = "heuristics"
"""The task that reads its problem from a folder: what `--task DIR` stands for."""

Name: TypeAlias = Annotated[str, Field(min_length=1, pattern=r"^[^\x00-\x1f]*$")]


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SamplingConfig(_Strict):
    """How tokens are drawn; None leaves it to the task (`max_new_tokens`)."""

    temperature: Annotated[float, Field(ge=0.0, description="of the draws; 0 takes the likeliest token.")] = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0, description="share of the probability that is drawn from.")] = 0.95
    top_k: Annotated[
        int, Field(ge=0, lt=2**31, description="how many of the likeliest tokens are drawn from; 0 is all.")
    ] = 0
    min_p: Annotated[
        float, Field(ge=0.0, le=1.0, description="least probability, as a share of the likeliest token's.")
    ] = 0.0
    presence_penalty: Annotated[float, Field(description="taken off tokens that the answer has already.")] = 0.0
    max_new_tokens: Annotated[
        int | None, Field(ge=1, lt=2**31, description="longest answer in tokens; where it is not set, the task's own.")
    ] = None


class ProbeConfig(_Strict):
    """A fixed question to the centre: the same prompt and seeds each time, so that only the weights make a difference.

    None: every 5 where the weights are trained and a budget has room for it, else never: the same weights give the same
    answers.
    """

    every: Annotated[
        int | None,
        Field(
            ge=0,
            description="generations from one probe to the next, and one at the end; 0 is never. Where it is not set: "
            "5 if the weights are trained and a budget has room for it, else never.",
        ),
    ] = None
    answers: Annotated[int, Field(ge=1, le=100_000, description="how many answers a probe has.")] = 64


class RolloutConfig(_Strict):
    """Chunks: `chunk` requests of one member are generated, saved and resumed together."""

    chunk: Annotated[
        int, Field(ge=1, lt=2**63, description="requests of one member that are generated, saved and resumed together.")
    ] = 32
    retries: Annotated[
        int,
        Field(
            ge=0, le=1000, description="how often an attempt is made again that failed through the engine or the judge."
        ),
    ] = 2


class RunConfig(_Strict):
    """What `coevo run` does. See `coevo options` for the tables of the plugins."""

    task: Annotated[str, Field(description="a task, or the folder of a problem.")] = "tsp_construct"
    engine: Annotated[str, Field(description="what loads the model and serves its members.")] = "transformers"
    model: Annotated[str, Field(description="the model to start from: a hub id, a folder, an alias or a run.")] = (
        "smollm2-135m"
    )
    param: Annotated[str, Field(description="the parameter updater, or `none`.")] = "es"
    context: Annotated[str, Field(description="the context updater, or `none`.")] = "eoh"
    generations: Annotated[int, Field(ge=1, lt=2**63, description="how many generations the run has.")] = 3
    population: Annotated[
        int | None,
        Field(ge=1, lt=2**63, description="members per adapting batch; where it is not set, the updater's own."),
    ] = None
    calls: Annotated[int | None, Field(ge=1, lt=2**63, description="hard budget of answers of the model.")] = None
    tokens: Annotated[int | None, Field(ge=1, lt=2**63, description="hard budget of tokens, prompts included.")] = None
    seed: Annotated[int, Field(ge=0, lt=2**63, description="all random numbers of the run follow from it.")] = 0
    name: Annotated[Name | None, Field(description="of the run, and of its folder.")] = None
    runs: Annotated[Name, Field(description="the folder with all runs.")] = "runs"
    plugins: Annotated[tuple[str, ...], Field(description="Python files with hooks.")] = ()
    loggers: Annotated[tuple[str, ...], Field(description="what shows the run while it goes.")] = ("progress",)
    judge_best: Annotated[
        bool,
        Field(
            description="whether the best program of a search is judged on the splits validation and test when it is "
            "over."
        ),
    ] = True
    anchor_seconds: Annotated[
        float, Field(gt=0.0, description="longest replay, in seconds, before the weights are written to disk.")
    ] = 60.0
    sampling: SamplingConfig = SamplingConfig()
    probe: ProbeConfig = ProbeConfig()
    rollouts: RolloutConfig = RolloutConfig()
    options: dict[str, dict[str, Json]] = Field(default_factory=dict)

    def to_toml_data(self) -> dict[str, Json]:
        """The resolved configuration as nested plain data, None left out, plugin tables at the top."""
        data = self.model_dump(mode="json", exclude_none=True)
        tables = cast(dict[str, dict[str, Json]], data.pop("options"))
        given = {name: {k: v for k, v in table.items() if v is not None} for name, table in tables.items()}
        return {**data, **given}


TABLES = {"sampling": SamplingConfig, "probe": ProbeConfig, "rollouts": RolloutConfig}
FIELDS = tuple(name for name in RunConfig.model_fields if name != "options")
ALWAYS = ("task", "engine", "model", "param", "context", "generations", "seed")
"""Keys that every run writes."""


def own_options() -> list[Option]:
    """The run's own settings, those of its tables as `table.key`."""
    models = {"": RunConfig, **{f"{name}.": model for name, model in TABLES.items()}}
    return [
        Option(prefix + name, Annotated[field.annotation, field], field.default, field.description or "")
        for prefix, model in models.items()
        for name, field in model.model_fields.items()
        if prefix or name not in (*TABLES, "options")
    ]


def read_file(path: Path) -> dict[str, Json]:
    """Read a configuration file.

    Raises:
        UserError: it is missing, not readable as text, or not TOML.
    """
    if not os.path.lexists(path):
        raise UserError(f"no configuration file {str(path)!r}; see the folder configs/ for examples")
    return read_toml(path, "the configuration file")


def plugin_files(data: Mapping[str, Json]) -> list[str]:
    """The plugin files that `data` names; they are loaded before anything else of it can be checked.

    Raises:
        UserError: `plugins` is no list of texts.
    """
    files: Any = data.get("plugins", [])
    if not isinstance(files, list | tuple) or not all(isinstance(f, str) for f in cast(Sequence[Any], files)):
        raise UserError(f"plugins got {files!r}: it should be a list of Python files")
    return list(cast(Sequence[str], files))


def parse_assignment(text: str) -> tuple[list[str], Json]:
    """`a.b=value` → (["a", "b"], value); the value is read as TOML, and as a string where it is none.

    Raises:
        UserError: no `=`, or an empty key.
    """
    key, equals, raw = text.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise UserError(f"--set {text!r} is no assignment; write it as --set plugin.option=value")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except (ValueError, RecursionError):
        value = raw
    return path, value


def merge(data: Mapping[str, Json], assignments: Sequence[tuple[Sequence[str], Json]]) -> dict[str, Json]:
    """`data` with assignments applied in order; tables are made where missing."""
    merged: dict[str, Json] = {k: dict(cast(dict[str, Json], v)) if isinstance(v, dict) else v for k, v in data.items()}
    for path, value in assignments:
        table = merged
        for part in path[:-1]:
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                raise UserError(f"--set {'.'.join(path)}: {part!r} is a value, not a table")
            table = cast(dict[str, Json], inner)
        table[path[-1]] = value
    return merged


def build(data: Mapping[str, Json], tables: Sequence[str]) -> RunConfig:
    """Check `data` and make the configuration.

    Args:
        data: top-level keys and tables, from a file and the command line.
        tables: names that may have a table of options: those of registered plugins.

    Raises:
        UserError: an unknown key or table (did-you-mean), or a value of the wrong type or range.
    """
    if "arms" in data and "arms" not in tables:
        raise UserError("this configuration has arms, so it is a study; run it with: coevo study FILE")
    own: dict[str, Json] = {}
    options: dict[str, dict[str, Json]] = {}
    for key, value in data.items():
        if key in FIELDS:
            own[key] = value
        elif key in tables and isinstance(value, dict):
            options[key] = cast(dict[str, Json], value)
        elif key in tables:
            raise UserError(f"{key!r} got {value!r}: it should be a table of options; write {key}.option = value")
        else:
            expected = [*FIELDS, *tables]
            raise UserError(f"unknown configuration key {key!r}{did_you_mean(key, expected)}")
    _expand_task(own, options, tables)
    try:
        return RunConfig.model_validate({**own, "options": options})
    except pydantic.ValidationError as error:
        raise UserError(_explain(error)) from None


def check_own(data: Mapping[str, Json]) -> None:
    """Refuse what is no resolved configuration: `data` of `RunConfig.to_toml_data`, as far as no plugin is needed.

    Raises:
        UserError: a key that every run has is not there, or a value is of the wrong type or range.
    """
    own = {key: value for key, value in data.items() if key in FIELDS}
    for key, value in data.items():
        if key not in own and not isinstance(value, dict):
            raise UserError(f"unknown configuration key {key!r}{did_you_mean(key, FIELDS)}")
    if lacking := [key for key in ALWAYS if key not in own]:
        raise UserError(f"key {lacking[0]!r} is missing")
    try:
        RunConfig.model_validate(own)
    except pydantic.ValidationError as error:
        raise UserError(_explain(error)) from None


def _expand_task(own: dict[str, Json], options: dict[str, dict[str, Json]], tables: Sequence[str]) -> None:
    """A task given as the folder of a problem is the task `FOLDER_TASK` with that folder."""
    task = own.get("task")
    given = options.get(FOLDER_TASK, {}).get("folder")
    if isinstance(given, str):
        # A run is resumed from any folder.
        options[FOLDER_TASK] = {**options[FOLDER_TASK], "folder": os.path.abspath(os.path.expanduser(given))}
    if isinstance(task, str) and (folder := problem_folder(task, tables)) is not None:
        own["task"] = FOLDER_TASK
        options[FOLDER_TASK] = {**options.get(FOLDER_TASK, {}), "folder": folder}


def problem_folder(task: str, names: Container[str]) -> str | None:
    """The folder of the problem that `task` is, absolute: a run is resumed from any. None where it is a name.

    Raises:
        UserError: it can only be a folder, and is none.
    """
    if task in names or not (os.sep in task or os.path.isdir(task)):
        return None
    if not os.path.isdir(task):
        raise UserError(f"no folder {task!r} to read a problem from; for tasks by name see: coevo tasks")
    return os.path.abspath(task)


def problem_name(task: str, options: Mapping[str, Mapping[str, Json]]) -> str:
    """What a reader calls a task: its own name, or that of its problem's folder."""
    return Path(str(options.get(task, {}).get("folder", task))).name if task == FOLDER_TASK else task


def _explain(error: pydantic.ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        model = TABLES.get(str(first["loc"][0]), RunConfig)
        return f"unknown configuration key {where!r}{did_you_mean(str(first['loc'][-1]), list(model.model_fields))}"
    what = next((reminder(option.name, option.help) for option in own_options() if option.name == where), "")
    if first["type"] == "string_pattern_mismatch":
        return (
            f"{where} got {first['input']!r}: expected a name or path without line breaks and control characters{what}"
        )
    said = first["msg"]
    return f"{where} got {_shown(first['input'])}: {said[0].lower()}{said[1:]}{what}"


def _shown(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return repr(value)


def to_toml(data: Mapping[str, Json]) -> str:
    """Plain nested data as TOML text."""
    return tomli_w.dumps(data)
