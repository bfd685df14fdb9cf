"""The store's contract, with tests that read and damage the bytes around it."""

import dataclasses
import errno
import json
import multiprocessing
import os
import socket
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import memfluence as mf
from memfluence.errors import InputError, MemfluenceWarning, RunMismatchError, StoreError
from memfluence.records import Failure, Kind, Outcome
from memfluence.store import SegmentWriter, TrialStore, places
from memfluence.store.parquet import pack, unpack
from power_cuts import recorded
from small_world import SmallWorld
from store.upkeep.planned_world import PlannedWorld


def segment_files(path: Path) -> list[Path]:
    return sorted((path / "trials").iterdir())


def test_what_is_written_is_read(tmp_path: Path, world: SmallWorld) -> None:
    store = world.create(tmp_path / "run")
    store.write([world.outcome(3), world.outcome(1)])
    store.write([world.outcome(2)])
    trials, damaged = TrialStore.open(tmp_path / "run").read()
    assert damaged == ()
    assert trials.numbers.tolist() == [1, 2, 3]
    for row, number in enumerate([1, 2, 3]):
        expected = world.outcome(number)
        assert (unpack(trials.mask[row], 21) == expected.mask).all()
        assert (unpack(trials.train_correct[row], 21) == expected.train_correct).all()
        assert (unpack(trials.test_correct[row], 13) == expected.test_correct).all()
    assert [labels.tolist() for labels in store.examples.labels()] == [world.y_train.tolist(), world.y_test.tolist()]


