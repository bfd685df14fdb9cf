"""Trials that travel in one file: our own .npz, and the per-run folders of the authors' release.

.npz: `mask` (t, n_train) bool, `train_correct` (t, n_train), `test_correct` (t, n_test), `train_labels`,
`test_labels`, and optionally `trial` (t,), `kind` (t,), `plan` (the plan's digest), `run` (the run.json of the run it
came from), `train_id` (n_train,) and `test_id` (n_test,) where the data call their examples something, `group`
(n_train,) and `group_names` (groups,) where that run kept whole groups, and the optional columns (`train_prediction`,
...). `mask` and the outcomes are plain booleans, so that NumPy alone can make and read such a file.

A folder of the release holds `aux_arrays.npz`: `index_train` and `index_removed` together are all training examples,
`correctness_*` follow their `index_*`, `subsample_idx` are the kept ones. It has no labels; they are given beside it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.errors import InputError
from memfluence.npzfiles import npz_bytes, open_npz
from memfluence.records import EXTRA_COLUMNS
from memfluence.runs import Run
from memfluence.store import unpack, write_whole
from memfluence.store.run_file import MOST, RUN_FILE, plain_json

RELEASE_FILE = "aux_arrays.npz"
_NEEDED = ("mask", "train_correct", "test_correct", "train_labels", "test_labels")
_RELEASE_NEEDED = (
    *(f"{what}_{split}" for what in ("index", "correctness") for split in ("train", "removed", "test")),
    "subsample_idx",
)
_EXTRAS = tuple(name for names in EXTRA_COLUMNS.values() for name in names)
_OPTIONAL = ("trial", "kind", "plan", "run", "train_id", "test_id", "group", "group_names", *_EXTRAS)


@dataclass(frozen=True, eq=False)
class TrialsFile:
    """The content of a trials file."""

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
    groups: tuple[np.ndarray, tuple[str, ...]] | None = None  # (n_train,) codes, and the groups' names
    ids: tuple[np.ndarray, np.ndarray] | None = None  # (n_train,) and (n_test,) integers, floats or texts

    @property
    def kinds(self) -> np.ndarray:
        """The kind of each trial, (t,) int16; where the file does not say, there is only one."""
        return np.zeros(len(self.mask), np.int16) if self.kind is None else self.kind


def read_trials_file(path: Path) -> TrialsFile:
    """Read and check the file: what is taken from it can be stored and estimated from."""
    arrays = _load(path, "a trials file", _NEEDED, _OPTIONAL)
    labels = {split: _labels(arrays[f"{split}_labels"], f"{split}_labels", path) for split in ("train", "test")}
    if labels["train"].dtype.kind != labels["test"].dtype.kind:
        raise InputError(f"{path}: one of 'train_labels' and 'test_labels' holds strings, the other integers.")
    mask = arrays["mask"]
    if mask.ndim != 2 or not len(mask):
        raise InputError(f"{path}: 'mask' must have a row for each trial, at least one. Got {mask.shape} instead.")
    n_trials, n_train, n_test = len(mask), len(labels["train"]), len(labels["test"])
    shapes = {"mask": (n_trials, n_train), "train_correct": (n_trials, n_train), "test_correct": (n_trials, n_test)}
    for name, shape in shapes.items():
        _check_shape(path, name, arrays[name], shape)
    bits = {name: _bits(arrays[name], name, path) for name in shapes}
    extras = {name: arrays[name] for name in _EXTRAS if name in arrays}
    for name, values in extras.items():
        _check_shape(path, name, values, (n_trials, n_test if name.startswith("test") else n_train))
        _check_extra(path, name, values, extras)
    try:
        run = plain_json(_text(arrays["run"], "run", path)) if "run" in arrays else None
    except ValueError as error:
        raise InputError(f"{path}: 'run' must hold the JSON text of a run.json ({error!s:.100}).") from None
    return TrialsFile(
        source=path,
        **bits,
        train_labels=labels["train"],
        test_labels=labels["test"],
        trial=_trial_numbers(arrays["trial"], n_trials, path) if "trial" in arrays else None,
        kind=_kinds(arrays["kind"], n_trials, path) if "kind" in arrays else None,
        plan=_text(arrays["plan"], "plan", path) if "plan" in arrays else None,
        run=run,
        extras=extras,
        groups=_groups(arrays, bits["mask"], path) if "group" in arrays else None,
        ids=_ids(arrays, (n_train, n_test), path),
    )


def export_trials(run: Run, path: str | Path) -> None:
    """Write all trials of a run in the format that `import_trials` reads, with the run's own description.

    A file that is there stays until the new one is whole.
    """
    target = Path(path)
    if target.suffix != ".npz":
        raise InputError(f"{target} must end in .npz, the format of trials files.")
    trials, info = run.bits, run.info
    cells = len(trials) * (2 * info.n_train + info.n_test)
    run.memory.check((2 + 6 * len(info.record)) * cells, "all trials, unpacked", "a machine that has it")
    arrays = {
        "mask": unpack(trials.mask, info.n_train),
        "train_correct": unpack(trials.train_correct, info.n_train),
        "test_correct": unpack(trials.test_correct, info.n_test),
        "train_labels": run.labels[0],
        "test_labels": run.labels[1],
    }
    for name in info.columns:
        if any(name in EXTRA_COLUMNS[kind] for kind in info.record):
            arrays[name] = run.store.read_extra(name)[1]
    arrays |= {"trial": trials.numbers, "kind": trials.kinds}
    if info.plan:
        arrays["plan"] = np.asarray(str(info.plan["digest"]))
    if (ids := run.store.examples.ids()) is not None:
        arrays |= {"train_id": ids[0], "test_id": ids[1]}
    if run.store.examples.has_groups:
        codes, names = run.store.examples.groups()
        arrays |= {"group": codes, "group_names": np.array(names)}
    arrays["run"] = np.asarray(json.dumps(asdict(info), sort_keys=True))
    write_whole(target, npz_bytes(arrays))


def release_folders(path: Path) -> Iterator[Path]:
    """The folders at or below `path` that hold one run of the authors' release, in order of their names."""
    if (path / RELEASE_FILE).is_file():
        yield path
        return
    found = [file.parent for file in path.rglob(RELEASE_FILE)]
    if not found and (path / RUN_FILE).is_file():
        raise InputError(f"{path} is a run; 'memfluence merge OUT {path}' joins runs.")
    if not found:
        raise InputError(f"{path} is a directory without {RELEASE_FILE}; give trials files, or folders of the release.")
    yield from sorted(found, key=lambda folder: (len(folder.name), folder.name))


