"""`compare`: two runs, a run and a published file, or the summary of a published file alone."""

from pathlib import Path
from typing import Any

import numpy as np

from memfluence.errors import RunMismatchError
from memfluence.exchange.published import Published, read_published
from memfluence.runs import Run, open_run
from memfluence.store import RUN_FILE

__all__ = ["compare"]


def compare(
    first: Run | Path | str,
    second: Run | Path | str | None = None,
    *,
    mem: float = 0.25,
    infl: float = 0.15,
    keep: float | None = None,
    memory: str | int | None = None,
) -> dict[str, Any]:
    """What two results have in common, as a JSON-able dict.

    Memorization: correlations, mean absolute difference, and the overlap of the sets at or above `mem`. Pairs: how
    many each side selects, how many both do, and for published pairs the influence and the rank that the run gives
    them. `memory` caps what the process may hold.
    """
    left, right = _operand(first), _operand(second) if second is not None else None
    if right is None:
        if isinstance(left, Run):
            found = left.find_pairs(mem, infl, keep=keep, permutations=0, memory=memory)
            return {"first": str(left.path), "summary": found.summary}
        return {"first": str(left.path), "summary": left.summary(), **_score_summary(left, mem)}
    if isinstance(left, Published) and isinstance(right, Run):
        left, right = right, left
    result: dict[str, Any] = {"first": str(left.path), "second": str(right.path)}
    _check_same_data(left, right)
    values = [_memorization(side, keep) for side in (left, right)]
    if values[0] is not None and values[1] is not None:
        result["memorization"] = _agreement(values[0], values[1], mem)
    pairs = [_pair_set(side, mem, infl, keep, memory) for side in (left, right)]
    if pairs[0] is not None and pairs[1] is not None:
        shared, either = pairs[0] & pairs[1], pairs[0] | pairs[1]
        result["pairs"] = {
            "first": len(pairs[0]),
            "second": len(pairs[1]),
            "shared": len(shared),
            "jaccard": len(shared) / len(either) if either else None,
        }
    if isinstance(left, Run) and isinstance(right, Published) and right.train_index is not None:
        result["published_pairs"] = _published_pairs(left, right, keep, memory)
    return result


def _operand(given: Run | Path | str) -> Run | Published:
    if isinstance(given, Run):
        return given
    path = Path(given)
    return open_run(path) if path.is_dir() or (path / RUN_FILE).exists() else read_published(path)


def _score_summary(published: Published, mem: float) -> dict[str, Any]:
    if published.memorization is None:
        return {}
    return {"n_train": len(published.memorization), "memorized": int((published.memorization >= mem).sum())}


def _check_same_data(left: Run | Published, right: Run | Published) -> None:
    """Labels, where both sides have them, must agree: a wrong order of the examples would go unnoticed otherwise."""
    labels_there, labels_here = _labels(left), _labels(right)
    if labels_there is not None and labels_here is not None:
        for split, there, here in zip(("training", "test"), labels_there, labels_here):
            if len(there) != len(here) or (there.astype(str) != here.astype(str)).any():
                raise RunMismatchError(
                    f"{left.path} and {right.path} are about different data: their {split} labels differ."
                )
    sizes = [_n_train(side) for side in (left, right)]
    if None not in sizes and sizes[0] != sizes[1]:
        raise RunMismatchError(
            f"{left.path} and {right.path} are about different data: {sizes[0]} and {sizes[1]} training examples."
        )
    if isinstance(left, Run) and isinstance(right, Published) and right.train_index is not None:
        train, test = right.train_index, right.test_index
        if len(train) and test is not None and (train.max() >= left.info.n_train or test.max() >= left.info.n_test):
            raise RunMismatchError(f"{right.path} names examples that {left.path} does not have.")
        codes = left.label_codes
        if test is not None and (differ := int((codes[0][train] != codes[1][test]).sum())):
            raise RunMismatchError(
                f"{right.path} pairs examples of one class, but {differ} of its pairs have two classes in {left.path};"
                " the data are others, or in another order."
            )


def _labels(side: Run | Published) -> tuple[np.ndarray, np.ndarray] | None:
    if isinstance(side, Run):
        return side.classes[side.label_codes[0]], side.classes[side.label_codes[1]]
    if side.train_labels is None or side.test_labels is None:
        return None
    return side.train_labels, side.test_labels


def _n_train(side: Run | Published) -> int | None:
    if isinstance(side, Run):
        return side.info.n_train
    return None if side.memorization is None else len(side.memorization)


def _memorization(side: Run | Published, keep: float | None) -> np.ndarray | None:
    return side.estimate_memorization(keep).value if isinstance(side, Run) else side.memorization


def _pair_set(
    side: Run | Published, mem: float, infl: float, keep: float | None, memory: str | int | None
) -> set[tuple[int, int]] | None:
    if isinstance(side, Run):
        found = side.find_pairs(mem, infl, keep=keep, permutations=0, memory=memory)
        return set(zip(found.train_index.tolist(), found.test_index.tolist()))
    if side.train_index is not None and side.test_index is not None:
        return set(zip(side.train_index.tolist(), side.test_index.tolist()))
    if side.memorization is None or not side.blocks:
        return None
    pairs: set[tuple[int, int]] = set()
    for train, test, values in side.blocks:
        hits = np.nonzero((values >= infl) & (side.memorization[train] >= mem)[:, None])
        pairs.update(zip(train[hits[0]].tolist(), test[hits[1]].tolist()))
    return pairs


def _agreement(first: np.ndarray, second: np.ndarray, mem: float) -> dict[str, Any]:
    from scipy.stats import spearmanr

    known = np.isfinite(first) & np.isfinite(second)
    a, b = first[known], second[known]
    sets = (a >= mem, b >= mem)
    either = int((sets[0] | sets[1]).sum())
    varies = len(a) > 1 and a.std() > 0 and b.std() > 0
    return {
        "examples": len(a),
        "pearson": float(np.corrcoef(a, b)[0, 1]) if varies else None,
        "spearman": float(spearmanr(a, b).statistic) if varies else None,
        "mean_absolute_difference": float(np.abs(a - b).mean()) if len(a) else None,
        "memorized_first": int(sets[0].sum()),
        "memorized_second": int(sets[1].sum()),
        "memorized_jaccard": int((sets[0] & sets[1]).sum()) / either if either else None,
    }


def _published_pairs(run: Run, published: Published, keep: float | None, memory: str | int | None) -> dict[str, Any]:
    """The influence that the run finds for published pairs, and how its rank among the class compares."""
    train, test = np.asarray(published.train_index), np.asarray(published.test_index)
    estimates, codes = run.influence_estimates(keep, memory=memory), run.label_codes
    influence = estimates.at(train, test).value
    ranks = []
    for j in np.unique(test):
        same_class = np.flatnonzero(codes[0] == codes[1][j])
        column = estimates.block(same_class, [j])[:, 0]
        for i in train[test == j]:
            ranks.append(1 + int((column > column[np.searchsorted(same_class, i)]).sum()))
    theirs = np.asarray(published.influence, dtype=float)
    varies = len(influence) > 1 and np.nanstd(influence) > 0 and theirs.std() > 0
    known = np.isfinite(influence)
    return {
        "pairs": len(train),
        "mean_influence_published": float(theirs.mean()) if len(theirs) else None,
        "mean_influence_here": float(np.nanmean(influence)) if known.any() else None,
        "correlation": float(np.corrcoef(theirs[known], influence[known])[0, 1]) if varies else None,
        "most_influential_of_class": int(sum(rank == 1 for rank in ranks)),
        "median_rank_in_class": float(np.median(ranks)) if ranks else None,
    }
