"""K multilayer perceptrons trained at once: one batched matrix product does one layer of all of them.

Small models leave a core idle while Python and autograd look after them. Here a step of K models costs as many calls
as a step of one, the backward pass is written out, and momentum happens in the product that makes the gradient:

    velocity <- momentum * velocity - rate * gradient        (one `baddbmm_`)
    parameters <- parameters + velocity

which is torch.optim.SGD's update with the rate multiplied in; `Clipping` may limit the gradient before it, and weight
decay takes rate * weight_decay * parameters from the velocity. Scores are laid out as (models, classes, width), so that
the softmax runs along vectors of examples and not within a handful of classes.

Every epoch each model goes through its kept examples once, in an order of its own, in batches of `batch` with a smaller
last one (`batch_sizes`). Models come sorted by subset size, largest first, so those that still have a batch at some
step are always the first ones, and a model that is through its epoch is not touched. Where batch sizes differ within a
step, the shorter ones are filled up with an example of the model's own at weight 0: the loss stays the mean over the
model's real batch.

Clipping and noise are those of DP-SGD (Abadi et al. 2016). The gradient of the loss on one example, over all parameters
of one model, is scaled down to the norm `clip` if it is longer; Gaussian noise of standard deviation noise * clip is
added to each number of a batch's sum of such gradients; then the sum is divided by the size of the batch. No gradient
of a single example is ever formed. An example's gradient by a layer's weight is the outer product of h, which the layer
is given, and of delta, the loss's gradient by what it puts out; that by the bias is delta. So the squared norm of both
is (|h|^2 + 1) |delta|^2 (Goodfellow 2015), and to scale an example's gradient is to scale its delta at the output, from
which all others follow.

Inputs are rows of numbers, scaled without looking at an example that a model leaves out. Where the dataset knows the
range of its values (an image's 0 to 255), all inputs are mapped from it to [0, 1] once. Elsewhere each model subtracts
the mean of its own kept examples, feature by feature, and divides by their standard deviation (by 1 where that is 0,
up to rounding).
"""

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError
from memfluence.learners.nets.device import refuse_missing

_DENSE_BYTES = 2**30  # a sparse matrix that needs more than this as an array is refused
_ROWS_AT_ONCE = 4096  # examples scored at once: bounds the activations, whatever the size of the dataset


@dataclass(frozen=True)
class _Step:
    """The shape of a step, the same in all epochs."""

    active: int  # the first `active` models take part
    width: int  # the largest of their batches
    share: torch.Tensor | None  # (active, 1, width) weight of each example; None where all are 1 / width


@dataclass(frozen=True)
class Minibatch(_Step):
    """One step with its examples."""

    rows: torch.Tensor  # (active * width,) rows of the training inputs
    labels: torch.Tensor  # (active, 1, width) their class codes


