"""The index is a cache: with it, without it and with a broken one, `scan` says the same."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from memfluence.errors import MemfluenceWarning
from memfluence.store import INDEXED, Scan, TrialStore, places
from small_world import SmallWorld

OLD = 10**18  # nanoseconds since 1970, in 2001


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of segments that are read."""
    found: list[str] = []
    real = places.read_bytes

    def read_bytes(path: Path) -> object:
        if path.suffix == ".parquet":
            found.append(path.name)
        return real(path)

    monkeypatch.setattr(places, "read_bytes", read_bytes)
    return found


def written(store: TrialStore, world: SmallWorld, *numbers: int, at: int = OLD) -> Path:
    path = store.write([dataclasses.replace(world.outcome(k), process=k, finished=k / 2) for k in numbers])
    os.utime(path, ns=(at, at))
    return path


def same(one: Scan, other: Scan) -> bool:
    columns = all(np.array_equal(one.details[name], other.details[name]) for name in one.details)
    return columns and one.numbers.tolist() == other.numbers.tolist() and one.damaged == other.damaged


def test_a_segment_is_read_once_and_the_answer_is_that_of_the_slow_way(
    tmp_path: Path, world: SmallWorld, reads: list[str]
) -> None:
    store = world.create(tmp_path / "run")
    assert store.scan(INDEXED, indexed=True).numbers.tolist() == []
    first = written(store, world, 4, 2)
    assert same(store.scan(INDEXED, indexed=True), store.scan(INDEXED))
    second = written(store, world, 3)
    reads.clear()
    assert store.scan(INDEXED, indexed=True).numbers.tolist() == [2, 3, 4]
    assert reads == [second.name]
    reads.clear()
    assert store.scan(INDEXED, indexed=True).details["process"].tolist() == [2, 3, 4]
    assert reads == []
    store.remove_segments([first.name])
    assert store.scan(INDEXED, indexed=True).numbers.tolist() == [3]
    assert reads == []
    assert same(store.scan(INDEXED, indexed=True), store.scan(INDEXED))


def test_what_has_changed_is_read_again(tmp_path: Path, world: SmallWorld, reads: list[str]) -> None:
    store = world.create(tmp_path / "run")
    path = written(store, world, 0)
    store.scan(INDEXED, indexed=True)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(bytes(content))  # of the same size, at another time
    assert [damage.path for damage in store.scan(INDEXED, indexed=True).damaged] == [path]
    content[100] ^= 1
    path.write_bytes(bytes(content))
    reads.clear()
    for _ in range(2):
        assert store.scan(INDEXED, indexed=True).numbers.tolist() == [0]
    assert len(reads) == 2  # it was written just now: not yet to be trusted


@pytest.mark.parametrize("damage", [b"", b"x" * 40, None], ids=["empty", "garbage", "flipped"])
def test_a_broken_index_is_made_anew(tmp_path: Path, world: SmallWorld, reads: list[str], damage: bytes | None) -> None:
    store = world.create(tmp_path / "run")
    written(store, world, 0, 1)
    store.scan(INDEXED, indexed=True)
    index = tmp_path / "run" / ".index"
    content = bytearray(index.read_bytes())
    content[len(content) // 2] ^= 16
    index.write_bytes(bytes(content) if damage is None else damage)
    reads.clear()
    for _ in range(2):
        assert same(store.scan(INDEXED, indexed=True), store.scan(INDEXED))
    assert len(reads) == 3  # by the first, and by the slow way both times


def test_an_index_of_another_run_is_not_used(tmp_path: Path, world: SmallWorld) -> None:
    store = world.create(tmp_path / "run")
    path = written(store, world, 0)
    store.scan(INDEXED, indexed=True)
    other = TrialStore(store.path, dataclasses.replace(store.info, learner={"name": "another"}))
    assert "belongs to another run" in other.scan(INDEXED, indexed=True).damaged[0].reason
    assert path.exists()


def test_an_index_that_cannot_be_written_is_no_error(tmp_path: Path, world: SmallWorld) -> None:
    store = world.create(tmp_path / "run")
    written(store, world, 0)
    (tmp_path / "run" / ".index").mkdir()
    assert store.scan(INDEXED, indexed=True).numbers.tolist() == [0]


def test_of_two_different_records_the_one_that_counts_is_shown_each_time(tmp_path: Path, world: SmallWorld) -> None:
    store = world.create(tmp_path / "run")
    for host, finished, right in (("late", 9.0, True), ("early", 5.0, False)):
        bits = np.full_like(world.outcome(0).test_correct, right)
        outcome = dataclasses.replace(world.outcome(0), test_correct=bits, host=host, finished=finished)
        os.utime(store.write([outcome]), ns=(OLD, OLD))
    for _ in range(2):
        with pytest.warns(MemfluenceWarning, match="different records of 1 trial"):
            scan = TrialStore.open(store.path).scan(INDEXED, indexed=True)
        assert scan.details["host"].tolist() == ["early"]
        assert scan.details["test_accuracy"].tolist() == [0.0]