def read_release_folder(folder: Path) -> TrialsFile:
    path = folder / RELEASE_FILE
    arrays = _load(path, "a file of the authors' release", _RELEASE_NEEDED)
    for name, values in arrays.items():
        if values.ndim != 1:
            raise InputError(f"{path}: {name!r} must be a flat array. Got the shape {values.shape} instead.")
        if name.startswith("correctness"):
            arrays[name] = _bits(values, name, path)
        elif values.dtype.kind not in "iu":
            raise InputError(f"{path}: {name!r} must hold integers. Got {values.dtype} instead.")
    for split in ("train", "removed", "test"):
        _check_shape(path, f"correctness_{split}", arrays[f"correctness_{split}"], arrays[f"index_{split}"].shape)
    train = np.concatenate([arrays["index_train"], arrays["index_removed"]])  # (n_train,) in the order of evaluation
    n_train, n_test = len(train), len(arrays["index_test"])
    _check_is_order(path, "index_train and index_removed", train, n_train)
    _check_is_order(path, "index_test", arrays["index_test"], n_test)
    correct = np.concatenate([arrays["correctness_train"], arrays["correctness_removed"]])
    mask = np.zeros((1, n_train), bool)
    mask[0, arrays["index_train"]] = True
    if not np.array_equal(np.sort(arrays["subsample_idx"]), np.flatnonzero(mask[0])):
        raise InputError(f"{path}: subsample_idx and index_train name different kept examples.")
    train_correct, test_correct = np.zeros((1, n_train), bool), np.zeros((1, n_test), bool)
    train_correct[0, train] = correct
    test_correct[0, arrays["index_test"]] = arrays["correctness_test"]
    return TrialsFile(path, mask, train_correct, test_correct, None, None)


