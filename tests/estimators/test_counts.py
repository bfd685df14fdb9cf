"""Every way of counting equals the reference to the last integer."""

import subprocess
import sys

import numpy as np
import pytest
from bool_trials import pack, random_trials, unpacked
from hypothesis import given, settings
from hypothesis import strategies as st

from memfluence.errors import InputError, MemfluenceWarning
from memfluence.estimators import JointCounter, counts, joint_counts_reference

METHODS = ["matmul", "popcount"]


def naive_counts(mask, correct):
    return np.array(
        [[int((mask[:, i] & correct[:, j]).sum()) for j in range(correct.shape[1])] for i in range(mask.shape[1])]
    )


def adversarial(trials, n_train, n_test):
    """Random bits, with the first columns always, never, and (where there is room) in all trials but one."""
    rng = np.random.default_rng(trials * 1000 + n_train)
    mask, correct = rng.random((trials, n_train)) < 0.7, rng.random((trials, n_test)) < 0.7
    for bits in (mask, correct):
        for column, constant in zip(range(bits.shape[1]), (True, False)):
            bits[:, column] = constant
        if bits.shape[1] > 2:
            bits[:, 2] = True
            bits[-1, 2] = False
    return mask, correct


SIZES = [
    (1, 1, 1),
    (1, 9, 3),
    (7, 8, 8),
    (8, 64, 65),
    (63, 65, 7),
    (64, 1, 70),
    (65, 70, 1),
    (513, 130, 67),
    (600, 600, 300),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("method", METHODS)
def test_equals_the_reference(size, method):
    mask, correct = adversarial(*size)
    _, n_train, n_test = size
    reference = joint_counts_reference(pack(mask), pack(correct), n_train, n_test)
    assert reference.dtype == np.int32
    found = JointCounter(pack(mask), pack(correct), n_train, n_test, method=method).block()
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, reference)
    if size[1] * size[2] < 10_000:
        np.testing.assert_array_equal(reference, naive_counts(mask, correct))


@given(data=st.data(), trials=st.integers(0, 200), n_train=st.integers(1, 80), n_test=st.integers(1, 80))
@settings(max_examples=40, deadline=None)
def test_blocks_equal_the_reference(data, trials, n_train, n_test):
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    mask, correct = rng.random((trials, n_train)) < rng.random(), rng.random((trials, n_test)) < rng.random()
    train = data.draw(st.none() | st.lists(st.integers(0, n_train - 1), max_size=20).map(lambda i: np.array(i, int)))
    test = data.draw(st.none() | st.lists(st.integers(0, n_test - 1), max_size=20).map(lambda i: np.array(i, int)))
    reference = joint_counts_reference(pack(mask), pack(correct), n_train, n_test)
    rows, columns = (slice(None) if chosen is None else chosen for chosen in (train, test))
    for method in METHODS:
        found = JointCounter(pack(mask), pack(correct), n_train, n_test, method=method).block(train, test)
        np.testing.assert_array_equal(found, reference[rows][:, columns])


@pytest.mark.parametrize("method", METHODS)
def test_tiles_and_threads_do_not_change_counts(monkeypatch, method):
    from memfluence.estimators import _popcount

    monkeypatch.setattr(counts, "TRIALS_AT_ONCE", 50)
    monkeypatch.setattr(counts, "EXAMPLES_AT_ONCE", 30)
    monkeypatch.setattr(_popcount, "TEST_AT_ONCE", 3)
    monkeypatch.setattr(_popcount, "WORTH_A_THREAD", 0)
    mask, correct = adversarial(170, 1100, 65)  # more examples than lanes
    found = JointCounter(pack(mask), pack(correct), 1100, 65, method=method).block()
    np.testing.assert_array_equal(found, joint_counts_reference(pack(mask), pack(correct), 1100, 65))


@pytest.mark.parametrize("method", METHODS)
def test_read_only_and_strided_bits(method):
    mask, correct = adversarial(70, 20, 10)
    bits = np.repeat(pack(mask), 2, axis=1)[:, ::2]
    bits.flags.writeable = False
    found = JointCounter(bits, pack(correct), 20, 10, method=method).block()
    np.testing.assert_array_equal(found, naive_counts(mask, correct))


