"""Exact counts over bit-packed trials: everything that estimates need, as integers.

    N11[i, j] = how many trials kept training example i and got test example j right

Two ways give the same integers. A float32 matrix product of unpacked bits is exact, because each product adds at
most `TRIALS_AT_ONCE` < 2**24 ones and needs nothing but NumPy. The popcount kernels of `_popcount.py` read the bits
as they are and are several times faster, but loading Numba and, the first time on a machine, compiling takes a
second or two. `JointCounter` starts with the former and changes to the latter when the work asked of it outweighs
that; where Numba cannot be loaded it says so and goes on without.

Memory: beside what they return, these functions hold at most some 100 MB, whatever the sizes.
"""

import functools
import warnings
from types import ModuleType
from typing import Literal

import numpy as np

from memfluence.errors import InputError, MemfluenceWarning

__all__ = ["JointCounter", "Method", "column_counts", "joint_counts_reference", "pair_counts"]

Method = Literal["auto", "matmul", "popcount"]

# Tiles of the matrix product, 16 to 32 MB each in float32.
TRIALS_AT_ONCE = 4096
EXAMPLES_AT_ONCE = 2048

# Trials times pairs at which Numba has paid for its loading: some tenths of a second of matrix product on two cores.
WORTH_LOADING = 10**10


def joint_counts_reference(
    mask: np.ndarray,  # (trials, ceil(n_train / 8)) uint8
    outcome: np.ndarray,  # (trials, ceil(n_test / 8)) uint8
    n_train: int,
    n_test: int,
) -> np.ndarray:
    """N11 the plain way, (n_train, n_test) int32: what every other way must equal exactly."""
    kept = np.unpackbits(mask, axis=1, count=n_train, bitorder="little").astype(np.int32)  # (trials, n_train)
    correct = np.unpackbits(outcome, axis=1, count=n_test, bitorder="little").astype(np.int32)  # (trials, n_test)
    return kept.T @ correct  # (n_train, n_test)


class JointCounter:
    """N11 block by block, prepared once for some trials.

    `method` forces one way of counting; "auto" picks the cheaper one. The integers are the same.
    """

    def __init__(
        self,
        mask: np.ndarray,  # (trials, ceil(n_train / 8)) uint8
        outcome: np.ndarray,  # (trials, ceil(n_test / 8)) uint8
        n_train: int,
        n_test: int,
        *,
        method: Method = "auto",
    ) -> None:
        if method not in ("auto", "matmul", "popcount"):
            raise InputError(f"The way of counting must be auto, matmul or popcount; got {method!r}.")
        if len(mask) != len(outcome):
            raise InputError(f"There are {len(mask)} masks for {len(outcome)} outcomes; give one for each trial.")
        self.n_train, self.n_test, self.trials = n_train, n_test, len(mask)
        self._mask, self._outcome = mask, outcome
        self._method = method
        self._work = 0  # trials times pairs asked for so far
        self._words: tuple[np.ndarray, np.ndarray] | None = None  # (words, n_train), (n_test, words) uint64

    def block(self, train: np.ndarray | None = None, test: np.ndarray | None = None) -> np.ndarray:
        """Counts of the chosen training and test examples (None: all), (train, test) int32.

        The array is in Fortran order: the counts of one test example lie together.
        """
        rows = self.n_train if train is None else len(train)
        columns = self.n_test if test is None else len(test)
        self._work += rows * columns * self.trials
        kernels = self._kernels()
        if kernels is None:
            return self._product(train, test, rows, columns)
        masks, outcomes = self._words = self._words or (
            kernels.word_major(self._mask, self.n_train),
            kernels.word_major(self._outcome, self.n_test).T.copy(),
        )
        counts = np.empty((columns, rows), dtype=np.int32)  # (test, train)
        # Rows are gathered first: the kernel runs three times slower on words that do not lie together.
        kernels.joint_counts(
            masks if train is None else masks[:, train], outcomes if test is None else outcomes[test], counts
        )
        return counts.T  # (train, test)

    def _kernels(self) -> ModuleType | None:
        if self._method == "matmul" or (
            self._method == "auto" and self._work < WORTH_LOADING and not _popcount_kernels.cache_info().currsize
        ):
            return None
        return _popcount_kernels()

    def _product(self, train: np.ndarray | None, test: np.ndarray | None, rows: int, columns: int) -> np.ndarray:
        train = np.arange(self.n_train) if train is None else train
        test = np.arange(self.n_test) if test is None else test
        counts = np.zeros((columns, rows), dtype=np.int32)  # (test, train)
        for start in range(0, self.trials, TRIALS_AT_ONCE):
            mask, outcome = (bits[start : start + TRIALS_AT_ONCE] for bits in (self._mask, self._outcome))
            for column in range(0, columns, EXAMPLES_AT_ONCE):
                some_columns = slice(column, column + EXAMPLES_AT_ONCE)
                correct = _bits_at(outcome, test[some_columns]).astype(np.float32)  # (trials, some columns)
                for row in range(0, rows, EXAMPLES_AT_ONCE):
                    some_rows = slice(row, row + EXAMPLES_AT_ONCE)
                    kept = _bits_at(mask, train[some_rows]).astype(np.float32)  # (trials, some rows)
                    counts[some_columns, some_rows] += (correct.T @ kept).astype(np.int32)
        return counts.T  # (train, test)


