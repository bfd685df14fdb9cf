"""`MLP`: the built-in learner for small data, which trains many multilayer perceptrons at once."""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError
from memfluence.learners._outcomes import outcome_from_scores
from memfluence.records import Failure, Outcome, Trial

if TYPE_CHECKING:
    import torch

    from memfluence.learners._batched_mlp import BatchedMLP
    from memfluence.learners._features import Features, Scaling

__all__ = ["MLP"]

_ROWS_AT_ONCE = 4096  # examples scored at once: bounds the activations, whatever the size of the dataset


@dataclass(frozen=True)
class MLP:
    """Multilayer perceptrons with ReLU, trained by SGD with momentum on the cross-entropy at a constant rate.

    Inputs are arrays of numbers of any shape, flattened. Where the dataset knows the range of its values they are mapped from it
    to [0, 1]; elsewhere each model standardises every feature by the mean and the standard deviation of its own kept examples
    (a feature that is constant there is only centred), so that no model sees anything of an example that it leaves out.

    Each model draws its initialisation and its batch order from streams of its own trial, so it is the same model, up to
    rounding, whatever the other models of its group are; with the same `models_at_once` it has the same bits.
    """

    name: ClassVar[str] = "mlp"

    hidden: tuple[int, ...] = (128,)  # widths of the hidden layers: enough to fit all 600 digits; () is a linear model
    epochs: int = 30  # kept digits are fitted to 100% from about epoch 20 on, the regime that memorization is about
    batch: int = 64  # the usual size at which a small model gets enough steps
    rate: float = 0.1  # the usual rate of plain SGD; ten times it diverges on digits
    momentum: float = 0.9  # the paper's (appendix: all its models)
    models_at_once: int = 32  # fastest on one core: fewer waste calls, more leave the cache

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        whole = "an integer of at least 1"
        self._require("hidden", all(width >= 1 for width in self.hidden), "integers of at least 1, like 256,128")
        self._require("epochs", self.epochs >= 1, whole)
        self._require("batch", self.batch >= 1, whole)
        self._require("rate", 0 < self.rate < float("inf"), "a number above 0")
        self._require("momentum", 0 <= self.momentum < 1, "a number in [0, 1)")
        self._require("models_at_once", self.models_at_once >= 1, whole)

    def _require(self, setting: str, holds: bool, expected: str) -> None:
        if not holds:
            raise LearnerError(f"the setting {setting!r} of mlp must be {expected}; got {getattr(self, setting)!r}.")

    def describe(self) -> dict[str, Any]:
        """All settings but `models_at_once`: the run stores the group size itself, and it changes rounding alone."""
        settings = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "models_at_once"}
        return {"name": self.name, "settings": settings | {"hidden": list(self.hidden)}}

    def group_size(self, dataset: Dataset) -> int:
        return self.models_at_once

    def train(
        self, dataset: Dataset, trials: Sequence[Trial], *, record: Collection[str], device: str
    ) -> Iterator[Outcome | Failure]:
        """Train all trials at once; on a CPU with one thread."""
        import torch

        from memfluence.learners._torch_device import one_thread, torch_device

        chosen = torch_device(device)
        try:
            with one_thread(), torch.inference_mode():
                results = self._train_together(dataset, trials, record, chosen)
        except torch.OutOfMemoryError as error:
            raise LearnerError(
                f"the GPU's memory does not hold {len(trials)} models at once;"
                f" use a smaller group, for example --set models_at_once={max(1, len(trials) // 2)}."
            ) from error
        yield from results

    def _train_together(
        self, dataset: Dataset, trials: Sequence[Trial], record: Collection[str], device: "torch.device"
    ) -> list[Outcome | Failure]:
        from memfluence.learners._features import load_features
        from memfluence.learners._torch_device import device_name

        started = time.perf_counter()
        results: dict[int, Outcome | Failure] = {
            trial.number: Failure(
                trial.number, "the trial keeps no example, so there is nothing to train on; raise --keep."
            )
            for trial in trials
            if not len(trial.kept)
        }
        # The largest subset first, as `minibatches` wants them.
        runnable = sorted((trial for trial in trials if len(trial.kept)), key=lambda trial: -len(trial.kept))
        if runnable:
            features = load_features(dataset, device)
            scaling = features.scaling([trial.kept for trial in runnable])
            models = self._fitted(dataset, runnable, features, scaling, device)
            share = (time.perf_counter() - started) / len(runnable)
            for k, trial in enumerate(runnable):
                started = time.perf_counter()
                train_scores = _scores(models, k, features.train, scaling)
                test_scores = _scores(models, k, features.test, scaling)
                if not (models.is_finite(k) and np.isfinite(train_scores).all() and np.isfinite(test_scores).all()):
                    results[trial.number] = self._diverged(trial)
                    continue
                results[trial.number] = outcome_from_scores(
                    trial,
                    dataset,
                    train_scores,
                    test_scores,
                    record=record,
                    seconds=share + time.perf_counter() - started,
                    device=device_name(device),
                )
        return [results[trial.number] for trial in trials]

    def _fitted(
        self,
        dataset: Dataset,
        trials: Sequence[Trial],
        features: "Features",
        scaling: "Scaling | None",
        device: "torch.device",
    ) -> "BatchedMLP":
        import torch

        from memfluence.learners._batched_mlp import BatchedMLP
        from memfluence.learners._minibatches import minibatches

        widths = [features.train.shape[1], *self.hidden, dataset.n_classes]
        models = BatchedMLP(widths, [trial.generator("init") for trial in trials], device)
        labels = torch.from_numpy(dataset.y_train).to(device)  # (n_train,)
        kept = [trial.kept for trial in trials]
        spaces = {}
        orders = [trial.generator("order") for trial in trials]
        for step in minibatches(kept, orders, batch=self.batch, epochs=self.epochs, device=device):
            gathered = spaces.get(len(step.rows))
            gathered = torch.index_select(features.train, 0, step.rows, out=gathered)
            spaces[len(step.rows)] = gathered
            inputs = gathered.view(step.active, step.width, -1)
            if scaling is not None:
                inputs = scaling.apply(inputs)
            codes = labels.index_select(0, step.rows).view(step.active, 1, step.width)
            models.step(inputs, codes, step.share, rate=self.rate, momentum=self.momentum)
        return models

    def _diverged(self, trial: Trial) -> Failure:
        return Failure(
            trial.number,
            f"the model's weights or scores are not finite after training: it diverged at rate {self.rate:g};"
            f" lower it, for example --set rate={self.rate / 10:g}.",
        )


def _scores(models: "BatchedMLP", model: int, inputs: "torch.Tensor", scaling: "Scaling | None") -> np.ndarray:
    """Logits (n, n_classes) of one model for all of a split, block by block."""
    blocks = []
    for block in inputs.split(_ROWS_AT_ONCE):  # (rows, n_features)
        scaled = block if scaling is None else scaling.apply_one(model, block)
        blocks.append(models.scores(model, scaled).cpu().numpy())
    return np.concatenate(blocks)
