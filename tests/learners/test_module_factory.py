"""Modules of the user's with a recipe of ours: how they are made, started anew, trained, and what they fall back to."""

import functools
import json
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from learner_worlds import EVERYTHING, clouds, outcomes, pictures, random_trials, results, same_bits
from sklearn.linear_model import LogisticRegression
from test_network_learner import PLAIN, imitated_graphs, pretend_triton, scores
from torch import nn
from user_learners import Dropping, nearest_scores

import memfluence as mf
from memfluence.datasets import Dataset
from memfluence.errors import LearnerError, MemfluenceWarning
from memfluence.learners import outcomes as outcomes_module
from memfluence.learners import resolve
from memfluence.learners.nets.trainer import Trainer
from memfluence.learners.nets.watch import Watch
from memfluence.learners.network import Network
from memfluence.learners.recipes import LEARNER_PRESETS, PRESETS, Recipe, named_recipe, rates
from memfluence.records import Failure, Trial
from memfluence.seeding import integer_seed

__all__ = ["imitated_graphs"]  # a fixture

USER_FILE = Path(__file__).parent / "user_learners.py"
RECIPE = Recipe(epochs=4, batch=9, rate=0.05, weight_decay=1e-3, normalization="none", warmup=0.2)
TOLERANCE: dict[str, float] = {"rtol": 1e-4, "atol": 1e-5}  # float32 rounding over a dozen steps


class Convolutional(nn.Module):
    def __init__(self, n_classes: int, *, in_channels: int = 1, width: int = 6) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(in_channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.Flatten()
        ).append(nn.Linear(64 * width, n_classes))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(images)
        return found


def trainer_of(learner: Network, dataset: Dataset, trial: Trial) -> Trainer:
    return learner._trainer(dataset, len(trial.kept), torch.device("cpu"))


