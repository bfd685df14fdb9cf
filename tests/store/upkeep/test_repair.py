"""`repair` sets aside what is wrong and nothing else, deletes nothing, and can be killed at any moment."""

import json
import os
import shutil
from pathlib import Path

import pytest

import memfluence as mf
from memfluence.store import TrialStore, unpack
from power_cuts import recorded
from store.upkeep.kills import killed_everywhere
from store.upkeep.planned_world import PlannedWorld, all_files, with_one_bit_changed


def damaged_run(path: Path) -> PlannedWorld:
    """Torn, flipped, empty, of another run, wrong masks beside good trials, two records of one, outside, and notes."""
    world = PlannedWorld(trials=40)
    store = world.filled(path)  # ten segments of four
    names = store.segment_names()
    torn, flipped, empty = (store.segment_path(name) for name in names[:3])  # trials 0 to 11
    torn.write_bytes(torn.read_bytes()[:-7])
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 4
    flipped.write_bytes(bytes(content))
    empty.write_bytes(b"")
    other = PlannedWorld("bernoulli", 0.5)
    foreign = other.create(path.parent / f"{path.name}-other").write([other.outcome(0)])
    (path / "trials" / foreign.name).write_bytes(foreign.read_bytes())
    mask = with_one_bit_changed(world.outcome(12).mask)
    store.remove_segments([names[3]])  # trials 12 to 15
    store.write([world.outcome(12, mask=mask), world.outcome(13), world.outcome(14), world.outcome(15)])
    other = world.outcome(16, test_correct=~world.outcome(16).test_correct, finished=1.0)  # later than the first
    store.write([other, world.outcome(17)])
    store.write([world.outcome(99), world.outcome(20)])
    (path / "failures" / "junk.json").write_text("{")
    return world


AGAIN = tuple(range(13))


def test_what_is_wrong_goes_and_all_else_stays(tmp_path: Path) -> None:
    run = tmp_path / "run"
    damaged_run(run)
    before = all_files(run)
    planned = mf.repair(run, dry_run=True)
    assert all_files(run) == before
    done = mf.repair(run)
    assert done.missing == planned.missing == AGAIN
    assert sorted(done.set_aside) == sorted(planned.set_aside)
    assert (done.rewritten, planned.rewritten) == (4, 4)
    assert (done.problems, done.left) == (planned.problems, ())
    found = mf.verify(run)
    assert found.is_clean
    assert found.trials == 40 - len(AGAIN)
    aside = {path.name: path.read_bytes() for path in (run / "damaged").iterdir()}
    assert sorted(aside) == sorted(done.set_aside)
    after = all_files(run)
    for name, content in before.items():  # every file is where it was, or set aside with the same bytes
        assert after.get(name) == content or aside[Path(name).name] == content
    assert mf.repair(run).problems == ()


def test_the_run_is_whole_again_when_the_missing_trials_are(tmp_path: Path) -> None:
    world = damaged_run(tmp_path / "run")
    mf.repair(tmp_path / "run")
    TrialStore.open(tmp_path / "run").write([world.outcome(number) for number in AGAIN])
    world.filled(tmp_path / "undisturbed")
    ours, theirs = (mf.open(tmp_path / name).memorization() for name in ("run", "undisturbed"))
    assert ours.equals(theirs)


def test_of_two_records_the_one_that_counts_stays_whatever_stands_beside_it(tmp_path: Path) -> None:
    world = PlannedWorld()
    first = world.outcome(5, test_correct=~world.outcome(5).test_correct, finished=1.0)
    store = world.create(tmp_path / "run")
    store.write([first, world.outcome(6, mask=with_one_bit_changed(world.outcome(6).mask))])
    later = store.write([world.outcome(5, finished=2.0), world.outcome(7)])
    equal = store.write([world.outcome(5, test_correct=first.test_correct, finished=3.0)])
    done = mf.repair(tmp_path / "run")
    assert {problem.trial for problem in done.problems} == {5, 6}
    assert later.name in done.set_aside
    assert equal.exists()
    assert set(done.missing) == {*range(12)} - {5, 7}
    trials, _ = store.read()
    assert trials.numbers.tolist() == [5, 7]
    assert (unpack(trials.test_correct[0], world.n_test) == first.test_correct).all()
    assert mf.verify(tmp_path / "run").is_clean


