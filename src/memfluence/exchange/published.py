"""Results in files: the layout in which the authors published theirs, written and read, and our own tables, read.

Scores and influence: `tr_mem` (n_train,), `tr_labels`, `tt_labels`, and for each class K (its label, as in
`tr_labels`) `tr_classidx_K`, `tt_classidx_K` (indices) and `infl_matrix_classK` (train, test). Pairs: `tr_idx`,
`tt_idx`, `infl`, `mem`, one entry per pair. C-scores (Jiang et al. 2021): `scores` and `labels` (n_train,).

We write influence in float64, in which the thresholds are applied: rounded to float32, values just below 0.15 become
equal to it, and the file would select other pairs than the run. Files are read in the type that they have.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.errors import InputError, one_line
from memfluence.estimators import class_members
from memfluence.findings.pairs import Summary, summary_of
from memfluence.npzfiles import NpzFile, npz_bytes, open_npz
from memfluence.runs import Run
from memfluence.runs.table import from_cell
from memfluence.runs.values import check_bits
from memfluence.store import read_columns, write_whole

_SCORES = ("index", "label", "memorization")  # columns that a table of scores has, among others
_PAIRS = ("train_index", "test_index", "label", "influence", "memorization")
_MAY_LACK = ("memorization",)  # no estimate: all trials kept the example, or none did
_LARGEST = 1e100
_KINDS = {"label": ("fiubU", "labels"), "influence": ("fiu", "numbers"), "memorization": ("fiu", "numbers")}


@dataclass(frozen=True, eq=False)
class Published:
    """The content of a published file: pairs, scores with or without class-wise influence, or C-scores."""

    path: Path
    train_index: np.ndarray | None = None  # (pairs,)
    test_index: np.ndarray | None = None
    influence: np.ndarray | None = None
    memorization_of_pairs: np.ndarray | None = None
    label_of_pairs: np.ndarray | None = None  # of the training example; where it is missing, both are of one class
    memorization: np.ndarray | None = None  # (n_train,)
    c_scores: np.ndarray | None = None  # (n_train,)
    train_labels: np.ndarray | None = None
    test_labels: np.ndarray | None = None
    blocks: tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...] = field(default=())  # (train, test, influence)

    def only(self, chosen: np.ndarray) -> "Published":
        """The same file with some of its pairs, (pairs,) bool."""
        names = ("train_index", "test_index", "influence", "memorization_of_pairs", "label_of_pairs")
        kept = {name: values[chosen] for name in names if (values := getattr(self, name)) is not None}
        return replace(self, **kept)

    def summary(self) -> Summary | None:
        """The paper's four counts, where the file holds pairs."""
        if self.train_index is None or self.test_index is None:
            return None
        return summary_of(self.train_index, self.test_index)


def read_published(path: Path) -> Published:
    """Read and check a file, in the authors' layout or a table of ours: its indices and shapes fit together."""
    if not path.is_file():
        raise InputError(f"There is no run or file {path}; give a run's directory, a published .npz or a table.")
    if path.suffix.lower() in _READERS and (columns := _read_own_table(path)):
        return _of_pairs(columns, path) if "influence" in columns else _of_scores(columns, path)
    if path.suffix.lower() != ".npz" and path.suffix.lower() in _READERS:
        raise InputError(
            f"{path} is no table of scores or pairs, with the columns that 'memfluence scores RUN --out FILE' and"
            " 'memfluence pairs RUN --out FILE' write."
        )
    with open_npz(path, InputError) as file:
        if {"tr_idx", "tt_idx", "infl"} <= set(file.names):
            return _read_pairs(file, path)
        if "tr_mem" in file.names:
            return _read_scores(file, path)
        if {"scores", "labels"} <= set(file.names):
            return _read_c_scores(file, path)
        raise InputError(
            f"{path} holds {file.listing}; a published file has tr_idx, tt_idx and infl, or tr_mem, or the scores and"
            " labels of C-scores."
        )


def _of_pairs(columns: Mapping[str, np.ndarray], path: Path) -> Published:
    if not np.isfinite(columns["influence"]).all():
        raise InputError(f"{path}: some of the column 'influence' is no number.")
    return Published(
        path,
        train_index=columns["train_index"].astype(np.int64),
        test_index=columns["test_index"].astype(np.int64),
        influence=columns["influence"],
        memorization_of_pairs=columns["memorization"],
        label_of_pairs=columns["label"],
    )


