"""Import: trials made elsewhere become a run, or join one.

Into an existing run it appends: a trial that is there already is dropped, two different records of one trial are
refused, and so is a file of other data or of another plan. Nothing is written unless all files pass.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.datasets import ids_of_one_kind, load, portable_name
from memfluence.errors import InputError, RunMismatchError, StoreError
from memfluence.exchange.trials_file import (
    TrialsFile,
    read_release_folder,
    read_trials_file,
    release_folders,
)
from memfluence.records import EXTRA_COLUMNS, Kind, Outcome, digest
from memfluence.store import remember_data
from memfluence.store.parquet import pack
from memfluence.store.places import Location, locate
from memfluence.store.run_file import FORMAT, RunInfo, info_from_json, is_run
from memfluence.store.store import TrialStore

_ROWS_PER_SEGMENT = 512


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels as their owner wrote them, and what to call the data."""

    train: np.ndarray
    test: np.ndarray
    name: str
    fingerprint: str | None = None
    class_names: Sequence[str] | None = None
    ids: tuple[Sequence[Any] | None, Sequence[Any] | None] = (None, None)


@dataclass(frozen=True)
class Imported:
    store: TrialStore
    added: int
    already_there: int


def import_trials(
    paths: str | Path | Iterable[str | Path],
    out: str | Location,
    *,
    dataset: str | None = None,
    labels: Labels | None = None,
) -> Imported:
    """Make a run of trials files (or folders of the authors' release), or join them to the run at `out`.

    `paths` is one path or several.
    `dataset` names the data they are about, or `labels` gives their labels: one of them is needed where a file has no
    labels, and `dataset` lets a report show the examples. All files are read and checked before anything is written.
    """
    out = locate(out)
    if dataset is not None:
        data = load(dataset)
        name = portable_name(data.name)
        both, ids = (data.labels("train"), data.labels("test")), (data.train_ids, data.test_ids)
        labels = Labels(*both, name, data.fingerprint, data.class_names, ids)
        if name != data.name:
            remember_data(data.fingerprint, data.name)
    paths = [paths] if isinstance(paths, str | Path) else paths
    given = [[_with_labels(file, labels) for file in _read(Path(path))] for path in paths]
    files = [file for part in given for file in part]
    if not files:
        raise InputError("No trials files were given; name at least one.")
    existing = TrialStore.open(out) if is_run(out) else None
    info, y_train, y_test = _info_for(files, labels)
    if existing is not None:
        described = any(file.run is not None for file in files)
        info = _check_joins(existing, info, described, y_train, y_test)
        y_train, y_test = existing.examples.labels()  # the same labels, perhaps among more classes
    _check_rows(files, info, out)
    outcomes, already_there = _number_trials(given, existing)
    info = replace(info, trials=max([info.trials, *(outcome.trial + 1 for outcome in outcomes)]))
    groups = next((file.groups for file in files if file.groups is not None), None)
    known = [labels.ids] if labels is not None and labels.ids != (None, None) else []
    known += [ids_of_one_kind(*file.ids) for file in files if file.ids is not None]
    examples = y_train, y_test, *(known[0] if known else (None, None)), groups
    store = existing or TrialStore.create(out, info, *examples)
    if existing is not None and info.trials > existing.info.trials:
        store = TrialStore.create(out, info, *examples)
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
                f"{file.source} has no labels; say which data it is about with `dataset` (cifar100:DIR, npz:FILE, ...)."
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
    """The content of run.json for these files, and the label codes."""
    first = next((file for file in files if file.run is not None), files[0])
    for file in files:
        if what := _difference(file, first):
            raise RunMismatchError(f"{file.source} and {first.source} differ in their {what}; import them apart.")
    train, test = np.asarray(first.train_labels), np.asarray(first.test_labels)
    classes, codes = np.unique(np.concatenate([train, test]), return_inverse=True)
    y_train, y_test = codes[: len(train)], codes[len(train) :]
    if first.run is not None:
        info = _info_from_run(first)
        names = list(info.dataset["classes"])
        code = {str(name): k for k, name in enumerate(names)}
        try:
            y_train = np.array([code[str(label)] for label in train.tolist()])
            y_test = np.array([code[str(label)] for label in test.tolist()])
        except KeyError as error:
            raise InputError(f"{first.source}: the label {error!s:.60} is not among the classes of its run.") from None
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
    )
    return info.recording(first.extras), y_train, y_test


