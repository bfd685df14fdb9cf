"""Last layer (the paper's Fig. 8): is it enough to retrain the last layer alone?

Definition. A network is trained once, on all training examples. What its last layer is given is the representation of
an example, and linear models are then trained on random subsets of these representations, by the paper's recipe
(`linear@paper`: 40 epochs). Memorization and influence are estimated from them as from any trials and compared with
those of a run that retrained the whole network: Jaccard index and average difference over thresholds
(`findings/agreement.py`), with and without the constraint that the training example is memorized.

What it is not. THE REPRESENTATION HAS SEEN EVERY TRAINING EXAMPLE, so no linear model is blind to the examples that it
leaves out, and its estimates are not those of Algorithm 1. That is the point: the paper finds 38 memorized examples in
place of 18,099, 457 pairs without the constraint of which most look alike in nothing, and linear models that are as
good on 70% of the data (75.8 +- 0.1%) as the network on all (75.9%; on 70%: 72.3 +- 0.3%), at 1/720 of the cost. So
memorization happens before the last layer.

Variance. Accuracies have the spread over models. The network is one, so what another one would give is not in it. The
two sides may differ in their numbers of trials, and the one with fewer is noisier. What is said about memorization has
a jackknife's standard error over blocks of trials of both sides. Pairs have the number that permuted masks give; how
far other trials would move them is what the experiment `consistency` says.

Failure cases. Learners without a last linear layer cannot be asked.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators import memorization
from memfluence.experiments._checks import check_same_data, check_trials
from memfluence.experiments._result import Result, about
from memfluence.experiments._splits import of_keep
from memfluence.experiments._statistics import BLOCKS, jackknife, spread
from memfluence.findings.agreement import MEMORIZATION, Agreement, Part, agreement, influence_agreement
from memfluence.records import Trials
from memfluence.runs import Run
from memfluence.store import unpack

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NOTE", "plan", "summarize"]

NOTE = (
    "The representation has seen every training example, so these linear models are not blind to the examples that they"
    " leave out: this is what the last layer alone memorizes, and no cheaper estimate of what the network does."
)
INFLUENCE = np.arange(1, 41) / 100  # thresholds compared; lower than elsewhere, since the last layer has weak ones


def plan(run: Run, trials: int = 1000, *, seed: int = 0, keep: float | None = None) -> dict[str, Any]:
    """The design of the linear models: random subsets as large as the run's. Its masks follow from it."""
    check_trials(run)
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 20:
        raise InputError(f"The 'trials' parameter must be an integer >= 20. Got {trials!r} instead.")
    kept = [kind.keep for kind in run.info.kinds if kind.keep is not None]
    return {"design": "fixed", "keep": keep or (kept[0] if kept else 0.7), "trials": trials, "seed": seed}


def summarize(
    run: Run,
    linear: Run,
    network: Mapping[str, Any],
    *,
    mem: float = 0.25,
    infl: float = 0.15,
    same_class: bool = True,
    keep: float | None = None,
) -> Result:
    """Estimates of `run` against those of `linear`, whose inputs are what the last layer of `network` is given.

    `network` says what that network was: learner, test_accuracy, train_accuracy, features.
    """
    for one in (run, linear):
        check_trials(one)
    check_same_data(run, linear, same_inputs=False)  # those of the linear models are representations
    sides = {"network": (run, keep), "linear": (linear, None)}
    memorized = {name: side.estimate_memorization(kept).value for name, (side, kept) in sides.items()}
    estimates = {name: side.influence_estimates(kept) for name, (side, kept) in sides.items()}
    known = [~np.isnan(values) for values in memorized.values()]
    part = Part(memorized["network"], memorized["linear"], np.asarray(True), np.asarray(True))
    levels = np.union1d(INFLUENCE, [infl])
    curves = {"memorization": agreement([part], MEMORIZATION)}
    for name, allowed in (
        ("influence of memorized", tuple(values >= mem for values in memorized.values())),
        ("influence", (known[0], known[1])),
    ):
        curves[name] = influence_agreement(
            estimates["network"],
            estimates["linear"],
            (allowed[0], allowed[1]),
            *run.label_codes,
            levels,
            same_class=same_class,
        )
    stderr = _jackknifed(sides, mem)
    numbers: dict[str, Any] = {
        "note": NOTE,
        "representation": dict(network),
        "speedup": _seconds(run, keep) / _seconds(linear, None),  # of one model
        "memorized": {**_counts(agreement([part], [mem])), "stderr": stderr},
        **{
            name: {**_side(of_keep(side, kept), memorized[name], mem), "memorized_stderr": stderr[name]}
            for name, (side, kept) in sides.items()
        },
        "pairs": {
            name: {
                **_pairs(sides, least, infl, same_class),
                "agreement": {"threshold": infl, **_counts(curves[curve], int(np.searchsorted(levels, infl)))},
            }
            for name, curve, least in (("memorized", "influence of memorized", mem), ("any", "influence", -1.0))
        },
    }
    settings = {"mem": mem, "infl": infl, "same_class": same_class, "keep": keep}
    title = f"{about(run.info)}; {len(of_keep(run, keep)):,} networks, {len(linear.trials):,} linear models"
    return Result("last-layer", title, numbers, _table(curves), settings)


