"""`GroupTrainer`: K small networks of one architecture at once, their parameters stacked, by `torch.func`.

Each model has its trial's own start, order, crops and scaling, as `Trainer` gives them one after another; the results
agree with it up to rounding. A step is one call of `vmap` for all models: for networks so small that the calls, not the
arithmetic, take the time.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as functional
from torch.func import functional_call, vmap

from memfluence.errors import LearnerError
from memfluence.learners._factory import ModuleFactory
from memfluence.learners._torch.fresh_models import FreshModels
from memfluence.learners._torch.images import ImageData, crop_and_flip, scaling
from memfluence.learners._torch.optimizers import Optimizer
from memfluence.learners._torch.step_tables import step_tables
from memfluence.learners.recipes import Recipe
from memfluence.learners.schedules import StepShape, rates
from memfluence.records import Trial
from memfluence.seeding import integer_seed

__all__ = ["GroupTrainer"]

_EVALUATED_AT_ONCE = 2500  # images, times models


class GroupTrainer:
    """Trains K models on subsets that share one shape of steps."""

    def __init__(
        self,
        models: int,
        architecture: str | ModuleFactory,
        options: dict[str, Any],
        recipe: Recipe,
        data: ImageData,
        n_classes: int,
        shape: StepShape,
        device: torch.device,
    ) -> None:
        if recipe.optimizer != "sgd":
            raise LearnerError("several networks at once are trained by sgd alone; use --set optimizer=sgd or group=1.")
        self._recipe, self._data, self._device, self._shape = recipe, data, device, shape
        self._fresh = FreshModels(architecture, options, (data.channels, *data.train.shape[1:3]), n_classes)
        self._drawn = self._fresh.first()  # on the CPU, where each model is drawn in turn
        if any(hasattr(layer, "fit_to_images") for layer in self._drawn.modules()):
            raise LearnerError("networks with layers fitted to images are trained one by one; use --set group=1.")
        self._model = self._fresh.first().to(device)  # whose forward is called; its own values are not used
        self._values = {
            name: torch.zeros(models, *value.shape, dtype=value.dtype, device=device)
            for name, value in (*self._drawn.named_parameters(), *self._drawn.named_buffers())
        }
        self._parameters = [
            self._values[name].requires_grad_() for name, value in self._drawn.named_parameters() if value.requires_grad
        ]
        self._optimizer = Optimizer(self._parameters, recipe)
        self._rates = torch.tensor(rates(recipe, shape.per_epoch), dtype=torch.float32, device=device)  # (steps,)
        self._shift, self._factor = torch.zeros(2, models, 1, 1, 1, data.channels, device=device)
        self._check()

    def train(self, trials: Sequence[Trial]) -> None:
        """Train a new model for each trial."""
        recipe, (batch, per_epoch, last) = self._recipe, self._shape
        self._initialize(trials)
        tables = [step_tables(trial, recipe, self._shape) for trial in trials]
        order, crops = (
            torch.stack([torch.from_numpy(table[which]) for table in tables], dim=1).to(self._device)
            for which in (0, 1)
        )  # (steps, models, batch) and (steps, models, 3, batch)
        self._model.train()
        for step, rate in enumerate(self._rates):
            width = last if step % per_epoch == per_epoch - 1 else batch
            self._step(order[step, :, :width], crops[step, :, :, :width].int(), rate)

    @torch.no_grad()
    def scores(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (models, n, n_classes) float32 of all training and of all test examples, on the device."""
        self._model.eval()
        return self._scored(self._data.train), self._scored(self._data.test)

    def finite(self) -> list[bool]:
        """Which models have finite parameters."""
        each = torch.stack([value.detach().flatten(1).isfinite().all(1) for value in self._parameters])
        return [bool(one) for one in each.all(0).tolist()]

    @torch.no_grad()
    def _initialize(self, trials: Sequence[Trial]) -> None:
        for k, trial in enumerate(trials):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(integer_seed(trial.root, "init", trial.number))
                self._fresh.restart(self._drawn)
            for name, value in (*self._drawn.named_parameters(), *self._drawn.named_buffers()):
                self._values[name][k].copy_(value)
            kept = torch.from_numpy(trial.kept).to(self._device)
            self._shift[k, 0, 0, 0], self._factor[k, 0, 0, 0] = scaling(self._data, self._recipe, kept)
        self._optimizer.reset()

    def _step(self, rows: torch.Tensor, crops: torch.Tensor, rate: torch.Tensor) -> None:
        models, width = rows.shape
        top, left, flip = crops.transpose(0, 1).reshape(3, -1)
        shift, factor = (one.expand(-1, width, -1, -1, -1).flatten(0, 1) for one in (self._shift, self._factor))
        size = (int(self._data.train.shape[1]), int(self._data.train.shape[2]))
        images = crop_and_flip(
            self._data.padded, rows.reshape(-1), top, left, flip.bool(), shift, factor, size, torch.float32
        )
        logits = self._logits(images.reshape(models, width, *images.shape[1:])).flatten(0, 1)
        labels = self._data.labels[rows.reshape(-1)]
        smoothing = self._recipe.label_smoothing
        # Each model's mean over its batch, summed: the gradient of one model's parameters is that of its own loss.
        loss = functional.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum") / width
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        self._optimizer.update(gradients, rate, rate)

    def _logits(self, images: torch.Tensor) -> torch.Tensor:
        """(models, width, channels, height, width) -> (models, width, n_classes)."""
        call = vmap(lambda values, inputs: functional_call(self._model, values, (inputs,)))
        logits: torch.Tensor = call(self._values, images)
        return logits

    def _scored(self, images: torch.Tensor) -> torch.Tensor:
        found = []
        rows = max(1, _EVALUATED_AT_ONCE // len(self._shift))
        for start in range(0, len(images), rows):
            scaled = (images[None, start : start + rows].float() - self._shift) * self._factor
            found.append(self._logits(scaled.permute(0, 1, 4, 2, 3)))
        return torch.cat(found, dim=1)

    def _check(self) -> None:
        """Whether the models can be trained at once, found by calling them so."""
        self._model.train()
        try:
            self._logits(
                torch.zeros(len(self._shift), 2, self._data.channels, *self._data.train.shape[1:3]).to(self._device)
            )
        except Exception as error:  # what vmap raises about other people's modules may be anything
            reason = next(iter(str(error).splitlines()), "")[:150]
            raise LearnerError(
                f"these networks cannot be trained several at once ({type(error).__name__}: {reason}); dropout cannot,"
                " for one. Use --set group=1."
            ) from error
