"""The paper's numbers as data: every number with what it is and where it stands, to be printed beside ours.

Feldman & Zhang (2020), "What Neural Networks Memorize and Why", arXiv:2008.03703. Curves that are only drawn there
(Figs. 2, 7 and 8) have no numbers here but those that the text reads off. A name begins with the experiment that gives
the same number for a run, and goes on with where it stands in `Result.numbers` (`ours` looks it up): a dot for each
step. Names that begin with `run` are about the trials themselves.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from memfluence.errors import InputError

MEMORIZED, INFLUENCE = 0.25, 0.15  # least memorization and influence of the paper's high-influence pairs (Sec. 2)

Data = Literal["mnist", "cifar100", "imagenet"]
DATASETS: tuple[Data, ...] = ("mnist", "cifar100", "imagenet")


class HasNumbers(Protocol):
    """The result of an experiment, as far as `ours` reads it."""

    @property
    def name(self) -> str: ...

    @property
    def numbers(self) -> Any: ...


@dataclass(frozen=True)
class Reported:
    """One number of the paper. Accuracies and shares are fractions, not percent."""

    name: str  # EXPERIMENT.place.in.its.numbers
    value: float
    what: str
    where: str  # section, figure or appendix
    # The ± that the paper gives over `runs`. It does not say what it is: that of 2.54 ± 0.2 is less than a difference
    # of single runs of 76.06 ± 0.28 and 73.52 ± 0.25 has (0.38), and far more than the error of their means (0.04).
    spread: float | None = None
    runs: int | None = None
    bound: Literal["about", "at least", "more than", "less than"] | None = None  # where the paper gives no exact number


_THRESHOLDS = (
    Reported("run.mem", 0.25, "threshold on memorization", "Sec. 2"),
    Reported("run.infl", 0.15, "threshold on influence", "Sec. 2"),
    Reported("run.keep", 0.7, "share of the training set that each model keeps", "Sec. 2"),
)

_BELOW = Reported(
    "histogram.share_below_strong",
    0.8,
    "share of the influences of selected pairs below 0.4",
    "Sec. 3.4",
    bound="more than",
)

PAPER: dict[Data, tuple[Reported, ...]] = {
    "mnist": (
        *_THRESHOLDS,
        Reported("run.trials", 4000, "models trained", "Sec. 2"),
        Reported("histogram.pairs", 35, "pairs selected", "Sec. 3.3"),
        Reported("histogram.test_examples", 33, "test examples in these pairs", "Sec. 3.3"),
        Reported("histogram.test_share", 0.0033, "share of the test set in these pairs", "Sec. 3.3"),
        Reported("histogram.single_test_examples", 31, "test examples that are in one pair only", "Sec. 3.3"),
        _BELOW,
        Reported("removal.accuracy.n", 100, "models for each point of the removal curve", "Fig. 2"),
    ),
    "cifar100": (
        *_THRESHOLDS,
        Reported("run.trials", 4000, "models trained", "Sec. 2"),
        Reported("run.test_accuracy", 0.723, "test accuracy, trained on 70%", "Sec. 3.6", spread=0.003, runs=4000),
        Reported("run.accuracy_whole", 0.76, "test accuracy, trained on all", "App. B", bound="about"),
        Reported("run.memorized", 18_099, "training examples with memorization >= 0.25", "Sec. 3.6"),
        Reported("histogram.pairs", 1015, "pairs selected", "Sec. 3.3"),
        Reported("histogram.test_examples", 888, "test examples in these pairs", "Sec. 3.3"),
        Reported("histogram.test_share", 0.0888, "share of the test set in these pairs", "Sec. 3.3"),
        Reported("histogram.single_test_examples", 774, "test examples that are in one pair only", "Sec. 3.3"),
        _BELOW,
        Reported("removal.accuracy.n", 100, "models for each point of the removal curve", "Fig. 2"),
        Reported("utility.test.accuracy", 0.7606, "test accuracy, trained on all", "Sec. 3.3", spread=0.0028, runs=100),
        Reported(
            "utility.test.accuracy_without",
            0.7352,
            "test accuracy without the training examples in pairs",
            "Sec. 3.3",
            spread=0.0025,
            runs=100,
        ),
        Reported(
            "utility.test.difference", 0.0254, "what they add to the test accuracy", "Sec. 3.3", spread=0.002, runs=100
        ),
        Reported(
            "utility.influenced.accuracy",
            0.7214,
            "accuracy on the test examples in pairs, trained on all",
            "Sec. 3.3",
            spread=0.0132,
            runs=100,
        ),
        Reported(
            "utility.influenced.accuracy_without",
            0.4538,
            "accuracy on the test examples in pairs, without the training examples in pairs",
            "Sec. 3.3",
            spread=0.0145,
            runs=100,
        ),
        Reported(
            "utility.influenced.contribution",
            0.0238,
            "what the test examples in pairs contribute to the difference",
            "Sec. 3.3",
            spread=0.0017,
            runs=100,
        ),
        Reported("consistency.trials_each", 2000, "models on each side", "Sec. 2"),
        Reported("consistency.lines.0.same_class.0.first", 1095, "pairs from one half of the trials", "Sec. 2"),
        Reported("consistency.lines.0.same_class.0.second", 1062, "pairs from the other half", "Sec. 2"),
        Reported(
            "consistency.lines.0.same_class.0.found_again",
            0.82,
            "share of each set that is in the other",
            "Sec. 2",
            bound="about",
        ),
        Reported(
            "consistency.lines.0.same_class.0.jaccard",
            0.7,
            "Jaccard index at influence 0.15",
            "Sec. 2",
            bound="at least",
        ),
        Reported(
            "consistency.lines.0.any_class.1.difference",
            0.015,
            "average difference of influence at a threshold of 0.1",
            "Sec. 3.5",
            bound="less than",
        ),
        Reported("thresholds.jaccard", 0.7, "Jaccard index that the threshold was to reach", "Sec. 2"),
        Reported("thresholds.infl", 0.15, "threshold on influence chosen by it", "Sec. 2"),
        Reported("last-layer.linear.trials", 4000, "linear models trained", "Sec. 3.6"),
        Reported(
            "last-layer.linear.test_accuracy",
            0.758,
            "test accuracy of linear models",
            "Sec. 3.6",
            spread=0.001,
            runs=4000,
        ),
        Reported(
            "last-layer.representation.test_accuracy", 0.759, "test accuracy of the network behind them", "Sec. 3.6"
        ),
        Reported("last-layer.linear.memorized", 38, "memorization >= 0.25, from linear models", "Sec. 3.6"),
        Reported(
            "last-layer.pairs.any.linear.pairs",
            457,
            "pairs from linear models, whatever the memorization",
            "Sec. 3.6",
        ),
        Reported(
            "last-layer.network.test_accuracy",
            0.723,
            "test accuracy of networks, trained on 70%",
            "Sec. 3.6",
            spread=0.003,
            runs=4000,
        ),
        Reported("last-layer.network.memorized", 18_099, "training examples with memorization >= 0.25", "Sec. 3.6"),
        Reported("last-layer.speedup", 720, "how many times faster a linear model is trained", "Sec. 3.6"),
    ),
    "imagenet": (
        *_THRESHOLDS,
        Reported("run.trials", 2000, "models trained", "Sec. 2"),
        Reported("run.accuracy_whole", 0.73, "test accuracy, trained on all", "App. B", bound="about"),
        Reported("histogram.pairs", 1641, "pairs selected", "Sec. 3.3"),
        Reported("histogram.test_examples", 1462, "test examples in these pairs", "Sec. 3.3"),
        Reported("histogram.test_share", 0.0292, "share of the test set in these pairs", "Sec. 3.3"),
        Reported("histogram.single_test_examples", 1298, "test examples that are in one pair only", "Sec. 3.3"),
        _BELOW,
        Reported("removal.accuracy.n", 5, "models for each point of the removal curve", "Fig. 2"),
        Reported(
            "removal.memorized.share", 0.32, "share of examples with memorization >= 0.3", "Sec. 1.1", bound="about"
        ),
        Reported("removal.memorized.cost", 0.034, "test accuracy lost by removing them", "Sec. 1.1", bound="about"),
        Reported(
            "removal.memorized.cost_random",
            0.026,
            "test accuracy lost by removing as many at random",
            "Sec. 1.1",
            bound="about",
        ),
    ),
}


def reported(dataset: str, name: str | None = None) -> dict[str, Reported]:
    """The paper's numbers for a dataset by name; only those of one experiment, if it is given."""
    if dataset not in PAPER:
        raise InputError(f"The paper has no results for {dataset!r}; it has them for {', '.join(DATASETS)}.")
    found = PAPER[dataset]
    return {one.name: one for one in found if name is None or one.name.partition(".")[0] == name}


def ours(one: Reported, result: HasNumbers) -> dict[str, Any] | None:
    """The answer of a result to a number of the paper: `mean`, and `sd` or `stderr` and `n` where it gives a spread.

    None if it has nothing, is that of another experiment, or could not estimate the number.
    """
    experiment, *steps = one.name.split(".")
    if experiment != result.name:
        return None
    found: Any = result.numbers
    beside: Any = {}
    for step in steps:
        try:
            beside, found = found, found[int(step) if step.isdigit() else step]
        except (KeyError, IndexError, TypeError):
            return None
    spread = found if isinstance(found, dict) else {"mean": found}
    if isinstance(beside, dict) and f"{steps[-1]}_stderr" in beside:
        spread = {**spread, "stderr": beside[f"{steps[-1]}_stderr"]}
    known = spread.get("mean") is not None and not math.isnan(spread["mean"])
    return spread if known else None
