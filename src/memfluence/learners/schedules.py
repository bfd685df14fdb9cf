"""The learning rate of every step of a recipe.

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

__all__ = ["StepShape", "rates", "step_shape", "steps_per_epoch"]


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
