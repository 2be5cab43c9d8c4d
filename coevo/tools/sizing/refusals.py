"""What `coevo run` would refuse and a plan must not approve."""

from __future__ import annotations

from coevo.app.blueprint import Blueprint
from coevo.errors import UserError
from coevo.interfaces import ParameterUpdater
from coevo.tools.sizing.deployment import Deployment


def check_engines(blueprint: Blueprint, parameters: ParameterUpdater) -> None:
    """Refuse engines that cannot do what is asked, the one that a pool has inside among them.

    Raises:
        UserError: the first thing that is wrong.
    """
    config, registries = blueprint.config, blueprint.registries
    blueprint.check_needs(parameters)
    inner, options = blueprint.inner_engine()
    if "engine" not in [option.name for option in registries.engines.options(config.engine)]:
        return
    if inner == config.engine:
        raise UserError(
            f"{config.engine}.engine got {inner!r}: a pool is no worker; expected the engine that its workers run"
        )
    registries.engines.validate(inner, options)
    blueprint.changed(engine=inner).check_needs(parameters)


def check_cores(how: Deployment, cores: int) -> None:
    """Refuse more shards on the CPU than there are cores.

    Raises:
        UserError: how many there are.
    """
    if not how.on_gpu and how.shards > cores:
        raise UserError(
            f"tensor parallelism {how.shards}: on the CPU each worker needs a core and there are {cores}; "
            "set less, or plan for GPUs with --gpus N"
        )
