"""`TrialStore`: a run's directory, here or in an object store. Append-only; everything else is derived from it.

    RUN/run.json                 what the run is, see `store.run_file`
    RUN/examples-DIGEST.parquet  labels, see `store.examples`
    RUN/trials/*.parquet         segments, see `store.segments`
    RUN/failures/*.json          trials whose learner raised, see `store.unfinished`
    RUN/damaged/                 segments set aside because their bytes are not what was written
    RUN/checkpoints/             trials still in training, see `store.unfinished`
    RUN/.index                   a cache for `status`, see `store.index`

Any number of processes may write to one run at once: a segment has a unique name and appears whole or not at all, and a
trial that was written twice counts once.
"""

import json
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from memfluence.errors import InputError, MemfluenceWarning, RunMismatchError, StoreError
from memfluence.records import EXTRA_COLUMNS, Failure, Outcome, Trials
from memfluence.store import segments
from memfluence.store.cache import keep_unsent, send_unsent
from memfluence.store.examples import Examples, write_examples
from memfluence.store.index import SegmentIndex
from memfluence.store.places import Location, content_of, file_errors, is_no_file, locate, place_of
from memfluence.store.run_file import (
    RUN_FILE,
    RunInfo,
    UpToDate,
    another_run,
    check_is_ours,
    check_is_still_ours,
    differences,
    plain_json,
    read_run_file,
    say_record,
    write_run_file,
)
from memfluence.store.segments import Damage, DamagedSegmentError, Rows
from memfluence.store.unfinished import CheckpointFiles, read_failures, write_failure

_PAUSES = (0.1, 0.3, 1.0, 3.0, 10.0)  # seconds until a listing is made again that lacks what another host did


@dataclass(frozen=True, eq=False)
class Scan:
    """The trials in the store: their numbers (ascending, each once), their small columns, and what is damaged."""

    numbers: np.ndarray  # (trials,) int64
    details: dict[str, np.ndarray] = field(default_factory=dict)
    segments: int = 0
    damaged: tuple[Damage, ...] = ()