def _difference(file: TrialsFile, first: TrialsFile) -> str | None:
    """The name of what differs between two files and must be the same in one run; None if nothing does."""
    for split in ("train_labels", "test_labels"):
        there, here = getattr(first, split), getattr(file, split)
        if there is not here and not np.array_equal(there, here):
            return "labels"
    if file.plan != first.plan:
        return "plan"
    if set(file.extras) != set(first.extras):
        return "columns"
    if file.run is None or first.run is None or file is first:
        return None
    one, other = _info_from_run(file), _info_from_run(first)
    if (one.identity, one.kinds, one.repeats) != (other.identity, other.kinds, other.repeats):
        return "data, learner or plan"
    return None


def _info_from_run(file: TrialsFile) -> RunInfo:
    """The run.json that came with the trials, if it is about them."""
    try:
        info = info_from_json({} if file.run is None else file.run)
    except ValueError as error:
        raise InputError(f"{file.source}: 'run' is not the run.json of a run ({error!s:.200}).") from None
    fits = {
        "format": info.format == FORMAT,
        "dataset": (info.n_train, info.n_test) == (file.mask.shape[1], file.test_correct.shape[1]),
        "plan": info.plan is None or info.plan["digest"] == file.plan,
        "groups": file.groups is None or "groups" in (info.plan or {}).get("options", {}),
        "record": {name for kind in info.record for name in EXTRA_COLUMNS[kind]} == set(file.extras),
    }
    if wrong := [name for name, is_right in fits.items() if not is_right]:
        raise InputError(f"{file.source}: 'run' is not the run.json of these trials: its {wrong[0]!r} does not fit.")
    return replace(info, dataset={key: value for key, value in info.dataset.items() if key != "examples"})


def _kind_of(files: Sequence[TrialsFile]) -> Kind:
    sizes = np.unique(np.concatenate([file.mask.sum(axis=1) for file in files]))
    n_train = files[0].mask.shape[1]
    return Kind(float(sizes[0]) / n_train, int(sizes[0])) if len(sizes) == 1 else Kind(None, None)


def _label_digest(train: np.ndarray, test: np.ndarray) -> str:
    return digest([train.tolist(), test.tolist()])


def _check_joins(
    existing: TrialStore, info: RunInfo, described: bool, y_train: np.ndarray, y_test: np.ndarray
) -> RunInfo:
    """Refuse files that are not about the run; otherwise the run's own description, which stays.

    Only files that are `described` (those of `export_trials`) say of which kinds their trials are, and which classes
    there are that no example has.
    """
    there = existing.info
    classes_there, classes_here = (np.array([str(name) for name in x.dataset["classes"]]) for x in (there, info))
    same = all(
        np.array_equal(classes_there[codes], classes_here[given])
        for codes, given in zip(existing.examples.labels(), (y_train, y_test))
    )
    if not same or (described and not np.array_equal(classes_there, classes_here)):
        raise RunMismatchError(f"{existing.path} is about other data: its labels differ from the file's.")
    named = not any(str(x.dataset["name"]).startswith("labels of ") for x in (there, info))
    if named and there.dataset["fingerprint"] != info.dataset["fingerprint"]:
        raise RunMismatchError(f"{existing.path} is about other data: they have the same labels but other inputs.")
    plan_there, plan_here = (x.plan["digest"] if x.plan else None for x in (there, info))
    if plan_there != plan_here:
        raise RunMismatchError(
            f"{existing.path} has the plan {plan_there or 'unknown'}, the file {plan_here or 'unknown'};"
            " trials of different plans are not joined. Choose another `out`."
        )
    if there.learner != info.learner and info.learner is not None:
        raise RunMismatchError(f"{existing.path} was made by another learner than the file; choose another `out`.")
    if described and (_sizes(there), there.repeats) != (_sizes(info), info.repeats):
        raise RunMismatchError(f"{existing.path} has other kinds of trial than the file; choose another `out`.")
    if there.says_record and there.record != info.record:
        raise RunMismatchError(
            f"{existing.path} records {list(there.record)} beside correctness, the file {list(info.record)}."
        )
    own = {key: value for key, value in there.dataset.items() if key != "examples"}
    return replace(there, dataset=own, record=info.record, columns=info.columns)


