"""Every way of counting equals the reference to the last integer."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from bool_trials import pack, random_trials, unpacked
from hypothesis import given, settings
from hypothesis import strategies as st

from memfluence.errors import InputError, MemfluenceWarning
from memfluence.estimators import JointCounter, counts, joint_counts_reference

METHODS = ["matmul", "popcount", "minority"]


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
    from memfluence.estimators.kernels import counting

    monkeypatch.setattr(counts, "TRIALS_AT_ONCE", 50)
    monkeypatch.setattr(counts, "EXAMPLES_AT_ONCE", 30)
    monkeypatch.setattr(counting, "CHUNK", 3)
    monkeypatch.setattr(counting, "TESTS_PER_TASK", 7)
    monkeypatch.setattr(counting, "TRANSPOSED_AT_ONCE", 512)
    monkeypatch.setattr(counting, "thread_count", lambda: 3)
    mask, correct = adversarial(170, 3100, 65)  # more examples than a panel has
    reference = joint_counts_reference(pack(mask), pack(correct), 3100, 65)
    for panels_bytes in (1, 2**20):
        monkeypatch.setattr(counting, "PANELS_BYTES", panels_bytes)
        counter = JointCounter(pack(mask), pack(correct), 3100, 65, method=method)
        np.testing.assert_array_equal(counter.block(), reference)
        for of in ("test", "train"):  # tasks of some test examples, or of some panels
            found = np.zeros((65, 3100), np.int32)

            def use(tile, rows, columns, found=found):
                found[columns, rows] += tile[0]

            counts.each_tile([counter], np.arange(3100), np.arange(65), use, of=of)
            np.testing.assert_array_equal(found.T, reference)


@pytest.mark.parametrize("of", ["test", "train"])
@pytest.mark.parametrize("method", METHODS)
def test_tiles_of_one_example_come_in_order_on_one_thread(monkeypatch, method, of):
    from memfluence.estimators.kernels import counting

    monkeypatch.setattr(counts, "EXAMPLES_AT_ONCE", 30)
    monkeypatch.setattr(counting, "CHUNK", 3)
    monkeypatch.setattr(counting, "TESTS_PER_TASK", 7)
    monkeypatch.setattr(counting, "PANELS_BYTES", 1)
    monkeypatch.setattr(counting, "thread_count", lambda: 3)
    mask, correct = adversarial(20, 3100, 65)
    counter = JointCounter(pack(mask), pack(correct), 3100, 65, method=method)
    seen = {}  # position along the own axis -> (thread, starts along the other axis)

    def use(tile, rows, columns):
        assert tile[0].shape == (columns.stop - columns.start, rows.stop - rows.start)
        own, other = (columns, rows) if of == "test" else (rows, columns)
        seen.setdefault((own.start, own.stop), []).append((threading.get_ident(), other.start))

    counts.each_tile([counter], np.arange(3100), np.arange(65), use, of=of)
    assert len(seen) > 1
    for tiles in seen.values():
        assert len({thread for thread, _ in tiles}) == 1
        assert [start for _, start in tiles] == sorted({start for _, start in tiles})


def test_each_test_example_takes_the_cheaper_kernel():
    from memfluence.estimators.kernels import counting

    rng = np.random.default_rng(0)
    accuracy = np.where(np.arange(240) % 2, 0.5, 0.97)  # half of them far from one half
    mask, correct = rng.random((1000, 1024)) < 0.7, rng.random((1000, 240)) < accuracy
    counter = counting.PackedCounter(pack(mask), pack(correct), 1024, 240, "auto")
    tests = counter.tests(np.arange(240), 300)  # with 1024 examples, all would be counted by rows
    np.testing.assert_array_equal(tests.by_words, np.arange(1, 240, 2))
    np.testing.assert_array_equal(tests.by_rows, np.arange(0, 240, 2))
    found = np.full((240, 300), -1, np.int32)
    counter.count(counting.Panel(counter, np.arange(300)), tests, found)
    np.testing.assert_array_equal(found.T, joint_counts_reference(pack(mask), pack(correct), 1024, 240)[:300])
    assert len(counter.tests(np.arange(240), 1024).by_words) == 0
    assert len(counter.tests(np.arange(240), 8).by_rows) == 0  # eight examples would waste the adders' lanes
    assert len(counter.tests(np.arange(1), 1024).by_rows) == 0  # one test example does not repay turning the panel


@pytest.mark.parametrize("rare", [0, 1, 15, 16, 17, 31, 32, 255, 256, 257, 4095, 4096, 65_519, 65_520, 65_521, 70_000])
def test_counters_of_the_minority_carry_over(rare):
    """Around each power of two a carry goes up another level; beyond 16 binary digits the popcount takes over."""
    trials = 2 * rare + 1
    rng = np.random.default_rng(rare)
    mask = np.column_stack([np.ones(trials, bool), np.zeros(trials, bool), rng.random((trials, 3)) < 0.7])
    right = np.zeros((trials, 2), bool)
    right[rng.permutation(trials)[:rare], 0] = True  # rarely right
    right[:, 1] = ~right[:, 0]  # rarely wrong
    found = JointCounter(pack(mask), pack(right), 5, 2, method="minority").block()
    np.testing.assert_array_equal(found, naive_counts(mask, right))


def test_quotients_are_rounded_as_divisions_are():
    from memfluence.estimators.kernels import compiled

    def quotients(a, b):
        found, none = np.empty((1, len(a))), np.zeros((1, len(a)), np.int32)
        compiled.divide(a[None].astype(np.int32), none, b.astype(float), np.ones(len(a)), np.zeros(1), found, 0, 0)
        return found[0]

    small, large = (side[np.tri(1500, dtype=bool).T] for side in np.indices((1500, 1500)))  # of which 0 / 0 is NaN
    rng = np.random.default_rng(0)
    most = rng.integers(1, 2**26, 10**6)
    for a, b in ((small, large), (rng.integers(0, most + 1), most), (most - 1, most)):
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(quotients(a, b), a / b)


@pytest.mark.parametrize("method", METHODS)
def test_read_only_and_strided_bits(method):
    mask, correct = adversarial(70, 20, 10)
    bits = np.repeat(pack(mask), 2, axis=1)[:, ::2]
    bits.flags.writeable = False
    found = JointCounter(bits, pack(correct), 20, 10, method=method).block()
    np.testing.assert_array_equal(found, naive_counts(mask, correct))


def test_words_hold_the_bits_of_their_trials():
    from memfluence.estimators.kernels import counting

    mask, _ = adversarial(130, 1100, 1)
    words = counting._example_words(pack(mask), 1100)
    assert words.shape == (1100, 3)
    for trial in range(192):
        expected = mask[trial] if trial < 130 else np.zeros(1100, bool)
        np.testing.assert_array_equal((words[:, trial // 64] >> np.uint64(trial % 64)) & np.uint64(1), expected)
    np.testing.assert_array_equal(counting._ones(words), mask.sum(axis=0))


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
    kernels = counts.kernels
    kernels.cache_clear()

    def load():
        loads.append(1)
        return kernels()

    load.cache_info = kernels.cache_info
    monkeypatch.setattr(counts, "kernels", load)
    monkeypatch.setattr(counts, "WORTH_LOADING", 2 * 100 * 20 * 10)
    counter = JointCounter(pack(mask), pack(correct), 20, 10)
    first = counter.block()
    assert not loads
    np.testing.assert_array_equal(counter.block(), first)
    assert loads


def test_without_numba_counting_goes_on(monkeypatch):
    mask, correct = adversarial(100, 20, 10)
    monkeypatch.setitem(sys.modules, "memfluence.estimators.kernels.counting", None)  # importing it raises ImportError
    monkeypatch.delattr("memfluence.estimators.kernels.counting", raising=False)
    counts.kernels.cache_clear()
    try:
        counter = JointCounter(pack(mask), pack(correct), 20, 10, method="popcount")
        with pytest.warns(MemfluenceWarning, match="goes on several times slower"):
            found = counter.block()
        np.testing.assert_array_equal(found, naive_counts(mask, correct))
    finally:
        counts.kernels.cache_clear()


def test_nowhere_to_keep_compiled_code():
    """Site-packages read-only and no home: the kernels compile without a cache."""
    script = (
        "import numpy as np, numba.core.caching as caching\n"
        "def refuse(self): raise OSError('read-only')\n"
        "caching._CacheLocator.ensure_cache_path = refuse\n"
        "from memfluence.estimators import JointCounter\n"
        "bits = np.full((9, 1), 255, np.uint8)\n"
        "counter = JointCounter(bits, bits, 8, 8, method='popcount')\n"
        "assert (counter.block() == 9).all() and counter._packed is not None\n"
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
    with pytest.raises(InputError, match="one of auto, matmul, popcount, minority; got 'magic'"):
        JointCounter(bits, bits, 8, 8, method="magic")
    with pytest.raises(InputError, match="2 masks for 1 outcomes"):
        JointCounter(bits, bits[:1], 8, 8)
