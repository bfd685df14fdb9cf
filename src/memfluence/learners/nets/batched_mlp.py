"""K multilayer perceptrons trained at once: one batched matrix product does one layer of all of them.

Small models leave a core idle while Python and autograd look after them. Here a step of K models costs as many calls
as a step of one, the backward pass is written out, and momentum happens in the product that makes the gradient:

    velocity <- momentum * velocity - rate * gradient        (one `baddbmm_`)
    parameters <- parameters + velocity

which is torch.optim.SGD's update with the rate multiplied in; `clipping` may limit the gradient before it. Scores are
laid out as (models, classes, width), so that the softmax runs along vectors of examples and not within a handful of
classes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from memfluence.learners.nets.clipping import Clipping

__all__ = ["BatchedMLP"]

_Shape = tuple[int, int, int]
_Layers = list[tuple[torch.Tensor, torch.Tensor]]  # weight and bias of each layer, the output layer last


@dataclass(frozen=True)
class _Workspace:
    """What steps of one shape work on: the parameters of their models, and memory for what they compute.

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
        shapes: list[tuple[_Shape, _Shape]] = [
            ((self._models, n_in, n_out), (self._models, 1, n_out)) for n_in, n_out in zip(widths, self._hidden)
        ]
        shapes.append(((self._models, self._n_classes, widths[-2]), (self._models, self._n_classes, 1)))
        # One flat array for all layers, so that an update is one call; each weight and bias is a contiguous part of it.
        drawn = torch.empty(sum(math.prod(shape) for pair in shapes for shape in pair))
        layers = _parts(drawn, shapes)
        for k, generator in enumerate(generators):
            for (weight, bias), n_in in zip(layers, widths):
                own = _uniform(generator, weight[k].numel(), n_in).view(-1, n_in)  # (n_out, n_in)
                weight[k] = own if weight is layers[-1][0] else own.T
                bias[k] = _uniform(generator, bias[k].numel(), n_in).view(bias[k].shape)
        self._parameters = drawn.to(device)
        self._velocity = torch.zeros_like(self._parameters)
        self._layers, self._velocities = _parts(self._parameters, shapes), _parts(self._velocity, shapes)
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

        if active == self._models:
            self._parameters += self._velocity
            return
        for parameters, velocities in zip(space.layers, space.velocities):
            for parameter, move in zip(parameters, velocities):
                parameter += move

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
        """What the last layer of one model is given, (n, n_hidden), for inputs that come in blocks (rows, n_in)."""
        return np.concatenate([self._hidden_values(model, values).cpu().numpy() for values in blocks])

    def _hidden_values(self, model: int, values: torch.Tensor) -> torch.Tensor:
        for weight, bias in self._layers[:-1]:
            values = torch.addmm(bias[model], values, weight[model]).relu_()  # (rows, n_out)
        return values

    def finite(self) -> np.ndarray:
        """Which models (models,) have finite parameters alone."""
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


def _parts(flat: torch.Tensor, shapes: Sequence[tuple[_Shape, _Shape]]) -> _Layers:
    """A flat array as weight and bias of each layer; hidden weights are (n_in, n_out), the output's (n_out, n_in)."""
    layers, start = [], 0
    for pair in shapes:
        parts = []
        for shape in pair:
            parts.append(flat[start : start + math.prod(shape)].view(shape))
            start += math.prod(shape)
        layers.append((parts[0], parts[1]))
    return layers


def _through_relu(gradient: torch.Tensor, activation: torch.Tensor) -> None:
    """Set the gradient to 0 where the activation is, in one pass over memory."""
    backward: Any = torch.ops.aten.threshold_backward.grad_input
    backward(gradient, activation, 0, grad_input=gradient)