def _of_scores(columns: Mapping[str, np.ndarray], path: Path) -> Published:
    """The scores in the order of the examples, whatever the order of the rows."""
    index = columns["index"].astype(np.int64)
    order = np.argsort(index, kind="stable")
    if not np.array_equal(index[order], np.arange(len(index))):
        raise InputError(
            f"{path} must have one row for each training example; 'memfluence scores RUN --out FILE' writes them all."
        )
    return Published(path, memorization=columns["memorization"][order], train_labels=columns["label"][order])


def _read_pairs(file: NpzFile, path: Path) -> Published:
    train, test = _indices(file, "tr_idx", path), _indices(file, "tt_idx", path)
    numbers = {name: _numbers(file, name, path) for name in ("infl", "mem") if name in file.names}
    if any(values.shape != train.shape for values in (test, *numbers.values())):
        raise InputError(f"{path}: tr_idx, tt_idx, infl and mem must be equally long.")
    if not np.isfinite(numbers["infl"]).all():
        raise InputError(f"{path}: 'infl' must be the influence of each pair, but some of it is no number.")
    return Published(
        path,
        train_index=train,
        test_index=test,
        influence=numbers["infl"],
        memorization_of_pairs=numbers.get("mem"),
    )


def _read_scores(file: NpzFile, path: Path) -> Published:
    memorization = _numbers(file, "tr_mem", path)
    labels = [file.read(name) if name in file.names else None for name in ("tr_labels", "tt_labels")]
    if memorization.ndim != 1 or any(values is not None and values.ndim != 1 for values in labels):
        raise InputError(f"{path}: tr_mem, tr_labels and tt_labels must be flat arrays.")
    if labels[0] is not None and len(labels[0]) != len(memorization):
        raise InputError(f"{path}: tr_mem and tr_labels must be equally long.")
    blocks = []
    for name in file.names:
        label = name.removeprefix("infl_matrix_class")
        if label == name:
            continue
        parts = (f"tr_classidx_{label}", f"tt_classidx_{label}")
        if missing := [part for part in parts if part not in file.names]:
            raise InputError(f"{path} has the influence matrix {name!r} without {missing[0]!r}.")
        train, test = (_indices(file, part, path) for part in parts)
        values = _numbers(file, name, path)
        if values.shape != (len(train), len(test)) or train.max(initial=-1) >= len(memorization):
            raise InputError(f"{path}: the shape {values.shape} of {name!r} does not fit its indices and tr_mem.")
        blocks.append((train, test, values))
    return Published(
        path, memorization=memorization, train_labels=labels[0], test_labels=labels[1], blocks=tuple(blocks)
    )


def _read_c_scores(file: NpzFile, path: Path) -> Published:
    scores, labels = _numbers(file, "scores", path), file.read("labels")
    if scores.ndim != 1 or labels.shape != scores.shape:
        raise InputError(f"{path}: 'scores' and 'labels' must be flat and equally long.")
    return Published(path, c_scores=scores, train_labels=labels)


def _indices(file: NpzFile, name: str, path: Path) -> np.ndarray:
    values = file.read(name)
    if values.ndim != 1 or values.dtype.kind not in "iu" or values.min(initial=0) < 0:
        raise InputError(
            f"{path}: {name!r} must be a flat array of indices. Got {values.dtype} of the shape {values.shape} instead."
        )
    return values


def _numbers(file: NpzFile, name: str, path: Path) -> np.ndarray:
    values = file.read(name)
    if values.dtype.kind not in "fiu":
        raise InputError(f"{path}: {name!r} must hold numbers. Got {values.dtype} instead.")
    return _as_estimates(values, f"{path}: {name!r}")


def _read_own_table(path: Path) -> dict[str, np.ndarray]:
    """The columns of `_PAIRS` or `_SCORES`, whichever the file has; none where it is no such table.

    Indices are integers from 0 on, and labels are as their owner wrote them.
    """
    columns = _READERS[path.suffix.lower()](path)
    lengths = {len(values) if values.ndim == 1 else -1 for values in columns.values()}
    if len(lengths) > 1 or -1 in lengths:
        raise InputError(f"{path}: its columns must be flat and equally long.")
    for name, values in columns.items():
        kinds, what = _KINDS.get(name, ("iu", "integers"))
        if not len(values):
            columns[name] = values = np.empty(0, {"iu": np.int64, "fiu": np.float64}.get(kinds, np.str_))
        if values.dtype.kind not in kinds:
            raise InputError(f"{path}: the column {name!r} must hold {what}. Got {values.dtype} instead.")
        if kinds == "iu" and values.min(initial=0) < 0:
            raise InputError(f"{path}: the column {name!r} has an index below 0.")
        if name in ("influence", "memorization"):
            columns[name] = _as_estimates(values, f"{path}: the column {name!r}")
    return columns


