"""Counting kernels on packed bits, compiled by Numba when this module is imported.

    N11[i, j] = how many trials kept training example i and got test example j right

Counting goes panel by panel: up to `PANEL` training examples against many test examples, on one thread. Two ways:

- `count_words` (popcount). Trials are the bits of 64-bit words, so that one AND and one population count take in 64
  trials of one pair. Words of neighbouring training examples lie together and are counted side by side in the lanes
  of the vector unit (8 with AVX-512, which has the instruction; elsewhere the compiler makes it from shuffles).
- `count_minority`. Training examples are the bits: row t of the panel says which examples trial t kept. For each test
  example only the rows of its rarer outcome are added up, 512 examples at a time: carry-save adders take in 16 rows
  with 15 full adders (two instructions each with AVX-512), into counters whose binary digits lie in separate planes.
  If the rarer outcome is "wrong", the count is taken from the number of trials that kept the example.

`counts.py` says which is taken when. The kernels release the interpreter's lock; threads are plain Python threads.
Numba's own `parallel=True` would add seconds of compiling, and a threading layer that aborts the process when two
threads count at once or after a fork.
"""

import numpy as np
from numba import types

from memfluence.estimators.kernels.compiling import (
    BLOCK,
    GROUP,
    LEVELS,
    add_rows,
    compiled,
    ones,
    quotient,
    read,
    to_bytes,
    write,
)

__all__ = ["count_minority", "count_words", "divide", "keep_largest"]

_u8, _u32, _u64, _i32, _i64, _f64 = types.uint8, types.uint32, types.uint64, types.int32, types.int64, types.float64


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
    none yet. An equal value that comes later stays behind, and NaN is never taken.
    """
    places = best.shape[1]
    rows, columns = values.shape
    for j in range(rows):
        for i in range(columns):
            row, which = (first + i, j) if of_columns else (first + j, i)
            value = values[j, i]
            if value > best[row, places - 1] or (best_index[row, places - 1] < 0 and value == value):
                place = places - 1
                while place > 0 and (best_index[row, place - 1] < 0 or best[row, place - 1] < value):
                    best[row, place], best_index[row, place] = best[row, place - 1], best_index[row, place - 1]
                    place -= 1
                best[row, place], best_index[row, place] = value, index[which]
