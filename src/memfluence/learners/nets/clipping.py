"""Clipping and noise in the manner of DP-SGD (Abadi et al. 2016), for K perceptrons trained at once.

The gradient of the loss on one example, over all parameters of one model, is scaled down to the norm `clip` if it is
longer; Gaussian noise of standard deviation noise * clip is added to each number of a batch's sum of such gradients;
then the sum is divided by the size of the batch.

No gradient of a single example is ever formed. An example's gradient by a layer's weight is the outer product of what
the layer is given, h, and of the loss's gradient by what it puts out, delta; that by the bias is delta. So the squared
norm of both is (|h|^2 + 1) |delta|^2 (Goodfellow 2015), and to scale an example's gradient is to scale its delta at the
output, from which all others follow.
"""

from collections.abc import Sequence

import numpy as np
import torch

__all__ = ["Clipping"]


class Clipping:
    """How gradients of K models are clipped and made noisy; noise of model k comes from generators[k].

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
        """By how much each example's gradient is multiplied: (active, 1, width)."""
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
