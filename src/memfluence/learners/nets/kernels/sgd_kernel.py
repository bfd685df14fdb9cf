"""SGD with momentum in one pass over memory, in Triton. Its slow twin is `captured_mlp.update_in_torch`."""

import torch
import triton
import triton.language as tl

_BLOCK = 2048


@triton.jit  # type: ignore[untyped-decorator]
def _update(values, velocity, gradient, working, rate, momentum, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    here = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = here < size
    moved = tl.load(velocity + here, inside) * momentum + tl.load(gradient + here, inside).to(tl.float32)
    value = tl.load(values + here, inside) - rate * moved
    tl.store(velocity + here, moved, inside)
    tl.store(values + here, value, inside)
    tl.store(working + here, value.to(working.dtype.element_ty), inside)


def update(
    values: torch.Tensor,
    velocity: torch.Tensor,
    gradient: torch.Tensor,
    working: torch.Tensor,
    rate: float,
    momentum: float,
) -> None:
    """velocity <- momentum * velocity + gradient; values <- values - rate * velocity; working <- values."""
    size = values.numel()
    _update[(triton.cdiv(size, _BLOCK),)](values, velocity, gradient, working, rate, momentum, size, BLOCK=_BLOCK)
