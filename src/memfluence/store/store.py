"""`TrialStore`: a run's directory. Append-only trial records; everything else is derived from them.

    RUN/run.json                 what the run is
    RUN/examples-DIGEST.parquet  labels
    RUN/trials/*.parquet         segments, see `store.segments`
    RUN/failures/*.json          trials whose learner raised
    RUN/damaged/                 segments set aside because their bytes are not what was written
    RUN/checkpoints/             trials still in training, see `store.checkpoints`

Any number of processes may write to one run at once: a segment has a unique name and appears whole or not at all, and a
trial that was written twice counts once.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.errors import InputError, RunMismatchError, StoreError
from memfluence.records import Failure, Outcome, Trials
from memfluence.store import segments
from memfluence.store._examples import has_groups, read_groups, read_labels, write_examples
from memfluence.store._files import PARTIAL_PREFIX, file_errors, publish, remove_stale_partials
from memfluence.store._merge import merge
from memfluence.store.checkpoints import CheckpointFiles
from memfluence.store.run_file import RUN_FILE, RunInfo, differences, read_run_file, write_run_file

__all__ = ["Damage", "Scan", "TrialStore"]


@dataclass(frozen=True)
class Damage:
    path: Path
    reason: str


@dataclass(frozen=True, eq=False)
class Scan:
    """What is in the store: trial numbers done (ascending, each once), their small columns, and what is damaged."""

    numbers: np.ndarray  # (trials,) int64
    details: dict[str, np.ndarray] = field(default_factory=dict)
    segments: int = 0
    damaged: tuple[Damage, ...] = ()


class TrialStore:
    """One run on disk. Make one with `create` (which resumes an equal run) or `open`."""

    def __init__(self, path: Path, info: RunInfo) -> None:
        self.path = path
        self.info = info

    @classmethod
    def open(cls, path: Path | str) -> "TrialStore":
        return cls(Path(path), read_run_file(Path(path)))

    @classmethod
    def create(
        cls,
        path: Path | str,
        info: RunInfo,
        y_train: np.ndarray,
        y_test: np.ndarray,
        train_ids: Sequence[str] | None = None,
        test_ids: Sequence[str] | None = None,
        groups: tuple[np.ndarray, Sequence[str]] | None = None,
        described_before: Mapping[str, Any] | None = None,
    ) -> "TrialStore":
        """A new run at `path`, or the equal run that is there, grown to `info.trials` if it had fewer.

        Refuses, without writing anything, a path that holds something else or a run that differs. A run that has
        neither trials nor checkpoints yet has nothing to lose and becomes the one that is asked for. What an older
        description of the learner does not say is taken from `described_before`.
        """
        directory = Path(path)
        _check_is_ours(directory)
        is_empty = not any(any((directory / part).glob("[!.]*")) for part in ("trials", "checkpoints"))
        if is_empty or not (directory / RUN_FILE).exists():
            with file_errors(f"creating {directory}"):
                for part in ("trials", "failures"):
                    (directory / part).mkdir(parents=True, exist_ok=True)
            name = write_examples(directory, y_train, y_test, train_ids, test_ids, groups)
            complete = replace(info, dataset={**info.dataset, "examples": name})
            if not write_run_file(directory, complete, replace_existing=False):
                there = cls.open(directory)
                if differences(there.info, complete) or there.info.group_size != complete.group_size:
                    there.forget_failures()
                    write_run_file(directory, complete, replace_existing=True)
        store = cls.open(directory)
        if found := differences(store.info, info, described_before):
            raise RunMismatchError(
                f"{directory} holds a different run: it differs in {'; '.join(found)}."
                " Choose another directory (--out), or ask for what is there."
            )
        if info.trials > store.info.trials:
            store.info = replace(store.info, trials=info.trials)
            write_run_file(directory, store.info, replace_existing=True)
        return store

    def write(self, outcomes: Sequence[Outcome]) -> Path:
        """Publish one segment."""
        content = segments.encode(outcomes, self.info.identity)
        path = self.path / "trials" / segments.segment_name(outcomes, content)
        publish(path, content, replace=True)
        return path

    def forget_failures(self) -> None:
        """Delete the notes of failed trials."""
        with file_errors(f"clearing {self.path / 'failures'}"):
            for path in (self.path / "failures").glob("*.json"):
                path.unlink(missing_ok=True)

    def write_failure(self, failure: Failure) -> None:
        with file_errors(f"creating {self.path / 'failures'}"):
            (self.path / "failures").mkdir(exist_ok=True)
        path = self.path / "failures" / f"{failure.trial:09d}-{uuid.uuid4().hex[:8]}.json"
        publish(path, (json.dumps(asdict(failure), indent=2) + "\n").encode(), replace=True)

    def failures(self, done: Iterable[int] = ()) -> dict[int, Failure]:
        """Trials that failed and were not done since, by number."""
        finished = set(done)
        found: dict[int, Failure] = {}
        for path in sorted((self.path / "failures").glob("*.json")):
            try:
                failure = Failure(**json.loads(path.read_bytes()))
            except (OSError, ValueError, TypeError):
                continue  # a failure's note is no result: the worst that its loss can do is run the trial again
            if failure.trial not in finished:
                found[failure.trial] = failure
        return dict(sorted(found.items()))

    def scan(self, details: Sequence[str] = ()) -> Scan:
        """Verify every segment and list its trials; refuses two different records of one trial."""
        columns: list[dict[str, np.ndarray]] = []
        damaged: list[Damage] = []
        for path in self._segment_paths():
            try:
                columns.append(segments.trials_in(path, self.info.identity, details))
            except FileNotFoundError:
                continue  # set aside by another process just now
            except segments.DamagedSegmentError as error:
                damaged.append(Damage(path, str(error)))
        if not columns:
            return Scan(np.empty(0, np.int64), segments=0, damaged=tuple(damaged))
        everything = np.concatenate([part["trial"] for part in columns])
        numbers, first = np.unique(everything, return_index=True)
        if len(numbers) < len(everything):
            self.read()  # compares the copies
        return Scan(
            numbers,
            {name: np.concatenate([part[name] for part in columns])[first] for name in details},
            len(columns),
            tuple(damaged),
        )

    def set_aside(self, damaged: Iterable[Damage]) -> None:
        """Move damaged segments out of the way; their trials count as not done."""
        for damage in damaged:
            with file_errors(f"setting {damage.path} aside"):
                (self.path / "damaged").mkdir(exist_ok=True)
                try:
                    damage.path.rename(self.path / "damaged" / damage.path.name)
                except FileNotFoundError:
                    continue  # another process did it first

    def clean(self) -> None:
        """Delete half-written files of processes that are gone."""
        with file_errors(f"cleaning {self.path}"):
            remove_stale_partials(self.path)
            remove_stale_partials(self.path / "trials")
            remove_stale_partials(self.path / "failures")
            remove_stale_partials(self.path / "checkpoints")

    def checkpoints(self, every: float = 0.0, note: Callable[[str], None] | None = None) -> CheckpointFiles:
        """Where trials in training are kept; `note` is told why one is not used or cannot be written."""
        return CheckpointFiles(self.path / "checkpoints", self.info.identity, every, note)

    def read(self) -> tuple[Trials, tuple[Damage, ...]]:
        """All trials, ascending, each once, and the damaged segments that were left out."""
        parts: list[tuple[Path, segments.Segment]] = []
        damaged: list[Damage] = []
        sizes = {"n_train": self.info.n_train, "n_test": self.info.n_test}
        for path in self._segment_paths():
            try:
                parts.append((path, segments.read(path, self.info.identity, sizes)))
            except FileNotFoundError:
                continue
            except segments.DamagedSegmentError as error:
                damaged.append(Damage(path, str(error)))
        trials = merge(parts, self.info.n_train, self.info.n_test, self.info.repeats)
        return replace(trials, block=self.info.block), tuple(damaged)

    def read_extra(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Trial numbers (ascending) and one optional column (trials, n) of theirs."""
        if name not in self.info.columns:
            raise InputError(
                f"{self.path} has no column {name!r}; make a run with --record {name.partition('_')[2] or name}."
            )
        sizes = {"n_train": self.info.n_train, "n_test": self.info.n_test}
        found = [segments.read(path, self.info.identity, sizes, extras=[name]) for path in self._segment_paths()]
        numbers, first = np.unique(np.concatenate([part.numbers for part in found]), return_index=True)
        return numbers, np.concatenate([part.extras[name] for part in found])[first]

    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Label codes of the training and of the test examples."""
        return read_labels(self.path / str(self.info.dataset["examples"]))

    @property
    def has_groups(self) -> bool:
        """Whether the plan kept whole groups, and which those are is known."""
        return self._keeps_groups and has_groups(self.path / str(self.info.dataset["examples"]))

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
        return read_groups(self.path / str(self.info.dataset["examples"]))

    def _segment_paths(self) -> list[Path]:
        with file_errors(f"listing {self.path / 'trials'}"):
            if not (self.path / "trials").is_dir():
                raise StoreError(f"{self.path} has a {RUN_FILE} but no trials/ directory; restore it from a copy.")
            return sorted((self.path / "trials").glob("[!.]*.parquet"))


def _check_is_ours(directory: Path) -> None:
    """Refuse a path that holds anything but a run, or what a process that is just creating one has written so far."""
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is a file; --out must name a directory for the run, new or of the same run.")
    with file_errors(f"looking into {directory}"):
        if not directory.exists() or (directory / RUN_FILE).exists():
            return
        strange = [entry.name for entry in directory.iterdir() if not _is_of_a_new_run(entry)]
    if strange:
        raise InputError(
            f"{directory} holds other files ({', '.join(sorted(strange)[:3])}{', ...' if len(strange) > 3 else ''})"
            f" and no {RUN_FILE}; --out must name a new or empty directory, or a run."
        )


def _is_of_a_new_run(entry: Path) -> bool:
    if entry.name in ("trials", "failures") and entry.is_dir():
        return not any(entry.iterdir()) or (entry.parent / RUN_FILE).exists()  # it may have been created just now
    return entry.name.startswith(("examples-", PARTIAL_PREFIX, RUN_FILE))
