"""The steps of a recipe: their number and size, the learning rate of each, and which examples a trial sees in it.

Of T steps, step k (from 0) has the rate

    linear      rate * min(k / W, (T - k) / (T - W))
    steps       rate * min(k / W, 1) * decay ** (how many milestones are at or before step k)
    constant    rate * min(k / W, 1)

with W = warmup * T, the end of the warm-up (with W = 0 there is none, and k / W drops out of the minimum). A milestone
of m epochs is at step m * steps_per_epoch. So with a warm-up the first step has the rate 0, as the paper says ("grow
linearly from 0"), the highest rate is reached at W, and "linear" would be 0 again at step T, the first not taken.
"""

from typing import NamedTuple

import numpy as np

from memfluence.learners.recipes import Recipe
from memfluence.records import Trial

__all__ = ["StepShape", "rates", "step_shape", "step_tables", "steps_per_epoch"]


class StepShape(NamedTuple):
    """All that the steps of a training know of its subset's size."""

    batch: int  # examples of a step
    per_epoch: int  # steps of an epoch
    last: int  # examples of an epoch's last step


def step_shape(recipe: Recipe, subset_size: int) -> StepShape:
    """Subsets of all sizes share its width, if they fill one batch, and with it a captured step."""
    batch, per_epoch = min(recipe.batch, subset_size), steps_per_epoch(recipe, subset_size)
    return StepShape(batch, per_epoch, min(batch, subset_size - (per_epoch - 1) * batch))


def steps_per_epoch(recipe: Recipe, subset_size: int) -> int:
    """Batches in an epoch over `subset_size` examples: whole ones, and with `partial_batches` what is left over.

    At least 1: a subset smaller than a batch is a batch of its own.
    """
    whole, left_over = divmod(subset_size, recipe.batch)
    return max(1, whole + (1 if recipe.partial_batches and left_over else 0))


def rates(recipe: Recipe, steps_per_epoch: int) -> np.ndarray:
    """The learning rate at each of the epochs * steps_per_epoch steps: (steps,) float64."""
    steps = recipe.epochs * steps_per_epoch
    step = np.arange(steps, dtype=np.float64)  # (steps,)
    warm = recipe.warmup * steps  # where the warm-up ends, not always a whole step; below `steps`
    factor = np.minimum(step / warm, 1) if warm else np.ones(steps)  # (steps,)
    if recipe.schedule == "linear":
        factor = np.minimum(factor, (steps - step) / (steps - warm))
    for milestone in recipe.milestones:  # none but in "steps"
        factor[step >= milestone * steps_per_epoch] *= recipe.decay
    return np.asarray(recipe.rate * factor)


def step_tables(trial: Trial, recipe: Recipe, shape: StepShape) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the training data (steps, batch) int32; top, left and flip of each (steps, 3, batch) uint8."""
    steps = recipe.epochs * shape.per_epoch
    order_stream, augment_stream = trial.generator("order"), trial.generator("augment")
    order = np.zeros((recipe.epochs, shape.per_epoch * shape.batch), dtype=np.int32)
    used = min(order.shape[1], len(trial.kept))  # what does not fill a batch is left out of the epoch
    for epoch in range(recipe.epochs):
        order[epoch, :used] = order_stream.permutation(trial.kept)[:used]
    crops = np.zeros((steps, 3, shape.batch), dtype=np.uint8)
    if recipe.crop_padding:
        crops[:, :2] = augment_stream.integers(0, 2 * recipe.crop_padding + 1, (steps, 2, shape.batch), np.uint8)
    order = order.reshape(steps, shape.batch)
    if recipe.flip and recipe.alternate_flips:
        in_first = augment_stream.integers(0, 2, len(trial.mask), np.uint8)  # (n_train,)
        crops[:, 2] = (in_first[order] + np.arange(steps)[:, None] // shape.per_epoch) % 2
    elif recipe.flip:
        crops[:, 2] = augment_stream.integers(0, 2, (steps, shape.batch), np.uint8)
    return order, crops
