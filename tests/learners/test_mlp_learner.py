"""The batched trainer against plain torch: same initialisation, same order, autograd and torch.optim.SGD."""

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from learner_worlds import EVERYTHING, arrays, clouds, in_batches, outcomes, random_trials, results, same_bits, trial_of
from torch.nn.utils import prune

from memfluence.datasets import Dataset, from_arrays, load
from memfluence.errors import LearnerError
from memfluence.learners import MLP, mlp
from memfluence.learners.nets.batched_mlp import batch_sizes
from memfluence.records import Failure, Trial

# Float32 rounding over a few hundred steps; the scores themselves are of the order of 1 to 10.
TOLERANCE: dict[str, float] = {"rtol": 2e-3, "atol": 2e-3}


def twin_scores(settings: MLP, dataset: Dataset, trial: Trial) -> np.ndarray:
    """Logits (n_train + n_test, n_classes) of one model, trained as a torch user would train it."""
    inputs = (
        np.concatenate([dataset.x_train, dataset.x_test]).reshape(dataset.n_train + dataset.n_test, -1).astype(float)
    )
    if dataset.value_range is None:
        own = inputs[trial.kept]
        deviation = own.std(axis=0)
        inputs = (inputs - own.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    else:
        low, high = dataset.value_range
        inputs = (inputs - low) / (high - low)
    x, y = torch.tensor(inputs, dtype=torch.float32), torch.tensor(dataset.y_train)

    init, order = trial.generator("init"), trial.generator("order")
    layers: list[torch.nn.Module] = []
    widths = [x.shape[1], *settings.hidden, dataset.n_classes]
    for n_in, n_out in itertools.pairwise(widths):
        linear = torch.nn.Linear(n_in, n_out)
        with torch.no_grad():
            for parameter in (linear.weight, linear.bias):
                drawn = init.random(tuple(parameter.shape), dtype=np.float32)
                parameter.copy_(torch.from_numpy((2 * drawn - 1) / np.float32(np.sqrt(n_in))))
        layers += [linear, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    optimizer = torch.optim.SGD(
        model.parameters(), lr=settings.rate, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    for _ in range(settings.epochs):
        rows = torch.from_numpy(order.permutation(trial.kept))
        for batch in in_batches(rows, settings.batch):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    if settings.prune:
        linears = [layer for layer in model if isinstance(layer, torch.nn.Linear)]
        prune.global_unstructured([(one, "weight") for one in linears], prune.L1Unstructured, amount=settings.prune)
    with torch.no_grad():
        scores: np.ndarray = model(x).numpy()
    return scores


def batched_scores(settings: MLP, dataset: Dataset, trials: list[Trial], device: str = "cpu") -> dict[int, np.ndarray]:
    """The float32 logits that the learner makes its outcomes from, by trial number."""
    found: dict[int, np.ndarray] = {}
    original = mlp.outcome_from

    def spy(trial: Trial, dataset: Dataset, train: np.ndarray, test: np.ndarray, **rest: Any) -> Any:
        found[trial.number] = np.concatenate([train, test])
        return original(trial, dataset, train, test, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mlp, "outcome_from", spy)
        list(settings.train(dataset, trials, record=(), device=device))
    return found


@pytest.mark.parametrize("hidden", [(), (16,), (12, 9), (7, 6, 5)])
@pytest.mark.parametrize("value_range", [None, (-10.0, 10.0)])
def test_equals_plain_torch(hidden: tuple[int, ...], value_range: tuple[float, float] | None) -> None:
    settings, data = MLP(hidden=hidden, epochs=12, batch=8), clouds(value_range=value_range)
    trials = random_trials([28, 28, 28])
    found = batched_scores(settings, data, trials)
    for trial in trials:
        np.testing.assert_allclose(found[trial.number], twin_scores(settings, data, trial), **TOLERANCE)


@pytest.mark.parametrize("limit", [{"weight_decay": 0.03}, {"prune": 0.6}, {"weight_decay": 0.01, "prune": 0.3}])
@pytest.mark.parametrize("sizes", [[28, 28, 28], [33, 25, 17, 9]])
def test_weight_decay_and_pruning_are_those_of_torch(limit: dict[str, float], sizes: list[int]) -> None:
    settings, data, trials = MLP(hidden=(12, 9), epochs=8, batch=8, **limit), clouds(), random_trials(sizes)
    found, free = (batched_scores(one, data, trials) for one in (settings, MLP(hidden=(12, 9), epochs=8, batch=8)))
    for trial in trials:
        np.testing.assert_allclose(found[trial.number], twin_scores(settings, data, trial), **TOLERANCE)
        assert np.abs(found[trial.number] - free[trial.number]).max() > 0.1


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([28, 27, 28, 27], id="the lemma's m and m - 1"),
        pytest.param([24, 23, 17, 16, 9, 8, 7, 1], id="every way to end an epoch"),
        pytest.param([1, 40, 8], id="from one example to all"),
        pytest.param([16, 32], id="full batches only"),
        pytest.param([33, 25, 17, 9], id="one example left over"),
        pytest.param([33, 32, 31, 23, 15], id="one of several has one left over"),
    ],
)
@pytest.mark.parametrize("value_range", [None, (-10.0, 10.0)])
def test_subsets_of_different_sizes_are_exact(sizes: list[int], value_range: tuple[float, float] | None) -> None:
    settings, data = MLP(hidden=(16,), epochs=8, batch=8), clouds(value_range=value_range)
    trials = random_trials(sizes)
    found = batched_scores(settings, data, trials)
    for trial in trials:
        np.testing.assert_allclose(found[trial.number], twin_scores(settings, data, trial), **TOLERANCE)


@pytest.mark.parametrize(
    ("size", "batch", "expected"),
    [
        (1, 64, [1]),
        (7, 64, [7]),
        (64, 64, [64]),
        (65, 64, [33, 32]),
        (71, 64, [36, 35]),
        (72, 64, [64, 8]),
        (129, 64, [64, 33, 32]),
        (420, 64, [64] * 6 + [36]),
        (9, 8, [5, 4]),
        (10, 8, [8, 2]),
        (3, 2, [2, 1]),
        (5, 1, [1] * 5),
        (5, 5, [5]),
    ],
)
def test_a_handful_left_over_shares_with_the_batch_before(size: int, batch: int, expected: list[int]) -> None:
    assert batch_sizes(size, batch) == expected == [len(part) for part in in_batches(torch.arange(size), batch)]


def test_one_example_more_does_no_harm() -> None:
    """Of 64 and 65 digits; the second once trained half of all steps on a single one, to an accuracy of 43%."""
    data = load("digits")
    found = outcomes(MLP(), data, random_trials([64] * 16 + [65] * 16, data.n_train), ())
    accuracy = np.array([one.test_correct.mean() for one in found])
    assert accuracy[16:].min() > 0.7
    assert accuracy[16:].mean() > accuracy[:16].mean() - 0.02


@pytest.mark.parametrize("value_range", [None, (-10.0, 10.0)])
def test_a_batch_beyond_the_subset_is_the_subset(value_range: tuple[float, float] | None) -> None:
    data, trials = clouds(value_range=value_range), random_trials([28, 20, 28])
    whole = batched_scores(MLP(hidden=(16,), epochs=8, batch=28), data, trials)
    beyond = batched_scores(MLP(hidden=(16,), epochs=8, batch=10**12), data, trials)  # which no memory would hold
    for trial in trials:
        assert np.array_equal(beyond[trial.number], whole[trial.number])


def test_many_at_once_equal_one_by_one() -> None:
    settings, data, trials = MLP(hidden=(16, 8), epochs=10, batch=8), clouds(), random_trials([28, 22, 28, 5, 28, 28])
    together = batched_scores(settings, data, trials)
    for trial in trials:
        alone = batched_scores(settings, data, [trial])
        np.testing.assert_allclose(together[trial.number], alone[trial.number], **TOLERANCE)


def test_a_constant_feature_and_a_time_stamp_are_scaled_by_the_kept_examples() -> None:
    x_train, y_train, x_test, y_test = arrays()
    for x in (x_train, x_test):
        x[:, 0] = 3
        x[:, 1] = 1.7e9 + np.round(x[:, 1], 2)  # float32 has steps of 128 there
    data, settings = from_arrays(x_train, y_train, x_test, y_test), MLP(hidden=(16,), epochs=8, batch=8)
    trials = random_trials([28, 20])
    found = batched_scores(settings, data, trials)
    for trial in trials:
        np.testing.assert_allclose(found[trial.number], twin_scores(settings, data, trial), **TOLERANCE)


def test_a_feature_that_is_constant_but_for_rounding_is_not_blown_up() -> None:
    x_train, y_train, x_test, y_test = arrays()
    x_train[:, 0] = x_test[:, 0] = 0.1
    x_train[39, 0] = 0.7  # left out below
    data, settings = from_arrays(x_train, y_train, x_test, y_test), MLP(hidden=(16,), epochs=8, batch=8)
    trial = trial_of(0, range(27))
    assert x_train[trial.kept, 0].mean() != 0.1  # the mean of equal numbers is not that number
    scores = batched_scores(settings, data, [trial])[0]
    assert np.abs(scores).max() < 100
    without = from_arrays(x_train[:, 1:], y_train, x_test[:, 1:], y_test)
    assert np.abs(batched_scores(settings, without, [trial])[0]).max() > 1


def test_signed_bytes_do_not_overflow() -> None:
    x_train, y_train, x_test, y_test = arrays()
    as_bytes = [np.clip(40 * x, -128, 127).astype(np.int8) for x in (x_train, x_test)]
    data = from_arrays(as_bytes[0], y_train, as_bytes[1], y_test, value_range=(-128, 127))
    settings, (trial,) = MLP(hidden=(16,), epochs=8, batch=8), random_trials([28])
    scores = batched_scores(settings, data, [trial])[0]
    np.testing.assert_allclose(scores, twin_scores(settings, data, trial), **TOLERANCE)


def test_margin_and_logit_are_those_of_the_softmax() -> None:
    settings, data, trials = MLP(hidden=(16,), epochs=3, batch=8), clouds(), random_trials([28])
    scores = batched_scores(settings, data, trials)[0].astype(float)[: data.n_train]
    extras = outcomes(settings, data, trials, EVERYTHING)[0].extras
    rows = np.arange(data.n_train)
    probability = (np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True))[rows, data.y_train]
    np.testing.assert_allclose(extras["train_logit"], np.log(probability / (1 - probability)), rtol=2e-3, atol=2e-3)
    others = scores.copy()
    others[rows, data.y_train] = -np.inf
    np.testing.assert_allclose(
        extras["train_margin"], scores[rows, data.y_train] - others.max(axis=1), rtol=2e-3, atol=2e-3
    )
    assert np.array_equal(extras["train_prediction"], scores.argmax(axis=1))


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from memfluence.learners.nets import batched_mlp as batched_mlp_module

    settings, data, trials = MLP(hidden=(16,), epochs=3, batch=8), clouds(), random_trials([28])
    whole = batched_scores(settings, data, trials)[0]
    monkeypatch.setattr(batched_mlp_module, "_ROWS_AT_ONCE", 7)
    np.testing.assert_allclose(batched_scores(settings, data, trials)[0], whole, rtol=1e-5, atol=1e-5)


