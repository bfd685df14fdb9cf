"""`verify` finds whatever is wrong with a run, says it in a sentence, and writes nothing."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import memfluence as mf
from memfluence import designs
from memfluence.errors import DesignError, InputError, RunMismatchError, StoreError
from memfluence.records import Failure
from memfluence.store import TrialStore, segments
from store.upkeep.planned_world import PlannedWorld, all_files, with_one_bit_changed


def messages(run: Path) -> list[str]:
    before = all_files(run)
    found = mf.verify(run)
    assert all_files(run) == before
    assert found.is_clean == (not found.problems)
    assert json.loads(json.dumps(found.to_json()))["clean"] == found.is_clean
    return [problem.message for problem in found.problems]


@pytest.mark.parametrize(
    ("design", "keep", "groups"),
    [
        ("fixed", 0.7, None),
        ("fixed", [0.5, 0.7], None),
        ("balanced:4", 0.7, None),
        ("bernoulli", 0.5, None),
        ("lemma", 0.7, None),
        ("repeats:3", 0.7, None),
        ("uniform:5", 0.7, None),
        ("fixed", 0.5, np.arange(21) // 3),
        ("uniform:2", 0.5, np.arange(21) // 3),
    ],
)
def test_a_good_run_is_clean_and_one_bit_of_a_mask_is_found(
    tmp_path: Path, design: str, keep: Any, groups: Any
) -> None:
    world = PlannedWorld(design, keep, groups)
    store = world.filled(tmp_path / "run")
    found = mf.verify(tmp_path / "run")
    assert found.is_clean
    assert (found.trials, found.segments, found.copies, found.notes) == (12, 3, 0, ())
    again = designs.planned(store.info.plan or {}, world.groups)
    assert again is not None
    assert all((again.trial(k).mask == world.design.trial(k).mask).all() for k in range(30))
    one = world.outcome(2)
    store.write([dataclasses.replace(one, mask=with_one_bit_changed(one.mask))])
    assert len(messages(tmp_path / "run")) == 1
    assert "Trial 2 of" in messages(tmp_path / "run")[0]
    assert "differs from the plan's in 1 example(s)" in messages(tmp_path / "run")[0]


def test_every_flipped_bit_and_every_cut_of_a_segment_is_found(tmp_path: Path) -> None:
    world = PlannedWorld()
    store = world.filled(tmp_path / "run")
    path = store.segment_path(store.segment_names()[1])
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for position in {0, 3, len(good) - 1, len(good) - 5, *rng.integers(0, len(good), 60).tolist()}:
        bad = bytearray(good)
        bad[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(bad))
        assert [one.segment for one in mf.verify(tmp_path / "run").problems] == [path.name]
    for cut in (0, 1, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:cut])
        (only,) = mf.verify(tmp_path / "run").problems
        assert "torn or altered" in only.message
    path.write_bytes(good)
    assert messages(tmp_path / "run") == []


def test_rows_that_the_run_cannot_have(tmp_path: Path) -> None:
    world = PlannedWorld()
    store = world.filled(tmp_path / "run")
    store.write([world.outcome(12), world.outcome(0, trial=-1)])
    store.write([world.outcome(4, kind=3)])
    found = messages(tmp_path / "run")
    assert len(found) == 3
    assert sum("is outside the run, which has trials 0 to 11" in one for one in found) == 2
    assert sum("is of kind 3, and the run has 1 kind(s)" in one for one in found) == 1
    several = PlannedWorld(keep=[0.5, 0.7])
    several.filled(tmp_path / "several").write([several.outcome(4, kind=1)])
    assert "is of kind 1, and the plan gives it kind 0" in messages(tmp_path / "several")[0]


def test_copies_that_are_equal_count_once_and_of_different_ones_the_first(tmp_path: Path) -> None:
    world = PlannedWorld()
    store = world.filled(tmp_path / "run")
    store.write([world.outcome(5, host="elsewhere", seconds=3.0), world.outcome(6)])
    found = mf.verify(tmp_path / "run")
    assert found.is_clean
    assert (found.trials, found.copies) == (12, 2)
    other = store.write([world.outcome(5, test_correct=~world.outcome(5).test_correct, finished=1.0)])
    found = mf.verify(tmp_path / "run")
    assert (found.trials, found.copies) == (12, 2)
    (only,) = found.problems
    assert (only.what, only.trial, only.segment) == ("trial", 5, other.name)
    assert "Trial 5 of" in only.message
    assert "was finished first and counts" in only.message


def test_a_segment_of_another_run(tmp_path: Path) -> None:
    world, other = PlannedWorld(), PlannedWorld("bernoulli", 0.5)
    world.filled(tmp_path / "run")
    theirs = other.create(tmp_path / "other").write([other.outcome(0)])
    (tmp_path / "run" / "trials" / theirs.name).write_bytes(theirs.read_bytes())
    (only,) = messages(tmp_path / "run")
    assert "belongs to another run: its memfluence.plan is" in only


def test_the_labels_and_the_plan_are_checked_too(tmp_path: Path) -> None:
    world = PlannedWorld()
    store = world.filled(tmp_path / "run")
    examples = tmp_path / "run" / str(store.info.dataset["examples"])
    good = examples.read_bytes()
    examples.write_bytes(good[:50] + bytes([good[50] ^ 1]) + good[51:])
    assert "torn or altered; restore it from a copy" in messages(tmp_path / "run")[0]
    examples.unlink()
    assert "No such file" in messages(tmp_path / "run")[0]
    examples.write_bytes(good)
    raw = json.loads((tmp_path / "run" / "run.json").read_text())
    raw["plan"]["seed"] = 6
    (tmp_path / "run" / "run.json").write_text(json.dumps(raw))
    assert "not the one that its digest was made of" in messages(tmp_path / "run")[0]
    raw["plan"]["seed"] = None
    (tmp_path / "run" / "run.json").write_text(json.dumps(raw))
    assert len(messages(tmp_path / "run")) == 1


def test_notes_and_checkpoints(tmp_path: Path) -> None:
    world = PlannedWorld(trials=14)
    store = world.create(tmp_path / "run")
    store.write([world.outcome(number) for number in range(12)])
    store.write_failure(Failure(12, "ValueError: no"))
    store.checkpoints().save(13, {"torch": "2"}, b"state", 0.4)
    found = mf.verify(tmp_path / "run")
    assert found.is_clean
    assert (found.trials_failed, found.trials_part_way) == (1, 1)
    (tmp_path / "run" / "failures" / "junk.json").write_text("{")
    checkpoint = next((tmp_path / "run" / "checkpoints").iterdir())
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    first, second = messages(tmp_path / "run")
    assert "cannot be gone on from: it is damaged" in first
    assert "junk.json cannot be read" in second


def test_runs_without_masks_in_their_plan_say_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    mask = rng.random((5, 8)) < 0.5
    labels = np.arange(8) % 2
    arrays = {"mask": mask, "train_correct": mask, "test_correct": mask, "train_labels": labels, "test_labels": labels}
    np.savez(tmp_path / "trials.npz", **arrays)
    mf.import_trials([tmp_path / "trials.npz"], tmp_path / "imported")
    found = mf.verify(tmp_path / "imported")
    assert found.is_clean
    assert "imported" in found.notes[0]
    with pytest.raises(InputError, match="leave out `sample`"):
        mf.verify(tmp_path / "imported", sample=1)
    run = mf.run("longtail?n_train=20&n_test=9", learner=learn, design="explicit", masks=MASKS, out=tmp_path / "masks")
    assert "explicit" in mf.verify(run.path).notes[0]


@pytest.mark.parametrize(("content", "says"), [("", "damaged"), ("{", "damaged"), ('{"format": 9}', "format 9")])
def test_what_is_no_run_is_said_in_a_sentence(tmp_path: Path, content: str, says: str) -> None:
    PlannedWorld().filled(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text(content)
    for command in (mf.verify, mf.repair, mf.compact):
        with pytest.raises(StoreError, match=says):
            command(tmp_path / "run")
        with pytest.raises(InputError, match="There is no run at"):
            command(tmp_path)


def test_a_stored_plan_that_cannot_be_one() -> None:
    plan = PlannedWorld().info.plan or {}
    with pytest.raises(DesignError, match="no design 'dice'"):
        designs.planned({**plan, "design": "dice"})


def learn(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    directions = np.random.default_rng(seed).normal(size=(x.shape[1], 3))
    seen = x @ directions
    return lambda z: y[(((z @ directions)[:, None] - seen[None]) ** 2).sum(-1).argmin(1)]


def forgets_its_seed(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    return lambda z: y[np.random.default_rng().integers(len(y), size=len(z))]


MASKS = np.random.default_rng(0).random((6, 20)) < 0.6
DATA = "longtail?n_train=20&n_test=9&seed=3"


def test_a_sample_is_trained_again(tmp_path: Path) -> None:
    mf.run(DATA, learner=learn, trials=9, out=tmp_path / "run", record=["prediction"], progress=False)
    found = mf.verify(tmp_path / "run", sample=3, seed=1, learner=learn)
    assert found.is_clean
    assert [one.differ for one in found.sample] == [0, 0, 0]
    assert [one.of for one in found.sample] == [20 + 20 + 9 + 20 + 9] * 3
    assert found.sample == mf.verify(tmp_path / "run", sample=3, seed=1, learner=learn).sample
    assert len(mf.verify(tmp_path / "run", sample=30, learner=learn).sample) == 9
    with pytest.raises(RunMismatchError, match="differs in the learner's"):
        mf.verify(tmp_path / "run", sample=3, learner=forgets_its_seed)
    with pytest.raises(RunMismatchError, match="differ"):
        mf.verify(tmp_path / "run", sample=3, learner=learn, dataset="longtail?n_train=20&n_test=9&seed=4")


def test_a_group_is_trained_as_a_whole(tmp_path: Path) -> None:
    """The built-in learner trains many models at once, and is made again from the run itself."""
    mf.run(DATA, trials=40, out=tmp_path / "run", settings={"epochs": "2"}, record=["margin"], progress=False)
    found = mf.verify(tmp_path / "run", sample=2)
    assert found.is_clean
    assert len(found.sample) == 2


def test_a_learner_that_ignores_its_seed_is_found_out(tmp_path: Path) -> None:
    mf.run(DATA, learner=forgets_its_seed, trials=9, out=tmp_path / "run", progress=False)
    found = mf.verify(tmp_path / "run", sample=9, learner=forgets_its_seed)
    assert {one.what for one in found.problems} == {"sample"}
    assert "trained twice now, gives two answers: the learner is not deterministic" in found.problems[0].message
    assert "there is nothing to repair" in found.problems[0].message
    assert [one.deterministic for one in found.sample] == [False] * 9
    assert mf.repair(tmp_path / "run", dry_run=True).problems == ()


def test_what_was_written_through_the_store_is_not_trusted_blindly(tmp_path: Path) -> None:
    """Outcomes that the learner would not give, under valid checksums and the plan's mask: only a sample shows it."""
    mf.run(DATA, learner=learn, trials=4, out=tmp_path / "run", progress=False)
    store = TrialStore.open(tmp_path / "run")
    (name,) = store.segment_names()
    rows = store.read_rows(name)
    column = rows.table.column_names.index("test_correct")
    flipped = [bytes(byte ^ 1 for byte in value) for value in rows.table["test_correct"].to_pylist()]
    field = rows.table.schema.field(column)
    table = rows.table.set_column(column, field, pa.array(flipped, field.type))
    store.write_rows(dataclasses.replace(rows, table=table))
    store.remove_segments([name])
    assert mf.verify(tmp_path / "run").is_clean
    found = mf.verify(tmp_path / "run", sample=4, learner=learn)
    assert len(found.problems) == 4
    assert [(one.deterministic, one.differ, one.of) for one in found.sample] == [(True, 2, 20 + 20 + 9)] * 4
    assert "differs in 2 of 49 values from what is stored, and twice now it is the same" in found.problems[0].message
    # Made with another version or on another device, that is no problem but worth a note.
    (name,) = store.segment_names()
    column = table.column_names.index("versions")
    others = pa.array(["numpy 1.0"] * 4)
    store.write_rows(dataclasses.replace(rows, table=table.set_column(column, table.schema.field(column), others)))
    store.remove_segments([name])
    found = mf.verify(tmp_path / "run", sample=4, learner=learn)
    assert found.is_clean
    assert "it was made with numpy 1.0, which may change rounding" in found.notes[0]


