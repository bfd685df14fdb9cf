"""Updates of parameters in place, made of operations that a CUDA graph can replay: the rate is a tensor.

`sgd` is torch.optim.SGD's rule (weight decay in the gradient, momentum, Nesterov). `muon` (Jordan et al. 2024)
replaces the momentum of every convolution but the first by the nearest orthogonal matrix, found by a few
Newton-Schulz steps, and keeps the weights' scale fixed; it fits in fewer epochs. Everything else in the model is
trained by `sgd` beside it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from memfluence.learners.recipes import Recipe

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # Jordan's quintic: all singular values to about 1 in few steps
_NEWTON_SCHULZ_STEPS = 3
_STREAMS = 6  # matrices that are updated side by side: one alone leaves most of a GPU idle


class Optimizer:
    """State and update of one model's parameters."""

    def __init__(self, parameters: Sequence[torch.Tensor], recipe: Recipe) -> None:
        self._recipe = recipe
        orthogonal = [recipe.optimizer == "muon" and p.ndim == 4 and p.shape[1] > 4 for p in parameters]
        self._matrices = [p for p, chosen in zip(parameters, orthogonal) if chosen]
        self._others = [p for p, chosen in zip(parameters, orthogonal) if not chosen]
        self._is_matrix = orthogonal
        self._momenta = [torch.zeros_like(p) for p in self._matrices]
        self._velocities = [torch.zeros_like(p) for p in self._others]
        self._muon: Callable[..., None] = _muon
        on_gpu = bool(self._matrices) and self._matrices[0].is_cuda
        self._streams = [torch.cuda.Stream() for _ in range(_STREAMS)] if on_gpu else []  # type: ignore[no-untyped-call]

    def compile(self) -> None:
        """Fuse the many small operations of muon."""
        self._muon = torch.compile(_muon)

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
        others = [g.float() for g, chosen in zip(gradients, self._is_matrix) if not chosen]
        # torch updates a list in one kernel only if gradients lie in memory as their parameters do.
        others = [g if g.stride() == p.stride() else torch.empty_like(p).copy_(g) for p, g in zip(self._others, others)]
        matrices = [g.float() for g, chosen in zip(gradients, self._is_matrix) if chosen]
        updates = list(zip(self._matrices, self._momenta, matrices))
        for stream, chosen in self._side_by_side(updates):
            with stream:
                for parameter, momentum, gradient in chosen:
                    self._muon(parameter, momentum, gradient, self._recipe.muon_momentum, matrix_rate)
        self._sgd(others, rate)
        for one in self._streams:
            torch.cuda.current_stream().wait_stream(one)

    def _side_by_side(self, updates: list[Any]) -> Iterator[tuple[AbstractContextManager[Any], list[Any]]]:
        """A share of the updates for each stream, which begins where the current one is now."""
        if not self._streams:
            yield nullcontext(), updates
        for k, stream in enumerate(self._streams):
            stream.wait_stream(torch.cuda.current_stream())
            yield torch.cuda.stream(stream), updates[k :: len(self._streams)]

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


def _muon(
    parameter: torch.Tensor, momentum: torch.Tensor, gradient: torch.Tensor, decay: float, rate: torch.Tensor
) -> None:
    momentum.mul_(decay).add_(gradient)
    ahead = gradient.add(momentum, alpha=decay)  # Nesterov
    n_out = len(parameter)
    parameter.mul_(n_out**0.5 / parameter.norm())
    # Channels-last memory: (n_out, height, width, n_in) is the contiguous order.
    rows = ahead.permute(0, 2, 3, 1)
    direction = _orthogonal(rows.reshape(n_out, -1)).view(rows.shape).permute(0, 3, 1, 2)
    parameter.sub_(direction.to(parameter.dtype) * rate)


def _orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """About U V' of the matrix's U S V', in bfloat16."""
    a, b, c = _NEWTON_SCHULZ
    x = matrix.bfloat16()
    x = x / (x.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.mT if tall else x
    for _ in range(_NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
