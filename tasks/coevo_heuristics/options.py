"""What `instances` of a problem's evaluate.py takes besides the split, read without running anything of it."""

from __future__ import annotations

import ast
import inspect
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pydantic

from coevo.errors import UserError, did_you_mean
from coevo.files import read_regular
from coevo.host.registry import Option, lost_bool
from coevo.records import Json
from coevo_heuristics.problem import Problem

BUNDLED = Path(__file__).parent / "problems"
"""The folders of the problems that come with coevo, which are tasks by their names."""
PREFIX = "instance_options"
_PLAIN: tuple[type[Any], ...] = (bool, int, float, str, list, dict, tuple)
_KNOWN: dict[str, Any] = {
    "Literal": Literal,
    "__builtins__": dict[str, Any](),
    **{kind.__name__: kind for kind in _PLAIN},
}


def instance_options(folder: Path) -> list[Option] | None:
    """The options by their names, with types and defaults as far as these are plain.

    None where they cannot be told: `instances` is no plain function of evaluate.py, or takes whatever it is given.
    """
    try:
        tree = ast.parse(read_regular(folder / "evaluate.py"))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None  # whoever imports it says what is wrong
    function = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "instances"), None)
    if function is None or function.args.kwarg is not None or function.decorator_list:
        return None
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    pairs = [*zip(positional, defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    aliases = _aliases(tree)
    return [_option(argument, default, aliases) for argument, default in pairs[1:]]  # the first is the split


def _option(argument: ast.arg, default: ast.expr | None, aliases: Mapping[str, Any]) -> Option:
    value: Any = inspect.Parameter.empty
    if default is not None:
        try:
            value = ast.literal_eval(default)
        except ValueError:
            value = ast.unparse(default)
    annotation = _type(argument.annotation, aliases)
    told = "an argument of `instances` in evaluate.py"
    return Option(argument.arg, annotation, value, told)


def _aliases(tree: ast.Module) -> dict[str, Any]:
    """Names that the module gives to a type: `Rules: TypeAlias = Literal["all", "paper"]`."""
    found = dict(_KNOWN)
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign):
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name) and isinstance(value, ast.Subscript):
            found[target.id] = _type(value, found)
    return found


def _type(annotation: ast.expr | None, known: Mapping[str, Any]) -> Any:
    """The type that an annotation of built-in types and literals means; empty for others, which go unchecked."""
    if annotation is None:
        return inspect.Parameter.empty
    try:
        return eval(compile(ast.Expression(annotation), "evaluate.py", "eval"), dict(known))
    except Exception:  # noqa: BLE001 - it is the author's text, and only shown
        return inspect.Parameter.empty


def nested_options(folder: Path) -> list[Option]:
    """The same under the names that `--set NAME.OPTION=VALUE` takes."""
    return [replace(option, name=f"{PREFIX}.{option.name}") for option in instance_options(folder) or ()]


def check_instance_options(problem: Problem, given: Mapping[str, Json]) -> None:
    """Refuse options of `instances` that the problem does not know.

    Raises:
        UserError: an unknown option or a wrong value.
    """
    name, folder = problem.table.name, problem.folder
    address = shlex.quote(folder.name if folder.parent == BUNDLED else str(folder))
    where = f" (see: coevo options task {address})"
    options = instance_options(folder)
    if options is None:
        return
    known = {option.name: option for option in options}
    for key, value in given.items():
        if key not in known:
            hint = did_you_mean(key, list(known)) or "; `instances` of its evaluate.py takes the split alone"
            raise UserError(f"problem {name!r} has no instance option {key!r}{hint}{where}")
        if said := _complaint(known[key].annotation, value):
            raise UserError(f"problem {name!r}: instance option {key!r} got {value!r}{said}{where}")


def _complaint(annotation: Any, value: Json) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    try:
        checked: object = pydantic.TypeAdapter(annotation).validate_python(value)
    except pydantic.ValidationError as error:
        words = _words(annotation)
        if words:
            return did_you_mean(value, words) if isinstance(value, str) else f"; expected one of: {', '.join(words)}"
        said = error.errors()[0]["msg"]
        return f": {said[0].lower()}{said[1:]}"
    except pydantic.errors.PydanticUserError:
        return ""  # no type that can be checked
    return ": input should be a number" if lost_bool(value, checked) else ""


def _words(annotation: Any) -> list[str]:
    """The values of a literal type, of one that is optional too."""
    parts = [annotation, *get_args(annotation)]
    return [str(word) for part in parts if get_origin(part) is Literal for word in get_args(part)]