def _load(path: Path, what: str, needed: Sequence[str], optional: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """The named arrays, of which the optional ones may be missing; nothing else in the file is touched."""
    if not path.is_file():
        raise InputError(f"There is no file {path}; give a trials file (.npz) or a folder of the release.")
    with open_npz(path, InputError) as file:
        if missing := [name for name in needed if name not in file.names]:
            raise InputError(f"{path} has no array {missing[0]!r}, so it is not {what}; it holds {file.listing}.")
        return {name: file.read(name) for name in (*needed, *optional) if name in file.names}


def _labels(values: np.ndarray, name: str, path: Path) -> np.ndarray:
    """Labels as a flat array of int64 or of strings."""
    if values.ndim != 1 or not len(values):
        raise InputError(
            f"{path}: {name!r} must be a flat array, one label for each of at least one example. Got {values.shape}."
        )
    if values.dtype.kind == "U":
        return values
    with np.errstate(invalid="ignore"):  # NaN and what is beyond 64 bits do not come back equal
        whole = values.astype(np.int64) if values.dtype.kind in "biuf" else None
    if whole is None or (whole != values).any():
        raise InputError(f"{path}: {name!r} must hold integers or strings. Got {values.dtype} instead.")
    return whole


def _bits(values: np.ndarray, name: str, path: Path) -> np.ndarray:
    if values.dtype != bool and (values.dtype.kind not in "iuf" or not np.isin(values, (0, 1)).all()):
        raise InputError(f"{path}: {name!r} must hold booleans (or 0 and 1). Got {values.dtype} instead.")
    return values.astype(bool)


def _trial_numbers(values: np.ndarray, n_trials: int, path: Path) -> np.ndarray:
    _check_shape(path, "trial", values, (n_trials,))
    if values.dtype.kind not in "iu" or values.min() < 0 or len(np.unique(values)) != n_trials:
        raise InputError(f"{path}: 'trial' must hold distinct numbers >= 0, one for each row of 'mask'.")
    if values.max() >= MOST:
        raise InputError(f"{path}: 'trial' must hold numbers below {MOST}. Got {values.max()} instead.")
    return values.astype(np.int64)


def _kinds(values: np.ndarray, n_trials: int, path: Path) -> np.ndarray:
    _check_shape(path, "kind", values, (n_trials,))
    if values.dtype.kind not in "iu" or values.min() < 0 or values.max() > np.iinfo(np.int16).max:
        raise InputError(f"{path}: 'kind' must hold positions in the run's kinds of trial, small integers >= 0.")
    return values.astype(np.int16)


def _groups(arrays: Mapping[str, np.ndarray], mask: np.ndarray, path: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    """The code of each training example's group and the groups' names, if every trial kept whole groups."""
    codes, names = arrays["group"], arrays.get("group_names", np.empty(0))
    _check_shape(path, "group", codes, (mask.shape[1],))
    is_text = names.ndim == 1 and names.dtype.kind == "U"
    if not is_text or codes.dtype.kind not in "iu" or not np.array_equal(np.unique(codes), np.arange(len(names))):
        raise InputError(f"{path}: 'group' must hold positions in 'group_names', which must be texts, each used.")
    first = np.unique(codes, return_index=True)[1]
    if (mask != mask[:, first][:, codes]).any():
        raise InputError(f"{path}: some trials kept a part of a group; 'group' is not what they were made with.")
    return codes.astype(np.int64), tuple(names.tolist())


def _ids(arrays: Mapping[str, np.ndarray], sizes: tuple[int, int], path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    if "train_id" not in arrays or "test_id" not in arrays:
        return None
    for name, size in zip(("train_id", "test_id"), sizes):
        _check_shape(path, name, arrays[name], (size,))
        if arrays[name].dtype.kind not in "iufU":
            raise InputError(f"{path}: {name!r} must hold numbers or texts. Got {arrays[name].dtype} instead.")
    return arrays["train_id"], arrays["test_id"]


def _text(values: np.ndarray, name: str, path: Path) -> str:
    if values.size != 1:
        raise InputError(f"{path}: {name!r} must hold one text. Got the shape {values.shape} instead.")
    return str(values.reshape(-1)[0])


def _check_extra(path: Path, name: str, values: np.ndarray, extras: Mapping[str, np.ndarray]) -> None:
    split, _, what = name.partition("_")
    other = f"{'test' if split == 'train' else 'train'}_{what}"
    if other not in extras and (name,) not in EXTRA_COLUMNS.values():
        raise InputError(f"{path} has {name!r} without {other!r}; a run records both or neither.")
    if what == "prediction":
        if values.dtype.kind not in "iu" or values.min() < 0:
            raise InputError(f"{path}: {name!r} must hold class codes, integers >= 0. Got {values.dtype} instead.")
    elif values.dtype.kind != "f" or values.dtype.itemsize > 8:
        raise InputError(f"{path}: {name!r} must hold floats of at most 64 bits. Got {values.dtype} instead.")


def _check_shape(path: Path, name: str, values: np.ndarray, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise InputError(f"{path}: {name!r} has the shape {values.shape}, but the other arrays ask for {shape}.")


def _check_is_order(path: Path, name: str, index: np.ndarray, n: int) -> None:
    if n == 0 or index.dtype.kind not in "iu" or not np.array_equal(np.sort(index), np.arange(n)):
        raise InputError(f"{path}: {name} must name each of the {n} examples once.")
