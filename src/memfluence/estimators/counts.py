"""Exact counts over bit-packed trials: everything that estimates need, as integers.

    N11[i, j] = how many trials kept training example i and got test example j right

Three ways give the same integers. A float32 matrix product of unpacked bits is exact, because each product adds at
most `TRIALS_AT_ONCE` < 2**24 ones and needs nothing but NumPy. The kernels read the bits as they are, by popcount or
by summing the trials of each test example's rarer outcome, whichever costs less (`kernels/counting.py`): tens of times
faster, but loading Numba and, the first time on a machine, compiling takes some seconds. `JointCounter` starts with
the product and changes to the kernels when the work asked of it outweighs that; where Numba cannot be loaded it says
so and goes on without.

Memory: beside what they return, these functions hold at most some 120 MB, and the kernels the trials once more.
"""

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

import numpy as np

from memfluence.errors import InputError, MemfluenceWarning

if TYPE_CHECKING:
    from memfluence.estimators.kernels.counting import PackedCounter

Task = TypeVar("Task")
Method = Literal["auto", "matmul", "popcount", "minority"]
Order = Literal["test", "train", "either"]  # which examples' tiles come on one thread, one after the other
UseCounts = Callable[[Sequence[np.ndarray], slice, slice], None]  # a tile's counts, rows and columns

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
    """N11 of some trials, which are turned into words once, when the kernels first need them.

    `method` forces one way of counting; "auto" picks the cheapest. The integers are the same.
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
        if method not in get_args(Method):
            raise InputError(f"The way of counting must be one of {', '.join(get_args(Method))}; got {method!r}.")
        if len(mask) != len(outcome):
            raise InputError(f"There are {len(mask)} masks for {len(outcome)} outcomes; give one for each trial.")
        self.n_train, self.n_test, self.trials = n_train, n_test, len(mask)
        self.mask, self.outcome = mask, outcome
        self._method = method
        self._work = 0  # trials times pairs asked for so far
        self._packed: PackedCounter | None = None

    @property
    def still_needed(self) -> int:
        """Memory, in bytes, of the words that the kernels count, until they are made."""
        return 0 if self._packed is not None else 8 * -(-self.trials // 64) * (self.n_train + self.n_test)

    def block(self, train: np.ndarray | None = None, test: np.ndarray | None = None) -> np.ndarray:
        """Counts of the chosen training and test examples (None: all), (train, test) int32.

        The array is in Fortran order: the counts of one test example lie together.
        """
        train = np.arange(self.n_train) if train is None else train
        test = np.arange(self.n_test) if test is None else test
        counts = np.empty((len(test), len(train)), dtype=np.int32)  # (test, train)

        def keep(found: Sequence[np.ndarray], rows: slice, columns: slice) -> None:
            counts[columns, rows] = found[0]

        each_tile([self], train, test, keep)
        return counts.T  # (train, test)

    def packed(self, pairs: int) -> "PackedCounter | None":
        """The kernels, prepared to count so many more pairs; None where the matrix product will do."""
        self._work += pairs * self.trials
        if self._method == "matmul" or (
            self._method == "auto" and self._work < WORTH_LOADING and loaded_kernels() is None
        ):
            return None
        if self._packed is None and (found := kernels()) is not None:
            self._packed = found.PackedCounter(self.mask, self.outcome, self.n_train, self.n_test, self._method)
        return self._packed

    def product(self, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        """Counts (test, train) int32 as a matrix product."""
        counts = np.zeros((len(test), len(train)), dtype=np.int32)
        for start in range(0, self.trials, TRIALS_AT_ONCE):
            some = slice(start, start + TRIALS_AT_ONCE)
            correct = bits_at(self.outcome[some], test).astype(np.float32)  # (some trials, test)
            kept = bits_at(self.mask[some], train).astype(np.float32)  # (some trials, train)
            counts += (correct.T @ kept).astype(np.int32)
        return counts


def each_tile(
    counters: Sequence[JointCounter],
    train: np.ndarray,
    test: np.ndarray,
    use: UseCounts,
    *,
    of: Order = "either",
    threads: int | None = None,
) -> None:
    """Count all chosen pairs, and call use(counts, rows, columns) for each tile: (test, train) int32 for each counter.

    Tiles are used on several threads at once, but those of one test example (`of="test"`) on one thread and in the
    order of `train`, or those of one training example (`of="train"`) in the order of `test`. The counts are only lent.
    """
    packed = [counter.packed(len(train) * len(test)) for counter in counters]
    if (found := kernels() if None not in packed else None) is not None:
        found.each_tile(packed, train, test, use, of, threads)
        return
    for rows, columns in tiles(train, test, EXAMPLES_AT_ONCE, EXAMPLES_AT_ONCE):
        use([counter.product(train[rows], test[columns]) for counter in counters], rows, columns)


def tiles(train: np.ndarray, test: np.ndarray, rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """The places of tiles of so many rows and columns, those of the same test examples one after the other."""
    for column in range(0, len(test), columns):
        for row in range(0, len(train), rows):
            yield slice(row, min(len(train), row + rows)), slice(column, min(len(test), column + columns))


def in_threads(run: Callable[[Task], None], tasks: Sequence[Task], threads: int) -> None:
    """Call run(task) for each task, as many at a time as there are threads."""
    if threads == 1 or len(tasks) <= 1:
        for task in tasks:
            run(task)
        return
    with ThreadPoolExecutor(min(threads, len(tasks))) as pool:
        try:
            for done in [pool.submit(run, task) for task in tasks]:
                done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)  # tasks that have not begun
            raise


def column_counts(bits: np.ndarray, n: int, *, among: np.ndarray | None = None) -> np.ndarray:
    """The number of rows with each bit set, and set in `among` as well where it is given: (n,) int64."""
    counts = np.zeros(bits.shape[1] * 8, dtype=np.int64)
    rows_at_once, bytes_at_once = 255, 2**11  # 255 ones fit the uint8 in which they are summed; 4 MB at a time
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
        both = bits_at(mask, train[pairs]) & bits_at(outcome, test[pairs])  # (trials, some pairs)
        counts[pairs] = both.sum(axis=0, dtype=np.int64)
    return counts


def bits_at(bits: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Chosen columns of packed bits, (rows, columns) uint8 of 0 and 1."""
    found = np.take(bits, columns >> 3, axis=1)
    found >>= (columns & 7).astype(np.uint8)
    found &= np.uint8(1)
    return found


def loaded_kernels() -> ModuleType | None:
    """`kernels`, if something has loaded them already: for work that is too small to load them for."""
    return kernels() if kernels.cache_info().currsize else None


@functools.cache
def kernels() -> ModuleType | None:
    """Counting with compiled kernels (`kernels/counting.py`), if they can be loaded."""
    try:
        from memfluence.estimators.kernels import counting
    except Exception as error:  # Numba absent, at odds with NumPy, unable to compile or to keep what it compiled
        warnings.warn(
            f"The fast counting kernels cannot be loaded ({error}); counting goes on several times slower,"
            " with the same results.",
            MemfluenceWarning,
            stacklevel=2,
        )
        return None
    return counting
