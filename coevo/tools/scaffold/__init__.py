"""First files of your own: a problem folder, a plugin."""

from coevo.tools.scaffold.writing import new_plugin, new_problem

__all__ = ["new_plugin", "new_problem"]
