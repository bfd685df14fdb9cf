"""`TrialStore`: a run's directory, here or in an object store. Append-only; everything else is derived from it.

    RUN/run.json                 what the run is
    RUN/examples-DIGEST.parquet  labels
    RUN/trials/*.parquet         segments, see `store.segments`
    RUN/failures/*.json          trials whose learner raised
    RUN/damaged/                 segments set aside because their bytes are not what was written
    RUN/checkpoints/             trials still in training, see `store.checkpoints`
    RUN/.index                   a cache for `status`, see `store.index`

Any number of processes may write to one run at once: a segment has a unique name and appears whole or not at all, and a
trial that was written twice counts once.
"""

import json
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from memfluence.errors import InputError, MemfluenceWarning, RunMismatchError, StoreError, UnreachableError
from memfluence.records import Failure, Outcome, Trials
from memfluence.store import segments
from memfluence.store.examples import Sizes, has_groups, read_groups, read_ids, read_labels, write_examples
from memfluence.store._merge import choose, merge
from memfluence.store._ours import another_run, check_is_ours, check_is_still_ours
from memfluence.store._upkeep import Damage, StoreUpkeep, failure_from
from memfluence.store.cache import keep_unsent, send_unsent, unsent_trials
from memfluence.store.index import SegmentIndex
from memfluence.store.places import Location, file_errors, locate, place_of
from memfluence.store.run_file import RUN_FILE, RunInfo, UpToDate, differences, read_run_file, write_run_file
from memfluence.store.segments import Segment


@dataclass(frozen=True, eq=False)
class Scan:
    """What is in the store: trial numbers done (ascending, each once), their small columns, and what is damaged."""

    numbers: np.ndarray  # (trials,) int64
    details: dict[str, np.ndarray] = field(default_factory=dict)
    segments: int = 0
    damaged: tuple[Damage, ...] = ()


