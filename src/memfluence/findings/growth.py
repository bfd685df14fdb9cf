"""Growth: the number of trials that a standard error, repeatable pairs or few pairs by chance take.

Definition. The least number of trials, of the same kind as those at hand, with which
- `stderr`: the standard error of memorization (its median and its largest value over training examples) and of the
  influence of the pairs selected now is at most the target;
- `jaccard`: two independent runs select pairs with at least this Jaccard index, at the same thresholds;
- `fdr`: pairs by chance (permuted masks) are at most this share of the pairs selected, at the same thresholds.

Estimator. A squared standard error falls as 1 / trials, and is at most 1 / (4 keep (1 - keep) trials) once the arms are
as large as the design makes them: an example that few of the trials at hand left out will be left out more often.
Targets that are met already take the trials at hand. The other two come from `findings/prediction.py`.

Beside them stands what the paper's Lemma says of independent trials of the design `lemma` with as large subsets: after
how many the root mean squared error of every single estimate is below the target, whatever the learner. It is much
more, because it knows nothing of the data, and it says nothing about sets of pairs. `lemma_applies` says whether the
trials at hand are of that design; of any other the Lemma says nothing. Models that share a mask count once in
`lemma_design_stderr`: as many trials of the design `lemma` as there are masks.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators import Arms, Influence, Memory, arms, lemma_bound, lemma_trials, memorization_of
from memfluence.findings._selection import tested_blocks
from memfluence.findings.prediction import fit_pairs
from memfluence.records import Kind, Trials


def trials_needed(
    trials: Trials,
    kinds: Sequence[Kind],
    train_labels: np.ndarray,  # (n_train,)
    test_labels: np.ndarray,  # (n_test,)
    *,
    stderr: float | None = None,
    jaccard: float | None = None,
    fdr: float | None = None,
    mem: float = 0.25,
    infl: float = 0.15,
    same_class: bool = True,
    keep: float | None = None,
    memory: str | int | Memory | None = None,
) -> dict[str, Any]:
    """The trials that each target takes, and what multiples of those at hand should give, as a JSON-able dict."""
    for name, target in (("stderr", stderr), ("jaccard", jaccard), ("fdr", fdr)):
        if target is not None and not 0 < target < 1:
            raise InputError(f"The target '{name}' must be above 0 and below 1. Got {target!r} instead.")
    chosen, cap = arms(trials, kinds, keep), Memory.of(memory)
    count = len(chosen.in_trials) + (0 if chosen.shared else len(chosen.out_trials))
    blocks = list(tested_blocks(np.arange(chosen.n_train), train_labels, test_labels, same_class))
    model = fit_pairs(chosen, blocks, mem=mem, infl=infl, memory=cap)
    size = _subset_size(chosen, kinds, model.kept_share)
    masks = _independent_masks(chosen)
    targets: dict[str, Any] = {}
    if stderr is not None:
        targets["stderr"] = {
            "target": stderr,
            **_for_stderr(Influence(chosen, memory=cap), blocks, stderr, count, mem, infl, model.variance_at_most),
            "lemma_design_trials": lemma_trials(size / chosen.n_train, stderr),
        }
    if jaccard is not None:
        needed = model.trials_for(jaccard=jaccard)
        targets["jaccard"] = {"target": jaccard, "expected_now": model.predict(count).jaccard, "trials": needed}
    if fdr is not None:
        needed = model.trials_for(chance_share=fdr)
        targets["fdr"] = {"target": fdr, "expected_now": model.predict(count).chance_share, "trials": needed}
    for found in targets.values():
        found["more"] = None if found["trials"] is None else max(0, found["trials"] - count)
    predictions = []
    for times in (1, 2, 4, 8, 16):
        expected = model.predict(times * count)
        predictions.append(
            {
                "trials": expected.trials,
                "pairs": expected.pairs,
                "jaccard": expected.jaccard,
                "by_chance": expected.by_chance,
                "lemma_design_stderr": math.sqrt(lemma_bound(chosen.n_train, size, times * masks)) if masks else None,
            }
        )
    return {
        "trials": count,
        "masks": masks,
        "lemma_applies": _lemma_applies(chosen, kinds),
        "mem": mem,
        "infl": infl,
        "targets": targets,
        "predictions": predictions,
    }


def _for_stderr(
    estimates: Influence, blocks: Sequence[Any], target: float, count: int, mem: float, infl: float, at_most: float
) -> dict[str, Any]:
    """`at_most`: the largest variance that an estimate can have, times trials, with the expected number in each arm."""
    memorized = memorization_of(estimates.arms)
    errors = memorized.stderr[np.isfinite(memorized.stderr)]
    tested = [(np.intersect1d(some, np.flatnonzero(memorized.value >= mem)), columns) for some, columns in blocks]
    of_pairs = estimates.at(*estimates.at_least(infl, tested)).stderr

    def needed(error: float) -> int:
        return math.ceil(min(count * error**2, at_most) / target**2)

    now = {
        "memorization_median": float(np.median(errors)) if len(errors) else float("nan"),
        "memorization_largest": float(errors.max()) if len(errors) else float("nan"),
        "pairs_largest": float(of_pairs.max()) if len(of_pairs) else float("nan"),
    }
    largest = max((value for value in now.values() if not math.isnan(value)), default=float("nan"))
    return {
        "expected_now": largest,
        "now": now,
        "trials_for": {name: None if math.isnan(value) else needed(value) for name, value in now.items()},
        "trials": None if math.isnan(largest) else needed(largest),
    }


def _independent_masks(chosen: Arms) -> int:
    """Models that share a mask count once; where the arms have their own trials, twice the smaller arm."""
    in_arm, out_arm = (len(np.unique(part.numbers // part.repeats)) for part in (chosen.in_trials, chosen.out_trials))
    return in_arm if chosen.shared else 2 * min(in_arm, out_arm)


def _subset_size(chosen: Arms, kinds: Sequence[Kind], kept_share: float) -> int:
    """The Lemma's m, or about as many as the trials keep."""
    sizes = [kind.subset_size for kind in kinds if kind.keep == chosen.keep and kind.arm in ("both", "in")]
    size = sizes[0] if sizes and sizes[0] is not None else round(kept_share * chosen.n_train)
    return min(max(1, size), chosen.n_train - 1)


def _lemma_applies(chosen: Arms, kinds: Sequence[Kind]) -> bool:
    """True if these are independent trials of m and of m - 1 examples."""
    sizes = {kind.arm: kind.subset_size for kind in kinds if kind.keep == chosen.keep}
    in_size, out_size = sizes.get("in"), sizes.get("out")
    if in_size is None or out_size is None:
        return False
    return in_size - out_size == 1 and chosen.in_trials.cluster == 1
