"""The store's contract on file systems that are not this machine's, and what only they can do wrong."""

import dataclasses
import multiprocessing
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem

import memfluence as mf
from memfluence.errors import InputError, RunMismatchError, StoreError, UnreachableError
from memfluence.records import Failure
from memfluence.store import Damage, SegmentWriter, TrialStore, Uri, folder_for, locate, places, remote
from remote.s3_server import Storage
from small_world import SmallWorld

MADE_WITH = {"torch": "2.13.0"}


@pytest.fixture(params=["s3://bucket/contract", "memory://bucket/contract", "local://", "file://"])
def place(request: pytest.FixtureRequest, storage: Storage, tmp_path: Path) -> str:
    """An object store of PyArrow, one of fsspec, a file system of fsspec that has to rename, and a path's URI."""
    return f"{request.param}{tmp_path}/run"


@pytest.fixture
def cache(storage: Storage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of the test's own, for file systems that are opened anew."""
    monkeypatch.setenv("MEMFLUENCE_CACHE", str(tmp_path / "cache"))
    places._remote.cache_clear()
    return tmp_path / "cache"


def test_what_is_written_is_read_as_from_a_directory(place: str, world: SmallWorld, tmp_path: Path) -> None:
    here, there = world.create(tmp_path / "twin"), world.create(place)
    for store in (here, there):
        store.write([world.outcome(3), world.outcome(1)])
        store.write([world.outcome(1), world.outcome(2)])
        store.write_failure(Failure(7, "ValueError: no", "trace"))
    (expected, _), (trials, damaged) = here.read(), TrialStore.open(place).read()
    assert damaged == ()
    assert trials.numbers.tolist() == [1, 2, 3]
    for name in ("kinds", "mask", "train_correct", "test_correct"):
        assert np.array_equal(getattr(trials, name), getattr(expected, name))
    scan = TrialStore.open(place).scan(["seconds", "host"])
    assert (scan.numbers.tolist(), scan.segments, scan.details["host"].tolist()) == ([1, 2, 3], 2, ["here"] * 3)
    assert [labels.tolist() for labels in there.examples.labels()] == [world.y_train.tolist(), world.y_test.tolist()]
    assert (list(there.failures()), list(there.failures(done=[7]))) == ([7], [])
    there.forget_failures()
    assert list(there.failures()) == []


def test_resuming_grows_an_equal_run_and_refuses_a_different_one(place: str, world: SmallWorld) -> None:
    world.create(place).write([world.outcome(0)])
    assert world.create(place).scan().numbers.tolist() == [0]
    grown = dataclasses.replace(world.info, trials=500)
    assert TrialStore.create(place, grown, world.y_train, world.y_test).info.trials == 500
    other = dataclasses.replace(world.info, learner={"name": "other"})
    with pytest.raises(RunMismatchError, match="holds a different run"):
        TrialStore.create(place, other, world.y_train, world.y_test)
    with pytest.raises(InputError, match=r"holds other files \(run\)"):
        world.create(place.removesuffix("/run"))
    with pytest.raises(InputError, match="is a file"):
        world.create(f"{place}/run.json")
    with pytest.raises(InputError, match="There is no run at"):
        TrialStore.open(f"{place}/nothing")


def test_checkpoints_go_on_anywhere(place: str, world: SmallWorld) -> None:
    store = world.create(place)
    notes: list[str] = []
    files = store.checkpoints(1.0, notes.append)
    assert files.load(3, MADE_WITH) is None
    files.save(3, MADE_WITH, b"earlier", 0.2)
    files.save(3, MADE_WITH, b"\n\x00state\n" * 30_000, 0.4)
    elsewhere = TrialStore.open(place).checkpoints()
    assert elsewhere.load(3, MADE_WITH) == b"\n\x00state\n" * 30_000
    (found,) = elsewhere.part_way([])
    assert (found.trial, found.fraction) == (3, 0.4)
    assert 0 <= found.seconds_ago < 600
    elsewhere.remove([3])
    assert files.load(3, MADE_WITH) is None
    assert notes == []


def test_damaged_segments_are_set_aside(storage: Storage, world: SmallWorld, cache: Path) -> None:
    """Torn in the bucket: found by a machine that has no copy of it, and moved."""
    store = world.create("s3://bucket/torn")
    for number in (0, 1):
        store.write([world.outcome(number)])
    first, second = storage.names("torn/trials")
    storage.write(f"torn/trials/{first}", storage.read(f"torn/trials/{first}")[:-3])
    assert store.scan().damaged == ()  # this machine's copy is whole
    ((_, content),) = places.place_of(store.path).read_all([store.path / "trials" / first], fresh=True)
    assert content().to_pybytes() == storage.read(f"torn/trials/{first}")  # and whoever verifies can look past it
    for copy in (cache / "segments").iterdir():
        copy.unlink()
    scan = store.scan()
    assert scan.numbers.tolist() == [1]
    assert [str(damage.path) for damage in scan.damaged] == [f"s3://bucket/torn/trials/{first}"]
    store.set_aside(scan.damaged)
    store.set_aside(scan.damaged)  # another process may have been quicker
    assert storage.names("torn/damaged") == [first]
    assert storage.names("torn/trials") == [second]


def test_segments_are_fetched_once(storage: Storage, world: SmallWorld, cache: Path) -> None:
    store = world.create("s3://bucket/cached")
    paths = [store.write([world.outcome(number)]) for number in range(3)]
    copies = [cache / "segments" / path.name for path in paths]
    copies[0].unlink()
    copies[1].write_bytes(copies[1].read_bytes()[:-1])

    def fetched() -> list[str]:
        before = len(storage.proxy.log)
        assert store.scan().numbers.tolist() == [0, 1, 2]
        return sorted({one[1].rpartition("/")[2] for one in storage.proxy.log[before:] if "/trials/" in one[1]})

    assert fetched() == sorted(path.name for path in paths[:2])  # what is missing and what is damaged here
    assert fetched() == []
    for copy, path in zip(copies, paths):
        assert copy.read_bytes() == storage.read(f"cached/trials/{path.name}")


@pytest.mark.parametrize(("size", "kept"), [(0, 0), (10_000, 2)])
def test_the_cache_is_bounded(
    storage: Storage, world: SmallWorld, cache: Path, monkeypatch: pytest.MonkeyPatch, size: int, kept: int
) -> None:
    """The least recently used go: of segments of almost 4 kB, two fit into nine tenths of 10 kB."""
    monkeypatch.setenv("MEMFLUENCE_CACHE_SIZE", str(size))
    store = world.create(f"s3://bucket/bounded-{size}")
    for number in range(6):
        store.write([world.outcome(number)])
    assert store.scan().numbers.tolist() == list(range(6))
    copies = list((cache / "segments").glob("0*")) if cache.exists() else []
    assert len(copies) == kept
    assert sum(copy.stat().st_size for copy in copies) <= size


def test_every_request_may_fail(storage: Storage, world: SmallWorld, cache: Path, soak: bool) -> None:
    """A segment is one PUT that is carried out, however many were tried; what is read is what was written."""
    storage.proxy.seed(11)
    store = world.create("s3://bucket/failing?request_timeout=1")
    before, paths = len(storage.proxy.log), []
    seen: set[str | None] = set()
    with storage.proxy.failing(E500=0.15, E503=0.1, lost=0.15, cut=0.1, hang=0.01):
        while len(paths) < (400 if soak else 5) or not {"500", "503", "lost"} <= seen:
            paths.append(store.write([world.outcome(len(paths))]))
            seen |= {fault for method, _, fault in storage.proxy.log[before:] if method == "PUT"}
        for copy in (cache / "segments").iterdir():
            copy.unlink()
        trials, damaged = store.read()
    assert damaged == ()
    assert trials.numbers.tolist() == list(range(len(paths)))
    assert storage.names("failing/trials") == sorted(path.name for path in paths)
    assert "POST" not in {method for method, _, _ in storage.proxy.log[before:]}  # which would begin an upload in parts


def test_a_short_outage_is_waited_for(storage: Storage, world: SmallWorld, cache: Path) -> None:
    store = world.create("s3://bucket/short")
    before = len(storage.proxy.log)
    with storage.proxy.failing(E503=1.0):
        threading.Timer(1.0, storage.proxy.faults.clear).start()  # type: ignore[attr-defined]
        store.write([world.outcome(0)])
    assert store.scan().numbers.tolist() == [0]
    assert [fault for _, _, fault in storage.proxy.log[before:]].count("503") > 4  # more than one attempt of ours
    assert list(cache.rglob("unsent")) == []


def test_a_large_segment_appears_when_its_upload_is_completed(storage: Storage, world: SmallWorld) -> None:
    """In parts, and seen by nobody before the last one; killed in between there would be nothing."""
    place, path = places.place_of(Uri("s3://bucket", "")), Uri("s3://bucket", "large/object")
    content = np.random.default_rng(0).bytes(24 * 2**20)
    storage.proxy.seed(3)
    before = len(storage.proxy.log)
    with storage.proxy.failing(E500=0.2, lost=0.1):
        place.publish(path, content, replace=True)
        assert place.read(path).to_pybytes() == content
    assert storage.read("large/object") == content
    assert [method for method, _, _ in storage.proxy.log[before:]].count("POST") >= 2  # begun and completed


def test_a_process_that_stores_while_nothing_answers(storage: Storage, world: SmallWorld, cache: Path) -> None:
    """An outage in the middle: what was written meanwhile is on the disk, and sent with the next segment."""
    store = world.create("s3://bucket/outage")
    notes: list[str] = []
    written: list[tuple[int, ...]] = []
    writer = SegmentWriter(store, lambda path, trials: written.append(trials), notes.append)
    places.place_of(store.path)._patience = 0.0  # type: ignore[attr-defined]
    with storage.proxy.failing(E503=1.0):
        for number in range(2):
            writer.add(world.outcome(number))
            writer.flush()
        with pytest.raises(UnreachableError, match=r"2 trained trial\(s\) are kept in .*run the same command here"):
            writer.close()
    kept = sorted(cache.rglob("unsent/*/*.parquet"))
    assert len(kept) == 2
    assert storage.names("outage/trials") == []
    contents = {path.name: path.read_bytes() for path in kept}
    writer.add(world.outcome(2))
    writer.close()
    assert list(cache.rglob("unsent/*/*.parquet")) == []
    assert {name: storage.read(f"outage/trials/{name}") for name in contents} == contents
    assert store.scan().numbers.tolist() == [0, 1, 2]
    assert written == [(0,), (1,), (2,)]
    assert [note.partition(" ")[0] for note in notes] == ["Failed", "The"]  # each said once


def test_the_first_segment_says_what_is_recorded_after_an_outage(
    storage: Storage, world: SmallWorld, cache: Path
) -> None:
    """It was kept here, and whoever sends it, this process or a later one, says what its columns are."""
    extras = {f"{split}_margin": np.ones(n, np.float16) for split, n in (("train", 21), ("test", 13))}
    outcome = dataclasses.replace(world.outcome(0), extras=extras)
    info = dataclasses.replace(world.info, columns=())
    for name in ("same", "later"):
        where = f"s3://bucket/unsaid-{name}"
        store = TrialStore.create(where, info, world.y_train, world.y_test)
        places.place_of(store.path)._patience = 0.0  # type: ignore[attr-defined]
        with storage.proxy.failing(E503=1.0), pytest.raises(UnreachableError):
            store.write([outcome])
        store.keep([outcome])
        assert TrialStore.open(where).info.columns == ()
        if name == "same":
            store.send_kept()
            assert store.info.record == ("margin",)
        else:
            TrialStore.create(where, info, world.y_train, world.y_test).clean()
        assert TrialStore.open(where).info.record == ("margin",)
        assert TrialStore.open(where).read_extra("train_margin")[1].tolist() == [[1.0] * 21]


def test_what_is_kept_of_another_run_stays(storage: Storage, world: SmallWorld, cache: Path) -> None:
    """The run was deleted and made anew with another learner; its kept segments are none of the new one's."""
    store = world.create("s3://bucket/anew")
    kept = store.keep([world.outcome(0)])
    store._place.remove(store.path / "run.json")
    other = dataclasses.replace(world.info, learner={"name": "other"})
    TrialStore.create("s3://bucket/anew", other, world.y_train, world.y_test).clean()
    assert storage.names("anew/trials") == []
    assert kept.exists()


def test_two_that_create_different_runs_at_once_are_not_mixed(
    storage: Storage, world: SmallWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both see nothing there and both write; the last run.json stays, and the other one stops at its first segment."""
    other = dataclasses.replace(world.info, learner={"name": "other"})
    monkeypatch.setattr(remote.RemotePlace, "is_file", lambda place, path: False)  # as both see it
    first = world.create("s3://bucket/raced")
    second = TrialStore.create("s3://bucket/raced", other, world.y_train, world.y_test)
    monkeypatch.undo()
    second.write([world.outcome(0)])
    with pytest.raises(RunMismatchError, match="has become a different run"):
        first.write([world.outcome(1)])
    assert second.scan().numbers.tolist() == [0]
    assert second.scan().damaged == ()


def _write_many(uri: str, first: int) -> None:
    world = SmallWorld()
    store = world.create(uri)
    for number in range(first, first + 10, 2):
        store.write([world.outcome(number), world.outcome(number + 1)])


def test_many_processes_create_and_write_one_run_at_once(storage: Storage, world: SmallWorld) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=("s3://bucket/many", first)) for first in (0, 6, 12)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 3
    trials, damaged = TrialStore.open("s3://bucket/many").read()
    assert damaged == ()
    assert trials.numbers.tolist() == list(range(22))


def test_places_are_what_was_written() -> None:
    assert locate("runs/digits") == Path("runs/digits")
    assert locate("s3:/no/uri") == Path("s3:/no/uri")
    assert locate("file:///runs/digits") == Path("/runs/digits")
    uri = locate("S3://bucket//runs/digits/?region=eu-west-1")
    assert uri == Uri("s3://bucket", "runs/digits", "region=eu-west-1")
    assert locate(uri) is uri
    assert locate(str(uri)) == uri
    assert locate(Path("s3://bucket/runs/digits")) == Uri("s3://bucket", "runs/digits")  # pathlib drops a slash
    assert str(uri / "trials" / "a.parquet") == "s3://bucket/runs/digits/trials/a.parquet?region=eu-west-1"
    assert ((uri / "a.b.parquet").name, (uri / "a.b.parquet").stem) == ("a.b.parquet", "a.b")
    assert (uri.scheme, uri.authority, uri.name, uri.parts) == (
        "s3",
        "bucket",
        "digits",
        ("s3://bucket", "runs", "digits"),
    )
    assert folder_for(uri) == Path("runs/s3-bucket-runs-digits")
    assert folder_for(Path("x")) == Path("x")
    assert str(locate("hdfs:///runs/digits")) == "hdfs:///runs/digits"


class Listed(LocalFileSystem):
    """A file system that keeps what it has listed, as those of fsspec for networks do."""

    protocol = "listed"
    late: ClassVar[int] = 0  # how many times more what was listed is not forgotten when it should be

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        key = self._strip_protocol(path)
        if key not in self.dircache:
            self.dircache[key] = super().ls(path, detail=True, **options)
        return self.dircache[key] if detail else [one["name"] for one in self.dircache[key]]

    def invalidate_cache(self, path: str | None = None) -> None:
        if type(self).late > 0:
            type(self).late -= 1
        else:
            self.dircache.clear()


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where one host sees what another one does at `tmp_path`, through listings that it keeps."""
    fsspec.register_implementation("listed", Listed, clobber=True)
    monkeypatch.setattr(Listed, "late", 0)
    monkeypatch.setattr("memfluence.store.store._PAUSES", (0.0,) * 3)
    monkeypatch.setenv("MEMFLUENCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MEMFLUENCE_CACHE_SIZE", "0")
    places._remote.cache_clear()
    yield f"listed://{tmp_path}/run"
    places._remote.cache_clear()
    Listed.clear_instance_cache()


def test_what_another_host_does_is_seen_though_listings_are_kept(
    listed: str, tmp_path: Path, world: SmallWorld
) -> None:
    there = world.create(tmp_path / "run")
    here = TrialStore.open(listed)
    assert here.scan().numbers.tolist() == []
    for number in range(5):
        there.write([world.outcome(number)])
    assert here.read()[0].numbers.tolist() == [0, 1, 2, 3, 4]
    for number in range(5, 10):
        there.write([world.outcome(number)])
    there.write_failure(Failure(11, "ValueError: no"))
    mf.compact(tmp_path / "run")
    assert here.scan().numbers.tolist() == list(range(10))
    assert here.read()[0].numbers.tolist() == list(range(10))
    assert list(here.failures()) == [11]
    grown = dataclasses.replace(world.info, trials=12345678)
    TrialStore.create(tmp_path / "run", grown, world.y_train, world.y_test)
    assert TrialStore.open(listed).info.trials == 12345678


def test_a_listing_that_stays_old_is_an_error_and_no_smaller_run(
    listed: str, tmp_path: Path, world: SmallWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = world.create(tmp_path / "run")
    for number in range(10):
        there.write([world.outcome(number)])
    here = TrialStore.open(listed)
    assert here.scan().segments == 10
    mf.compact(tmp_path / "run")
    monkeypatch.setattr(Listed, "late", 10**9)
    for read in (here.scan, here.read, lambda: mf.verify(listed), lambda: mf.merge(tmp_path / "out", [listed])):
        with pytest.raises(StoreError, match=r"is not there, nor is any other segment with its trials.* run the same"):
            read()
    monkeypatch.setattr(Listed, "late", 4)  # and after a while it is new
    assert here.read()[0].numbers.tolist() == list(range(10))


def test_segments_that_were_set_aside_meanwhile_are_missed_by_nobody(
    listed: str, tmp_path: Path, world: SmallWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = world.create(tmp_path / "run")
    paths = [there.write([world.outcome(number)]) for number in range(3)]
    here = TrialStore.open(listed)
    assert here.scan().segments == 3
    there.set_aside([Damage(paths[1], "it was damaged")])
    monkeypatch.setattr(Listed, "late", 2)
    assert here.read()[0].numbers.tolist() == [0, 2]
