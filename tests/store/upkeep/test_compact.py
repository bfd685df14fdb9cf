"""`compact` makes few segments of many, and at no moment is a trial without one."""

import multiprocessing
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import memfluence as mf
from memfluence.errors import StoreError
from memfluence.store import Rows, TrialStore, unpack
from memfluence.store.places import is_no_file
from store.upkeep.kills import killed_everywhere
from store.upkeep.planned_world import PlannedWorld, all_files


def is_whole(run: Path, world: PlannedWorld) -> bool:
    trials, damaged = TrialStore.open(run).read()
    right = all((unpack(trials.mask[k], 21) == world.outcome(k).mask).all() for k in range(len(trials)))
    return right and not damaged and trials.numbers.tolist() == list(range(world.info.trials))


def test_many_become_one_with_the_same_rows(tmp_path: Path) -> None:
    world = PlannedWorld(trials=50)
    store = world.filled(tmp_path / "run", per_segment=3)
    store.write([world.outcome(7, host="elsewhere"), world.outcome(30)])
    before = mf.open(tmp_path / "run").memorization()
    done = mf.compact(tmp_path / "run")
    assert (done.segments_before, done.segments, done.written, done.copies) == (18, 1, 1, 2)
    assert is_whole(tmp_path / "run", world)
    assert mf.open(tmp_path / "run").memorization().equals(before)
    found = mf.verify(tmp_path / "run")
    assert (found.is_clean, found.copies, found.segments) == (True, 0, 1)
    before_again = all_files(tmp_path / "run")
    assert mf.compact(tmp_path / "run").written == 0  # nothing to do
    assert all_files(tmp_path / "run") == before_again


def test_segments_are_of_bounded_size_and_large_ones_are_left_alone(tmp_path: Path) -> None:
    world = PlannedWorld(trials=60)
    store = world.filled(tmp_path / "run", per_segment=2)
    each = store.read_rows(store.segment_names()[0]).nbytes
    done = mf.compact(tmp_path / "run", largest=5 * each)
    sizes = [store.read_rows(name).nbytes for name in store.segment_names()]
    assert max(sizes) <= 5 * each
    assert done.segments == 6
    assert mf.compact(tmp_path / "run", largest=5 * each).written == 0
    assert is_whole(tmp_path / "run", world)


def test_copies_that_a_kill_left_are_written_once(tmp_path: Path) -> None:
    """Also where segments are too large to be joined with others."""
    store = PlannedWorld().filled(tmp_path / "run")
    mf.compact(tmp_path / "run")
    (whole,) = store.segment_names()
    rows = store.read_rows(whole)
    for first in (0, 3):  # as if others had been killed before they removed what they had joined
        store.write_rows(rows.take(np.arange(first, len(rows))))
    assert len(store.segment_names()) == 3
    done = mf.compact(tmp_path / "run", largest=int(1.2 * rows.nbytes))
    assert (done.segments, done.copies) == (1, 2 * len(rows) - 3)
    assert store.read_rows(store.segment_names()[0]) == rows
    assert mf.compact(tmp_path / "run", largest=int(1.2 * rows.nbytes)).written == 0


def test_segments_of_different_layouts_are_not_joined(tmp_path: Path) -> None:
    """Such as those of an older version, which lack two columns."""
    world = PlannedWorld()
    store = world.filled(tmp_path / "run", per_segment=2)
    for name in store.segment_names()[:3]:
        store.write_rows(Rows(store.read_rows(name).table.drop_columns(["process", "finished"])))
        store.remove_segments([name])
    assert mf.compact(tmp_path / "run").segments == 2
    assert is_whole(tmp_path / "run", world)
    assert store.scan(["process"]).details["process"].tolist() == [-1] * 12


def test_damaged_segments_and_those_with_different_records_of_a_trial_stay(tmp_path: Path) -> None:
    world = PlannedWorld(trials=14)
    store = world.filled(tmp_path / "run", per_segment=2)
    torn = store.segment_path(store.segment_names()[0])
    torn.write_bytes(torn.read_bytes()[:-1])
    done = mf.compact(tmp_path / "run")
    assert "torn or altered" in done.damaged[0]
    assert (done.segments, torn.exists()) == (2, True)
    for number in (12, 13):
        store.write([world.outcome(number)])
    store.write([world.outcome(5, test_correct=~world.outcome(5).test_correct, finished=1.0)])
    before = all_files(tmp_path / "run")
    done = mf.compact(tmp_path / "run")
    assert len(done.damaged) == 2
    assert "have different records of trial 5; 'memfluence repair" in done.damaged[0]
    after = all_files(tmp_path / "run")
    gone = {name.split("/")[-1][:19] for name in before.keys() - after.keys()}
    assert gone == {"000000012-000000012", "000000013-000000013"}  # and all others stay


