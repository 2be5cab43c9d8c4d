"""A chat template that puts a system message before all others: how a context reaches a server of somebody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from coevo.errors import UserError
from coevo.files import read_text
from coevo.weights.stored import read_json

_LITERAL = """\
{{%- set messages = ([{{'role': 'system', 'content': {text} + '\\n\\n' + messages[0]['content']}}] + messages[1:]) \
if messages and messages[0]['role'] == 'system' \
else ([{{'role': 'system', 'content': {text}}}] + messages) -%}}
"""


def with_system(template: str, system: str) -> str:
    """A chat template that is `template` under a system message; one that a request brings follows it.

    The same as `coevo.endpoint.chat.with_system`, for servers that render messages themselves.
    """
    return _LITERAL.format(text=ascii(system)) + template if system else template


def template_of(model: Path) -> str:
    """The chat template of a model folder.

    Raises:
        UserError: it has none.
    """
    own = model / "chat_template.jinja"
    if own.is_file():
        return read_text(own)
    config = model / "tokenizer_config.json"
    kept: Any = read_json(config).get("chat_template") if config.is_file() else None
    if isinstance(kept, list):  # several by name, in older folders
        entries = [cast(dict[str, Any], entry) for entry in cast(list[object], kept) if isinstance(entry, dict)]
        kept = next((entry.get("template") for entry in entries if entry.get("name") == "default"), None)
    if not isinstance(kept, str):
        raise UserError(f"the model folder {str(model)!r} has no chat template; expected an instruct model")
    return kept
