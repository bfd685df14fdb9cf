"""Checkpoints on disk: given back as they were written, in the run that they are of; anything else is passed over."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memfluence.errors import RunMismatchError
from memfluence.store import CheckpointFiles, TrialStore
from memfluence.store.places import _name_of_partial
from small_world import SmallWorld

MADE_WITH = {"torch": "2.13.0", "device": "cpu"}
CONTENT = b"\n\x00state\n" * 1000


@pytest.fixture
def store(world: SmallWorld, tmp_path: Path) -> TrialStore:
    return world.create(tmp_path / "run")


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def files(store: TrialStore, notes: list[str]) -> CheckpointFiles:
    return store.checkpoints(60.0, notes.append)


def the_file(store: TrialStore) -> Path:
    (path,) = (store.path / "checkpoints").iterdir()
    return path


def change_header(path: Path, **changes: Any) -> None:
    header, _, content = path.read_bytes().partition(b"\n")
    path.write_bytes(json.dumps(json.loads(header) | changes).encode() + b"\n" + content)


def test_what_is_saved_comes_back_until_it_is_removed(
    store: TrialStore, files: CheckpointFiles, notes: list[str]
) -> None:
    assert files.load(3, MADE_WITH) is None
    files.save(3, MADE_WITH, b"earlier", 0.2)
    files.save(3, MADE_WITH, CONTENT, 0.41)
    assert files.load(3, MADE_WITH) == CONTENT
    assert store.checkpoints().load(3, dict(MADE_WITH)) == CONTENT  # another process
    assert files.load(4, MADE_WITH) is None
    assert the_file(store).name == "000000003.checkpoint"
    files.remove([4, 5])
    assert files.load(3, MADE_WITH) == CONTENT
    store.checkpoints().remove([3])
    assert files.load(3, MADE_WITH) is None
    assert notes == []


def test_who_is_part_way(store: TrialStore, files: CheckpointFiles) -> None:
    assert files.part_way([]) == []
    for trial, fraction in ((12, 0.5), (3, 0.25), (7, 0.75)):
        files.save(trial, MADE_WITH, CONTENT, fraction)
    long_ago = time.time() - 3600
    os.utime(store.path / "checkpoints" / "000000003.checkpoint", (long_ago, long_ago))
    found = store.checkpoints().part_way([7])
    assert [(one.trial, one.fraction) for one in found] == [(3, 0.25), (12, 0.5)]
    assert found[0].seconds_ago >= 3600 > found[1].seconds_ago >= 0


@pytest.mark.parametrize("keep", [0, 1, 50, -1])
def test_a_torn_one_is_passed_over(store: TrialStore, files: CheckpointFiles, notes: list[str], keep: int) -> None:
    files.save(3, MADE_WITH, CONTENT, 0.4)
    the_file(store).write_bytes(the_file(store).read_bytes()[:keep])
    assert files.load(3, MADE_WITH) is None
    assert notes == ["The checkpoint of trial 3 is not used, because it is damaged; the trial starts over."]


def test_one_with_a_changed_bit_is_passed_over(store: TrialStore, files: CheckpointFiles, notes: list[str]) -> None:
    files.save(3, MADE_WITH, CONTENT, 0.4)
    content = bytearray(the_file(store).read_bytes())
    content[-100] ^= 1
    the_file(store).write_bytes(content)
    assert files.load(3, MADE_WITH) is None
    assert "it is damaged" in notes[0]


def test_one_of_another_format_is_passed_over(store: TrialStore, files: CheckpointFiles, notes: list[str]) -> None:
    files.save(3, MADE_WITH, CONTENT, 0.4)
    change_header(the_file(store), format=0)
    assert files.load(3, MADE_WITH) is None
    assert "because it has the format 0 (here it is 1)" in notes[0]
    assert files.part_way([]) == []


def test_one_made_with_another_version_is_passed_over(files: CheckpointFiles, notes: list[str]) -> None:
    files.save(3, MADE_WITH, CONTENT, 0.4)
    assert files.load(3, MADE_WITH | {"torch": "2.14.0"}) is None
    assert "because it was made with torch 2.13.0 (here it is 2.14.0)" in notes[0]
    assert files.load(3, {"torch": "2.13.0"}) is None
    assert files.load(3, MADE_WITH) == CONTENT


def test_one_of_another_trial_or_run_is_passed_over(
    world: SmallWorld, store: TrialStore, files: CheckpointFiles, notes: list[str], tmp_path: Path
) -> None:
    files.save(3, MADE_WITH, CONTENT, 0.4)
    path = the_file(store)
    path.with_name("000000004.checkpoint").write_bytes(path.read_bytes())
    assert store.checkpoints(0.0, notes.append).load(4, MADE_WITH) is None
    plan: dict[str, Any] = {**(world.info.plan or {}), "digest": "q" * 32}
    for number, info in enumerate(
        (
            replace(world.info, plan=plan),
            replace(world.info, learner={"name": "other"}),
            replace(world.info, dataset={**world.info.dataset, "fingerprint": "e" * 32}),
        )
    ):
        other = TrialStore.create(tmp_path / f"other-{number}", info, world.y_train, world.y_test)
        (other.path / "checkpoints").mkdir()
        (other.path / "checkpoints" / path.name).write_bytes(path.read_bytes())
        assert other.checkpoints(0.0, notes.append).load(3, MADE_WITH) is None
        assert other.checkpoints().part_way([]) == []
    assert len(notes) == 4
    assert all("because it is of another run" in note for note in notes)


def test_a_folder_that_takes_no_file_is_a_note(store: TrialStore, files: CheckpointFiles, notes: list[str]) -> None:
    (store.path / "checkpoints").write_text("in the way")
    files.save(3, MADE_WITH, CONTENT, 0.4)
    assert len(notes) == 1
    assert notes[0].startswith("Trial 3 goes on without a checkpoint. Failed creating")


def test_the_half_written_are_deleted_and_the_readers_see_nothing(
    world: SmallWorld, store: TrialStore, files: CheckpointFiles
) -> None:
    store.write([world.outcome(0)])
    before = store.read()[0].numbers.tolist()
    files.save(3, MADE_WITH, CONTENT, 0.4)
    partial = store.path / "checkpoints" / _name_of_partial().replace(f"-{os.getpid()}-", "-999999999-")
    partial.write_bytes(CONTENT)
    assert store.read()[0].numbers.tolist() == before
    assert TrialStore.open(store.path).scan().numbers.tolist() == before
    store.clean()
    assert not partial.exists()
    assert [one.trial for one in store.checkpoints().part_way([])] == [3]


def test_a_run_with_a_checkpoint_has_something_to_lose(
    world: SmallWorld, store: TrialStore, files: CheckpointFiles
) -> None:
    other = replace(world.info, learner={"name": "other"})
    files.save(0, MADE_WITH, CONTENT, 0.4)
    with pytest.raises(RunMismatchError, match="holds a different run"):
        TrialStore.create(store.path, other, world.y_train, world.y_test)
    store.checkpoints().remove([0])
    assert TrialStore.create(store.path, other, world.y_train, world.y_test).info.learner == {"name": "other"}