def drawn(trial: Trial, make: Any) -> nn.Module:
    """A new module as a user would draw it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer_seed(trial.root, "init", trial.number))
        model: nn.Module = make()
    return model


# Training.


def test_a_trial_begins_with_a_module_made_anew() -> None:
    """All parameters and buffers, whatever was trained before, in the places that the trainer knows."""
    learner, data, trials = mf.network(Dropping, RECIPE), clouds(), random_trials([28, 28])
    trainer = trainer_of(learner, data, trials[0])
    places = [value.data_ptr() for value in (*trainer._model.parameters(), *trainer._model.buffers())]
    for trial in trials:
        outcomes(learner, data, [trials[0]])
        trainer._initialize(trial)
        expected = drawn(trial, lambda: Dropping(5, 3))
        mine, theirs = ([*model.parameters(), *model.buffers()] for model in (trainer._model, expected))
        assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))
        assert places == [value.data_ptr() for value in mine]
    assert isinstance(trainer._model, Dropping)
    assert trainer._model.again.weight is trainer._model.first.weight


def twin_scores(dataset: Dataset, trial: Trial, recipe: Recipe) -> np.ndarray:
    """`Dropping` as a torch user would train it, dropout and all."""
    model = drawn(trial, lambda: Dropping(5, dataset.n_classes))
    optimizer = torch.optim.SGD(model.parameters(), 1.0, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    order, per_epoch = trial.generator("order"), len(trial.kept) // recipe.batch
    rows = np.concatenate(
        [order.permutation(trial.kept)[: per_epoch * recipe.batch] for _ in range(recipe.epochs)]
    ).reshape(-1, recipe.batch)
    inputs = torch.tensor(dataset.x_train, dtype=torch.float32)
    with torch.random.fork_rng(devices=[]):
        seeds = trial.generator("learner").integers(0, 2**31, len(rows))
        for batch, rate, seed in zip(rows, rates(recipe, per_epoch), seeds, strict=True):
            torch.manual_seed(int(seed))
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[batch]), torch.tensor(dataset.y_train[batch])).backward()
            optimizer.step()
    everything = torch.tensor(np.concatenate([dataset.x_train, dataset.x_test]), dtype=torch.float32)
    with torch.no_grad():
        found: np.ndarray = model.eval()(everything).numpy()
    return found


def test_equals_plain_torch_with_dropout() -> None:
    learner, data, trials = mf.network(Dropping, RECIPE), clouds(), random_trials([28, 28])
    found = scores(learner, data, trials)
    for trial in trials:
        np.testing.assert_allclose(found[trial.number], twin_scores(data, trial, RECIPE), **TOLERANCE)
    assert np.abs(found[0] - found[1]).max() > 100 * TOLERANCE["atol"]


def test_frozen_parameters_stay_and_unused_ones_do_no_harm() -> None:
    learner, data, (trial,) = mf.network(Dropping, RECIPE), clouds(), random_trials([28])
    outcomes(learner, data, [trial])
    model, begun = trainer_of(learner, data, trial)._model, drawn(trial, lambda: Dropping(5, 3))
    moved = {
        name: not torch.equal(value, dict(begun.named_parameters())[name]) for name, value in model.named_parameters()
    }
    assert not moved["frozen"]
    assert all(moved[name] for name in moved if name != "frozen" and not name.startswith("unused"))


def test_dropout_is_the_trials_own() -> None:
    """Same trial, same bits, in any order and in a fresh learner; other trials draw otherwise."""

    def make(in_channels: int, n_classes: int) -> nn.Module:
        """Nothing but dropout differs between two trials of one subset."""
        model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(in_channels, n_classes, bias=False))
        nn.init.zeros_(model[2].weight)
        return model

    recipe = Recipe(epochs=3, batch=40, rate=0.1, normalization="none")
    learner, data = mf.network(make, recipe), clouds()
    trials = [Trial(number, 0, np.ones(40, dtype=bool), root=5) for number in range(3)]
    first = scores(learner, data, trials)
    again = scores(learner, data, trials[::-1])
    for number, one in first.items():
        assert one.tobytes() == again[number].tobytes()
        assert one.tobytes() == scores(mf.network(make, recipe), data, [trials[number]])[number].tobytes()
    bare = scores(mf.network(lambda in_channels, n_classes: make(in_channels, n_classes)[::2], recipe), data, trials)
    spread = [np.abs(found[0] - found[1]).max() for found in (first, bare)]
    assert spread[0] > 100 * spread[1]


class Halfway(Watch):
    """Keeps the state after some step, or goes on from it."""

    def __init__(self, at: int, saved: list[torch.Tensor]) -> None:
        super().__init__(0)
        self.at, self.saved = at, saved

    @contextmanager
    def over(self, state: Any, steps: int, device: torch.device) -> Iterator[int]:
        self.state = state
        with torch.no_grad():
            for value, saved in zip(state, self.saved):
                value.copy_(saved)
        yield self.at if self.saved else 0

    def after(self, step: int) -> None:
        if step == self.at:
            self.saved[:] = [value.detach().clone() for value in self.state]


def test_dropout_goes_on_from_a_checkpoint_as_if_undisturbed() -> None:
    data, (trial, other) = clouds(), random_trials([28, 28])
    saved: list[torch.Tensor] = []
    found = []
    for first in (trial, other):
        trainer = trainer_of(mf.network(Dropping, RECIPE), data, trial)
        with torch.random.fork_rng(devices=[]):
            if saved:
                trainer.train(first)
            trainer.train(trial, Halfway(5, saved))
        found.append(trainer.scores())
    assert all(torch.equal(one, again) for one, again in zip(*found))


def test_the_callers_generator_is_left_alone() -> None:
    torch.manual_seed(1)
    outcomes(mf.network(Dropping, RECIPE), clouds(), random_trials([28]))
    after = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), after)


def test_pictures_are_learned() -> None:
    learner = mf.network(Convolutional, PLAIN, epochs=25, flip=False, crop_padding=0, width=4)
    assert learner.options == {"width": 4}
    for outcome in outcomes(learner, pictures(), random_trials([24, 24], n_train=30), record=()):
        assert outcome.train_correct[outcome.mask].mean() > 0.95
        assert outcome.test_correct.mean() > 0.6


def test_layers_that_wait_for_their_first_input() -> None:
    def lazy(n_classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(7), nn.ReLU(), nn.LazyLinear(n_classes))

    def plain(n_classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, n_classes))

    data, trials = clouds(), random_trials([28, 28])
    waited, made = (scores(mf.network(make, RECIPE), data, trials) for make in (lazy, plain))
    for number in waited:
        np.testing.assert_array_equal(waited[number], made[number])


# Names, options, identity.


@pytest.mark.parametrize(
    ("name", "recipe"),
    [("fast", "fast"), ("mnist", "mnist"), ("paper", "cifar100"), ("imagenet", "imagenet"), ("cifar100-linear",) * 2],
)
def test_recipes_by_name(name: str, recipe: str) -> None:
    assert named_recipe(name) == PRESETS[recipe]
    learner = resolve(f"{USER_FILE}:Dropping@{name}")
    assert learner.name == f"Dropping@{name}"
    assert learner.describe()["recipe"] == PRESETS[recipe].describe()
    assert {listed.partition("@")[2] for listed in LEARNER_PRESETS} <= {*PRESETS, "paper"}


def test_settings_go_to_the_recipe_or_the_factory() -> None:
    learner = resolve(f"{USER_FILE}:Dropping@fast", {"epochs": "3", "width": "9", "depth": "(1, 2)"})
    described = learner.describe()
    assert described["options"] == {"width": 9, "depth": [1, 2]}
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    assert described["recipe"] == PRESETS["fast"].describe() | {"epochs": 3}
    assert (described["architecture"], described["attribute"]) == ("Dropping", "Dropping@fast")
    assert len(described["source_sha256"]) == 64
    assert "memfluence_learner_" not in str(described)
    for changed in ({"epochs": "4", "width": "9"}, {"epochs": "3", "width": "8"}):
        assert resolve(f"{USER_FILE}:Dropping@fast", changed).describe() != described


def test_identity_of_objects_follows_the_code() -> None:
    def make(n_classes: int, scale: float = 1.0) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(5, n_classes))

    def other(n_classes: int, scale: float = 1.0) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(5, n_classes, bias=False))

    other.__name__, other.__qualname__ = make.__name__, make.__qualname__
    described = mf.network(make, "mnist").describe()
    assert described == mf.network(make, "mnist").describe()
    assert described["name"] == "make@mnist"
    assert mf.network(make, RECIPE).name == "make"
    for changed in (
        mf.network(other, "mnist"),
        mf.network(make, "fast"),
        mf.network(make, "mnist", rate=0.2),
        mf.network(make, "mnist", scale=2.0),
        mf.network(functools.partial(make, scale=2.0), "mnist"),
    ):
        assert changed.describe() != described


def test_options_may_be_any_objects() -> None:
    def make(in_channels: int, n_classes: int, activation: Any, scale: float = 0.5) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(in_channels, 6), activation(), nn.Linear(6, n_classes))

    described = [mf.network(make, RECIPE, activation=one, scale=0.1).describe() for one in (nn.ReLU, nn.Tanh)]
    assert described[0] != described[1]
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    assert not any("not_identified" in one for one in described)
    outcomes(mf.network(make, RECIPE, activation=nn.Tanh), clouds(), random_trials([28]))


def test_built_in_networks_keep_their_identity() -> None:
    assert set(resolve("resnet9@fast").describe()) == {"name", "architecture", "options", "recipe"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(5, 3)),
        lambda n_classes: nn.Sequential(nn.Flatten(), nn.Linear(5, n_classes)),
        lambda num_classes=1000: nn.Sequential(nn.Flatten(), nn.Linear(5, num_classes)),
        lambda n_classes, in_channels: nn.Sequential(nn.Flatten(), nn.Linear(in_channels, n_classes)),
        lambda *rest, in_channels, **others: nn.Sequential(nn.Flatten(), nn.Linear(in_channels, 3)),
        functools.partial(Dropping, width=4),
    ],
)
def test_a_factory_is_given_what_it_names(make: Any) -> None:
    outcomes(mf.network(make, RECIPE), clouds(), random_trials([28]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: 3, "lambda must make a torch.nn.Module for a recipe to train; got an object of type int"),
        (lambda: nn.Linear(9, 3), r"lambda cannot be applied to images \(2, 5, 1, 1\).*RuntimeError: .*multiplied"),
        (lambda: nn.Flatten(), r"lambda must map images \(2, 5, 1, 1\) to logits \(2, 3\); got \(2, 5\)"),
        (
            lambda: nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(3)),
            "lambda makes a module that has no parameters to",
        ),
        (lambda: nn.Identity(), r"to logits \(2, 3\); got \(2, 5, 1, 1\)"),
        (lambda: 1 / 0, r"lambda\(\) raised ZeroDivisionError: division by zero; a factory is given in_channels"),
        (
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(5, int(torch.randint(1, 99, ()))), nn.LazyLinear(3)),
            "lambda makes modules of different shapes when called again",
        ),
    ],
)
def test_factories_that_make_no_usable_module(make: Any, message: str) -> None:
    with pytest.raises(LearnerError, match=message) as raised:
        results(mf.network(make, RECIPE), clouds(), random_trials([28, 28]))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("factory", "recipe", "settings", "message"),
    [
        (nn.Linear(2, 3), "fast", {}, "Linear is one module, but every trial begins with a new one; give the class"),
        (3, "fast", {}, "torch modules that a function or class makes; got an object of type int"),
        (LogisticRegression(), "fast", {}, "got an object of type LogisticRegression"),
        (Dropping, "fats", {}, r"there is no recipe 'fats'; did you mean 'fast'\? There are cifar100, "),
        (Dropping, "fast", {"widht": 3}, r"Dropping@fast has no setting 'widht'; did you mean 'width'\? Its archi"),
        (
            Dropping,
            "fast",
            {"nothing": 3},
            r"no setting 'nothing'\. Its architecture has depth, width; any network has decode_workers, group, images;"
            r" its recipe has alternate_flips, batch, .*, flip, label_smoothing, ",
        ),
        (Dropping, "fast", {"width": "wide"}, "'width' of Dropping@fast must be an integer; got 'wide'"),
        (Dropping, "fast", {"epochs": 0}, "'epochs' of the recipe must be an integer of at least 1"),
        (nn.Linear, "fast", {}, "Linear needs in_features, out_features; a factory is given in_channels and n_classes"),
    ],
)
def test_what_is_no_factory(factory: Any, recipe: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(LearnerError, match=message):
        mf.network(factory, recipe, **settings)


def test_a_class_of_modules_without_a_recipe_is_told_of_recipes() -> None:
    with pytest.raises(
        LearnerError, match=r"Dropping is a torch module, which needs a recipe: file.py:Dropping@fast, or memfl"
    ):
        resolve(f"{USER_FILE}:Dropping")
    with pytest.raises(LearnerError, match=r"an object of type Linear is one torch module, .*; give a function that"):
        resolve(nn.Linear(2, 3))
    with pytest.raises(LearnerError, match=r"needs a recipe: net.py:make@fast"):
        resolve(lambda n_classes: None)
    with pytest.raises(LearnerError, match=r"no attribute 'Droping'; did you mean 'Dropping'\?"):
        resolve(f"{USER_FILE}:Droping@fast")
    with pytest.raises(LearnerError, match=r"nearest_scores needs x, y, seed; a factory is given"):
        resolve(f"{USER_FILE}:nearest_scores@fast")
    assert callable(nearest_scores)


def test_pickled_and_through_worker_processes(tmp_path: Path) -> None:
    settings = {"width": "4", "epochs": "2", "batch": "9", "normalization": "subset"}
    name = f"{USER_FILE}:Dropping@mnist"
    copy = pickle.loads(pickle.dumps(resolve(name, settings)))
    assert copy.describe() == resolve(name, settings).describe()
    runs = [
        mf.run(clouds(), learner=name, settings=settings, trials=4, out=tmp_path / str(n), workers=n, progress=False)
        for n in (1, 2)
    ]
    pd.testing.assert_frame_equal(*(run.memorization() for run in runs))


# What the trainer falls back to.


def as_on_a_gpu(learner: Network, dataset: Dataset, trial: Trial, patch: pytest.MonkeyPatch) -> Trainer:
    """The learner's trainer, which believes that it can capture its step."""
    trainer = trainer_of(learner, dataset, trial)
    patch.setattr(trainer, "_on_gpu", True)
    patch.setattr(trainer, "_device", torch.device("cpu"))
    patch.setattr(torch.random, "fork_rng", fork_on_a_cpu)
    patch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    patch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    return trainer


