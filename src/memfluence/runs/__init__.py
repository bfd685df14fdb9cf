"""Runs: what one asks of trials on disk, as methods of `Run`."""

from memfluence.runs.run import Run, open_run
from memfluence.runs.status import about
from memfluence.runs.table import Table

__all__ = ["Run", "Table", "about", "open_run"]