def _sizes(info: RunInfo) -> list[tuple[str, int | None]]:
    """The arms and sizes that distinguish the kinds of one plan; fractions may be written as 0.7 or as 29/41."""
    return [(kind.arm, kind.subset_size) for kind in info.kinds]


def _check_rows(files: Sequence[TrialsFile], info: RunInfo, out: Location) -> None:
    """Every row must be of a kind that the run has, with as many kept examples; predictions must be its classes."""
    n_classes = len(info.dataset["classes"])
    for file in files:
        if file.kind is None and len(info.kinds) > 1:
            raise RunMismatchError(
                f"{file.source} does not say which of its trials is of which kind, and {out} has {len(info.kinds)};"
                " write the file with 'memfluence export RUN FILE --trials' where the trials were made."
            )
        kinds = file.kinds
        if kinds.max() >= len(info.kinds):
            raise InputError(
                f"{file.source}: 'kind' goes up to {kinds.max()}, but {out} has {len(info.kinds)} kind(s) of trial,"
                " counted from 0; write the file with 'memfluence export RUN FILE --trials'."
            )
        sizes = file.mask.sum(axis=1)  # (t,)
        for number, kind in enumerate(info.kinds):
            wrong = sizes[(kinds == number) & (sizes != kind.subset_size)]
            if kind.subset_size is not None and len(wrong):
                raise RunMismatchError(
                    f"{file.source} has trials of {wrong[0]} kept examples, {out} of {kind.subset_size};"
                    " choose another `out`."
                )
        for name in EXTRA_COLUMNS["prediction"]:
            if name in file.extras and int(file.extras[name].max()) > n_classes:
                raise InputError(
                    f"{file.source}: {name!r} must hold class codes from 0 to {n_classes - 1}, or {n_classes} for"
                    f" none of the classes. Got {file.extras[name].max()} instead."
                )


def _number_trials(given: Sequence[Sequence[TrialsFile]], existing: TrialStore | None) -> tuple[list[Outcome], int]:
    """Outcomes that the run lacks, each with its number, and how many were there already.

    Trials without a number are told apart by their content. Those that were given together (one file, or all folders
    of a release) are all different trials, so equal ones are kept: of each content, only as many are there already as
    the run has.
    """
    records = {} if existing is None else dict(_records_of(existing))
    copies = Counter(records.values())
    outcomes: list[Outcome] = []
    already_there = 0
    for together in given:
        unmatched = Counter(copies)  # of what was there before these files
        for file in together:
            for row, content in enumerate(_contents(file.kinds, file.mask, file.train_correct, file.test_correct)):
                number = len(records) if file.trial is None else int(file.trial[row])
                if file.trial is None:
                    is_there = unmatched[content] > 0
                    unmatched[content] -= is_there
                    while number in records:
                        number += 1
                else:
                    is_there = records.get(number) == content
                if is_there:
                    already_there += 1
                    continue
                if number in records:
                    raise StoreError(
                        f"{file.source} has another record of trial {number} than the run;"
                        " find out which one is right before joining them. Nothing was written."
                    )
                records[number] = content
                copies[content] += 1
                outcomes.append(_outcome(file, row, number))
    return outcomes, already_there


def _records_of(store: TrialStore) -> Iterator[tuple[int, bytes]]:
    trials, _ = store.read()
    for row, number in enumerate(trials.numbers.tolist()):
        columns = (trials.kinds, trials.mask, trials.train_correct, trials.test_correct)
        yield number, b"".join(column[row].tobytes() for column in columns)


def _contents(kinds: np.ndarray, *bits: np.ndarray) -> Iterator[bytes]:
    """The content that distinguishes the rows of a file, as `_records_of` gives it."""
    columns = [kinds, *map(pack, bits)]
    for row in range(len(kinds)):
        yield b"".join(column[row].tobytes() for column in columns)


def _outcome(file: TrialsFile, row: int, number: int) -> Outcome:
    return Outcome(
        trial=number,
        kind=int(file.kinds[row]),
        mask=file.mask[row],
        train_correct=file.train_correct[row],
        test_correct=file.test_correct[row],
        extras={name: values[row] for name, values in file.extras.items()},
        device="imported",
    )
