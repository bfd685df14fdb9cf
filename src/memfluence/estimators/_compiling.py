"""How kernels are compiled, and the instructions that they need beside Numba's own.

Compiled code is kept beside the kernels or, where that is read-only, in the user's cache; where neither can be
written, kernels are compiled anew in each process. Numba sees that a kernel's own file has changed, not that this one
has: who edits the instructions here deletes `__pycache__`.
"""

import sys
from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
import numba
import numba.extending
from numba import types

__all__ = ["GROUP", "PANEL", "add_group", "add_planes", "compiled", "inline", "ones", "read", "write", "zeros_below"]

if sys.byteorder != "little":
    raise ImportError("the kernels read words as bytes in little order, which this machine does not have")

PANEL = 1024  # training examples at a time: with 2000 trials 256 kB of rows, which stay in a second-level cache
GROUP = 16  # rows that are added up at once

# Some versions of Numba have type hints, some have none, and the hints do not know intrinsics.
_njit: Any = numba.njit
_intrinsic: Any = numba.extending.intrinsic


def read(kind: Any, dimensions: int) -> Any:
    return types.Array(kind, dimensions, "C", readonly=True)


def write(kind: Any, dimensions: int) -> Any:
    return types.Array(kind, dimensions, "C")


def compiled(*signatures: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def compile_now(kernel: Callable[..., None]) -> Callable[..., None]:
        options = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
        try:
            return _njit(list(signatures), cache=True, **options)(kernel)  # type: ignore[no-any-return]
        except (OSError, RuntimeError):  # neither beside this file nor in the user's cache is there room to keep it
            return _njit(list(signatures), **options)(kernel)  # type: ignore[no-any-return]

    return compile_now


def _count_ones(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


def _count_trailing_zeros(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


_VECTOR = ir.VectorType(ir.IntType(64), 8)  # 512 training examples


def _load(builder: Any, address: Any) -> Any:
    return builder.load(builder.inttoptr(address, _VECTOR.as_pointer()), align=8)


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, _VECTOR.as_pointer()), align=8)


def _full_adder(builder: Any, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """(sum, carry) of three bits in every lane; one instruction from c, the one to wait for, to the sum."""
    differ = builder.xor(a, b)
    carry = builder.or_(builder.and_(differ, c), builder.and_(builder.not_(differ), a))
    return builder.xor(differ, c), carry


def _add_group(typing_context: Any, rows: Any, trials: Any, planes: Any, carry: Any) -> Any:
    """Add 16 rows to the four lowest planes and leave the carry, worth 16, at `carry`; all are addresses.

    Written as vector instructions: no compiler proves that 16 rows chosen at run time do not overlap the planes.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, trials, planes, carry = arguments
        i64 = ir.IntType(64)

        def row(k: int) -> Any:
            pointer = builder.inttoptr(builder.add(trials, i64(4 * k)), ir.IntType(32).as_pointer())
            offset = builder.mul(builder.zext(builder.load(pointer), i64), i64(PANEL // 8))
            return _load(builder, builder.add(rows, offset))

        def plane(level: int) -> Any:
            return builder.add(planes, i64(level * PANEL // 8))

        totals = [_load(builder, plane(level)) for level in range(4)]

        def add(level: int, first: int) -> Any:
            """The carry, worth 2**level, of 2**level rows added to the planes below that level."""
            if level == 0:
                return row(first)
            low, high = add(level - 1, first), add(level - 1, first + 2 ** (level - 1))
            totals[level - 1], up = _full_adder(builder, low, high, totals[level - 1])
            return up

        _store(builder, add(4, 0), carry)
        for level in range(4):
            _store(builder, totals[level], plane(level))
        return context.get_dummy_value()

    return types.void(*[types.uint64] * 4), generate


def _add_planes(typing_context: Any, total: Any, first: Any, second: Any, carry: Any) -> Any:
    """Add two planes to a third and leave the carry at `carry`; all are addresses."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, first, second, carry = arguments
        added, up = _full_adder(builder, *(_load(builder, address) for address in (total, first, second)))
        _store(builder, added, total)
        _store(builder, up, carry)
        return context.get_dummy_value()

    return types.void(*[types.uint64] * 4), generate


ones, zeros_below = _intrinsic(_count_ones), _intrinsic(_count_trailing_zeros)
add_group, add_planes = _intrinsic(_add_group), _intrinsic(_add_planes)
inline: Any = _njit(inline="always")
