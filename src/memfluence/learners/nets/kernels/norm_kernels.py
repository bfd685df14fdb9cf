"""The Triton kernels of `fused_norm`: a map is a matrix (rows, C) in memory, positions by channels.

All are bound by memory. A program takes ROWS x CHANNELS at a time, 8 warps with 16 bytes of bfloat16 to a thread, and
strides over the rows with its channels' constants in registers. Reductions leave one partial sum per program, added up
in a fixed order by a second kernel: no atomics, the same bits every time. They go through the rows backwards, since
what a convolution wrote last is still in the cache, and the kernels that follow go forwards, for the same reason.
C, H and W are constants of the compiled kernels, which makes divisions cheap and loads provably aligned.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_CHANNELS = 128  # of a program, at most
_BLOCK = 2048  # ROWS x CHANNELS: 8 to a thread, one load of 16 bytes; with more, loads of winners would be too wide
_BLOCK_TO_MAP = 4096  # where no sums are kept there are registers for two loads
_STEPS, _STEPS_OF_TWO = 4, 2  # blocks loaded at once in a reduction that stores nothing, of one map or of two
_WARPS = 8
# Programs: as many as fit on the 132 multiprocessors of an H100 or H200 at once, by the registers ptxas gives them in
# bfloat16 (48, 48, 64; 64, 78). One more would wait and then run alone.
_POOLING, _SUMMING, _SUMMING_GRADIENTS = 4 * 132, 5 * 132, 4 * 132
_NORMALIZING, _DIFFERENTIATING = 4 * 132, 3 * 132
_CHANNELS_TO_ADD, _PARTS_TO_ADD = 8, 128  # of a program that adds up partial sums
_LOG2_E = tl.constexpr(1.4426950408889634)
# What dy becomes dz by. For ReLU of a sum that is the sign of y, and dz is the residual's gradient, too.
_OF_CELU, _OF_RELU, _OF_SUM = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit  # type: ignore[untyped-decorator]
def _corner(row, H: tl.constexpr, W: tl.constexpr):  # type: ignore[no-untyped-def]
    """The row of the unpooled matrix at the upper left of a pooled row's window."""
    image = row // ((H // 2) * (W // 2))
    i = row // (W // 2) % (H // 2)
    return (image * H + 2 * i) * W + 2 * (row % (W // 2))


@triton.jit  # type: ignore[untyped-decorator]
def _pool(  # type: ignore[no-untyped-def]
    x, pooled, winner, partial, rows, programs,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """pooled, winner (0 to 3, the first of equals); partial: sums of pooled - x[0] and of its square."""
    program = tl.program_id(0)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    exists = channel < C
    center = tl.load(x + channel, exists, 0.0).to(tl.float32)[None, :]
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    squares = tl.zeros((ROWS, CHANNELS), tl.float32)
    for start in range(program * ROWS, rows, programs * ROWS):
        row = rows - 1 - start - tl.arange(0, ROWS)
        inside = (row >= 0)[:, None] & exists[None, :]
        at = _corner(row, H, W)[:, None] * C + channel[None, :]
        first = tl.load(x + at, inside, 0.0).to(tl.float32)
        second = tl.load(x + at + C, inside, 0.0).to(tl.float32)
        third = tl.load(x + at + W * C, inside, 0.0).to(tl.float32)
        fourth = tl.load(x + at + (W + 1) * C, inside, 0.0).to(tl.float32)
        which = tl.where(second > first, 1, 0)
        best = tl.maximum(first, second)
        which = tl.where(third > best, 2, which)
        best = tl.maximum(best, third)
        which = tl.where(fourth > best, 3, which)
        best = tl.maximum(best, fourth)
        to = row[:, None] * C + channel[None, :]
        tl.store(pooled + to, best.to(pooled.dtype.element_ty), inside)
        tl.store(winner + to, which.to(tl.uint8), inside)
        centered = tl.where(inside, best - center, 0.0)
        total += centered
        squares += centered * centered
    to = program * C + channel
    tl.store(partial + to, tl.sum(total, 0), exists)
    tl.store(partial + programs * C + to, tl.sum(squares, 0), exists)


@triton.jit  # type: ignore[untyped-decorator]
def _sum(  # type: ignore[no-untyped-def]
    x, partial, rows, programs,
    C: tl.constexpr, ROWS: tl.constexpr, STEPS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """partial: sums of x - x[0] and of its square, which keeps the digits of a variance far from zero."""
    program = tl.program_id(0)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    exists = channel < C
    center = tl.load(x + channel, exists, 0.0).to(tl.float32)[None, :]
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    squares = tl.zeros((ROWS, CHANNELS), tl.float32)
    for start in range(program * ROWS * STEPS, rows, programs * ROWS * STEPS):
        for step in tl.static_range(STEPS):
            row = rows - 1 - start - step * ROWS - tl.arange(0, ROWS)
            inside = (row >= 0)[:, None] & exists[None, :]
            value = tl.load(x + row[:, None] * C + channel[None, :], inside, 0.0).to(tl.float32)
            centered = tl.where(inside, value - center, 0.0)
            total += centered
            squares += centered * centered
    to = program * C + channel
    tl.store(partial + to, tl.sum(total, 0), exists)
    tl.store(partial + programs * C + to, tl.sum(squares, 0), exists)


@triton.jit  # type: ignore[untyped-decorator]
def _added(  # type: ignore[no-untyped-def]
    partial, channel, exists, PROGRAMS: tl.constexpr, C: tl.constexpr, PARTS: tl.constexpr, CHANNELS: tl.constexpr
):
    """Both partial sums (2, PROGRAMS, C) added up for some channels."""
    first = tl.zeros((PARTS, CHANNELS), tl.float32)
    second = tl.zeros((PARTS, CHANNELS), tl.float32)
    for start in tl.static_range(0, PROGRAMS, PARTS):
        part = start + tl.arange(0, PARTS)
        inside = (part < PROGRAMS)[:, None] & exists[None, :]
        at = part[:, None] * C + channel[None, :]
        first += tl.load(partial + at, inside, 0.0)
        second += tl.load(partial + PROGRAMS * C + at, inside, 0.0)
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit  # type: ignore[untyped-decorator]
def _finish_moments(  # type: ignore[no-untyped-def]
    x, partial, running_mean, running_var, moments, rows, momentum, eps,
    PROGRAMS: tl.constexpr, C: tl.constexpr, PARTS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """moments: mean and 1 / standard deviation; the running mean and variance move on."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    exists = channel < C
    count = rows.to(tl.float32)
    total, squares = _added(partial, channel, exists, PROGRAMS, C, PARTS, CHANNELS)
    offset = total / count
    variance = tl.maximum(squares / count - offset * offset, 0.0)
    mean = tl.load(x + channel, exists, 0.0).to(tl.float32) + offset
    old_mean = tl.load(running_mean + channel, exists, 0.0)
    old_variance = tl.load(running_var + channel, exists, 0.0)
    tl.store(moments + channel, mean, exists)
    tl.store(moments + C + channel, 1.0 / tl.sqrt(variance + eps), exists)
    tl.store(running_mean + channel, old_mean + momentum * (mean - old_mean), exists)
    unbiased = variance * (count / (count - 1.0))
    tl.store(running_var + channel, old_variance + momentum * (unbiased - old_variance), exists)


@triton.jit  # type: ignore[untyped-decorator]
def _normalize(  # type: ignore[no-untyped-def]
    x, residual, y, moments, weight, bias, rows, programs, alpha,
    RELU: tl.constexpr, RESIDUAL: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """y = celu(z) [+ residual] or relu(z [+ residual]); z = (x - mean) * weight / standard deviation + bias."""
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    exists = channel < C
    mean = tl.load(moments + channel, exists, 0.0)[None, :]
    scale = (tl.load(moments + C + channel, exists, 0.0) * tl.load(weight + channel, exists, 0.0))[None, :]
    offset = tl.load(bias + channel, exists, 0.0)[None, :]
    rate = _LOG2_E / alpha
    for start in range(tl.program_id(0) * ROWS, rows, programs * ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & exists[None, :]
        at = row[:, None] * C + channel[None, :]
        z = tl.load(x + at, inside, 0.0).to(tl.float32)
        added = tl.load(residual + at, inside, 0.0).to(tl.float32) if RESIDUAL else 0.0
        z = (z - mean) * scale + offset
        if RELU:  # noqa: SIM108
            value = tl.maximum(z + added, 0.0)
        else:
            value = tl.where(z > 0, z, alpha * tl.exp2(z * rate) - alpha) + added
        tl.store(y + at, value.to(y.dtype.element_ty), inside)


@triton.jit  # type: ignore[untyped-decorator]
def _sum_gradients(  # type: ignore[no-untyped-def]
    dy, x, y, dsum, moments, weight, bias, partial, rows, programs, alpha,
    SLOPE: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr, STEPS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """partial: sums of dz and of dz * (x - mean); dsum: dz, where z and a residual are added before ReLU."""
    program = tl.program_id(0)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    exists = channel < C
    mean = tl.load(moments + channel, exists, 0.0)[None, :]
    scale = (tl.load(moments + C + channel, exists, 0.0) * tl.load(weight + channel, exists, 0.0))[None, :]
    offset = tl.load(bias + channel, exists, 0.0)[None, :]
    rate = _LOG2_E / alpha
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    products = tl.zeros((ROWS, CHANNELS), tl.float32)
    for start in range(program * ROWS * STEPS, rows, programs * ROWS * STEPS):
        for step in tl.static_range(STEPS):
            row = rows - 1 - start - step * ROWS - tl.arange(0, ROWS)
            inside = (row >= 0)[:, None] & exists[None, :]
            at = row[:, None] * C + channel[None, :]
            centered = tl.load(x + at, inside, 0.0).to(tl.float32) - mean
            z = centered * scale + offset
            dz = tl.load(dy + at, inside, 0.0).to(tl.float32)
            if SLOPE == _OF_SUM:
                dz = tl.where(tl.load(y + at, inside, 0.0) > 0, dz, 0.0)
                tl.store(dsum + at, dz.to(dsum.dtype.element_ty), inside)
            elif SLOPE == _OF_RELU:
                dz = tl.where(z > 0, dz, 0.0)
            else:
                dz *= tl.where(z > 0, 1.0, tl.exp2(z * rate))
            total += dz  # 0 outside, where dy is
            products += dz * centered
    to = program * C + channel
    tl.store(partial + to, tl.sum(total, 0), exists)
    tl.store(partial + programs * C + to, tl.sum(products, 0), exists)


@triton.jit  # type: ignore[untyped-decorator]
def _finish_gradients(  # type: ignore[no-untyped-def]
    partial, moments, dweight, dbias,
    PROGRAMS: tl.constexpr, C: tl.constexpr, PARTS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    exists = channel < C
    total, products = _added(partial, channel, exists, PROGRAMS, C, PARTS, CHANNELS)
    tl.store(dbias + channel, total, exists)
    tl.store(dweight + channel, products * tl.load(moments + C + channel, exists, 0.0), exists)


@triton.jit  # type: ignore[untyped-decorator]
def _differentiate(  # type: ignore[no-untyped-def]
    dy, x, winner, dx, moments, weight, bias, dweight, dbias, rows, programs, alpha,
    SLOPE: tl.constexpr, POOL: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    C: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """dx = scale * (dz - mean(dz) - xhat * mean(dz * xhat)), at the winner of each window where x was pooled."""
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    exists = channel < C
    count = rows.to(tl.float32)
    mean = tl.load(moments + channel, exists, 0.0)[None, :]
    inverse = tl.load(moments + C + channel, exists, 0.0)[None, :]
    scale = inverse * tl.load(weight + channel, exists, 0.0)[None, :]
    offset = tl.load(bias + channel, exists, 0.0)[None, :]
    constant = scale * tl.load(dbias + channel, exists, 0.0)[None, :] / count
    slope = scale * inverse * tl.load(dweight + channel, exists, 0.0)[None, :] / count
    rate = _LOG2_E / alpha
    for start in range(tl.program_id(0) * ROWS, rows, programs * ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & exists[None, :]
        at = row[:, None] * C + channel[None, :]
        centered = tl.load(x + at, inside, 0.0).to(tl.float32) - mean
        z = centered * scale + offset
        dz = tl.load(dy + at, inside, 0.0).to(tl.float32)
        if SLOPE == _OF_RELU:
            dz = tl.where(z > 0, dz, 0.0)
        elif SLOPE == _OF_CELU:
            dz *= tl.where(z > 0, 1.0, tl.exp2(z * rate))
        value = (scale * dz - constant - centered * slope).to(dx.dtype.element_ty)
        if POOL:
            which = tl.load(winner + at, inside, 0)
            to = _corner(row, H, W)[:, None] * C + channel[None, :]
            nothing = tl.zeros_like(value)
            tl.store(dx + to, tl.where(which == 0, value, nothing), inside)
            tl.store(dx + to + C, tl.where(which == 1, value, nothing), inside)
            tl.store(dx + to + W * C, tl.where(which == 2, value, nothing), inside)
            tl.store(dx + to + (W + 1) * C, tl.where(which == 3, value, nothing), inside)
        else:
            tl.store(dx + at, value, inside)


def _division(programs: int, rows: int, channels: int, block: int, steps: int = 1) -> tuple[tuple[int, int], int, int]:
    """The grid over (rows, channels), ROWS and CHANNELS: of shapes alone, since the bits of sums depend on them."""
    wide = min(_CHANNELS, triton.next_power_of_2(channels))
    across, tall = triton.cdiv(channels, wide), block // wide
    return (max(1, min(programs // across, triton.cdiv(rows, tall * steps))), across), tall, wide


def measure(
    x: Tensor, pooled: Tensor | None, winner: Tensor | None, moments: Tensor,
    running_mean: Tensor, running_var: Tensor, momentum: float, eps: float,
) -> None:  # fmt: skip
    """Write what is pooled, if anything, and the moments (2, C) of each channel; move the running statistics on."""
    n, c, h, w = x.shape
    rows = n * h * w if pooled is None else n * (h // 2) * (w // 2)
    programs, steps = (_SUMMING, _STEPS) if pooled is None else (_POOLING, 1)
    grid, tall, wide = _division(programs, rows, c, _BLOCK, steps)
    partial = torch.empty(2, grid[0], c, device=x.device)
    if pooled is None:
        _sum[grid](x, partial, rows, grid[0], c, tall, steps, wide, num_warps=_WARPS)
    else:
        _pool[grid](x, pooled, winner, partial, rows, grid[0], h, w, c, tall, wide, num_warps=_WARPS)
    _finish_moments[(triton.cdiv(c, _CHANNELS_TO_ADD),)](
        x, partial, running_mean, running_var, moments, rows, momentum, eps, grid[0], c, _PARTS_TO_ADD, _CHANNELS_TO_ADD
    )


def normalize(
    x: Tensor, residual: Tensor | None, y: Tensor, moments: Tensor, weight: Tensor, bias: Tensor, alpha: float
) -> None:
    """Write y of the (pooled) x: celu(z) + residual, and relu(z + residual) for an alpha of 0."""
    rows, c = x.numel() // x.shape[1], x.shape[1]
    grid, tall, wide = _division(_NORMALIZING, rows, c, _BLOCK_TO_MAP)
    some = x if residual is None else residual  # a pointer, never read without a residual
    _normalize[grid](
        x, some, y, moments, weight, bias, rows, grid[0], alpha or 1.0,
        alpha == 0, residual is not None, c, tall, wide, num_warps=_WARPS,
    )  # fmt: skip


def differentiate(
    dy: Tensor, x: Tensor, winner: Tensor | None, moments: Tensor, weight: Tensor, bias: Tensor, alpha: float,
    dx: Tensor, dweight: Tensor, dbias: Tensor, y: Tensor | None = None, dsum: Tensor | None = None,
) -> None:  # fmt: skip
    """Write dx (but not where no window reaches), dweight and dbias; x is pooled where there is a winner.

    With y and dsum, for an alpha of 0: y is relu(z + residual), and dsum, the residual's gradient, is written too.
    """
    rows, c = x.numel() // x.shape[1], x.shape[1]
    steps, pooled = _STEPS_OF_TWO, winner is not None
    slope = (_OF_CELU if alpha else _OF_RELU if dsum is None else _OF_SUM).value
    grid, tall, wide = _division(_SUMMING_GRADIENTS, rows, c, _BLOCK, steps)
    partial = torch.empty(2, grid[0], c, device=x.device)
    _sum_gradients[grid](
        dy, x, x if y is None else y, x if dsum is None else dsum, moments, weight, bias, partial, rows, grid[0],
        alpha or 1.0, slope, c, tall, steps, wide, num_warps=_WARPS,
    )  # fmt: skip
    _finish_gradients[(triton.cdiv(c, _CHANNELS_TO_ADD),)](
        partial, moments, dweight, dbias, grid[0], c, _PARTS_TO_ADD, _CHANNELS_TO_ADD
    )
    grid, tall, wide = _division(_DIFFERENTIATING, rows, c, _BLOCK if pooled else _BLOCK_TO_MAP)
    _differentiate[grid](
        dy if dsum is None else dsum, x, winner if pooled else x, dx, moments, weight, bias, dweight, dbias, rows,
        grid[0], alpha or 1.0, slope, pooled, dx.shape[2], dx.shape[3], c, tall, wide, num_warps=_WARPS,
    )  # fmt: skip
