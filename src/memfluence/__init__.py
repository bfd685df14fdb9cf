"""memfluence: which training examples a learning algorithm memorizes, and which test predictions each of them carries.

    import memfluence as mf

    run = mf.run("digits", learner="mlp", trials=2000, out="runs/digits")
    run.memorization()          # one row per training example
    run.pairs()                 # memorized training examples and the test examples they carry

After Feldman & Zhang (2020), "What Neural Networks Memorize and Why". Nothing heavy is imported until it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memfluence import datasets, designs, experiments
    from memfluence import report as report
    from memfluence.datasets import Dataset
    from memfluence.errors import MemfluenceError, MemfluenceWarning
    from memfluence.exchange import compare, export_for, export_published, export_trials, import_trials
    from memfluence.experiments.doing import experiment
    from memfluence.experiments.reproduce import reproduce
    from memfluence.learners.network import network
    from memfluence.runs import Run
    from memfluence.runs import open_run as open
    from memfluence.runs.making import run
    from memfluence.runs.scanning import scan_on_ray
    from memfluence.runs.values import c_scores, datamodels, judge, profile, values
    from memfluence.store.upkeep import compact, merge, repair, verify
    from memfluence.training.planning import plan

__version__ = "0.1.0"

__all__ = [
    "Dataset",
    "MemfluenceError",
    "MemfluenceWarning",
    "Run",
    "c_scores",
    "compact",
    "compare",
    "datamodels",
    "datasets",
    "designs",
    "experiment",
    "experiments",
    "export_for",
    "export_published",
    "export_trials",
    "import_trials",
    "judge",
    "merge",
    "network",
    "open",
    "plan",
    "profile",
    "repair",
    "reproduce",
    "run",
    "scan_on_ray",
    "values",
    "verify",
]

_HOMES = {
    "Dataset": "datasets",
    "MemfluenceError": "errors",
    "MemfluenceWarning": "errors",
    "Run": "runs",
    "c_scores": "runs.values",
    "compact": "store.upkeep",
    "compare": "exchange",
    "datamodels": "runs.values",
    "experiment": "experiments.doing",
    "export_for": "exchange",
    "export_published": "exchange",
    "export_trials": "exchange",
    "import_trials": "exchange",
    "judge": "runs.values",
    "merge": "store.upkeep",
    "network": "learners.network",
    "open": "runs",
    "plan": "training.planning",
    "profile": "runs.values",
    "repair": "store.upkeep",
    "reproduce": "experiments.reproduce",
    "run": "runs.making",
    "scan_on_ray": "runs.scanning",
    "values": "runs.values",
    "verify": "store.upkeep",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        module = import_module(f"memfluence.{_HOMES[name]}")
        return getattr(module, "open_run" if name == "open" else name)
    if name in ("datasets", "designs", "experiments", "report"):
        return import_module(f"memfluence.{name}")
    raise AttributeError(f"module 'memfluence' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
