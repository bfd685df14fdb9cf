"""Power cuts of a piece of work, and listings that are older than what another host did; each in a forked process."""

import io
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from fsspec.implementations.local import LocalFileSystem

import memfluence as mf
from faulting.rounds import difference
from memfluence.errors import MemfluenceError, StoreError
from memfluence.records import Outcome
from memfluence.store import TrialStore, unpack
from power_cuts import Cut, Tape, recorded

MOST = 16  # states of the disk that are looked at in each model
Checked = Callable[[Path, Cut], Iterator[str]]


def of_a_run(run: Path, made: Path, seed: float, arguments: list[str], is_random: bool) -> dict[str, Any]:
    """Whatever was said to be stored is there, and the run goes on."""
    from memfluence.cli import main

    there = _there(run, made)
    os.chdir(run.parent)
    os.environ["FAULTS"] = json.dumps({"interval": 0.02, "pause": 0.01, "is_random": is_random})
    write = TrialStore.write
    with recorded(there) as tape:

        def noting(store: TrialStore, outcomes: list[Outcome], **options: Any) -> Any:
            path = write(store, outcomes, **options)
            tape.note([outcome.trial for outcome in outcomes])
            return path

        with mock.patch.object(TrialStore, "write", noting), redirect_stdout(io.StringIO()):
            try:
                main([*arguments[:-1], str(there / "run"), "--engine", "local"])  # only this process is recorded
            except SystemExit as end:
                if end.code:
                    raise
    before = set(_numbers(run))

    def check(found: Path, cut: Cut) -> Iterator[str]:
        said = before.union(*cut.notes)
        if lost := said - set(_numbers(found)):
            yield f"{sorted(lost)} were stored and are gone"
        if difference(found, there / "run", is_random)["wrong"]:
            yield "trials are wrong"

    return _looked_at(tape, made, seed, check)


def of_a_compact(run: Path, made: Path, seed: float, arguments: list[str], is_random: bool) -> dict[str, Any]:
    """No trial is ever without a segment."""
    there = _there(run, made)
    with recorded(there) as tape:
        mf.compact(there / "run", largest=random.Random(seed).choice([20_000, 2**27]))

    def check(found: Path, cut: Cut) -> Iterator[str]:
        yield from _as_before(found, run)

    return _looked_at(tape, made, seed, check)


def of_a_merge(run: Path, made: Path, seed: float, arguments: list[str], is_random: bool) -> dict[str, Any]:
    """Merged again the run has all trials, and at once if the merge was said to be over."""
    there = _there(run, made)
    parts = [made.with_name(f"{made.name}-part-{k}") for k in range(2)]
    for k, part in enumerate(parts):
        shutil.copytree(run, part)
        store = TrialStore.open(part)
        store.remove_segments(store.segment_names()[k::3])
    shutil.rmtree(there / "run")
    with recorded(there) as tape:
        mf.merge(there / "run", parts)
        tape.note("merged")

    def check(found: Path, cut: Cut) -> Iterator[str]:
        if cut.notes:
            yield from _as_before(found, run)
        mf.merge(found, parts)
        yield from _as_before(found, run)

    try:
        return _looked_at(tape, made, seed, check)
    finally:
        for part in parts:
            shutil.rmtree(part)


def of_a_repair(run: Path, made: Path, seed: float, arguments: list[str], is_random: bool) -> dict[str, Any]:
    """Of two records the one that counts stays, and what was said to be set aside does not come back."""
    there = _there(run, made)
    store, chance = TrialStore.open(there / "run"), random.Random(seed)
    trials, _ = store.read()
    sizes = store.info.n_train, store.info.n_test
    for row in chance.sample(range(len(trials.numbers)), min(3, len(trials.numbers))):
        mask, right, test = (
            unpack(getattr(trials, name)[row], n)
            for name, n in zip(("mask", "train_correct", "test_correct"), (sizes[0], *sizes))
        )
        other = Outcome(int(trials.numbers[row]), int(trials.kinds[row]), mask, right, ~test, finished=1e12)
        store.write([other, replace(other, trial=(other.trial + 1) % len(trials.numbers), mask=~mask)])
    (store.path / "trials" / f"000000000-000000003-4-{'0' * 32}.parquet").write_bytes(b"torn")
    with recorded(there) as tape:
        mf.repair(store.path)
        tape.note("mended")

    def check(found: Path, cut: Cut) -> Iterator[str]:
        if cut.notes and not mf.verify(found).is_clean:
            yield "what was mended is not"
        mf.repair(found)
        if not mf.verify(found).is_clean:
            yield "repair does not go on"
        yield from _as_before(found, run)

    return _looked_at(tape, made, seed, check)


def _there(run: Path, made: Path) -> Path:
    """A directory with a copy of the run, to be recorded."""
    there = made.with_name(f"{made.name}-there")
    shutil.rmtree(there, ignore_errors=True)
    there.mkdir()
    if run.exists():
        shutil.copytree(run, there / "run")
    return there


def _numbers(run: Path) -> list[int]:
    numbers: list[int] = TrialStore.open(run).scan().numbers.tolist() if (run / "run.json").exists() else []
    return numbers


def _as_before(found: Path, run: Path) -> Iterator[str]:
    for name, count in difference(found, run).items():
        if count:
            yield f"{count} trials {name}"
    if set(_numbers(run)) - set(_numbers(found)):
        yield "trials are gone"


def _looked_at(tape: Tape, made: Path, seed: float, check: Checked) -> dict[str, Any]:
    """What is wrong with states of both models, some of them where there are many; the last stays at `made`."""
    chance, bad, looked = random.Random(seed), [], 0
    for model in chance.sample(["strict", "ordered"], 2):
        states = list(tape.cuts(model, seed=int(seed * 2**31), most=4))
        for cut in [states[0], states[-1], *chance.sample(states, min(MOST, len(states)))]:
            cut.write(made)
            looked += 1
            try:
                bad += [f"{model}, moment {cut.moment} of {len(tape.steps)}: {why}" for why in check(made / "run", cut)]
            except MemfluenceError as error:
                bad.append(f"{model}, moment {cut.moment} of {len(tape.steps)}: {error}")
    shutil.rmtree(tape.root)
    return {"cuts": looked, "bad": bad}


class Listed(LocalFileSystem):
    """A file system that keeps what it has listed, as those of fsspec for networks do."""

    protocol = "listed"
    late = 0  # how many times more what was listed is not forgotten when it should be

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


def read_behind_listings(run: Path, late: int) -> dict[str, Any]:
    """Which readers take fewer trials than there are without a word, after another host has compacted the run."""
    import fsspec

    fsspec.register_implementation("listed", Listed, clobber=True)
    time.sleep = lambda seconds: None  # readers wait until a listing may be new
    uri, expected = f"listed://{run}", _numbers(run)
    here = TrialStore.open(uri)
    here.scan()
    before = len(here.segment_names())
    mf.compact(run)
    readers: dict[str, Callable[[], int]] = {
        "scan": lambda: len(here.scan().numbers),
        "read": lambda: len(here.read()[0].numbers),
        "status": lambda: int(mf.open(uri).status()["trials"]),
        "verify": lambda: mf.verify(uri).trials,
        "compact": lambda: mf.compact(uri).segments and len(here.scan().numbers),
    }
    silent = []
    for name, read in readers.items():
        Listed.late = late
        try:
            if (count := read()) < len(expected):
                silent.append(f"{name} behind a listing takes {count} of {len(expected)} trials")
        except StoreError as error:
            if "run the same command again" not in str(error):
                raise
    return {"compacted": before, "silent": silent}
