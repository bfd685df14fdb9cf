"""Which examples each of K models sees at each step, when their subsets differ in content and perhaps in size.

Every epoch each model goes through its kept examples once, in an order of its own, in batches of `batch` with a smaller
last one (`batch_sizes`). Models come sorted by subset size, largest first, so those that still have a batch at some
step are always the first ones, and a model that is through its epoch is not touched. Where batch sizes differ within a
step, the shorter ones are filled up with an example of the model's own at weight 0: the loss stays the mean over the
model's real batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

__all__ = ["Minibatch", "batch_sizes", "minibatches"]


@dataclass(frozen=True)
class _Shape:
    """What is the same about a step in all epochs."""

    active: int  # the first `active` models take part
    width: int  # the largest of their batches
    share: torch.Tensor | None  # (active, 1, width) weight of each example; None where all are 1 / width


@dataclass(frozen=True)
class Minibatch:
    """One step of the first `active` models on `width` examples each."""

    rows: torch.Tensor  # (active * width,) rows of the training inputs
    labels: torch.Tensor  # (active, 1, width) their class codes
    active: int
    width: int
    share: torch.Tensor | None  # (active, 1, width) weight of each example; None where all are 1 / width


def batch_sizes(subset_size: int, batch: int) -> list[int]:
    """Those of an epoch: full ones and what is left; where that is a handful, it shares evenly with the one before.

    The rate is the same for every step, so one on a single example goes as far as one on 64, and the epoch ends with
    it: 65 digits in batches of 64 and 1 gave models with a test accuracy of 43%, while 64 give 81%. From an eighth of
    a batch on no harm was seen.
    """
    full, left = divmod(subset_size, batch)
    if full and 0 < left < max(2, batch / 8):
        both = batch + left
        return [batch] * (full - 1) + [both - both // 2, both // 2]
    return [batch] * full + [left] * (left > 0)


def minibatches(
    kept: Sequence[np.ndarray],  # one (subset_size,) per model, the largest first, none empty
    labels: np.ndarray,  # (n_train,) class codes
    orders: Sequence[np.random.Generator],
    *,
    batch: int,
    epochs: int,
    device: torch.device,
) -> Iterator[Minibatch]:
    """All steps of all epochs; every epoch model k draws `orders[k].permutation(kept[k])`, whatever the others do."""
    sizes = [batch_sizes(len(rows), batch) for rows in kept]
    shapes = _shapes(sizes, device)
    places = [np.concatenate([step * batch + np.arange(size) for step, size in enumerate(own)]) for own in sizes]
    order = np.empty((len(kept), len(shapes) * batch), dtype=np.int64)  # (models, steps * batch)
    order[:] = [rows[:1] for rows in kept]  # what fills up short batches
    for _ in range(epochs):
        for own, generator, subset, place in zip(order, orders, kept, places):
            own[place] = generator.permutation(subset)
        by_step = np.ascontiguousarray(order.reshape(len(kept), len(shapes), 1, batch).transpose(1, 0, 2, 3))
        rows_by_step, labels_by_step = (
            torch.from_numpy(by_step).to(device),
            torch.from_numpy(labels[by_step]).to(device),
        )
        for rows, codes, shape in zip(rows_by_step, labels_by_step, shapes):  # (models, 1, batch) each
            if (shape.active, shape.width) != (len(kept), batch):
                rows, codes = (part[: shape.active, :, : shape.width].contiguous() for part in (rows, codes))
            yield Minibatch(rows.view(-1), codes, shape.active, shape.width, shape.share)


def _shapes(sizes: Sequence[Sequence[int]], device: torch.device) -> list[_Shape]:
    """The steps of an epoch of models with these batch sizes, the model with the most examples first."""
    shapes = []
    for step in range(len(sizes[0])):
        own = [model[step] for model in sizes if len(model) > step]
        width, share = max(own), None
        if min(own) < width:
            count = torch.tensor(own)[:, None, None]  # (active, 1, 1)
            share = torch.where(torch.arange(width) < count, 1 / count, 0.0).to(device)  # (active, 1, width)
        shapes.append(_Shape(len(own), width, share))
    return shapes