def test_a_segment_without_rows_is_none(tmp_path: Path) -> None:
    store = PlannedWorld().filled(tmp_path / "run")
    empty = store.read_rows(store.segment_names()[0]).table.slice(0, 0)
    content = segments.encode_table(empty, store.info.identity)
    (tmp_path / "run" / "trials" / segments.segment_name([0], content)).write_bytes(content)
    (found,) = messages(tmp_path / "run")
    assert "is no segment: it has no trials" in found


@pytest.mark.parametrize("where", ["../outside/{}", "{parent}/outside/{}", None, 3, "run.json"])
def test_labels_outside_of_the_run_are_not_read(tmp_path: Path, where: Any) -> None:
    store = PlannedWorld().filled(tmp_path / "run")
    name = str(store.info.dataset["examples"])
    (tmp_path / "outside").mkdir()
    (tmp_path / "run" / name).rename(tmp_path / "outside" / name)
    raw = json.loads((tmp_path / "run" / "run.json").read_text())
    raw["dataset"]["examples"] = where.format(name, parent=tmp_path) if isinstance(where, str) else where
    (tmp_path / "run" / "run.json").write_text(json.dumps(raw))
    for ask in (mf.verify, mf.open):
        with pytest.raises(StoreError, match=r"is damaged .* restore it from a copy"):
            ask(tmp_path / "run")


def test_a_plan_whose_digest_is_another_is_not_gone_on_with(tmp_path: Path) -> None:
    """All its segments would else be of another run, and be set aside."""
    world = PlannedWorld()
    world.filled(tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    file.write_text(file.read_text().replace(world.design.plan.digest, "0" * 32))
    with pytest.raises(StoreError, match="digest of its plan is not the plan's"):
        world.create(tmp_path / "run")
