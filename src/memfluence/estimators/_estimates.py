"""Matrices of estimates, and what one may ask of them: parts, blocks by class, the largest, those at a threshold.

Nothing here holds the matrix: values come tile by tile from `_tiles`, on several threads, and memory grows with what
is returned. Ties go to the lower index everywhere, and NaN is never among the largest nor at any threshold.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators.counts import Order, in_threads, loaded_kernels
from memfluence.estimators.intervals import Difference
from memfluence.estimators.memory import Memory

UseTile = Callable[[np.ndarray, slice, slice], None]  # a tile's estimates (test, train), and its rows and columns
UseErrors = Callable[[Difference, slice, slice], None]
Block = tuple[np.ndarray, np.ndarray]  # training and test indices whose pairs are looked at
BYTES_PER_PAIR = 160  # of a selected pair, with its estimates and errors and what sorting takes


@dataclass(frozen=True, eq=False)
class ClassBlock:
    """Influence of a class's training examples on its test examples."""

    label: int
    train: np.ndarray  # (rows,) indices, ascending
    test: np.ndarray  # (columns,) indices, ascending
    values: np.ndarray  # (rows, columns)


@dataclass(frozen=True, eq=False)
class TopK:
    """The most helpful training examples of each chosen test example, best first, ties to the lower index.

    Where fewer than k training examples have an estimate, the rest is index -1 and value NaN. `Run.influence` gives
    ties to the larger influence on the margin, where margins were recorded.
    """

    test: np.ndarray  # (columns,) indices
    index: np.ndarray  # (columns, k) int64, training examples
    value: np.ndarray  # (columns, k)


@dataclass(frozen=True, eq=False)
class TopTests:
    """The test examples that each chosen training example helps most, best first, ties to the lower index."""

    train: np.ndarray  # (rows,) indices
    index: np.ndarray  # (rows, k) int64, test examples
    value: np.ndarray  # (rows, k)


