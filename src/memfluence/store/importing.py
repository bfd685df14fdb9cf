"""`import`: trials made elsewhere become a run, or join one.

Into an existing run it appends: a trial that is there already is dropped, two different records of one trial are
refused, and so is a file of other data or of another plan. Nothing is written unless all files pass.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.errors import InputError, RunMismatchError, StoreError
from memfluence.records import EXTRA_COLUMNS, Kind, Outcome, digest
from memfluence.store.bits import pack
from memfluence.store.run_file import RUN_FILE, RunInfo, info_from_json, segment_columns
from memfluence.store.store import TrialStore
from memfluence.store.trials_file import TrialsFile, read_release_folder, read_trials_file, release_folders

__all__ = ["Imported", "Labels", "import_trials"]

_ROWS_PER_SEGMENT = 512


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels as their owner wrote them, and what to call the data."""

    train: np.ndarray
    test: np.ndarray
    name: str
    fingerprint: str | None = None
    class_names: Sequence[str] | None = None


@dataclass(frozen=True)
class Imported:
    store: TrialStore
    added: int
    already_there: int


def import_trials(paths: Iterable[Path], out: Path, labels: Labels | None = None) -> Imported:
    """Read all files, check that they belong together and to `out`, then write what `out` lacks."""
    files = [file for path in paths for file in _read(path)]
    if not files:
        raise InputError("No trials files were given; name at least one.")
    files = [_with_labels(file, labels) for file in files]
    info, y_train, y_test = _info_for(files, labels)
    existing = TrialStore.open(out) if (out / RUN_FILE).exists() else None
    if existing is not None:
        info = _check_joins(existing, info, y_train, y_test)
    outcomes, already_there = _number(files, existing)
    info = replace(info, trials=max([info.trials, *(outcome.trial + 1 for outcome in outcomes)]))
    store = existing or TrialStore.create(out, info, y_train, y_test)
    if existing is not None and info.trials > existing.info.trials:
        store = TrialStore.create(out, info, y_train, y_test)
    for start in range(0, len(outcomes), _ROWS_PER_SEGMENT):
        store.write(outcomes[start : start + _ROWS_PER_SEGMENT])
    return Imported(store, len(outcomes), already_there)


def _read(path: Path) -> Iterable[TrialsFile]:
    if path.is_dir():
        return [read_release_folder(folder) for folder in release_folders(path)]
    return [read_trials_file(path)]


def _with_labels(file: TrialsFile, labels: Labels | None) -> TrialsFile:
    if labels is None:
        if file.train_labels is None:
            raise InputError(
                f"{file.source} has no labels; say which data it is about with --dataset (cifar100:DIR, npz:FILE, ...)."
            )
        return file
    for split, there, given in (
        ("train", file.train_labels, labels.train),
        ("test", file.test_labels, labels.test),
    ):
        n = file.mask.shape[1] if split == "train" else file.test_correct.shape[1]
        if n != len(given) or (there is not None and not np.array_equal(there, given)):
            raise RunMismatchError(
                f"{file.source} and {labels.name} disagree on the {split} labels ({n} and {len(given)} examples);"
                " the trials are about other data or another order of them."
            )
    return replace(file, train_labels=labels.train, test_labels=labels.test)


def _info_for(files: Sequence[TrialsFile], labels: Labels | None) -> tuple[RunInfo, np.ndarray, np.ndarray]:
    """What run.json has to say about these files, and the label codes."""
    first = files[0]
    for file in files[1:]:
        same = np.array_equal(np.asarray(file.train_labels), np.asarray(first.train_labels)) and np.array_equal(
            np.asarray(file.test_labels), np.asarray(first.test_labels)
        )
        if not same or file.plan != first.plan or set(file.extras) != set(first.extras):
            what = "columns" if same and file.plan == first.plan else "plan" if same else "labels"
            raise RunMismatchError(f"{file.source} and {first.source} differ in their {what}; import them apart.")
    train, test = np.asarray(first.train_labels), np.asarray(first.test_labels)
    classes, codes = np.unique(np.concatenate([train, test]), return_inverse=True)
    y_train, y_test = codes[: len(train)], codes[len(train) :]
    record = tuple(sorted(kind for kind, names in EXTRA_COLUMNS.items() if set(names) <= set(first.extras)))
    if first.run is not None:
        info = _info_from_run(first.run, first.source)
        names = list(info.dataset["classes"])
        code = {str(name): k for k, name in enumerate(names)}
        try:
            y_train = np.array([code[str(label)] for label in train.tolist()])
            y_test = np.array([code[str(label)] for label in test.tolist()])
        except KeyError as error:
            raise InputError(f"{first.source}: the label {error} is not among the classes of its run.") from None
        return info, y_train, y_test
    shown = [str(name) for name in classes]
    if labels is not None and labels.class_names is not None and len(labels.class_names) == len(classes):
        shown = list(labels.class_names)
    info = RunInfo(
        dataset={
            "name": labels.name if labels else f"labels of {first.source.name}",
            "fingerprint": (labels and labels.fingerprint) or _label_digest(train, test),
            "n_train": len(train),
            "n_test": len(test),
            "classes": classes.tolist(),
            "class_names": shown,
        },
        learner=None,
        plan=None if first.plan is None else {"digest": first.plan},
        kinds=(_kind_of(files),),
        trials=0,
        record=record,
        columns=segment_columns(record),
    )
    return info, y_train, y_test


