"""What the streams of a trial say about its steps: which examples in which order, how each is cropped and flipped."""

import numpy as np

from memfluence.learners.recipes import Recipe
from memfluence.learners.schedules import StepShape
from memfluence.records import Trial

__all__ = ["step_tables"]


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
