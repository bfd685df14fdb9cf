"""Functions train(x, y, seed, device) in torch as learners."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from learner_worlds import N_TEST, N_TRAIN, arrays, clouds, outcomes, pictures, random_trials, results, same_bits
from scipy.sparse import csr_matrix
from torch import nn
from user_learners import torch_logits, torch_scores

import memfluence as mf
from memfluence.datasets import Dataset, from_arrays
from memfluence.errors import LearnerError
from memfluence.learners import FunctionLearner
from memfluence.learners.nets import device as device_module
from memfluence.learners.nets.device import DeviceData
from memfluence.records import Failure

CALLS: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


def returning(model: Any) -> FunctionLearner:
    """A learner that trains nothing and returns `model`, or what it makes."""

    def train(x: Any, y: Any, seed: int, device: str) -> Any:
        CALLS.append({"x": x, "y": y, "seed": seed, "device": device})
        return model

    return FunctionLearner(train)


def zeros(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(x), 3)


@pytest.mark.parametrize(
    ("convert", "dtype"),
    [
        pytest.param(lambda x: x, torch.float32, id="float64"),
        pytest.param(lambda x: x.astype(np.float16), torch.float32, id="float16"),
        pytest.param(lambda x: (x > 0).astype(np.uint8), torch.uint8, id="bytes"),
        pytest.param(lambda x: x.astype(np.int32), torch.int64, id="integers"),
        pytest.param(lambda x: x > 0, torch.int64, id="yes or no"),
        pytest.param(lambda x: torch.tensor(x), torch.float32, id="torch"),
        pytest.param(lambda x: pd.DataFrame(x), torch.float32, id="table"),
        pytest.param(lambda x: x.reshape(-1, 1, 5, 1), torch.float32, id="own axes"),
    ],
)
def test_is_given_tensors_codes_a_seed_and_the_device(convert: Any, dtype: torch.dtype) -> None:
    x_train, y_train, x_test, y_test = arrays()
    names = np.array(["eel", "dog", "cat"])  # codes follow the sorted order: 2, 1, 0
    data = from_arrays(convert(x_train), names[y_train], convert(x_test), names[y_test])
    trials = random_trials([28, 9])
    outcomes(returning(zeros), data, trials, record=())
    for call, trial in zip(CALLS, trials, strict=True):
        x, y = call["x"], call["y"]
        assert (x.dtype, y.dtype) == (dtype, torch.int64)
        assert (call["seed"], call["device"]) == (trial.seed, "cpu")
        expected = np.asarray(data.x_train)[trial.kept]
        assert x.shape == expected.shape
        np.testing.assert_allclose(x.numpy(), expected, rtol=1e-6)
        assert np.array_equal(y, 2 - y_train[trial.kept])


def test_what_is_no_tensor_is_refused() -> None:
    words = from_arrays(["a", "b", "c", "d"], [0, 1, 0, 1], ["a"], [0])
    sparse = from_arrays(csr_matrix(np.eye(4)), [0, 1, 0, 1], csr_matrix(np.eye(4)[:1]), [0])
    for data in (words, sparse):
        with pytest.raises(LearnerError, match="gets its inputs as a tensor of numbers, and these are none; leave"):
            results(returning(zeros), data, random_trials([3], n_train=4))


def test_a_module_is_asked_in_eval_mode_without_gradients_and_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "_ASKED_AT_ONCE", 9)
    asked: list[tuple[torch.Tensor, bool, bool]] = []

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            asked.append((x.clone(), self.training, torch.is_grad_enabled()))
            x.zero_()  # its own
            return torch.eye(3)[torch.arange(len(x)) % 3]

    data = clouds()
    (outcome,) = outcomes(returning(Model()), data, random_trials([28]))
    assert all((training, gradients) == (False, False) for _, training, gradients in asked)
    assert max(len(x) for x, _, _ in asked) == 9
    given = torch.cat([x for x, _, _ in asked]).numpy()
    np.testing.assert_allclose(given, np.concatenate([data.x_train, data.x_test]), rtol=1e-6)
    expected = np.arange(N_TRAIN) % 9 % 3
    assert np.array_equal(outcome.extras["train_prediction"], expected)


@pytest.mark.parametrize("kind", ["logits", "bfloat16", "probabilities", "codes", "array"])
def test_what_a_model_may_return(kind: str) -> None:
    def model(x: torch.Tensor) -> Any:
        logits = torch.stack([x[:, 0], -x[:, 0], x[:, 1]], dim=1)
        return {
            "logits": logits.requires_grad_(),
            "bfloat16": logits.bfloat16(),
            "probabilities": logits.softmax(1),
            "codes": logits.argmax(1),
            "array": logits.numpy(),
        }[kind]

    data = clouds()
    (outcome,) = outcomes(returning(model), data, random_trials([28]), record=("prediction",))
    x = data.x_test.astype(np.float32)
    expected = np.stack([x[:, 0], -x[:, 0], x[:, 1]], axis=1).argmax(axis=1)
    assert np.mean(outcome.extras["test_prediction"] == expected) >= (0.9 if kind == "bfloat16" else 1)


def test_codes_are_codes_whatever_the_labels() -> None:
    data = clouds()
    named = replace(data, classes=("ant", "bee", "cow"))
    (outcome,) = outcomes(returning(lambda x: torch.arange(len(x)) % 4), named, random_trials([28]), record=())
    assert np.array_equal(outcome.test_correct, np.arange(N_TEST) % 4 == data.y_test)


def test_logits_of_all_inputs_are_those_of_the_module() -> None:
    data, trials = clouds(), random_trials([28, 21])
    for one, other in zip(
        outcomes(FunctionLearner(torch_scores), data, trials), outcomes(FunctionLearner(torch_logits), data, trials)
    ):
        assert same_bits(one, other)


def test_inputs_and_the_number_of_classes_without_torch() -> None:
    def train(x: Any, y: Any, seed: int, *, n_classes: int, inputs: Any) -> Any:
        assert isinstance(x, np.ndarray)
        given = [split.copy() for split in inputs]
        for split in inputs:
            split *= 0
        return tuple(np.tile(np.arange(n_classes), (len(split), 1)) + split[:, :1] for split in given)

    data = clouds()
    before = data.x_train.copy()
    (outcome,) = outcomes(FunctionLearner(train), data, random_trials([28]))
    assert np.array_equal(data.x_train, before)
    assert (outcome.extras["test_prediction"] == 2).all()


class Two(nn.Module):
    """Parameters here, buffers elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)
        self.register_buffer("rest", torch.zeros(1, device="meta"))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        pytest.param(nn.Linear(5, 4), "returned 4 columns for 3 classes; expected", id="too many outputs"),
        pytest.param(lambda x: zeros(x) * torch.nan, "must be numbers; some are NaN", id="NaN"),
        pytest.param(nn.Linear(5, 3, device="meta"), "the module lies on meta; return it whole", id="no values"),
        pytest.param(Two(), "the module lies on cpu, meta; return it whole on one device", id="two devices"),
        pytest.param(nn.Linear(6, 3), "RuntimeError: .*shapes cannot be multiplied", id="other inputs"),
        pytest.param(lambda x: (zeros(x), 1), "an object of type tuple; it must return logits", id="a tuple"),
        pytest.param(lambda x: {"logits": zeros(x)}, "an object of type dict; it must return logits", id="a dict"),
        pytest.param(lambda x: zeros(x).mean(), r"the shape \(\) for 40 inputs; expected", id="a number"),
        pytest.param(lambda x: zeros(x)[:1], r"the shape \(1, 3\) for 40 inputs; expected \(40, n_c", id="one row"),
        pytest.param(lambda x: x[:, 0], "predicted classes must be labels like 0; got float32", id="no codes"),
        pytest.param(
            torch.zeros(40, 3), "got an object of type Tensor; to return predictions, take .* 'inputs'", id="logits"
        ),
        pytest.param((zeros(torch.zeros(40)), 1), "type tuple; to return predictions, take .* 'inputs'", id="a pair"),
        pytest.param(
            None, r"must return a function predict\(x\) or score\(x, y\); got an object of type NoneType", id="nothing"
        ),
    ],
)
def test_unusable_returns_fail_the_trial_with_a_sentence(model: Any, message: str) -> None:
    found = results(returning(model), clouds(), random_trials([28, 28]), record=())
    assert len(found) == 2
    for result in found:
        assert isinstance(result, Failure)
        assert re.search(message, result.message), result.message
        assert "\n" not in result.summary


