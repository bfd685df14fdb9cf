"""`merge`: runs of the same data, learner and plan, made in different places, become one.

Everything is read and compared before anything is written: a run that differs is refused. Equal records of a trial
count once; of different ones that counts which would count in one run, see `store.segments`. Of imported trials, whose
numbers may mean something else in each run, different records are refused. What is there already is not written again,
so that a merge that was killed can be repeated.

A part of the trials, or of what was recorded, may be taken: then the other columns are left out before anything is
compared, so that runs that recorded different things can be joined in what both have.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from memfluence.errors import InputError, RunMismatchError, StoreError, checked_integer
from memfluence.records import EXTRA_COLUMNS
from memfluence.store import Damage, Location, Rows, RunInfo, TrialStore, differences, is_run, locate, segment_columns
from memfluence.store.run_file import MOST
from memfluence.store.upkeep.compacting import Batches

_EXTRAS = frozenset(name for names in EXTRA_COLUMNS.values() for name in names)


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


@dataclass(frozen=True)
class _Part:
    """What is taken of each run: trials below a number, and optional outcomes; None: all."""

    trials: int | None = None
    record: tuple[str, ...] | None = None

    @property
    def end(self) -> int:
        return MOST if self.trials is None else self.trials

    def info(self, store: TrialStore) -> RunInfo:
        """The run file of the part; refused if the run did not record what is asked for."""
        info = replace(store.info, trials=min(store.info.trials, self.end))
        if self.record is None or not info.says_record:
            return info
        if lacking := set(segment_columns(self.record)) & _EXTRAS - set(info.columns):
            there = ", ".join(info.record) or "right and wrong alone"
            raise InputError(f"{store.path} has no {min(lacking)}; it recorded {there}.")
        if info.outcome == "score" and "score" not in self.record:
            raise InputError(f"{store.path} has scores of its learner's own and nothing else; leave out `record`.")
        columns = tuple(name for name in info.columns if name not in self._left_out)
        return replace(info, record=self.record, columns=columns)

    def rows(self, rows: Rows) -> Rows:
        """Those that are taken, with the columns that are."""
        names = [name for name in rows.table.column_names if name not in self._left_out]
        return Rows(rows.table.select(names)).take(np.flatnonzero(rows.numbers < self.end))

    @property
    def _left_out(self) -> frozenset[str]:
        return frozenset() if self.record is None else _EXTRAS - set(segment_columns(self.record))


def _checked(record: str | Collection[str] | None) -> tuple[str, ...] | None:
    """Names of optional outcomes in order; None: all that there are."""
    if record is None:
        return None
    names = tuple(sorted({record} if isinstance(record, str) else set(record)))
    if unknown := sorted(set(names) - set(EXTRA_COLUMNS)):
        raise InputError(f"There is nothing called {unknown[0]!r} to record; choose from {', '.join(EXTRA_COLUMNS)}.")
    return names


def merge(
    out: str | Location,
    runs: Sequence[str | Location],
    *,
    trials: int | None = None,
    record: str | Collection[str] | None = None,
) -> Merged:
    """Join `runs` into the run at `out`, which is made if it is not there. The runs themselves are left as they are.

    `trials`: only the trials below this number. `record`: of what was recorded beside correctness only this, such as
    "test_margin", or () for right and wrong alone; None: all of it. So a run can be shared in part:

        mf.merge("to-share", ["run"], trials=300, record=())
    """
    if not runs:
        raise InputError("No runs were given to merge; name at least one.")
    part = _Part(trials if trials is None else checked_integer("trials", trials, 1), _checked(record))
    target = TrialStore.open(out) if is_run(locate(out)) else None
    given = [TrialStore.open(run) for run in runs]
    infos = [part.info(store) for store in given]
    known = [] if target is None else [(target, target.info)]
    known += zip(given, infos)
    like, info = next((one for one in known if one[1].says_record), known[0])
    way_out = "Give `record` to join what all of them have."
    if record is not None:  # then it is the run to join that has something else
        way_out = f"Join them in a new run: {out} keeps what it has."
    for one in known:
        _check_same(like, info, *one, way_out)
    trials = max(one.trials for one in infos)
    there = {} if target is None else _records(target, -1, _Part())[0]
    counts, differing, given_rows = dict(there), set(), 0
    for position, store in enumerate(given):
        theirs, rows = _records(store, position, part)
        given_rows += rows
        for trial, its in theirs.items():
            before = counts.setdefault(trial, its)
            if before.precedence[1] != its.precedence[1]:
                if store.info.learner is None:
                    raise StoreError(
                        f"{store.path} has another record of trial {trial} than a run before it, and nothing says how"
                        " they were made; find out which one is right before joining them. Nothing was written."
                    )
                differing.add(trial)
            counts[trial] = min(before, its)
    if target is None or trials > target.info.trials or not target.info.says_record:
        target = _created(out, like, replace(info, trials=trials))
    wanted: dict[tuple[int, str], list[int]] = {}
    for trial, its in counts.items():
        if trial not in there or there[trial].precedence[1] != its.precedence[1]:
            wanted.setdefault((its.run, its.segment), []).append(trial)
    batches = Batches(target)
    for (position, name), numbers in sorted(wanted.items()):
        rows_there = part.rows(_rows(given[position], name))
        batches.add(name, rows_there.take(np.flatnonzero(np.isin(rows_there.numbers, numbers))))
    batches.close()
    added = sum(map(len, wanted.values()))
    told = set(target.failures())
    for store in given:
        for trial, failure in store.failures(counts).items():
            if trial not in told and trial < part.end:
                told.add(trial)
                target.write_failure(failure)
    return Merged(str(out), added, given_rows - added, len(counts), tuple(sorted(differing)))


def _check_same(one: TrialStore, first: RunInfo, other: TrialStore, second: RunInfo, way_out: str) -> None:
    found = differences(first, second)
    if not found and (first.kinds, first.repeats) != (second.kinds, second.repeats):
        found = ["the kinds of trial"]
    labels = zip(one.examples.labels(), other.examples.labels())
    if not found and not all(np.array_equal(here, there) for here, there in labels):
        found = ["the labels"]
    if found:
        hint = "" if first.record == second.record else f" {way_out}"
        raise RunMismatchError(
            f"{other.path} is not the same run as {one.path}: it differs in {'; '.join(found)}.{hint}"
        )


def _records(store: TrialStore, position: int, part: _Part) -> tuple[dict[int, _Record], int]:
    """The record of each trial of this part of the run that counts there, and how many records there are."""
    found: dict[int, _Record] = {}
    damaged: list[Damage] = []
    count = 0
    for path, all_rows in store.each_segment(damaged):
        rows = part.rows(all_rows)
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


def _created(out: str | Location, like: TrialStore, info: RunInfo) -> TrialStore:
    """A run of the examples of another; the same run, if it is there."""
    info = replace(info, dataset={key: value for key, value in info.dataset.items() if key != "examples"})
    y_train, y_test = like.examples.labels()
    train_ids, test_ids = (None, None) if (names := like.examples.ids()) is None else (one.tolist() for one in names)
    groups = like.examples.groups() if like.examples.has_groups else None
    own = like.examples.targets()
    return TrialStore.create(out, info, y_train, y_test, train_ids, test_ids, groups, targets=own)
