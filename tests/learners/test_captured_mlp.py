"""MLPs captured for a GPU, on a CPU in float32: against torch.nn and torch.optim.SGD, and in the learner's hands."""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from learner_worlds import EVERYTHING, arrays, clouds, in_batches, outcomes, random_trials, results, same_bits, trial_of
from torch import nn

from memfluence.datasets import Dataset, from_arrays
from memfluence.errors import LearnerError
from memfluence.learners import MLP
from memfluence.learners.nets import captured_mlp as captured_module
from memfluence.learners.nets import device as device_module
from memfluence.learners.nets.captured_mlp import (
    CapturedMLP,
    CapturedTraining,
    _update_kernel,
    update_in_torch,
)
from memfluence.records import GIVEN, Failure, Outcome, Trial
from memfluence.seeding import integer_seed

CPU, GPU = torch.device("cpu"), torch.device("cuda")
# Float32 rounding over some ten or hundred steps; weights and logits are of the order of 1 to 10.
CLOSE: dict[str, float] = {"rtol": 1e-4, "atol": 1e-5}
SETTINGS = MLP(hidden=(16,), epochs=6, batch=8, rate=0.05)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def ranged() -> Dataset:
    """Clouds whose range is known, as the captured path needs it."""
    return clouds(value_range=(-10.0, 10.0))


def on_cpu(settings: MLP, dataset: Dataset, models: int, subset_size: int) -> CapturedTraining:
    return CapturedTraining(settings, dataset, models, subset_size, CPU, torch.float32)


# The models.


def made(widths: Sequence[int], models: int, n_classes: int) -> CapturedMLP:
    mlp = CapturedMLP([*widths, n_classes], models, n_classes, CPU, torch.float32)
    mlp.initialize(range(100, 100 + models))
    return mlp


def twin_of(mlp: CapturedMLP, model: int) -> nn.Sequential:
    """A plain torch model with the weights of one of the models, for classes that exist."""
    values, layers = mlp._parts[0], []
    for weight, bias in zip(values[::2], values[1::2]):
        n_in, n_out = weight.shape[1:]
        is_last = weight is values[-2]
        n_out = mlp._n_classes if is_last else n_out
        linear = nn.Linear(n_in, n_out)
        with torch.no_grad():
            linear.weight.copy_(weight[model, :, :n_out].mT)
            linear.bias.copy_(bias[model, 0, :n_out])
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def batches(models: int, width: int, n_in: int, n_classes: int, steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(models, width, n_in, generator=generator),
            torch.randint(n_classes, (models, width), generator=generator),
        )
        for _ in range(steps)
    ]


@pytest.mark.parametrize("hidden", [(), (16,), (12, 9)])
@pytest.mark.parametrize("n_classes", [2, 3, 8, 9])
def test_equals_plain_torch(hidden: tuple[int, ...], n_classes: int) -> None:
    mlp = made([5, *hidden], 3, n_classes)
    twins = [twin_of(mlp, k) for k in range(3)]
    optimizers = [torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9) for twin in twins]
    for inputs, labels in batches(3, 7, 5, n_classes, steps=12):
        mlp.step(inputs, labels, rate=0.05, momentum=0.9)
        for k, (twin, optimizer) in enumerate(zip(twins, optimizers)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(twin(inputs[k]), labels[k]).backward()
            optimizer.step()
    asked = torch.randn(20, 5, generator=torch.Generator().manual_seed(2))
    predicted = mlp.predicted(asked)
    assert predicted.shape == (3, 20, n_classes)
    for k, twin in enumerate(twins):
        for ours, theirs in zip(twin_of(mlp, k).parameters(), twin.parameters()):
            torch.testing.assert_close(ours, theirs, **CLOSE)
        torch.testing.assert_close(predicted[k], twin(asked).detach(), **CLOSE)


def test_steps_of_another_width_are_means_over_it() -> None:
    mlp, (given, fewer) = made([5, 6], 2, 3), (batches(2, width, 5, 3, steps=1)[0] for width in (8, 3))
    twin = twin_of(mlp, 1)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.5)
    for inputs, labels in (given, fewer, given):
        mlp.step(inputs, labels, rate=0.1, momentum=0.5)
        optimizer.zero_grad()
        nn.functional.cross_entropy(twin(inputs[1]), labels[1]).backward()
        optimizer.step()
    for ours, theirs in zip(twin_of(mlp, 1).parameters(), twin.parameters()):
        torch.testing.assert_close(ours, theirs, **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("n_classes", "padded"), [(2, 8), (3, 8), (8, 8), (9, 16)])
