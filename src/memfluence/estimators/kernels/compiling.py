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
import numba.core.cgutils
import numba.extending
from numba import types

__all__ = [
    "BLOCK",
    "GROUP",
    "LEVELS",
    "PANEL",
    "add_rows",
    "compiled",
    "inline",
    "ones",
    "quotient",
    "read",
    "to_bytes",
    "write",
    "zeros_below",
]

if sys.byteorder != "little":
    raise ImportError("the kernels read words as bytes in little order, which this machine does not have")

PANEL = 1024  # training examples at a time: with 2000 trials 256 kB of rows, which stay in a second-level cache
BLOCK = 512  # of these that are added up side by side
GROUP = 16  # rows that are added up at once
LEVELS = 16  # binary digits of a counter

# Some versions of Numba have type hints, some have none, and the hints do not know intrinsics.
_njit: Any = numba.njit
_intrinsic: Any = numba.extending.intrinsic
_cgutils: Any = numba.core.cgutils


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


def _has(context: Any, feature: str) -> bool:
    """Whether the processor that is compiled for has some instructions."""
    return f"+{feature}" in context.codegen().magic_tuple()[2].split(",")


def _quotient(typing_context: Any, a: Any, b: Any, inverse: Any) -> Any:
    """a / b rounded as always, of whole numbers a and b below 2**26, with inverse = 1 / b; without a division.

    a * inverse is off by at most two units in the last place, and its remainder is exact in a fused multiply-add.
    Corrected by the remainder it is off by 2**-52 of a unit before it is rounded, while a / b, if it has to be rounded,
    lies at least 1 / 2b of a unit from where rounding changes. NaN where b is 0.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, inverse = arguments
        if not (_has(context, "fma") or _has(context, "neon")):
            return builder.fdiv(a, b)
        near = builder.fmul(a, inverse)
        return builder.fma(builder.fma(builder.fneg(near), b, a), inverse, near)

    return types.float64(*[types.float64] * 3), generate


def _full_adder(context: Any, builder: Any, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """(sum, carry) of three bits in every lane."""
    if _has(context, "avx512f"):  # which has any function of three bits as one instruction
        kind = ir.FunctionType(_VECTOR, [_VECTOR, _VECTOR, _VECTOR, ir.IntType(32)])
        table = _cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.pternlog.q.512")
        odd, most = (builder.call(table, [a, b, c, ir.IntType(32)(truth)]) for truth in (0x96, 0xE8))
        return odd, most
    differ = builder.xor(a, b)
    return builder.xor(differ, c), builder.or_(builder.and_(differ, c), builder.and_(a, b))


def _address(context: Any, builder: Any, signature: Any, arguments: Any, which: int) -> Any:
    """Where the elements of an array argument begin.

    Kernels hand over arrays, never addresses: Numba frees an array after its last mention, not after its last use.
    """
    array = context.make_array(signature.args[which])(context, builder, arguments[which])
    return builder.ptrtoint(array.data, ir.IntType(64))


def _add_rows(typing_context: Any, rows: Any, offsets: Any, first: Any, groups: Any, planes: Any) -> Any:
    """Add up groups of 16 rows, 512 bits each, into 16 planes.

    The rows' offsets in bytes are listed from place `first` on. Written as vector instructions, so that the planes
    stay in registers: no compiler proves that rows chosen at run time do not overlap them.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, listed, planes = (_address(context, builder, signature, arguments, which) for which in (0, 1, 4))
        _, _, first, groups, _ = arguments
        i64 = groups.type
        offsets = builder.add(listed, builder.mul(first, i64(4)))
        zero = _VECTOR(None)  # all bits 0
        totals = [_cgutils.alloca_once_value(builder, zero) for _ in range(LEVELS)]
        over = _cgutils.alloca_once(builder, _VECTOR)

        def ripple(carry: Any, levels: range) -> Any:
            """Add one bit to the planes of some levels, the lowest first; what is left over."""
            for level in levels:
                total = builder.load(totals[level])
                builder.store(builder.xor(total, carry), totals[level])
                carry = builder.and_(total, carry)
            return carry

        def add(level: int, first: Any) -> Any:
            """The carry, worth 2**level, of 2**level rows added to the planes below that level."""
            if level == 0:
                offset = builder.load(builder.inttoptr(first, ir.IntType(32).as_pointer()))
                return _load(builder, builder.add(rows, builder.zext(offset, i64)))
            low, high = add(level - 1, first), add(level - 1, builder.add(first, i64(4 * 2 ** (level - 1))))
            total, carry = _full_adder(context, builder, low, high, builder.load(totals[level - 1]))
            builder.store(total, totals[level - 1])
            return carry

        # 16 groups add at most 256: in them a lane's counter of 8 digits runs over at most once.
        with _cgutils.for_range_slice(builder, i64(0), groups, i64(16), intp=i64) as (start, _):
            builder.store(zero, over)
            left = builder.sub(groups, start)
            here = builder.select(builder.icmp_unsigned("<", left, i64(16)), left, i64(16))
            with _cgutils.for_range(builder, here, intp=i64) as loop:
                first = builder.add(offsets, builder.mul(builder.add(start, loop.index), i64(4 * GROUP)))
                builder.store(builder.or_(builder.load(over), ripple(add(4, first), range(4, 8))), over)
            ripple(builder.load(over), range(8, LEVELS))
        for level, total in enumerate(totals):
            _store(builder, builder.load(total), builder.add(planes, i64(64 * level)))
        return context.get_dummy_value()

    return types.void(rows, offsets, types.int64, types.int64, planes), generate


def _to_bytes(typing_context: Any, planes: Any, level: Any, found: Any) -> Any:
    """Eight planes of 512 bits, from `level` on, as 512 bytes, whose binary digits they hold."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        planes, found = (_address(context, builder, signature, arguments, which) for which in (0, 2))
        i64, i8 = planes.type, ir.IntType(8)
        planes = builder.add(planes, builder.mul(arguments[1], i64(BLOCK // 8)))
        for word in range(BLOCK // 64):
            total = ir.Constant(ir.VectorType(i8, 64), None)
            for level in range(8):
                plane = builder.inttoptr(builder.add(planes, i64(BLOCK // 8 * level + 8 * word)), i64.as_pointer())
                digit = builder.bitcast(builder.load(plane), ir.VectorType(ir.IntType(1), 64))
                value = ir.Constant(total.type, [i8(1 << level)] * 64)
                total = builder.select(digit, builder.add(total, value), total)
            builder.store(total, builder.inttoptr(builder.add(found, i64(64 * word)), total.type.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(planes, types.int64, found), generate


ones, zeros_below = _intrinsic(_count_ones), _intrinsic(_count_trailing_zeros)
add_rows, to_bytes, quotient = _intrinsic(_add_rows), _intrinsic(_to_bytes), _intrinsic(_quotient)
inline: Any = _njit(inline="always")