class TrialStore(StoreUpkeep):
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
    ) -> "TrialStore":
        """A new run at `path`, or the equal run that is there, grown to `info.trials` if it had fewer.

        Refuses, without writing anything, a path that holds something else or a run that differs. A run that has
        neither trials nor checkpoints yet has nothing to lose and becomes the one that is asked for; not a remote one,
        whose listing may be late. `up_to_date` gives an older description of the learner as this version writes it.
        """
        directory = locate(path)
        place = place_of(directory)
        check_is_ours(place, directory)
        is_new = not place.is_file(directory / RUN_FILE)
        may_change = isinstance(directory, Path) and not any(
            not name.startswith(".") for part in ("trials", "checkpoints") for name in place.names(directory / part)
        )
        if is_new or may_change:
            for made in (directory, directory / "trials", directory / "failures"):
                place.make(made)
            name = write_examples(directory, y_train, y_test, train_ids, test_ids, groups)
            complete = replace(info, dataset={**info.dataset, "examples": name})
            if not write_run_file(directory, complete, replace_existing=False) and may_change:
                there = cls.open(directory)
                if differences(there.info, complete) or there.info.group_size != complete.group_size:
                    there.forget_failures()
                    write_run_file(directory, complete, replace_existing=True)
        store = cls.open(directory)
        if found := differences(store.info, info, up_to_date):
            raise RunMismatchError(
                f"{directory} holds a different run: it differs in {'; '.join(found)}."
                " Choose another directory (--out), or ask for what is there."
            )
        if store.info.identity["memfluence.plan"] != info.identity["memfluence.plan"]:
            raise StoreError(
                f"{directory / RUN_FILE} is damaged: the digest of its plan is not the plan's. Restore it from a copy,"
                " the trials beside it are not touched."
            )
        if not place.is_file(store._examples):  # its name is that of its content: what was lost is the same again
            write_examples(directory, y_train, y_test, train_ids, test_ids, groups)
        if info.trials > store.info.trials:
            store.info = replace(store.info, trials=info.trials)
            write_run_file(directory, store.info, replace_existing=True)
        return store

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
        content = segments.encode(outcomes, self.info.identity, versions)
        path = self.path / "trials" / segments.segment_name([outcome.trial for outcome in outcomes], content)
        self._place.publish(path, content, replace=True, patience=patience)
        check_is_still_ours(self.path, self.info.identity, path)
        return path

    def keep(self, outcomes: Sequence[Outcome], versions: Mapping[str, str] | None = None) -> Path:
        """Write one segment to this machine's disk, because the storage of the run does not answer."""
        content = segments.encode(outcomes, self.info.identity, versions)
        return keep_unsent(self.path, segments.segment_name([outcome.trial for outcome in outcomes], content), content)

    def send_kept(self) -> None:
        """Publish what was kept on this machine; raises, saying where it is, if the storage still does not answer."""
        try:
            send_unsent(self.path, self.info.identity)
        except UnreachableError as error:
            count, where = unsent_trials(self.path, self.info.identity)
            raise UnreachableError(
                f"{error} {count} trained trial(s) are kept in {where} on this machine; run the same command here to"
                " send them."
            ) from error

    def forget_failures(self) -> None:
        """Delete the notes of failed trials."""
        with file_errors(f"clearing {self.path / 'failures'}"):
            for path in self._files("failures", ".json"):
                self._place.remove(path)

    def write_failure(self, failure: Failure) -> None:
        self._place.make(self.path / "failures")
        path = self.path / "failures" / f"{failure.trial:09d}-{uuid.uuid4().hex[:8]}.json"
        self._place.publish(path, (json.dumps(asdict(failure), indent=2) + "\n").encode(), replace=True)

    def failures(self, done: Iterable[int] = ()) -> dict[int, Failure]:
        """Trials that failed and were not done since, by number."""
        finished = set(done)
        found: dict[int, Failure] = {}
        for _, content in self._place.read_all(self._files("failures", ".json")):
            try:
                failure = failure_from(content().to_pybytes())
            except (OSError, ValueError):
                continue  # a failure's note is no result: the worst that its loss can do is run the trial again
            if failure.trial not in finished:
                found[failure.trial] = failure
        return dict(sorted(found.items()))

    def scan(self, details: Sequence[str] = (), *, indexed: bool = False) -> Scan:
        """Verify every segment and list its trials.

        With `indexed` a segment is read only if it has changed since it was last verified, see `store.index`.
        """
        identity, sizes = self.info.identity, self._sizes
        names = list(dict.fromkeys([*details, "finished"]))
        index = SegmentIndex(self.path, identity, sizes) if indexed and isinstance(self.path, Path) else None

        def look(path: Location, read: Callable[[], pa.Buffer]) -> Segment:
            columns = (
                index.columns(path, read)
                if index
                else segments.trials_in(path, identity, names, content=read(), widths=sizes)
            )
            return Segment(columns["trial"], np.empty(0, np.int16), {}, details=columns)

        parts, rows, damaged = self._chosen(look)
        if index:
            index.save()
        columns = {
            name: np.concatenate([part.details[name] for part in parts])[rows] for name in ("trial", *details) if parts
        }
        numbers = columns.pop("trial", np.empty(0, np.int64))
        return Scan(numbers, columns, len(parts), damaged)

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

    def clean(self) -> None:
        """Delete half-written files of processes that are gone, and send what they could not send."""
        self.send_kept()
        self._place.clean(self.path)
        for part in ("trials", "failures", "checkpoints"):
            self._place.clean(self.path / part)

    def read(self) -> tuple[Trials, tuple[Damage, ...]]:
        """All trials, ascending, each once, and the damaged segments that were left out."""
        identity, sizes = self.info.identity, self._sizes
        parts, rows, damaged = self._chosen(
            lambda path, read: segments.read(path, identity, sizes, content=read()),
        )
        trials = merge(parts, rows, self.info.n_train, self.info.n_test, self.info.repeats)
        if (highest := int(trials.kinds.max(initial=0))) >= len(self.info.kinds):
            raise StoreError(
                f"{self.path} has trials of kind {highest}, and its {RUN_FILE} has {len(self.info.kinds)} kind(s),"
                f" counted from 0; 'memfluence repair {self.path}' sets them aside."
            )
        return replace(trials, block=self.info.block), damaged

    def read_extra(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Trial numbers (ascending) and one optional column (trials, n) of theirs; refuses damaged segments."""
        if name not in self.info.columns:
            raise InputError(
                f"{self.path} has no column {name!r}; make a run with --record {name.partition('_')[2] or name}."
            )
        identity, sizes = self.info.identity, self._sizes
        parts, rows, damaged = self._chosen(
            lambda path, read: segments.read(path, identity, sizes, extras=[name], content=read())
        )
        if damaged:
            raise StoreError(f"{damaged[0].reason} 'memfluence repair {self.path}' sets it aside.")
        if not parts:
            raise InputError(f"{self.path} holds no trials yet; run some with 'memfluence run'.")
        numbers = np.concatenate([part.numbers for part in parts])[rows]
        return numbers, np.concatenate([part.extras[name] for part in parts])[rows]

    def _chosen(
        self, look: Callable[[Location, Callable[[], pa.Buffer]], Segment]
    ) -> tuple[list[Segment], np.ndarray, tuple[Damage, ...]]:
        """What `look` makes of every segment, the rows of all of them that count, and what is damaged.

        Which of two different records of a trial counts is said in `store._merge`; the user is told once.
        """

        def numbered(path: Location, read: Callable[[], pa.Buffer]) -> tuple[np.ndarray, Segment]:
            segment = look(path, read)
            return segment.numbers, segment

        while True:
            found, damaged = self.read_each(numbered)
            try:
                rows, differing = choose(found, self._records_in)
            except FileNotFoundError:  # compacted just now
                continue
            self._tell(differing)
            return [part for _, part in found], rows, damaged

    def _records_in(self, path: Location) -> dict[int, bytes]:
        """Digests of all that a segment says of its trials; whoever reads the segment has looked at some columns."""
        try:
            rows = self.read_rows(path.name)
        except segments.DamagedSegmentError:  # in a column that the reader did not need
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

    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Label codes of the training and of the test examples."""
        return read_labels(self._examples, self._example_sizes)

    def ids(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Names of the training and of the test examples (files, keys), where their source has them."""
        return read_ids(self._examples, self._example_sizes)

    @property
    def _examples(self) -> Location:
        return self.path / str(self.info.dataset["examples"])

    @property
    def _example_sizes(self) -> Sizes:
        return Sizes(self.info.n_train, self.info.n_test, len(self.info.dataset["classes"]))

    @property
    def has_groups(self) -> bool:
        """Whether the plan kept whole groups, and which those are is known."""
        return self._keeps_groups and has_groups(self._examples)

    @property
    def _keeps_groups(self) -> bool:
        return "groups" in ((self.info.plan or {}).get("options") or {})

    def groups(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """The group of each training example, and the groups' names, where the plan kept whole groups."""
        if not self._keeps_groups:
            raise InputError(f"{self.path} has no groups; make a run with --groups (a .npy file, or an attribute).")
        if not self.has_groups:
            raise InputError(
                f"{self.path} was imported from a file that does not say what its groups are; export the trials again"
                " where they were made, and import that file into a new directory."
            )
        return read_groups(self._examples, self._example_sizes)