def batch_sizes(subset_size: int, batch: int) -> list[int]:
    """The sizes of an epoch's batches: full ones, and what is left; a handful is shared evenly with the one before.

    The rate is the same for every step, so one on a single example goes as far as one on 64, and the epoch ends with
    it: 65 digits in batches of 64 and 1 gave models with a test accuracy of 43%, while 64 give 81%. From an eighth of
    a batch on no harm was seen.
    """
    full, left = divmod(subset_size, batch)
    if full and 0 < left < max(2, batch / 8):
        both = batch + left
        return [batch] * (full - 1) + [both - both // 2, both // 2]
    return [batch] * full + [left] * (left > 0)


def minibatches(
    kept: Sequence[np.ndarray],  # one (subset_size,) per model, the largest first, none empty
    labels: np.ndarray,  # (n_train,) class codes
    orders: Sequence[np.random.Generator],
    *,
    batch: int,
    epochs: int,
    device: torch.device,
) -> Iterator[Minibatch]:
    """All steps of all epochs; every epoch model k draws `orders[k].permutation(kept[k])`, whatever the others do."""
    sizes = [batch_sizes(len(rows), batch) for rows in kept]
    shapes = _shapes(sizes, device)
    places = [np.concatenate([step * batch + np.arange(size) for step, size in enumerate(own)]) for own in sizes]
    order = np.empty((len(kept), len(shapes) * batch), dtype=np.int64)  # (models, steps * batch)
    order[:] = [rows[:1] for rows in kept]  # what fills up short batches
    for _ in range(epochs):
        for own, generator, subset, place in zip(order, orders, kept, places):
            own[place] = generator.permutation(subset)
        by_step = np.ascontiguousarray(order.reshape(len(kept), len(shapes), 1, batch).transpose(1, 0, 2, 3))
        rows_by_step, labels_by_step = (
            torch.from_numpy(by_step).to(device),
            torch.from_numpy(labels[by_step]).to(device),
        )
        for rows, codes, shape in zip(rows_by_step, labels_by_step, shapes):  # (models, 1, batch) each
            if (shape.active, shape.width) != (len(kept), batch):
                rows, codes = (part[: shape.active, :, : shape.width].contiguous() for part in (rows, codes))
            yield Minibatch(shape.active, shape.width, shape.share, rows.view(-1), codes)


def _shapes(sizes: Sequence[Sequence[int]], device: torch.device) -> list[_Step]:
    """The steps of an epoch of models with these batch sizes, the model with the most examples first."""
    shapes = []
    for step in range(len(sizes[0])):
        own = [model[step] for model in sizes if len(model) > step]
        width, share = max(own), None
        if min(own) < width:
            count = torch.tensor(own)[:, None, None]  # (active, 1, 1)
            share = torch.where(torch.arange(width) < count, 1 / count, 0.0).to(device)  # (active, 1, width)
        shapes.append(_Step(len(own), width, share))
    return shapes


_Layers = list[tuple[torch.Tensor, torch.Tensor]]  # weight and bias of each layer, the output layer last


class Clipping:
    """Clipping and noise for the gradients of K models; the noise of model k comes from generators[k].

    NumPy draws it on every device, so that a trial has the same noise on all of them. A model draws when it takes a
    step, parameter by parameter in the layout that those have; so its noise does not depend on the other models.
    """

    def __init__(self, clip: float, noise: float, generators: Sequence[np.random.Generator]) -> None:
        self._clip, self._noise, self._generators = clip, noise, generators
        self._drawn: list[np.ndarray] = []  # (models, ...) per parameter

    def factors(
        self,
        error: torch.Tensor,  # (active, n_classes, width) delta of each example at the output
        given: Sequence[torch.Tensor],  # (active, width, n_in) h of each layer, the output layer last
        deltas: Sequence[torch.Tensor],  # (active, width, n_out) of each hidden layer
    ) -> torch.Tensor:
        """The factor of each example's gradient: (active, 1, width)."""
        squared = (1 + given[-1].square().sum(2)) * error.square().sum(1)  # (active, width)
        for values, delta in zip(given, deltas):
            squared += (1 + values.square().sum(2)) * delta.square().sum(2)
        return (self._clip / squared.sqrt_()).clamp_(max=1)[:, None]  # where the gradient is 0: 1, not infinity

    def add_noise(self, sums: Sequence[torch.Tensor], weight: float | torch.Tensor) -> None:
        """Add weight * noise to sums of gradients, (active, ...) per parameter; the weight is one or (active, 1, 1)."""
        if not self._noise:
            return
        if not self._drawn:  # the first step is one of all models
            self._drawn = [np.empty(tuple(part.shape), dtype=np.float32) for part in sums]
        active = len(sums[0])
        for k, generator in enumerate(self._generators[:active]):
            for drawn in self._drawn:
                generator.standard_normal(dtype=np.float32, out=drawn[k])
        scale = self._noise * self._clip * weight
        for part, drawn in zip(sums, self._drawn):
            part += torch.from_numpy(drawn[:active]).to(part.device).mul_(scale)


@dataclass(frozen=True)
class _Workspace:
    """The tensors of steps of one shape: the parameters of their models, and memory for what they compute.

    Fresh arrays of a megabyte would cost more in page faults than the arithmetic on them.
    """

    layers: _Layers
    velocities: _Layers
    activations: list[torch.Tensor]  # (active, width, n_out) per hidden layer
    deltas: list[torch.Tensor]  # the loss's gradient by each of these
    scores: torch.Tensor  # (active, n_classes, width)
    error: torch.Tensor  # (active, n_classes, width)


class BatchedMLP:
    """The parameters of K models whose layers have the given widths: inputs, hidden layers, classes."""

    def __init__(
        self,
        widths: Sequence[int],
        generators: Sequence[np.random.Generator],
        device: torch.device,
        clipping: Clipping | None = None,
    ) -> None:
        """Model k is drawn from generators[k] as torch.nn.Linear draws: uniform in +-1/sqrt(n_in).

        Layer by layer, first the weights (n_out, n_in) in C order, then the biases (n_out,), as float32.
        """
        self._models, self._hidden, self._n_classes = len(generators), list(widths[1:-1]), widths[-1]
        shapes: list[tuple[int, ...]] = []  # weight and bias of each layer; hidden weights are (n_in, n_out)
        for n_in, n_out in zip(widths, self._hidden):
            shapes += [(self._models, n_in, n_out), (self._models, 1, n_out)]
        shapes += [(self._models, self._n_classes, widths[-2]), (self._models, self._n_classes, 1)]
        # One flat array for all layers, so that an update is one call; each weight and bias is a contiguous part of it.
        drawn = torch.empty(sum(map(math.prod, shapes)))
        layers = _layers(drawn, shapes)
        for k, generator in enumerate(generators):
            for (weight, bias), n_in in zip(layers, widths):
                own = _uniform(generator, weight[k].numel(), n_in).view(-1, n_in)  # (n_out, n_in)
                weight[k] = own if weight is layers[-1][0] else own.T
                bias[k] = _uniform(generator, bias[k].numel(), n_in).view(bias[k].shape)
        self._parameters = drawn.to(device)
        self._velocity = torch.zeros_like(self._parameters)
        self._layers, self._velocities = _layers(self._parameters, shapes), _layers(self._velocity, shapes)
        self._minus_one = torch.full((1,), -1.0, device=device)
        self._clipping = clipping
        self._workspaces: dict[tuple[int, int], _Workspace] = {}

    def step(
        self,
        inputs: torch.Tensor,  # (active, width, n_in)
        labels: torch.Tensor,  # (active, 1, width) class codes
        share: torch.Tensor | None,  # (active, 1, width) weight of each example; None where all are 1 / width
        *,
        rate: float,
        momentum: float,
        weight_decay: float = 0.0,
    ) -> None:
        """One step of the first `active` models on the mean cross-entropy of each one's own examples."""
        active, width, _ = inputs.shape
        space = self._workspace(active, width)

        below = inputs
        for (weight, bias), out in zip(space.layers, space.activations):
            below = torch.baddbmm(bias, below, weight, out=out).relu_()  # (active, width, n_out)
        weight, bias = space.layers[-1]
        torch.baddbmm(bias, weight, below.mT, out=space.scores)  # (active, n_classes, width)
        error = torch.softmax(space.scores, 1, out=space.error)  # (active, n_classes, width)
        error.scatter_add_(1, labels, self._minus_one.expand_as(labels))
        given = [inputs, *space.activations]  # to each layer
        if self._clipping is not None:
            self._backward(space)
            error *= self._clipping.factors(error, given, space.deltas)
        if share is not None:
            error *= share
        alpha = -rate / width if share is None else -rate

        self._backward(space)  # before any weight moves: every layer sees those of the forward pass
        velocity, bias_velocity = space.velocities[-1]
        velocity.baddbmm_(error, given[-1], beta=momentum, alpha=alpha)
        bias_velocity.mul_(momentum).add_(error.sum(2, keepdim=True), alpha=alpha)
        for (velocity, bias_velocity), values, delta in zip(space.velocities, given, space.deltas):
            velocity.baddbmm_(values.mT, delta, beta=momentum, alpha=alpha)
            bias_velocity.mul_(momentum).add_(delta.sum(1, keepdim=True), alpha=alpha)
        if self._clipping is not None:
            each = alpha if share is None else alpha * share[:, :, :1]  # a model's first example always counts
            self._clipping.add_noise([part for layer in space.velocities for part in layer], each)

        moves: Iterable[tuple[torch.Tensor, torch.Tensor]] = [(self._parameters, self._velocity)]  # all at once
        if active < self._models:
            moves = zip(itertools.chain(*space.layers), itertools.chain(*space.velocities))
        for parameter, move in moves:
            if weight_decay:
                move.add_(parameter, alpha=-rate * weight_decay)
            parameter += move

    def prune(self, share: float) -> None:
        """Set this share of each model's weights, those with the smallest magnitudes, to 0; biases stay."""
        weights = [weight for weight, _ in self._layers]
        magnitudes = torch.cat([weight.abs().flatten(1) for weight in weights], dim=1)  # (models, n_weights)
        if count := round(share * magnitudes.shape[1]):
            largest = magnitudes.kthvalue(count, dim=1).values[:, None, None]  # of those that go
            for weight in weights:
                weight.masked_fill_(weight.abs() <= largest, 0)

    def _backward(self, space: _Workspace) -> None:
        """The loss's gradient by what each hidden layer puts out, from that by the scores."""
        above, weight_above = space.error.mT, space.layers[-1][0]  # (active, width, n_classes)
        for layer in reversed(range(len(self._hidden))):
            delta = torch.bmm(above, weight_above, out=space.deltas[layer])  # (active, width, n_out)
            _through_relu(delta, space.activations[layer])
            above, weight_above = delta, space.layers[layer][0].mT

    def scores(self, model: int, blocks: Iterable[torch.Tensor]) -> np.ndarray:
        """Logits (n, n_classes) of one model for inputs that come in blocks (rows, n_in)."""
        weight, bias = self._layers[-1]
        hidden = (self._hidden_values(model, values) for values in blocks)
        return np.concatenate([torch.addmm(bias[model].T, values, weight[model].T).cpu().numpy() for values in hidden])

    def representations(self, model: int, blocks: Iterable[torch.Tensor]) -> np.ndarray:
        """The inputs of one model's last layer, (n, n_hidden), for inputs that come in blocks (rows, n_in)."""
        return np.concatenate([self._hidden_values(model, values).cpu().numpy() for values in blocks])

    def _hidden_values(self, model: int, values: torch.Tensor) -> torch.Tensor:
        for weight, bias in self._layers[:-1]:
            values = torch.addmm(bias[model], values, weight[model]).relu_()  # (rows, n_out)
        return values

    def finite(self) -> np.ndarray:
        """For each model whether all its parameters are finite: (models,)."""
        parts = [part.isfinite().flatten(1).all(1) for layer in self._layers for part in layer]  # (models,) each
        return torch.stack(parts).all(0).cpu().numpy()

    def _workspace(self, active: int, width: int) -> _Workspace:
        if (active, width) not in self._workspaces:
            empty = self._parameters.new_empty
            self._workspaces[active, width] = _Workspace(
                layers=[(weight[:active], bias[:active]) for weight, bias in self._layers],
                velocities=[(weight[:active], bias[:active]) for weight, bias in self._velocities],
                activations=[empty(active, width, n_out) for n_out in self._hidden],
                deltas=[empty(active, width, n_out) for n_out in self._hidden],
                scores=empty(active, self._n_classes, width),
                error=empty(active, self._n_classes, width),
            )
        return self._workspaces[active, width]


def _uniform(generator: np.random.Generator, size: int, n_in: int) -> torch.Tensor:
    drawn = generator.random(size, dtype=np.float32)
    return torch.from_numpy((2 * drawn - 1) * np.float32(1 / math.sqrt(n_in)))


def _layers(flat: torch.Tensor, shapes: Sequence[tuple[int, ...]]) -> _Layers:
    parts = parts_of(flat, shapes)
    return list(zip(parts[::2], parts[1::2]))


def parts_of(flat: torch.Tensor, shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
    """A flat array as arrays of these shapes, one after another."""
    return [part.view(shape) for part, shape in zip(torch.split(flat, [*map(math.prod, shapes)]), shapes)]


def _through_relu(gradient: torch.Tensor, activation: torch.Tensor) -> None:
    """Set the gradient to 0 where the activation is, in one pass over memory."""
    backward: Any = torch.ops.aten.threshold_backward.grad_input
    backward(gradient, activation, 0, grad_input=gradient)


@dataclass(frozen=True)
class Scaling:
    """Each model's own shift, in the precision of the inputs, and its factor."""

    shift: torch.Tensor  # (models, 1, n_features)
    factor: torch.Tensor  # (models, 1, n_features) float32


@dataclass(frozen=True)
class Features:
    """All inputs of a dataset on one device."""

    train: torch.Tensor  # (n_train, n_features)
    test: torch.Tensor  # (n_test, n_features)
    scaled: bool  # once for all models
    _spaces: dict[tuple[int, int], tuple[torch.Tensor, ...]] = field(default_factory=dict)  # memory of batches

    def scaling(self, kept: Sequence[np.ndarray]) -> Scaling | None:
        """The scaling of models that keep these rows, from these rows alone; None where inputs are scaled already."""
        if self.scaled:
            return None
        shifts, factors = [], []
        for rows in kept:
            own = self.train[torch.from_numpy(rows).to(self.train.device)].double()  # (subset_size, n_features)
            mean, deviation = own.mean(dim=0), own.std(dim=0, correction=0)  # (n_features,)
            rounding = len(own) * torch.finfo(own.dtype).eps * mean.abs()  # what a sum of equal numbers may be off by
            shifts.append(mean)
            factors.append(1 / torch.where(deviation > rounding, deviation, 1))
        shift, factor = torch.stack(shifts)[:, None], torch.stack(factors)[:, None]  # (models, 1, n_features)
        return Scaling(shift.to(self.train.dtype), factor.float())

    def batch(self, rows: torch.Tensor, models: int, scaling: Scaling | None) -> torch.Tensor:
        """Training inputs (models, width, n_features) float32 of the first models; valid until the next call."""
        key = (models, len(rows))
        if key not in self._spaces:  # made once: fresh arrays cost page faults
            flat = self.train.new_empty(len(rows), self.train.shape[1])
            raw = flat.view(models, -1, self.train.shape[1])
            self._spaces[key] = flat, raw, raw if scaling is None else raw.to(torch.float32)
        flat, raw, batch = self._spaces[key]
        torch.index_select(self.train, 0, rows, out=flat)
        if scaling is not None:
            torch.sub(raw, scaling.shift[:models], out=batch).mul_(scaling.factor[:models])
        return batch

    def blocks(self, inputs: torch.Tensor, model: int, scaling: Scaling | None) -> Iterator[torch.Tensor]:
        """All of a split as one model sees it, as blocks (rows, n_features) float32."""
        for start in range(0, len(inputs), _ROWS_AT_ONCE):
            block = inputs[start : start + _ROWS_AT_ONCE]
            yield block if scaling is None else (block - scaling.shift[model]).float().mul_(scaling.factor[model])


def load_features(dataset: Dataset, device: torch.device) -> Features:
    """The dataset's inputs, flattened to one row per example; refuses what is not numbers."""
    refuse_missing(dataset)
    splits = [_as_rows(dataset.x_train), _as_rows(dataset.x_test)]
    # Inputs that float32 cannot hold stay float64 until the model's own mean is off: a time stamp keeps its seconds.
    exact = dataset.value_range is not None or all(np.can_cast(rows.dtype, np.float32) for rows in splits)
    tensors = []
    for rows in splits:
        # Copied into torch's own memory, which is aligned the same way in every process: products' bits depend on it.
        tensor = torch.empty(rows.shape, dtype=torch.float32 if exact else torch.float64)
        values = tensor.numpy()  # (n, n_features)
        if dataset.value_range is None:
            values[...] = rows
        else:
            low, high = dataset.value_range
            np.subtract(rows, np.float64(low), out=values, casting="same_kind")  # bytes would overflow
            values /= (high - low) or 1.0
        tensors.append(tensor.to(device))
    return Features(tensors[0], tensors[1], scaled=dataset.value_range is not None)


def _as_rows(inputs: Any) -> np.ndarray:
    """Inputs as an array (n, n_features) of booleans, integers or floats."""
    if hasattr(inputs, "tocsr"):
        if int(np.prod(inputs.shape)) * 8 > _DENSE_BYTES:
            raise LearnerError(
                f"mlp needs dense inputs, and a sparse matrix of the shape {tuple(inputs.shape)} is too large to"
                " expand; use a scikit-learn classifier, many of which take sparse matrices as they are."
            )
        inputs = inputs.toarray()
    if hasattr(inputs, "detach"):
        inputs = inputs.detach().cpu().numpy()
    try:
        array = np.asarray(inputs)
    except ValueError:  # rows of different lengths
        array = np.empty(0, dtype=object)
    if array.dtype == object and hasattr(inputs, "iloc"):
        with contextlib.suppress(TypeError, ValueError):  # a table of numbers and booleans
            array = inputs.to_numpy(dtype=np.float64)
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        kind = type(inputs[0]).__name__ if isinstance(inputs, list) and inputs else str(array.dtype)
        raise LearnerError(
            f"mlp needs inputs that are arrays of numbers, but these are of type {kind}; turn them into numbers, or use"
            " a scikit-learn pipeline that does (`learner='file.py:pipeline'`)."
        )
    return array.reshape(len(array), -1)  # (n, n_features)
