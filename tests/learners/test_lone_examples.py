"""A batch of one example, which batch normalization cannot always be trained on, is told with advice that helps."""

import pytest
from learner_worlds import clouds, outcomes, random_trials, results
from torch import nn

import memfluence as mf
from memfluence.learners.network import lone_examples_explained
from memfluence.learners.recipes import Recipe
from memfluence.records import Failure

RECIPE = Recipe(epochs=1, batch=9, rate=0.05, normalization="none", partial_batches=True)


def normalized(in_channels: int, n_classes: int) -> nn.Module:
    return nn.Sequential(nn.BatchNorm2d(in_channels), nn.Flatten(), nn.Linear(in_channels, n_classes))


@pytest.mark.parametrize("group", [1, 2])
def test_the_advice_helps(group: int) -> None:
    """28 examples are three batches of 9 and one left over."""
    data, trials = clouds(), random_trials([28, 28])
    for failure in results(mf.network(normalized, RECIPE, group=group), data, trials):
        assert isinstance(failure, Failure)
        assert failure.message == (
            "ValueError: batch normalization of 1 x 1 maps cannot be trained on a single example, which is what 28"
            " examples in batches of 9 end with; use another batch size, for example with `settings={'batch': 10}`"
        )
    outcomes(mf.network(normalized, RECIPE, group=group, batch=10), data, trials)
    outcomes(mf.network(normalized, RECIPE, group=group, partial_batches=False), data, trials)


@pytest.mark.parametrize(
    ("batch", "size", "advice"), [(9, 1, "raise `keep`"), (1, 4, "{'batch': 2}`"), (3, 13, "{'batch': 5}`")]
)
def test_what_is_advised(batch: int, size: int, advice: str) -> None:
    """13 examples end with a single one in batches of 3 and of 4."""
    (failure,) = results(mf.network(normalized, RECIPE, batch=batch), clouds(), random_trials([size]))
    assert isinstance(failure, Failure)
    assert failure.message.endswith(advice)


def test_other_errors_are_left_alone() -> None:
    other = ValueError("another")
    with pytest.raises(ValueError, match="another") as raised, lone_examples_explained(RECIPE, 28):
        raise other
    assert raised.value is other
    with (
        pytest.raises(ValueError, match="Expected more than 1 value per channel"),
        lone_examples_explained(RECIPE, 27),  # three whole batches
    ):
        nn.BatchNorm1d(3)(next(nn.Linear(3, 1).parameters()))
