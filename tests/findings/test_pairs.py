"""High-influence pairs against a double loop, and the level of chance beside them."""

import numpy as np
import pytest

from memfluence.errors import InputError
from memfluence.estimators import arms, influence, memorization, p_values
from memfluence.findings import _selection, high_influence_pairs
from memfluence.records import Kind, Trials
from memfluence.seeding import generator

BOTH = (Kind(0.6, None),)
LEMMA = (Kind(0.6, 18, "in"), Kind(0.6, 17, "out"))


def make_world(trials=60, n_train=30, n_test=25, *, effect=0.5, kinds=None, repeats=1, seed=0):
    """Random trials in which training example i carries test example i, more or less."""
    rng = np.random.default_rng(seed)
    mask = rng.random((trials, n_train)) < 0.6
    mask = mask[np.arange(trials) // repeats * repeats]
    mask[:, 0], mask[:, 1] = True, False  # no estimate for these
    train_correct = rng.random((trials, n_train)) < np.where(mask, 0.9, 0.9 - effect)
    test_correct = rng.random((trials, n_test)) < np.where(mask[:, :n_test], 0.8, 0.8 - effect)
    packed = [np.packbits(bits, axis=1, bitorder="little") for bits in (mask, train_correct, test_correct)]
    kinds = np.zeros(trials, np.int16) if kinds is None else kinds
    labels = rng.integers(0, 3, n_train)
    return Trials(np.arange(trials), kinds, *packed, n_train, n_test, repeats), labels, labels[:n_test]


def double_loop(trials, kinds, train_labels, test_labels, mem, infl, same_class):
    memorized, matrix = memorization(trials, kinds).value, influence(trials, kinds).block()
    found = [
        (-matrix[i, j], i, j)
        for i in range(trials.n_train)
        for j in range(trials.n_test)
        if memorized[i] >= mem and matrix[i, j] >= infl and (train_labels[i] == test_labels[j] or not same_class)
    ]
    return sorted(found)


@pytest.mark.parametrize("same_class", [True, False])
@pytest.mark.parametrize(("mem", "infl"), [(0.25, 0.15), (0.25, -1), (-1, 0.0), (0.9, 0.9)])
def test_equals_a_double_loop(monkeypatch, same_class, mem, infl):
    monkeypatch.setattr(_selection, "ESTIMATES_AT_ONCE", 40)
    trials, train_labels, test_labels = make_world()
    train_labels[train_labels == 2] = 1  # a class that only test has
    options = {"mem": mem, "infl": infl, "same_class": same_class}
    expected = double_loop(trials, BOTH, train_labels, test_labels, **options)
    found = high_influence_pairs(trials, BOTH, train_labels, test_labels, permutations=0, **options)
    assert list(zip(-found.influence, found.train_index, found.test_index)) == expected
    np.testing.assert_array_equal(found.label, train_labels[found.train_index])
    np.testing.assert_array_equal(found.memorization, memorization(trials, BOTH).value[found.train_index])
    errors = influence(trials, BOTH).at(found.train_index, found.test_index)
    for name in ("stderr", "lower", "upper"):
        np.testing.assert_array_equal(getattr(found, name), getattr(errors, name))
    assert not set(found.train_index.tolist()) & {0, 1}  # NaN is never selected


def test_ties_go_to_the_lower_train_then_test_index():
    mask = np.array([[1, 1], [0, 0], [1, 1], [0, 0]], dtype=bool)
    packed = np.packbits(mask, axis=1, bitorder="little")
    trials = Trials(np.arange(4), np.zeros(4, np.int16), packed, packed, packed, 2, 2)
    found = high_influence_pairs(trials, BOTH, np.zeros(2, int), np.zeros(2, int), permutations=0)
    assert list(zip(found.train_index, found.test_index)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert (found.influence == 1).all()


def test_thresholds_are_met_exactly():
    """3/4 - 1/2 is exactly 0.25: at the threshold means selected."""
    kept = np.array([1, 1, 1, 1, 0, 0, 0, 0], dtype=bool)[:, None]
    right = np.array([1, 1, 1, 0, 1, 1, 0, 0], dtype=bool)[:, None]
    mask, correct = (np.packbits(bits, axis=1, bitorder="little") for bits in (kept, right))
    trials = Trials(np.arange(8), np.zeros(8, np.int16), mask, correct, correct, 1, 1)
    label = np.zeros(1, int)
    assert len(high_influence_pairs(trials, BOTH, label, label, mem=0.25, infl=0.25, permutations=0)) == 1
    above = np.nextafter(0.25, 1)
    assert len(high_influence_pairs(trials, BOTH, label, label, mem=0.25, infl=above, permutations=0)) == 0
    assert len(high_influence_pairs(trials, BOTH, label, label, mem=above, infl=0.25, permutations=0)) == 0


def test_summary_counts():
    trials, train_labels, test_labels = make_world()
    found = high_influence_pairs(trials, BOTH, train_labels, test_labels, permutations=0)
    tests = found.test_index.tolist()
    assert found.summary == {
        "pairs": len(tests),
        "train_examples": len(set(found.train_index.tolist())),
        "test_examples": len(set(tests)),
        "single_test_examples": sum(tests.count(test) == 1 for test in set(tests)),
    }
    assert found.summary["pairs"] > found.summary["single_test_examples"] > 0


@pytest.mark.parametrize(("kinds", "repeats"), [(BOTH, 1), (LEMMA, 1), (BOTH, 3)])
def test_chance_is_the_same_selection_from_permuted_masks(kinds, repeats):
    kind_of_trial = (np.arange(60) % len(kinds)).astype(np.int16)
    trials, train_labels, test_labels = make_world(kinds=kind_of_trial, repeats=repeats)
    found = high_influence_pairs(trials, kinds, train_labels, test_labels, permutations=4, seed=7)
    memorized = memorization(trials, kinds).value >= 0.25  # held fixed
    expected = []
    for number in range(4):
        permuted = arms(trials, kinds).permuted(generator(7, "permutation", number))
        matrix = type(influence(trials, kinds))(permuted).block()
        allowed = memorized[:, None] & (train_labels[:, None] == test_labels[None, :])
        expected.append(int((allowed & (matrix >= 0.15)).sum()))
    assert found.permuted_counts.tolist() == expected
    assert found.expected_by_chance == np.mean(expected)


def test_few_trials_are_mostly_chance_and_many_are_not():
    few, train_labels, test_labels = make_world(trials=40, effect=0.3)
    found = high_influence_pairs(few, BOTH, train_labels, test_labels)
    assert len(found) > 0
    assert found.expected_by_chance > 0.1 * len(found)
    assert "by chance alone" in found.warning
    assert f"{len(found):,} found" in found.warning
    many, train_labels, test_labels = make_world(trials=3000, effect=0.4)
    found = high_influence_pairs(many, BOTH, train_labels, test_labels)
    np.testing.assert_array_equal(np.sort(found.train_index), np.arange(2, 25))
    np.testing.assert_array_equal(found.train_index, found.test_index)
    assert found.expected_by_chance == 0
    assert found.warning is None


def test_no_pairs_is_said():
    trials, train_labels, test_labels = make_world(effect=0.0)
    found = high_influence_pairs(trials, BOTH, train_labels, test_labels, mem=0.9, infl=0.9)
    assert len(found) == 0
    assert found.summary == dict.fromkeys(("pairs", "train_examples", "test_examples", "single_test_examples"), 0)
    assert found.warning.startswith("No pair reaches memorization 0.9 and influence 0.9")


def test_chance_not_asked_for_is_nan():
    trials, train_labels, test_labels = make_world()
    found = high_influence_pairs(trials, BOTH, train_labels, test_labels, permutations=0)
    assert np.isnan(found.expected_by_chance)
    assert found.warning is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mem": 1.5}, "`mem` threshold must be between -1 and 1. Got 1.5"),
        ({"infl": float("nan")}, "`infl` threshold must be between -1 and 1. Got nan"),
        ({"permutations": -1}, "0 or more. Got -1"),
        ({"keep": 0.9}, "no trials with keep 0.9"),
    ],
)
def test_bad_input_is_one_sentence(options, message):
    trials, train_labels, test_labels = make_world()
    with pytest.raises(InputError, match=message):
        high_influence_pairs(trials, BOTH, train_labels, test_labels, **options)
    with pytest.raises(InputError, match="25 test examples but their labels have the shape"):
        high_influence_pairs(trials, BOTH, train_labels, train_labels)