class Estimates(ABC):
    """Estimates for all pairs of a training and a test example, computed as they are asked for.

    `train` and `test` are indices (or boolean masks); None means all. Their order is kept.
    """

    n_train: int
    n_test: int
    memory: Memory

    @abstractmethod
    def _tiles(
        self, train: np.ndarray, test: np.ndarray, use: UseTile, *, of: Order = "either", threads: int | None = None
    ) -> None:
        """Call use(values, rows, columns) for tiles, values (test, train) float64; order as in `counts.each_tile`."""

    @abstractmethod
    def _differences(self, train: np.ndarray, test: np.ndarray, use: UseErrors) -> None:
        """Call use(found, rows, columns) for tiles, estimates and their errors (test, train)."""

    def _prepare(self, pairs: int) -> bool:
        """Get ready to look at so many pairs; whether tiles may then be asked for from several threads."""
        return False

    def _can_reach(self, train: np.ndarray, test: np.ndarray, threshold: float) -> np.ndarray:
        """The test examples that may reach the threshold with one of the training examples."""
        return test

    def block(self, train: Any = None, test: Any = None, *, dtype: Any = np.float64, out: Any = None) -> np.ndarray:
        """Estimates of the chosen rows and columns, (train, test); all of them by default.

        In Fortran order: the values of one test example lie together. They are computed in float64 and then rounded to
        `dtype`. `out` is an array of that shape and order to write into.
        """
        rows, columns = self._indices(train, "train"), self._indices(test, "test")
        if out is None:
            self.memory.check_matrix(len(rows), len(columns), np.dtype(dtype).itemsize)
            out = np.empty((len(columns), len(rows)), dtype=dtype).T  # (train, test)
        elif out.shape != (len(rows), len(columns)) or not out.flags.f_contiguous:
            raise InputError(
                f"'out' must be an array of shape {(len(rows), len(columns))} in Fortran order; got {out.shape}."
            )
        self._fill(out.T, rows, columns)
        return out  # type: ignore[no-any-return]

    def _fill(self, values: np.ndarray, train: np.ndarray, test: np.ndarray, threads: int | None = None) -> None:
        """Write all chosen estimates into values (test, train)."""

        def keep(found: np.ndarray, rows: slice, columns: slice) -> None:
            values[columns, rows] = found

        self._tiles(train, test, keep, threads=threads)

    def block_with_errors(self, train: Any = None, test: Any = None) -> Difference:
        """Estimates of the chosen rows and columns with standard errors and 95% intervals, each (train, test)."""
        rows, columns = self._indices(train, "train"), self._indices(test, "test")
        self.memory.check_matrix(len(rows), len(columns), 4 * 8)
        whole = Difference(*(np.empty((len(columns), len(rows))).T for _ in range(4)))

        def keep(found: Difference, some_rows: slice, some_columns: slice) -> None:
            for name, part in vars(found).items():
                getattr(whole, name)[some_rows, some_columns] = part.T

        self._differences(rows, columns, keep)
        return whole

    def class_blocks(
        self, train_labels: np.ndarray, test_labels: np.ndarray, *, dtype: Any = np.float64
    ) -> Iterator[ClassBlock]:
        """One block per class, ascending by label; a class that a split lacks has no rows or no columns."""
        members = list(class_members(train_labels, test_labels))
        sizes = [len(train) * len(test) for _, train, test in members]
        threads = self._threads_over(len(members), sum(sizes))
        held = 4 * threads if threads > 1 else 1  # blocks at a time
        size = max((sum(sizes[start : start + held]) for start in range(0, len(members), held)), default=0)
        self.memory.check(size * np.dtype(dtype).itemsize, "the influence within a class", "a narrower dtype")

        def fill(block: ClassBlock) -> None:
            self._fill(block.values.T, block.train, block.test, threads=1 if threads > 1 else None)

        for start in range(0, len(members), held):
            blocks = [
                ClassBlock(label, train, test, np.empty((len(test), len(train)), dtype).T)
                for label, train, test in members[start : start + held]
            ]
            in_threads(fill, blocks, threads)
            yield from blocks

    def _threads_over(self, blocks: int, pairs: int) -> int:
        """Get ready; how many blocks to look at at once. Few blocks are looked at one by one, with threads in each."""
        return _threads() if self._prepare(pairs) and blocks >= _threads() else 1

    def all_class_blocks(
        self, train_labels: np.ndarray, test_labels: np.ndarray, *, dtype: Any = np.float64
    ) -> list[ClassBlock]:
        """The same, all at once."""
        pairs = sum(len(train) * len(test) for _, train, test in class_members(train_labels, test_labels))
        self.memory.check(
            pairs * np.dtype(dtype).itemsize, "the blocks of all classes", "class_blocks or a narrower dtype"
        )
        return list(self.class_blocks(train_labels, test_labels, dtype=dtype))

    def top_k(self, k: int, test: Any = None) -> TopK:
        """The k most helpful training examples of each chosen test example, without holding the matrix."""
        columns = self._indices(test, "test")
        index, value = self._largest(k, np.arange(self.n_train), columns, "test")
        return TopK(columns, index, value)

    def top_tests(self, k: int, train: Any = None) -> TopTests:
        """The k test examples that each chosen training example helps most, without holding the matrix."""
        rows = self._indices(train, "train")
        index, value = self._largest(k, rows, np.arange(self.n_test), "train")
        return TopTests(rows, index, value)

    def _largest(
        self, k: int, train: np.ndarray, test: np.ndarray, of: Literal["test", "train"]
    ) -> tuple[np.ndarray, np.ndarray]:
        if k < 1:
            raise InputError(f"top_k must be at least 1; got {k}.")
        n = len(test) if of == "test" else len(train)
        self.memory.check(16 * k * n, f"the {k} largest estimates of {n} examples", "a smaller top_k")
        index = np.full((n, k), -1, dtype=np.int64)
        value = np.full((n, k), np.nan)

        def keep(found: np.ndarray, rows: slice, columns: slice) -> None:
            if of == "test":
                keep_largest(found, train[rows], value, index, columns.start, False)
            else:
                keep_largest(found, test[columns], value, index, rows.start, True)

        self._tiles(train, test, keep, of=of)
        return index, value

    def at_least(self, threshold: float, blocks: Iterable[Block] | None = None) -> Block:
        """The pairs, among all or those of some blocks, whose estimate is at least the threshold, by (train, test)."""
        chosen = [(np.arange(self.n_train), np.arange(self.n_test))] if blocks is None else list(blocks)
        chosen = [(train, self._can_reach(train, test, threshold)) for train, test in chosen]
        chosen = [(train, test) for train, test in chosen if len(train) and len(test)]
        found = self._select(chosen, threshold)
        empty = np.empty(0, dtype=np.int64)
        train, test = (np.concatenate([empty, *(part[side] for part in found)]) for side in (0, 1))  # (pairs,)
        order = np.lexsort((test, train))
        return train[order], test[order]

    def _select(self, blocks: Sequence[Block], threshold: float) -> list[Block]:
        """The pairs of `at_least` in any order and number of parts."""
        found: list[Block] = []  # appended to from several threads
        threads = self._threads_over(len(blocks), sum(len(train) * len(test) for train, test in blocks))

        def look(block: Block) -> None:
            train, test = block

            def select(values: np.ndarray, rows: slice, columns: slice) -> None:
                hits = np.flatnonzero(values >= threshold)  # several times faster than np.nonzero of two axes
                if len(hits):
                    column, row = np.divmod(hits, values.shape[1])
                    found.append((train[rows][row], test[columns][column]))
                    if self.memory.limit is not None:
                        size = BYTES_PER_PAIR * sum(len(part[0]) for part in found)
                        self.memory.check(size, "sorting the pairs found so far", "a higher threshold")

            self._tiles(train, test, select, threads=1 if threads > 1 else None)

        in_threads(look, blocks, threads)
        return found

    def _pairs(self, train: Any, test: Any) -> tuple[np.ndarray, np.ndarray]:
        train, test = self._indices(train, "train"), self._indices(test, "test")
        if len(train) != len(test):
            raise InputError(
                f"Pairs need as many training as test indices; got {len(train)} and {len(test)}; give one each."
            )
        return train, test

    def _indices(self, chosen: Any, split: str) -> np.ndarray:
        n = self.n_train if split == "train" else self.n_test
        if chosen is None:
            return np.arange(n)
        indices = np.atleast_1d(np.asarray(chosen))
        if indices.dtype == bool and indices.shape == (n,):
            return np.flatnonzero(indices)
        if indices.size == 0:
            return np.empty(0, dtype=np.int64)
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise InputError(
                f"The {split} examples must be a flat list of indices; got {indices.dtype} of shape {indices.shape}."
            )
        if indices.min() < 0 or indices.max() >= n:
            wrong = int(indices[(indices < 0) | (indices >= n)][0])
            raise InputError(f"There is no {split} example {wrong}; choose indices from 0 to {n - 1}.")
        return indices.astype(np.int64)


