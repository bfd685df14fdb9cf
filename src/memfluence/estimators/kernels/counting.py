"""Counting with the compiled kernels: trials turned into words once, then panels against chunks of test examples.

Which kernel counts a test example is decided by what each would cost, from constants measured on one core of an
AVX-512 EPYC (Zen 4, Numba 0.68), in nanoseconds. With t trials, of which the test example has its rarer outcome in K:

    popcount:          0.084 per pair and word of 64 trials
    minority trials:   0.18 per pair to read the counters, and 0.00147 per pair and trial of the rarer outcome; examples
                       come in blocks of 512, whether or not they are all wanted

(the best times of 4000 trials on eight panels of 1024 in turn, fitted by least relative squares for K from 20 to 2000)
so a wide block takes the minority's trials from t of about 300 on, whatever K is, and a narrow one where K is small.
Turning a panel into rows takes 1000 more per word than laying out its words, which a handful of test examples do not
pay back. The counts are the same either way. With AVX2 alone both ways take twice as long (0.18; 0.26 and 0.0030,
measured the same way), so that the choice is right there, too.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from memfluence.estimators.counts import in_threads
from memfluence.estimators.kernels import compiled
from memfluence.estimators.kernels.compiled import BLOCK, GROUP, PANEL

_config: Any = numba.config
CHUNK = 256  # test examples at a time: their counts with a panel are 1 MB
TESTS_PER_TASK = 4096  # of a thread, against all panels: enough to repay preparing these
PANELS_BYTES = 2**23  # of panels that a thread holds at once
TRANSPOSED_AT_ONCE = 2**14  # examples, a multiple of 512

WORD_NS, COUNTER_NS, ROW_NS, PREPARE_NS = 0.084, 0.18, 0.00147, 1000.0
MOST_ROWS = 2**16 - GROUP  # its counters have 16 binary digits


class Panel:
    """Up to `PANEL` training examples, laid out for one kernel or the other when it is first needed."""

    def __init__(self, counter: "PackedCounter", train: np.ndarray) -> None:
        self.train = train  # (lanes,)
        self.kept = counter.kept[train]  # (lanes,) int32
        self._words = counter.train_words

    @functools.cached_property
    def words(self) -> np.ndarray:
        panel = np.empty((self._words.shape[1], len(self.train)), dtype=np.uint64)
        compiled.to_words(self._words, self.train, panel)
        return panel  # (words, lanes)

    @functools.cached_property
    def rows(self) -> np.ndarray:
        shape = (-(-len(self.train) // BLOCK), 64 * self._words.shape[1] + 1, BLOCK // 64)
        space = np.empty(math.prod(shape) + 7, dtype=np.uint64)
        first = -(space.ctypes.data // 8) % 8  # rows of 64 bytes begin where cache lines do
        panel = space[first : first + math.prod(shape)].reshape(shape)
        compiled.to_rows(self._words, self.train, panel)
        return panel  # (lanes / 512, trials in whole words and a row of zeros, 8)


@dataclass(frozen=True, eq=False)
class Tests:
    """A chunk of test examples, each prepared for the kernel that will count it."""

    count: int
    by_words: np.ndarray  # positions in the chunk
    outcomes: np.ndarray  # (by_words, words) uint64
    by_rows: np.ndarray  # positions in the chunk
    wrong: np.ndarray  # (by_rows,) uint8: its rarer outcome is to be wrong
    starts: np.ndarray  # (by_rows + 1,) where its trials begin in `listed`
    listed: np.ndarray  # uint32, rows of the rarer outcome's trials, each example's padded to whole groups


class PackedCounter:
    """N11 of one set of trials. `method` is "popcount", "minority", or "auto" for the cheaper one."""

    def __init__(self, mask: np.ndarray, outcome: np.ndarray, n_train: int, n_test: int, method: str) -> None:
        self.trials = len(mask)
        self.train_words = _example_words(mask, n_train)  # (n_train, words)
        self.test_words = _example_words(outcome, n_test)  # (n_test, words)
        self.kept = _ones(self.train_words).astype(np.int32)  # (n_train,)
        self.right = _ones(self.test_words)  # (n_test,)
        self._method = method

    @property
    def panel_bytes(self) -> int:
        """Of a panel in both compiled."""
        return 2 * 8 * PANEL * int(self.train_words.shape[1])

    def tests(self, test: np.ndarray, lanes: int) -> Tests:
        """Prepare some test examples to be counted against panels of `lanes` training examples."""
        right = self.right[test]  # (tests,)
        wrong = 2 * right > self.trials  # (tests,)
        rare = np.where(wrong, self.trials - right, right)
        minority = self._takes_rows(rare, lanes)
        by_words, by_rows = np.flatnonzero(~minority), np.flatnonzero(minority)
        padded = -(-rare[by_rows] // GROUP) * GROUP
        starts = np.concatenate([[0], np.cumsum(padded)])  # (by_rows + 1,)
        listed = np.empty(starts[-1], dtype=np.uint32)
        few_wrong = wrong[by_rows].astype(np.uint8)
        compiled.list_minority(self.test_words[test[by_rows]], self.trials, few_wrong, starts, listed)
        return Tests(len(test), by_words, self.test_words[test[by_words]], by_rows, few_wrong, starts, listed)

    def _takes_rows(self, rare: np.ndarray, lanes: int) -> np.ndarray:
        """Which test examples, with so many trials of their rarer outcome, cost less by their rows."""
        if self._method != "auto":
            return (rare <= MOST_ROWS) & (self._method == "minority")
        words = self.train_words.shape[1]
        by_rows = -(-lanes // BLOCK) * BLOCK * (COUNTER_NS + ROW_NS * rare)
        gain = np.where(rare <= MOST_ROWS, lanes * words * WORD_NS - by_rows, 0.0)  # (tests,) ns a panel
        return np.asarray((gain > 0) & (gain[gain > 0].sum() > PREPARE_NS * words))

    def count(self, panel: Panel, tests: Tests, counts: np.ndarray) -> None:
        """Fill counts (tests, lanes) int32."""
        if len(tests.by_words):
            compiled.count_words(panel.words, tests.outcomes, tests.by_words, counts)
        if len(tests.by_rows):
            compiled.count_minority(
                panel.rows, tests.listed, tests.starts, tests.wrong, panel.kept, tests.by_rows, counts
            )


def each_tile(
    counters: Sequence[PackedCounter],
    train: np.ndarray,
    test: np.ndarray,
    use: Callable[[Sequence[np.ndarray], slice, slice], None],
    of: str,
    most_threads: int | None,
) -> None:
    """See `counts.each_tile`. A thread takes some test examples and all panels, or the other way round."""
    if not len(train) or not len(test):
        return
    threads = most_threads or thread_count()
    panels = -(-len(train) // PANEL)
    lanes = min(len(train), -(-len(train) // (panels * BLOCK)) * BLOCK)  # panels of equal width, in whole blocks
    panels_at_once = max(1, min(PANELS_BYTES // max(1, counters[0].panel_bytes), -(-panels // threads)))
    if of == "either":
        of = "test" if -(-len(test) // CHUNK) >= min(threads, panels) else "train"

    def count(rows: range, columns: range) -> None:
        """Of some panels, held at once, against chunks of test examples, one after the other."""
        parts = [slice(row, min(row + lanes, rows.stop)) for row in rows[::lanes]]
        held = [[Panel(counter, train[part]) for counter in counters] for part in parts]
        space = [np.empty(CHUNK * lanes, dtype=np.int32) for _ in counters]
        for column in columns[::CHUNK]:
            some = slice(column, min(column + CHUNK, columns.stop))
            tests = [counter.tests(test[some], lanes) for counter in counters]
            for part, panel in zip(parts, held):
                shape = (some.stop - some.start, part.stop - part.start)
                counts = [one[: shape[0] * shape[1]].reshape(shape) for one in space]
                for counter, one_panel, some_tests, found in zip(counters, panel, tests, counts):
                    counter.count(one_panel, some_tests, found)
                use(counts, part, some)

    def groups(n: int, size: int) -> list[range]:
        return [range(first, min(first + size, n)) for first in range(0, n, size)]

    panel_groups = groups(len(train), lanes * panels_at_once)
    if of == "train":
        tasks = [[(rows, range(len(test)))] for rows in panel_groups]
    else:
        shares = threads * -(-len(test) // (threads * TESTS_PER_TASK))
        tasks = [[(rows, columns) for rows in panel_groups] for columns in groups(len(test), -(-len(test) // shares))]

    def run(task: list[tuple[range, range]]) -> None:
        for rows, columns in task:
            count(rows, columns)

    in_threads(run, tasks, threads)


def work_bytes(trials: int) -> int:
    """What all threads hold at once: panels, lists of a chunk's trials, counts and estimates of a tile."""
    panels = max(PANELS_BYTES, 2 * 8 * PANEL * -(-trials // 64))
    return thread_count() * (panels + 2 * CHUNK * trials + 16 * CHUNK * PANEL)


def thread_count() -> int:
    """As many as Numba would use: the cores that this process may use, or NUMBA_NUM_THREADS."""
    return int(_config.NUMBA_NUM_THREADS)


def _example_words(bits: np.ndarray, n: int) -> np.ndarray:
    """Trials (trials, ceil(n / 8)) uint8 as words of 64 trials of each example, (n, ceil(trials / 64)) uint64."""
    bits = np.ascontiguousarray(bits)
    words = np.empty((n, -(-len(bits) // 64)), dtype=np.uint64)
    starts = range(0, n, TRANSPOSED_AT_ONCE)
    in_threads(
        lambda start: compiled.transpose(bits, words, start, min(n, start + TRANSPOSED_AT_ONCE)), starts, thread_count()
    )
    return words


def _ones(words: np.ndarray) -> np.ndarray:
    """How many bits of each row are set, (n,) int64."""
    counts = np.empty(len(words), dtype=np.int64)
    compiled.count_ones(words, counts)
    return counts
