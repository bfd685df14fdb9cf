"""`Trainer`: one network, one recipe, one dataset on one device; trains trial after trial.

On a GPU the whole step (gather, crop, flip, forward, backward, update) is captured once in a CUDA graph and replayed.
All that differs from step to step lies in tables on the device (order, crops, flips, rates) that the step reads at
its own counter, so the host does nothing between steps, and a new trial refills the tables and the parameters in
place. Elsewhere the same step is called as it is. Images that the device cannot hold are brought to it step by step:
`images.ImageSource` is where they come from.

A captured step has the same bits in every capture. A step that is called as it is (on a GPU where compiling or
capturing failed, of which a warning tells) has them up to rounding, because a compiler has kernels of its own; in steps
on a handful of examples, batch normalization enlarges rounding.
"""

import contextlib
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from torch import nn

from memfluence.errors import MemfluenceWarning
from memfluence.learners.factory import ModuleFactory
from memfluence.learners.nets.device import current_device, default_generator, no_synchronization
from memfluence.learners.nets.fresh_models import FreshModels, last_linear
from memfluence.learners.nets.images import ImageSource, Split, block_rows, crop_and_flip, scaling
from memfluence.learners.nets.optimizers import Optimizer
from memfluence.learners.nets.watch import Watch
from memfluence.learners.recipes import Recipe, StepShape, rates, step_rows, step_shape, step_tables, steps_per_epoch
from memfluence.records import Trial
from memfluence.seeding import integer_seed

_COMPILED_SHAPES = 64  # of convolutions, for muon: torch stops at 8, and an Inception has some 20
_SPLITS: tuple[Split, Split] = ("train", "test")
_FITTED_TO = 2000  # images that a layer with `fit_to_images` is fitted to


