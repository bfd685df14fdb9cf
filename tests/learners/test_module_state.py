"""What modules of the user's keep of a trial: nothing for the next one, and all of it in a checkpoint."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from learner_worlds import clouds, outcomes, random_trials, same_bits
from test_module_factory import RECIPE, as_on_a_gpu, imitated_graphs
from test_resuming import Memory, Stopping, at_every_step, nothing, stop_at
from torch import nn

import memfluence as mf
from memfluence.errors import LearnerError

__all__ = ["at_every_step", "imitated_graphs"]  # fixtures


class Counting(nn.Module):
    """Attributes of all kinds that follow the training, and some that refer to the module itself."""

    def __init__(self, in_channels: int, n_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(in_channels, n_classes)
        self.recurrent = nn.LSTM(in_channels, in_channels, batch_first=True)
        self.steps, self.seen, self.sums = 0, list[int](), {"all": [0.0]}
        self.layers = [self.head]
        self.values = [self.head.weight]
        self.apply_head = functools.partial(self.headed, 2.0)
        self.functions: list[Callable[[Any], Any]] = [lambda hidden: self.layers[0](hidden)]

    def headed(self, factor: float, hidden: torch.Tensor) -> torch.Tensor:
        return factor * self.functions[0](hidden) + 0 * self.values[0].sum()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        inputs = images.flatten(1)
        if self.training:
            self.steps += 1
            self.late = self.steps
            self.seen.append(len(images))
            self.sums["all"][0] += float(inputs.sum())
        hidden = self.recurrent(inputs[:, None])[0][:, 0]
        return self.apply_head(hidden) * (1 + len(self.seen)) + self.sums["all"][0] + inputs[:, :3] * self.steps


@pytest.mark.parametrize("group", [1, 2])
def test_nothing_of_a_trial_is_there_in_the_next(group: int) -> None:
    make = Counting if group == 1 else Plain
    data, trials = clouds(), random_trials([28] * 4)
    used = mf.network(make, RECIPE, group=group)
    batches = [trials[:group], trials[group : 2 * group]]
    for batch in batches:
        alone = outcomes(mf.network(make, RECIPE, group=group), data, batch)
        assert all(same_bits(*pair) for pair in zip(outcomes(used, data, batch), alone, strict=True))


class Plain(nn.Module):
    """Counts its steps; without what cannot be trained several at once."""

    def __init__(self, in_channels: int, n_classes: int) -> None:
        super().__init__()
        self.head, self.steps = nn.Linear(in_channels, n_classes), 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.steps += self.training
        found: torch.Tensor = self.head(images.flatten(1)) * (1 + self.steps)
        return found


def test_attributes_that_refer_to_the_module_refer_to_the_one_that_is_trained() -> None:
    data, (trial, _) = clouds(), random_trials([28, 28])
    learner = mf.network(Counting, RECIPE)
    trainer = learner._trainer(data, 28, torch.device("cpu"))
    model: Any = trainer._model
    begun = model.head.weight.detach().clone()
    for _ in range(2):
        trainer._initialize(trial)
        assert (model.steps, model.seen, model.sums) == (0, [], {"all": [0.0]})
        assert not hasattr(model, "late")
        assert model.layers[0] is model.head
        assert model.values[0] is model.head.weight
        assert model.apply_head.func.__self__ is model
        assert all(one is two for one, two in zip(model.recurrent._flat_weights, model.recurrent.parameters()))
        assert not model.recurrent._weights_have_changed()
        outcomes(learner, data, [trial])
        assert model.steps > 0
    assert not torch.equal(model.head.weight, begun)


class Remembering(nn.Module):
    """Keeps what it is trained on, somewhere."""

    def __init__(self, in_channels: int, n_classes: int, keep: Any) -> None:
        super().__init__()
        self.head, self.keep = nn.Linear(in_channels, n_classes), keep
        self.bank: Any = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.keep(self, images.detach())
        found: torch.Tensor = self.head(images.flatten(1))
        return found


@pytest.mark.usefixtures("imitated_graphs")
@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize(
    "keep",
    [
        lambda self, images: self.bank.append(images),
        lambda self, images: setattr(self, "bank", {"centre": (images.mean(),)}),
        lambda self, images: setattr(self, "bank", images),
        lambda self, images: setattr(self, "bank", [nn.Linear(2, 2)]),
    ],
)
def test_tensors_in_plain_attributes_are_refused(keep: Any, captured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, data, trials = mf.network(Remembering, RECIPE, keep=keep), clouds(), random_trials([28])
    if captured:
        as_on_a_gpu(learner, data, trials[0], monkeypatch)
    with pytest.raises(
        LearnerError, match=r"Remembering\.bank holds a tensor that .*; register it with register_buffer"
    ):
        outcomes(learner, data, trials)


def test_a_tensor_made_with_the_module_is_refused_before_any_training() -> None:
    def make() -> nn.Module:
        model = nn.Sequential(nn.Flatten(), nn.Linear(5, 3))
        model[1].scale = torch.ones(3)
        return model

    with pytest.raises(LearnerError, match=r"make\.1\.scale holds a tensor that is neither"):
        outcomes(mf.network(make, RECIPE), clouds(), random_trials([28]))


def test_weights_that_torch_computes_from_others_are_no_hidden_tensors() -> None:
    def make() -> nn.Module:
        with pytest.warns(FutureWarning):
            return nn.Sequential(nn.Flatten(), nn.utils.weight_norm(nn.Linear(5, 3)))

    data, trials = clouds(), random_trials([28, 28])
    both = outcomes(mf.network(make, RECIPE), data, trials)
    assert same_bits(both[1], outcomes(mf.network(make, RECIPE), data, trials[1:])[0])


def test_a_factory_that_gives_the_same_module_again_is_refused() -> None:
    whole = nn.Sequential(nn.Flatten(), nn.Linear(5, 3))
    for make in (lambda: whole, lambda: nn.Sequential(whole, nn.Identity())):
        with pytest.raises(LearnerError, match="gives a module, or a part of one, that it gave before"):
            outcomes(mf.network(make, RECIPE), clouds(), random_trials([28]))


class MeanTeacher(nn.Module):
    """A frozen average of the weights, moved in every step, which is what predicts."""

    def __init__(self, in_channels: int, n_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(in_channels, n_classes)
        self.average = nn.Parameter(torch.zeros(n_classes, in_channels), requires_grad=False)
        self.same = self.average

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return images.flatten(1) @ self.average.T
        with torch.no_grad():
            self.average.mul_(0.9).add_(self.head.weight, alpha=0.1)
        found: torch.Tensor = self.head(images.flatten(1))
        return found


@pytest.mark.usefixtures("at_every_step")
def test_frozen_parameters_that_steps_change_are_in_the_checkpoint() -> None:
    data, trials = clouds(), random_trials([28])
    expected = outcomes(mf.network(MeanTeacher, RECIPE), data, trials)[0]
    checkpoints = Memory(every=1e9)
    with pytest.raises(Stopping):
        outcomes(mf.network(MeanTeacher, RECIPE).resuming(checkpoints, stop_at(0.5)), data, trials)
    fresh = mf.network(MeanTeacher, RECIPE)
    assert same_bits(outcomes(fresh.resuming(checkpoints, nothing), data, trials)[0], expected)
    (trainer,) = fresh._trainers.values()
    places = [value.data_ptr() for value in trainer._state()]
    assert len(places) == len(set(places))
