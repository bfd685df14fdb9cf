"""Map of the long tail: how many training examples of each class are typical and how many memorized, and one of each.

Definition. A row is a class, a column a range of memorization of one width. They run from typical (memorization 0:
right also in models that never saw it) to memorized (1: right only if it was seen); values below 0 belong to the first.
A last column beside them holds the examples that are not learned: most models are wrong on them even if they saw them,
so a memorization near 0 does not make them typical.

Selection, so that nobody has to trust ours. Column k of K stands for the value k / (K - 1), from exactly 0 to exactly
1, which lies in its range. Its cell shows the example whose accuracies are nearest to what that value means: 1 if kept,
1 minus the value if held out; the last column shows the one that is right least often if kept. Ties go to the smaller
standard error, then to the lower index.

Failure cases. An example without an estimate (NaN) is in no cell. With few trials chance tells neighbouring columns
apart: the standard error of a value may be wider than a column.
"""

from dataclasses import dataclass

import numpy as np

from memfluence.estimators import Memorization

COLUMNS = 16  # 0.25, the paper's threshold, is an edge also where two or four are joined
LEARNED = 0.5  # right in at least so many of the models that kept it


@dataclass(frozen=True, eq=False)
class TailMap:
    """Cells that hold an example, by row, then by column."""

    columns: int  # ranges of memorization; the column of this number holds what is not learned
    row: np.ndarray  # (cells,) int64, code of the class
    column: np.ndarray  # (cells,) int64
    count: np.ndarray  # (cells,) int64, examples in the cell
    index: np.ndarray  # (cells,) int64, the training example that is shown

    def __len__(self) -> int:
        return len(self.row)

    def counts(self, row: int) -> np.ndarray:
        """Examples of a row in each column, those that are not learned last: (columns + 1,)."""
        own = self.row == row
        return np.bincount(self.column[own], self.count[own], self.columns + 1).astype(np.int64)


def column_of(scores: Memorization, columns: int = COLUMNS) -> np.ndarray:
    """The column of each training example, (n_train,) int64; -1 without an estimate."""
    known = ~np.isnan(scores.value)
    value = np.where(known, scores.value, 0.0)
    column = np.clip(np.floor(value * columns), 0, columns - 1).astype(np.int64)
    unlearned = (scores.accuracy_in < LEARNED) & (4 * column < columns)
    return np.where(known, np.where(unlearned, columns, column), -1)


def tail_map(scores: Memorization, rows: np.ndarray, columns: int = COLUMNS) -> TailMap:
    """The map of training examples whose rows (codes of classes) are `rows`, (n_train,)."""
    column = column_of(scores, columns)
    some = np.flatnonzero(column >= 0)
    key = rows[some].astype(np.int64) * (columns + 1) + column[some]
    stands_for = column[some] / (columns - 1)
    kept, held_out = scores.accuracy_in[some], scores.accuracy_out[some]
    distance = np.where(column[some] == columns, kept, np.abs(1 - kept) + np.abs(1 - stands_for - held_out))
    order = np.lexsort((some, scores.stderr[some], np.round(distance, 9), key))
    cells, first, count = np.unique(key[order], return_index=True, return_counts=True)
    return TailMap(columns, cells // (columns + 1), cells % (columns + 1), count, some[order][first])
