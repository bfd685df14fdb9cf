"""`GroupTrainer`: K small networks of one architecture at once, their parameters stacked, by `torch.func`.

Each model has its trial's own start, order, crops and scaling, as `Trainer` gives them one after another; the results
agree with it up to rounding. A step is one call of `vmap` for all models: for networks so small that the calls, not the
arithmetic, take the time. On a GPU steps of full batches replay a captured one, unless the module is a user's: the same
bits in every capture, and those of a step that is called as it is up to rounding.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from torch.func import functional_call, vmap

from memfluence.errors import LearnerError
from memfluence.learners.factory import ModuleFactory
from memfluence.learners.nets.device import current_device
from memfluence.learners.nets.fresh_models import FreshModels
from memfluence.learners.nets.images import ImageSource, Split, block_rows, crop_and_flip, scaling
from memfluence.learners.nets.optimizers import Optimizer
from memfluence.learners.recipes import Recipe, StepShape, rates, step_rows, step_tables
from memfluence.records import Trial
from memfluence.seeding import integer_seed


class GroupTrainer:
    """Trains K models on subsets that share one shape of steps; a step of `data` is a batch for each of them."""

    def __init__(
        self,
        models: int,
        architecture: str | ModuleFactory,
        options: dict[str, Any],
        recipe: Recipe,
        data: ImageSource,
        n_classes: int,
        shape: StepShape,
        device: torch.device,
    ) -> None:
        if recipe.optimizer != "sgd":
            raise LearnerError(
                "several networks at once are trained by sgd alone; use `settings={'optimizer': 'sgd'}` or"
                " `settings={'group': 1}`."
            )
        self._recipe, self._data, self._device, self._shape = recipe, data, device, shape
        self._fresh = FreshModels(architecture, options, (data.channels, *data.size), n_classes)
        self._drawn = self._fresh.first()  # on the CPU, where each model is drawn in turn
        if any(hasattr(layer, "fit_to_images") for layer in self._drawn.modules()):
            raise LearnerError(
                "networks with layers fitted to images are trained one by one; use `settings={'group': 1}`."
            )
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
        # Where a captured step finds what is its own: rows and crops of all models, and the rate.
        self._own = (
            torch.zeros(models, shape.batch, dtype=torch.int32, device=device),
            torch.zeros(models, 3, shape.batch, dtype=torch.int32, device=device),
            torch.zeros((), device=device),
        )
        self._graph: torch.cuda.CUDAGraph | None = None
        self._captures = device.type == "cuda" and not self._fresh.of_user  # a user's module may synchronize
        self._check()

    def train(self, trials: Sequence[Trial]) -> None:
        """Train a new model for each trial."""
        with current_device(self._device):
            self._train(trials)

    def _train(self, trials: Sequence[Trial]) -> None:
        if self._captures and self._graph is None:
            self._graph = self._captured()  # which spoils the models that are there
        self._initialize(trials)
        tables = zip(*(step_tables(trial, self._recipe, self._shape) for trial in trials))
        order, crops = (
            np.stack(table, axis=1) for table in tables
        )  # (steps, models, batch), (steps, models, 3, batch)
        on_device = [torch.from_numpy(table).to(self._device) for table in (order, crops)]
        self._model.train()
        for n, rows, crop, rate in zip(self._data.steps(step_rows(order, self._shape)), *on_device, self._rates):
            width = n // len(trials)
            own = rows[:, :width], crop[:, :, :width].int(), rate
            if self._graph is None or width < self._shape.batch:
                self._step(*own)
            else:
                for place, value in zip(self._own, own):
                    place.copy_(value)
                self._graph.replay()
        self._fresh.check_trained(self._model)

    def _captured(self) -> torch.cuda.CUDAGraph:
        """The step of a full batch."""
        self._model.train()
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(3):  # chooses kernels, takes workspaces
                self._step(*self._own)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            self._step(*self._own)
        return graph

    @torch.no_grad()
    def scores(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (models, n, n_classes) float32 of all training and of all test examples, on the device."""
        self._model.eval()
        with current_device(self._device):
            return self._scored("train"), self._scored("test")

    def finite(self) -> list[bool]:
        """For each model whether its parameters are finite."""
        each = torch.stack([value.detach().flatten(1).isfinite().all(1) for value in self._parameters])
        return [bool(one) for one in each.all(0).tolist()]

    @torch.no_grad()
    def _initialize(self, trials: Sequence[Trial]) -> None:
        for k, trial in enumerate(trials):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(integer_seed(trial.root, "init", trial.number))
                self._fresh.restart(self._drawn)
                if k == 0 and self._fresh.of_user:
                    self._fresh.restart(self._model)  # for its plain attributes, which all of them share
            for name, value in (*self._drawn.named_parameters(), *self._drawn.named_buffers()):
                self._values[name][k].copy_(value)
            kept = torch.from_numpy(trial.kept).to(self._device)
            self._shift[k, 0, 0, 0], self._factor[k, 0, 0, 0] = scaling(self._data, self._recipe, kept)
        self._optimizer.reset()

    def _step(self, rows: torch.Tensor, crops: torch.Tensor, rate: torch.Tensor) -> None:
        models, width = rows.shape
        top, left, flip = crops.transpose(0, 1).reshape(3, -1)
        shift, factor = (one.expand(-1, width, -1, -1, -1).flatten(0, 1) for one in (self._shift, self._factor))
        padded, own = self._data.batch(rows.reshape(-1))
        images = crop_and_flip(padded, own, top, left, flip.bool(), shift, factor, self._data.size, torch.float32)
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

    def _scored(self, split: Split) -> torch.Tensor:
        found = []
        for block in self._data.blocks(split):
            rows = max(1, block_rows(tuple(block.shape)) // len(self._shift))
            for start in range(0, len(block), rows):
                scaled = (block[None, start : start + rows].float() - self._shift) * self._factor
                found.append(self._logits(scaled.permute(0, 1, 4, 2, 3)))
        return torch.cat(found, dim=1)

    def _check(self) -> None:
        """Call the models all at once, and raise a `LearnerError` if they cannot be trained so."""
        self._model.train()
        try:
            self._logits(torch.zeros(len(self._shift), 2, self._data.channels, *self._data.size, device=self._device))
        except Exception as error:  # what vmap raises about other people's modules may be anything
            reason = next(iter(str(error).splitlines()), "")[:150]
            raise LearnerError(
                f"these networks cannot be trained several at once ({type(error).__name__}: {reason}); dropout cannot,"
                " for one. Use `settings={'group': 1}`."
            ) from error
