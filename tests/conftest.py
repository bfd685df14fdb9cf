"""Shared by all tests: the --soak switch, and small trials made without a learner."""

import os
import signal
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from small_world import SmallWorld

# One thread, as engines give each process; where there are more, they sleep while they wait for each other. Threads of
# small products that spin made a test of a third of a second take twenty on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# No test is timed: on a busy machine Hypothesis would call a test too slow, and fail it for that.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


# What processes that share the tests begin with, so that in the end none is at a long file while the others wait.
LONGEST_FILES = (
    *("test_docs_examples", "test_faults", "test_scripts", "test_reproduce", "test_fault_campaign", "test_long_trials"),
    *("test_explorer", "test_ray", "test_accessibility", "test_fuzzing", "test_groups", "test_s3_runs"),
    *("test_contract", "test_identity", "test_rough_learners", "test_deadline", "test_docs_site", "test_soak"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="long campaigns instead of their small versions")


def pytest_configure() -> None:
    # No test writes into the home directory, and no two of pytest's processes into one place.
    if "MEMFLUENCE_CACHE" not in os.environ or "PYTEST_XDIST_WORKER" in os.environ:
        os.environ["MEMFLUENCE_CACHE"] = tempfile.mkdtemp(prefix="memfluence-cache-")
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        order = {name: number for number, name in enumerate(LONGEST_FILES)}
        items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture
def soak(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--soak"))


@pytest.fixture
def world() -> SmallWorld:
    return SmallWorld()
