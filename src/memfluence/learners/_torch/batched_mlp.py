"""K multilayer perceptrons trained at once: one batched matrix product does one layer of all of them.

Small models leave a core idle while Python and autograd look after them. Here a step of K models costs as many calls
as a step of one, the backward pass is written out, and momentum happens in the product that makes the gradient:

    velocity <- momentum * velocity - rate * gradient        (one `baddbmm_`)
    parameters <- parameters + velocity

which is torch.optim.SGD's update with the rate multiplied in. Scores are laid out as (models, classes, width), so that
the softmax runs along vectors of examples and not within a handful of classes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

__all__ = ["BatchedMLP"]

_Layer = tuple[torch.Tensor, torch.Tensor]  # weight, bias


@dataclass(frozen=True)
class _Workspace:
    """Memory for one shape of step. Fresh arrays of a megabyte would cost more in page faults than in arithmetic."""

    activations: list[torch.Tensor]  # (active, width, n_out) per hidden layer
    deltas: list[torch.Tensor]  # the loss's gradient by each of these
    scores: torch.Tensor  # (active, n_classes, width)
    error: torch.Tensor  # (active, n_classes, width)


class BatchedMLP:
    """The parameters of K models whose layers have the given widths: inputs, hidden layers, classes."""

    def __init__(self, widths: Sequence[int], generators: Sequence[np.random.Generator], device: torch.device) -> None:
        """Model k is drawn from generators[k] as torch.nn.Linear draws: uniform in +-1/sqrt(n_in).

        Layer by layer, first the weights (n_out, n_in) in C order, then the biases (n_out,), as float32.
        """
        self._models = len(generators)
        self._hidden, n_classes = list(widths[1:-1]), widths[-1]
        shapes: list[tuple[int, int, int]] = []
        for n_in, n_out in zip(widths, self._hidden):
            shapes += [(self._models, n_in, n_out), (self._models, 1, n_out)]
        shapes += [(self._models, n_classes, widths[-2]), (self._models, n_classes, 1)]
        # One flat array for all layers, so that an update is one call; each layer is a contiguous part of it.
        drawn = torch.empty(sum(math.prod(shape) for shape in shapes))
        layers = _parts(drawn, shapes)
        for k, generator in enumerate(generators):
            for (weight, bias), n_in in zip(layers, widths):
                own = _uniform(generator, weight[k].numel(), n_in).view(-1, n_in)  # (n_out, n_in)
                weight[k] = own if weight is layers[-1][0] else own.T
                bias[k] = _uniform(generator, bias[k].numel(), n_in).view(bias[k].shape)
        self._parameters = drawn.to(device)
        self._velocity = torch.zeros_like(self._parameters)
        self._layers = _parts(self._parameters, shapes)
        self._velocities = _parts(self._velocity, shapes)
        self._minus_one = torch.full((1,), -1.0, device=device)
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
        everyone = active == self._models
        layers = self._layers if everyone else _first(self._layers, active)
        velocities = self._velocities if everyone else _first(self._velocities, active)
        space = self._workspace(active, width)
        alpha = -rate / width if share is None else -rate

        activations = [inputs]
        for (weight, bias), out in zip(layers, space.activations):
            activations.append(torch.baddbmm(bias, activations[-1], weight, out=out).relu_())  # (active, width, n_out)
        weight, bias = layers[-1]
        torch.baddbmm(bias, weight, activations[-1].mT, out=space.scores)  # (active, n_classes, width)
        error = torch.softmax(space.scores, 1, out=space.error)  # (active, n_classes, width)
        error.scatter_add_(1, labels, self._minus_one.expand_as(labels))
        if share is not None:
            error *= share

        # Backward, from the output down; weights move last, so every layer below sees those of the forward pass.
        velocity, bias_velocity = velocities[-1]
        velocity.baddbmm_(error, activations[-1], beta=momentum, alpha=alpha)
        bias_velocity.mul_(momentum).add_(error.sum(2, keepdim=True), alpha=alpha)
        for layer in reversed(range(len(self._hidden))):
            weight_above = layers[layer + 1][0]
            if layer == len(self._hidden) - 1:
                delta = torch.bmm(error.mT, weight_above, out=space.deltas[layer])  # (active, width, n_out)
            else:
                delta = torch.bmm(space.deltas[layer + 1], weight_above.mT, out=space.deltas[layer])
            _through_relu(delta, activations[layer + 1])
            velocity, bias_velocity = velocities[layer]
            velocity.baddbmm_(activations[layer].mT, delta, beta=momentum, alpha=alpha)
            bias_velocity.mul_(momentum).add_(delta.sum(1, keepdim=True), alpha=alpha)

        if everyone:
            self._parameters += self._velocity
            return
        for (weight, bias), (velocity, bias_velocity) in zip(layers, velocities):
            weight += velocity
            bias += bias_velocity

    def scores(self, model: int, blocks: Iterable[torch.Tensor]) -> np.ndarray:
        """Logits (n, n_classes) of one model for inputs that come in blocks (rows, n_in)."""
        found = []
        for values in blocks:
            for weight, bias in self._layers[:-1]:
                values = torch.addmm(bias[model], values, weight[model]).relu_()  # (rows, n_out)
            weight, bias = self._layers[-1]
            found.append(torch.addmm(bias[model].T, values, weight[model].T).cpu().numpy())
        return np.concatenate(found)

    def is_finite(self, model: int) -> bool:
        return all(bool(part[model].isfinite().all()) for layer in self._layers for part in layer)

    def _workspace(self, active: int, width: int) -> _Workspace:
        if (active, width) not in self._workspaces:
            empty = self._parameters.new_empty
            n_classes = self._layers[-1][0].shape[1]
            self._workspaces[active, width] = _Workspace(
                activations=[empty(active, width, n_out) for n_out in self._hidden],
                deltas=[empty(active, width, n_out) for n_out in self._hidden],
                scores=empty(active, n_classes, width),
                error=empty(active, n_classes, width),
            )
        return self._workspaces[active, width]


def _uniform(generator: np.random.Generator, size: int, n_in: int) -> torch.Tensor:
    drawn = generator.random(size, dtype=np.float32)
    return torch.from_numpy((2 * drawn - 1) * np.float32(1 / math.sqrt(n_in)))


def _parts(flat: torch.Tensor, shapes: Sequence[tuple[int, int, int]]) -> list[_Layer]:
    """A flat array as (weight, bias) of each layer; the output layer is (n_classes, n_in), the others (n_in, n_out)."""
    ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
    parts = [flat[start:end].view(shape) for start, end, shape in zip([0, *ends], ends, shapes)]
    return list(zip(parts[::2], parts[1::2]))


def _first(layers: Sequence[_Layer], active: int) -> list[_Layer]:
    return [(weight[:active], bias[:active]) for weight, bias in layers]


def _through_relu(gradient: torch.Tensor, activation: torch.Tensor) -> None:
    """Set the gradient to 0 where the activation is, in one pass over memory."""
    backward: Any = torch.ops.aten.threshold_backward.grad_input
    backward(gradient, activation, 0, grad_input=gradient)
