"""Networks trained several at once: the same models as one after another, up to rounding."""

import json
import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learner_worlds import clouds, outcomes, pictures, random_trials, results, same_bits, trial_of
from test_network_learner import PLAIN
from torch import nn
from user_learners import Dropping

import memfluence as mf
from memfluence.errors import LearnerError, MemfluenceWarning
from memfluence.learners import resolve
from memfluence.learners.network import Network
from memfluence.learners.recipes import Recipe
from memfluence.records import Failure, Outcome, Trial

# Float32 rounding over six to nine steps, found to be 1.2e-7 at most in parameters and 4.8e-7 in logits.
TOLERANCE: dict[str, float] = {"rtol": 1e-5, "atol": 2e-6}


class Tied(nn.Module):
    """A bare parameter, a shared one, a frozen one and an unused one."""

    def __init__(self, in_channels: int, n_classes: int) -> None:
        super().__init__()
        self.lift = nn.Parameter(torch.randn(in_channels * 64, 6) / 9)
        self.first, self.again = nn.Linear(6, 6), nn.Linear(6, 6)
        self.again.weight = self.first.weight
        self.frozen = nn.Parameter(torch.rand(6), requires_grad=False)
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(6, n_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = (images.flatten(1) @ self.lift).tanh() * self.frozen
        found: torch.Tensor = self.head(self.again(self.first(hidden)).relu())
        return found


def convolution(in_channels: int, n_classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(in_channels, 5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(80, n_classes)
    )


def normalized(in_channels: int, n_classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(in_channels, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(), nn.Linear(180, n_classes)
    )


FACTORIES = [convolution, normalized, Tied]


def kept_trials(*sizes: int) -> list[Trial]:
    return random_trials(sizes, n_train=30)


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"normalization": "subset", "partial_batches": True, "alternate_flips": True},
        {"crop_padding": 0, "flip": False, "nesterov": False},
    ],
    ids=["plain", "subset", "as they are"],
)
def test_values_after_training_are_those_of_one_after_another(factory: Any, settings: dict[str, Any]) -> None:
    recipe, data, trials = replace(PLAIN, **settings), pictures(), kept_trials(20, 20, 20)
    together, alone = mf.network(factory, recipe, group=3), mf.network(factory, recipe)
    outcomes(together, data, trials)
    (group,) = together._trainers.values()
    scored = group.scores()
    for k, trial in enumerate(trials):
        outcomes(alone, data, [trial])
        (single,) = alone._trainers.values()
        for name, value in (*single._model.named_parameters(), *single._model.named_buffers()):
            torch.testing.assert_close(group._values[name][k].detach(), value.detach(), **TOLERANCE)
        for of_group, of_one in zip(scored, single.scores()):
            torch.testing.assert_close(of_group[k], of_one, **TOLERANCE)
    assert (scored[0][0] - scored[0][1]).abs().max() > 100 * TOLERANCE["atol"]


def test_the_same_group_has_the_same_bits() -> None:
    data, trials = pictures(), kept_trials(20, 20, 20, 20)
    learner = mf.network(normalized, PLAIN, group=2)
    first = outcomes(learner, data, trials[:2])
    outcomes(learner, data, trials[2:])
    for again in (
        outcomes(learner, data, trials[:2]),
        outcomes(mf.network(normalized, PLAIN, group=2), data, trials[:2]),
    ):
        assert all(same_bits(one, other) for one, other in zip(first, again))


def test_nothing_of_the_last_group_is_left() -> None:
    data, trials = pictures(), kept_trials(20, 20)
    learner = mf.network(normalized, PLAIN, group=2)
    expected = outcomes(learner, data, trials)
    (trainer,) = learner._trainers.values()
    with torch.no_grad():
        for value in (*trainer._values.values(), *trainer._optimizer._velocities, trainer._shift, trainer._factor):
            value.fill_(torch.nan if value.is_floating_point() else 1000)
    assert all(same_bits(one, other) for one, other in zip(expected, outcomes(learner, data, trials)))


def test_a_group_of_several_sizes_and_of_nothing() -> None:
    data, trials = pictures(), [*kept_trials(20, 5, 20), trial_of(7, [], 30)]
    alone = results(mf.network(convolution, PLAIN), data, trials)
    together = results(mf.network(convolution, PLAIN, group=4), data, trials)
    assert [one.trial for one in together] == [trial.number for trial in trials]
    for one, other in zip(alone[:3], together[:3]):
        assert isinstance(one, Outcome)
        assert isinstance(other, Outcome)
        np.testing.assert_allclose(one.extras["test_margin"], other.extras["test_margin"], rtol=2e-3, atol=2e-3)
    assert isinstance(together[3], Failure)
    assert "keeps no example" in together[3].message


def test_a_model_that_diverges_fails_alone() -> None:
    data, trials = pictures(), kept_trials(20, 20)

    def make(n_classes: int, in_channels: int) -> nn.Module:
        model = nn.Sequential(nn.Flatten(), nn.Linear(64 * in_channels, n_classes))
        if model[1].weight[0, 0] > 0:  # of some trials alone
            nn.init.constant_(model[1].weight, torch.inf)
        return model

    numbered = [replace(trial, number=number) for number, trial in enumerate(trials * 4)]
    alone, together = (results(mf.network(make, PLAIN, group=group), data, numbered) for group in (1, 8))
    assert {type(one) for one in together} == {Outcome, Failure}
    assert [type(one) for one in alone] == [type(one) for one in together]
    (message,) = {one.message for one in (*alone, *together) if isinstance(one, Failure)}
    assert message == (
        "FloatingPointError: the model diverged at the rate 0.05; lower it, for example with"
        " `settings={'rate': 0.0125}`"
    )


