"""The paper's experiments, one module each, and their registry. A module has

plan(run, ...)      which models are to be trained and what each is for, where it trains any
summarize(...)      from runs, or from a plan and its trials, to a `Result`
draw(result)        the figure
draw_more(result)   further figures by what their names end with, if there are any
say(result)         the table and the lines that the command line prints
report(result, of)  the paragraphs of its section in the report of `reproduce`; without it, the title is shown there
HEADING, CAPTION    of that section and of its figure; without them, its line in `EXPERIMENTS` is used

`memfluence.experiment(NAME, RUN, ...)` plans, trains with any engine into a store of its own, summarizes and draws. The
parameters of `plan` and `summarize` are the options of `memfluence experiment NAME`, if they are in `HELP` or annotated
with their help. A name has an underscore as a module (`last_layer`) and a hyphen on the command line (`last-layer`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from memfluence.errors import InputError

if TYPE_CHECKING:
    from memfluence.experiments._result import Result, of_keep
    from memfluence.experiments.doing import Retraining

__all__ = ["EXPERIMENTS", "Result", "Retraining", "named", "of_keep"]

EXPERIMENTS = {  # in the order of the paper: name and what `memfluence experiment --help` says of it
    "map": "The long tail: classes from typical to memorized.",
    "examples": "Examples by memorization (Fig. 1).",
    "removal": "Accuracy without the memorized (Fig. 2).",
    "histogram": "Influence of the pairs (Fig. 3).",
    "utility": "What the examples in pairs are good for.",
    "pairs": "Pairs side by side (Figs. 4-6).",
    "consistency": "Do halves and runs agree (Fig. 7).",
    "thresholds": "Thresholds that halves agree on.",
    "last-layer": "Retrain the last layer alone (Fig. 8).",
    "loo": "Leaving one out beside random subsets (Sec. 4).",
    "long-tail": "The theory itself, on synthetic data.",
}
HELP = {  # parameters that several experiments have
    "dataset": "Where the data are, if the run does not say.",
    "infl": "Least influence.",
    "keep": "Which fraction, where the run has several.",
    "mem": "Least memorization of the training example.",
    "memory": "Most memory that estimates may take the process to, such as 2GB.",
    "permutations": "Permuted copies, for what chance gives.",
    "repeats": "Models for each point, all with seeds of their own.",
    "same_class": "Pairs of different classes, too.",
    "seed": "Root of all randomness.",
    "splits": "Random splits of the trials, for means and spread.",
}
_HOMES = {"Result": "_result", "Retraining": "doing", "of_keep": "_result"}


def named(name: str) -> Any:
    """The module of an experiment, by either spelling of its name."""
    if name.replace("_", "-") not in EXPERIMENTS:
        raise InputError(f"There is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}.")
    return import_module(f"{__name__}.{name.replace('-', '_')}")


def __getattr__(name: str) -> Any:
    """Modules and classes are imported when they are asked for."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name == "paper":
        return import_module("memfluence.paper")
    if name.replace("_", "-") in EXPERIMENTS:
        return named(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
