"""Influence against plain NumPy: whole, in parts, at pairs, and the largest per test example."""

import importlib

import numpy as np
import pytest
from bool_trials import BOTH, make_trials, random_trials, unpacked
from hypothesis import given, settings
from hypothesis import strategies as st

from memfluence.errors import InputError
from memfluence.estimators import _estimates, counts, difference, influence
from memfluence.records import Kind

LEMMA = (Kind(0.7, 21, "in"), Kind(0.7, 20, "out"))
METHODS = ["matmul", "popcount", "minority"]
MODULE = importlib.import_module("memfluence.estimators.influence")  # the package's attribute is the function


def plain(mask, correct):
    mask, correct = mask.astype(int), correct.astype(int)
    right_in, right_out = mask.T @ correct, (1 - mask).T @ correct
    with np.errstate(invalid="ignore"):
        return right_in / mask.sum(0)[:, None] - right_out / (1 - mask).sum(0)[:, None]


def awkward_trials():
    """Examples always in and never in, test examples always right and never right."""
    trials = random_trials(75, 40, 23)
    mask, train_correct, correct = unpacked(trials)
    mask[:, 0], mask[:, 1], correct[:, 0], correct[:, 1] = True, False, True, False
    return make_trials(mask, correct, train_correct)


@pytest.mark.parametrize("method", METHODS)
def test_the_matrix_equals_the_plain_computation_to_the_last_bit(method):
    trials = awkward_trials()
    mask, _, correct = unpacked(trials)
    values = influence(trials, BOTH, method=method).block()
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, plain(mask, correct))
    assert np.isnan(values[:2]).all()
    assert (values[2:, :2] == 0).all()


def test_the_lemmas_terms_come_from_separate_counts():
    trials = random_trials(200, 30, 20, kinds=np.arange(200) % 2)
    mask, _, correct = unpacked(trials)
    first, second = mask[::2].astype(int), 1 - mask[1::2].astype(int)
    expected = (first.T @ correct[::2]) / first.sum(0)[:, None] - (second.T @ correct[1::2]) / second.sum(0)[:, None]
    found = influence(trials, LEMMA)
    np.testing.assert_array_equal(found.block(), expected)
    np.testing.assert_array_equal(found.at([3, 4], [5, 6]).value, expected[[3, 4], [5, 6]])


def test_parts_of_the_matrix():
    trials = awkward_trials()
    estimates = influence(trials, BOTH)
    whole = estimates.block()
    np.testing.assert_array_equal(estimates.block(test=[7, 3]), whole[:, [7, 3]])
    np.testing.assert_array_equal(estimates.block(train=[9, 0, 9]), whole[[9, 0, 9]])
    np.testing.assert_array_equal(estimates.block(train=[5], test=np.arange(23) > 20), whole[[5]][:, 21:])
    assert estimates.block(train=[], test=[1]).shape == (0, 1)
    narrow = estimates.block(dtype=np.float32)
    assert narrow.dtype == np.float32
    np.testing.assert_array_equal(narrow, whole.astype(np.float32))


def test_errors_of_blocks_and_pairs_agree():
    trials = awkward_trials()
    estimates = influence(trials, BOTH)
    block = estimates.block_with_errors()
    np.testing.assert_array_equal(block.value, estimates.block())
    train, test = np.divmod(np.arange(40 * 23), 23)
    pairs = estimates.at(train, test)
    for name in ("value", "stderr", "lower", "upper"):
        np.testing.assert_array_equal(getattr(block, name).ravel(), getattr(pairs, name))
    mask, _, correct = unpacked(trials)
    kept = mask[:, 5]
    expected = difference((kept & correct[:, 7]).sum(), kept.sum(), (~kept & correct[:, 7]).sum(), (~kept).sum())
    assert (block.lower[5, 7], block.upper[5, 7]) == (expected.lower, expected.upper)
    assert block.stderr[5, 7] == expected.stderr
    assert (block.stderr[2:] > 0).all()


@pytest.mark.parametrize("tile", [(7, 5), (40, 1), (1, 23)])
def test_tiles_do_not_change_anything(monkeypatch, tile):
    estimates = influence(awkward_trials(), BOTH, method="matmul")
    whole, errors, top = estimates.block(), estimates.block_with_errors(), estimates.top_k(6)
    monkeypatch.setattr(counts, "EXAMPLES_AT_ONCE", tile[0])
    monkeypatch.setattr(counts, "TRIALS_AT_ONCE", tile[1])
    monkeypatch.setattr(MODULE, "DIVIDED_AT_ONCE", 11)
    np.testing.assert_array_equal(estimates.block(), whole)
    np.testing.assert_array_equal(estimates.block_with_errors().upper, errors.upper)
    np.testing.assert_array_equal(estimates.top_k(6).index, top.index)
    np.testing.assert_array_equal(estimates.top_k(6).value, top.value)


