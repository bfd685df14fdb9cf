"""Updates of parameters in place, made of operations that a CUDA graph can replay: the rate is a tensor.

`sgd` is torch.optim.SGD's rule (weight decay in the gradient, momentum, Nesterov). `muon` (Jordan et al. 2024)
replaces the momentum of every convolution but the first by the nearest orthogonal matrix, found by a few
Newton-Schulz steps, and keeps the weights' scale fixed; it fits in fewer epochs. Everything else in the model is
trained by `sgd` beside it. Matrices with a side in common are made orthogonal together, since a GPU spends longer on
starting products for one of them than on the products.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as functional

from memfluence.learners.recipes import Recipe

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # Jordan's quintic: all singular values to about 1 in few steps
_NEWTON_SCHULZ_STEPS = 3


class Optimizer:
    """State and update of one model's parameters."""

    def __init__(self, parameters: Sequence[torch.Tensor], recipe: Recipe) -> None:
        self._recipe, self._parameters = recipe, list(parameters)
        orthogonal = [recipe.optimizer == "muon" and p.ndim == 4 and p.shape[1] > 4 for p in parameters]
        self._matrices = [p for p, chosen in zip(parameters, orthogonal) if chosen]
        self._others = [p for p, chosen in zip(parameters, orthogonal) if not chosen]
        self._is_matrix = orthogonal
        self._momenta = [torch.zeros_like(p) for p in self._matrices]
        self._velocities = [torch.zeros_like(p) for p in self._others]
        sides = [min(len(p), p[0].numel()) for p in self._matrices]
        self._together = [[k for k, one in enumerate(sides) if one == side] for side in sorted(set(sides))]
        self._turn: Callable[..., None] = _turn

    def compile(self) -> None:
        """Fuse the many small operations of muon."""
        self._turn = torch.compile(_turn)

    @property
    def state(self) -> list[torch.Tensor]:
        """All that updates remember from one step to the next."""
        return [*self._momenta, *self._velocities]

    def reset(self) -> None:
        for buffer in self.state:
            buffer.zero_()

    @torch.no_grad()
    def update(self, gradients: Sequence[torch.Tensor], rate: torch.Tensor, matrix_rate: torch.Tensor) -> None:
        """One step; `rate` and `matrix_rate` are tensors of one number on the device."""
        laid_out = [_laid_out_as(p, g.float()) for p, g in zip(self._parameters, gradients)]
        if self._others:
            self._sgd([g for g, chosen in zip(laid_out, self._is_matrix) if not chosen], rate)
        if self._matrices:
            self._muon([g for g, chosen in zip(laid_out, self._is_matrix) if chosen], matrix_rate)

    def _muon(self, gradients: list[torch.Tensor], rate: torch.Tensor) -> None:
        decay = self._recipe.muon_momentum
        torch._foreach_mul_(self._momenta, decay)
        torch._foreach_add_(self._momenta, gradients)
        ahead = torch._foreach_add(gradients, self._momenta, alpha=decay)  # Nesterov
        norms = torch._foreach_norm(self._matrices)
        for group in self._together:
            self._turn(*([those[k] for k in group] for those in (self._matrices, norms, ahead)), rate)

    def _sgd(self, gradients: list[torch.Tensor], rate: torch.Tensor) -> None:
        recipe, parameters, velocities = self._recipe, self._others, self._velocities
        if recipe.weight_decay:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=recipe.weight_decay))
        torch._foreach_mul_(velocities, recipe.momentum)
        torch._foreach_add_(velocities, gradients)
        if recipe.nesterov:
            step = torch._foreach_add(gradients, velocities, alpha=recipe.momentum)
        else:
            step = torch._foreach_mul(velocities, 1.0)
        torch._foreach_mul_(step, rate)
        torch._foreach_sub_(parameters, step)


def _laid_out_as(parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """torch updates a list of tensors in one kernel only if gradients lie in memory as their parameters do."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def _turn(
    parameters: list[torch.Tensor], norms: list[torch.Tensor], ahead: list[torch.Tensor], rate: torch.Tensor
) -> None:
    """Move parameters (n_out, n_in, height, width), scaled to the norm sqrt(n_out), against orthogonal directions."""
    # Channels-last memory: (n_out, height, width, n_in) is the contiguous order.
    last = [one.permute(0, 2, 3, 1) for one in ahead]
    directions = _orthogonal([one.reshape(len(one), -1) for one in last])
    for parameter, norm, shape, direction in zip(parameters, norms, last, directions):
        moved = direction.reshape(shape.shape).permute(0, 3, 1, 2).to(parameter.dtype)
        parameter.mul_(len(parameter) ** 0.5 / norm).sub_(moved * rate)


def _orthogonal(matrices: list[torch.Tensor]) -> list[torch.Tensor]:
    """About U V' of each matrix's U S V', in bfloat16. Their smaller sides are equal; zeros fill up the larger ones."""
    a, b, c = _NEWTON_SCHULZ
    wide = [one.mT if one.shape[0] > one.shape[1] else one for one in matrices]
    width = max(one.shape[1] for one in wide)
    x = torch.stack([functional.pad(one.bfloat16(), (0, width - one.shape[1])) for one in wide])  # (k, side, width)
    x = x / (torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True) + 1e-7)
    identity = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    for _ in range(_NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = (a * identity + b * gram + c * (gram @ gram)) @ x
    found = [one[:, : given.shape[1]] for one, given in zip(x, wide)]
    return [one.mT if one.shape != given.shape else one for one, given in zip(found, matrices)]
