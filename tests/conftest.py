"""Shared by all tests: the --soak switch, and small trials made without a learner."""

import signal

import pytest

from small_world import SmallWorld


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="long campaigns instead of their small versions")


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def soak(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--soak"))


@pytest.fixture
def world() -> SmallWorld:
    return SmallWorld()
