"""`coevo serve`: a run's learned weights and context behind an OpenAI-compatible URL."""

from __future__ import annotations

import importlib.util
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, cast

import typer

from coevo.cli.output import emit
from coevo.cli.reading import At, Run, Runs
from coevo.cli.running import loaded
from coevo.errors import MissingExtraError, UserError
from coevo.host.discovery import Plugins
from coevo.optional import closed, never_adapts
from coevo.records import Json

if TYPE_CHECKING:
    from coevo.app.blueprint import Blueprint
    from coevo.host.discovery import Registries
    from coevo.runs.folder import RunFolder
    from coevo.tools.serve.learned import Learned
    from coevo.tools.serve.where import Where

VLLM = "vllm"
"""As an engine to serve with it is vLLM's own server."""


def add_commands(app: typer.Typer, plugins: Plugins) -> None:
    """Add the command."""

    @app.command()
    def serve(
        run: Run,
        at: At = "last",
        host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
        port: Annotated[
            int, typer.Option(metavar="N", min=0, max=65535, help="Where to listen; 0 takes any free port.")
        ] = 8000,
        engine: Annotated[
            str,
            typer.Option(
                metavar="auto|vllm|NAME",
                help="vLLM's own server, or an engine in this process. auto: vllm where installed, else the run's.",
            ),
        ] = "auto",
        key_env: Annotated[
            str | None,
            typer.Option(
                metavar="NAME",
                help="Environment variable with the key that requests must bring. Without it one is made and printed.",
            ),
        ] = None,
        no_key: Annotated[
            bool, typer.Option("--no-key", help="Ask for no key: all users of this machine may ask. On loopback only.")
        ] = False,
        allow_host: Annotated[
            list[str] | None,
            typer.Option(
                metavar="NAME", help="Another name that it is asked by, such as that of a proxy before it. Repeatable."
            ),
        ] = None,
        assign: Annotated[
            list[str] | None,
            typer.Option(
                "--set", metavar="A.B=C",
                help="An option of the engine (of `vllm serve` for vllm) or of sampling. Repeatable.",
            ),
        ] = None,
        runs: Runs = "runs",
    ) -> None:  # fmt: skip
        """Serve what a run has learned as an OpenAI-compatible API, until Ctrl-C."""
        from coevo.app.permission import allowed
        from coevo.host.config import plugin_files
        from coevo.runs.folder import RunFolder
        from coevo.tools.serve.where import Where, key_of

        _check_host(host)
        where = Where(host, port, key_of(key_env, no_key, host), _names(allow_host or ()))
        folder = RunFolder.find(run, runs)
        allowed(folder, "serve")
        registries = loaded(plugin_files(folder.config()), plugins).registries()
        serve_run(folder, registries, at, engine, where, assign or ())


def serve_run(
    folder: RunFolder,
    registries: Registries,
    at: str,
    engine: str,
    where: Where,
    assignments: Sequence[str],
) -> None:
    """Serve until the process is told to end.

    Raises:
        UserError: something cannot be done as asked.
        CheckFailedError: the rebuilt weights are not those of the journal.
        RunError: vLLM's server did not start, or ended.
    """
    from coevo.runs.rebuild import started
    from coevo.runs.replay import cut, position
    from coevo.tools.serve.learned import learned

    _check_weights(folder, registries)
    whole = started(folder)
    history = cut(whole, position(whole, at))
    chosen = _choose(engine, folder)
    blueprint, options = configured(folder, registries, chosen, assignments)
    what = learned(folder, history, blueprint)
    if chosen == VLLM:
        _serve_vllm(folder, what, at, where, options)
    else:
        _serve_here(folder, what, blueprint, where)


def configured(
    folder: RunFolder, registries: Registries, engine: str, assignments: Sequence[str]
) -> tuple[Blueprint, dict[str, Json]]:
    """The run's blueprint with another engine and `--set`, and the options for vLLM's server.

    Raises:
        UserError: an assignment that would change nothing, or a wrong value.
    """
    from coevo.app.blueprint import Blueprint
    from coevo.host.config import build, merge, parse_assignment

    data = _of_today(folder.config())
    parsed = [parse_assignment(text) for text in assignments]
    for path, _ in parsed:
        if len(path) != 2 or path[0] not in (engine, "sampling"):
            raise UserError(
                f"--set {'.'.join(path)}: only options of the engine ({engine}.…) and of sampling (sampling.…) "
                "change what is served"
            )
    options = {path[1]: value for path, value in parsed if path[0] == VLLM == engine}
    ours = [(path, value) for path, value in parsed if not path[0] == VLLM == engine]
    if engine not in (VLLM, data.get("engine")):
        registries.engines.entry(engine)  # with a did-you-mean
        data.pop(str(data.get("engine")), None)
        data["engine"] = engine
    blueprint = Blueprint(build(merge(data, ours), registries.names), registries)
    if engine != VLLM:
        registries.engines.validate(blueprint.config.engine, blueprint.options(blueprint.config.engine))
    return blueprint, options


