"""`verify`, `repair`, `merge`, `compact` and `status` of runs elsewhere."""

from pathlib import Path

import pytest

import memfluence as mf
from memfluence.store import TrialStore
from remote.s3_server import Storage
from store.upkeep.planned_world import PlannedWorld, with_one_bit_changed


@pytest.fixture(params=["s3://bucket", "memory://bucket", "local://"])
def place(request: pytest.FixtureRequest, storage: Storage, tmp_path: Path) -> str:
    return f"{request.param}{tmp_path}"


def test_runs_elsewhere_are_mended_joined_and_compacted(place: str, tmp_path: Path) -> None:
    world = PlannedWorld(trials=20)
    store = world.create(f"{place}/run")  # type: ignore[arg-type]
    for first in range(0, 20, 2):
        store.write([world.outcome(first), world.outcome(first + 1)])
    assert mf.verify(f"{place}/run").is_clean
    store.write([world.outcome(3, mask=with_one_bit_changed(world.outcome(3).mask)), world.outcome(4)])
    assert "differs from the plan's" in mf.verify(f"{place}/run").problems[0].message
    done = mf.repair(f"{place}/run")
    assert (len(done.set_aside), done.missing) == (1, ())
    assert mf.verify(f"{place}/run").is_clean
    done_here = mf.merge(tmp_path / "here", [f"{place}/run"])
    assert done_here.added == 20
    assert mf.merge(f"{place}/there", [tmp_path / "here"]).added == 20
    compacted = mf.compact(f"{place}/run")
    assert (compacted.segments, compacted.copies) == (1, 1)
    status = mf.open(f"{place}/run").status()
    assert (status["trials"], status["segments"]) == (20, 1)
    whole = mf.open(f"{place}/run").memorization()
    for other in (tmp_path / "here", f"{place}/there"):
        assert mf.open(other).memorization().equals(whole)


def test_verify_looks_at_the_storage_and_not_at_copies_of_it(storage: Storage) -> None:
    world = PlannedWorld()
    store = TrialStore.create("s3://bucket/looked-at", world.info, world.y_train, world.y_test)
    path = store.write([world.outcome(0)])
    storage.write(f"looked-at/trials/{path.name}", storage.read(f"looked-at/trials/{path.name}")[:-3])
    assert store.scan().damaged == ()  # this machine's copy is whole
    (only,) = mf.verify("s3://bucket/looked-at").problems
    assert (only.segment, "torn or altered" in only.message) == (path.name, True)
    mf.repair("s3://bucket/looked-at")
    assert storage.names("looked-at/trials") == []
    assert path.name in storage.names("looked-at/damaged")
