"""Runs: what one asks of trials on disk, as methods of `Run`."""

from memfluence.runs.run import Run, open_run

__all__ = ["Run", "open_run"]
