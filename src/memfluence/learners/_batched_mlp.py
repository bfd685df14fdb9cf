"""K multilayer perceptrons trained at once: one batched matrix product does one layer of all of them.

Small models leave a core idle while Python and autograd look after them. Here a step of K models costs as many calls as a step
of one, the backward pass is written out, and momentum happens inside the product that makes the gradient:

    velocity <- momentum * velocity - rate * gradient        (one `baddbmm_`)
    parameters <- parameters + velocity

which is torch.optim.SGD's update with the rate multiplied in. Scores are laid out as (models, classes, width), so that the
softmax runs along vectors of examples and not within a handful of classes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

__all__ = ["BatchedMLP"]

_Layer = tuple[torch.Tensor, torch.Tensor]  # weight, bias


@dataclass(frozen=True)
class _Workspace:
    activations: list[torch.Tensor]  # one (active, width, n_out) per hidden layer
    deltas: list[torch.Tensor]  # the loss's gradient by each of these
    scores: torch.Tensor  # (active, n_classes, width)
    error: torch.Tensor  # (active, n_classes, width)


class BatchedMLP:
    """The parameters of K models whose layers have the given widths: inputs, hidden layers, classes."""

    def __init__(self, widths: Sequence[int], generators: Sequence[np.random.Generator], device: torch.device) -> None:
        """Model k is drawn from generators[k] as torch.nn.Linear draws: uniform in +-1/sqrt(n_in).

        Layer by layer, first the weights (n_out, n_in) in C order, then the biases (n_out,), as float32.
        """
        self.models = len(generators)
        shapes: list[tuple[int, int, int]] = []
        for n_in, n_out in zip(widths[:-2], widths[1:-1]):
            shapes += [(self.models, n_in, n_out), (self.models, 1, n_out)]
        shapes += [(self.models, widths[-1], widths[-2]), (self.models, widths[-1], 1)]
        # One flat array for all layers, so that an update is one call; each layer is a contiguous part of it.
        self._parameters = torch.zeros(sum(math.prod(shape) for shape in shapes))
        self._layers = _parts(self._parameters, shapes)  # the output layer last, transposed
        for k, generator in enumerate(generators):
            for (weight, bias), n_in in zip(self._layers, widths):
                scale = np.float32(1 / math.sqrt(n_in))
                drawn = [
                    (2 * generator.random(part[0].numel(), dtype=np.float32) - 1) * scale for part in (weight, bias)
                ]
                own = torch.from_numpy(drawn[0]).view(-1, n_in)  # (n_out, n_in)
                weight[k] = own if weight is self._layers[-1][0] else own.T
                bias[k] = torch.from_numpy(drawn[1]).view(bias.shape[1:])
        self._parameters = self._parameters.to(device)
        self._layers = _parts(self._parameters, shapes)
        self._velocity = torch.zeros_like(self._parameters)
        self._velocities = _parts(self._velocity, shapes)
        self._workspaces: dict[tuple[int, int], _Workspace] = {}
        self._minus_one = torch.full((1,), -1.0, device=device)

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
        everyone = active == self.models
        layers = self._layers if everyone else _first(self._layers, active)
        velocities = self._velocities if everyone else _first(self._velocities, active)

        activations = [inputs]  # each (active, width, n_out of its layer)
        for (weight, bias), out in zip(layers, space.activations):
            activations.append(torch.baddbmm(bias, activations[-1], weight, out=out).relu_())
        weight, bias = layers[-1]
        torch.baddbmm(bias, weight, activations[-1].mT, out=space.scores)  # (active, n_classes, width)
        error = torch.softmax(space.scores, 1, out=space.error)  # (active, n_classes, width)
        error.scatter_add_(1, labels, self._minus_one.expand_as(labels))
        if share is not None:
            error *= share
        alpha = -rate / width if share is None else -rate

        # Backward. A layer's weight is read for the layer below before its own update, which comes last.
        delta = error
        if space.deltas:
            delta = torch.bmm(error.mT, weight, out=space.deltas[-1])  # (active, width, n_in)
        velocity, bias_velocity = velocities[-1]
        velocity.baddbmm_(error, activations[-1], beta=momentum, alpha=alpha)
        bias_velocity.mul_(momentum).add_(error.sum(2, keepdim=True), alpha=alpha)
        for layer in range(len(layers) - 2, -1, -1):
            delta = _through_relu(delta, activations[layer + 1])  # (active, width, n_out)
            velocity, bias_velocity = velocities[layer]
            velocity.baddbmm_(activations[layer].mT, delta, beta=momentum, alpha=alpha)
            bias_velocity.mul_(momentum).add_(delta.sum(1, keepdim=True), alpha=alpha)
            if layer:
                delta = torch.bmm(delta, layers[layer][0].mT, out=space.deltas[layer - 1])

        if everyone:
            self._parameters += self._velocity
        else:
            for pair, moves in zip(layers, velocities):
                for parameter, move in zip(pair, moves):
                    parameter += move

    def _workspace(self, active: int, width: int) -> "_Workspace":
        """Memory for one shape of step, made once: fresh arrays of a megabyte cost more in page faults than in arithmetic."""
        if (active, width) not in self._workspaces:
            empty = self._parameters.new_empty
            hidden = [weight.shape[2] for weight, _ in self._layers[:-1]]
            n_classes = self._layers[-1][0].shape[1]
            self._workspaces[active, width] = _Workspace(
                activations=[empty(active, width, n_out) for n_out in hidden],
                deltas=[empty(active, width, n_out) for n_out in hidden],
                scores=empty(active, n_classes, width),
                error=empty(active, n_classes, width),
            )
        return self._workspaces[active, width]

    def scores(self, model: int, inputs: torch.Tensor) -> torch.Tensor:
        """Logits (rows, n_classes) of one model for inputs (rows, n_in)."""
        values = inputs
        for weight, bias in self._layers[:-1]:
            values = torch.addmm(bias[model], values, weight[model]).relu_()
        weight, bias = self._layers[-1]
        return torch.addmm(bias[model].T, values, weight[model].T)

    def is_finite(self, model: int) -> bool:
        return all(bool(part[model].isfinite().all()) for layer in self._layers for part in layer)


def _parts(flat: torch.Tensor, shapes: Sequence[tuple[int, int, int]]) -> list[_Layer]:
    """A flat array as (weight, bias) of each layer."""
    sizes = [math.prod(shape) for shape in shapes]
    parts = [part.view(shape) for part, shape in zip(flat.split(sizes), shapes)]
    return list(zip(parts[::2], parts[1::2]))


def _first(layers: Sequence[_Layer], active: int) -> list[_Layer]:
    return [(weight[:active], bias[:active]) for weight, bias in layers]


def _through_relu(gradient: torch.Tensor, activation: torch.Tensor) -> torch.Tensor:
    """The gradient where the activation is positive, 0 elsewhere; one pass over memory, in place."""
    backward: Any = torch.ops.aten.threshold_backward.grad_input
    return backward(gradient, activation, 0, grad_input=gradient)  # type: ignore[no-any-return]