def test_padded_classes_take_no_part(n_classes: int, padded: int, dtype: torch.dtype) -> None:
    mlp = CapturedMLP([5, 6, n_classes], 3, n_classes, CPU, dtype)
    mlp.initialize([0, 1, 2])
    values, gradients = mlp._parts[0], mlp._parts[2]
    assert values[-2].shape == (3, 6, padded)
    for inputs, labels in batches(3, 7, 5, n_classes, steps=20):
        mlp.step(3 * inputs.to(dtype), labels, rate=0.5, momentum=0.9)
        for part in gradients[-2:]:
            assert not part[:, :, n_classes:].any()
            assert part[:, :, :n_classes].any()
    assert not values[-2][:, :, n_classes:].any()
    assert (values[-1][:, :, n_classes:] == -1e4).all()
    asked = 100 * torch.randn(50, 5, generator=torch.Generator().manual_seed(2))
    assert mlp.predicted(asked.to(dtype)).shape == (3, 50, n_classes)
    assert mlp.predicted(asked.to(dtype)).dtype == torch.float32


def test_initial_weights_are_uniform_and_a_model_depends_on_its_seed_alone() -> None:
    first, second = (CapturedMLP([400, 50, 3], models, 3, CPU, torch.float32) for models in (3, 2))
    first.initialize([7, 8, 9])
    for inputs, labels in batches(2, 4, 400, 3, steps=3):
        second.step(inputs, labels, rate=0.1, momentum=0.9)
    second.initialize([9, 7])  # whatever was there
    for part, other, n_in in zip(first._parts[0], second._parts[0], (400, 400, 50, 50)):
        assert torch.equal(part[2], other[0])
        assert torch.equal(part[0], other[1])
        assert not torch.equal(part[0], part[1])
        real = part[:, :, :3] if part.shape[2] == 8 else part
        assert real.abs().max() <= n_in**-0.5
    weight = first._parts[0][0]
    assert weight.abs().max() > 0.99 * 400**-0.5
    assert abs(weight.std() * 400**0.5 - 3**-0.5) < 0.01
    assert not second._velocity.any()
    assert torch.equal(second._working, second._values)


