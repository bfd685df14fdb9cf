"""Columns of the explorer: what its galleries, pages and lists are made of, as documents for `scripts.script`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.estimators import Memorization
from memfluence.findings import Duplicates, Mislabels, Pairs, mislabels
from memfluence.report.explorer.influences import Details, Strongest, accuracies_of
from memfluence.report.explorer.scripts import packed, packed_fractions, quantized

if TYPE_CHECKING:
    from memfluence.runs import Run

CHUNK = 256  # examples whose details are loaded together
LISTED = 1000  # likely mislabels, and near-duplicates
PAIRS = 100_000  # the strongest
CLASSES = 5  # that models give for an example, shown of it

Document = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Votes:
    """The classes that models give most often for each example, first the most common; ties to the lower class."""

    code: np.ndarray  # (n, CLASSES) int64; -1 where there are fewer
    share: np.ndarray  # (n, CLASSES) of the models that were asked


def votes(predictions: np.ndarray, n_classes: int, left_out: np.ndarray | None = None) -> Votes:
    """Of all predictions (trials, n), or of models that left the example out of their packed masks (trials, ...).

    The code `n_classes` is an answer that is none of the classes; it counts among the models, but is not shown.
    """
    n = predictions.shape[1]
    code, share = np.full((n, CLASSES), -1), np.full((n, CLASSES), np.nan)
    for some, counts in mislabels.votes(predictions, n_classes, left_out):
        shown = counts[:, :n_classes]
        order = np.argsort(-shown, axis=1, kind="stable")[:, :CLASSES]
        highest = np.take_along_axis(shown, order, axis=1)  # (some, up to CLASSES)
        code[some, : order.shape[1]] = np.where(highest > 0, order, -1)
        with np.errstate(invalid="ignore"):
            share[some, : order.shape[1]] = highest / counts.sum(axis=1)[:, None]
    return Votes(code, share)


def default_order(scores: Memorization, strongest: np.ndarray) -> np.ndarray:
    """Training examples as the gallery first shows them: most memorized first, NaN last.

    Ties go to what is surer, then to the higher of the `strongest` influences, then to the lower index: hundreds of
    examples may have a memorization of exactly 1.
    """
    surest = np.where(np.isnan(scores.stderr), np.inf, quantized(scores.stderr))
    order: np.ndarray = np.lexsort(
        (-quantized(strongest).astype(np.int32), surest, -quantized(scores.value).astype(np.int32))
    )
    return order


def train_columns(
    labels: np.ndarray, scores: Memorization, details: Details, believed: Pairs, order: np.ndarray
) -> Document:
    place = np.empty(len(labels), np.int64)
    place[order] = np.arange(len(labels))
    return {
        "label": packed(labels),
        "memorization": packed_fractions(scores.value),
        "stderr": packed_fractions(scores.stderr),
        "accuracyIn": packed_fractions(scores.accuracy_in),
        "accuracyOut": packed_fractions(scores.accuracy_out),
        "strongest": packed_fractions(details.carried.influence[:, 0]),
        "pairs": packed(np.bincount(believed.train_index, minlength=len(labels))),
        "place": packed(place),  # among the tiles of the sheets
    }


def test_columns(labels: np.ndarray, accuracy: np.ndarray, details: Details, believed: Pairs) -> Document:
    return {
        "label": packed(labels),
        "accuracy": packed_fractions(accuracy),
        "strongest": packed_fractions(details.carriers.influence[:, 0]),
        "pairs": packed(np.bincount(believed.test_index, minlength=len(labels))),
    }


def pair_table(run: "Run", found: Pairs, believed: Pairs, keep: float | None, unit: float) -> Document:
    """The pairs above the threshold and those that are believed, strongest first; of too many the believed stay."""
    both = [np.concatenate([getattr(believed, name), getattr(found, name)]) for name in ("train_index", "test_index")]
    _, first = np.unique(both[0] * run.info.n_test + both[1], return_index=True)
    first = np.sort(first)[:PAIRS]
    value = np.concatenate([believed.influence, found.influence])
    some = first[np.lexsort((both[1][first], both[0][first], -value[first]))]
    train, test, value = both[0][some], both[1][some], value[some]
    lower, upper = (
        np.concatenate([getattr(believed, name), getattr(found, name)])[some] for name in ("lower", "upper")
    )
    means = accuracies_of(run.influence_estimates(keep), train, test, value * unit)
    accuracy_in, accuracy_out = (mean / unit for mean in means)
    return {
        "train": packed(train),
        "test": packed(test),
        "believed": packed(some < len(believed)),
        "influence": packed_fractions(value),
        "lower": packed_fractions(lower),
        "upper": packed_fractions(upper),
        "accuracyIn": packed_fractions(accuracy_in),
        "accuracyOut": packed_fractions(accuracy_out),
    }


def mislabel_list(found: Mislabels) -> Document:
    """The labels believed to be wrong, most likely first, and how many there are in all."""
    total = int(found.believed.sum())
    count = min(LISTED, total)
    listed: Document = {
        "index": packed(found.index[:count]),
        "score": packed_fractions(found.score[:count]),
        "total": total,
    }
    if (said := found.agreement) is not None:
        listed |= {"suggestion": packed(said.suggestion[:count]), "agreement": packed_fractions(said.share[:count])}
    return listed


def duplicate_list(found: Duplicates | None) -> Document:
    """The likely near-duplicates, surest first, and how many there are in all; none where nobody looked for them."""
    if found is None:
        names = ("train", "test", "influence", "lower", "upper", "sameOutcome")
        return {**{name: packed(np.empty(0, np.int64)) for name in names}, "total": 0, "byChance": None}
    some = slice(0, LISTED)
    by_chance = None if np.isnan(found.expected_by_chance) else found.expected_by_chance
    return {
        "train": packed(found.train_index[some]),
        "test": packed(found.test_index[some]),
        "influence": packed_fractions(found.influence[some]),
        "lower": packed_fractions(found.lower[some]),
        "upper": packed_fractions(found.upper[some]),
        "sameOutcome": packed_fractions(found.same_outcome[some]),
        "total": len(found),
        "byChance": by_chance,
    }


def train_chunks(
    scores: Memorization, details: Details, believed: Pairs, n_test: int, said: Votes | None
) -> Iterator[Document]:
    """Details of training examples, `CHUNK` at a time."""
    keys = believed.train_index * n_test + believed.test_index
    for start in range(0, len(scores.value), CHUNK):
        some = slice(start, start + CHUNK)
        yield {
            "lower": packed_fractions(scores.lower[some]),
            "upper": packed_fractions(scores.upper[some]),
            "trialsIn": packed(scores.trials_in[some]),
            "trialsOut": packed(scores.trials_out[some]),
            "carried": _strongest(details.carried, some)
            | {"believed": _among(keys, _rows(details.carried, some) * n_test + details.carried.index[some])},
            "similar": packed(details.similar[some]),
            "similarity": packed_fractions(details.similarity[some]),
            **_votes(said, some),
        }


def test_chunks(details: Details, believed: Pairs, n_test: int, said: Votes | None) -> Iterator[Document]:
    """Details of test examples, `CHUNK` at a time."""
    keys = believed.train_index * n_test + believed.test_index
    for start in range(0, len(details.carriers.index), CHUNK):
        some = slice(start, start + CHUNK)
        yield {
            "carriers": _strongest(details.carriers, some)
            | {"believed": _among(keys, details.carriers.index[some] * n_test + _rows(details.carriers, some))},
            "harmful": _strongest(details.harmful, some),
            **_votes(said, some),
        }


def _rows(found: Strongest, some: slice) -> np.ndarray:
    return np.arange(len(found.index))[some, None]


def _among(keys: np.ndarray, asked: np.ndarray) -> list[Any]:
    """Which pairs are believed; nobody is in none."""
    return packed(np.isin(asked, keys))


def _strongest(found: Strongest, some: slice) -> Document:
    return {
        "index": packed(found.index[some]),
        "influence": packed_fractions(found.influence[some]),
        "lower": packed_fractions(found.lower[some]),
        "upper": packed_fractions(found.upper[some]),
        "accuracyIn": packed_fractions(found.accuracy_in[some]),
        "accuracyOut": packed_fractions(found.accuracy_out[some]),
    }


def _votes(said: Votes | None, some: slice) -> Document:
    return {} if said is None else {"said": packed(said.code[some]), "saidShare": packed_fractions(said.share[some])}