def test_a_model_that_diverges_fails_alone() -> None:
    x_train, y_train, x_test, y_test = arrays()
    x_train[0] = 1e15
    data = from_arrays(x_train, y_train, x_test, y_test, value_range=(0, 1))
    trials = [trial_of(0, range(1, 20)), trial_of(1, range(20)), trial_of(2, range(5, 25))]
    found = results(MLP(hidden=(8,), epochs=20, batch=8), data, trials)
    assert [isinstance(result, Failure) for result in found] == [False, True, False]
    assert isinstance(found[1], Failure)
    assert "`settings={'rate': 0.01}`" in found[1].message
    again = outcomes(MLP(hidden=(8,), epochs=20, batch=8), data, [trials[0]])[0]
    assert np.array_equal(again.test_correct, found[0].test_correct)  # type: ignore[union-attr]


def table(x: np.ndarray) -> pd.DataFrame:
    frame = pd.DataFrame(x, columns=[f"f{k}" for k in range(x.shape[1])])
    return frame.assign(f0=x[:, 0] > 0, f1=np.round(x[:, 1]).astype(int))


@pytest.mark.parametrize(
    "convert",
    [
        pytest.param(lambda x: (10 * x).astype(np.int32), id="integers"),
        pytest.param(lambda x: x > 0, id="booleans"),
        pytest.param(lambda x: x.astype(np.float16), id="half"),
        pytest.param(lambda x: np.stack([x, -x], axis=2), id="images"),
        pytest.param(scipy.sparse.csr_matrix, id="sparse"),
        pytest.param(table, id="table"),
        pytest.param(lambda x: x.tolist(), id="lists of numbers"),
        pytest.param(torch.tensor, id="torch"),
    ],
)
def test_takes_numbers_of_any_kind(convert: Any) -> None:
    x_train, y_train, x_test, y_test = arrays()
    data = from_arrays(convert(x_train), y_train, convert(x_test), y_test)
    (outcome,) = outcomes(MLP(hidden=(16,), epochs=20, batch=8), data, random_trials([28]))
    assert outcome.train_correct[outcome.mask].mean() > 0.5