def test_a_module_that_was_trained_on_scaled_pictures_is_explained() -> None:
    data, trials = pictures(), random_trials([20], n_train=30)
    (failed,) = results(FunctionLearner(torch_scores), data, trials)
    assert isinstance(failed, Failure)
    assert "cannot be applied to torch.uint8 inputs, as they came; let it convert them itself" in failed.message

    def train(x: Any, y: Any, seed: int, device: str, n_classes: int) -> Any:
        model = torch_scores(x / 255, y, seed, device, n_classes).eval()
        return lambda inputs: model(inputs / 255)

    (outcome,) = outcomes(FunctionLearner(train), data, trials)
    assert outcome.train_correct[outcome.mask].mean() > 0.9


@pytest.mark.parametrize("returned", [None, torch.zeros(40, 3), (1, 2, 3)])
def test_a_function_of_inputs_returns_a_pair(returned: Any) -> None:
    learner = FunctionLearner(lambda x, y, seed, device, inputs: returned)
    (found,) = results(learner, clouds(), random_trials([28]), record=())
    assert isinstance(found, Failure)
    assert "takes 'inputs', so it must return a pair" in found.message


def test_an_error_fails_its_trial_alone_and_leaves_no_trace() -> None:
    def train(x: Any, y: Any, seed: int, device: str, n_classes: int) -> Any:
        CALLS.append({})
        if len(CALLS) == 1:
            x.fill_(torch.nan)
            raise ValueError("a bad subset")
        return torch_scores(x, y, seed, device, n_classes)

    data, trials = clouds(), random_trials([28, 28])
    failed, done = results(FunctionLearner(train), data, trials)
    assert isinstance(failed, Failure)
    assert failed.message == "ValueError: a bad subset"
    (expected,) = outcomes(FunctionLearner(torch_scores), data, trials[1:])
    assert same_bits(done, expected)  # type: ignore[arg-type]