def _of_today(data: dict[str, Json]) -> dict[str, Json]:
    """A run's configuration without the day that it took for today: a served model is told the real one."""
    from coevo.app.blueprint import DATE

    table: dict[str, Json] = data.get(str(data.get("engine")), {})
    for options in (table, table.get("options")):
        if isinstance(options, dict):
            cast(dict[str, Json], options).pop(DATE, None)
    return data


def _check_weights(folder: RunFolder, registries: Registries) -> None:
    """Refuse a run whose model is somebody else's: the server would spend its owner's money for whoever asks."""
    from coevo.app.blueprint import Blueprint
    from coevo.host.config import build

    blueprint = Blueprint(build(folder.config(), registries.names), registries)
    if never_adapts(blueprint.inner_factory()):
        inner, _ = blueprint.inner_engine()
        raise UserError(
            f"run {folder.name!r} has no weights to serve: engine {inner!r} does not adapt any; its model is served by "
            "its own API"
        )


def _choose(engine: str, folder: RunFolder) -> str:
    installed = importlib.util.find_spec(VLLM) is not None
    if engine == "auto":
        has_weights = "selection" in folder.info().get("engine", {})
        return VLLM if installed and has_weights else str(folder.config().get("engine", "transformers"))
    if engine == VLLM and not installed:
        raise MissingExtraError("coevo serve --engine vllm", VLLM, VLLM)
    return engine


def _names(given: Sequence[str]) -> tuple[str, ...]:
    from coevo.endpoint.access import is_name

    for name in given:
        if not is_name(name):
            raise UserError(f"--allow-host {name!r} is no name of a host; expected one such as models.example.org")
    return tuple(given)


def _check_host(host: str) -> None:
    import socket

    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise UserError(f"--host {host!r} does not resolve: {said}; expected an address of this machine") from None


def _serve_here(folder: RunFolder, what: Learned, blueprint: Blueprint, where: Where) -> None:
    import asyncio
    import secrets

    from coevo.endpoint import check_packages
    from coevo.runs.replay import restore_engine
    from coevo.tools.serve.own import serve_own

    check_packages()
    blueprint.check_model()
    made = blueprint.make_engine()
    try:
        restore_engine(made, folder, what.history)
        by = f"engine {blueprint.config.engine!r}"
        seed = secrets.randbits(64)
        asyncio.run(serve_own(made, what, where, seed, lambda url: _tell(where, what.line(url, by))))
    finally:
        closed(made)


def _tell(where: Where, line: str) -> None:
    """Say where it is; the key first, so that whoever waits for the line has both."""
    where.key.tell()
    emit(line)


def _serve_vllm(folder: RunFolder, what: Learned, at: str, where: Where, options: Mapping[str, Json]) -> None:
    from coevo.endpoint.ports import free_port
    from coevo.tools.serve.template import template_of, with_system
    from coevo.tools.serve.vllm_server import command, environment, serve_child

    host, port = where.host, free_port(where.host, where.port)
    model, dtype = _exported(folder, what.history.digest, at)
    up = False

    def ready(url: str) -> None:
        nonlocal up
        up = True
        _tell(where, what.line(url, "vLLM's server"))

    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        template = _kept(model, with_system(template_of(model), what.system)) if what.system else None
        log = model.parent / f"vllm-{port}.log"
        print(f"coevo: starting vLLM's server; what it says is in {str(log)!r}", file=sys.stderr, flush=True)
        arguments = command(
            model, name=what.name, host=host, port=port, dtype=dtype, sampling=what.sampling, template=template,
            options=options,
        )  # fmt: skip
        variables = environment(where, options)
        serve_child(arguments, host=host, port=port, variables=variables, log=log, ready=ready)
    except KeyboardInterrupt:
        if not up:
            raise
    finally:
        signal.signal(signal.SIGTERM, previous)


def _kept(model: Path, template: str) -> Path:
    """A file with the chat template, beside the model and named by what is in it: a kill leaves nothing else behind."""
    from hashlib import sha256

    from coevo.files import replacing

    encoded = template.encode()
    path = model.with_name(f"{model.name}-{sha256(encoded).hexdigest()[:16]}.jinja")
    if not path.is_file():
        with replacing(path) as file:
            file.write(encoded)
    return path


def _interrupt(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends a server as Ctrl-C does."""
    raise KeyboardInterrupt


def _exported(folder: RunFolder, digest: str, at: str) -> tuple[Path, str | None]:
    """The weights as the run's engine served them, as a model folder of the cache, and their dtype."""
    from coevo.models.catalogue import cache_folder
    from coevo.models.export import NOTE
    from coevo.runs.rebuild import export_run
    from coevo.weights.dtypes import DTYPES

    kept = folder.info().get("engine", {}).get("dtype")
    dtype = str(kept) if kept in DTYPES else None
    model = cache_folder() / "served" / f"{digest[:32]}-{dtype or 'own'}"
    if not (model / NOTE).is_file():
        model.parent.mkdir(parents=True, exist_ok=True)
        export_run(folder, model, dtype, at)
    return model, dtype
