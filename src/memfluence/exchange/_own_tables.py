"""Tables that `memfluence scores --out` and `pairs --out` wrote, read back from CSV, Parquet or NPZ."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.errors import InputError, one_line
from memfluence.npzfiles import open_npz
from memfluence.runs.table import from_cell
from memfluence.store import read_columns

__all__ = ["TABLES", "as_estimates", "read_own_table"]

SCORES = ("index", "label", "memorization")  # columns that a table of scores has, among others
PAIRS = ("train_index", "test_index", "label", "influence", "memorization")
_MAY_LACK = ("memorization",)  # no estimate: all trials kept the example, or none did
_LARGEST = 1e100
_KINDS = {"label": ("fiubU", "labels"), "influence": ("fiu", "numbers"), "memorization": ("fiu", "numbers")}


def read_own_table(path: Path) -> dict[str, np.ndarray]:
    """The columns of `PAIRS` or `SCORES`, whichever the file has; none where it is no such table.

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
            columns[name] = as_estimates(values, f"{path}: the column {name!r}")
    return columns


def as_estimates(values: np.ndarray, what: str) -> np.ndarray:
    """Numbers in the type that they have, but none longer than float64, in which we calculate.

    Those of margins may be larger than 1, but not by so much that sums fail.
    """
    with np.errstate(over="ignore"):
        doubles = values.astype(np.float64)
    if (np.abs(doubles) > _LARGEST).any():
        raise InputError(f"{what} has numbers beyond {_LARGEST:g}.")
    return doubles if values.dtype.itemsize > 8 else values


def _chosen(names: Sequence[str]) -> Sequence[str]:
    return next((kind for kind in (PAIRS, SCORES) if set(kind) <= set(names)), ())


def _npz(path: Path) -> dict[str, np.ndarray]:
    with open_npz(path, InputError) as file:
        return {name: file.read(name) for name in _chosen(file.names)}


def _parquet(path: Path) -> dict[str, np.ndarray]:
    import pyarrow as pa

    try:
        return read_columns(path, _chosen, may_lack=_MAY_LACK)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet ({one_line(str(error))}).") from error


def _csv(path: Path) -> dict[str, np.ndarray]:
    import pandas as pd

    try:
        empty = {name: [""] for name in _MAY_LACK}
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # more cells than the header has would be lost
            how: dict[str, Any] = {"index_col": False, "keep_default_na": False, "na_values": empty}
            table = pd.read_csv(path, encoding="utf-8", dtype={"label": str}, **how)  # "00" is no number
    except (ValueError, OSError, pd.errors.ParserWarning) as error:  # pandas' other errors are ValueErrors
        raise InputError(f"{path} cannot be read as a UTF-8 CSV with a header ({one_line(str(error))}).") from error
    found = {name: table[name].to_numpy() for name in _chosen(list(table.columns))}
    return {name: values if values.dtype.kind in "fiub" else _texts(values) for name, values in found.items()}


def _texts(cells: np.ndarray) -> np.ndarray:
    return np.array([from_cell(str(cell)) for cell in cells.tolist()], np.str_)


_READERS = {".csv": _csv, ".npz": _npz, ".parquet": _parquet}
TABLES = tuple(_READERS)  # endings
