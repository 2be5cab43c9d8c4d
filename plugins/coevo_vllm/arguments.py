"""The arguments of vLLM's own that `vllm.options` passes on: which there are in the vLLM that is installed."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from coevo.errors import UserError, did_you_mean
from coevo.host.registry import Option
from coevo_vllm.starting import need_package, quietly_imported

LISTED = "coevo options engine vllm.options"
SET_BY_COEVO = {
    "model": "model",
    "tensor_parallel_size": "vllm.tensor_parallel",
    "worker_extension_cls": "",
}
"""Arguments that are not the user's → the option to set instead, empty for none."""


def arguments() -> list[Option]:
    """What vLLM's `LLM` takes, by name.

    Raises:
        MissingExtraError: vLLM is not installed.
    """
    need_package()
    found = {option.name: option for option in _engine_arguments()}
    signature = inspect.signature(quietly_imported("vllm").LLM.__init__)
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name not in found:
            found[name] = Option(name, parameter.annotation, parameter.default)
    return [found[name] for name in sorted(found) if name not in SET_BY_COEVO and not name.startswith("_")]


def _engine_arguments() -> Iterator[Option]:
    kind: Any = quietly_imported("vllm.engine.arg_utils").EngineArgs
    for field in dataclasses.fields(kind):
        # A default that is made anew each time is a whole configuration of vLLM's, too long to be shown.
        default = None if field.default is dataclasses.MISSING else field.default
        yield Option(field.name, field.type, default)


def check(given: Iterable[str]) -> None:
    """Refuse what vLLM does not know, before it is asked to load anything.

    Raises:
        UserError: an argument that vLLM does not have (did-you-mean), or one that coevo sets.
    """
    asked = list(given)
    known = [option.name for option in arguments()] if asked else []
    for name in asked:
        if name in SET_BY_COEVO:
            mend = f"; set {SET_BY_COEVO[name]} instead" if SET_BY_COEVO[name] else ""
            raise UserError(f"vllm.options got {name!r}, which coevo sets itself{mend}")
        if name not in known:
            hint = did_you_mean(name, known, otherwise=f"; list those it has with: {LISTED}")
            raise UserError(f"vllm.options got {name!r}, which vLLM {_version()} does not have{hint}")


def _version() -> str:
    return str(importlib.import_module("vllm.version").__version__)
