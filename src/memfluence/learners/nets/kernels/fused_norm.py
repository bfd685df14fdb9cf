"""Maximum pooling, batch normalization, CELU or ReLU and a residual in as few passes over memory as they need.

A training step of a small residual network spends as long in these as in its convolutions, moving the same maps
through memory again and again. Here the forward pass reads its input once to pool it and to take the moments, and what
was pooled once more to normalize it; the backward pass reads the pooled input and the gradient twice and writes each
value once. The kernels are in `norm_kernels`; the slow twin, and what runs where they cannot, is `in_torch`.

Two operators, since one that moves running statistics in place cannot have a gradient in torch: the first measures, the
second normalizes and has the gradient of both, for which the moments are functions of x.
"""

import importlib.util
import os
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

# Asked once, so that torch.compile can trace `available`. Triton's interpreter runs the kernels on a CPU, for tests.
_HAS_TRITON = importlib.util.find_spec("triton") is not None
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_TYPES = (torch.bfloat16, torch.float16, torch.float32)


def available(x: Tensor) -> bool:
    """Whether the kernels can take this map: on a GPU with Triton, channels last, a multiple of 8 channels."""
    return (
        _HAS_TRITON
        and (x.is_cuda or _INTERPRETED)
        and x.dtype in _TYPES
        and x.dim() == 4
        and x.shape[1] % 8 == 0  # loads of 16 bytes
        and x.numel() < 2**31  # indices of 32 bits
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def norm_relu(x: Tensor, norm: nn.BatchNorm2d, residual: Tensor | None = None) -> Tensor:
    """relu(norm(x) + residual) in training mode."""
    assert norm.momentum is not None
    assert norm.running_mean is not None
    assert norm.running_var is not None
    statistics = norm.running_mean, norm.running_var
    return pooled_norm_celu(x, norm.weight, norm.bias, *statistics, norm.momentum, norm.eps, 0.0, False, residual)


def pooled_norm_celu(
    x: Tensor,  # (N, C, H, W)
    weight: Tensor,  # (C,)
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
    alpha: float,
    pool: bool,
    residual: Tensor | None = None,  # of the shape of the result
) -> Tensor:
    """celu(batch_norm(x)) + residual in training mode, of x after 2x2 maximum pooling if `pool`.

    For an alpha of 0, where CELU is ReLU, a residual is added before it, as in ResNets.

    Statistics are float32 and the running ones move in place, as in torch. Same input, same bits. Where the kernels
    are not `available`, or for parameters that are not float32, it is `in_torch`.
    """
    n, _, height, width = x.shape
    rows = n * (height // 2) * (width // 2) if pool else n * height * width
    if (
        not available(x)
        or rows < 2  # torch says what is wrong
        or any(one.dtype != torch.float32 for one in (weight, bias, running_mean, running_var))
        or (residual is not None and residual.dtype != x.dtype)
    ):
        return in_torch(x, weight, bias, running_mean, running_var, momentum, eps, alpha, pool, residual)
    pooled, winner, moments = _measure(x.detach(), running_mean, running_var, momentum, eps, pool)
    found: Tensor = _normalize(x, weight, bias, pooled, winner, moments, residual, alpha, pool)
    return found


def in_torch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
    alpha: float,
    pool: bool,
    residual: Tensor | None = None,
) -> Tensor:
    """The slow twin of `pooled_norm_celu`, in plain torch."""
    if pool:
        x = functional.max_pool2d(x, 2)
    x = functional.batch_norm(x, running_mean, running_var, weight, bias, training=True, momentum=momentum, eps=eps)
    if alpha == 0:
        return functional.relu(x if residual is None else x + residual)
    x = functional.celu(x, alpha)
    return x if residual is None else x + residual


@torch.library.custom_op("memfluence::measure", mutates_args=("running_mean", "running_var"))
def _measure(
    x: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float, pool: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Pooled x and winners (both empty without pooling), and the moments (2, C): mean and 1 / standard deviation."""
    from memfluence.learners.nets.kernels import norm_kernels

    pooled, winner, moments = _to_measure(x, pool)
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        norm_kernels.measure(
            _last(x),
            pooled if pool else None,
            winner if pool else None,
            moments,
            running_mean,
            running_var,
            momentum,
            eps,
        )
    return pooled, winner, moments


def _to_measure(x: Tensor, pool: bool) -> tuple[Tensor, Tensor, Tensor]:
    shape = (x.shape[0], x.shape[1], x.shape[2] // 2, x.shape[3] // 2) if pool else (0, 1, 1, 1)
    pooled = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    winner = torch.empty(shape, dtype=torch.uint8, device=x.device, memory_format=torch.channels_last)
    return pooled, winner, torch.empty(2, x.shape[1], device=x.device)


# What torch.compile calls in place of an operator: it makes results of the same shapes.
_measure.register_fake(lambda x, running_mean, running_var, momentum, eps, pool: _to_measure(x, pool))


@torch.library.custom_op("memfluence::normalize", mutates_args=())
def _normalize(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    pooled: Tensor,
    winner: Tensor,
    moments: Tensor,
    residual: Tensor | None,
    alpha: float,
    pool: bool,
) -> Tensor:
    """y; x itself is not read if it was pooled, but it is what the gradient is of."""
    from memfluence.learners.nets.kernels import norm_kernels

    values = pooled if pool else _last(x)
    y = torch.empty_like(values, memory_format=torch.channels_last)
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        norm_kernels.normalize(values, None if residual is None else _last(residual), y, moments, weight, bias, alpha)
    return y


_normalize.register_fake(
    lambda x, weight, bias, pooled, winner, moments, residual, alpha, pool: torch.empty_like(
        pooled if pool else x, memory_format=torch.channels_last
    )
)


@torch.library.custom_op("memfluence::differentiate_normalize", mutates_args=())
def _differentiate(
    dy: Tensor,
    values: Tensor,
    winner: Tensor,
    moments: Tensor,
    weight: Tensor,
    bias: Tensor,
    y: Tensor | None,
    alpha: float,
    height: int,
    width: int,
    pool: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dx, dweight, dbias, and with y = relu(z + residual) the residual's gradient; height and width are those of x."""
    from memfluence.learners.nets.kernels import norm_kernels

    dx, dweight, dbias, dsum = _to_differentiate(values, y, height, width)
    if pool and (height % 2 or width % 2):
        dx.zero_()  # the last row or column is in no window
    with torch.cuda.device_of(dy):  # type: ignore[no-untyped-call]
        norm_kernels.differentiate(
            _last(dy),
            _last(values),
            winner if pool else None,
            moments,
            weight,
            bias,
            alpha,
            dx,
            dweight,
            dbias,
            y,
            None if y is None else dsum,
        )
    return dx, dweight, dbias, dsum


def _to_differentiate(values: Tensor, y: Tensor | None, height: int, width: int) -> tuple[Tensor, ...]:
    n, c = values.shape[:2]
    dx = torch.empty((n, c, height, width), dtype=values.dtype, device=values.device, memory_format=torch.channels_last)
    dsum = values.new_empty(0) if y is None else torch.empty_like(y, memory_format=torch.channels_last)
    return dx, torch.empty(c, device=values.device), torch.empty(c, device=values.device), dsum


_differentiate.register_fake(
    lambda dy, values, winner, moments, weight, bias, y, alpha, height, width, pool: _to_differentiate(
        values, y, height, width
    )
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, pooled, winner, moments, residual, alpha, pool = inputs
    relu_of_sum = alpha == 0 and residual is not None
    ctx.save_for_backward(pooled if pool else x, winner, moments, weight, bias, output if relu_of_sum else None)
    ctx.settings = alpha, x.shape[2], x.shape[3], pool
    ctx.has_residual, ctx.relu_of_sum = residual is not None, relu_of_sum


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    dx, dweight, dbias, dsum = _differentiate(dy, *ctx.saved_tensors, *ctx.settings)
    dresidual = dsum if ctx.relu_of_sum else dy if ctx.has_residual else None
    return dx, dweight, dbias, None, None, None, dresidual, None, None


_normalize.register_autograd(_backward, setup_context=_save)


def _last(x: Tensor) -> Tensor:
    """x itself where it is channels last already, as it is in practice."""
    return x.contiguous(memory_format=torch.channels_last)