class Trainer:
    """Trains models of one architecture in steps of one width, on subsets of any size that fills one."""

    def __init__(
        self,
        architecture: str | ModuleFactory,
        options: dict[str, Any],
        recipe: Recipe,
        data: ImageSource,
        n_classes: int,
        batch: int,
        device: torch.device,
    ) -> None:
        self._recipe, self._data, self._device = recipe, data, device
        self._on_gpu = device.type == "cuda"
        bfloat16 = recipe.precision == "bfloat16" and self._on_gpu and torch.cuda.is_bf16_supported()
        self._dtype = torch.bfloat16 if bfloat16 else torch.float32
        self._fresh = FreshModels(architecture, options, (data.channels, *data.size), n_classes)
        model = self._fresh.first()
        self._model = model.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._parameters = [one for one in self._model.parameters() if one.requires_grad]
        self._optimizer = Optimizer(self._parameters, recipe)

        # Tables for the largest subset: a captured step reads them where they are, whatever the subset's size.
        self._batch, self._shape = batch, StepShape(batch, per_epoch=1, last=batch)  # the shape is each trial's own
        steps = recipe.epochs * steps_per_epoch(recipe, data.count("train"))
        self._rates = torch.zeros(steps, device=device)
        self._muon_rates = torch.zeros(steps, device=device)
        self._position = torch.zeros(1, dtype=torch.int64, device=device)
        self._order = torch.zeros((steps, batch), dtype=torch.int32, device=device)
        self._crops = torch.zeros((steps, 3, batch), dtype=torch.uint8, device=device)  # top, left, flip
        self._shift = torch.zeros(data.channels, device=device)
        self._factor = torch.ones(data.channels, device=device)
        self._images = crop_and_flip
        self._loss = self._plain_loss
        self._predict = self._plain_predict
        self._graph: torch.cuda.CUDAGraph | None = None
        self._compiled = False
        self._eager = False  # whether the step cannot be captured
        self._generator = default_generator(device)  # the caller puts it back as it was

    def train(self, trial: Trial, watch: Watch | None = None) -> None:
        """Train a new model on the trial's kept examples, from the start or from a checkpoint that the watch has."""
        with current_device(self._device):
            self._train(trial, watch or Watch(trial.number))

    def _train(self, trial: Trial, watch: Watch) -> None:
        order = self._fill_tables(trial)
        self._initialize(trial)
        self._model.train()
        if self._on_gpu and self._graph is None and not self._eager:
            self._accelerate()
            self._fresh.check_trained(self._model)  # a captured step runs none of the module's code when it is replayed
            self._initialize(trial)
            self._model.train()
        with watch.over(self._state(), len(order), self._device) as first:
            for step, width in enumerate(self._data.steps(step_rows(order, self._shape, first)), start=first):
                if self._fresh.of_user:
                    self._generator.manual_seed(int(self._seeds[step]))
                if self._graph is not None and width == self._batch:
                    self._graph.replay()
                else:
                    self._step(width)
                watch.after(step + 1)
        self._fresh.check_trained(self._model)

    def _state(self) -> list[torch.Tensor]:
        """All that a step changes, in place. The tables that it reads are the trial's and can be filled again."""
        of_model = {id(one): one for one in (*self._model.parameters(), *self._model.buffers())}  # frozen ones, too
        return [*of_model.values(), *self._optimizer.state, self._position]

    @torch.no_grad()
    def scores(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (n, n_classes) float32 of all training and of all test examples, on the device."""
        self._model.eval()
        with current_device(self._device):
            return self._scored("train"), self._scored("test")

    @torch.no_grad()
    def representations(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The inputs of the last linear layer, (n, n_features) float32, for all training and all test examples."""
        self._model.eval()

        def predict(images: torch.Tensor) -> torch.Tensor:
            return self._plain_predict(self._inputs(images))

        with current_device(self._device):
            train, test = (given_to_head(self._model, predict, self._data, split) for split in _SPLITS)
        return train, test

    def is_finite(self) -> bool:
        return bool(torch.stack([parameter.isfinite().all() for parameter in self._parameters]).all())

    def _scored(self, split: Split) -> torch.Tensor:
        return predicted(
            lambda images: self._predict(self._inputs(images)), self._data, split, one_width=self._compiled
        )

    def _fill_tables(self, trial: Trial) -> np.ndarray:
        """Fill in what the trial's streams draw (examples in their order, crops, flips), and the rates.

        Returns the order, (steps, batch).
        """
        self._shape = step_shape(self._recipe, len(trial.kept))
        order, crops = step_tables(trial, self._recipe, self._shape)
        rate = rates(self._recipe, self._shape.per_epoch)  # (steps,)
        falling = self._recipe.muon_rate * (1 - np.arange(len(order)) / len(order))  # (steps,)
        # What a module of the user's draws in a step (dropout) depends on the trial and the step alone, so that it is
        # the same when a trial goes on from a checkpoint. A captured step takes the seed that its generator has.
        self._seeds = trial.generator("learner").integers(0, 2**31, len(order))  # (steps,)
        for table, values in (
            (self._order, order),
            (self._crops, crops),
            (self._rates, rate),
            (self._muon_rates, falling),
        ):
            table[: len(order)].copy_(torch.from_numpy(values))
        shift, factor = scaling(self._data, self._recipe, torch.from_numpy(trial.kept).to(self._device))
        self._shift.copy_(shift)
        self._factor.copy_(factor)
        return order

    @torch.no_grad()
    def _initialize(self, trial: Trial) -> None:
        """A new model, drawn as torch's layers draw, from the trial's own stream; counters and momenta at 0."""
        seed = integer_seed(trial.root, "init", trial.number)
        devices = [self._device] if self._on_gpu else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            self._fresh.restart(self._model)
        for layer in self._model.modules():
            if hasattr(layer, "fit_to_images"):
                layer.fit_to_images(self._some_kept(trial))
        self._optimizer.reset()
        self._position.zero_()

    def _some_kept(self, trial: Trial) -> torch.Tensor:
        """Scaled images (n, channels, height, width), evenly spread over those that the trial keeps."""
        chosen = trial.kept[:: max(1, len(trial.kept) // _FITTED_TO)][:_FITTED_TO]
        return self._scaled(self._data.some(chosen))

    def _inputs(self, images: torch.Tensor) -> torch.Tensor:
        return self._scaled(images).to(self._dtype)

    def _scaled(self, images: torch.Tensor) -> torch.Tensor:
        return ((images.float() - self._shift) * self._factor).permute(0, 3, 1, 2)

    def _step(self, width: int) -> None:
        rows = self._order.index_select(0, self._position)[0, :width]  # (width,)
        crops = self._crops.index_select(0, self._position)[0, :, :width].int()  # (3, width)
        padded, own = self._data.batch(rows)
        images = self._images(
            padded,
            own,
            crops[0],
            crops[1],
            crops[2].bool(),
            self._shift,
            self._factor,
            self._data.size,
            self._dtype,
        )
        loss = self._loss(images, self._data.labels.index_select(0, rows))
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        rate = self._rates.index_select(0, self._position)[0]  # a tensor of one number, without axes
        muon_rate = self._muon_rates.index_select(0, self._position)[0]
        self._optimizer.update(gradients, rate, muon_rate)
        self._position.add_(1)

    def _plain_loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with self._autocast():
            logits = self._model(images)
        return functional.cross_entropy(logits.float(), labels, label_smoothing=self._recipe.label_smoothing)

    def _plain_predict(self, images: torch.Tensor) -> torch.Tensor:
        with self._autocast():
            logits: torch.Tensor = self._model(images)
        return logits

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self._dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, self._dtype)

    def _accelerate(self) -> None:
        """Compile and capture the step; where other people's modules do not allow it, do less."""
        for compiled in (True, False) if _can_compile() else (False,):
            try:
                self._capture(compiled=compiled)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # what compilers and modules raise may be anything
                self._images, self._loss, self._predict = crop_and_flip, self._plain_loss, self._plain_predict
                self._optimizer = Optimizer(self._parameters, self._recipe)
                what = "compiled" if compiled else "captured in a CUDA graph"
                reason = next(iter(str(error).splitlines()), "")[:200]
                warnings.warn(
                    f"the training step cannot be {what} and will be slower ({type(error).__name__}: {reason})",
                    MemfluenceWarning,
                    stacklevel=2,
                )
            else:
                return
        self._eager = True

    def _capture(self, *, compiled: bool) -> None:
        """Capture the step, its parts compiled or not."""
        self._model.train()
        self._compiled = compiled
        if compiled:  # for each width anew (there are few): torch's code for any width fails on maps of one pixel
            self._images = torch.compile(crop_and_flip, dynamic=False)
            self._loss = torch.compile(self._plain_loss, dynamic=False)
            self._predict = torch.compile(self._plain_predict, dynamic=False)
            self._optimizer.compile()
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream), torch._dynamo.config.patch(recompile_limit=_COMPILED_SHAPES):
            for width in (self._shape.last, *[self._batch] * 3):  # compiles, chooses kernels, takes workspaces
                self._position.zero_()
                self._step(width)
            if self._fresh.of_user:
                with no_synchronization():  # found here, because a capture that fails spoils torch's generator
                    self._position.zero_()
                    self._step(self._batch)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        self._position.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):  # torch's own stream for captures is of one GPU alone
            self._step(self._batch)
        if self._fresh.of_user:
            self._predict_nothing()
        self._graph = graph

    @torch.no_grad()
    def _predict_nothing(self) -> None:
        """Predict blank images, as many as there will be at once: a compiler that fails on it does so here."""
        self._model.eval()
        blank = torch.zeros(widest_block(self._data), *self._data.size, self._data.channels, device=self._device)
        self._predict(self._inputs(blank))