@pytest.mark.parametrize(
    ("factory", "settings", "message"),
    [
        (Dropping, {"normalization": "none"}, r"cannot be trained several at once \(RuntimeError: .*; dropout cannot"),
        (
            convolution,
            {"optimizer": "muon"},
            r"by sgd alone; use `settings={'optimizer': 'sgd'}` or .*'group': 1}`",
        ),
    ],
)
def test_what_cannot_be_trained_at_once(factory: Any, settings: dict[str, Any], message: str) -> None:
    data, trials = (clouds(), random_trials([28, 28])) if factory is Dropping else (pictures(), kept_trials(20, 20))
    learner = mf.network(factory, Recipe(epochs=1, batch=9, rate=0.1), group=2, **settings)
    with pytest.raises(LearnerError, match=message):
        results(learner, data, trials)


def test_no_memory_ends_the_group_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    from memfluence.learners.nets.group_trainer import GroupTrainer

    def exhausted(trainer: GroupTrainer, trials: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(GroupTrainer, "train", exhausted)
    with pytest.raises(LearnerError, match=r"does not hold 4 models of convolution .* `settings={'group': 2}`\."):
        results(mf.network(convolution, PLAIN, group=4), pictures(), kept_trials(20, 20, 20, 20))


def test_the_setting() -> None:
    learner = resolve("linear@paper", {"group": "8", "epochs": "3"})
    assert isinstance(learner, Network)
    assert (learner.group, learner.group_size(clouds(), "cpu")) == (8, 8)
    assert learner.describe() == resolve("linear@paper", {"epochs": "3"}).describe()
    assert json.dumps(learner.describe())
    assert pickle.loads(pickle.dumps(learner)).group == 8
    for wrong in ("0", "many"):
        with pytest.raises(LearnerError, match=r"'group' of .* must be an integer"):
            resolve("linear@paper", {"group": wrong})
    with pytest.raises(LearnerError, match=r"no setting 'gruop'; did you mean 'group'\?"):
        resolve("linear@paper", {"gruop": "2"})


def test_a_run_in_groups_has_the_outcomes_of_one_by_one(tmp_path: Path) -> None:
    """5 trials in groups of 2: the last one is padded."""
    recipe, found = replace(PLAIN, epochs=10), {}
    for group in (1, 2):
        learner = mf.network(convolution, recipe, group=group)
        run = mf.run(pictures(), learner=learner, trials=5, out=tmp_path / str(group), device="cpu", progress=False)
        found[group] = run.memorization()
    assert found[1].equals(found[2])


def test_a_run_keeps_the_groups_that_it_was_begun_with(tmp_path: Path) -> None:
    def run(group: int, trials: int) -> None:
        learner = mf.network(convolution, replace(PLAIN, epochs=2), group=group)
        mf.run(pictures(), learner=learner, trials=trials, out=tmp_path, device="cpu", progress=False)

    run(1, 1)
    told = r"begun with groups of 1 trial\(s\) trained at once and keeps them; groups of 2 need another directory"
    with pytest.warns(MemfluenceWarning, match=told):
        run(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", MemfluenceWarning)
        run(1, 4)


# "linear" makes each picture one pixel, which nothing can crop; it is the architecture of ours that `vmap` takes.
FLAT: list[dict[str, Any]] = [{}, {"partial_batches": True, "normalization": "subset"}]


def flat(settings: dict[str, Any]) -> Network:
    return Network("small", "linear", replace(PLAIN, crop_padding=0, flip=False, **settings), group=2)


def trained_together(learner: Network, trials: list[Trial], device: str) -> Any:
    found = list(learner.train(pictures(), trials, record=(), device=device))
    assert all(isinstance(one, Outcome) for one in found)
    (trainer,) = learner._trainers.values()
    return trainer


@pytest.mark.parametrize("settings", FLAT)
def test_what_is_captured_on_a_gpu_can_be_trained(settings: dict[str, Any]) -> None:
    trainer = trained_together(flat(settings), kept_trials(20, 20), "cpu")
    assert all(bool(one.isfinite().all()) for one in trainer.scores())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("settings", FLAT)
def test_captured_steps_are_steps_one_by_one(settings: dict[str, Any]) -> None:
    """Captured steps have the same bits whenever they are captured; those of steps one by one up to rounding."""
    trials = kept_trials(20, 20, 20, 20)
    trainer = trained_together(flat(settings), trials[:2], "cuda")
    assert trainer._graph is not None
    trainer.train(trials[2:])
    replayed = trainer.scores()
    fresh = trained_together(flat(settings), trials[2:], "cuda")
    assert all(map(torch.equal, replayed, fresh.scores()))
    trainer._captures, trainer._graph = False, None
    trainer.train(trials[2:])
    for found, expected in zip(replayed, trainer.scores()):
        torch.testing.assert_close(found, expected, **TOLERANCE)
