"""`merge`: runs of the same data, learner and plan, made in different places, become one.

Everything is read and compared before anything is written: a run that differs is refused, and so are two different
records of one trial. Equal ones count once. What is there already is not written again, so that a merge that was
killed can be repeated.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from memfluence.errors import InputError, RunMismatchError, StoreError
from memfluence.store import Location, Rows, RunInfo, TrialStore, differences, is_run, locate
from memfluence.upkeep._batches import Batches

__all__ = ["Merged", "merge"]


@dataclass(frozen=True)
class Merged:
    run: str
    added: int
    already_there: int  # records that were there before, or in several of the runs
    trials: int  # that the run has now

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


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
    records: dict[int, tuple[bytes, str]] = {}  # record of each trial, and the run that has it
    if target is not None:
        _take_in(target, records)
    wanted = [(store, _take_in(store, records)) for store in given]
    if target is None or trials > target.info.trials:
        target = _created(out, given[0] if target is None else target, trials)
    batches = Batches(target)
    added = already_there = 0
    for store, rows_of in wanted:
        for name, (positions, others) in rows_of.items():
            added, already_there = added + len(positions), already_there + others
            if len(positions):
                batches.add(name, _rows(store, name).take(positions))
    batches.close()
    for store in given:
        for trial, failure in store.failures(records).items():
            if trial not in target.failures():
                target.write_failure(failure)
    return Merged(str(out), added, already_there, len(records))


def _check_same(one: TrialStore, other: TrialStore) -> None:
    found = differences(one.info, other.info)
    if not found and (one.info.kinds, one.info.repeats) != (other.info.kinds, other.info.repeats):
        found = ["the kinds of trial"]
    if not found and not all(np.array_equal(here, there) for here, there in zip(one.labels(), other.labels())):
        found = ["the labels"]
    if found:
        raise RunMismatchError(f"{other.path} is not the same run as {one.path}: it differs in {'; '.join(found)}.")


def _take_in(store: TrialStore, records: dict[int, tuple[bytes, str]]) -> dict[str, tuple[np.ndarray, int]]:
    """Add the run's trials to `records`; for each segment the positions of new ones, and how many were known."""

    def look(path: Location, read: Callable[[], pa.Buffer]) -> tuple[np.ndarray, int]:
        rows = store.read_rows(path.name, read())
        new = []
        for position, (trial, record) in enumerate(zip(rows.numbers.tolist(), rows.records)):
            if trial not in records:
                records[trial] = record, str(store.path)
                new.append(position)
            elif records[trial][0] != record:
                raise StoreError(
                    f"{store.path} has another record of trial {trial} than {records[trial][1]}; find out which one is"
                    " right ('memfluence verify RUN --sample 3') before joining them. Nothing was written."
                )
        return np.array(new, np.int64), len(rows) - len(new)

    found, damaged = store.read_each(look)
    if damaged:
        raise StoreError(f"{damaged[0].reason} Mend that run first: 'memfluence repair {store.path}'.")
    return {path.name: what for path, what in found}


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
    y_train, y_test = like.labels()
    train_ids, test_ids = (None, None) if (names := like.ids()) is None else (one.tolist() for one in names)
    groups = like.groups() if like.has_groups else None
    return TrialStore.create(out, info, y_train, y_test, train_ids, test_ids, groups)
