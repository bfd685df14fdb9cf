"""K multilayer perceptrons on a GPU: bfloat16 products, float32 parameters, the whole step one CUDA graph.

A step of small models is bound by memory: every parameter's value, velocity, gradient and bfloat16 copy pass through
it once. So all layers of all models lie in flat arrays, products write gradients straight into one of them, and one
kernel of our own reads and writes each array once (Triton; the same sum in torch where there is none). Classes are
padded to a multiple of 8, which products need to be fast; a padded class has a bias of -1e4, so its probability and
its gradient are exactly 0.

Every full step of a training is a replay of one captured graph. Draws come from generators on the device, one per trial
and stream: NumPy's would take longer than the training.
"""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from memfluence.datasets import Dataset
from memfluence.learners.nets.batched_mlp import batch_sizes, load_features, parts_of
from memfluence.learners.nets.margins import margins
from memfluence.records import Trial
from memfluence.seeding import integer_seed

if TYPE_CHECKING:
    from memfluence.learners.mlp import MLP

_ROWS_AT_ONCE = 2000

_NEVER = -1e4  # the bias of a class that does not exist


class CapturedMLP:
    """K models of one shape, trained on K batches at a time."""

    def __init__(
        self, widths: Sequence[int], models: int, n_classes: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._widths = [*widths[:-1], -(-n_classes // 8) * 8]
        self._models, self._n_classes, self._device, self._dtype = models, n_classes, device, dtype
        shapes: list[tuple[int, ...]] = []
        for n_in, n_out in zip(self._widths, self._widths[1:]):
            shapes += [(models, n_in, n_out), (models, 1, n_out)]
        size = sum(math.prod(shape) for shape in shapes)
        self._values = torch.zeros(size, device=device)
        self._velocity = torch.zeros(size, device=device)
        self._gradient = torch.zeros(size, device=device, dtype=dtype)
        self._working = torch.zeros(size, device=device, dtype=dtype)  # the values as products read them
        self._parts = [parts_of(flat, shapes) for flat in (self._values, self._working, self._gradient)]
        self._update = _update_kernel(device)

    def initialize(self, seeds: Sequence[int]) -> None:
        """New models, each from its own seed: uniform in +-1/sqrt(n_in), as torch.nn.Linear draws."""
        values = self._parts[0]
        self._velocity.zero_()
        for k, seed in enumerate(seeds):
            generator = torch.Generator(self._device).manual_seed(seed)
            for layer, n_in in enumerate(self._widths[:-1]):
                for part in values[2 * layer : 2 * layer + 2]:
                    part[k].uniform_(-1 / math.sqrt(n_in), 1 / math.sqrt(n_in), generator=generator)
        values[-2][:, :, self._n_classes :] = 0.0
        values[-1][:, :, self._n_classes :] = _NEVER
        self._working.copy_(self._values)

    def step(self, inputs: torch.Tensor, labels: torch.Tensor, *, rate: float, momentum: float) -> None:
        """One step of SGD with momentum on (models, width, n_in) inputs and (models, width) labels."""
        weights, biases = self._parts[1][::2], self._parts[1][1::2]
        weight_gradients, bias_gradients = self._parts[2][::2], self._parts[2][1::2]
        activations = [inputs]
        for weight, bias in zip(weights[:-1], biases[:-1]):
            activations.append(torch.baddbmm(bias, activations[-1], weight).relu_())  # (models, width, n_out)
        logits = torch.baddbmm(biases[-1], activations[-1], weights[-1])  # (models, width, classes)
        error = torch.softmax(logits, 2, dtype=torch.float32)
        error.scatter_add_(2, labels[..., None], error.new_full((), -1.0).expand(*labels.shape, 1))
        delta = error.mul_(1 / inputs.shape[1]).to(self._dtype)
        for layer in reversed(range(len(weights))):
            torch.bmm(activations[layer].mT, delta, out=weight_gradients[layer])
            torch.sum(delta, 1, keepdim=True, out=bias_gradients[layer])
            if layer:
                below = torch.bmm(delta, weights[layer].mT)
                delta = torch.ops.aten.threshold_backward(below, activations[layer], 0)
        self._update(self._values, self._velocity, self._gradient, self._working, rate, momentum)

    def predicted(self, inputs: torch.Tensor) -> torch.Tensor:
        """Logits (models, rows, n_classes) float32 for inputs (rows, n_in) that all models are asked about."""
        values = inputs.expand(self._models, *inputs.shape)
        weights, biases = self._parts[1][::2], self._parts[1][1::2]
        for weight, bias in zip(weights[:-1], biases[:-1]):
            values = torch.baddbmm(bias, values, weight).relu_()
        # The last layer in float32: bfloat16 logits would tie at the arg max.
        weight, bias = self._parts[0][-2], self._parts[0][-1]
        return torch.baddbmm(bias, values.float(), weight)[..., : self._n_classes]

    def is_finite(self) -> torch.Tensor:
        """Whether all values of each model are finite: (models,) bool."""
        finite = [part.flatten(1).isfinite().all(1) for part in self._parts[0]]
        return torch.stack(finite).all(0)


def update_in_torch(
    values: torch.Tensor,
    velocity: torch.Tensor,
    gradient: torch.Tensor,
    working: torch.Tensor,
    rate: float,
    momentum: float,
) -> None:
    velocity.mul_(momentum).add_(gradient)
    values.add_(velocity, alpha=-rate)
    working.copy_(values)


def _update_kernel(device: torch.device):  # type: ignore[no-untyped-def]
    if device.type != "cuda":
        return update_in_torch
    try:
        from memfluence.learners.nets.kernels.sgd_kernel import update
    except ImportError:  # no Triton
        return update_in_torch
    return update


class CapturedTraining:
    """K models, their tables and the captured step; made once for a shape and used for group after group."""

    def __init__(
        self,
        settings: "MLP",
        dataset: Dataset,
        models: int,
        subset_size: int,
        device: torch.device,
        dtype: torch.dtype = torch.bfloat16,  # what products read
    ) -> None:
        features = load_features(dataset, device)
        self.train_inputs = features.train.to(dtype)  # (n_train, n_features) scaled by their known range
        self.test_inputs = features.test.to(dtype)  # (n_test, n_features)
        self._labels = torch.from_numpy(dataset.y_train).to(device)  # (n_train,)
        self._epochs, self._rate, self._momentum = settings.epochs, settings.rate, settings.momentum
        self._batch = min(settings.batch, subset_size)
        sizes = batch_sizes(subset_size, self._batch)
        self._steps = sizes.count(self._batch)
        self._others = sizes[self._steps :]  # the last one or two, which are smaller
        device = self.train_inputs.device
        widths = [self.train_inputs.shape[1], *settings.hidden, dataset.n_classes]
        self._mlp = CapturedMLP(widths, models, dataset.n_classes, device, dtype)
        self._order = torch.zeros(models, subset_size, dtype=torch.int64, device=device)
        self._rows = torch.zeros(self._steps, models * self._batch, dtype=torch.int64, device=device)
        self._position = torch.zeros(1, dtype=torch.int64, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None

    def train(self, trials: Sequence[Trial]) -> None:
        """Train all trials; each draws its start and its orders from generators of its own."""
        device = self.train_inputs.device
        if self._graph is None and self._steps and device.type == "cuda":
            self._capture()
        self._mlp.initialize([integer_seed(trial.root, "init", trial.number) for trial in trials])
        kept = torch.stack([torch.from_numpy(trial.kept) for trial in trials]).to(device)  # (models, subset_size)
        draws = torch.empty(len(trials), self._epochs, kept.shape[1], device=device)
        for k, trial in enumerate(trials):
            seed = integer_seed(trial.root, "order", trial.number)
            draws[k].uniform_(generator=torch.Generator(device).manual_seed(seed))
        for epoch in range(self._epochs):
            order = draws[:, epoch].argsort(dim=1, stable=True)  # stable: equal draws are common in float32
            torch.gather(kept, 1, order, out=self._order)
            self._run_epoch()

    def _run_epoch(self) -> None:
        models, full = len(self._order), self._steps * self._batch
        by_step = self._order[:, :full].view(models, self._steps, self._batch).transpose(0, 1)
        self._rows.copy_(by_step.reshape(self._steps, models * self._batch))
        self._position.zero_()
        for _ in range(self._steps):
            if self._graph is not None:
                self._graph.replay()
            else:
                self._step()
        for rows in self._order[:, full:].split_with_sizes(self._others, 1):  # rare, so without a graph
            self._step_on(rows.reshape(-1))

    def _step(self) -> None:
        self._step_on(self._rows.index_select(0, self._position)[0])
        self._position.add_(1)

    def _step_on(self, rows: torch.Tensor) -> None:
        models = len(self._order)
        inputs = self.train_inputs.index_select(0, rows).view(models, -1, self.train_inputs.shape[1])
        labels = self._labels.index_select(0, rows).view(models, -1)
        self._mlp.step(inputs, labels, rate=self._rate, momentum=self._momentum)

    def _capture(self) -> None:
        device = self.train_inputs.device
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._position.zero_()
                self._step()
        torch.cuda.current_stream(device).wait_stream(stream)
        self._position.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(device), torch.cuda.graph(graph, stream=stream):
            self._step()
        self._graph = graph

    def scores(self, inputs: torch.Tensor) -> np.ndarray:
        """Logits (models, n, n_classes) of all models, in the host's memory."""
        return np.concatenate([block.cpu().numpy() for block in self._predicted(inputs)], axis=1)

    def codes_and_margins(self, inputs: torch.Tensor, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Predicted classes and margins (models, n) of all models; `labels` are the inputs' codes (n,)."""
        codes, found = [], []
        for start, block in zip(range(0, len(inputs), _ROWS_AT_ONCE), self._predicted(inputs)):
            codes.append(block.argmax(2))
            found.append(margins(block, labels[start : start + _ROWS_AT_ONCE]))
        return torch.cat(codes, 1).cpu().numpy(), np.concatenate(found, axis=1)

    def codes(self, inputs: torch.Tensor) -> np.ndarray:
        """Predicted classes (models, n) of all models."""
        return torch.cat([block.argmax(2) for block in self._predicted(inputs)], 1).cpu().numpy()

    def _predicted(self, inputs: torch.Tensor) -> Iterator[torch.Tensor]:
        for start in range(0, len(inputs), _ROWS_AT_ONCE):
            yield self._mlp.predicted(inputs[start : start + _ROWS_AT_ONCE])

    def finite(self) -> list[bool]:
        """For each model whether its weights are finite."""
        return [bool(one) for one in self._mlp.is_finite().tolist()]