def _can_compile() -> bool:
    return importlib.util.find_spec("triton") is not None


Predict = Callable[[torch.Tensor], torch.Tensor]  # of raw images (k, height, width, channels)


def predicted(predict: Predict, data: ImageSource, split: Split, *, one_width: bool) -> torch.Tensor:
    """Logits (n, n_classes) float32. For a compiled model all blocks get one width: a narrower one is repeated."""
    found = []
    for block in data.blocks(split):
        rows, filled = len(block), block
        if one_width and rows < widest_block(data):
            filled = block[torch.arange(widest_block(data), device=block.device) % rows]
        found.append(predict(filled)[:rows].float())
    return torch.cat(found)


def widest_block(data: ImageSource) -> int:
    """The largest number of images that are predicted together."""
    return min(max(data.count("train"), data.count("test")), block_rows((0, *data.size, data.channels)))


def given_to_head(model: nn.Module, predict: Predict, data: ImageSource, split: Split) -> torch.Tensor:
    """The inputs of the last linear layer, (n, n_features) float32; a compiled model would call no hook."""
    found: list[torch.Tensor] = []
    hook = last_linear(model).register_forward_pre_hook(lambda _, inputs: found.append(inputs[0].float()))
    try:
        for block in data.blocks(split):
            predict(block)
    finally:
        hook.remove()
    return torch.cat(found).flatten(1)
