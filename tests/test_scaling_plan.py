"""The simulation behind docs/scaling.md gives the closed forms where there are some; the page shows what it prints."""

import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

DOCS = Path(__file__).parent.parent / "docs"
MEASURED = ("a trial on disk", "the store", "with predicted classes", "writing trials")  # depend on the compressor


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("simulate_cluster", DOCS / "simulate_cluster.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


plan = loaded()
ONE = plan.Cluster(trials=1, nodes=1, gpus_per_node=1, trial=10.0)


def restarted(rate: float, hours: float) -> tuple[float, float]:
    """Mean and variance of the time that a job of so many hours takes which starts over at each failure.

    The mean is (e^(rate hours) - 1) / rate, since E = hours P(no failure) + (E[T | T < hours] + E) P(a failure) with T
    exponential. The variance follows in the same way from the second moment.
    """
    grown = math.exp(rate * hours)
    return (grown - 1) / rate, (grown**2 - 2 * rate * hours * grown - 1) / rate**2


@pytest.mark.parametrize(("trials", "nodes", "gpus"), [(1, 1, 1), (7, 1, 3), (2000, 8, 8), (64, 8, 8), (65, 8, 8)])
def test_without_failures_it_is_rounds(trials: int, nodes: int, gpus: int) -> None:
    cluster = replace(ONE, trials=trials, nodes=nodes, gpus_per_node=gpus, starting=0.25)
    course = plan.simulate(cluster, np.random.default_rng(0))
    rounds = math.ceil(trials / (nodes * gpus))
    assert course.hours == pytest.approx(rounds * 10.25, rel=1e-12)
    assert (course.failures, course.lost) == (0, 0)
    assert course.busy == pytest.approx(trials / (nodes * gpus) / rounds * 10 / 10.25)


def test_checkpoints_take_their_time() -> None:
    """Ten hours with one every 2.5 hours: three, since none is written at the end."""
    course = plan.simulate(replace(ONE, every=2.5, writing=0.1), np.random.default_rng(0))
    assert course.hours == pytest.approx(10.3)


def test_memoryless_failures_without_checkpoints() -> None:
    rate, trials = 1 / 8, 4000
    cluster = replace(ONE, trials=trials, between_failures=1 / rate)
    course = plan.simulate(cluster, np.random.default_rng(1))
    mean, variance = restarted(rate, 10.0)
    assert abs(course.hours - trials * mean) < 4 * math.sqrt(trials * variance)
    assert course.lost == pytest.approx(course.hours - trials * 10.0)  # all that was not kept


def test_memoryless_failures_with_checkpoints() -> None:
    """Each stretch between two checkpoints starts over by itself; the last one writes none."""
    rate, trials, every, writing = 1 / 8, 2000, 2.5, 0.5
    cluster = replace(ONE, trials=trials, between_failures=1 / rate, every=every, writing=writing)
    course = plan.simulate(cluster, np.random.default_rng(2))
    stretches = [restarted(rate, every + writing)] * 3 + [restarted(rate, every)]
    mean, variance = (sum(column) for column in zip(*stretches))
    assert abs(course.hours - trials * mean) < 4 * math.sqrt(trials * variance)


def test_nodes_that_are_repaired_fail_as_often_as_they_are_up() -> None:
    """A node is up for 20 hours and away for 5, on average; work of 1 hour with checkpoints is hardly lost."""
    cluster = replace(ONE, trials=20_000, trial=1.0, every=0.01, between_failures=20.0, repair=5.0)
    course = plan.simulate(cluster, np.random.default_rng(3))
    assert course.busy == pytest.approx(20 / 25, abs=0.02)
    assert course.failures == pytest.approx(course.hours / 25, rel=0.1)


def test_more_checkpoints_lose_less() -> None:
    cluster = replace(ONE, trials=500, nodes=4, gpus_per_node=2, between_failures=24.0, repair=1.0)
    lost = [
        plan.simulate(replace(cluster, every=every), np.random.default_rng(4)).lost for every in (0.2, 2.0, math.inf)
    ]
    assert lost == sorted(lost)


def test_the_page_shows_what_the_script_prints() -> None:
    page = (DOCS / "scaling.md").read_text()
    assumed = plan.Assumed()
    assert plan.simulation(assumed, 20, 0) in page
    lines = [
        line
        for line in plan.arithmetic(assumed).splitlines()
        if not line.startswith(tuple(f"| {m} |" for m in MEASURED))
    ]
    assert len(lines) > 8
    for line in lines:
        assert line in page, line


def test_a_trial_on_disk_is_no_larger_than_its_bits() -> None:
    assumed = replace(plan.Assumed(), n_train=80_000, n_test=8000)
    packed = 2 * 10_000 + 1000
    assert 0.5 * packed < plan.bytes_per_trial(assumed) < packed
