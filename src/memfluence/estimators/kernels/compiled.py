"""Compiled kernels on packed bits: how they are compiled, what they read, and how they count.

    N11[i, j] = how many trials kept training example i and got test example j right

Counting goes panel by panel: up to `PANEL` training examples against many test examples, on one thread. Two ways:

- `count_words` (popcount). Trials are the bits of 64-bit words, so that one AND and one population count take in 64
  trials of one pair. Words of neighbouring training examples lie together and are counted side by side in the lanes
  of the vector unit (8 with AVX-512, which has the instruction; elsewhere the compiler makes it from shuffles).
- `count_minority`. Training examples are the bits: row t of the panel says which examples trial t kept. For each test
  example only the rows of its rarer outcome are added up, 512 examples at a time: carry-save adders take in 16 rows
  with 15 full adders (two instructions each with AVX-512), into counters whose binary digits lie in separate planes.
  If the rarer outcome is "wrong", the count is taken from the number of trials that kept the example.

`counting.py` says which is taken when. The kernels release the interpreter's lock; threads are plain Python threads.
Numba's own `parallel=True` would add seconds of compiling, and a threading layer that aborts the process when two
threads count at once or after a fork.

Trials come as rows of bits, one per example. Words of an example hold 64 of its trials each; a panel is some examples'
words side by side (for popcounts) or turned back into rows of trials (for the minority's trials).

Numba compiles when this module is imported. Compiled code is kept beside it or, where that is read-only, in the user's
cache; where neither can be written, kernels are compiled anew in each process.
"""

import sys
from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
import numba
import numba.core.cgutils
import numba.extending
import numpy as np
from numba import types

_u8, _u32, _u64, _i32, _i64, _f64 = types.uint8, types.uint32, types.uint64, types.int32, types.int64, types.float64

if sys.byteorder != "little":
    raise ImportError("the kernels read words as bytes in little order, which this machine does not have")

PANEL = 1024  # training examples at a time: with 2000 trials 256 kB of rows, which stay in a second-level cache
BLOCK = 512  # of these that are added up side by side
GROUP = 16  # rows that are added up at once
LEVELS = 16  # binary digits of a counter
SCREENED = 64  # values that are held against the largest so far at once

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


@inline
def _turn(square):  # type: ignore[no-untyped-def]  # (64 * 8,): eight squares of 64 x 64 bits, side by side
    """Hacker's Delight, section 7-3: swap the off-diagonal quarters, then theirs, and so on."""
    size = 32
    low = np.uint64(0x00000000FFFFFFFF)
    while size != 0:
        k = 0
        while k < 64:
            for s in range(8):
                swapped = ((square[k * 8 + s] >> np.uint64(size)) ^ square[(k + size) * 8 + s]) & low
                square[k * 8 + s] ^= swapped << np.uint64(size)
                square[(k + size) * 8 + s] ^= swapped
            k = (k + size + 1) & ~size
        size >>= 1
        low ^= low << np.uint64(size)


@compiled(types.void(read(_u8, 2), write(_u64, 2), _i64, _i64))
def transpose(bits, words, first, last):  # type: ignore[no-untyped-def]
    """Trials (trials, bytes) become words (n, ceil(trials / 64)) of the examples first to last, 512 at a time."""
    trials, n_bytes = bits.shape
    square = np.empty(64 * 8, np.uint64)
    for start in range(first, last, 512):
        n_here = min(512, last - start)
        byte = start // 8
        bytes_here = min(64, n_bytes - byte)
        line = square.view(np.uint8)
        for word in range(words.shape[1]):
            square[:] = 0
            for k in range(min(64, trials - word * 64)):
                for b in range(bytes_here):
                    line[k * 64 + b] = bits[word * 64 + k, byte + b]
            _turn(square)
            for i in range(n_here):
                words[start + i, word] = square[(i & 63) * 8 + (i >> 6)]