def naive_discoveries(trials, train_labels, test_labels, rate, null, any_dependence):
    """Every pair's p-value by SciPy or the score test, and Benjamini and Hochberg's procedure as it is written."""
    from scipy.stats import fisher_exact

    memorized = memorization(trials, BOTH).value
    estimates = influence(trials, BOTH)
    x, a, y, b = estimates.counts()
    tested = []
    for i in np.flatnonzero(memorized >= 0.25):
        for j in np.flatnonzero(test_labels == train_labels[i]):
            one = (x[i, j], a[i, 0], y[i, j], b[i, 0])
            if null == 0:
                table = [[one[0], one[1] - one[0]], [one[2], one[3] - one[2]]]
                p = fisher_exact(table, alternative="greater")[1]
            else:
                p = float(p_values(*one, null=null))
            tested.append((p, int(i), int(j)))
    tested.sort()
    count = len(tested)
    rate = rate / sum(1 / k for k in range(1, count + 1)) if any_dependence else rate
    last = max([k for k, (p, _, _) in enumerate(tested, 1) if p <= rate * k / count], default=0)
    return {(i, j) for _, i, j in tested[:last]}, count


@pytest.mark.parametrize("any_dependence", [False, True])
@pytest.mark.parametrize("null", [0.0, 0.1])
def test_discoveries_equal_the_procedure_by_hand(monkeypatch, null, any_dependence):
    monkeypatch.setattr(_selection, "ESTIMATES_AT_ONCE", 40)
    trials, train_labels, test_labels = make_world(effect=0.45)
    options = {"null": null, "any_dependence": any_dependence}
    expected, tested = naive_discoveries(trials, train_labels, test_labels, 0.1, **options)
    found = high_influence_pairs(trials, BOTH, train_labels, test_labels, fdr=0.1, permutations=0, **options)
    assert set(zip(found.train_index.tolist(), found.test_index.tolist())) == expected
    assert 0 < len(found) < tested == found.tested
    assert (found.q_value <= 0.1).all()
    assert (found.p_value <= found.q_value).all()
    assert (np.diff(found.influence) <= 0).all()
    counts = influence(trials, BOTH).counts()
    again = p_values(*np.broadcast_arrays(*counts), null=null)[found.train_index, found.test_index]
    np.testing.assert_array_equal(found.p_value, again)