def test_a_block_can_be_written_where_the_caller_wants_it():
    estimates = influence(awkward_trials(), BOTH)
    out = np.zeros((23, 40), np.float32).T
    assert estimates.block(out=out) is out
    np.testing.assert_array_equal(out, estimates.block().astype(np.float32))
    with pytest.raises(InputError, match="of shape \\(40, 23\\) in Fortran order"):
        estimates.block(out=np.zeros((40, 23)))


def test_class_blocks_cover_every_class():
    trials = awkward_trials()
    rng = np.random.default_rng(0)
    train_labels, test_labels = rng.integers(0, 4, 40), rng.integers(0, 4, 23)
    train_labels[train_labels == 1] = 0  # a class that only test has
    test_labels[test_labels == 2] = 3  # a class that only train has
    estimates = influence(trials, BOTH)
    whole = estimates.block()
    blocks = list(estimates.class_blocks(train_labels, test_labels))
    assert [block.label for block in blocks] == [0, 1, 2, 3]
    for block in blocks:
        np.testing.assert_array_equal(block.train, np.flatnonzero(train_labels == block.label))
        np.testing.assert_array_equal(block.test, np.flatnonzero(test_labels == block.label))
        np.testing.assert_array_equal(block.values, whole[block.train][:, block.test])
    assert blocks[1].values.shape[0] == 0
    assert blocks[2].values.shape[1] == 0


def brute_force_top_k(values, k):
    index, value = np.full((values.shape[1], k), -1), np.full((values.shape[1], k), np.nan)
    for j, column in enumerate(values.T):
        ranked = sorted((-v, i) for i, v in enumerate(column.tolist()) if v == v)[:k]
        for place, (negative, i) in enumerate(ranked):
            index[j, place], value[j, place] = i, -negative
    return index, value


@given(
    trials=st.integers(1, 12),  # few trials: many ties and many NaN
    n_train=st.integers(1, 40),
    n_test=st.integers(1, 8),
    k=st.integers(1, 50),
    examples_at_once=st.integers(1, 50),
    method=st.sampled_from(METHODS),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=80, deadline=None)
def test_top_k_equals_a_sort(trials, n_train, n_test, k, examples_at_once, method, seed):
    estimates = influence(random_trials(trials, n_train, n_test, seed=seed), BOTH, method=method)
    values = estimates.block()
    index, value = brute_force_top_k(values, k)
    test_index, test_value = brute_force_top_k(values.T, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "EXAMPLES_AT_ONCE", examples_at_once)
        top, tests = estimates.top_k(k), estimates.top_tests(k)
        if method == "matmul":  # as where the kernels are not loaded
            patch.setattr(_estimates, "keep_largest", _estimates.keep_largest_plainly)
            plain_top, plain_tests = estimates.top_k(k), estimates.top_tests(k)
            for plain, fast in ((plain_top, top), (plain_tests, tests)):
                np.testing.assert_array_equal(plain.index, fast.index)
                np.testing.assert_array_equal(plain.value, fast.value)
    np.testing.assert_array_equal(top.index, index)
    np.testing.assert_array_equal(top.value, value)
    np.testing.assert_array_equal(tests.index, test_index)
    np.testing.assert_array_equal(tests.value, test_value)


def test_top_k_of_chosen_test_examples():
    estimates = influence(awkward_trials(), BOTH)
    everything, chosen = estimates.top_k(4), estimates.top_k(4, test=[9, 2])
    np.testing.assert_array_equal(chosen.test, [9, 2])
    np.testing.assert_array_equal(chosen.index, everything.index[[9, 2]])
    of_all, of_some = estimates.top_tests(4), estimates.top_tests(4, train=[30, 0, 5])
    np.testing.assert_array_equal(of_some.train, [30, 0, 5])
    np.testing.assert_array_equal(of_some.index, of_all.index[[30, 0, 5]])
    assert (of_some.index[1] == -1).all()  # always kept: no estimate


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.block(test=[23]), "no test example 23; choose indices from 0 to 22"),
        (lambda e: e.block(train=[-1]), "no train example -1"),
        (lambda e: e.block(train=[0.5]), "flat list of indices; got float64"),
        (lambda e: e.at([1, 2], [3]), "as many training as test indices; got 2 and 1"),
        (lambda e: e.top_k(0), "at least 1; got 0"),
    ],
)
def test_bad_input_is_one_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call(influence(awkward_trials(), BOTH))
