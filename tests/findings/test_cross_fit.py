"""Values from trials that took no part in the selection."""

import numpy as np

import studies
from memfluence.estimators import influence, memorization
from memfluence.findings import cross_fitted_pairs, high_influence_pairs
from memfluence.findings.cross_fit import halves
from memfluence.records import Trials
from simulated import probit_world


def a_run(count=120, seed=0):
    rng = np.random.default_rng(seed)
    world = probit_world(rng, n_train=60, n_test=40, n_classes=3)
    return world, world.trials(count, rng)


def test_each_half_selects_and_the_other_gives_the_value():
    world, trials = a_run()
    found = cross_fitted_pairs(trials, *world.labelled, infl=0.2, seed=3)
    both = halves(trials, 3)
    for half, other in ((0, 1), (1, 0)):
        expected = high_influence_pairs(both[half], *world.labelled, infl=0.2, permutations=0)
        mine = np.flatnonzero(found.half == half)
        mine = mine[np.lexsort((found.test_index[mine], found.train_index[mine]))]
        order = np.lexsort((expected.test_index, expected.train_index))
        pairs = (found.train_index[mine], found.test_index[mine])
        np.testing.assert_array_equal(pairs, (expected.train_index[order], expected.test_index[order]))
        np.testing.assert_array_equal(found.influence_selecting[mine], expected.influence[order])
        values = influence(both[other], world.kinds).at(*pairs)
        np.testing.assert_array_equal(found.influence[mine], values.value)
        np.testing.assert_array_equal(found.stderr[mine], values.stderr)
        np.testing.assert_array_equal(found.memorization[mine], memorization(both[other], world.kinds).value[pairs[0]])
    assert len(found) > 10
    assert (np.diff(found.influence[np.isfinite(found.influence)]) <= 0).all()


def test_halves_keep_clusters_together_and_kinds_even():
    _, trials = a_run(count=121)
    for options in ({}, {"repeats": 4}, {"block": 10}, {"kinds": (np.arange(121) % 2).astype(np.int16)}):
        made = Trials(**{**vars(trials), **options})
        first, second = halves(made, seed=1)
        assert sorted([*first.numbers, *second.numbers]) == list(range(121))
        if made.cluster > 1:
            assert not set(first.numbers // made.cluster) & set(second.numbers // made.cluster)
        for kind in np.unique(made.kinds):
            sizes = [(half.kinds == kind).sum() for half in (first, second)]
            assert abs(sizes[0] - sizes[1]) < 2 * made.cluster
    assert halves(trials, 0, 1)[0].numbers.tolist() != halves(trials, 0, 2)[0].numbers.tolist()


def test_corrected_values_beat_raw_ones(soak):
    sizes = {} if soak else {"counts": (100, 400), "worlds": 8}
    rows = studies.selection_bias(**sizes)
    for all_raw, raw, corrected in zip(rows[::3], rows[1::3], rows[2::3]):
        assert abs(corrected["bias"]) < 0.1 * raw["bias"] + 0.004
        assert corrected["root mean squared error"] < raw["root mean squared error"]
        if all_raw["bias"] > 0.05:  # where most of what all trials select is chance, they beat those as well
            assert corrected["root mean squared error"] < all_raw["root mean squared error"]
