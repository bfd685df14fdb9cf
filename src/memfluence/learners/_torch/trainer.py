"""`Trainer`: one network, one recipe, one dataset on one device; trains trial after trial.

On a GPU the whole step (gather, crop, flip, forward, backward, update) is captured once in a CUDA graph and replayed.
All that differs from step to step lies in tables on the device (order, crops, flips, rates) that the step reads at
its own counter, so the host does nothing between steps, and a new trial refills the tables and the parameters in
place. Elsewhere the same step is called as it is. Images that the device cannot hold are brought to it step by step:
`images.ImageSource` is where they come from.
"""

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from torch import nn

from memfluence.learners._torch.architectures import build
from memfluence.learners._torch.images import ImageSource, Split, crop_and_flip, scaling
from memfluence.learners._torch.optimizers import Optimizer
from memfluence.learners._torch.watch import Watch
from memfluence.learners.recipes import Recipe
from memfluence.learners.schedules import StepShape, rates
from memfluence.records import Trial
from memfluence.seeding import integer_seed

__all__ = ["Trainer"]

_COMPILED_SHAPES = 64  # of convolutions, for muon: torch stops at 8, and an Inception has some 20
_FITTED_TO = 2000  # images that a layer with `fit_to_images` is fitted to


class Trainer:
    """Trains models of one architecture on subsets that share one shape of steps."""

    def __init__(
        self,
        architecture: str,
        options: dict[str, Any],
        recipe: Recipe,
        data: ImageSource,
        n_classes: int,
        shape: StepShape,
        device: torch.device,
    ) -> None:
        self._recipe, self._data, self._device = recipe, data, device
        self._on_gpu = device.type == "cuda"
        bfloat16 = recipe.precision == "bfloat16" and self._on_gpu and torch.cuda.is_bf16_supported()
        self._dtype = torch.bfloat16 if bfloat16 else torch.float32
        with torch.random.fork_rng(devices=[]):  # layers draw when they are made; the user's generator is left alone
            model = full_precision_head(build(architecture, data.channels, n_classes, **options))
        self._model = model.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._parameters = list(self._model.parameters())
        self._optimizer = Optimizer(self._parameters, recipe)

        self._batch, self._per_epoch, self._last = shape
        steps = recipe.epochs * self._per_epoch
        rate = rates(recipe, self._per_epoch)  # (steps,)
        falling = recipe.muon_rate * (1 - np.arange(steps) / steps)  # (steps,)
        self._rates = torch.tensor(rate, dtype=torch.float32, device=device)
        self._muon_rates = torch.tensor(falling, dtype=torch.float32, device=device)
        self._position = torch.zeros(1, dtype=torch.int64, device=device)
        table = (steps, self._batch)
        self._order = torch.zeros(table, dtype=torch.int32, device=device)
        self._crops = torch.zeros((steps, 3, self._batch), dtype=torch.uint8, device=device)  # top, left, flip
        self._shift = torch.zeros(data.channels, device=device)
        self._factor = torch.ones(data.channels, device=device)
        self._images = crop_and_flip
        self._loss = self._plain_loss
        self._predict = self._plain_predict
        self._graph: torch.cuda.CUDAGraph | None = None

    def train(self, trial: Trial, watch: Watch | None = None) -> None:
        """Train a new model on the trial's kept examples, from the start or from a checkpoint that the watch has."""
        watch = watch or Watch(trial.number)
        order = self._fill_tables(trial)
        self._initialize(trial)
        self._model.train()
        if self._on_gpu and self._graph is None:
            self._capture()
            self._initialize(trial)
            self._model.train()
        with watch.over(self._state(), len(order), self._device) as first:
            for step, width in enumerate(self._data.steps(self._rows(order, first)), start=first):
                if self._graph is not None and width == self._batch:
                    self._graph.replay()
                else:
                    self._step(width)
                watch.after(step + 1)

    def _rows(self, order: np.ndarray, first: int) -> Iterator[np.ndarray]:
        """The examples of each step from the first one asked for on."""
        for step in range(first, len(order)):
            is_last = step % self._per_epoch == self._per_epoch - 1
            yield order[step, : self._last if is_last else self._batch]

    def _state(self) -> list[torch.Tensor]:
        """All that a step changes, in place. The tables that it reads are the trial's and can be filled again."""
        return [*self._parameters, *self._model.buffers(), *self._optimizer.state, self._position]

    @torch.no_grad()
    def scores(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (n, n_classes) float32 of all training and of all test examples, on the device."""
        self._model.eval()
        return self._scored("train"), self._scored("test")

    def is_finite(self) -> bool:
        return bool(torch.stack([parameter.isfinite().all() for parameter in self._parameters]).all())

    def _scored(self, split: Split) -> torch.Tensor:
        found = []
        for block in self._data.blocks(split):
            scaled = self._scaled(block).to(self._dtype)
            found.append(self._predict(scaled).float())
        return torch.cat(found)

    def _fill_tables(self, trial: Trial) -> np.ndarray:
        """What the trial's streams say: which examples in which order, how each is cropped and flipped.

        Gives the order, (steps, batch), for whoever has to bring the images.
        """
        recipe, steps = self._recipe, len(self._rates)
        order_stream, augment_stream = trial.generator("order"), trial.generator("augment")
        order = np.zeros((recipe.epochs, self._per_epoch * self._batch), dtype=np.int32)
        used = min(order.shape[1], len(trial.kept))  # what does not fill a batch is left out of the epoch
        for epoch in range(recipe.epochs):
            order[epoch, :used] = order_stream.permutation(trial.kept)[:used]
        crops = np.zeros((steps, 3, self._batch), dtype=np.uint8)
        if recipe.crop_padding:
            crops[:, :2] = augment_stream.integers(0, 2 * recipe.crop_padding + 1, (steps, 2, self._batch), np.uint8)
        order = order.reshape(steps, self._batch)
        if recipe.flip and recipe.alternate_flips:
            in_first = augment_stream.integers(0, 2, len(self._data.labels), np.uint8)  # (n_train,)
            crops[:, 2] = (in_first[order] + np.arange(steps)[:, None] // self._per_epoch) % 2
        elif recipe.flip:
            crops[:, 2] = augment_stream.integers(0, 2, (steps, self._batch), np.uint8)
        self._order.copy_(torch.from_numpy(order))
        self._crops.copy_(torch.from_numpy(crops))
        shift, factor = scaling(self._data, recipe, torch.from_numpy(trial.kept).to(self._device))
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
            for layer in self._model.modules():
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()
        for layer in self._model.modules():
            if hasattr(layer, "fit_to_images"):
                layer.fit_to_images(self._some_kept(trial))
        self._optimizer.reset()
        self._position.zero_()

    def _some_kept(self, trial: Trial) -> torch.Tensor:
        """Scaled images (n, channels, height, width), evenly spread over those that the trial keeps."""
        chosen = trial.kept[:: max(1, len(trial.kept) // _FITTED_TO)][:_FITTED_TO]
        return self._scaled(self._data.some(chosen))

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
        gradients = torch.autograd.grad(loss, self._parameters)
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

    def _capture(self) -> None:
        """Compile the parts of the step, if this installation can, and capture it."""
        if _can_compile():
            self._images = torch.compile(crop_and_flip)
            self._loss = torch.compile(self._plain_loss)
            self._predict = torch.compile(self._plain_predict)
            self._optimizer.compile()
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream), torch._dynamo.config.patch(recompile_limit=_COMPILED_SHAPES):
            for _ in range(3):  # compiles, chooses kernels, takes workspaces
                self._position.zero_()
                self._step(self._batch)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        self._position.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(self._batch)
        self._graph = graph


def full_precision_head(model: nn.Module) -> nn.Module:
    """The model with its last linear layer computed in float32: bfloat16 logits would tie at the arg max."""
    linear = [(path, layer) for path, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    if not linear:
        return model
    path, layer = linear[-1]
    head = _FullPrecisionLinear(layer.in_features, layer.out_features, layer.bias is not None)
    if not path:  # the model is the layer
        return head
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, head)
    return model


class _FullPrecisionLinear(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input.float())


def _can_compile() -> bool:
    return importlib.util.find_spec("triton") is not None


@contextlib.contextmanager
def kernels(deterministic: bool) -> Iterator[None]:
    """Which kernels cuDNN may choose: those with the same bits every time, or the fastest it finds by trying."""
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = deterministic, not deterministic
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before
