"""Packed trials turned into what the counting kernels read, compiled by Numba when this module is imported.

Trials come as rows of bits, one per example. Words of an example hold 64 of its trials each; a panel is some examples'
words side by side (for popcounts) or turned back into rows of trials (for the minority's trials).
"""

import numpy as np
from numba import types

from memfluence.estimators.kernels.compiling import BLOCK, compiled, inline, ones, read, write, zeros_below

__all__ = ["count_ones", "list_minority", "to_rows", "to_words", "transpose"]

_u8, _u32, _u64, _i64 = types.uint8, types.uint32, types.uint64, types.int64


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
