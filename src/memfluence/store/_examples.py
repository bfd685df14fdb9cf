"""`examples-DIGEST.parquet`: the labels (and names) of all examples, so that a run can be read without its data."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from memfluence.errors import StoreError
from memfluence.store._arrow import as_array, content_digest, open_parquet, read_columns
from memfluence.store._files import file_errors
from memfluence.store._places import place_of
from memfluence.store.locations import Location

__all__ = ["has_groups", "read_groups", "read_ids", "read_labels", "write_examples"]


def write_examples(
    directory: Location,
    y_train: np.ndarray,
    y_test: np.ndarray,
    train_ids: Sequence[str] | None = None,
    test_ids: Sequence[str] | None = None,
    groups: tuple[np.ndarray, Sequence[str]] | None = None,
) -> str:
    """Publish the file (once, whoever comes first) and return its name.

    `groups` are the code of each training example's group and the groups' names; test examples have -1 and no name.
    """
    n_train, n_test = len(y_train), len(y_test)
    columns = {
        "split": pa.array(["train"] * n_train + ["test"] * n_test).dictionary_encode(),
        "index": pa.array(np.concatenate([np.arange(n_train), np.arange(n_test)])),
        "label": pa.array(np.concatenate([y_train, y_test]).astype(np.int32)),
    }
    if train_ids is not None and test_ids is not None:
        columns["id"] = pa.array([*map(str, train_ids), *map(str, test_ids)], pa.string())
    if groups is not None:
        codes, names = groups
        columns["group"] = pa.array(np.concatenate([codes, np.full(n_test, -1)]).astype(np.int32))
        columns["group_name"] = pa.array([*(names[code] for code in codes), *[""] * n_test]).dictionary_encode()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="zstd", write_page_checksum=True)
    content = sink.getvalue().to_pybytes()
    name = f"examples-{content_digest(content)}.parquet"
    place_of(directory).publish(directory / name, content, replace=False)
    return name


def read_labels(path: Location) -> tuple[np.ndarray, np.ndarray]:
    """Codes of the training and of the test labels."""
    table = _read(path, ["split", "label"])
    is_train = as_array(table["split"]) == "train"
    labels = as_array(table["label"]).astype(np.int64)
    return labels[is_train], labels[~is_train]


def read_ids(path: Location) -> tuple[np.ndarray, np.ndarray] | None:
    """Names of the training and of the test examples, where their source has them."""
    with open_parquet(_verified(path)) as file:
        if "id" not in file.schema_arrow.names:
            return None
        table = read_columns(file, ["split", "id"])
    is_train = as_array(table["split"]) == "train"
    names = as_array(table["id"])
    return names[is_train], names[~is_train]


def has_groups(path: Location) -> bool:
    """Whether the examples are in groups."""
    with open_parquet(_verified(path)) as file:
        return "group" in file.schema_arrow.names


def read_groups(path: Location) -> tuple[np.ndarray, tuple[str, ...]]:
    """The code of each training example's group, and the groups' names."""
    table = _read(path, ["split", "group", "group_name"])
    is_train = as_array(table["split"]) == "train"
    codes = as_array(table["group"])[is_train].astype(np.int64)
    _, first = np.unique(codes, return_index=True)
    return codes, tuple(as_array(table["group_name"])[is_train][first].tolist())


def _read(path: Location, columns: list[str]) -> pa.Table:
    with open_parquet(_verified(path)) as file:
        return read_columns(file, columns)


def _verified(path: Location) -> pa.Buffer:
    """The file's content, verified against the digest in its name."""
    with file_errors(f"reading {path}"):
        content = place_of(path).read(path)
    if content_digest(content) != path.stem.rpartition("-")[2]:
        raise StoreError(f"{path} is torn or altered; restore it from a copy of the run.")
    return content
