"""K multilayer perceptrons on a GPU: bfloat16 products, float32 parameters, the whole step one CUDA graph.

A step of small models is bound by memory: every parameter's value, velocity, gradient and bfloat16 copy pass through
it once. So all layers of all models lie in flat arrays, products write gradients straight into one of them, and one
kernel of our own reads and writes each array once (Triton; the same sum in torch where there is none). Classes are
padded to a multiple of 8, which products need to be fast; a padded class has a bias of -1e4, so its probability and
its gradient are exactly 0.

Draws come from generators on the device, one per trial and stream: NumPy's would take longer than the training.
"""

import math
from collections.abc import Sequence

import torch

__all__ = ["CapturedMLP", "update_in_torch"]

_NEVER = -1e4  # the bias of a class that does not exist


class CapturedMLP:
    """K models of one shape, trained on K batches at a time."""

    def __init__(
        self, widths: Sequence[int], models: int, n_classes: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._widths = [*widths[:-1], -(-n_classes // 8) * 8]
        self._models, self._n_classes, self._device, self._dtype = models, n_classes, device, dtype
        shapes: list[tuple[int, ...]] = []
        for n_in, n_out in zip(self._widths, self._widths[1:]):
            shapes += [(models, n_in, n_out), (models, 1, n_out)]
        size = sum(math.prod(shape) for shape in shapes)
        self._values = torch.zeros(size, device=device)
        self._velocity = torch.zeros(size, device=device)
        self._gradient = torch.zeros(size, device=device, dtype=dtype)
        self._working = torch.zeros(size, device=device, dtype=dtype)  # the values as products read them
        self._parts = [_views(flat, shapes) for flat in (self._values, self._working, self._gradient)]
        self._update = _update_kernel(device)

    def initialize(self, seeds: Sequence[int]) -> None:
        """New models, each from its own seed: uniform in +-1/sqrt(n_in), as torch.nn.Linear draws."""
        values = self._parts[0]
        self._velocity.zero_()
        for k, seed in enumerate(seeds):
            generator = torch.Generator(self._device).manual_seed(seed)
            for layer, n_in in enumerate(self._widths[:-1]):
                for part in values[2 * layer : 2 * layer + 2]:
                    part[k].uniform_(-1 / math.sqrt(n_in), 1 / math.sqrt(n_in), generator=generator)
        values[-2][:, :, self._n_classes :] = 0.0
        values[-1][:, :, self._n_classes :] = _NEVER
        self._working.copy_(self._values)

    def step(self, inputs: torch.Tensor, labels: torch.Tensor, *, rate: float, momentum: float) -> None:
        """One step of SGD with momentum on (models, width, n_in) inputs and (models, width) labels."""
        weights, biases = self._parts[1][::2], self._parts[1][1::2]
        weight_gradients, bias_gradients = self._parts[2][::2], self._parts[2][1::2]
        activations = [inputs]
        for weight, bias in zip(weights[:-1], biases[:-1]):
            activations.append(torch.baddbmm(bias, activations[-1], weight).relu_())  # (models, width, n_out)
        logits = torch.baddbmm(biases[-1], activations[-1], weights[-1])  # (models, width, classes)
        error = torch.softmax(logits, 2, dtype=torch.float32)
        error.scatter_add_(2, labels[..., None], error.new_full((), -1.0).expand(*labels.shape, 1))
        delta = error.mul_(1 / inputs.shape[1]).to(self._dtype)
        for layer in reversed(range(len(weights))):
            torch.bmm(activations[layer].mT, delta, out=weight_gradients[layer])
            torch.sum(delta, 1, keepdim=True, out=bias_gradients[layer])
            if layer:
                below = torch.bmm(delta, weights[layer].mT)
                delta = torch.ops.aten.threshold_backward(below, activations[layer], 0)
        self._update(self._values, self._velocity, self._gradient, self._working, rate, momentum)

    def predicted(self, inputs: torch.Tensor) -> torch.Tensor:
        """Logits (models, rows, n_classes) float32 for inputs (rows, n_in) that all models are asked about."""
        values = inputs.expand(self._models, *inputs.shape)
        weights, biases = self._parts[1][::2], self._parts[1][1::2]
        for weight, bias in zip(weights[:-1], biases[:-1]):
            values = torch.baddbmm(bias, values, weight).relu_()
        # The last layer in float32: bfloat16 logits would tie at the arg max.
        weight, bias = self._parts[0][-2], self._parts[0][-1]
        return torch.baddbmm(bias, values.float(), weight)[..., : self._n_classes]

    def is_finite(self) -> torch.Tensor:
        """Whether all values of each model are finite: (models,) bool."""
        finite = [part.flatten(1).isfinite().all(1) for part in self._parts[0]]
        return torch.stack(finite).all(0)


def _views(flat: torch.Tensor, shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
    parts, start = [], 0
    for shape in shapes:
        end = start + math.prod(shape)
        parts.append(flat[start:end].view(shape))
        start = end
    return parts


def update_in_torch(
    values: torch.Tensor,
    velocity: torch.Tensor,
    gradient: torch.Tensor,
    working: torch.Tensor,
    rate: float,
    momentum: float,
) -> None:
    velocity.mul_(momentum).add_(gradient)
    values.add_(velocity, alpha=-rate)
    working.copy_(values)


def _update_kernel(device: torch.device):  # type: ignore[no-untyped-def]
    if device.type != "cuda":
        return update_in_torch
    try:
        from memfluence.learners.nets.kernels.sgd_kernel import update
    except ImportError:  # no Triton
        return update_in_torch
    return update