@compiled(types.void(read(_u64, 2), write(_i64, 1)))
def count_ones(words, counts):  # type: ignore[no-untyped-def]
    """How many bits of each row of words (n, words) are set."""
    for i in range(len(counts)):
        counts[i] = 0
        for word in range(words.shape[1]):
            counts[i] += np.int64(ones(words[i, word]))


@compiled(types.void(read(_u64, 2), read(_i64, 1), write(_u64, 2)))
def to_words(words, train, panel):  # type: ignore[no-untyped-def]
    """Words (n, words) of chosen examples as a panel (words, examples) for `count_words`."""
    for i in range(len(train)):
        for word in range(words.shape[1]):
            panel[word, i] = words[train[i], word]


@compiled(types.void(read(_u64, 2), read(_i64, 1), write(_u64, 3)))
def to_rows(words, train, panel):  # type: ignore[no-untyped-def]
    """Words (n, words) of chosen examples as a panel (blocks, 64 * words + 1, 8), last rows of 0, for minorities."""
    square = np.empty(64 * 8, np.uint64)
    for block in range(panel.shape[0]):
        start = block * BLOCK
        for word in range(words.shape[1]):
            square[:] = 0
            for i in range(start, min(start + BLOCK, len(train))):
                square[(i & 63) * 8 + ((i - start) >> 6)] = words[train[i], word]
            _turn(square)
            for k in range(64):
                for s in range(8):
                    panel[block, word * 64 + k, s] = square[k * 8 + s]
        panel[block, panel.shape[1] - 1] = 0


