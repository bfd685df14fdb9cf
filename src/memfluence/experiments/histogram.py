"""Influence of selected pairs (the paper's Fig. 3): how strong are they, how many are there, how many are chance?

Definition (Sec. 3.3). The histogram of the influence of all high-influence pairs (`findings/pairs.py`), with the
paper's counts: pairs, their training and test examples, and test examples that are in one pair only. In Sec. 3.4 the
paper adds that more than 80% of the influences are below 0.4, and that those above almost always belong to
near-duplicates.

By chance. The same histogram from masks that are dealt out anew, mean and standard deviation over permutations. What
stands above it is more than noise. Below it is the noise that any such selection holds: values near the threshold are
biased upwards, and many of them may be no pairs at all.

Failure cases. No pair reaches the thresholds: an error that says so.
"""

from typing import Any

import numpy as np

from memfluence.errors import InputError
from memfluence.experiments._checks import check_trials
from memfluence.experiments._result import Result, about
from memfluence.experiments._statistics import spread
from memfluence.findings.pairs import influences_by_chance
from memfluence.runs import Run

__all__ = ["STRONG", "binned", "summarize"]

BINS_PER_UNIT = 40  # so that 0.15 and 0.4 are edges
STRONG = 0.4  # from here on the paper sees near-duplicates


def summarize(
    run: Run,
    *,
    mem: float = 0.25,
    infl: float = 0.15,
    same_class: bool = True,
    permutations: int = 5,
    resamples: int = 0,
    keep: float | None = None,
    seed: int = 0,
    memory: str | int | None = None,
) -> Result:
    """The histogram in bins of 0.025, with what chance gives in each.

    With `resamples` also how far the number of pairs varies from run to run (`findings/stability.py`).
    """
    import pandas as pd

    check_trials(run)
    selection: dict[str, Any] = {"same_class": same_class, "keep": keep, "memory": memory}
    pairs = run.find_pairs(mem, infl, permutations=0, **selection)
    if not len(pairs):
        raise InputError(f"There is no histogram to draw. {pairs.warning}")
    chance = influences_by_chance(
        run.trials,
        run.info.kinds,
        *run.label_codes,
        mem=mem,
        infl=infl,
        permutations=permutations,
        seed=seed,
        **selection,
    )
    first = min(np.floor(infl * BINS_PER_UNIT + 1e-9), BINS_PER_UNIT - 1)
    edges = np.arange(first, BINS_PER_UNIT + 1) / BINS_PER_UNIT  # (bins + 1,)
    if edges[0] < infl < edges[1]:
        edges[0] = infl  # no bin holds what was not selected
    by_chance = np.array([binned(values, edges) for values in chance]).reshape(len(chance), len(edges) - 1)
    table = pd.DataFrame(
        {
            "from": edges[:-1],
            "to": edges[1:],
            "pairs": binned(pairs.influence, edges),
            "by_chance": by_chance.mean(axis=0) if len(chance) else np.nan,
            "by_chance_sd": by_chance.std(axis=0, ddof=1) if len(chance) > 1 else np.nan,
        }
    )
    numbers = {
        **pairs.summary,
        "test_share": pairs.summary["test_examples"] / run.info.n_test,
        "share_below_strong": float((pairs.influence < STRONG).mean()),
        "mean_influence": float(pairs.influence.mean()),
        "by_chance": spread([len(values) for values in chance]),
        "by_chance_strong": spread([int((values >= STRONG).sum()) for values in chance]),
    }
    if resamples:
        stability = run.pair_stability(mem, infl, same_class=same_class, keep=keep, resamples=resamples, seed=seed)
        numbers["pairs_stderr"] = stability.pairs_stderr
    settings = {"mem": mem, "infl": infl, "permutations": permutations, "seed": seed, **selection}
    title = f"{about(run.info)}, {len(run.trials):,} models; memorization >= {mem:g}, influence >= {infl:g}"
    return Result("histogram", title, numbers, table, settings)


def binned(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How many values lie in each bin, (bins,) int64. A bin holds its lower edge; the last one also holds the upper."""
    bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return np.bincount(bins, minlength=len(edges) - 1)
