"""The store's contract on file systems that are not this machine's, and what only they can do wrong."""

import dataclasses
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memfluence.errors import InputError, RunMismatchError, StoreError, UnreachableError
from memfluence.records import Failure
from memfluence.store import SegmentWriter, TrialStore, Uri, _places, locate
from remote.s3_server import Storage
from small_world import SmallWorld

MADE_WITH = {"torch": "2.13.0"}


@pytest.fixture(params=["s3://bucket/{}", "memory://bucket/{}", "local://{}", "file://{}"])
def place(request: pytest.FixtureRequest, storage: Storage, tmp_path: Path) -> Iterator[str]:
    """An object store of PyArrow, one of fsspec, a file system of fsspec that has to rename, and a URI of a path."""
    name = tmp_path if request.param.startswith(("local", "file")) else f"contract/{tmp_path.name}"
    yield request.param.format(name)


@pytest.fixture
def fresh(storage: Storage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of the test's own, in a file system that has just been opened."""
    monkeypatch.setenv("MEMFLUENCE_CACHE", str(tmp_path / "cache"))
    _places._remote.cache_clear()
    return tmp_path / "cache"


def test_what_is_written_is_read(place: str, world: SmallWorld) -> None:
    store = world.create(place)
    store.write([world.outcome(3), world.outcome(1)])
    store.write([world.outcome(1), world.outcome(2)])
    store.write_failure(Failure(7, "ValueError: no", "trace"))
    opened = TrialStore.open(place)
    trials, damaged = opened.read()
    assert damaged == ()
    here = world.create(Path(store_folder(place)) / "here") if place.startswith("file") else None
    assert here is None or isinstance(store.path, Path)
    assert trials.numbers.tolist() == opened.scan().numbers.tolist() == [1, 2, 3]
    assert opened.scan().segments == 2
    assert [labels.tolist() for labels in opened.labels()] == [world.y_train.tolist(), world.y_test.tolist()]
    assert list(opened.failures()) == [7]
    assert list(opened.failures(done=[7])) == []


def store_folder(place: str) -> str:
    return place.partition("://")[2]
