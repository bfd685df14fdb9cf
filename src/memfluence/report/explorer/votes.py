"""What models say about an example, where predictions were recorded: the classes that they give most often."""

from dataclasses import dataclass

import numpy as np

from memfluence.estimators.counts import bits_at

__all__ = ["Votes", "votes"]

CLASSES = 5  # shown of each example
PREDICTIONS_AT_ONCE = 2**23


@dataclass(frozen=True, eq=False)
class Votes:
    """The most common predictions, first the most common; ties to the lower class."""

    code: np.ndarray  # (n, CLASSES) int64; -1 where there are fewer
    share: np.ndarray  # (n, CLASSES) of the models that were asked


def votes(predictions: np.ndarray, n_classes: int, left_out: np.ndarray | None = None) -> Votes:
    """Of all predictions (trials, n), or of models that left the example out of their packed masks (trials, ...).

    The code `n_classes` is an answer that is none of the classes; it counts among the models, but is not shown.
    """
    n = predictions.shape[1]
    code, share = np.full((n, CLASSES), -1), np.full((n, CLASSES), np.nan)
    n_codes = n_classes + 1
    at_once = max(1, PREDICTIONS_AT_ONCE // max(len(predictions), n_codes))
    for start in range(0, n, at_once):
        some = np.arange(start, min(n, start + at_once))
        asked = np.ones((len(predictions), len(some)), bool)
        if left_out is not None:
            asked = bits_at(left_out, some) == 0  # (trials, some)
        cells = predictions[:, some].astype(np.int64) + n_codes * np.arange(len(some))
        counts = np.bincount(cells[asked], minlength=n_codes * len(some)).reshape(len(some), n_codes)[:, :n_classes]
        order = np.argsort(-counts, axis=1, kind="stable")[:, :CLASSES]
        highest = np.take_along_axis(counts, order, axis=1)  # (some, up to CLASSES)
        code[some, : order.shape[1]] = np.where(highest > 0, order, -1)
        with np.errstate(invalid="ignore"):
            share[some, : order.shape[1]] = highest / asked.sum(axis=0)[:, None]
    return Votes(code, share)
