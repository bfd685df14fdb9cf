"""`plan`: hours and money from a pilot, and from a pilot of a few epochs of a network that takes hours."""

from collections.abc import Iterator
from typing import Any

import pytest

import memfluence as mf
from memfluence.errors import InputError
from memfluence.learners.network import Network
from memfluence.training import planning


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Time as networks would take it: 7 seconds a trial and 3 an epoch. Gives the epochs of each that was trained."""
    now, trained = [0.0], []

    def train(learner: Network, _: Any, trials: Any, **__: Any) -> Iterator[None]:
        trained.append(learner.recipe.epochs)
        now[0] += len(trials) * (7.0 + 3.0 * learner.recipe.epochs)
        return iter(())

    monkeypatch.setattr(Network, "train", train)
    monkeypatch.setattr(planning.time, "monotonic", lambda: now[0])
    return trained


def test_a_pilot_of_few_epochs_says_what_all_of_them_take(clock: list[int]) -> None:
    options = {"learner": "resnet50@imagenet", "trials": 12}
    whole = mf.plan("digits", **options)
    assert clock == [100]
    assert whole["seconds_per_trial"] == 307
    for epochs in (1, 20):  # milestones of the recipe that come later are left out
        clock.clear()
        found = mf.plan("digits", pilot_epochs=epochs, workers=2, price=5, **options)
        assert {*clock} == {epochs, 2 * epochs}
        assert found["seconds_per_trial"] == pytest.approx(307)
        assert found["seconds"] == pytest.approx(307 * 12 / 2)
        assert found["worker_hours"] == pytest.approx(307 * 12 / 3600)
        assert found["cost"] == pytest.approx(5 * 307 * 12 / 3600)
    assert whole["cost"] is None


def test_without_a_pilot_there_is_no_cost() -> None:
    found = mf.plan("digits", pilot=False, price=5)
    assert found["worker_hours"] is found["cost"] is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"pilot_epochs": 5}, "Only a built-in network can have a pilot of fewer epochs; leave out `pilot_epochs` for"),
        ({"pilot_epochs": 7, "learner": "resnet9@fast"}, r"must be an integer in \[1, 6\], half of the recipe's 12"),
        ({"pilot_epochs": 0, "learner": "resnet9@fast"}, r"must be an integer in \[1, 6\]"),
        ({"price": -1}, "The `price` parameter must be a number >= 0. Got -1 instead."),
    ],
)
def test_what_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        mf.plan("digits", **options)
