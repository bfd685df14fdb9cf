"""Batches of a single example, which batch normalization cannot always be trained on: what to do about them."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from memfluence.learners.recipes import Recipe
from memfluence.learners.schedules import step_shape

__all__ = ["lone_examples_explained"]

_TORCH_SAYS = "Expected more than 1 value per channel"  # within what compilers say around it


@contextmanager
def lone_examples_explained(recipe: Recipe, subset_size: int) -> Iterator[None]:
    """The block trains on so many examples; torch's error about a single value is raised with advice instead."""
    try:
        yield
    except Exception as error:
        if _TORCH_SAYS not in str(error) or step_shape(recipe, subset_size).last > 1:
            raise
        raise ValueError(_advice(recipe, subset_size)) from error


def _advice(recipe: Recipe, subset_size: int) -> str:
    problem = "batch normalization of 1 x 1 maps cannot be trained on a single example"
    if subset_size == 1:
        return f"{problem}, and the trial keeps no more; raise --keep"
    other = next(
        batch
        for batch in itertools.count(recipe.batch + 1)
        if step_shape(replace(recipe, batch=batch), subset_size).last > 1
    )
    return (
        f"{problem}, which is what {subset_size} examples in batches of {recipe.batch} end with;"
        f" use another batch size, for example with --set batch={other}"
    )
