"""Comparing two results, each a run, a published file or a table of ours, or the summary of one alone."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.errors import InputError, MemfluenceWarning, RunMismatchError
from memfluence.estimators import Influence, RealInfluence
from memfluence.exchange.c_scores import ceilings, correlations
from memfluence.exchange.finding_again import FoundAgain, found_again
from memfluence.exchange.published import Published, read_published
from memfluence.findings import Pairs
from memfluence.findings.agreement import INFLUENCE, MEMORIZATION, Agreement, Part, agreement, influence_agreement
from memfluence.runs import Run, open_run
from memfluence.runs.values import check_bits
from memfluence.store import RUN_FILE, locate, other_inputs
from memfluence.wording import learner_name

DEFAULT_INFL = 0.15  # at which pairs are selected, and lists of them cut
Side = Run | Published


@dataclass(frozen=True, eq=False)
class Comparison:
    """A comparison of two results: a JSON-able document, and the arrays that its figure shows."""

    document: dict[str, Any]
    memorization: tuple[np.ndarray, np.ndarray] | None = None  # (examples,) each, where both have an estimate
    influence: tuple[np.ndarray, np.ndarray] | None = None  # (pairs,) each, of pairs that either side selects
    curves: dict[str, Agreement] = field(default_factory=dict)  # "memorization" and "influence", over thresholds
    published: FoundAgain | None = None  # published pairs, and what the run says about each
    c_scores: tuple[np.ndarray, np.ndarray] | None = None  # (examples,) each: 1 - C-score, and memorization
    learners: tuple[str, str] = ("", "")  # of both sides, as a reader calls them; empty for a file


@dataclass(frozen=True)
class _Asked:
    """The thresholds and the rule by which pairs are selected, the fraction that is compared, and a cap on memory."""

    mem: float
    infl: float
    same_class: bool
    keep: float | None
    memory: str | int | None

    def pairs(self, run: Run) -> Pairs:
        check_bits(run)  # the thresholds are of accuracies
        options: dict[str, Any] = {"same_class": self.same_class, "keep": self.keep, "memory": self.memory}
        return run.find_pairs(self.mem, self.infl, permutations=0, **options)

    def influence(self, run: Run) -> Influence | RealInfluence:
        return run.influence_estimates(self.keep, memory=self.memory)

    def memorized(self, side: Side) -> np.ndarray:
        """Which training examples are memorized, (n_train,) bool."""
        return np.asarray(_memorization(side, self.keep)) >= self.mem


def compare(
    first: Run | Path | str,
    second: Run | Path | str | None = None,
    *,
    mem: float = 0.25,
    infl: float = 0.15,
    same_class: bool = True,
    keep: float | None = None,
    memory: str | int | None = None,
) -> dict[str, Any]:
    """Compare two results, and give what they have in common as a JSON-able dict.

    Memorization: correlations, mean absolute difference, and the overlap of the sets at or above `mem`. Pairs: how
    many each side selects, how many both do, and for published pairs which of them the run selects too, the influence
    and the rank that it gives them, and their mean influence with its standard error. Published C-scores: the
    correlations of memorization with one minus them, and the highest that the trials' noise allows. `curves` has the
    Jaccard index and the average difference over thresholds. `same_class=False` also takes pairs of two classes.
    `memory` caps what the process may hold.
    """
    return compared(first, second, mem=mem, infl=infl, same_class=same_class, keep=keep, memory=memory).document


def compared(
    first: Run | Path | str,
    second: Run | Path | str | None = None,
    *,
    mem: float = 0.25,
    infl: float = 0.15,
    same_class: bool = True,
    keep: float | None = None,
    memory: str | int | None = None,
) -> Comparison:
    """The same with the arrays behind it, for figures."""
    asked = _Asked(mem, infl, same_class, keep, memory)
    left, right = _operand(first), _operand(second) if second is not None else None
    if right is None:
        if isinstance(left, Run):
            return Comparison({"first": str(left.path), "summary": asked.pairs(left).summary})
        return Comparison({"first": str(left.path), "summary": left.summary(), **_score_summary(left, mem)})
    if isinstance(left, Published) and (isinstance(right, Run) or left.c_scores is not None):
        left, right = right, left
    document: dict[str, Any] = {"first": str(left.path), "second": str(right.path), **_sizes(left, right, asked)}
    _check_same_data(left, right, same_class)
    left, right = (_selected(side, left, asked) for side in (left, right))
    values = [_memorization(side, keep) for side in (left, right)]
    both, curves = None, {}
    if values[0] is not None and values[1] is not None:
        document["memorization"] = _memorization_document(values[0], values[1], mem)
        known = np.isfinite(values[0]) & np.isfinite(values[1])
        both = values[0][known], values[1][known]
        curves["memorization"] = agreement([Part(*both, np.True_, np.True_)], MEMORIZATION)
    related = None
    if values[0] is not None and isinstance(right, Published) and right.c_scores is not None:
        known = np.isfinite(values[0]) & np.isfinite(right.c_scores)
        related = 1 - right.c_scores[known].astype(float), values[0][known]
        document["c_scores"] = _c_scores_document(related, left, known, asked)
    theirs = _pair_set(right, asked)
    ours = None if theirs is None else _pair_set(left, asked)
    scattered = again = None
    if ours is not None and theirs is not None:
        shared, either = ours & theirs, ours | theirs
        document["pairs"] = {
            "first": len(ours),
            "second": len(theirs),
            "shared": len(shared),
            "jaccard": len(shared) / len(either) if either else None,
            "same_class": same_class,
        }
        if (curve := _influence_curve(left, right, (ours, theirs), asked)) is not None:
            curves["influence"] = curve
        scattered = _scattered(left, right, either, asked)
    if isinstance(left, Run) and isinstance(right, Published) and right.train_index is not None:
        again = found_again(left, right, mem=mem, infl=infl, keep=keep, memory=memory)
        document["published_pairs"] = again.summary() | {"each": list(again.table().rows())}
    if not curves and again is None and related is None and document.get("pairs") is None:
        raise InputError(f"{left.path} and {right.path} have nothing in common that could be compared.")
    document["curves"] = {name: _curve_document(curve) for name, curve in curves.items()}
    return Comparison(document, both, scattered, curves, again, related, (_learner(left), _learner(right)))


def _learner(side: Side) -> str:
    return learner_name((side.info.learner or {}).get("name", "")) if isinstance(side, Run) else ""


def _operand(given: Run | Path | str) -> Side:
    if isinstance(given, Run):
        return given
    path = locate(given)
    if isinstance(path, Path) and not path.is_dir() and not (path / RUN_FILE).exists():
        return read_published(path)
    return open_run(path)


def _selected(side: Side, first: Side, asked: _Asked) -> Side:
    """The side with its pairs cut at the thresholds and, beside a run, to pairs of one class as the run's are."""
    if isinstance(side, Run) or side.train_index is None or side.test_index is None or side.influence is None:
        return side
    lowest = float(side.influence.min(initial=1.0))
    if asked.infl < DEFAULT_INFL <= lowest:
        _warn(f"{side.path} has no pair below an influence of {DEFAULT_INFL}, where it seems to have been cut.")
    chosen = side.influence >= asked.infl
    if side.memorization_of_pairs is not None:
        chosen &= side.memorization_of_pairs >= asked.mem
    if isinstance(first, Run) and asked.same_class:
        same = _of_one_class(first, side.train_index, side.test_index)
        if others := int((chosen & ~same).sum()):
            _warn(f"{others} pairs of {side.path} are of two classes and left out; those of {first.path} are of one.")
        chosen &= same
    return side.only(chosen)