def _as_estimates(values: np.ndarray, what: str) -> np.ndarray:
    """Numbers in the type that they have, but none longer than float64, in which we calculate.

    Those of margins may be larger than 1, but not by so much that sums fail.
    """
    with np.errstate(over="ignore"):
        doubles = values.astype(np.float64)
    if (np.abs(doubles) > _LARGEST).any():
        raise InputError(f"{what} has numbers beyond {_LARGEST:g}.")
    return doubles if values.dtype.itemsize > 8 else values


def _chosen_names(names: Sequence[str]) -> Sequence[str]:
    return next((kind for kind in (_PAIRS, _SCORES) if set(kind) <= set(names)), ())


def _from_npz(path: Path) -> dict[str, np.ndarray]:
    with open_npz(path, InputError) as file:
        return {name: file.read(name) for name in _chosen_names(file.names)}


def _from_parquet(path: Path) -> dict[str, np.ndarray]:
    import pyarrow as pa

    try:
        return read_columns(path, _chosen_names, may_lack=_MAY_LACK)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet ({one_line(str(error))}).") from error


def _from_csv(path: Path) -> dict[str, np.ndarray]:
    import pandas as pd

    try:
        empty = {name: [""] for name in _MAY_LACK}
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # more cells than the header has would be lost
            how: dict[str, Any] = {"index_col": False, "keep_default_na": False, "na_values": empty}
            table = pd.read_csv(path, encoding="utf-8", dtype={"label": str}, **how)  # "00" is no number
    except (ValueError, OSError, pd.errors.ParserWarning) as error:  # pandas' other errors are ValueErrors
        raise InputError(f"{path} cannot be read as a UTF-8 CSV with a header ({one_line(str(error))}).") from error
    found = {name: table[name].to_numpy() for name in _chosen_names(list(table.columns))}
    return {name: values if values.dtype.kind in "fiub" else _texts(values) for name, values in found.items()}


def _texts(cells: np.ndarray) -> np.ndarray:
    return np.array([from_cell(str(cell)) for cell in cells.tolist()], np.str_)


_READERS = {".csv": _from_csv, ".npz": _from_npz, ".parquet": _from_parquet}


def export_published(
    run: Run,
    path: Path | str,
    *,
    pairs: bool = False,
    mem: float = 0.25,
    infl: float = 0.15,
    keep: float | None = None,
    memory: str | int | None = None,
) -> None:
    """Write scores and class-wise influence, or the high-influence pairs, in the authors' layout.

    `tr_id` and `tt_id` are added where the data call their examples something: of all examples, or of each pair's.
    `memory` caps what the process may hold; class-wise influence is held as a whole, twice, while it is written.
    """
    target = Path(path)
    if target.suffix != ".npz":
        raise InputError(f"{target} must end in .npz, the format of the published files.")
    check_bits(run)  # the layout, its thresholds and all that reads it are about accuracies
    ids = run.store.examples.ids()
    if pairs:
        found = run.find_pairs(mem, infl, keep=keep, permutations=0, memory=memory)
        arrays = {
            "tr_idx": found.train_index,
            "tt_idx": found.test_index,
            "infl": found.influence,
            "mem": found.memorization,
        }
        if ids is not None:
            arrays |= {"tr_id": ids[0][found.train_index], "tt_id": ids[1][found.test_index]}
    else:
        codes = run.label_codes
        estimates = run.influence_estimates(keep, memory=memory)
        size = 8 * sum(len(train) * len(test) for _, train, test in class_members(*codes))
        estimates.memory.check(2 * size, "the influence of all classes", "`pairs=True`")
        arrays = {
            "tr_mem": run.estimate_memorization(keep).value,
            "tr_labels": run.classes[codes[0]],
            "tt_labels": run.classes[codes[1]],
        }
        if ids is not None:
            arrays |= {"tr_id": ids[0], "tt_id": ids[1]}
        for block in estimates.class_blocks(*codes):
            label = run.classes[block.label]  # as its owner wrote it; the block has its code
            arrays[f"tr_classidx_{label}"] = block.train
            arrays[f"tt_classidx_{label}"] = block.test
            arrays[f"infl_matrix_class{label}"] = block.values
    write_whole(target, npz_bytes(arrays))