@compiled(types.void(read(_u64, 2), _i64, read(_u8, 1), read(_i64, 1), write(_u32, 1)))
def list_minority(outcomes, trials, wrong, starts, listed):  # type: ignore[no-untyped-def]
    """Where in a block the rows of the trials begin whose outcome is right (wrong where `wrong` says so), in bytes.

    Each test example's are padded to whole groups with the row of zeros.
    """
    for j in range(outcomes.shape[0]):
        place = starts[j]
        for word in range(outcomes.shape[1]):
            left = outcomes[j, word]
            if wrong[j]:
                left = ~left
                if trials - word * 64 < 64:
                    left &= (np.uint64(1) << np.uint64(trials - word * 64)) - np.uint64(1)
            while left:
                listed[place] = (BLOCK // 8) * (word * 64 + np.int64(zeros_below(left)))
                place += 1
                left &= left - np.uint64(1)
        while place < starts[j + 1]:
            listed[place] = (BLOCK // 8) * outcomes.shape[1] * 64
            place += 1


@compiled(
    types.void(read(_u64, 3), read(_u32, 1), read(_i64, 1), read(_u8, 1), read(_i32, 1), read(_i64, 1), write(_i32, 2))
)
def count_minority(panel, listed, starts, wrong, kept, place, counts):  # type: ignore[no-untyped-def]
    """Fill row place[j] of counts (test, train) for each test example j; `kept`: trials that kept each example."""
    lanes = counts.shape[1]
    planes = np.empty(LEVELS * BLOCK // 64, np.uint64)  # counters, one plane per binary digit
    low, high = np.zeros(BLOCK, np.uint8), np.zeros(BLOCK, np.uint8)
    for block in range(panel.shape[0]):
        rows = panel[block]
        first = block * BLOCK
        here = min(BLOCK, lanes - first)
        for j in range(len(starts) - 1):
            groups = (starts[j + 1] - starts[j]) // GROUP
            add_rows(rows, listed, starts[j], groups, planes)
            to_bytes(planes, 0, low)
            if groups * GROUP > 255:
                to_bytes(planes, 8, high)
            else:
                high[:] = 0
            row = counts[place[j], first : first + here]
            if wrong[j]:
                for i in range(here):
                    row[i] = kept[first + i] - (np.int32(low[i]) | np.int32(high[i]) << np.int32(8))
            else:
                for i in range(here):
                    row[i] = np.int32(low[i]) | np.int32(high[i]) << np.int32(8)


@compiled(types.void(read(_u64, 2), read(_u64, 2), read(_i64, 1), write(_i32, 2)))
def count_words(panel, outcomes, place, counts):  # type: ignore[no-untyped-def]
    """Fill row place[j] of counts (test, train) from a panel (words, train) and row j of outcomes (test, words)."""
    words, lanes = panel.shape
    for j in range(outcomes.shape[0]):
        row = counts[place[j]]
        for i in range(lanes):
            row[i] = 0
        word = 0
        while word + 4 <= words:  # four words at a time keep the totals out of memory's way
            c0, c1, c2, c3 = outcomes[j, word], outcomes[j, word + 1], outcomes[j, word + 2], outcomes[j, word + 3]
            m0, m1, m2, m3 = panel[word], panel[word + 1], panel[word + 2], panel[word + 3]
            for i in range(lanes):
                row[i] += np.int32((ones(m0[i] & c0) + ones(m1[i] & c1)) + (ones(m2[i] & c2) + ones(m3[i] & c3)))
            word += 4
        while word < words:
            c0, m0 = outcomes[j, word], panel[word]
            for i in range(lanes):
                row[i] += np.int32(ones(m0[i] & c0))
            word += 1


@compiled(
    *(
        types.void(
            read(_i32, 2), read(_i32, 2), read(_f64, 1), read(_f64, 1), read(_f64, 1), write(kind, 2), _i64, _i64
        )
        for kind in (types.float32, types.float64)
    )
)
def divide(n_in, n_out, trials_in, trials_out, right_out, values, first, column):  # type: ignore[no-untyped-def]
    """n_in / trials_in - (right_out - n_out) / trials_out into values (test, train), at (first, column) and on."""
    lanes = n_in.shape[1]
    inverse_in, inverse_out = 1 / trials_in, 1 / trials_out
    for j in range(n_in.shape[0]):
        one, two, out, right = n_in[j], n_out[j], values[first + j, column : column + lanes], right_out[j]
        for i in range(lanes):
            out[i] = quotient(one[i], trials_in[i], inverse_in[i]) - quotient(
                right - two[i], trials_out[i], inverse_out[i]
            )


@compiled(types.void(read(_f64, 2), read(_i64, 1), write(_f64, 2), write(_i64, 2), _i64, types.boolean))
def keep_largest(values, index, best, best_index, first, of_columns):  # type: ignore[no-untyped-def]
    """Put the values of each row (or column), with their indices, where they belong among the largest so far.

    Row `first + j` of `best` has the largest values of row (or column) j, descending, and -1 as index where there are
    none yet. An equal value that comes later stays behind, and NaN is never taken. Most values are too small: some are
    compared at once, and looked at one by one where not all of them are.
    """
    last = best.shape[1] - 1
    rows, columns = values.shape
    least = np.empty(columns if of_columns else rows)  # what a value must exceed; NaN where any number is taken
    for row in range(len(least)):
        least[row] = best[first + row, last] if best_index[first + row, last] >= 0 else np.nan
    for j in range(rows):
        for start in range(0, columns, SCREENED):
            some, candidates = values[j, start : start + SCREENED], np.int64(0)
            if of_columns:
                bounds = least[start : start + SCREENED]
                for i in range(len(some)):
                    candidates += np.int64(not some[i] <= bounds[i])
            else:
                bound = least[j]
                for i in range(len(some)):
                    candidates += np.int64(not some[i] <= bound)
            for i in range(len(some) if candidates else 0):
                row, which = (start + i, j) if of_columns else (j, start + i)
                value = some[i]
                if value > least[row] or (least[row] != least[row] and value == value):
                    row, place = first + row, last
                    while place > 0 and (best_index[row, place - 1] < 0 or best[row, place - 1] < value):
                        best[row, place], best_index[row, place] = best[row, place - 1], best_index[row, place - 1]
                        place -= 1
                    best[row, place], best_index[row, place] = value, index[which]
                    if best_index[row, last] >= 0:
                        least[row - first] = best[row, last]
