"""`examples-DIGEST.parquet`: the labels (and names) of all examples, so that a run can be read without its data."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from memfluence.errors import StoreError
from memfluence.store.parquet import ParquetContent, as_array, content_digest
from memfluence.store.places import Location, file_errors, place_of

_ADVICE = "restore it from a copy of the run"


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


@dataclass(frozen=True)
class Sizes:
    """What run.json says of its examples, which the file must agree with."""

    n_train: int
    n_test: int
    classes: int


def read_labels(path: Location, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Codes of the training and of the test labels."""
    train, test = (part.astype(np.int64) for part in _of_splits(path, sizes, "label", pa.int32()))
    for split, codes in (("training", train), ("test", test)):
        if not 0 <= codes.min() <= codes.max() < sizes.classes:
            raise StoreError(
                f"{path} has {split} labels that are none of the run's {sizes.classes} classes; {_ADVICE}."
            )
    return train, test


def read_ids(path: Location, sizes: Sizes) -> tuple[np.ndarray, np.ndarray] | None:
    """Names of the training and of the test examples, where their source has them."""
    return _of_splits(path, sizes, "id", pa.string()) if _has(path, "id") else None


def has_groups(path: Location) -> bool:
    """Whether the examples are in groups."""
    return _has(path, "group")


def read_groups(path: Location, sizes: Sizes) -> tuple[np.ndarray, tuple[str, ...]]:
    """The code of each training example's group, and the groups' names."""
    codes = _of_splits(path, sizes, "group", pa.int32())[0].astype(np.int64)
    names = _of_splits(path, sizes, "group_name", pa.string())[0]
    found, first = np.unique(codes, return_index=True)
    if not np.array_equal(found, np.arange(len(found))):
        raise StoreError(f"{path} has groups that are not numbered from 0; {_ADVICE}.")
    return codes, tuple(names[first].tolist())


def _of_splits(path: Location, sizes: Sizes, name: str, kind: pa.DataType) -> tuple[np.ndarray, np.ndarray]:
    """One column for the training and for the test examples."""
    with _opened(path) as file:
        table = file.read(["split", name])
    if (table["split"].type, table[name].type) != (pa.string(), kind):
        raise StoreError(f"{path} has {table[name].type!s:.60} as {name}, not {kind}; {_ADVICE}.")
    splits, values = as_array(table["split"]), as_array(table[name])
    is_train, is_test = splits == "train", splits == "test"
    for split, count, n in (("training", is_train.sum(), sizes.n_train), ("test", is_test.sum(), sizes.n_test)):
        if count != n:
            raise StoreError(f"{path} has labels of {count} {split} examples, and run.json says {n}; {_ADVICE}.")
    return values[is_train], values[is_test]


def _has(path: Location, name: str) -> bool:
    with _opened(path) as file:
        return name in file.schema.names


@contextmanager
def _opened(path: Location) -> Iterator[ParquetContent]:
    """The file, after verifying all of its bytes."""
    content = _verified(path)
    try:
        with ParquetContent(content) as file:
            yield file
    except pa.ArrowException as error:
        says = " ".join(str(error).split())
        raise StoreError(f"{path} cannot be read as Parquet ({says:.120}); {_ADVICE}.") from error


def _verified(path: Location) -> pa.Buffer:
    """The file's content, verified against the digest in its name."""
    with file_errors(f"reading {path}"):
        content = place_of(path).read(path)
    if content_digest(content) != path.stem.rpartition("-")[2]:
        raise StoreError(f"{path} is torn or altered; {_ADVICE}.")
    return content