def class_members(train_labels: np.ndarray, test_labels: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """(label, its training indices, its test indices), ascending by label and by index."""
    labels = np.union1d(train_labels, test_labels)
    orders = [np.argsort(given, kind="stable") for given in (train_labels, test_labels)]
    bounds = [
        np.searchsorted(given[order], labels, side=side)
        for given, order in zip((train_labels, test_labels), orders)
        for side in ("left", "right")
    ]
    for label, *ends in zip(labels, *bounds):
        yield int(label), orders[0][ends[0] : ends[1]], orders[1][ends[2] : ends[3]]


def keep_largest(
    values: np.ndarray, index: np.ndarray, best: np.ndarray, best_index: np.ndarray, first: int, of_columns: bool
) -> None:
    """Merge a tile's values into the largest so far; see `kernels/compiled.py`, which does it where it is loaded."""
    if (found := loaded_kernels()) is not None:
        found.compiled.keep_largest(values, index, best, best_index, first, of_columns)
    else:
        keep_largest_plainly(values, index, best, best_index, first, of_columns)


def keep_largest_plainly(
    values: np.ndarray, index: np.ndarray, best: np.ndarray, best_index: np.ndarray, first: int, of_columns: bool
) -> None:
    """The same with NumPy alone."""
    k = best.shape[1]
    for row, candidates in enumerate(values.T if of_columns else values, start=first):
        above = best[row, -1]
        chosen = np.flatnonzero(~np.isnan(candidates) if np.isnan(above) else candidates > above)
        if len(chosen) > k:
            kth = -np.partition(-candidates[chosen], k - 1)[k - 1]
            chosen = chosen[candidates[chosen] >= kth]
        if len(chosen):
            merged_value = np.concatenate([best[row], candidates[chosen]])
            merged_index = np.concatenate([best_index[row], index[chosen]])
            order = np.argsort(-merged_value, kind="stable")[:k]  # NaN goes last
            best[row], best_index[row] = merged_value[order], merged_index[order]


def _threads() -> int:
    found = loaded_kernels()
    return 1 if found is None else int(found.thread_count())