def test_words_hold_the_bits_of_their_trials():
    from memfluence.estimators import _popcount

    mask, _ = adversarial(130, 70, 1)
    words = _popcount.word_major(pack(mask), 70)  # (3, 70)
    assert words.shape == (3, 70)
    for trial in range(192):
        expected = mask[trial] if trial < 130 else np.zeros(70, bool)
        np.testing.assert_array_equal((words[trial // 64] >> np.uint64(trial % 64)) & np.uint64(1), expected)


@pytest.mark.parametrize(("trials", "n"), [(0, 5), (1, 1), (255, 9), (256, 8), (511, 70)])
def test_column_counts(trials, n):
    rng = np.random.default_rng(n)
    bits, among = rng.random((trials, n)) < 0.9, rng.random((trials, n)) < 0.5
    bits[:, 0] = True  # more ones than one uint8 holds
    np.testing.assert_array_equal(counts.column_counts(pack(bits), n), bits.sum(axis=0))
    np.testing.assert_array_equal(counts.column_counts(pack(bits), n, among=pack(among)), (bits & among).sum(axis=0))


def test_pair_counts_equal_the_reference():
    trials = random_trials(150, 33, 21)
    mask, _, correct = unpacked(trials)
    rng = np.random.default_rng(1)
    train, test = rng.integers(0, 33, 400), rng.integers(0, 21, 400)
    expected = naive_counts(mask, correct)[train, test]
    np.testing.assert_array_equal(counts.pair_counts(trials.mask, trials.test_correct, train, test), expected)


def test_the_fast_path_is_loaded_when_it_pays(monkeypatch):
    mask, correct = adversarial(100, 20, 10)
    loads = []
    popcount_kernels = counts._popcount_kernels
    popcount_kernels.cache_clear()

    def load():
        loads.append(1)
        return popcount_kernels()

    load.cache_info = popcount_kernels.cache_info
    monkeypatch.setattr(counts, "_popcount_kernels", load)
    monkeypatch.setattr(counts, "WORTH_LOADING", 2 * 100 * 20 * 10)
    counter = JointCounter(pack(mask), pack(correct), 20, 10)
    first = counter.block()
    assert not loads
    np.testing.assert_array_equal(counter.block(), first)
    assert loads


def test_without_numba_counting_goes_on(monkeypatch):
    mask, correct = adversarial(100, 20, 10)
    monkeypatch.setitem(sys.modules, "memfluence.estimators._popcount", None)  # importing it raises ImportError
    monkeypatch.delattr("memfluence.estimators._popcount", raising=False)
    counts._popcount_kernels.cache_clear()
    try:
        counter = JointCounter(pack(mask), pack(correct), 20, 10, method="popcount")
        with pytest.warns(MemfluenceWarning, match="goes on several times slower"):
            found = counter.block()
        np.testing.assert_array_equal(found, naive_counts(mask, correct))
    finally:
        counts._popcount_kernels.cache_clear()


def test_nowhere_to_keep_compiled_code():
    """Site-packages read-only and no home: the kernels compile without a cache."""
    script = (
        "import numpy as np, numba.core.caching as caching\n"
        "def refuse(self): raise OSError('read-only')\n"
        "caching._CacheLocator.ensure_cache_path = refuse\n"
        "from memfluence.estimators import JointCounter\n"
        "bits = np.full((9, 1), 255, np.uint8)\n"
        "counter = JointCounter(bits, bits, 8, 8, method='popcount')\n"
        "assert (counter.block() == 9).all() and counter._words is not None\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=120)


def test_importing_estimators_loads_nothing_heavy():
    script = (
        "import sys, memfluence.estimators, memfluence.findings\n"
        "heavy = {'pandas', 'torch', 'matplotlib', 'numba', 'scipy', 'sklearn', 'pyarrow'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_bad_input_is_one_sentence():
    bits = np.zeros((2, 1), np.uint8)
    with pytest.raises(InputError, match="auto, matmul or popcount; got 'magic'"):
        JointCounter(bits, bits, 8, 8, method="magic")
    with pytest.raises(InputError, match="2 masks for 1 outcomes"):
        JointCounter(bits, bits[:1], 8, 8)
