"""Training of a group of MLPs on a GPU, with every full step a replay of one captured graph."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from memfluence.datasets import Dataset
from memfluence.learners.nets.captured_mlp import CapturedMLP
from memfluence.learners.nets.features import load_features
from memfluence.learners.nets.minibatches import batch_sizes
from memfluence.records import Trial
from memfluence.seeding import integer_seed

if TYPE_CHECKING:
    from memfluence.learners.mlp import MLP

__all__ = ["Captured", "CapturedTraining", "captured_training"]

_ROWS_AT_ONCE = 2000


class Captured(NamedTuple):
    """A training and what its models are asked about."""

    training: "CapturedTraining"
    train: torch.Tensor  # (n_train, n_features)
    test: torch.Tensor  # (n_test, n_features)


def captured_training(
    settings: "MLP",
    dataset: Dataset,
    models: int,
    subset_size: int,
    device: torch.device,
    dtype: torch.dtype = torch.bfloat16,
) -> Captured:
    """The training of groups of this size on these data; inputs are scaled by their known range."""
    features = load_features(dataset, device)
    train, test = features.train.to(dtype), features.test.to(dtype)
    training = CapturedTraining(
        train,
        torch.from_numpy(dataset.y_train).to(device),
        settings.hidden,
        dataset.n_classes,
        models=models,
        subset_size=subset_size,
        batch=settings.batch,
        epochs=settings.epochs,
        rate=settings.rate,
        momentum=settings.momentum,
    )
    return Captured(training, train, test)


class CapturedTraining:
    """K models, their tables and the captured step; made once for a shape and used for group after group."""

    def __init__(
        self,
        inputs: torch.Tensor,  # (n_train, n_features) scaled, in the working type
        labels: torch.Tensor,  # (n_train,)
        hidden: Sequence[int],
        n_classes: int,
        *,
        models: int,
        subset_size: int,
        batch: int,
        epochs: int,
        rate: float,
        momentum: float,
    ) -> None:
        self._inputs, self._labels = inputs, labels
        self._rate, self._momentum, self._epochs = rate, momentum, epochs
        self._batch = min(batch, subset_size)
        sizes = batch_sizes(subset_size, self._batch)
        self._steps = sizes.count(self._batch)
        self._others = sizes[self._steps :]  # the last one or two, which are smaller
        device = inputs.device
        self._mlp = CapturedMLP([inputs.shape[1], *hidden, n_classes], models, n_classes, device, inputs.dtype)
        self._order = torch.zeros(models, subset_size, dtype=torch.int64, device=device)
        self._rows = torch.zeros(self._steps, models * self._batch, dtype=torch.int64, device=device)
        self._position = torch.zeros(1, dtype=torch.int64, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None

    def train(self, trials: Sequence[Trial]) -> None:
        """Train all trials; each draws its start and its orders from generators of its own."""
        device = self._inputs.device
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
        inputs = self._inputs.index_select(0, rows).view(models, -1, self._inputs.shape[1])
        labels = self._labels.index_select(0, rows).view(models, -1)
        self._mlp.step(inputs, labels, rate=self._rate, momentum=self._momentum)

    def _capture(self) -> None:
        stream = torch.cuda.Stream(self._inputs.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._inputs.device))
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._position.zero_()
                self._step()
        torch.cuda.current_stream(self._inputs.device).wait_stream(stream)
        self._position.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._inputs.device), torch.cuda.graph(graph, stream=stream):
            self._step()
        self._graph = graph

    def scores(self, inputs: torch.Tensor) -> np.ndarray:
        """Logits (models, n, n_classes) of all models, in the host's memory."""
        return np.concatenate([block.cpu().numpy() for block in self._predicted(inputs)], axis=1)

    def codes(self, inputs: torch.Tensor) -> np.ndarray:
        """Predicted classes (models, n) of all models."""
        return torch.cat([block.argmax(2) for block in self._predicted(inputs)], 1).cpu().numpy()

    def _predicted(self, inputs: torch.Tensor) -> Iterator[torch.Tensor]:
        for start in range(0, len(inputs), _ROWS_AT_ONCE):
            yield self._mlp.predicted(inputs[start : start + _ROWS_AT_ONCE])

    def finite(self) -> list[bool]:
        """Which models have finite weights."""
        return [bool(one) for one in self._mlp.is_finite().tolist()]