def _side(trials: Trials, memorized: np.ndarray, mem: float) -> dict[str, Any]:
    accuracy = unpack(trials.test_correct, trials.n_test).mean(axis=1)  # (trials,)
    return {
        "trials": len(trials),
        "test_accuracy": spread(accuracy),
        "memorized": int((memorized >= mem).sum()),
        "largest_memorization": float(np.nanmax(memorized)),
    }


def _seconds(run: Run, keep: float | None) -> float:
    """Of one model with this keep fraction, as it was measured; NaN where it was not."""
    scan = run.store.scan(["seconds"])
    seconds = (scan.details or {}).get("seconds", np.empty(0))  # (trials,)
    known = seconds[np.isin(scan.numbers, of_keep(run, keep).numbers) & np.isfinite(seconds)] if len(seconds) else ()
    return float(np.mean(known)) if len(known) else float("nan")


def _jackknifed(sides: Mapping[str, tuple[Run, float | None]], mem: float) -> dict[str, float]:
    """Standard errors of `_counts` of the memorized, from leaving out a block of trials of both sides at a time."""
    found = []
    for block in range(BLOCKS):
        values = []
        for run, keep in sides.values():
            trials = run.trials  # dealt out in whole clusters, since only those are independent
            left = trials.select(trials.numbers // trials.cluster % BLOCKS != block)
            values.append(memorization(left, run.info.kinds, keep).value)
        found.append(_counts(agreement([Part(values[0], values[1], np.asarray(True), np.asarray(True))], [mem])))
    return {name: jackknife([one[name] for one in found]) for name in found[0]}


def _pairs(sides: Mapping[str, tuple[Run, float | None]], mem: float, infl: float, same_class: bool) -> dict[str, Any]:
    """How many pairs each side selects, and how many it would by chance."""
    found: dict[str, Any] = {}
    for name, (run, keep) in sides.items():
        pairs = run.find_pairs(mem, infl, same_class=same_class, keep=keep)
        found[name] = {
            "pairs": len(pairs),
            "by_chance": {"mean": pairs.expected_by_chance, "sd": pairs.by_chance_spread},
        }
    return found


def _counts(found: Agreement, k: int = 0) -> dict[str, Any]:
    return {
        "network": int(found.first[k]),
        "linear": int(found.second[k]),
        "shared": int(found.shared[k]),
        "jaccard": float(found.jaccard[k]),
        "average_difference": float(found.difference[k]),
    }


def _table(curves: Mapping[str, Agreement]) -> "pd.DataFrame":
    import pandas as pd

    columns = ("first", "second", "shared", "jaccard", "difference")
    rows = [
        {"quantity": name, "threshold": threshold, **{column: getattr(one, column)[k] for column in columns}}
        for name, one in curves.items()
        for k, threshold in enumerate(one.thresholds.tolist())
    ]
    return pd.DataFrame(rows).rename(columns={"first": "network", "second": "linear"})