real_fork = torch.random.fork_rng


def fork_on_a_cpu(devices: Any = ()) -> Any:
    return real_fork(devices=[])


def refused(*_: Any, **__: Any) -> Any:
    raise RuntimeError("this module cannot be compiled\nfor many reasons")


@pytest.mark.usefixtures("imitated_graphs")
@pytest.mark.parametrize("where", ["at once", "when it is called", "when it predicts", "in the capture"])
def test_a_step_that_cannot_be_compiled_or_captured_is_called_as_it_is(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, trials = clouds(), random_trials([28, 28])
    expected = scores(mf.network(Dropping, RECIPE), data, trials)

    def compile_(function: Any) -> Any:
        if where == "at once":
            refused()
        fails = where == "when it is called" or (where == "when it predicts" and function.__name__ == "_plain_predict")
        return refused if fails else function

    pretend_triton(monkeypatch, installed=True)
    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(torch.cuda, "graph", refused)
    monkeypatch.setattr(outcomes_module, "_shown", set())
    learner = mf.network(Dropping, RECIPE)
    trainer = as_on_a_gpu(learner, data, trials[0], monkeypatch)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = scores(learner, data, trials)
    told = [str(one.message) for one in caught if issubclass(one.category, MemfluenceWarning)]
    assert len(told) == 1  # not once a trial
    assert "cannot be captured in a CUDA graph and will be slower (RuntimeError: this module cannot be co" in told[0]
    assert trainer._graph is None
    assert trainer._eager
    for number in expected:
        assert found[number].tobytes() == expected[number].tobytes()


@pytest.mark.usefixtures("imitated_graphs")
def test_a_step_that_cannot_be_compiled_may_still_be_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    data, trials = clouds(), random_trials([28, 28])
    pretend_triton(monkeypatch, installed=True)
    monkeypatch.setattr(torch, "compile", refused)
    learner = mf.network(Dropping, RECIPE)
    trainer = as_on_a_gpu(learner, data, trials[0], monkeypatch)
    with pytest.warns(MemfluenceWarning, match="cannot be compiled and will be slower"):
        trainer._accelerate()
    assert trainer._graph is not None
    assert not trainer._eager


@pytest.mark.usefixtures("imitated_graphs")
def test_too_little_memory_is_no_reason_to_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    data, trials = clouds(), random_trials([28])
    learner = mf.network(Dropping, RECIPE)
    as_on_a_gpu(learner, data, trials[0], monkeypatch)
    monkeypatch.setattr(torch.cuda, "graph", exhausted)
    with pytest.raises(LearnerError, match=r"memory does not hold Dropping with batches of 9"):
        results(learner, data, trials)


# On a GPU.

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Synchronizing(Convolutional):
    """Looks at its values on the host, which no captured step can do."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if images.sum().item() == 1.23:
            images = images + 1
        return nn.functional.dropout(super().forward(images), 0.2, self.training)


@needs_gpu
@pytest.mark.parametrize("factory", [Dropping, Convolutional, Synchronizing])
def test_a_gpu_gives_the_same_bits_whatever_it_trained_before(factory: Any) -> None:
    data = clouds() if factory is Dropping else pictures()
    trials = random_trials([28] * 3) if factory is Dropping else random_trials([20] * 3, n_train=30)
    recipe = RECIPE if factory is Dropping else PLAIN
    learner = mf.network(factory, recipe)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = list(learner.train(data, trials, record=EVERYTHING, device="cuda"))
        again = list(learner.train(data, trials[::-1], record=EVERYTHING, device="cuda"))[::-1]
        (fresh,) = mf.network(factory, recipe).train(data, trials[1:2], record=EVERYTHING, device="cuda")
    assert not [one for one in (*first, *again, fresh) if isinstance(one, Failure)]
    assert all(same_bits(one, other) for one, other in zip(first, again))  # type: ignore[arg-type]
    assert same_bits(first[1], fresh)  # type: ignore[arg-type]
    assert not same_bits(first[0], first[1])  # type: ignore[arg-type]
    (trainer,) = learner._trainers.values()
    assert (trainer._graph is None) == (factory is Synchronizing)
    assert any("will be slower" in str(one.message) for one in caught) == (factory is Synchronizing)