def test_killed_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged_run(tmp_path / "template")
    run = tmp_path / "run"
    good = set(range(40)) - set(AGAIN)

    def prepare() -> Path:
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(tmp_path / "template", run)
        return run

    ends = 0
    for _ in killed_everywhere(lambda: mf.repair(run), monkeypatch, prepare):
        ends += 1
        stored = {trial for name in _readable(run) for trial in TrialStore.open(run).read_rows(name).numbers.tolist()}
        assert good <= stored
        assert mf.repair(run).missing == AGAIN
        assert mf.verify(run).is_clean
    assert ends > 20


@pytest.mark.parametrize("model", ["strict", "ordered"])
def test_a_power_cut_at_every_moment(tmp_path: Path, model: str) -> None:
    """The record that counts is there in every state, and what was said to be set aside does not come back."""
    world = PlannedWorld()
    (tmp_path / "there").mkdir()
    store = world.filled(tmp_path / "there" / "run")
    first = world.outcome(5)
    for finished in (1.0, 2.0):
        store.write([world.outcome(5, test_correct=~first.test_correct, finished=finished), world.outcome(6)])
    store.write([world.outcome(7, mask=with_one_bit_changed(world.outcome(7).mask)), world.outcome(8)])
    with recorded(tmp_path / "there") as tape:
        done = mf.repair(store.path)
        tape.note("mended")
    assert len(done.set_aside) == 3
    cuts = list(tape.cuts(model))
    assert len(cuts) > 10
    run = tmp_path / "after" / "run"
    for cut in cuts:
        cut.write(tmp_path / "after")
        found = mf.verify(run)
        assert found.trials == 12
        assert found.is_clean or not cut.notes
        assert mf.repair(run).missing == ()
        found = mf.verify(run)
        assert (found.trials, found.is_clean) == (12, True)
        assert (unpack(TrialStore.open(run).read()[0].test_correct[5], world.n_test) == first.test_correct).all()


def _readable(run: Path) -> list[str]:
    store = TrialStore.open(run)
    return [path.name for path, _ in store.each_segment([])]


def test_a_name_that_was_set_aside_before_is_not_overwritten(tmp_path: Path) -> None:
    world = PlannedWorld()
    store = world.filled(tmp_path / "run")
    path = store.segment_path(store.segment_names()[0])
    good = path.read_bytes()
    for cut in (10, 20):
        path.write_bytes(good[:cut])
        mf.repair(tmp_path / "run")
    assert sorted(len(one.read_bytes()) for one in (tmp_path / "run" / "damaged").iterdir()) == [10, 20]


def test_what_cannot_be_mended_is_said(tmp_path: Path) -> None:
    store = PlannedWorld().filled(tmp_path / "run")
    (tmp_path / "run" / str(store.info.dataset["examples"])).write_bytes(b"")
    done = mf.repair(tmp_path / "run")
    assert [one.message for one in done.left] == [one.message for one in done.problems]
    assert done.missing == ()


@pytest.mark.parametrize("part", ["fingerprint", "learner", "digest"])
def test_a_run_file_that_is_not_of_its_segments_costs_none_of_them(tmp_path: Path, part: str) -> None:
    """One damaged character of run.json must not set all trials aside."""
    PlannedWorld().filled(tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    raw = json.loads(file.read_text())
    if part == "learner":
        raw["learner"] = {"name": "another"}
    else:
        raw["dataset" if part == "fingerprint" else "plan"][part] = "0" * 32
    file.write_text(json.dumps(raw))
    before = all_files(tmp_path / "run")
    found = mf.repair(tmp_path / "run")
    assert all_files(tmp_path / "run") == before
    assert found.set_aside == ()
    assert any("restore it from a copy" in one.message for one in found.left)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names here")
def test_what_is_no_file_goes_and_nobody_waits_for_it(tmp_path: Path) -> None:
    store = PlannedWorld().filled(tmp_path / "run")
    names = [f"000000000-000000003-4-{digit * 32}.parquet" for digit in "ab"]
    os.mkfifo(store.segment_path(names[0]))
    Path(str(store.segment_path(names[1]))).mkdir()
    assert len(store.segment_names()) == 3
    assert [problem.segment for problem in mf.verify(store.path).problems] == names
    assert mf.repair(store.path).set_aside == tuple(names)
    assert mf.verify(store.path).is_clean