def _info_from_run(raw: Any, source: Path) -> RunInfo:
    try:
        info = info_from_json(raw)
        return replace(info, dataset={key: value for key, value in info.dataset.items() if key != "examples"})
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{source}: 'run' is not the run.json of a run ({error}).") from None


def _kind_of(files: Sequence[TrialsFile]) -> Kind:
    sizes = np.unique(np.concatenate([file.mask.sum(axis=1) for file in files]))
    n_train = files[0].mask.shape[1]
    return Kind(float(sizes[0]) / n_train, int(sizes[0])) if len(sizes) == 1 else Kind(None, None)


def _label_digest(train: np.ndarray, test: np.ndarray) -> str:
    return digest([train.tolist(), test.tolist()])


def _check_joins(existing: TrialStore, info: RunInfo, y_train: np.ndarray, y_test: np.ndarray) -> RunInfo:
    """Refuse files that are not about the run; otherwise the run's own description, which stays."""
    there_train, there_test = existing.labels()
    there = existing.info
    if (
        [str(name) for name in there.dataset["classes"]] != [str(name) for name in info.dataset["classes"]]
        or not np.array_equal(there_train, y_train)
        or not np.array_equal(there_test, y_test)
    ):
        raise RunMismatchError(f"{existing.path} is about other data: its labels differ from the file's.")
    plan_there, plan_here = (x.plan["digest"] if x.plan else None for x in (there, info))
    if plan_there != plan_here:
        raise RunMismatchError(
            f"{existing.path} has the plan {plan_there or 'unknown'}, the file {plan_here or 'unknown'};"
            " trials of different plans are not joined. Choose another --out."
        )
    if there.learner != info.learner and info.learner is not None:
        raise RunMismatchError(f"{existing.path} was made by another learner than the file; choose another --out.")
    if there.kinds != info.kinds:
        raise RunMismatchError(
            f"{existing.path} has trials of {there.kinds[0].subset_size} kept examples, the file of"
            f" {info.kinds[0].subset_size}; choose another --out."
        )
    if there.record != info.record:
        raise RunMismatchError(
            f"{existing.path} records {list(there.record)} beside correctness, the file {list(info.record)}."
        )
    return replace(there, dataset={key: value for key, value in there.dataset.items() if key != "examples"})


def _number(files: Sequence[TrialsFile], existing: TrialStore | None) -> tuple[list[Outcome], int]:
    """Outcomes that the run lacks, each with its number; trials without a number are told apart by their content."""
    by_number: dict[int, bytes] = {}
    if existing is not None:
        trials, _ = existing.read()
        for row, number in enumerate(trials.numbers.tolist()):
            by_number[number] = _content(trials.mask[row], trials.train_correct[row], trials.test_correct[row])
    contents = set(by_number.values())
    outcomes: list[Outcome] = []
    already_there = 0
    for file in files:
        packed = [pack(bits) for bits in (file.mask, file.train_correct, file.test_correct)]
        for row in range(len(file.mask)):
            content = _content(*(bits[row] for bits in packed))
            number = len(by_number) if file.trial is None else int(file.trial[row])
            if by_number.get(number) == content or (file.trial is None and content in contents):
                already_there += 1
                continue
            if file.trial is None:
                while number in by_number:
                    number += 1
            elif number in by_number:
                raise StoreError(
                    f"{file.source} has another record of trial {number} than the run;"
                    " find out which one is right before joining them. Nothing was written."
                )
            by_number[number] = content
            contents.add(content)
            outcomes.append(
                Outcome(
                    trial=number,
                    kind=0 if file.kind is None else int(file.kind[row]),
                    mask=file.mask[row],
                    train_correct=file.train_correct[row],
                    test_correct=file.test_correct[row],
                    extras={name: values[row] for name, values in file.extras.items()},
                    device="imported",
                )
            )
    return outcomes, already_there


def _content(*parts: np.ndarray) -> bytes:
    return b"".join(part.tobytes() for part in parts)
