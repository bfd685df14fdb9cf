"""Every way to look at all pairs, on every kernel, equals plain NumPy to the last bit on the worst of trials."""

import importlib

import numpy as np
import pytest
from bool_trials import BOTH, make_trials, random_trials, unpacked
from hypothesis import given, settings
from hypothesis import strategies as st

from memfluence.errors import InputError
from memfluence.estimators import arms, counts, influence, memorization
from memfluence.estimators.kernels import int8
from memfluence.findings import high_influence_pairs
from memfluence.records import Kind

LEMMA = (Kind(0.7, None, "in"), Kind(0.7, None, "out"))
METHODS = ["matmul", "popcount", "minority", "auto"]
MODULE = importlib.import_module("memfluence.estimators.influence")  # the package's attribute is the function


def plain_influence(trials, kinds):
    """The matrix from its definition, one arm after the other."""
    mask, _, correct = unpacked(trials)
    in_rows = trials.kinds == 0
    out_rows = in_rows if len(kinds) == 1 else ~in_rows
    kept, left_out = mask[in_rows].astype(int), (~mask[out_rows]).astype(int)
    with np.errstate(invalid="ignore"):
        share_in = kept.T @ correct[in_rows].astype(int) / kept.sum(axis=0)[:, None]
        share_out = left_out.T @ correct[out_rows].astype(int) / left_out.sum(axis=0)[:, None]
        return share_in - share_out


