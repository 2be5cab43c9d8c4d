"""The command line: `coevo`. `build_app` takes the plugins, so that a test can bring its own."""

from coevo.cli.application import build_app, main

__all__ = ["build_app", "main"]