@pytest.mark.parametrize(
    ("inputs", "kind"),
    [
        (["a", "b", "c", "d"], "str"),
        (pd.DataFrame({"word": ["a", "b", "c", "d"]}), "object|str"),
        ([[1], [1, 2], [3], [4]], "list"),
    ],
)
def test_refuses_what_is_not_numbers(inputs: Any, kind: str) -> None:
    data = from_arrays(inputs, [0, 1, 0, 1], inputs, [0, 1, 0, 1])
    with pytest.raises(LearnerError, match=rf"arrays of numbers.*({kind}).*scikit-learn pipeline"):
        results(MLP(), data, [trial_of(0, [0, 1], 4)])


def test_refuses_a_sparse_matrix_too_large_to_expand() -> None:
    wide = scipy.sparse.csr_matrix((4, 10**8))
    data = from_arrays(wide, [0, 1, 0, 1], wide, [0, 1, 0, 1])
    with pytest.raises(LearnerError, match="too large to expand; use a scikit-learn classifier"):
        results(MLP(), data, [trial_of(0, [0, 1], 4)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": (0,)}, "'hidden' of mlp must be .*integers of at least 1.*got \\(0,\\)"),
        ({"hidden": 5}, "'hidden' of mlp .*got 5"),
        ({"epochs": 0}, "'epochs' of mlp must be an integer of at least 1; got 0"),
        ({"batch": 1.5}, "'batch'.*got 1.5"),
        ({"models_at_once": True}, "'models_at_once'.*got True"),
        ({"rate": 0.0}, "'rate' of mlp must be a number above 0; got 0.0"),
        ({"rate": float("nan")}, "'rate'.*got nan"),
        ({"momentum": 1.0}, "'momentum' of mlp must be a number in \\[0, 1\\); got 1.0"),
        ({"weight_decay": -1.0}, "'weight_decay' of mlp must be a number of at least 0; got -1.0"),
        ({"prune": 1.0}, "'prune' of mlp must be a number in \\[0, 1\\); got 1.0"),
    ],
)
def test_refuses_settings_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(LearnerError, match=message):
        MLP(**settings)