def _warn(sentence: str) -> None:
    warnings.warn(sentence, MemfluenceWarning, stacklevel=5)


def _score_summary(published: Published, mem: float) -> dict[str, Any]:
    if published.c_scores is not None:
        return {"n_train": len(published.c_scores), "mean_c_score": _or_none(published.c_scores.astype(float).mean())}
    if published.memorization is None:
        return {}
    return {"n_train": len(published.memorization), "memorized": int((published.memorization >= mem).sum())}


def _sizes(left: Side, right: Side, asked: _Asked) -> dict[str, int | None]:
    """How many examples both sides are about, and how many trials each has; None where a file does not say."""
    run = next((side for side in (left, right) if isinstance(side, Run)), None)
    n_train = next((n for side in (left, right) if (n := _n_train(side)) is not None), None)
    trials = [
        sum(map(len, asked.influence(side).arms.parts)) if isinstance(side, Run) else None for side in (left, right)
    ]
    n_test = None if run is None else run.info.n_test
    return {"n_train": n_train, "n_test": n_test, "trials_first": trials[0], "trials_second": trials[1]}


def _check_same_data(left: Side, right: Side, same_class: bool) -> None:
    """Labels, where both sides have them, must agree: a wrong order of the examples would go unnoticed otherwise."""
    sizes = [_n_train(side) for side in (left, right)]
    if None not in sizes and sizes[0] != sizes[1]:
        raise RunMismatchError(
            f"{left.path} and {right.path} are about different data: {sizes[0]} and {sizes[1]} training examples."
        )
    for split, there, here in zip(("training", "test"), _labels(left), _labels(right)):
        if there is None or here is None:
            continue
        if len(there) != len(here) or (there.astype(str) != here.astype(str)).any():
            raise RunMismatchError(
                f"{left.path} and {right.path} are about different data: their {split} labels differ;"
                " the data are others, or in another order."
            )
    runs = [side for side in (left, right) if isinstance(side, Run)]
    if len(runs) == 2 and (sentence := other_inputs(runs[0].info, runs[1].info, (left.path, right.path))) is not None:
        _warn(sentence)
    for side, other in ((left, right), (right, left)):
        if isinstance(other, Published) and other.train_index is not None and other.test_index is not None:
            _check_pairs(side, other, other.train_index, other.test_index, same_class)


