"""The Jaccard index and the average difference, against sets worked by hand and plain Python sets."""

import numpy as np
import pytest

from memfluence.errors import InputError
from memfluence.estimators import influence, memorization
from memfluence.findings.agreement import Agreement, Part, agreement, influence_agreement
from memfluence.findings.cross_fit import halves
from simulated import probit_world

YES = np.True_


def test_sets_worked_by_hand() -> None:
    """At 0.2: {0, 1, 2} and {0, 1, 4}; at 0.5: {0, 1} and {0}; at 0.9 neither selects anything."""
    first = np.array([0.5, 0.7, 0.2, 0.1, 0.0])
    second = np.array([0.6, 0.4, 0.1, 0.1, 0.3])
    found = agreement([Part(first, second, YES, YES)], [0.2, 0.5, 0.9])
    assert found.first.tolist() == [3, 2, 0]
    assert found.second.tolist() == [3, 1, 0]
    assert found.shared.tolist() == [2, 1, 0]
    assert found.either.tolist() == [4, 2, 0]
    assert found.jaccard == pytest.approx([2 / 4, 1 / 2, np.nan], nan_ok=True)
    assert found.difference == pytest.approx([(0.1 + 0.3 + 0.1 + 0.3) / 4, (0.1 + 0.3) / 2, np.nan], nan_ok=True)


def test_each_side_uses_its_own_memorization() -> None:
    """Row 0 is memorized on both sides, row 1 by the first side alone: its pairs are in one set, and in the union."""
    first = np.array([[0.3, 0.1], [0.4, 0.0]])
    second = np.array([[0.2, 0.3], [0.5, 0.9]])
    found = agreement([Part(first, second, np.array([[True], [True]]), np.array([[True], [False]]))], [0.2])
    # first selects (0, 0), (1, 0); second (0, 0), (0, 1); (1, 1) is large on a side that may not select it
    assert (found.first[0], found.second[0], found.shared[0], found.either[0]) == (2, 2, 1, 3)
    assert found.difference == pytest.approx([(0.1 + 0.2 + 0.1) / 3])


def test_what_one_side_cannot_estimate_is_left_out() -> None:
    first, second = np.array([0.5, np.nan, 0.5]), np.array([0.5, 0.9, np.nan])
    found = agreement([Part(first, second, YES, YES)], [0.25])
    assert (found.first[0], found.second[0], found.shared[0]) == (1, 1, 1)
    assert found.difference.tolist() == [0]


def test_a_value_equal_to_a_threshold_is_selected_also_in_float32() -> None:
    values = np.array([0.1, 0.15, 0.35])
    for dtype in (np.float64, np.float32):
        found = agreement([Part(values.astype(dtype), values.astype(dtype), YES, YES)], [0.1, 0.15, 0.35])
        assert found.first.tolist() == [3, 2, 1]


@pytest.mark.parametrize("same_class", [True, False])
def test_two_halves_equal_plain_sets(same_class: bool) -> None:
    world = probit_world(np.random.default_rng(0), n_train=60, n_test=40, n_classes=4)
    sides = halves(world.trials(200, np.random.default_rng(1)))
    thresholds = np.arange(0, 9) / 20
    memorized = tuple(memorization(side, world.kinds).value >= 0.25 for side in sides)
    estimates = [influence(side, world.kinds) for side in sides]
    found = influence_agreement(
        estimates[0],
        estimates[1],
        (memorized[0], memorized[1]),
        world.train_labels,
        world.test_labels,
        thresholds,
        same_class=same_class,
    )
    matrices = [one.block() for one in estimates]
    for k, threshold in enumerate(thresholds):
        sets = [
            {
                (i, j)
                for i in range(60)
                for j in range(40)
                if may[i]
                and matrix[i, j] >= threshold
                and (not same_class or world.train_labels[i] == world.test_labels[j])
            }
            for matrix, may in zip(matrices, memorized)
        ]
        both, either = sets[0] & sets[1], sets[0] | sets[1]
        assert (found.first[k], found.second[k], found.shared[k]) == (len(sets[0]), len(sets[1]), len(both))
        assert found.jaccard[k] == len(both) / len(either)
        gaps = [abs(matrices[0][pair] - matrices[1][pair]) for pair in either]
        assert found.difference[k] == pytest.approx(np.mean(gaps), rel=1e-12)


def test_a_side_agrees_with_itself() -> None:
    world = probit_world(np.random.default_rng(0), n_train=60, n_test=40, n_classes=4)
    trials = world.trials(100, np.random.default_rng(1))
    estimates, may = influence(trials, world.kinds), memorization(trials, world.kinds).value >= 0.25
    found: Agreement = influence_agreement(
        estimates, estimates, (may, may), world.train_labels, world.test_labels, [0.1]
    )
    assert found.first[0] > 0
    assert (found.jaccard[0], found.difference[0]) == (1, 0)


def test_a_cap_on_memory_is_kept() -> None:
    world = probit_world(np.random.default_rng(0), n_train=60, n_test=40, n_classes=4)
    trials = world.trials(100, np.random.default_rng(1))
    estimates, may = influence(trials, world.kinds, memory=1), memorization(trials, world.kinds).value >= 0.25
    with pytest.raises(InputError, match="beyond the memory"):
        influence_agreement(estimates, estimates, (may, may), world.train_labels, world.test_labels, [0.1])
