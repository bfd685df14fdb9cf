"""Counting kernels on packed bits, compiled by Numba when this module is imported.

Trials become the bits of 64-bit words, so that one AND and one population count take in 64 trials of one pair.
Words of neighbouring training examples lie together and are counted side by side in the lanes of the vector unit (8
lanes with AVX-512, which has the instruction; elsewhere the compiler makes it from byte shuffles).

Threads are plain Python threads over blocks of test examples, on kernels that release the interpreter's lock.
Numba's own `parallel=True` would add seconds of compiling, and a threading layer that aborts the process when two
threads count at once or after a fork.

Measured with 4000 trials on 2 cores of an AVX-512 EPYC that others were using too: 6 * 10**11 trials times pairs a
second, 11 times the float32 matrix product.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numba.extending
import numpy as np
from numba import types

__all__ = ["joint_counts", "word_major"]

LANES = 512  # training examples at a time: with 8 words each they fill the first-level cache
TEST_AT_ONCE = 256  # test examples per task of a thread
WORTH_A_THREAD = 10**6  # words to count below which threads cost more than they save

# Some versions of Numba have type hints, some have none, and the hints do not know intrinsics.
_njit: Any = numba.njit
_intrinsic: Any = numba.extending.intrinsic
_config: Any = numba.config

_BYTES = types.Array(types.uint8, 2, "C", readonly=True)
_WORDS = types.Array(types.uint64, 2, "C", readonly=True)
_NEW_WORDS = types.Array(types.uint64, 2, "C")
_COUNTS = types.Array(types.int32, 2, "C")


def _compiled(*signature: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def compile_now(kernel: Callable[..., None]) -> Callable[..., None]:
        options = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
        try:
            return _njit(types.void(*signature), cache=True, **options)(kernel)  # type: ignore[no-any-return]
        except (OSError, RuntimeError):  # neither beside this file nor in the user's cache is there room to keep it
            return _njit(types.void(*signature), **options)(kernel)  # type: ignore[no-any-return]

    return compile_now


def _count_ones(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


_ones = _intrinsic(_count_ones)  # ones in a 64-bit word


@_compiled(_WORDS, _WORDS, _COUNTS)
def _joint_counts(masks, outcomes, counts):  # type: ignore[no-untyped-def]  # (words, train), (test, words), (test, train)
    words, n_train = masks.shape
    total = np.empty(LANES, np.uint64)
    for start in range(0, n_train, LANES):
        stop = min(n_train, start + LANES)
        lanes = stop - start
        for j in range(outcomes.shape[0]):
            for i in range(lanes):
                total[i] = 0
            word = 0
            while word + 8 <= words:  # eight words at a time keep the totals out of memory's way
                c0, c1, c2, c3 = outcomes[j, word], outcomes[j, word + 1], outcomes[j, word + 2], outcomes[j, word + 3]
                c4, c5, c6, c7 = (
                    outcomes[j, word + 4],
                    outcomes[j, word + 5],
                    outcomes[j, word + 6],
                    outcomes[j, word + 7],
                )
                m0, m1 = masks[word, start:stop], masks[word + 1, start:stop]
                m2, m3 = masks[word + 2, start:stop], masks[word + 3, start:stop]
                m4, m5 = masks[word + 4, start:stop], masks[word + 5, start:stop]
                m6, m7 = masks[word + 6, start:stop], masks[word + 7, start:stop]
                for i in range(lanes):
                    total[i] += ((_ones(m0[i] & c0) + _ones(m1[i] & c1)) + (_ones(m2[i] & c2) + _ones(m3[i] & c3))) + (
                        (_ones(m4[i] & c4) + _ones(m5[i] & c5)) + (_ones(m6[i] & c6) + _ones(m7[i] & c7))
                    )
                word += 8
            while word < words:
                c0 = outcomes[j, word]
                m0 = masks[word, start:stop]
                for i in range(lanes):
                    total[i] += _ones(m0[i] & c0)
                word += 1
            row = counts[j, start:stop]
            for i in range(lanes):
                row[i] = total[i]


@_compiled(_BYTES, _NEW_WORDS, types.int64, types.int64)
def _transpose(bits, words, first, last):  # type: ignore[no-untyped-def]  # (trials, bytes), (words, n), groups of 64 examples
    trials, n_bytes = bits.shape
    n = words.shape[1]
    square = np.empty(64, np.uint64)  # 64 trials by 64 examples
    for word in range(words.shape[0]):
        for group in range(first, last):
            for k in range(64):
                value = np.uint64(0)
                trial = word * 64 + k
                if trial < trials:
                    for b in range(min(8, n_bytes - group * 8)):
                        value |= np.uint64(bits[trial, group * 8 + b]) << np.uint64(8 * b)
                square[k] = value
            # Hacker's Delight, section 7-3: swap the off-diagonal quarters, then theirs, and so on.
            size = 32
            low = np.uint64(0x00000000FFFFFFFF)
            while size != 0:
                k = 0
                while k < 64:
                    swapped = ((square[k] >> np.uint64(size)) ^ square[k + size]) & low
                    square[k] ^= swapped << np.uint64(size)
                    square[k + size] ^= swapped
                    k = (k + size + 1) & ~size
                size >>= 1
                low ^= low << np.uint64(size)
            for k in range(min(64, n - group * 64)):
                words[word, group * 64 + k] = square[k]


def word_major(bits: np.ndarray, n: int) -> np.ndarray:
    """Packed trials by example, (trials, ceil(n / 8)) uint8, as words of 64 trials, (ceil(trials / 64), n) uint64."""
    bits = np.ascontiguousarray(bits)
    words = np.empty((-(-len(bits) // 64), n), dtype=np.uint64)  # (words, n)
    groups = -(-n // 64)
    _in_threads(lambda first, last: _transpose(bits, words, first, last), groups, 256, words.size)
    return words


def joint_counts(masks: np.ndarray, outcomes: np.ndarray, counts: np.ndarray) -> None:
    """Fill counts (test, train) int32 from masks (words, train) and outcomes (test, words), both uint64."""
    masks, outcomes = np.ascontiguousarray(masks), np.ascontiguousarray(outcomes)
    _in_threads(
        lambda first, last: _joint_counts(masks, outcomes[first:last], counts[first:last]),
        len(outcomes),
        TEST_AT_ONCE,
        counts.size * len(masks),
    )


def _in_threads(task: Callable[[int, int], None], n: int, at_once: int, work: int) -> None:
    threads = min(_config.NUMBA_NUM_THREADS, n)
    if threads <= 1 or work < WORTH_A_THREAD:
        task(0, n)
        return
    at_once = min(at_once, -(-n // threads))
    with ThreadPoolExecutor(threads) as pool:
        starts = range(0, n, at_once)
        for done in [pool.submit(task, start, min(n, start + at_once)) for start in starts]:
            done.result()
