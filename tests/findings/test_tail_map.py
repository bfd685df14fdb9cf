"""The map of the long tail: who is in which cell, and who stands for it, against looking at each cell one by one."""

import numpy as np

from memfluence.estimators import Memorization
from memfluence.findings import tail_map
from memfluence.findings.tail_map import column_of


def scores_of(kept: np.ndarray, held_out: np.ndarray, stderr: np.ndarray | None = None) -> Memorization:
    nothing = np.zeros(len(kept))
    value = kept - held_out
    counts = np.full(len(kept), 10)
    return Memorization(
        value, nothing + 0.1 if stderr is None else stderr, nothing, nothing, kept, held_out, counts, counts
    )


def test_columns_hold_their_lower_edge_and_the_last_one_also_1() -> None:
    kept = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.9, np.nan])
    held_out = np.array([1.0, 0.75, 0.7501, 0.0, 0.0625, 1.0, 1.0])
    assert column_of(scores_of(kept, held_out), 16).tolist() == [0, 4, 3, 15, 15, 0, -1]


def test_what_models_get_wrong_that_saw_it_is_not_typical() -> None:
    kept, held_out = np.array([0.1, 0.1, 0.49, 0.5]), np.array([0.1, 0.0, 0.2, 0.5])
    assert column_of(scores_of(kept, held_out), 4).tolist() == [4, 4, 1, 0]  # 0.29 is memorized, learned or not


def test_each_cell_against_looking_one_by_one() -> None:
    rng = np.random.default_rng(0)
    kept = np.round(1 - 0.6 * rng.random(400) ** 3, 2)
    held_out = np.round(kept * rng.random(400), 2)
    kept[7], held_out[9] = np.nan, np.nan
    stderr = np.round(rng.random(400), 1)
    rows = rng.integers(0, 3, 400)
    scores = scores_of(kept, held_out, stderr)
    found = tail_map(scores, rows, 8)
    seen = 0
    for row in range(3):
        for column in range(9):
            members = [k for k in range(400) if rows[k] == row and column_of(scores, 8)[k] == column]
            assert found.counts(row)[column] == len(members)
            cell = np.flatnonzero((found.row == row) & (found.column == column))
            assert len(cell) == (len(members) > 0)
            if not members:
                continue

            def far(k: int, column: int = column) -> float:
                return kept[k] if column == 8 else abs(1 - kept[k]) + abs(1 - column / 7 - held_out[k])

            assert found.index[cell[0]] == min(members, key=lambda k: (round(far(k), 9), stderr[k], k))
            seen += len(members)
    assert seen == 398  # without the two that have no estimate


def test_the_ends_of_a_row_are_the_most_typical_and_the_most_memorized() -> None:
    kept, held_out = np.array([1.0, 1.0, 1.0, 1.0]), np.array([0.97, 1.0, 0.0, 0.03])
    found = tail_map(scores_of(kept, held_out), np.zeros(4, np.int64))
    assert found.index.tolist() == [1, 2]
    assert found.count.tolist() == [2, 2]


def test_without_an_estimate_there_is_no_cell() -> None:
    found = tail_map(scores_of(np.full(3, np.nan), np.ones(3)), np.zeros(3, np.int64))
    assert len(found) == 0