class TrialStore:
    """One run. Make one with `create` (which resumes an equal run) or `open`. `path` is a `Path`, or a `Uri`."""

    def __init__(self, path: Location, info: RunInfo) -> None:
        self.path = path
        self.info = info
        self._place = place_of(path)
        self._has_told = False  # of trials with different records

    @classmethod
    def open(cls, path: Location | str, identity: Mapping[str, str] | None = None) -> "TrialStore":
        """The run at `path`; with `identity` only if it is that one still."""
        location = locate(path)
        store = cls(location, read_run_file(location))
        if identity is not None and store.info.identity != dict(identity):
            raise another_run(location)
        return store

    @classmethod
    def create(
        cls,
        path: Location | str,
        info: RunInfo,
        y_train: np.ndarray,
        y_test: np.ndarray,
        train_ids: Sequence[str] | None = None,
        test_ids: Sequence[str] | None = None,
        groups: tuple[np.ndarray, Sequence[str]] | None = None,
        up_to_date: UpToDate | None = None,
        targets: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> "TrialStore":
        """A new run at `path`, or the equal run that is there, grown to `info.trials`, its classes named as in `info`.

        Refuses, without writing anything, a path that holds something else or a run that differs. A run that has
        neither trials nor checkpoints yet has nothing to lose and becomes the one that is asked for; not a remote one,
        whose listing may be late. `up_to_date` gives an older description of the learner as this version writes it.
        """
        directory = locate(path)
        place = place_of(directory)
        check_is_ours(directory)
        is_new = not place.is_file(directory / RUN_FILE)
        may_change = isinstance(directory, Path) and not any(
            not name.startswith(".") for part in ("trials", "checkpoints") for name in place.names(directory / part)
        )
        if is_new or may_change:
            for made in (directory, directory / "trials", directory / "failures"):
                place.make(made)
            name = write_examples(directory, y_train, y_test, train_ids, test_ids, groups, targets)
            complete = replace(info, dataset={**info.dataset, "examples": name})
            if not write_run_file(directory, complete, replace_existing=False) and may_change:
                there = cls.open(directory)
                changed = (there.info.group_size, there.info.columns) != (complete.group_size, complete.columns)
                if changed or differences(there.info, complete):
                    there.forget_failures()
                    write_run_file(directory, complete, replace_existing=True)
        store = cls.open(directory)
        if found := differences(store.info, info, up_to_date):
            raise RunMismatchError(
                f"{directory} holds a different run: it differs in {'; '.join(found)}."
                " Choose another directory (`out`), or ask for what is there."
            )
        if store.info.identity["memfluence.plan"] != info.identity["memfluence.plan"]:
            raise StoreError(
                f"{directory / RUN_FILE} is damaged: the digest of its plan is not the plan's. Restore it from a copy,"
                " the trials beside it are not touched."
            )
        if not place.is_file(store.examples.path):  # its name is that of its content: what was lost is the same again
            write_examples(directory, y_train, y_test, train_ids, test_ids, groups, targets)
        says = store.info if store.info.says_record else info
        known = replace(store.info.with_names_of(info), record=says.record, columns=says.columns)
        known = replace(known, trials=max(info.trials, known.trials))
        if known != store.info:
            store.info = known
            write_run_file(directory, store.info, replace_existing=True)
        return store

    @property
    def examples(self) -> Examples:
        """The labels, names and groups of the run's examples."""
        return Examples(self.path, self.info)

    # ---- writing trials

    def write(
        self,
        outcomes: Sequence[Outcome],
        versions: Mapping[str, str] | None = None,
        *,
        patience: float | None = None,
    ) -> Location:
        """Publish one segment, of trials that were made with these `versions` of libraries.

        Storage elsewhere that does not answer is tried for so many seconds (a minute).
        """
        self.info = say_record(self.path, self.info, segments.extras_of(outcomes))
        name, content = segments.segment_of(outcomes, self.info, versions)
        path = self.segment_path(name)
        self._place.publish(path, content, replace=True, patience=patience)
        check_is_still_ours(self.path, self.info, path)
        return path

    def keep(self, outcomes: Sequence[Outcome], versions: Mapping[str, str] | None = None) -> Path:
        """Write one segment to this machine's disk, because the storage of the run does not answer."""
        return keep_unsent(self.path, *segments.segment_of(outcomes, self.info, versions))

    def send_kept(self) -> None:
        """Publish what was kept on this machine; raises, saying where it is, if the storage still does not answer."""
        if not isinstance(self.path, Path):
            self.info = send_unsent(self.path, self.info)

    def clean(self) -> None:
        """Delete half-written files of processes that are gone, and send what they could not send."""
        self.send_kept()
        self._place.clean(self.path)
        for part in ("trials", "failures", "checkpoints"):
            self._place.clean(self.path / part)

    # ---- trials that failed, or are in training

    def write_failure(self, failure: Failure) -> None:
        """Write the note of a failed trial."""
        write_failure(self.path / "failures", failure)

    def failures(self, done: Iterable[int] = ()) -> dict[int, Failure]:
        """Trials that failed and were not done since, by number."""
        finished = set(done)
        notes = [failure for _, failure in self._notes() if failure is not None and failure.trial not in finished]
        return {failure.trial: failure for failure in sorted(notes, key=lambda failure: failure.trial)}

    def forget_failures(self) -> None:
        """Delete the notes of failed trials."""
        with file_errors(f"clearing {self.path / 'failures'}"):
            for path in self._files("failures", ".json"):
                self._place.remove(path)

    def _notes(self) -> Iterator[tuple[Location, Failure | None]]:
        return read_failures(self._place.read_all(self._files("failures", ".json")))

    def checkpoints(self, every: float = 0.0, note: Callable[[str], None] | None = None) -> CheckpointFiles:
        """The checkpoints of trials in training; `note` is told why one is not used or cannot be written."""
        return CheckpointFiles(self.path / "checkpoints", self.info.identity, every, note)

    def damaged_notes(self) -> list[Damage]:
        """Notes of failures and checkpoints that cannot be read, or are of another run."""
        found = [Damage(path, reason) for path, reason in self.checkpoints().damaged()]
        unread = [path for path, failure in self._notes() if failure is None]
        return found + [Damage(path, f"{path} cannot be read as the note of a trial that failed.") for path in unread]

    # ---- reading trials

    def read(self) -> tuple[Trials, tuple[Damage, ...]]:
        """All trials, ascending, each once, and the damaged segments that were left out."""
        parts, chosen, damaged = self._chosen(["finished", *segments.BITS])
        trials = segments.trials_of(parts, chosen, self.info)
        if (highest := int(trials.kinds.max(initial=0))) >= len(self.info.kinds):
            raise StoreError(
                f"{self.path} has trials of kind {highest}, and its {RUN_FILE} has {len(self.info.kinds)} kind(s),"
                f" counted from 0; 'memfluence repair {self.path}' sets them aside."
            )
        return trials, damaged

    def scan(self, details: Sequence[str] = (), *, indexed: bool = False) -> Scan:
        """Verify every segment and list its trials.

        With `indexed` a segment is read only if it has changed since it was last verified, see `store.index`.
        """
        index = SegmentIndex(self.path, self.info) if indexed and isinstance(self.path, Path) else None
        parts, chosen, damaged = self._chosen([*details, "finished"], index)
        if index:
            index.save()
        if not parts:
            return Scan(np.empty(0, np.int64), damaged=damaged)
        columns = segments.small_columns(parts, chosen, ["trial", *details])
        return Scan(columns.pop("trial"), columns, len(parts), damaged)

    def read_extra(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Trial numbers (ascending) and one optional column (trials, n) of theirs; refuses damaged segments."""
        if name not in self.info.columns or not any(name in names for names in EXTRA_COLUMNS.values()):
            raise InputError(
                f"{self.path} has no column {name!r}; make a run with `record={name.partition('_')[2] or name!r}`."
            )
        parts, chosen, damaged = self._chosen(["finished", name])
        if damaged:
            raise StoreError(f"{damaged[0].reason} 'memfluence repair {self.path}' sets it aside.")
        if not parts:
            raise InputError(f"{self.path} holds no trials yet; run some with 'memfluence run'.")
        numbers = np.concatenate([part.numbers for part in parts])[chosen]
        return numbers, np.concatenate([part.extra(name) for part in parts])[chosen]

    def _chosen(
        self, columns: Sequence[str], index: SegmentIndex | None = None
    ) -> tuple[list[Rows], np.ndarray, tuple[Damage, ...]]:
        """These columns of every segment, the rows of all of them that count, and what is damaged.

        Which of two different records of a trial counts is said in `store.segments`; the user is told once.
        """
        while True:
            damaged: list[Damage] = []
            found = list(self.each_segment(damaged, columns, index))
            try:
                chosen, differing = segments.choose(found, self._records_in)
            except FileNotFoundError:  # compacted just now
                continue
            self._tell(differing)
            return [rows for _, rows in found], chosen, tuple(damaged)

    def _records_in(self, path: Location) -> dict[int, bytes]:
        """The digest of each trial's record in a segment, for which all of its columns are read."""
        try:
            rows = self.read_rows(path.name)
        except DamagedSegmentError:  # in a column that the reader did not need
            return {}
        return dict(zip(rows.numbers.tolist(), rows.records))

    def _tell(self, differing: Sequence[int]) -> None:
        if differing and not self._has_told:
            self._has_told = True
            shown = ", ".join(map(str, differing[:5])) + (", ..." if len(differing) > 5 else "")
            warnings.warn(
                f"{self.path} has different records of {len(differing)} trial(s) ({shown}), as a learner that ignores"
                " its seed gives them, or two kinds of device, when two processes run one trial. Of each trial the"
                f" record that was finished first counts; 'memfluence repair {self.path}' sets the others aside.",
                MemfluenceWarning,
                stacklevel=4,
            )

    def each_segment(
        self,
        damaged: list[Damage],
        columns: Sequence[str] | None = None,
        index: SegmentIndex | None = None,
        *,
        fresh: bool = False,
    ) -> Iterator[tuple[Location, Rows]]:
        """Every segment, one after the other, with its rows (these columns, or all); `fresh`: not from a cache.

        Segments that are damaged or condemned go to `damaged`. A segment that vanishes meanwhile was compacted or set
        aside: its trials may be in another that was not listed, so the list is made again until nothing has vanished.
        That ends, because no name ever comes back. If its trials are nowhere then, the listing is late (other hosts'
        changes may take a while to be seen), and after some pauses that is an error: what is not seen would be a
        smaller run.
        """
        numbers = [np.empty(0, np.int64)]
        seen: set[Location] = set()
        gone: list[str] = []
        pauses = iter(_PAUSES)
        while True:
            vanished, condemned = False, self._condemned()
            new = [path for path in self._segment_paths() if path not in seen]
            seen.update(new)
            for path, read in self._place.read_all(new, fresh=fresh):
                if is_no_file(path):
                    damaged.append(Damage(path, f"{path} is no file, and only files belong there."))
                    continue
                if path.name in condemned:
                    damaged.append(Damage(path, f"{path} was about to be set aside by a repair that was not finished."))
                    continue
                reading = partial(content_of, path, read)
                try:
                    if index:
                        rows = index.rows(path, reading)
                    else:
                        rows = segments.read_rows(path, self.info, columns, reading())
                except FileNotFoundError:
                    vanished = True
                    gone.append(path.name)
                except DamagedSegmentError as error:
                    damaged.append(Damage(path, str(error), error.identity))
                else:
                    numbers.append(rows.numbers)
                    yield path, rows
            if vanished:
                continue
            gone = self._without_trials(gone, np.concatenate(numbers), [damage.path.name for damage in damaged])
            if not gone:
                return
            if (pause := next(pauses, None)) is None:
                raise StoreError(
                    f"{gone[0]} was listed in {self.path / 'trials'} and is not there, nor is any other segment with"
                    " its trials. The listing may be older than what another host did: run the same command again."
                )
            time.sleep(pause)

    def _without_trials(self, gone: Iterable[str], numbers: np.ndarray, damaged: Sequence[str]) -> list[str]:
        """The segments that vanished, were not set aside, and whose trials are in no other segment."""
        left = [name for name in gone if not segments.has_trials_of(name, numbers, damaged)]
        aside = self._place.names(self.path / "damaged") if left else []
        return [name for name in left if not any(one.endswith(name) for one in aside)]

    # ---- segments one by one

    def segment_names(self) -> list[str]:
        """Segments that count, in the order of their trials."""
        condemned = self._condemned()
        paths = (path for path in self._segment_paths() if not is_no_file(path))
        return [path.name for path in paths if path.name not in condemned]

    def failure_names(self) -> list[str]:
        """Files of notes of failed trials, each of which begins with the trial's number."""
        return [path.name for path in self._files("failures", ".json")]

    def segment_path(self, name: str) -> Location:
        return self.path / "trials" / name

    def read_rows(self, name: str, content: pa.Buffer | None = None, *, columns: Sequence[str] | None = None) -> Rows:
        """All rows of one segment, or of `content` read from it, verified; all columns, or `trial`, `kind` and these.

        FileNotFoundError: it was set aside or compacted since it was listed.
        """
        path = self.segment_path(name)
        if content is None:
            content = content_of(path, partial(self._place.read, path))
        return segments.read_rows(path, self.info, columns, content)

    def write_rows(self, rows: Rows) -> str:
        """Publish rows that other segments have too, read them back, and give the name of their new segment.

        No segment ever had that name. So a process that removes the others afterwards never removes this one by
        mistake, nor does another process that does the same: it only removes names that it read before it wrote.
        """
        content = segments.encode_table(rows.table, {**self.info.identity, "memfluence.rewritten": uuid.uuid4().hex})
        name = segments.segment_name(rows.numbers.tolist(), content)
        path = self.segment_path(name)
        self._place.publish(path, content, replace=True)
        try:
            ((_, read),) = self._place.read_all([path], fresh=True)
            is_there = self.read_rows(name, read()) == rows
        except FileNotFoundError:
            raise StoreError(f"Another process took {path} away just now; run the same command again.") from None
        except DamagedSegmentError:
            is_there = False
        if not is_there:
            raise StoreError(f"{path} was not read back as it was written; nothing was removed. Check the disk.")
        return name

    def remove_segments(self, names: Iterable[str]) -> None:
        """Delete segments whose rows are in others."""
        for name in names:
            with file_errors(f"removing {self.segment_path(name)}"):
                self._place.remove(self.segment_path(name))

    def condemn(self, names: Iterable[str] = ()) -> None:
        """Say that segments no longer count, all of them at once; `set_aside` then moves one after another.

        Of two different records of a trial one would else look right once the other is gone. Without names, what was
        condemned and is gone by now is forgotten.
        """
        there = self._condemned().intersection(path.name for path in self._segment_paths())
        condemned = sorted({*there, *names})
        if condemned or self._place.is_file(self._condemned_file):
            self._place.make(self.path / "damaged")
            self._place.publish(self._condemned_file, json.dumps(condemned).encode(), replace=True)
        if not condemned:  # that nobody is, is on the disk; so it may come back
            self._place.remove(self._condemned_file)

    def _condemned(self) -> set[str]:
        try:
            names = plain_json(self._place.read(self._condemned_file).to_pybytes())
        except (OSError, ValueError):
            return set()
        return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()

    @property
    def _condemned_file(self) -> Location:
        return self.path / "damaged" / "condemned.json"

    def set_aside(self, damaged: Iterable[Damage]) -> None:
        """Move damaged files out of the way, over none that is there; trials of segments count as not done."""
        for damage in damaged:
            with file_errors(f"setting {damage.path} aside"):
                self._place.make(self.path / "damaged")
                target = self.path / "damaged" / damage.path.name
                if self._place.is_file(target):
                    target = self.path / "damaged" / f"{uuid.uuid4().hex[:8]}-{damage.path.name}"
                with suppress(FileNotFoundError):  # another process did it first
                    self._place.move(damage.path, target)

    def _segment_paths(self) -> list[Location]:
        if isinstance(self.path, Path) and not (self.path / "trials").is_dir():
            raise StoreError(f"{self.path} has a {RUN_FILE} but no trials/ directory; restore it from a copy.")
        return self._files("trials", ".parquet")

    def _files(self, part: str, suffix: str) -> list[Location]:
        """Files of a part of the run, in the order of their names."""
        names = self._place.names(self.path / part)
        return [self.path / part / name for name in names if name.endswith(suffix) and not name.startswith(".")]