def _check_pairs(side: Side, pairs: Published, train: np.ndarray, test: np.ndarray, same_class: bool) -> None:
    """The examples that a file pairs are there, and of the class that it says: of one class where it says none."""
    sizes = (side.info.n_train, side.info.n_test) if isinstance(side, Run) else (_n_train(side), None)
    for size, index in zip(sizes, (train, test)):
        if size is not None and index.max(initial=-1) >= size:
            raise RunMismatchError(f"{pairs.path} names examples that {side.path} does not have.")
    if pairs.label_of_pairs is not None and (known := _known_labels(side, train)) is not None:
        if differ := int((known != pairs.label_of_pairs.astype(str)).sum()):
            raise RunMismatchError(
                f"{differ} training examples of {pairs.path} have another label in {side.path}; the data are others, or"
                " in another order."
            )
    elif isinstance(side, Run) and same_class and (differ := int((~_of_one_class(side, train, test)).sum())):
        raise RunMismatchError(
            f"{pairs.path} pairs examples of one class, but {differ} of its pairs have two classes in {side.path};"
            " the data are others, or in another order."
        )


def _of_one_class(run: Run, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    return np.asarray(run.label_codes[0][train] == run.label_codes[1][test])


def _known_labels(side: Side, train: np.ndarray) -> np.ndarray | None:
    """The labels of some training examples, as text; None where the side does not know them all."""
    labels = _labels(side)[0]
    if labels is not None:
        return np.asarray(labels[train].astype(str))
    if isinstance(side, Run) or side.train_index is None or side.label_of_pairs is None:
        return None
    there = dict(zip(side.train_index.tolist(), side.label_of_pairs.astype(str).tolist()))
    return np.array([there[i] for i in train.tolist()]) if set(train.tolist()) <= set(there) else None


def _labels(side: Side) -> tuple[np.ndarray | None, np.ndarray | None]:
    if isinstance(side, Run):
        return side.labels
    return side.train_labels, side.test_labels


def _n_train(side: Side) -> int | None:
    if isinstance(side, Run):
        return side.info.n_train
    scores = side.memorization if side.c_scores is None else side.c_scores
    return None if scores is None else len(scores)


def _memorization(side: Side, keep: float | None) -> np.ndarray | None:
    return side.estimate_memorization(keep).value if isinstance(side, Run) else side.memorization


def _scattered(
    left: Side, right: Side, pairs: set[tuple[int, int]], asked: _Asked
) -> tuple[np.ndarray, np.ndarray] | None:
    """Both sides' influence of pairs, of those that both give a value."""
    train, test = (np.array([pair[k] for pair in sorted(pairs)], dtype=np.int64) for k in (0, 1))
    values = [_influence_of(side, train, test, asked) for side in (left, right)]
    known = np.isfinite(values[0]) & np.isfinite(values[1])
    return (values[0][known], values[1][known]) if known.any() else None


def _influence_curve(left: Side, right: Side, pairs: Sequence[set[tuple[int, int]]], asked: _Asked) -> Agreement | None:
    """The agreement of two sides on pairs; None where a file does not say enough.

    A file of pairs knows nothing below the threshold it was cut at, taken to be `infl`, and has no influence of other
    pairs: thresholds begin there, and the average difference is NaN.
    """
    if any(isinstance(side, Published) and side.train_index is not None for side in (left, right)):
        return _with_pairs(left, right, pairs, asked)
    if not isinstance(left, Run):
        return None
    mine = asked.influence(left)
    if isinstance(right, Run):
        both = asked.memorized(left), asked.memorized(right)
        of = mine, asked.influence(right), both, *left.label_codes, INFLUENCE
        return influence_agreement(*of, same_class=asked.same_class)
    ours, theirs = asked.memorized(left), asked.memorized(right)
    parts = (Part(mine.block(i, j), values, ours[i, None], theirs[i, None]) for i, j, values in right.blocks)
    return agreement(parts, INFLUENCE)


def _with_pairs(left: Side, right: Side, pairs: Sequence[set[tuple[int, int]]], asked: _Asked) -> Agreement:
    levels = np.union1d(INFLUENCE[asked.infl < INFLUENCE], [asked.infl])
    either = sorted(pairs[0] | pairs[1])
    train, test = (np.array([pair[k] for pair in either], dtype=np.int64) for k in (0, 1))
    may = [np.array([pair in side for pair in either], dtype=bool) for side in pairs]
    first, second = (
        np.where(selected, _influence_of(side, train, test, asked), -1.0) for side, selected in zip((left, right), may)
    )
    found = agreement([Part(first, second, may[0], may[1])], levels)
    return replace(found, difference=np.full(len(levels), np.nan))


def _pair_set(side: Side, asked: _Asked) -> set[tuple[int, int]] | None:
    """The pairs that a side selects; None where a file does not say."""
    if isinstance(side, Run):
        found = asked.pairs(side)
        return set(zip(found.train_index.tolist(), found.test_index.tolist()))
    if side.train_index is not None and side.test_index is not None:
        return set(zip(side.train_index.tolist(), side.test_index.tolist()))  # those that `comparing` left in it
    if side.memorization is None or not side.blocks:
        return None
    if not asked.same_class:
        raise InputError(f"{side.path} has the influence on test examples of the same class only; compare those pairs.")
    pairs: set[tuple[int, int]] = set()
    for train, test, values in side.blocks:
        hits = np.nonzero((values >= asked.infl) & (side.memorization[train] >= asked.mem)[:, None])
        pairs.update(zip(train[hits[0]].tolist(), test[hits[1]].tolist()))
    return pairs


def _influence_of(side: Side, train: np.ndarray, test: np.ndarray, asked: _Asked) -> np.ndarray:
    """The influence of some pairs; NaN where a file does not say."""
    if isinstance(side, Run):
        return asked.influence(side).at(train, test).value
    values = np.full(len(train), np.nan)
    if side.train_index is not None and side.test_index is not None and side.influence is not None:
        known = dict(zip(zip(side.train_index.tolist(), side.test_index.tolist()), side.influence.tolist()))
        return np.array([known.get(pair, np.nan) for pair in zip(train.tolist(), test.tolist())], dtype=float)
    for rows, columns, block in side.blocks:
        row, column = (_places(have, wanted) for have, wanted in ((rows, train), (columns, test)))
        here = (row >= 0) & (column >= 0)
        values[here] = block[row[here], column[here]]
    return values


def _places(have: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The place of each wanted index in `have`; -1 where it is missing."""
    size = 1 + max(int(have.max(initial=-1)), int(wanted.max(initial=-1)))
    place = np.full(size, -1)
    place[have] = np.arange(len(have))
    return np.asarray(place[wanted])


def _curve_document(curve: Agreement) -> dict[str, list[float | None]]:
    names = ("thresholds", "jaccard", "difference", "first", "second", "shared")
    return {
        name: [None if value != value else value for value in np.asarray(getattr(curve, name)).tolist()]
        for name in names
    }


def _correlation_document(a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """Two numbers of the same examples, compared; all are finite."""
    pearson, spearman = correlations(a, b)
    return {
        "examples": len(a),
        "pearson": _or_none(pearson),
        "spearman": _or_none(spearman),
        "mean_absolute_difference": float(np.abs(a - b).mean()) if len(a) else None,
    }


def _c_scores_document(
    related: tuple[np.ndarray, np.ndarray], side: Side, known: np.ndarray, asked: _Asked
) -> dict[str, Any]:
    """Memorization beside 1 - C-score, with the ceiling that the trials of a run allow."""
    pearson = spearman = float("nan")
    if isinstance(side, Run):
        pearson, spearman = ceilings(side, known, asked.keep, asked.memory)
        if np.isnan([pearson, spearman]).any():
            _warn(
                f"{side.path} has too few trials to say how high the correlation with C-scores could be: its halves"
                " do not agree on memorization."
            )
    return _correlation_document(*related) | {
        "pearson_ceiling": _or_none(pearson),
        "spearman_ceiling": _or_none(spearman),
        "ceiling_from": "halves of the trials, Spearman-Brown" if isinstance(side, Run) else None,
    }


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _memorization_document(first: np.ndarray, second: np.ndarray, mem: float) -> dict[str, Any]:
    known = np.isfinite(first) & np.isfinite(second)
    a, b = first[known], second[known]
    sets = (a >= mem, b >= mem)
    either = int((sets[0] | sets[1]).sum())
    return _correlation_document(a, b) | {
        "memorized_first": int(sets[0].sum()),
        "memorized_second": int(sets[1].sum()),
        "memorized_jaccard": int((sets[0] & sets[1]).sum()) / either if either else None,
    }
