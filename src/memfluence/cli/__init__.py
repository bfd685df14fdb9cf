"""The command line: one thin layer over the public API."""

from memfluence.cli._app import main

__all__ = ["main"]
