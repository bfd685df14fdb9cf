"""The recording of power cuts, on pieces of work whose possible ends can be told by hand."""

import os
from pathlib import Path

import pytest

from power_cuts import Tape, recorded


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def states(tape: Tape, model: str) -> set[tuple[tuple[str, bytes], ...]]:
    return {tuple(sorted(cut.files.items())) for cut in tape.cuts(model)}


def test_only_what_was_synced_is_sure(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    with recorded(tmp_path) as tape:
        (tmp_path / ".partial-1").write_bytes(b"new")
        (tmp_path / ".partial-1").replace(tmp_path / "new")
        (tmp_path / "old").unlink()
        tape.note("said")
    for model in ("strict", "ordered"):
        assert (("new", b""), ("old", b"old")) in states(tape, model)  # a name, and no content
        assert (("old", b"old"),) in states(tape, model)
        assert (("new", b""),) in states(tape, model)
    assert () in states(tape, "strict")  # the later change without the earlier one
    assert () not in states(tape, "ordered")
    assert {cut.notes for cut in tape.cuts("ordered")} == {("said",)}  # nothing was synced before it was said


def test_what_was_synced_is_there(tmp_path: Path) -> None:
    with recorded(tmp_path) as tape:
        (tmp_path / "made").mkdir()
        sync(tmp_path)
        (tmp_path / "made" / ".partial-1").write_bytes(b"new")
        sync(tmp_path / "made" / ".partial-1")
        (tmp_path / "made" / ".partial-1").replace(tmp_path / "made" / "new")
        sync(tmp_path / "made")
        tape.note("said")
    for model in ("strict", "ordered"):
        assert states(tape, model) == {(), (("made/new", b"new"),)}
        assert [cut.files for cut in tape.cuts(model) if cut.notes] == [{"made/new": b"new"}]
        for cut in tape.cuts(model):
            cut.write(tmp_path / "again")
            assert [path.read_bytes() for path in (tmp_path / "again").rglob("new")] == list(cut.files.values())


def test_what_is_in_a_directory_that_was_not_synced_goes_with_it(tmp_path: Path) -> None:
    with recorded(tmp_path) as tape:
        (tmp_path / "made").mkdir()
        (tmp_path / "made" / ".partial-1").write_bytes(b"new")
        sync(tmp_path / "made" / ".partial-1")
        (tmp_path / "made" / ".partial-1").replace(tmp_path / "made" / "new")
        sync(tmp_path / "made")
        tape.note("said")
    assert () in {tuple(cut.files) for cut in tape.cuts("strict") if cut.notes}
    assert () not in {tuple(cut.files) for cut in tape.cuts("ordered") if cut.notes}


def test_a_rename_is_one_change_until_one_of_its_directories_is_synced(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "here" / "file").write_bytes(b"1")
    with recorded(tmp_path) as tape:
        (tmp_path / "here" / "file").rename(tmp_path / "there" / "file")
        sync(tmp_path / "there")
    places = {tuple(sorted(cut.files)) for cut in tape.cuts("strict")}
    assert places == {("here/file",), ("there/file",), ("here/file", "there/file")}


def test_a_change_that_is_not_recorded_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"not recorded: \['stray'\]"), recorded(tmp_path):
        (tmp_path / "stray").write_bytes(b"")
