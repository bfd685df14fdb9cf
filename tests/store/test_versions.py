"""Versions of libraries: each trial says which made it, through resumes and `compact`."""

import dataclasses
import shutil
from pathlib import Path

import pytest

import memfluence as mf
from cli.test_commands import Shell
from memfluence.engines import work
from memfluence.store import SegmentWriter, TrialStore
from memfluence.store.segments import versions_in, versions_text
from small_world import SmallWorld

FIXTURE = Path(__file__).parent / "format-1"
OLD, NEW = {"numpy": "1.26.4", "python": "3.11.7"}, {"numpy": "2.4.6", "python": "3.11.7"}


def counted(path: Path) -> list[tuple[str, int, int]]:
    found = mf.open(path).status()["made_with"]
    return [(one["versions"]["numpy"], one["trials"], one["assumed"]) for one in found]


def test_texts_of_versions() -> None:
    for versions in ({}, OLD, {"torch": "2.12.0+cu130", **NEW}):
        assert versions_in(versions_text(versions)) == versions


def test_a_run_resumed_with_other_libraries_says_which_trials_are_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for trials, versions in ((4, OLD), (10, NEW)):
        monkeypatch.setattr(work, "installed_versions", lambda versions=versions: versions)
        mf.run("digits", trials=trials, out=tmp_path / "run", workers=1)
    assert counted(tmp_path / "run") == [("1.26.4", 4, 0), ("2.4.6", 6, 0)]
    mf.compact(tmp_path / "run")
    assert counted(tmp_path / "run") == [("1.26.4", 4, 0), ("2.4.6", 6, 0)]


def test_of_segments_that_do_not_say_it_run_json_does(
    world: SmallWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(capsys)
    world.info = dataclasses.replace(world.info, versions=OLD)
    store = world.create(tmp_path / "run")
    store.write([world.outcome(number) for number in range(3)])
    assert counted(store.path) == [("1.26.4", 3, 3)]
    assert "made with" not in shell("status", str(store.path))
    writer = SegmentWriter(store, versions=NEW)
    writer.add(world.outcome(3))
    writer.close()
    assert counted(store.path) == [("1.26.4", 3, 3), ("2.4.6", 1, 0)]
    lines = [line.split(maxsplit=2)[2] for line in shell("status", str(store.path)).splitlines() if "made with" in line]
    assert lines == ["numpy 1.26.4: 3 (3 by run.json, their segments do not say)", "numpy 2.4.6: 1"]


def test_an_older_run(tmp_path: Path) -> None:
    shutil.copytree(FIXTURE, tmp_path / "run")
    status = mf.open(tmp_path / "run").status()
    assert [one["assumed"] for one in status["made_with"]] == [status["trials"]]
    assert status["made_with"][0]["versions"] == TrialStore.open(FIXTURE).info.versions