def test_identity_leaves_out_the_group_size_alone() -> None:
    assert MLP(models_at_once=4).describe() == MLP().describe()
    for changed in (MLP(hidden=(64,)), MLP(epochs=5), MLP(batch=32), MLP(rate=0.2), MLP(momentum=0.5), MLP(clip=1.0)):
        assert changed.describe() != MLP().describe()
    assert MLP(clip=1.0, noise=0.5).describe() != MLP(clip=1.0).describe()
    assert MLP(hidden=[8, 4]).hidden == (8, 4)  # type: ignore[arg-type]
    assert MLP(models_at_once=4).group_size(clouds(), "cpu") == 4


def test_settings_that_came_later_do_not_change_who_it_is() -> None:
    """A run of an mlp without clipping goes on, and its trials are joined with those of older versions."""
    known = {"hidden": [128], "epochs": 30, "batch": 64, "rate": 0.1, "momentum": 0.9, "precision": "auto"}
    assert MLP().describe() == {"name": "mlp", "settings": known}
    for later in ({"clip": 2.0}, {"weight_decay": 0.01}, {"prune": 0.5}):
        assert MLP(**later).describe() == {"name": "mlp", "settings": known | later}


def test_trains_with_one_thread_and_gives_the_others_back() -> None:
    data, trials = clouds(), random_trials([28])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        first = outcomes(MLP(epochs=3), data, trials)[0]
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        assert same_bits(first, outcomes(MLP(epochs=3), data, trials)[0])
        with pytest.raises(LearnerError):
            results(MLP(), from_arrays(["a", "b"], [0, 1], ["a"], [0]), [trial_of(0, [0, 1], 2)])
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("tpu", "must be auto, cpu, cuda or cuda:N; got 'tpu'"),
        ("meta", "got 'meta'"),
        ("cuda:99", "no .*'cuda:99'|GPU"),
    ],
)
def test_refuses_devices_that_are_not_there(device: str, message: str) -> None:
    with pytest.raises(LearnerError, match=message):
        list(MLP().train(clouds(), random_trials([28]), record=(), device=device))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("value_range", [None, (-10.0, 10.0)])
def test_a_gpu_trains_the_same_models(value_range: tuple[float, float] | None) -> None:
    settings, data = MLP(hidden=(16, 8), epochs=8, batch=8), clouds(value_range=value_range)
    trials = random_trials([28, 28, 21, 5])
    on_cpu, on_gpu = (batched_scores(settings, data, trials, device) for device in ("cpu", "cuda"))
    for number in on_cpu:
        np.testing.assert_allclose(on_gpu[number], on_cpu[number], **TOLERANCE)
    first, again = (list(settings.train(data, trials, record=EVERYTHING, device="auto")) for _ in range(2))
    assert all(same_bits(one, other) for one, other in zip(first, again))  # type: ignore[arg-type]
    assert first[0].device == torch.cuda.get_device_name()  # type: ignore[union-attr]


def test_the_room_loads_neither_torch_nor_scikit_learn() -> None:
    code = (
        "import sys, memfluence.learners as learners; learners.resolve('mlp').describe();"
        " sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
