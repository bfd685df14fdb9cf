"""The paper's experiments. Each is a module with `summarize(...)`, from trials to a `Result`; one that trains models of
its own also has `plan(...)`, which says which examples each model keeps and what it is for. Nothing here trains:
`memfluence.experiment(NAME, RUN, ...)` plans, runs with any engine into a store of its own, summarizes and draws.

A name has an underscore as a module (`last_layer`) and a hyphen on the command line (`last-layer`).
"""

from types import ModuleType

from memfluence import paper
from memfluence.errors import InputError
from memfluence.experiments import (
    consistency,
    examples,
    histogram,
    last_layer,
    long_tail,
    overview,
    pairs,
    removal,
    thresholds,
    utility,
)
from memfluence.experiments._result import Result
from memfluence.experiments._retraining import Retraining
from memfluence.experiments._splits import of_keep

__all__ = [
    "EXPERIMENTS",
    "Result",
    "Retraining",
    "consistency",
    "examples",
    "histogram",
    "last_layer",
    "long_tail",
    "named",
    "of_keep",
    "overview",
    "pairs",
    "paper",
    "removal",
    "thresholds",
    "utility",
]

EXPERIMENTS: dict[str, ModuleType] = {
    "examples": examples,
    "histogram": histogram,
    "pairs": pairs,
    "consistency": consistency,
    "thresholds": thresholds,
    "removal": removal,
    "utility": utility,
    "last-layer": last_layer,
    "long-tail": long_tail,
}


def named(name: str) -> ModuleType:
    """The module of an experiment, by either spelling of its name."""
    found = EXPERIMENTS.get(name.replace("_", "-"))
    if found is None:
        raise InputError(f"There is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}.")
    return found
