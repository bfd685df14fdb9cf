"""Trials that travel in one file: our own .npz, and the per-run folders of the authors' release.

.npz: `mask` (t, n_train) bool, `train_correct` (t, n_train), `test_correct` (t, n_test), `train_labels`,
`test_labels`, and optionally `trial` (t,), `kind` (t,), `plan` (the plan's digest), `run` (the run.json of the run it
came from) and the optional columns (`train_prediction`, ...). `mask` and the outcomes are plain booleans, so that
NumPy alone can make and read such a file.

A folder of the release holds `aux_arrays.npz`: `index_train` and `index_removed` together are all training examples,
`correctness_*` follow their `index_*`, `subsample_idx` are the kept ones. It has no labels; they are given beside it.
"""

import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.errors import InputError
from memfluence.records import EXTRA_COLUMNS

__all__ = ["TrialsFile", "read_release_folder", "read_trials_file", "release_folders", "write_trials_file"]

RELEASE_FILE = "aux_arrays.npz"
_NEEDED = ("mask", "train_correct", "test_correct", "train_labels", "test_labels")
_EXTRAS = tuple(name for names in EXTRA_COLUMNS.values() for name in names)


@dataclass(frozen=True, eq=False)
class TrialsFile:
    """What such a file says."""

    source: Path
    mask: np.ndarray  # (t, n_train) bool
    train_correct: np.ndarray  # (t, n_train) bool
    test_correct: np.ndarray  # (t, n_test) bool
    train_labels: np.ndarray | None  # (n_train,)
    test_labels: np.ndarray | None  # (n_test,)
    trial: np.ndarray | None = None  # (t,) int64
    kind: np.ndarray | None = None  # (t,) int16
    plan: str | None = None
    run: Mapping[str, Any] | None = None
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)


def read_trials_file(path: Path) -> TrialsFile:
    arrays = _load(path)
    if missing := [name for name in _NEEDED if name not in arrays]:
        raise InputError(
            f"{path} has no array {missing[0]!r}, so it is no trials file; it holds {', '.join(sorted(arrays)[:8])}."
        )
    mask = _bits(arrays["mask"], "mask", path)
    train_correct = _bits(arrays["train_correct"], "train_correct", path)
    test_correct = _bits(arrays["test_correct"], "test_correct", path)
    n_trials, n_train, n_test = len(mask), len(arrays["train_labels"]), len(arrays["test_labels"])
    _check_shape(path, "mask", mask, (n_trials, n_train))
    _check_shape(path, "train_correct", train_correct, (n_trials, n_train))
    _check_shape(path, "test_correct", test_correct, (n_trials, n_test))
    extras = {name: arrays[name] for name in _EXTRAS if name in arrays}
    for name, values in extras.items():
        _check_shape(path, name, values, (n_trials, n_test if name.startswith("test") else n_train))
    trial = arrays.get("trial")
    if trial is not None:
        _check_shape(path, "trial", trial, (n_trials,))
        if trial.dtype.kind not in "iu" or (trial < 0).any() or len(np.unique(trial)) != n_trials:
            raise InputError(f"{path}: 'trial' must hold distinct numbers >= 0, one for each row of 'mask'.")
    kind = arrays.get("kind")
    if kind is not None:
        _check_shape(path, "kind", kind, (n_trials,))
    try:
        run = json.loads(str(arrays["run"])) if "run" in arrays else None
    except ValueError:
        raise InputError(f"{path}: 'run' must hold the JSON text of a run.json.") from None
    return TrialsFile(
        source=path,
        mask=mask,
        train_correct=train_correct,
        test_correct=test_correct,
        train_labels=arrays["train_labels"],
        test_labels=arrays["test_labels"],
        trial=None if trial is None else trial.astype(np.int64),
        kind=None if kind is None else kind.astype(np.int16),
        plan=str(arrays["plan"]) if "plan" in arrays else None,
        run=run,
        extras=extras,
    )


