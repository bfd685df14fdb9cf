"""`plan`: hours and money from a pilot, and from the beginning of a training that takes hours."""

from collections.abc import Iterator
from typing import Any

import pytest
from torch import nn

import memfluence as mf
from memfluence.errors import InputError
from memfluence.learners.nets import watch
from memfluence.learners.nets.watch import Watch
from memfluence.learners.network import Network
from memfluence.records import PartWay
from memfluence.training import planning


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time as a network would take it: a minute to compile, 500 seconds that are reported each 5, 20 to evaluate.

    Gives the fractions that were reported.
    """
    now, reported = [0.0], []

    def train(learner: Network, _: Any, trials: Any, **__: Any) -> Iterator[None]:
        report = learner._watched[1]
        for trial in trials:
            now[0] += 60
            for step in range(1, 101):
                now[0] += 5
                if report is not None:
                    reported.append(step / 100)
                    report(PartWay(trial.number, step / 100))
            now[0] += 20
        yield from ()

    monkeypatch.setattr(Network, "train", train)
    monkeypatch.setattr(planning.time, "monotonic", lambda: now[0])
    return reported


def test_the_beginning_says_what_all_of_it_takes(clock: list[float]) -> None:
    options = {"learner": "resnet50@imagenet", "trials": 12}
    whole = mf.plan("digits", **options)
    assert whole["seconds_per_trial"] == 580
    assert whole["cost"] is None
    assert clock == []  # nobody asked
    found = mf.plan("digits", pilot_seconds=20, workers=2, price=5, **options)
    assert clock == [0.01, 0.02, 0.03, 0.04, 0.05]
    assert found["seconds_per_trial"] == pytest.approx(500)
    assert found["seconds"] == pytest.approx(500 * 12 / 2)
    assert found["worker_hours"] == pytest.approx(500 * 12 / 3600)
    assert found["cost"] == pytest.approx(5 * 500 * 12 / 3600)
    assert mf.plan("digits", pilot_seconds=600, **options)["seconds_per_trial"] == 580  # it was done before


def test_a_learner_that_does_not_report_goes_on_to_its_end() -> None:
    found = mf.plan("digits", learner="sklearn.dummy:DummyClassifier", trials=2, pilot_seconds=0)
    assert found["seconds_per_trial"] > 0


def test_a_real_network_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_SECONDS_BETWEEN_REPORTS", 0.0)
    monkeypatch.setattr(watch, "_SECONDS_BETWEEN_PAUSES", 0.0)
    steps, after = list[int](), Watch.after

    def counted(self: Watch, step: int) -> None:
        steps.append(step)
        after(self, step)

    monkeypatch.setattr(Watch, "after", counted)
    learner = mf.network(small, "fast", epochs=50, optimizer="sgd")
    assert mf.plan("digits", learner=learner, pilot_seconds=0, device="cpu")["seconds_per_trial"] > 0
    assert steps == [1, 2]  # of 50: a report of each, and the second is enough
    mf.plan("digits", learner=learner, device="cpu")
    assert steps[2:52] == list(range(1, 51))


def small(in_channels: int, n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * in_channels, n_classes))


def test_without_a_pilot_there_is_no_cost() -> None:
    found = mf.plan("digits", pilot=False, price=5)
    assert found["worker_hours"] is found["cost"] is None


@pytest.mark.parametrize("name", ["price", "pilot_seconds"])
def test_what_is_below_0_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"The `{name}` parameter must be a number >= 0. Got -1 instead."):
        mf.plan("digits", **{name: -1})