def test_any_parquet_reader_can_open_a_segment(tmp_path: Path, world: SmallWorld) -> None:
    """Read around the store: plain PyArrow, bits unpacked by hand."""
    store = world.create(tmp_path / "run")
    store.write([world.outcome(5)])
    table = pq.read_table(segment_files(tmp_path / "run")[0], page_checksum_verification=True)
    row = table.to_pylist()[0]
    assert row["trial"] == 5
    bits = [(row["mask"][i // 8] >> (i % 8)) & 1 for i in range(21)]
    assert bits == world.outcome(5).mask.astype(int).tolist()
    outcome = world.outcome(5)
    assert row["accuracy_in"] == outcome.train_correct[outcome.mask].mean()
    assert row["accuracy_out"] == outcome.train_correct[~outcome.mask].mean()
    assert row["test_accuracy"] == outcome.test_correct.mean()
    assert (row["seconds"], row["host"], row["device"]) == (0.5, "here", "cpu")
    assert table.column_names == list(world.info.columns)


def test_extras_come_back_in_their_type(tmp_path: Path, world: SmallWorld) -> None:
    columns = {"train_margin": np.linspace(-2, 2, 21).astype(np.float16), "test_margin": np.ones(13, np.float16)}
    info = dataclasses.replace(world.info, record=("margin",), columns=(*world.info.columns, *columns))
    store = TrialStore.create(tmp_path / "run", info, world.y_train, world.y_test)
    for number in (4, 2):
        store.write([dataclasses.replace(world.outcome(number), extras=columns)])
    numbers, values = store.read_extra("train_margin")
    assert numbers.tolist() == [2, 4]
    assert values.dtype == np.float16
    assert (values == columns["train_margin"]).all()
    with pytest.raises(InputError, match="`record='logit'`"):
        store.read_extra("train_logit")


def test_bits_round_trip() -> None:
    for n in (1, 7, 8, 9, 64, 65):
        bits = np.random.default_rng(n).random((3, n)) < 0.5
        assert pack(bits).shape == (3, (n + 7) // 8)
        assert (unpack(pack(bits), n) == bits).all()


def test_the_same_trial_twice_counts_once(tmp_path: Path, world: SmallWorld) -> None:
    store = world.create(tmp_path / "run")
    store.write([world.outcome(0), world.outcome(1)])
    store.write([dataclasses.replace(world.outcome(1), seconds=9.0, host="elsewhere"), world.outcome(2)])
    assert store.read()[0].numbers.tolist() == [0, 1, 2]
    assert store.scan().numbers.tolist() == [0, 1, 2]


def test_of_two_different_records_of_one_trial_the_first_counts_and_it_is_said_once(
    tmp_path: Path, world: SmallWorld
) -> None:
    store = world.create(tmp_path / "run")
    late = dataclasses.replace(world.outcome(1), finished=20.0)
    early = dataclasses.replace(world.outcome(1), finished=10.0, test_correct=~late.test_correct, host="early")
    store.write([world.outcome(0), late])
    store.write([early, world.outcome(2)])
    store = TrialStore.open(tmp_path / "run")
    with pytest.warns(MemfluenceWarning, match=r"records of 1 trial\(s\) \(1\).*finished first counts") as told:
        (trials, damaged), scan = store.read(), store.scan(["host"])
    assert scan.details["host"].tolist() == ["here", "early", "here"]
    assert len(told) == 1
    assert damaged == ()
    assert trials.numbers.tolist() == [0, 1, 2]
    assert (unpack(trials.test_correct[1], 13) == early.test_correct).all()


@pytest.mark.filterwarnings("ignore::memfluence.errors.MemfluenceWarning")
def test_which_record_counts_depends_on_the_records_alone(tmp_path: Path) -> None:
    """Whatever segments they are in, in whatever order these came, and whichever of them were joined since."""
    world = PlannedWorld(trials=4, record=("margin",))
    rng = np.random.default_rng(0)

    def outcome(trial: int, variant: int, finished: float) -> Outcome:
        made = world.outcome(trial)
        margins = {f"{part}_margin": np.full(n, variant, np.float16) for part, n in (("train", 21), ("test", 13))}
        right = made.test_correct if variant % 2 else ~made.test_correct  # 0 and 2 differ in their margins alone
        return dataclasses.replace(made, test_correct=right, extras=margins, finished=finished)

    records = [outcome(trial, variant, when) for trial in range(4) for variant, when in VARIANTS]

    def counting(run: Path) -> list[bytes]:
        store = TrialStore.open(run)
        numbers, margins = store.read_extra("test_margin")
        trials, _ = store.read()
        assert numbers.tolist() == trials.numbers.tolist() == [0, 1, 2, 3]
        return [
            trials.test_correct.tobytes(),
            margins.tobytes(),
            store.scan(["finished"]).details["finished"].tobytes(),
        ]

    answers = []
    for attempt in range(6):
        runs = [tmp_path / f"{attempt}-{part}" for part in ("whole", "half")]
        for run in runs:
            world.create(run)
        for position in rng.permutation(len(records)).tolist():
            half = runs[attempt % 2 and position % 2]
            for run in {runs[0], half}:
                TrialStore.open(run).write([records[position]])
            if rng.random() < 0.2:
                mf.compact(runs[0])
        answers.append(counting(runs[0]))
        mf.merge(runs[1], [runs[0]])
        mf.merge(tmp_path / f"{attempt}-merged", runs[::-1])
        answers += [counting(runs[1]), counting(tmp_path / f"{attempt}-merged")]
        done = mf.repair(runs[0])
        assert done.missing == ()
        assert mf.verify(runs[0]).is_clean
        answers.append(counting(runs[0]))
    assert all(answer == answers[0] for answer in answers)


# What is recorded, and when it was finished: some at the same time, some without a time, and some twice.
VARIANTS = [(0, 30.0), (1, 20.0), (2, 20.0), (3, 20.0), (1, 40.0), (1, 20.0), (0, 20.0)]


def test_every_flipped_byte_and_every_cut_is_found(tmp_path: Path, world: SmallWorld) -> None:
    store = world.create(tmp_path / "run")
    store.write([world.outcome(0)])
    path = segment_files(tmp_path / "run")[0]
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for position in {0, len(good) - 1, *rng.integers(0, len(good), 60).tolist()}:
        bad = bytearray(good)
        bad[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(bad))
        assert [damage.path for damage in store.scan().damaged] == [path]
        trials, damaged = store.read()
        assert len(trials) == 0
        assert len(damaged) == 1
    for cut in (0, 1, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:cut])
        assert [damage.path for damage in store.scan().damaged] == [path]
    path.write_bytes(good)
    assert store.scan().damaged == ()


def test_damaged_segments_are_set_aside_and_nothing_else(tmp_path: Path, world: SmallWorld) -> None:
    store = world.create(tmp_path / "run")
    store.write([world.outcome(0)])
    store.write([world.outcome(1)])
    bad = segment_files(tmp_path / "run")[0]
    bad.write_bytes(bad.read_bytes()[:-3])
    scan = store.scan()
    assert scan.numbers.tolist() == [1]
    store.set_aside(scan.damaged)
    store.set_aside(scan.damaged)  # another process may have been quicker
    assert [path.name for path in (tmp_path / "run" / "damaged").iterdir()] == [bad.name]
    assert store.scan().damaged == ()


def test_a_segment_of_another_run_is_not_taken_for_ours(tmp_path: Path, world: SmallWorld) -> None:
    mine, other = world.create(tmp_path / "mine"), SmallWorld(seed=1)
    theirs = TrialStore.create(
        tmp_path / "theirs", dataclasses.replace(other.info, learner={"name": "x"}), other.y_train, other.y_test
    )
    path = theirs.write([other.outcome(0)])
    (tmp_path / "mine" / "trials" / path.name).write_bytes(path.read_bytes())
    assert "belongs to another run" in mine.scan().damaged[0].reason


def test_resuming_an_equal_run_grows_it_and_a_different_one_is_refused(tmp_path: Path, world: SmallWorld) -> None:
    world.create(tmp_path / "run").write([world.outcome(0)])
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    changes = [
        ({"dataset": {**world.info.dataset, "fingerprint": "0" * 32}}, "the data"),
        ({"learner": {"name": "none", "epochs": 3}}, "the learner's epochs"),
        ({"plan": {**world.info.plan, "seed": 9}}, "the plan's seed"),
        ({"record": ("margin",)}, "what is recorded"),
    ]
    for change, says in changes:
        with pytest.raises(RunMismatchError, match=says):
            TrialStore.create(tmp_path / "run", dataclasses.replace(world.info, **change), world.y_train, world.y_test)
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    grown = dataclasses.replace(world.info, trials=500)
    assert TrialStore.create(tmp_path / "run", grown, world.y_train, world.y_test).info.trials == 500
    assert world.create(tmp_path / "run").info.trials == 500  # asking for fewer does not shrink it
    assert TrialStore.open(tmp_path / "run").info.kinds == (Kind(0.7, 15),)


def test_labels_that_were_lost_are_written_again(tmp_path: Path, world: SmallWorld) -> None:
    store = world.create(tmp_path / "run")
    store.write([world.outcome(0)])
    (labels,) = (tmp_path / "run").glob("examples-*.parquet")
    content = labels.read_bytes()
    labels.unlink()
    world.create(tmp_path / "run")
    assert labels.read_bytes() == content


def test_paths_that_hold_something_else_are_refused_untouched(tmp_path: Path, world: SmallWorld) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is a file"):
        world.create(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match=r"holds other files \(thesis.tex\)"):
        world.create(tmp_path / "folder")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["thesis.tex"]
    (tmp_path / "empty").mkdir()
    world.create(tmp_path / "empty")


@pytest.mark.parametrize(
    ("content", "says"),
    [("", "damaged"), ("{", "damaged"), ("[]", "damaged"), ('{"format": 2}', "format 2"), ('{"format": 1}', "damaged")],
)
def test_a_run_file_that_cannot_be_read(tmp_path: Path, world: SmallWorld, content: str, says: str) -> None:
    world.create(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text(content)
    with pytest.raises(StoreError, match=says):
        TrialStore.open(tmp_path / "run")
    with pytest.raises(InputError, match="no run at"):
        TrialStore.open(tmp_path / "nowhere")


def test_a_full_disk_leaves_no_trace_and_can_be_tried_again(
    tmp_path: Path, world: SmallWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = world.create(tmp_path / "run")
    writer = SegmentWriter(store)
    with monkeypatch.context() as patch:

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(places.os, "fsync", full)
        writer.add(world.outcome(0))
        with pytest.raises(StoreError, match=r"disk is full.*run the same command"):
            writer.flush()
        assert segment_files(tmp_path / "run") == []
    writer.flush()
    assert store.scan().numbers.tolist() == [0]


def test_failures_are_kept_until_the_trial_is_done(tmp_path: Path, world: SmallWorld) -> None:
    store = world.create(tmp_path / "run")
    store.write_failure(Failure(4, "ValueError: no", "trace"))
    store.write_failure(Failure(2, "ValueError: no", "trace"))
    assert list(store.failures()) == [2, 4]
    assert list(store.failures(done=[4])) == [2]
    (tmp_path / "run" / "failures" / "junk.json").write_text("{")
    assert list(store.failures()) == [2, 4]


def test_half_written_files_are_cleaned_when_it_is_sure_that_nobody_writes_them(
    tmp_path: Path, world: SmallWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = world.create(tmp_path / "run")
    mine = places._name_of_partial()
    head, pid, began, tail = mine.rsplit("-", 3)
    assert int(pid) == os.getpid()
    dead = multiprocessing.get_context("spawn").Process(target=int)
    dead.start()
    dead.join()
    another = ".partial-0123456789abcdef"  # of which this machine cannot know who is running
    names = {
        "alive": mine,
        "dead": f"{head}-{dead.pid}-{began}-{tail}",
        "its number is another's now": f"{head}-{pid}-{int(began) - 1}-{tail}",
        "elsewhere": f"{another}-{dead.pid}-{began}-{tail}",
        "elsewhere, long ago": f"{another}-{dead.pid}-{began}-{tail[::-1]}",
        "of an older version": f".partial-{socket.gethostname()}-{dead.pid}-{tail}",
        "of an older version, long ago": f".partial-{socket.gethostname()}-{dead.pid}-{tail[::-1]}",
    }
    for what, name in names.items():
        (tmp_path / "run" / "trials" / name).write_bytes(b"half")
        if "long ago" in what:
            os.utime(tmp_path / "run" / "trials" / name, (1.0, 1.0))
    assert store.scan().numbers.tolist() == []
    store.clean()
    left = {what for what, name in names.items() if (tmp_path / "run" / "trials" / name).exists()}
    assert left == {"alive", "elsewhere", "of an older version"}
    monkeypatch.setattr(places, "_this_system", lambda: "unknown")
    (tmp_path / "run" / "trials" / f".partial-unknown-{dead.pid}-0-{tail}").write_bytes(b"half")
    store.clean()
    assert (tmp_path / "run" / "trials" / f".partial-unknown-{dead.pid}-0-{tail}").exists()


@pytest.mark.parametrize("replace", [True, False])
def test_a_file_whose_half_was_taken_away_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: bool
) -> None:
    """By an older version on a host of the same name, or by a person."""
    real, taken = os.fsync, []

    def taking(descriptor: int) -> None:
        real(descriptor)
        for partial in tmp_path.glob(".partial-*") if len(taken) < 2 else ():
            partial.unlink()
            taken.append(partial)

    monkeypatch.setattr(places.os, "fsync", taking)
    assert places.publish(tmp_path / "file", b"whole", replace=replace)
    assert len(taken) == 2
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"whole"}
    with pytest.raises(StoreError, match="Failed writing"):
        places.publish(tmp_path / "no directory" / "file", b"whole", replace=replace)


@pytest.mark.parametrize("model", ["strict", "ordered"])
def test_what_was_stored_survives_a_power_cut(tmp_path: Path, world: SmallWorld, model: str) -> None:
    """Wherever the run is: every directory that was made for it is on the disk before a trial counts as stored."""
    (tmp_path / "there").mkdir()
    with recorded(tmp_path / "there") as tape:
        store = world.create(tmp_path / "there" / "new" / "newer" / "run")
        for number in range(3):
            store.write([world.outcome(number)])
            tape.note(number)
        store.write_failure(Failure(7, "ValueError: no"))
        tape.note(7)
    cuts = list(tape.cuts(model))
    assert len(cuts) > 10
    for cut in cuts:
        cut.write(tmp_path / "after")
        there: set[int] = set()
        if (tmp_path / "after" / "new" / "newer" / "run" / "run.json").exists():
            after = TrialStore.open(tmp_path / "after" / "new" / "newer" / "run")
            there = {*after.scan().numbers.tolist(), *after.failures()}
            assert after.scan().damaged == ()
        assert there >= set(cut.notes)


def test_a_directory_that_another_process_made_is_synced_too(tmp_path: Path, world: SmallWorld) -> None:
    """It may have been killed before it could."""
    (tmp_path / "there").mkdir()
    with recorded(tmp_path / "there") as tape:
        (tmp_path / "there" / "run").mkdir()
        world.create(tmp_path / "there" / "run").write([world.outcome(0)])
        tape.note("stored")
    for cut in tape.cuts("strict"):
        assert not cut.notes or any("/trials/" in path for path in cut.files)


def _write_many(path: str, first: int) -> None:
    world = SmallWorld()
    store = world.create(Path(path))
    for number in range(first, first + 30, 2):
        store.write([world.outcome(number), world.outcome(number + 1)])


def test_many_processes_create_and_write_one_run_at_once(tmp_path: Path, world: SmallWorld) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(str(tmp_path / "run"), first)) for first in (0, 20, 40, 60)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    trials, damaged = TrialStore.open(tmp_path / "run").read()
    assert damaged == ()
    assert trials.numbers.tolist() == list(range(90))
    assert all((unpack(trials.mask[k], 21) == world.outcome(k).mask).all() for k in range(90))


FIXTURE = Path(__file__).parent / "format-1"


def test_format_1_stays_readable_for_ever() -> None:
    """A run committed when the format was made; its values were written down beside it, not computed by the reader."""
    store = TrialStore.open(FIXTURE)
    trials, damaged = store.read()
    expected = json.loads((FIXTURE.parent / "format-1-expected.json").read_text())
    assert damaged == ()
    assert trials.numbers.tolist() == expected["trial"]
    assert trials.kinds.tolist() == expected["kind"]
    for name, n in (("mask", 12), ("train_correct", 12), ("test_correct", 5)):
        rows = unpack(getattr(trials, name), n).astype(int)
        assert ["".join(map(str, row)) for row in rows.tolist()] == expected[name]
    assert store.read_extra("test_prediction")[1].tolist() == expected["test_prediction"]
    assert [labels.tolist() for labels in store.examples.labels()] == expected["labels"]
    assert store.info.kinds == (Kind(0.5, 6), Kind(0.75, 9))
    assert store.info.group_size == 4
    assert list(store.failures()) == [3]


def test_trials_know_the_blocks_of_a_balanced_plan(tmp_path: Path, world: SmallWorld) -> None:
    """Blocks are counted within a kind, kinds take turns: with two of them a block spans twice as many numbers."""
    for kinds, block in ((world.info.kinds, 10), (world.info.kinds * 2, 20)):
        plan = {**world.info.plan, "design": "balanced", "options": {"block": 10}}
        info = dataclasses.replace(world.info, plan=plan, kinds=kinds)
        store = TrialStore.create(tmp_path / str(block), info, world.y_train, world.y_test)
        store.write([world.outcome(0)])
        trials, _ = store.read()
        assert (trials.block, trials.repeats, trials.cluster) == (block, 1, block)
    assert world.create(tmp_path / "fixed").read()[0].cluster == 1
