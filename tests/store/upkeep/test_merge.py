"""`merge`: runs made in different places become one; what does not belong together is refused, and nothing written."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import memfluence as mf
from memfluence.errors import InputError, RunMismatchError, StoreError
from memfluence.records import Failure
from memfluence.store import TrialStore, unpack
from store.upkeep.planned_world import PlannedWorld, all_files


def parts(world: PlannedWorld, tmp_path: Path, *ranges: range) -> list[Path]:
    paths = []
    for k, numbers in enumerate(ranges):
        store = world.create(tmp_path / f"part-{k}")
        for number in numbers:
            store.write([world.outcome(number, host=f"host-{k}")])
        paths.append(store.path)
    return paths


@pytest.mark.parametrize("groups", [None, np.arange(21) // 3], ids=["examples", "groups"])
def test_parts_become_the_whole(tmp_path: Path, groups: np.ndarray | None) -> None:
    world = PlannedWorld(keep=0.5, groups=groups)
    world.filled(tmp_path / "whole")
    given = parts(world, tmp_path, range(7), range(5, 12))
    before = [all_files(path) for path in given]
    done = mf.merge(tmp_path / "out", given)
    assert (done.added, done.already_there, done.trials) == (12, 2, 12)
    assert [all_files(path) for path in given] == before
    assert mf.verify(tmp_path / "out").is_clean
    assert mf.open(tmp_path / "out").memorization().equals(mf.open(tmp_path / "whole").memorization())
    assert TrialStore.open(tmp_path / "out").scan(["host"]).details["host"].tolist() == ["host-0"] * 7 + ["host-1"] * 5
    again = mf.merge(tmp_path / "out", given)
    assert (again.added, again.already_there, again.trials) == (0, 14, 12)
    assert (TrialStore.open(tmp_path / "out").examples.groups()[1] if groups is not None else ()) == (
        tuple(map(str, range(7))) if groups is not None else ()
    )


def test_into_a_run_that_is_there_which_grows(tmp_path: Path) -> None:
    small, large = PlannedWorld(trials=12), PlannedWorld(trials=20)
    small.filled(tmp_path / "out")
    larger = large.create(tmp_path / "larger")
    larger.write([large.outcome(number) for number in range(10, 20)])
    larger.write_failure(Failure(3, "done elsewhere since"))
    done = mf.merge(tmp_path / "out", [tmp_path / "larger"])
    assert (done.added, done.already_there, done.trials) == (8, 2, 20)
    assert TrialStore.open(tmp_path / "out").info.trials == 20
    assert mf.verify(tmp_path / "out").is_clean
    assert TrialStore.open(tmp_path / "out").failures() == {}


def test_failures_come_along(tmp_path: Path) -> None:
    world = PlannedWorld()
    first, second = parts(world, tmp_path, range(6), range(6, 11))
    TrialStore.open(second).write_failure(Failure(11, "ValueError: no"))
    for _ in range(2):
        mf.merge(tmp_path / "out", [first, second])
        assert list(TrialStore.open(tmp_path / "out").failures()) == [11]
    assert len(list((tmp_path / "out" / "failures").iterdir())) == 1


@pytest.mark.filterwarnings("ignore::memfluence.errors.MemfluenceWarning")
def test_of_different_records_the_first_is_taken_whichever_run_has_it(tmp_path: Path) -> None:
    world = PlannedWorld()
    (mine,) = parts(world, tmp_path, range(6))
    wrong = ~world.outcome(3).test_correct
    store = world.create(tmp_path / "theirs")
    store.write([world.outcome(3, test_correct=wrong, finished=5.0), world.outcome(2)])
    mf.merge(tmp_path / "late", [mine])  # trial 3 of `mine` does not say when it was finished, so it goes first
    done = mf.merge(tmp_path / "late", [store.path])
    assert (done.added, done.already_there, done.trials, done.differing) == (0, 2, 6, (3,))
    early = world.create(tmp_path / "early")
    early.write([world.outcome(3, finished=9.0)])
    done = mf.merge(early.path, [store.path])
    assert (done.added, done.trials, done.differing) == (2, 2, (3,))
    (row,) = TrialStore.open(early.path).read()[0].test_correct[1:]
    assert (unpack(row, world.n_test) == wrong).all()
    assert [one.trial for one in mf.verify(early.path).problems] == [3]
    assert mf.repair(early.path).missing == tuple({*range(12)} - {2, 3})


def test_what_does_not_belong_together_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    world = PlannedWorld()
    (mine,) = parts(world, tmp_path, range(6))
    other = PlannedWorld("bernoulli", 0.5)
    other.filled(tmp_path / "other")
    with pytest.raises(RunMismatchError, match=r"other is not the same run as .*part-0: it differs in the plan's"):
        mf.merge(tmp_path / "out", [mine, tmp_path / "other"])
    learner = PlannedWorld()
    learner.info = dataclasses.replace(learner.info, learner={"name": "another"})
    learner.filled(tmp_path / "learner")
    with pytest.raises(RunMismatchError, match="the learner's name"):
        mf.merge(tmp_path / "out", [mine, tmp_path / "learner"])
    labels = PlannedWorld()
    labels.y_train = labels.y_train[::-1]
    labels.filled(tmp_path / "labels")
    with pytest.raises(RunMismatchError, match="the labels"):
        mf.merge(tmp_path / "out", [mine, tmp_path / "labels"])
    imported = PlannedWorld()
    imported.info = dataclasses.replace(imported.info, learner=None)
    runs = [imported.filled(tmp_path / name).path for name in ("imported", "imported-too")]
    TrialStore.open(runs[1]).remove_segments(TrialStore.open(runs[1]).segment_names())
    TrialStore.open(runs[1]).write([world.outcome(3, test_correct=~world.outcome(3).test_correct)])
    with pytest.raises(StoreError, match=r"imported-too has another record of trial 3 than .*Nothing was written"):
        mf.merge(tmp_path / "out", runs)
    ours = world.create(tmp_path / "torn")
    torn = ours.write([world.outcome(3)])
    torn.write_bytes(torn.read_bytes()[:-1])
    with pytest.raises(StoreError, match="Mend that run first: 'memfluence repair"):
        mf.merge(tmp_path / "out", [mine, ours.path])
    with pytest.raises(InputError, match="no run at"):
        mf.merge(tmp_path / "out", [mine, tmp_path / "nowhere"])
    with pytest.raises(InputError, match="name at least one"):
        mf.merge(tmp_path / "out", [])
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="holds other files"):
        mf.merge(tmp_path / "out", [mine])


def test_a_part_of_a_run_goes_on_as_a_run_of_its_own(tmp_path: Path) -> None:
    world = PlannedWorld(record=("prediction", "test_margin"))
    rng = np.random.default_rng(3)
    extras = [
        {
            "train_prediction": rng.integers(0, 3, world.n_train).astype(np.uint8),
            "test_prediction": rng.integers(0, 3, world.n_test).astype(np.uint8),
            "test_margin": rng.standard_normal(world.n_test).astype(np.float16),
        }
        for _ in range(12)
    ]
    store = world.create(tmp_path / "run")
    for numbers in (range(5), range(5, 12)):
        store.write([world.outcome(number, extras=extras[number]) for number in numbers])
    store.write_failure(Failure(20, "ValueError: no"))
    done = mf.merge(tmp_path / "part", [store.path], trials=7, record="test_margin")
    assert (done.added, done.already_there, done.trials) == (7, 0, 7)
    part = TrialStore.open(tmp_path / "part")
    assert (part.info.trials, part.info.record, part.failures()) == (7, ("test_margin",), {})
    assert "test_prediction" not in part.info.columns
    assert mf.verify(part.path).is_clean
    assert (part.read_extra("test_margin")[1] == [one["test_margin"] for one in extras[:7]]).all()
    with pytest.raises(InputError, match="no column 'test_prediction'"):
        part.read_extra("test_prediction")
    for name in ("mask", "train_correct", "test_correct"):
        assert (getattr(part.read()[0], name) == getattr(store.read()[0], name)[:7]).all()

    bare = PlannedWorld(trials=20)  # what was made later, without what is left out
    later = bare.create(tmp_path / "later")
    later.write([bare.outcome(number) for number in range(10, 20)])
    with pytest.raises(RunMismatchError, match=r"what is recorded .* Give `record` to join"):
        mf.merge(tmp_path / "out", [store.path, later.path])
    done = mf.merge(tmp_path / "out", [store.path, later.path], record=())
    assert (done.added, done.already_there, done.trials, done.differing) == (20, 2, 20, ())
    whole = PlannedWorld(trials=20).filled(tmp_path / "whole")
    assert mf.open(tmp_path / "out").memorization().equals(mf.open(whole.path).memorization())
    again = mf.merge(tmp_path / "out", [store.path], record=())
    assert (again.added, again.already_there, again.trials) == (0, 12, 20)
    with pytest.raises(RunMismatchError, match=r"Join them in a new run: .*part keeps what it has"):
        mf.merge(tmp_path / "part", [store.path], record=())


def test_only_what_was_recorded_can_be_taken(tmp_path: Path) -> None:
    (run,) = parts(PlannedWorld(), tmp_path, range(6))
    with pytest.raises(InputError, match="has no test_margin; it recorded right and wrong alone"):
        mf.merge(tmp_path / "out", [run], record="test_margin")
    with pytest.raises(InputError, match="nothing called 'colour' to record"):
        mf.merge(tmp_path / "out", [run], record=["colour"])
    with pytest.raises(InputError, match="`trials` parameter must be an integer >= 1"):
        mf.merge(tmp_path / "out", [run], trials=0)
    assert not (tmp_path / "out").exists()