def test_a_segment_whose_name_says_other_trials_stays(tmp_path: Path) -> None:
    """Names alone say which segments share no trial, so that one must be right before its rows are joined."""
    world = PlannedWorld()
    store = world.filled(tmp_path / "run", per_segment=2)
    path = store.segment_path(store.segment_names()[0])
    renamed = path.rename(path.with_name(path.name.replace("000000000-000000001", "000000020-000000021")))
    done = mf.compact(tmp_path / "run")
    assert (done.segments, renamed.exists()) == (2, True)
    assert "other trials than its name says" in done.damaged[0]
    assert is_whole(tmp_path / "run", world)


def test_condemned_segments_are_not_brought_back(tmp_path: Path) -> None:
    world = PlannedWorld()
    store = world.filled(tmp_path / "run", per_segment=2)
    store.condemn(store.segment_names()[:2])  # and the repair is killed
    mf.compact(tmp_path / "run")
    assert store.scan().numbers.tolist() == list(range(4, 12))
    assert len(store.scan().damaged) == 2
    assert mf.repair(tmp_path / "run").missing == (0, 1, 2, 3)
    assert mf.verify(tmp_path / "run").is_clean


def test_killed_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = PlannedWorld(trials=30)
    store = world.filled(tmp_path / "template", per_segment=2)
    largest = 6 * store.read_rows(store.segment_names()[0]).nbytes
    run = tmp_path / "run"

    def prepare() -> Path:
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(tmp_path / "template", run)
        return run

    ends = 0
    for _ in killed_everywhere(lambda: mf.compact(run, largest=largest), monkeypatch, prepare):
        ends += 1
        assert is_whole(run, world)
        assert mf.verify(run).is_clean
        mf.compact(run, largest=largest)
        assert is_whole(run, world)
        assert mf.verify(run).copies == 0 or len(TrialStore.open(run).segment_names()) > 1
    assert ends > 30


def _compact_often(run: str, times: int) -> None:
    for _ in range(times):
        mf.compact(run, largest=3000)
        mf.compact(run, largest=9000)


def _write_slowly(run: str, first: int, last: int) -> None:
    world = PlannedWorld(trials=300)
    store = world.create(Path(run))
    for number in range(first, last):
        store.write([world.outcome(number)])


def test_writers_readers_and_several_that_compact_at_once(tmp_path: Path) -> None:
    world = PlannedWorld(trials=300)
    store = world.create(tmp_path / "run")
    store.write([world.outcome(number) for number in range(100)])
    context = multiprocessing.get_context("spawn")
    run = str(tmp_path / "run")
    processes = [context.Process(target=_write_slowly, args=(run, first, first + 110)) for first in (100, 190)]
    processes += [context.Process(target=_compact_often, args=(run, 15)) for _ in range(2)]
    for process in processes:
        process.start()
    seen = 100
    while any(process.is_alive() for process in processes):
        trials, damaged = store.read()
        numbers = store.scan().numbers
        assert damaged == ()
        assert trials.numbers[:100].tolist() == list(range(100))
        assert len(numbers) >= len(trials) >= seen  # no trial that was there is ever gone
        seen = len(trials)
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert is_whole(tmp_path / "run", world)


def test_rows_that_are_not_read_back_as_written_cost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = PlannedWorld()
    store = world.filled(tmp_path / "run")
    old = store.segment_names()
    real = TrialStore.read_rows

    def forgetful(self: TrialStore, name: str, content: pa.Buffer | None = None) -> Rows:
        rows = real(self, name, content)
        return rows if name in old else Rows(rows.table.slice(1))

    monkeypatch.setattr(TrialStore, "read_rows", forgetful)
    with pytest.raises(StoreError, match="was not read back as it was written; nothing was removed"):
        mf.compact(tmp_path / "run")
    assert set(old) <= set(store.segment_names())


def test_rows_compare_bit_for_bit() -> None:
    def rows(value: float) -> Rows:
        return Rows(pa.table({"trial": pa.array([1]), "seconds": pa.array([value], pa.float64())}))

    assert rows(np.nan) == rows(np.nan)
    assert rows(0.0) != rows(-0.0)
    assert rows(1.0) != rows(2.0)
    assert rows(1.0) != 1.0


def test_a_segment_that_vanishes_while_it_is_looked_at_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment, look = tmp_path / "segment.parquet", Path.stat
    segment.write_bytes(b"")

    def looked_at(path: Path, **how: Any) -> Any:
        found = look(path, **how)
        if path == segment:
            path.unlink()  # another process has compacted it
        return found

    monkeypatch.setattr(Path, "stat", looked_at)
    assert not is_no_file(segment)
    assert not is_no_file(segment)  # gone
    assert is_no_file(tmp_path)
