"""What every Protocol promises, method by method: what a plugin's object gave is checked here and nowhere else.

A broken promise is a `PluginError` that ends the run, which can be resumed. What a method raises is one too, but where
the failure of one rollout is data (`judge_error`, `engine_error`).
"""

from coevo.host.contracts.engines import engine
from coevo.host.contracts.tasks import task
from coevo.host.contracts.updaters import context_updater, parameter_updater

__all__ = ["context_updater", "engine", "parameter_updater", "task"]