def test_no_memory_ends_the_group_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(x: Any, y: Any, seed: int, device: str) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(LearnerError, match="does not hold the data and what train needs; make its batches"):
        results(FunctionLearner(train), clouds(), random_trials([28]))


def test_the_data_go_to_the_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Dataset] = []
    original = DeviceData.__init__

    def counted(self: DeviceData, dataset: Dataset, *rest: Any) -> None:
        loaded.append(dataset)
        original(self, dataset, *rest)

    monkeypatch.setattr(DeviceData, "__init__", counted)
    learner, data, other = FunctionLearner(torch_scores), clouds(), clouds(seed=1)
    for one in (data, data, other):
        for trial in random_trials([28, 20]):
            outcomes(learner, one, [trial])
    assert loaded == [data, other]
    assert len(learner._loaded) == 1


def test_generators_are_the_trials_own() -> None:
    """Code that never looks at its seed is the same for the same trial, and nothing of it is left to the caller."""

    def train(x: Any, y: Any, seed: int, device: str) -> Any:
        drawn = torch.randn(5, 3)
        return lambda inputs: inputs @ drawn

    learner, data, trials = FunctionLearner(train), clouds(), random_trials([28, 28])
    torch.manual_seed(1)
    first = outcomes(learner, data, trials)
    after = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), after)
    again = outcomes(learner, data, trials[::-1])[::-1]
    assert all(same_bits(one, other) for one, other in zip(first, again))
    assert not same_bits(first[0], first[1])


def test_a_parameter_with_a_default_keeps_it() -> None:
    """As before such parameters had a meaning here: an old function goes on as it was."""

    def train(x: Any, y: Any, seed: int, device: str = "mine", n_classes: int = 7) -> Any:
        CALLS.append({"device": device, "n_classes": n_classes, "x": x})
        return lambda inputs: np.zeros(len(inputs), int)

    outcomes(FunctionLearner(train), clouds(), random_trials([28]), record=())
    assert (CALLS[0]["device"], CALLS[0]["n_classes"], type(CALLS[0]["x"])) == ("mine", 7, np.ndarray)


def test_a_function_without_a_device_does_not_need_torch() -> None:
    code = (
        "import sys, numpy as np; from memfluence.learners import resolve; from memfluence.datasets import from_arrays;"
        "from memfluence.records import Trial; x = np.eye(4); data = from_arrays(x, [0, 1, 0, 1], x, [0, 1, 0, 1]);"
        "learner = resolve(lambda x, y, seed, n_classes: lambda inputs: np.zeros((len(inputs), n_classes)));"
        "found = list(learner.train(data, [Trial(0, 0, np.ones(4, bool), 1)], record=(), device='auto'));"
        "assert found[0].test_correct.sum() == 2; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_through_worker_processes(tmp_path: Path) -> None:
    """The same bits by one process and by two."""
    data = clouds()
    file = f"{Path(__file__).parent / 'user_learners.py'}:torch_scores"
    runs = [
        mf.run(data, learner=file, trials=6, out=tmp_path / str(workers), workers=workers, device="cpu", progress=False)
        for workers in (1, 2)
    ]
    first, second = (run.memorization() for run in runs)
    assert len(first) == data.n_train
    pd.testing.assert_frame_equal(first, second)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@needs_gpu
@pytest.mark.parametrize("function", [torch_scores, torch_logits])
def test_on_a_gpu(function: Any) -> None:
    learner, trials = FunctionLearner(function), random_trials([28, 28])
    first = list(learner.train(clouds(), trials, record=("margin",), device="cuda"))
    again = list(learner.train(clouds(), trials[::-1], record=("margin",), device="cuda"))[::-1]
    assert all(same_bits(one, other) for one, other in zip(first, again))  # type: ignore[arg-type]
    assert first[0].device == torch.cuda.get_device_name()  # type: ignore[union-attr]


@needs_gpu
def test_a_module_that_was_moved_to_the_cpu_is_asked_there() -> None:
    (outcome,) = returning(nn.Linear(5, 3)).train(clouds(), random_trials([28]), record=(), device="cuda")
    assert not isinstance(outcome, Failure)
    assert CALLS[0]["x"].device.type == "cuda"
