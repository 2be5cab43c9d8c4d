"""Which packages an engine needs: the extras of its distribution that have its name."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from dataclasses import dataclass

from coevo.host.discovery import Plugins, Registries
from coevo.machine import resources as machine
from coevo.tools.doctor.checks import Check
from coevo.tools.doctor.system import Installed, installed

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


@dataclass(frozen=True, slots=True)
class Needs:
    """What one engine needs.

    Attributes:
        distribution: what brings it.
        extras: packages by extra; an engine needs one of them whole. Empty: none is declared.
    """

    engine: str
    distribution: str
    extras: dict[str, list[str]]

    @property
    def packages(self) -> set[str]:
        """Every package of any of its extras."""
        return {package for packages in self.extras.values() for package in packages}

    def check(self, chosen: bool, version_of: Installed = installed) -> Check:
        """Whether one of the extras is installed."""
        name = f"engine {self.engine}"
        lacking = {extra: [p for p in packages if not version_of(p)] for extra, packages in self.extras.items()}
        whole = [extra for extra, missing in lacking.items() if not missing]
        if whole or not lacking:
            found = f"installed ({self.distribution}[{whole[0]}])" if whole else "needs no extra"
            return Check(name, "ok", found, data={"missing": []})
        # Where nothing is nearer, the extra for this kind of machine: an engine may have one for the CPU.
        on_cpu = not machine.gpus()
        extra, missing = min(lacking.items(), key=lambda item: (item[0].endswith("-cpu") != on_cpu, len(item[1])))
        mend = f"pip install '{self.distribution}[{extra}]'"
        found = f"cannot run: {', '.join(missing)} not installed"
        return Check(name, "failure" if chosen else "warning", found, mend, {"missing": missing})


def requirements(lines: Iterable[str]) -> dict[str, list[str]]:
    """Packages by extra, of a distribution's `Requires-Dist` lines."""
    found: dict[str, list[str]] = {}
    for line in lines:
        name, extra = _NAME.match(line), _EXTRA.search(line)
        if name and extra:
            found.setdefault(extra[1], []).append(name[1])
    return found


def needs(plugins: Plugins, registries: Registries) -> list[Needs]:
    """For every registered engine: what its distribution says that it needs."""
    sources = {plugin.name: plugin.source for plugin in plugins.found}
    found: list[Needs] = []
    for entry in registries.engines:
        distribution = sources.get(entry.plugin, "").rpartition(" ")[0]
        every = requirements(_requires(distribution))
        extras = {
            extra: packages
            for extra, packages in every.items()
            if extra == entry.name or extra.startswith(f"{entry.name}-")
        }
        found.append(Needs(entry.name, distribution or "its plugin", extras))
    return found


def _requires(distribution: str) -> list[str]:
    """Its lines; a plugin from a file has none."""
    try:
        return importlib.metadata.requires(distribution) or [] if distribution else []
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return []
