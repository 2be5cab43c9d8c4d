"""All checks in order, those that cost nothing first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coevo.app.blueprint import Blueprint
from coevo.app.parts import local_files
from coevo.errors import PluginError, UserError
from coevo.host.config import RunConfig, build
from coevo.host.discovery import Plugins
from coevo.models.catalogue import catalogue
from coevo.records import Json
from coevo.tools.doctor import surroundings, system
from coevo.tools.doctor.checks import Check, State, one_line, parted
from coevo.tools.doctor.child import Answer, ask
from coevo.tools.doctor.extras import Needs, needs
from coevo.tools.doctor.system import Installed, installed

IMPORT_SECONDS = 120.0
"""An import from a cold disk takes half a minute at most."""

UNMATCHED = "pip uninstall -y torchvision torchaudio torchcodec"
"""They come with vLLM, built for another torch, and coevo uses none of them."""

Ask = Callable[[str, Mapping[str, Json], float], Answer]


@dataclass(slots=True)
class Doctor:
    """One examination.

    Attributes:
        plugins: already loaded ones.
        data: the configuration's: engine, model and their options.
        seconds: how long a check may take.
        version_of: says what is installed.
        ask: asks a child process.
    """

    plugins: Plugins
    data: Mapping[str, Json]
    seconds: float = 300.0
    version_of: Installed = installed
    ask: Ask = ask

    def checks(self) -> Iterator[Check]:
        """Every check as it is done.

        Raises:
            UserError: the engine, an option or the configuration is not known.
        """
        if (homeless := surroundings.folders()) is not None:
            yield homeless  # nothing works without, and the checks would only say so again
            return
        try:
            registries = self.plugins.registries()
        except PluginError as error:
            yield from system.checks(Path(str(self.data.get("runs", "runs"))), self.version_of)
            yield from self._plugins()
            yield Check("plugins", "failure", one_line(error), "leave out one of them with COEVO_PLUGINS")
            return
        config = build(self.data, registries.names)
        registries.engines.validate(config.engine, config.options.get(config.engine, {}))
        yield from system.checks(Path(config.runs), self.version_of)
        yield from surroundings.connections()
        yield from self._plugins()
        wanted = needs(self.plugins, registries)
        chosen = next(need for need in wanted if need.engine == config.engine)
        yield from (need.check(need is chosen, self.version_of) for need in wanted)
        yield from self._imports(chosen)
        model = self._model(Blueprint(config, registries))
        yield from self._models(config, model)
        yield self._sandbox(config)
        runnable = chosen.check(True, self.version_of)
        if model.state == "failure" or runnable.state == "failure":
            first = model if model.state == "failure" else runnable
            yield Check(f"one token of {config.engine}", "failure", f"not tried: see {first.name!r} above", first.mend)
        else:
            yield from self._token(config)

    def _plugins(self) -> Iterator[Check]:
        working = [plugin.name for plugin in self.plugins.found if not plugin.error]
        yield Check("plugins", "ok", ", ".join(working) or "none", data={"plugins": working})
        for plugin in self.plugins.broken:
            left_out = ",".join(working)
            yield Check(
                f"plugin {plugin.name}", "warning", f"broken ({plugin.source}): {one_line(plugin.error)}",
                f"reinstall or remove {plugin.source.rpartition(' ')[0]}, or leave it out: COEVO_PLUGINS={left_out}",
            )  # fmt: skip

    def _imports(self, chosen: Needs) -> Iterator[Check]:
        limit = min(IMPORT_SECONDS, self.seconds)
        if self.version_of("torch"):
            answer = self.ask("torch", {}, limit)
            yield self._imported("torch", chosen, answer, _torch_text(answer.told))
        if self.version_of("torchvision"):
            answer = self.ask("import", {"package": "torchvision"}, limit)
            fine = f"{answer.told.get('version')}, matches torch"
            yield self._imported("torchvision", chosen, answer, fine, UNMATCHED, breaks="transformers")
        if self.version_of("transformers"):
            names = ["AutoModelForCausalLM", "AutoTokenizer", "LlamaForCausalLM"]
            answer = self.ask("import", {"package": "transformers", "names": names}, limit)
            mend = UNMATCHED if "torchvision" in answer.error else "pip install --upgrade 'coevo[transformers]'"
            yield self._imported("transformers", chosen, answer, f"{answer.told.get('version')} imports", mend)

    def _imported(
        self, package: str, chosen: Needs, answer: Answer, fine: str, mend: str = "", breaks: str = ""
    ) -> Check:
        """One import; failed, it is a failure where the chosen engine needs the package."""
        name = f"import {package}"
        if not answer.error:
            return Check(name, "ok", f"{fine} ({answer.seconds:.1f} s)", data=answer.told)
        needed = bool({package, breaks} & chosen.packages)
        state: State = "failure" if needed else "warning"
        mend = answer.mend or mend or f"pip install --force-reinstall {package}"
        return Check(name, state, one_line(answer.error), mend, answer.told)

    def _model(self, blueprint: Blueprint) -> Check:
        name = f"model {blueprint.config.model}"
        try:
            blueprint.check_model()
        except UserError as error:
            found, own = parted(str(error))
            mend = own or "give an alias, a folder or a hub id with --model"
            return Check(name, "failure", one_line(found), mend)
        return Check(name, "ok", "can be loaded, as far as its name and folder tell")

    def _models(self, config: RunConfig, chosen: Check) -> Iterator[Check]:
        """The aliases, and the model that was chosen."""
        for row in catalogue():
            if row["name"] != config.model:
                there = row["state"] == "ready"
                mend = "" if there else f"coevo model pull {row['name']}"
                found = str(row["path"]) if there else "not pulled"
                yield Check(f"model {row['name']}", "ok" if there else "warning", found, mend)
        yield chosen

    def _sandbox(self, config: RunConfig) -> Check:
        options = config.options.get(config.task, {})
        asked = {"task": config.task, "options": options, "plugins": list(local_files(config))}
        answer = self.ask("sandbox", asked, min(IMPORT_SECONDS, self.seconds))
        name = f"sandbox of {config.task}"
        if answer.error:
            found, own = parted(answer.error)
            return Check(name, "failure", one_line(found), answer.mend or own or "see docs/sandbox.md")
        told: Mapping[str, Any] = answer.told["describe"]
        state = str(told.get("sandbox", "the task starts, and has none"))
        weaker = state.startswith("WEAKER")
        mend = "start as root or allow user namespaces; docs/sandbox.md says what is weaker" if weaker else ""
        return Check(name, "warning" if weaker else "ok", state, mend, told)

    def _token(self, config: RunConfig) -> Iterator[Check]:
        """The engine's start with its canary, then one token."""
        asked = {
            "engine": config.engine,
            "model": config.model,
            "options": config.options.get(config.engine, {}),
            "plugins": list(local_files(config)),
        }
        answer = self.ask("engine", asked, self.seconds)
        name = f"one token of {config.engine}"
        if answer.error:
            found, own = parted(answer.error)
            mend = answer.mend or own or f"see the options: coevo options engine {config.engine}"
            canary = "canary" in answer.error
            yield Check("canary" if canary else name, "failure", one_line(found), mend, answer.told)
            return
        told: Mapping[str, Any] = answer.told
        described: Mapping[str, Any] = told["describe"]
        proof = described.get("canary")
        if proof:
            yield Check("canary", "ok", str(proof), data=described)
        elif told["adapts"]:
            mend = f"set {config.engine}.canary = true, if it is off" if config.options else ""
            yield Check("canary", "warning", "the engine adapts and tells of no canary", mend, described)
        said = f"{told['text']!r} after {told['start_seconds']:.1f} s of start"
        device = f" on {described['device']}" if "device" in described else ""
        if not told["tokens"] and not told["text"] and told["finish_reason"] != "stop":
            yield Check(name, "failure", f"the engine gave none ({told['finish_reason']})", "", answer.told)
            return
        yield Check(name, "ok", said + device, data=answer.told)


def _torch_text(told: Mapping[str, Any]) -> str:
    devices = ", ".join(told.get("devices") or ()) or "no CUDA device"
    return f"{told.get('version')}, {devices}, {told.get('threads')} threads"