@st.composite
def worst_trials(draw):
    """Examples always or never kept, always or never right, in all trials but one, equal to each other, or random."""
    trials = draw(st.sampled_from([1, 2, 3, 16, 63, 64, 65, 127, 128, 130, 200]))
    n_train, n_test = draw(st.integers(1, 70)), draw(st.integers(1, 40))
    kinds = draw(st.sampled_from([BOTH, LEMMA]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    mask = rng.random((trials, n_train)) < rng.random()
    correct = rng.random((trials, n_test)) < rng.random(n_test)
    habits = st.sampled_from(["random", "always", "never", "all but one", "only one", "as the first"])
    for bits in (mask, correct):
        for column in range(min(bits.shape[1], 6)):
            habit = draw(habits)
            if habit in ("always", "all but one"):
                bits[:, column] = True
            if habit in ("never", "only one"):
                bits[:, column] = False
            if habit in ("all but one", "only one"):
                bits[rng.integers(trials), column] ^= True
            if habit == "as the first":
                bits[:, column] = mask[:, 0]
    train_correct = rng.random((trials, n_train)) < np.where(mask, 0.9, 0.4)
    kind_of_trial = np.arange(trials) % len(kinds)
    return make_trials(mask, correct, train_correct, kinds=kind_of_trial), kinds, rng


def brute_force_top_k(values, k):
    index, value = np.full((values.shape[1], k), -1), np.full((values.shape[1], k), np.nan)
    for j, column in enumerate(values.T):
        ranked = sorted((-v, i) for i, v in enumerate(column.tolist()) if v == v)[:k]
        for place, (negative, i) in enumerate(ranked):
            index[j, place], value[j, place] = i, -negative
    return index, value


def some_threshold(values, rng):
    """One of the values, or between: exactly at the threshold is selected."""
    known = np.unique(values[~np.isnan(values)])
    return float(rng.choice(known)) if len(known) and rng.random() < 0.7 else float(rng.uniform(-1, 1))


@given(world=worst_trials(), method=st.sampled_from(METHODS), k=st.integers(1, 5))
@settings(max_examples=150, deadline=None)
def test_every_scan_equals_plain_numpy(world, method, k):
    trials, kinds, rng = world
    expected = plain_influence(trials, kinds)
    estimates = influence(trials, kinds, method=method)
    np.testing.assert_array_equal(estimates.block(), expected)
    np.testing.assert_array_equal(estimates.block(dtype=np.float32), expected.astype(np.float32))
    for found, values in ((estimates.top_k(k), expected), (estimates.top_tests(k), expected.T)):
        index, value = brute_force_top_k(values, k)
        np.testing.assert_array_equal(found.index, index)
        np.testing.assert_array_equal(found.value, value)
    threshold = some_threshold(expected, rng)
    np.testing.assert_array_equal(np.stack(estimates.at_least(threshold)), np.nonzero(expected >= threshold))
    train_labels, test_labels = rng.choice([0, 2, 5], trials.n_train), rng.choice([0, 1, 5], trials.n_test)
    blocks = estimates.all_class_blocks(train_labels, test_labels)
    assert [block.label for block in blocks] == sorted({*train_labels, *test_labels})
    for block in blocks:  # some without training, some without test examples
        np.testing.assert_array_equal(block.train, np.flatnonzero(train_labels == block.label))
        np.testing.assert_array_equal(block.test, np.flatnonzero(test_labels == block.label))
        np.testing.assert_array_equal(block.values, expected[block.train][:, block.test])


@given(world=worst_trials(), k=st.none() | st.integers(1, 5), first=st.integers(1, 20), size=st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_the_scan_of_a_gpu_equals_plain_numpy(world, k, first, size):
    trials, kinds, rng = world
    expected = plain_influence(trials, kinds)
    train = np.flatnonzero(rng.random(trials.n_train) < 0.8)
    test = rng.permutation(trials.n_test)[: rng.integers(trials.n_test + 1)]
    part = expected[train][:, test]
    threshold = some_threshold(expected, rng)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8, "FIRST_TRAIN", first)
        patch.setattr(int8, "TRAIN_AT_ONCE", size)
        patch.setattr(int8, "TEST_AT_ONCE", 7)
        found = int8.DeviceScan(arms(trials, kinds), "cpu").scan(train, test, k=k, threshold=threshold)
    index, value = brute_force_top_k(part, k or 0)
    np.testing.assert_array_equal(found[0], np.where(index < 0, -1, train[index]) if len(train) else index)
    np.testing.assert_array_equal(found[1], value)
    rows, columns = np.nonzero(part >= threshold)
    assert sorted(zip(train[rows], test[columns])) == list(zip(*found[2:]))


@pytest.mark.parametrize("kinds", [BOTH, LEMMA])
def test_a_device_finds_what_the_cpu_finds(monkeypatch, kinds):
    """`device` sends scans to the matrix product; "cpu:0" is torch's CPU."""
    trials = random_trials(90, 200, 50, kinds=np.arange(90) % len(kinds))
    labels = np.arange(200) % 3, np.arange(50) % 3
    here, there = influence(trials, kinds), influence(trials, kinds, device="cpu:0")
    np.testing.assert_array_equal(there.top_k(4, test=[7, 3]).index, here.top_k(4, test=[7, 3]).index)
    asked = []
    scan = int8.DeviceScan.scan
    monkeypatch.setattr(int8.DeviceScan, "scan", lambda *args, **given: asked.append(1) or scan(*args, **given))
    options = {"mem": -1, "infl": 0.1, "permutations": 2}
    first, second = (
        high_influence_pairs(trials, kinds, *labels, device=device, **options) for device in ("cpu", "cpu:0")
    )
    assert asked
    np.testing.assert_array_equal(second.train_index, first.train_index)
    np.testing.assert_array_equal(second.test_index, first.test_index)
    np.testing.assert_array_equal(second.permuted_counts, first.permuted_counts)
    assert len(first) > 0


def test_a_device_that_is_not_there_is_said():
    import torch

    trials = random_trials(9, 8, 7)
    with pytest.raises(InputError, match="must be cpu, cuda or cuda:N; got 'tpu!'"):
        influence(trials, BOTH, device="tpu!").top_k(2)
    with pytest.raises(InputError, match="cannot be used; use cpu"):
        influence(trials, BOTH, device=f"cuda:{torch.cuda.device_count()}").top_k(2)


@pytest.mark.skipif("not __import__('torch').cuda.is_available()")
def test_a_real_gpu_finds_what_the_cpu_finds():
    trials = random_trials(333, 5000, 900, accuracy=0.8)
    here, there = influence(trials, BOTH), influence(trials, BOTH, device="cuda")
    for name in ("index", "value"):
        np.testing.assert_array_equal(getattr(there.top_k(10), name), getattr(here.top_k(10), name))
    np.testing.assert_array_equal(np.stack(there.at_least(0.15)), np.stack(here.at_least(0.15)))


def test_test_examples_that_cannot_reach_the_threshold_are_not_counted(monkeypatch):
    """Of 200 trials, 140 kept the example: 9 wrong ones could give 9/60 = 0.15, 8 could not, nor could 20 right."""
    rng = np.random.default_rng(0)
    mask = np.argsort(rng.random((30, 200)), axis=1).T < 140  # each example kept in exactly 140 trials
    correct = np.ones((200, 5), bool)
    correct[:, 0] = rng.permutation(200) >= 9
    correct[:, 1] = rng.permutation(200) >= 8
    correct[:, 2] = rng.permutation(200) < 21  # at most 21/140 = 0.15
    correct[:, 3] = rng.permutation(200) < 20
    estimates = influence(make_trials(mask, correct), BOTH)
    np.testing.assert_array_equal(estimates._can_reach(np.arange(30), np.arange(5), 0.15), [0, 2])
    asked = []
    monkeypatch.setattr(MODULE, "each_tile", lambda _, train, test, *rest, **given: asked.append(test))
    estimates.at_least(0.15)
    np.testing.assert_array_equal(asked, [[0, 2]])


def test_no_pair_is_lost_at_any_threshold():
    """The bound is met by an example that all the right models kept, at the very value of its estimate."""
    mask = np.array([[1, 0], [1, 1], [1, 0], [0, 1], [0, 1], [0, 0], [0, 1]], bool)
    trials = make_trials(mask, mask)
    values = plain_influence(trials, BOTH)
    for threshold in np.unique(values):
        found = influence(trials, BOTH).at_least(threshold)
        np.testing.assert_array_equal(np.stack(found), np.nonzero(values >= threshold))


def test_work_on_several_threads_gives_the_same(monkeypatch):
    from memfluence.estimators.kernels import counting

    trials = random_trials(130, 2500, 600)
    labels = np.arange(2500) % 40, np.arange(600) % 41
    results = []
    for threads in (1, 4):
        monkeypatch.setattr(counting, "thread_count", lambda threads=threads: threads)
        monkeypatch.setattr(counting, "CHUNK", 50)
        estimates = influence(trials, BOTH, method="minority")
        blocks = estimates.all_class_blocks(*labels)
        found = high_influence_pairs(trials, BOTH, *labels, mem=-1, infl=0.1, permutations=0)
        results.append([estimates.top_tests(3).index, estimates.top_k(3).index, found.train_index, found.test_index])
        results[-1] += [block.values for block in blocks]
    for first, second in zip(*results):
        np.testing.assert_array_equal(first, second)


def test_a_failure_on_a_thread_is_the_callers(monkeypatch):
    from memfluence.estimators.kernels import counting

    monkeypatch.setattr(counting, "thread_count", lambda: 3)
    monkeypatch.setattr(counting, "TESTS_PER_TASK", 5)
    counter = counts.JointCounter(*(random_trials(9, 40, 40).mask,) * 2, 40, 40, method="popcount")

    def use(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        counts.each_tile([counter], np.arange(40), np.arange(40), use, of="test")


def test_memorized_examples_are_the_candidates():
    trials = random_trials(60, 30, 20)
    labels = np.zeros(30, int), np.zeros(20, int)
    found = high_influence_pairs(trials, BOTH, *labels, mem=0.1, infl=0.05, permutations=0)
    assert set(found.train_index) <= set(np.flatnonzero(memorization(trials, BOTH).value >= 0.1))
    assert len(found) > 0