def column_counts(bits: np.ndarray, n: int, *, among: np.ndarray | None = None) -> np.ndarray:
    """How many rows have each bit set, and set in `among` as well where it is given: (n,) int64."""
    counts = np.zeros(bits.shape[1] * 8, dtype=np.int64)
    rows_at_once, bytes_at_once = 255, 2**15  # 255 ones still fit the uint8 in which they are summed
    for start in range(0, bits.shape[1], bytes_at_once):
        columns = slice(start, start + bytes_at_once)
        for row in range(0, len(bits), rows_at_once):
            part = bits[row : row + rows_at_once, columns]
            if among is not None:
                part = part & among[row : row + rows_at_once, columns]
            ones = np.unpackbits(part, axis=1, bitorder="little")  # (some rows, some columns)
            counts[start * 8 : start * 8 + ones.shape[1]] += ones.sum(axis=0, dtype=np.uint8)
    return counts[:n]


def pair_counts(
    mask: np.ndarray,  # (trials, ceil(n_train / 8)) uint8
    outcome: np.ndarray,  # (trials, ceil(n_test / 8)) uint8
    train: np.ndarray,  # (pairs,)
    test: np.ndarray,  # (pairs,)
) -> np.ndarray:
    """N11 at chosen pairs of a training and a test example, (pairs,) int64."""
    counts = np.zeros(len(train), dtype=np.int64)
    pairs_at_once = max(1, 2**24 // max(1, len(mask)))
    for start in range(0, len(train), pairs_at_once):
        pairs = slice(start, start + pairs_at_once)
        both = _bits_at(mask, train[pairs]) & _bits_at(outcome, test[pairs])  # (trials, some pairs)
        counts[pairs] = both.sum(axis=0, dtype=np.int64)
    return counts


def _bits_at(bits: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Chosen columns of packed bits, (rows, columns) uint8 of 0 and 1."""
    found = np.take(bits, columns >> 3, axis=1)
    found >>= (columns & 7).astype(np.uint8)
    found &= np.uint8(1)
    return found


@functools.cache
def _popcount_kernels() -> ModuleType | None:
    try:
        from memfluence.estimators import _popcount
    except Exception as error:  # Numba absent, at odds with NumPy, unable to compile or to keep what it compiled
        warnings.warn(
            f"The fast counting kernels cannot be loaded ({error}); counting goes on several times slower,"
            " with the same results.",
            MemfluenceWarning,
            stacklevel=2,
        )
        return None
    return _popcount
