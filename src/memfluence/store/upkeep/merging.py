"""`merge`: runs of the same data, learner and plan, made in different places, become one.

Everything is read and compared before anything is written: a run that differs is refused. Equal records of a trial
count once; of different ones that counts which would count in one run, see `store.segments`. Of imported trials, whose
numbers may mean something else in each run, different records are refused. What is there already is not written again,
so that a merge that was killed can be repeated.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from memfluence.errors import InputError, RunMismatchError, StoreError
from memfluence.store import Damage, Location, Rows, RunInfo, TrialStore, differences, is_run, locate
from memfluence.store.upkeep.compacting import Batches


@dataclass(frozen=True)
class Merged:
    run: str
    added: int
    already_there: int  # records that were there before, or in several of the runs
    trials: int  # that the run has now
    differing: tuple[int, ...] = ()  # trials of which the runs had different records: one of each counts

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, order=True)
class _Record:
    """One record of a trial. Of several the lowest counts."""

    precedence: tuple[float, bytes]
    run: int  # position in the runs that are given; -1 is the one that they are merged into
    segment: str


def merge(out: str | Location, runs: Sequence[str | Location]) -> Merged:
    """Join `runs` into the run at `out`, which is made if it is not there. The runs themselves are left as they are."""
    if not runs:
        raise InputError("No runs were given to merge; name at least one.")
    target = TrialStore.open(out) if is_run(locate(out)) else None
    given = [TrialStore.open(run) for run in runs]
    known = target or given[0]
    for store in given:
        _check_same(known, store)
    trials = max(store.info.trials for store in given)
    there = {} if target is None else _records(target, -1)[0]
    counts, differing, given_rows = dict(there), set(), 0
    for position, store in enumerate(given):
        theirs, rows = _records(store, position)
        given_rows += rows
        for trial, record in theirs.items():
            before = counts.setdefault(trial, record)
            if before.precedence[1] != record.precedence[1]:
                if store.info.learner is None:
                    raise StoreError(
                        f"{store.path} has another record of trial {trial} than a run before it, and nothing says how"
                        " they were made; find out which one is right before joining them. Nothing was written."
                    )
                differing.add(trial)
            counts[trial] = min(before, record)
    if target is None or trials > target.info.trials:
        target = _created(out, given[0] if target is None else target, trials)
    wanted: dict[tuple[int, str], list[int]] = {}
    for trial, record in counts.items():
        if trial not in there or there[trial].precedence[1] != record.precedence[1]:
            wanted.setdefault((record.run, record.segment), []).append(trial)
    batches = Batches(target)
    for (position, name), numbers in sorted(wanted.items()):
        rows_there = _rows(given[position], name)
        batches.add(name, rows_there.take(np.flatnonzero(np.isin(rows_there.numbers, numbers))))
    batches.close()
    added = sum(map(len, wanted.values()))
    told = set(target.failures())
    for store in given:
        for trial, failure in store.failures(counts).items():
            if trial not in told:
                told.add(trial)
                target.write_failure(failure)
    return Merged(str(out), added, given_rows - added, len(counts), tuple(sorted(differing)))


def _check_same(one: TrialStore, other: TrialStore) -> None:
    found = differences(one.info, other.info)
    if not found and (one.info.kinds, one.info.repeats) != (other.info.kinds, other.info.repeats):
        found = ["the kinds of trial"]
    labels = zip(one.examples.labels(), other.examples.labels())
    if not found and not all(np.array_equal(here, there) for here, there in labels):
        found = ["the labels"]
    if found:
        raise RunMismatchError(f"{other.path} is not the same run as {one.path}: it differs in {'; '.join(found)}.")


def _records(store: TrialStore, position: int) -> tuple[dict[int, _Record], int]:
    """The record of each of the run's trials that counts there, and how many records there are."""
    found: dict[int, _Record] = {}
    damaged: list[Damage] = []
    count = 0
    for path, rows in store.each_segment(damaged):
        count += len(rows)
        for trial, precedence in zip(rows.numbers.tolist(), rows.precedence):
            record = _Record(precedence, position, path.name)
            found[trial] = min(found.get(trial, record), record)
    if damaged:
        raise StoreError(f"{damaged[0].reason} Mend that run first: 'memfluence repair {store.path}'.")
    return found, count


def _rows(store: TrialStore, name: str) -> Rows:
    try:
        return store.read_rows(name)
    except FileNotFoundError:
        raise StoreError(f"{store.path} was compacted while it was read; run the same command again.") from None


def _created(out: str | Location, like: TrialStore, trials: int) -> TrialStore:
    """A run that is like another, with so many trials; the same run, if it is there."""
    info: RunInfo = replace(
        like.info,
        trials=trials,
        dataset={key: value for key, value in like.info.dataset.items() if key != "examples"},
    )
    y_train, y_test = like.examples.labels()
    train_ids, test_ids = (None, None) if (names := like.examples.ids()) is None else (one.tolist() for one in names)
    groups = like.examples.groups() if like.examples.has_groups else None
    return TrialStore.create(out, info, y_train, y_test, train_ids, test_ids, groups)
