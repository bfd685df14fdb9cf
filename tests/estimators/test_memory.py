"""The cap on memory: how it is written, what it refuses, and that it is kept."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bool_trials import BOTH, random_trials

from memfluence.errors import InputError
from memfluence.estimators import Memory, influence, memory
from memfluence.estimators.kernels import counting


@pytest.mark.parametrize(
    ("given", "size"),
    [("2GB", 2e9), ("500 mb", 5e8), ("1.5GiB", 1.5 * 2**30), ("7B", 7), (12345, 12345), ("3k", 3000), (None, None)],
)
def test_sizes(given, size):
    assert memory.bytes_of(given) == size


@pytest.mark.parametrize("given", ["", "much", "-2GB", "2 XB", "0", True, 1.5e300, "nan"])
def test_what_is_no_size_is_said(given):
    with pytest.raises(InputError, match="must be a size such as 2GB or 500MB"):
        memory.bytes_of(given)


def test_a_size_in_words_needs_a_unit():
    with pytest.raises(InputError, match=r"needs a unit, such as 2GB or 500MB\. Got '2'"):
        memory.bytes_of("2")


@pytest.fixture
def resident(monkeypatch):
    monkeypatch.setattr(memory, "_resident", lambda: 10**9)


def test_what_does_not_fit_is_refused_with_what_would(monkeypatch, resident):
    trials = random_trials(30, 500, 400)
    monkeypatch.setattr(counting, "work_bytes", lambda trials: 0)
    capped = influence(trials, BOTH, memory="1001MB")  # one more than is held
    with pytest.raises(InputError, match="a matrix of 500 x 400 estimates of 8 bytes") as caught:
        capped.block()
    assert "allow at least 1.15 GB (`memory`), or choose at most 250 test examples at once" in str(caught.value)
    assert capped.block(test=np.arange(100)).shape == (500, 100)
    assert capped.block(dtype=np.float32).shape == (500, 400)
    with pytest.raises(InputError, match="the 900 largest estimates of 400 examples"):
        capped.top_k(900)
    with pytest.raises(InputError, match="the blocks of all classes"):
        capped.all_class_blocks(np.zeros(500, int), np.zeros(400, int))
    with pytest.raises(InputError, match=r"pairs found so far.*a higher threshold"):
        capped.at_least(-1)
    assert len(capped.at_least(0.5)[0]) < 1000


def test_the_advice_is_enough_where_more_is_resident_the_next_time(monkeypatch):
    """What a process holds varies by some percent; advice to the byte would be refused again and again."""
    monkeypatch.setattr(memory, "_resident", lambda: 240_000_000)
    with pytest.raises(InputError) as caught:
        Memory(200_000_000).check(26_000_000, "counting", "less")
    advised = Memory.of(re.search(r"allow at least ([0-9.]+ MB)", str(caught.value))[1])
    monkeypatch.setattr(memory, "_resident", lambda: 260_000_000)
    advised.check(26_000_000, "counting", "less")


def test_trials_that_cannot_be_turned_are_refused(resident):
    with pytest.raises(InputError, match="counting in words of 64 trials"):
        influence(random_trials(30, 500, 400), BOTH, memory=10**9 + 100).at_least(0.1)
    with pytest.raises(InputError, match="counting in words of 64 trials"):
        influence(random_trials(30, 500, 400), BOTH, memory=10**9 + 100).block(train=[0], test=[0])


def test_without_a_cap_everything_fits():
    Memory().check(1e18, "anything", "nothing")
    assert Memory().left() == float("inf")
    assert Memory.of(Memory(5)) == Memory(5)


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from Linux")
def test_a_scan_keeps_the_cap():
    """40,000 x 3,000 estimates are 960 MB; their largest and those at a threshold fit in 150 MB beyond the start."""
    script = (
        "import re, numpy as np\n"
        "from pathlib import Path\n"
        "from memfluence.estimators import influence, memory\n"
        "from memfluence.estimators.counts import kernels\n"
        "from memfluence.records import Kind, Trials\n"
        "assert kernels() is not None\n"
        "rng = np.random.default_rng(0)\n"
        "bits = [rng.integers(0, 256, (200, n // 8), dtype=np.uint8) for n in (40_000, 40_000, 3_000)]\n"
        "trials = Trials(np.arange(200), np.zeros(200, np.int16), *bits, 40_000, 3_000)\n"
        "cap = memory._resident() + 150_000_000\n"
        "estimates = influence(trials, (Kind(0.5, None),), memory=cap)\n"
        "top, tests, pairs = estimates.top_k(5), estimates.top_tests(5), estimates.at_least(0.3)\n"
        "assert len(pairs[0]) > 100\n"
        "print(int(re.search(r'VmHWM:\\s*(\\d+)', Path('/proc/self/status').read_text())[1]) * 1024, cap)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, timeout=300, capture_output=True, text=True)
    peak, cap = map(int, re.findall(r"\d+", done.stdout))
    assert peak <= cap


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from Linux")
def test_whatever_is_asked_keeps_the_cap(tmp_path):
    """The smallest cap that is not refused is not exceeded, either."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("capped_run.py")],
        cwd=tmp_path,
        check=True,
        timeout=600,
        capture_output=True,
        text=True,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 11
    for name, refused, _, peak, cap in lines:
        assert int(refused) >= 1, name
        assert int(peak) <= int(cap), name