def test_a_threshold_only_drops_discoveries():
    trials, train_labels, test_labels = make_world(trials=300, effect=0.4)
    labels = (train_labels, test_labels)
    every = high_influence_pairs(trials, BOTH, *labels, fdr=0.1, permutations=0)
    some = high_influence_pairs(trials, BOTH, *labels, fdr=0.1, infl=0.4, permutations=0)
    kept = every.influence >= 0.4
    assert 0 < kept.sum() < len(every)
    np.testing.assert_array_equal(some.train_index, every.train_index[kept])
    np.testing.assert_array_equal(some.q_value, every.q_value[kept])


def test_chance_of_discoveries_is_their_p_value_from_permuted_masks():
    trials, *labels = make_world(trials=80, effect=0.45)
    found = high_influence_pairs(trials, BOTH, *labels, fdr=0.3, permutations=3, seed=5)
    level = found.p_value.max()
    memorized = memorization(trials, BOTH).value >= 0.25
    allowed = memorized[:, None] & (labels[0][:, None] == labels[1][None, :])
    expected = []
    for number in range(3):
        permuted = arms(trials, BOTH).permuted(generator(5, "permutation", number))
        counts = type(influence(trials, BOTH))(permuted).counts()
        expected.append(int((allowed & (p_values(*np.broadcast_arrays(*counts)) <= level)).sum()))
    assert found.permuted_counts.tolist() == expected
    assert found.by_chance_spread == pytest.approx(np.std(expected, ddof=1))


def test_trials_on_one_mask_are_not_taken_for_independent():
    """Each model thrice: as many discoveries as the models once, or fewer."""
    trials, *labels = make_world(trials=60, effect=0.45)
    thrice = trials.select(np.repeat(np.arange(60), 3))
    thrice = Trials(**{**vars(thrice), "numbers": np.arange(180), "repeats": 3})
    once = high_influence_pairs(trials, BOTH, *labels, fdr=0.1, permutations=0)
    again = high_influence_pairs(thrice, BOTH, *labels, fdr=0.1, permutations=0)
    naive = high_influence_pairs(Trials(**{**vars(thrice), "repeats": 1}), BOTH, *labels, fdr=0.1, permutations=0)
    assert len(naive) > 1.5 * len(once)
    assert abs(len(again) - len(once)) <= 0.3 * len(once)


def test_nothing_discovered_is_said():
    trials, *labels = make_world(trials=8, effect=0.0)
    found = high_influence_pairs(trials, BOTH, *labels, mem=-1, fdr=0.01)
    assert len(found) == 0
    assert found.warning.startswith("No pair can be told from chance at a false discovery rate of 0.01")
    for bad in ({"fdr": 0.0}, {"fdr": 0.5}, {"fdr": float("nan")}, {"fdr": 0.1, "null": 1.0}):
        with pytest.raises(InputError, match="must be"):
            high_influence_pairs(trials, BOTH, *labels, **bad)