def test_the_last_layer_is_asked_in_full_precision() -> None:
    mlp = CapturedMLP([5, 3], 1, 3, CPU, torch.bfloat16)
    mlp.initialize([0])
    asked = torch.randn(40, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    expected = asked.float() @ mlp._parts[0][0][0, :, :3] + mlp._parts[0][1][0, :, :3]
    torch.testing.assert_close(mlp.predicted(asked)[0], expected, rtol=1e-6, atol=1e-6)


def test_is_finite_names_the_models_that_are_not() -> None:
    for spoil in range(4):
        mlp = made([5, 6], 3, 3)
        assert mlp.is_finite().tolist() == [True, True, True]
        mlp._parts[0][spoil][1, 0, 0] = (torch.inf, torch.nan)[spoil % 2]
        assert mlp.is_finite().tolist() == [True, False, True]


# The update.


def flat_arrays(dtype: torch.dtype, device: torch.device, size: int = 5000) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    values, velocity, gradient = (torch.randn(size, generator=generator).to(device) for _ in range(3))
    return [values, velocity, gradient.to(dtype), values.to(dtype)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_update_is_the_formula(dtype: torch.dtype) -> None:
    values, velocity, gradient, working = flat_arrays(dtype, CPU)
    moved = 0.9 * velocity.double() + gradient.double()
    expected = values.double() - 0.1 * moved
    update_in_torch(values, velocity, gradient, working, 0.1, 0.9)
    torch.testing.assert_close(velocity.double(), moved, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(values.double(), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(working, values.to(dtype))


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 2048, 5000])
def test_the_triton_kernel_is_the_update_in_torch(dtype: torch.dtype, size: int) -> None:
    pytest.importorskip("triton")
    from memfluence.learners.nets.kernels.sgd_kernel import update

    ours, theirs = flat_arrays(dtype, GPU, size), flat_arrays(dtype, GPU, size)
    for _ in range(3):
        update(*ours, 0.1, 0.9)
        update_in_torch(*theirs, 0.1, 0.9)
    for found, expected in zip(ours[:2], theirs[:2]):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(ours[3], ours[0].to(dtype))


def test_without_triton_or_without_a_gpu_the_update_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _update_kernel(CPU) is update_in_torch
    monkeypatch.delitem(sys.modules, "memfluence.learners.nets.kernels.sgd_kernel", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)  # importing it raises ImportError
    assert _update_kernel(GPU) is update_in_torch


# The training.


def twin_scores(settings: MLP, dataset: Dataset, trial: Trial) -> np.ndarray:
    """Logits (n_train + n_test, n_classes) of one model, trained as a torch user would from the same draws."""
    low, high = dataset.value_range or (0, 1)
    x = torch.tensor((np.concatenate([dataset.x_train, dataset.x_test]) - low) / (high - low), dtype=torch.float32)
    y, kept = torch.tensor(dataset.y_train), torch.from_numpy(trial.kept)
    widths = [x.shape[1], *settings.hidden, -(-dataset.n_classes // 8) * 8]
    init = torch.Generator().manual_seed(integer_seed(trial.root, "init", trial.number))
    layers: list[nn.Module] = []
    for n_in, n_out in itertools.pairwise(widths):
        weight, bias = (
            (torch.empty(shape).uniform_(-(n_in**-0.5), n_in**-0.5, generator=init))
            for shape in ((n_in, n_out), (1, n_out))
        )
        n_out = min(n_out, dataset.n_classes) if len(layers) == 2 * (len(widths) - 2) else n_out
        linear = nn.Linear(n_in, n_out)
        with torch.no_grad():
            linear.weight.copy_(weight[:, :n_out].mT)
            linear.bias.copy_(bias[0, :n_out])
        layers += [linear, nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    order = torch.Generator().manual_seed(integer_seed(trial.root, "order", trial.number))
    draws = torch.empty(settings.epochs, len(kept)).uniform_(generator=order)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.rate, momentum=settings.momentum)
    for epoch in range(settings.epochs):
        for rows in in_batches(kept[draws[epoch].argsort(stable=True)], settings.batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        found: np.ndarray = model(x).numpy()
    return found


@pytest.mark.parametrize("hidden", [(), (16,), (12, 9)])
@pytest.mark.parametrize(
    "size", [24, 28, 25, 9, 5, 1]
)  # full batches, a smaller one or one left over at the end, a subset below a batch
def test_training_equals_plain_torch(hidden: tuple[int, ...], size: int) -> None:
    settings, data, trials = replace(SETTINGS, hidden=hidden), ranged(), random_trials([size] * 3)
    training = on_cpu(settings, data, 3, size)
    train = training.train_inputs
    test = training.test_inputs
    training.train(trials)
    found = np.concatenate([training.scores(train), training.scores(test)], axis=1)
    assert found.shape == (3, data.n_train + data.n_test, data.n_classes)
    for k, trial in enumerate(trials):
        np.testing.assert_allclose(found[k], twin_scores(settings, data, trial), **CLOSE)


@pytest.mark.parametrize(
    ("size", "widths"), [(28, [8, 8, 8, 4]), (24, [8, 8, 8]), (5, [5]), (8, [8]), (25, [8, 8, 5, 4]), (9, [5, 4])]
)
def test_every_epoch_is_a_permutation_of_the_kept_examples(
    size: int, widths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, trials, seen = ranged(), random_trials([size] * 3), []
    step_on = CapturedTraining._step_on

    def spy(training: CapturedTraining, rows: torch.Tensor) -> None:
        seen.append(rows.view(3, -1).clone())
        step_on(training, rows)

    monkeypatch.setattr(CapturedTraining, "_step_on", spy)
    on_cpu(SETTINGS, data, 3, size).train(trials)
    assert [rows.shape[1] for rows in seen] == widths * SETTINGS.epochs
    orders = []
    for epoch in range(SETTINGS.epochs):
        steps = seen[epoch * len(widths) : (epoch + 1) * len(widths)]
        order = torch.cat(steps, dim=1)
        orders.append(order)
        for k, trial in enumerate(trials):
            assert np.array_equal(np.sort(order[k].numpy()), trial.kept)
    assert not torch.equal(orders[0], orders[1])


def test_a_trial_does_not_depend_on_its_group() -> None:
    data, trials = ranged(), random_trials([28] * 5)
    training = on_cpu(SETTINGS, data, 3, 28)
    train = training.train_inputs
    training.train(trials[:3])
    first = training.scores(train)
    training.train([trials[4], trials[0], trials[3]])
    np.testing.assert_allclose(training.scores(train)[1], first[0], **CLOSE)
    training.train(trials[:3])  # and nothing of the last group is left
    assert np.array_equal(training.scores(train), first)
    alone = on_cpu(SETTINGS, data, 1, 28)
    for k in range(3):
        alone.train([trials[k]])
        np.testing.assert_allclose(alone.scores(train)[0], first[k], **CLOSE)
    assert np.abs(first[0] - first[1]).max() > 0.01


def test_codes_are_those_of_the_scores_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data, trials = ranged(), random_trials([28] * 2)
    training = on_cpu(SETTINGS, data, 2, 28)
    train = training.train_inputs
    test = training.test_inputs
    training.train(trials)
    whole = training.scores(train)
    for inputs in (train, test):
        codes = training.codes(inputs)
        assert codes.shape == (2, len(inputs))
        assert np.array_equal(codes, training.scores(inputs).argmax(axis=2))
        assert codes.max() < data.n_classes
    monkeypatch.setattr(captured_module, "_ROWS_AT_ONCE", 7)
    np.testing.assert_allclose(training.scores(train), whole, rtol=1e-5, atol=1e-6)
    assert np.array_equal(training.codes(train), whole.argmax(axis=2))


def test_finite_names_the_models_that_diverged() -> None:
    x_train, y_train, x_test, y_test = arrays()
    x_train[0] = 1e15
    data = from_arrays(x_train, y_train, x_test, y_test, value_range=(0, 1))
    trials = [trial_of(0, range(1, 21)), trial_of(1, range(20)), trial_of(2, range(5, 25))]
    training = on_cpu(SETTINGS, data, 3, 20)
    train = training.train_inputs
    training.train(trials)
    assert training.finite() == [True, False, True]
    training.train([replace(trial, number=5 + k) for k, trial in enumerate([trials[0], trials[2], trials[0]])])
    assert training.finite() == [True, True, True]
    assert np.isfinite(training.scores(train)).all()


# The learner.


@pytest.mark.parametrize(
    ("settings", "value_range", "sizes", "device", "bfloat16", "chosen"),
    [
        pytest.param({}, (-10, 10), [28, 28], GPU, True, True, id="all is well"),
        pytest.param({"precision": "bfloat16"}, (-10, 10), [28], GPU, True, True, id="asked for"),
        pytest.param({}, (-10, 10), [28, 28], CPU, True, False, id="a CPU"),
        pytest.param({"precision": "bfloat16"}, (-10, 10), [28, 28], CPU, True, False, id="a CPU, asked for"),
        pytest.param({}, None, [28, 28], GPU, True, False, id="each model has a scale of its own"),
        pytest.param({"precision": "float32"}, (-10, 10), [28, 28], GPU, True, False, id="float32 asked for"),
        pytest.param({"clip": 1.0}, (-10, 10), [28, 28], GPU, True, False, id="clipping"),
        pytest.param({}, (-10, 10), [28, 27], GPU, True, False, id="two sizes"),
        pytest.param({}, (-10, 10), [0, 0], GPU, True, False, id="nothing kept"),
        pytest.param({}, (-10, 10), [28, 28], GPU, False, False, id="an older GPU"),
    ],
)
def test_which_groups_are_captured(
    settings: dict[str, Any],
    value_range: tuple[float, float] | None,
    sizes: list[int],
    device: torch.device,
    bfloat16: bool,
    chosen: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_: bfloat16)
    found = MLP(**settings)._can_be_captured(clouds(value_range=value_range), random_trials(sizes), device)
    assert found is chosen


@pytest.mark.parametrize("captured", [False, True])
def test_the_learner_goes_the_way_that_was_chosen(captured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    way: list[str] = []

    def goes(name: str) -> Any:
        return lambda self, dataset, trials, record, device: way.append(name) or []

    monkeypatch.setattr(MLP, "_can_be_captured", lambda *_: captured)
    monkeypatch.setattr(MLP, "_captured_results", goes("captured"))
    monkeypatch.setattr(MLP, "_results", goes("batched"))
    results(MLP(), ranged(), random_trials([28]))
    assert way == ["captured" if captured else "batched"]


@pytest.fixture
def captured_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The captured path for groups of one size, on a CPU in float32."""
    monkeypatch.setattr(MLP, "_can_be_captured", lambda *_: True)
    monkeypatch.setattr(captured_module, "CapturedTraining", partial(CapturedTraining, dtype=torch.float32))


@pytest.mark.usefixtures("captured_on_cpu")
def test_a_captured_group_gives_outcomes_like_any_other() -> None:
    learner, data, trials = replace(SETTINGS, epochs=40), ranged(), random_trials([28] * 4)
    trials[1] = replace(trials[1], number=70, kind=1)
    found = outcomes(learner, data, trials)
    assert [(one.trial, one.kind) for one in found] == [(trial.number, trial.kind) for trial in trials]
    for outcome, trial in zip(found, trials):
        assert np.array_equal(outcome.mask, trial.mask)
        assert outcome.train_correct[trial.mask].mean() > 0.6  # chance is 1/3
        scores = twin_scores(learner, data, trial)
        assert np.array_equal(outcome.extras["train_prediction"], scores[: data.n_train].argmax(axis=1))
        assert np.array_equal(outcome.test_correct, scores[data.n_train :].argmax(axis=1) == data.y_test)
    for full, usual in zip(found, outcomes(learner, data, trials, record=(GIVEN,))):
        assert set(usual.extras) == {"train_margin", "test_margin"}
        assert all(values.tobytes() == full.extras[name].tobytes() for name, values in usual.extras.items())
        assert np.array_equal(usual.train_correct, full.train_correct)
        assert np.array_equal(usual.test_correct, full.test_correct)
    bare = outcomes(learner, data, trials, record=())
    some = outcomes(learner, data, trials, record=("prediction",))
    for full, without, codes in zip(found, bare, some):
        assert not without.extras
        assert set(codes.extras) == {"train_prediction", "test_prediction"}
        for name in codes.extras:
            assert codes.extras[name].tobytes() == full.extras[name].tobytes()
        for one in (without, codes):
            assert np.array_equal(one.train_correct, full.train_correct)
            assert np.array_equal(one.test_correct, full.test_correct)


@pytest.mark.usefixtures("captured_on_cpu")
def test_a_captured_group_has_the_same_bits_in_a_fresh_learner() -> None:
    data, trials, learner = ranged(), random_trials([28] * 4), replace(SETTINGS)
    first = outcomes(learner, data, trials)
    (kept_for,) = learner._captured
    outcomes(learner, data, trials[::-1])
    assert list(learner._captured) == [kept_for]
    for again in (outcomes(learner, data, trials), outcomes(replace(SETTINGS), data, trials)):
        assert all(same_bits(one, other) for one, other in zip(first, again))
    outcomes(learner, data, trials[:2])  # another shape: one training is held at a time
    assert len(learner._captured) == 1
    assert not replace(learner, rate=0.1)._captured  # which is not found by a learner with other settings


@pytest.mark.usefixtures("captured_on_cpu")
def test_a_captured_model_that_diverges_fails_alone() -> None:
    x_train, y_train, x_test, y_test = arrays()
    x_train[0] = 1e15
    data = from_arrays(x_train, y_train, x_test, y_test, value_range=(0, 1))
    trials = [trial_of(0, range(1, 21)), trial_of(1, range(20)), trial_of(2, range(5, 25))]
    for record in ((), EVERYTHING):
        found = results(SETTINGS, data, trials, record)
        assert [isinstance(one, Failure) for one in found] == [False, True, False]
        assert isinstance(found[1], Failure)
        assert (found[1].trial, "`settings={'rate': 0.005}`" in found[1].message) == (1, True)


@pytest.mark.usefixtures("captured_on_cpu")
def test_nothing_of_a_held_out_example_reaches_a_captured_model() -> None:
    data, trials = ranged(), random_trials([20] * 3)
    left_out = ~trials[0].mask & ~trials[1].mask & ~trials[2].mask
    assert left_out.any()
    x_train, y_train = data.x_train.copy(), data.y_train.copy()
    x_train[left_out] = 1e6
    y_train[left_out] = (y_train[left_out] + 1) % data.n_classes
    changed = replace(data, x_train=x_train, y_train=y_train)
    for before, after in zip(outcomes(SETTINGS, data, trials), outcomes(SETTINGS, changed, trials)):
        for name in before.extras:
            rows = ~left_out if name.startswith("train") else slice(None)
            assert before.extras[name][rows].tobytes() == after.extras[name][rows].tobytes()


def test_bfloat16_is_about_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """The type that a GPU works in, with a CPU's arithmetic."""
    data, trials, learner = ranged(), random_trials([28] * 3), replace(SETTINGS, epochs=40)
    training = on_cpu(learner, data, 3, 28)
    train = training.train_inputs
    training.train(trials)
    rough = CapturedTraining(learner, data, 3, 28, CPU)
    rough_train = rough.train_inputs
    assert rough_train.dtype == torch.bfloat16
    rough.train(trials)
    np.testing.assert_allclose(rough.scores(rough_train), training.scores(train), atol=0.15)
    assert rough.scores(rough_train).dtype == np.float32
    monkeypatch.setattr(MLP, "_can_be_captured", lambda *_: True)
    assert all(outcome.train_correct[outcome.mask].mean() > 0.5 for outcome in outcomes(learner, data, trials))


def test_a_group_that_does_not_fit_ends_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(MLP, "_can_be_captured", lambda *_: True)
    monkeypatch.setattr(captured_module, "CapturedTraining", exhausted)
    with pytest.raises(LearnerError, match=r"does not hold 4 models at once; .*`settings={'models_at_once': 2}`"):
        results(MLP(), ranged(), random_trials([28] * 4))


def test_the_size_of_a_group_depends_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    data = ranged()
    assert MLP().group_size(data, "cpu") == 32
    for device, size in ((CPU, 32), (GPU, 250), (torch.device("cuda:1"), 250)):
        monkeypatch.setattr(device_module, "torch_device", lambda name, device=device: device)
        assert MLP().group_size(data, "auto") == size
        assert MLP(models_at_once=7).group_size(data, "auto") == 7
    assert MLP().group_size(data, "cpu") == 32


@needs_gpu
def test_a_gpu_captures_what_a_cpu_computes() -> None:
    """The step replayed from its graph, in float32, from the draws of the GPU's generators."""
    data, trials = ranged(), random_trials([28] * 4)
    on_gpu = CapturedTraining(SETTINGS, data, 4, 28, GPU, torch.float32)
    train = on_gpu.train_inputs
    plain = CapturedTraining(SETTINGS, data, 4, 28, GPU, torch.float32)
    plain._capture = lambda: None  # type: ignore[method-assign]
    for group in (trials, trials[::-1]):
        on_gpu.train(group)
        plain.train(group)
        np.testing.assert_allclose(on_gpu.scores(train), plain.scores(train), **CLOSE)
    assert on_gpu._graph is not None
    assert plain._graph is None


@needs_gpu
def test_a_gpu_gives_a_captured_group_the_same_bits() -> None:
    data, trials, learner = ranged(), random_trials([28] * 4), replace(SETTINGS, epochs=40)
    assert learner._can_be_captured(data, trials, GPU) is torch.cuda.is_bf16_supported()
    first, again, fresh = (
        list(one.train(data, trials, record=EVERYTHING, device="cuda")) for one in (learner, learner, replace(learner))
    )
    for one, other, third in zip(first, again, fresh):
        assert isinstance(one, Outcome)
        assert same_bits(one, other)  # type: ignore[arg-type]
        assert same_bits(one, third)  # type: ignore[arg-type]
        assert one.train_correct[one.mask].mean() > 0.6