def write_trials_file(path: Path, file: TrialsFile) -> None:
    """Write what `read_trials_file` reads, compressed."""
    arrays: dict[str, Any] = {
        "mask": file.mask,
        "train_correct": file.train_correct,
        "test_correct": file.test_correct,
        "train_labels": file.train_labels,
        "test_labels": file.test_labels,
        **file.extras,
    }
    for name in ("trial", "kind", "plan"):
        if getattr(file, name) is not None:
            arrays[name] = np.asarray(getattr(file, name))
    if file.run is not None:
        arrays["run"] = np.asarray(json.dumps(file.run, sort_keys=True))
    with path.open("wb") as stream:  # a stream, because savez adds .npz to a name that lacks it
        np.savez_compressed(stream, **arrays)


def release_folders(path: Path) -> Iterator[Path]:
    """The folders at or below `path` that hold one run of the authors' release, in order of their names."""
    if (path / RELEASE_FILE).is_file():
        yield path
        return
    found = [file.parent for file in path.rglob(RELEASE_FILE)]
    if not found:
        raise InputError(f"{path} is a directory without {RELEASE_FILE}; give trials files, or folders of the release.")
    yield from sorted(found, key=lambda folder: (len(folder.name), folder.name))


def read_release_folder(folder: Path) -> TrialsFile:
    path = folder / RELEASE_FILE
    arrays = _load(path)
    needed = [f"{what}_{split}" for what in ("index", "correctness") for split in ("train", "removed", "test")]
    if missing := [name for name in (*needed, "subsample_idx") if name not in arrays]:
        raise InputError(f"{path} has no array {missing[0]!r}; it is not of the authors' release.")
    n_train = len(arrays["index_train"]) + len(arrays["index_removed"])
    train = np.concatenate([arrays["index_train"], arrays["index_removed"]])  # (n_train,) in the order of evaluation
    _check_is_order(path, "index_train and index_removed", train, n_train)
    _check_is_order(path, "index_test", arrays["index_test"], len(arrays["index_test"]))
    correct = np.concatenate([arrays["correctness_train"], arrays["correctness_removed"]])
    _check_shape(path, "correctness_train and correctness_removed", correct, (n_train,))
    _check_shape(path, "correctness_test", arrays["correctness_test"], (len(arrays["index_test"]),))
    mask = np.zeros((1, n_train), bool)
    mask[0, arrays["index_train"]] = True
    if not np.array_equal(np.sort(arrays["subsample_idx"]), np.flatnonzero(mask[0])):
        raise InputError(f"{path}: subsample_idx and index_train name different kept examples.")
    train_correct, test_correct = np.zeros((1, n_train), bool), np.zeros((1, len(arrays["index_test"])), bool)
    train_correct[0, train] = _bits(correct, "correctness_train", path)
    test_correct[0, arrays["index_test"]] = _bits(arrays["correctness_test"], "correctness_test", path)
    return TrialsFile(path, mask, train_correct, test_correct, None, None)


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            if not hasattr(archive, "files"):
                raise InputError(f"{path} is a .npy array, not a .npz archive; save trials with numpy.savez.")
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise InputError(f"There is no file {path}; give a trials file (.npz) or a folder of the release.") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not a readable .npz archive ({error}); copy it again.") from None


def _bits(values: np.ndarray, name: str, path: Path) -> np.ndarray:
    if values.dtype != bool and (values.dtype.kind not in "iuf" or not np.isin(values, (0, 1)).all()):
        raise InputError(f"{path}: {name!r} must hold booleans (or 0 and 1). Got {values.dtype} instead.")
    return values.astype(bool)


def _check_shape(path: Path, name: str, values: np.ndarray, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise InputError(f"{path}: {name!r} has the shape {values.shape}, but the other arrays ask for {shape}.")


def _check_is_order(path: Path, name: str, index: np.ndarray, n: int) -> None:
    if index.dtype.kind not in "iu" or not np.array_equal(np.sort(index), np.arange(n)):
        raise InputError(f"{path}: {name} must name each of the {n} examples once.")
