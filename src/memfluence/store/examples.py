"""Examples: `examples-DIGEST.parquet` has the labels of all examples, and their ids, groups and targets if any.

With it a run can be read without its data.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from memfluence.errors import InputError, StoreError
from memfluence.store.parquet import ParquetContent, as_array, content_digest
from memfluence.store.places import Location, file_errors, place_of
from memfluence.store.run_file import RunInfo

_ADVICE = "restore it from a copy of the run"


def write_examples(
    directory: Location,
    y_train: np.ndarray,
    y_test: np.ndarray,
    train_ids: Sequence[Any] | None = None,
    test_ids: Sequence[Any] | None = None,
    groups: tuple[np.ndarray, Sequence[str]] | None = None,
    targets: tuple[np.ndarray, np.ndarray] | None = None,
) -> str:
    """Publish the file, unless another process has already, and return its name.

    Ids are all whole numbers, all floats or all texts; what is no Unicode in the name of a file is spelled out. A split
    without ids has positions, if the other has some.
    `groups` are the code of each training example's group and the groups' names; test examples have -1 and no name.
    `targets` of a task other than classes are for people to look at: numbers, or several in a text with spaces.
    """
    n_train, n_test = len(y_train), len(y_test)
    columns = {
        "split": pa.array(["train"] * n_train + ["test"] * n_test).dictionary_encode(),
        "index": pa.array(np.concatenate([np.arange(n_train), np.arange(n_test)])),
        "label": pa.array(np.concatenate([y_train, y_test]).astype(np.int32)),
    }
    if given := [ids for ids in (train_ids, test_ids) if ids is not None]:
        kind = type(given[0][0])
        ids = (range(n) if ids is None else ids for ids, n in ((train_ids, n_train), (test_ids, n_test)))
        columns["id"] = pa.array([_unicode(kind(one)) for part in ids for one in part])
    if groups is not None:
        codes, names = groups
        columns["group"] = pa.array(np.concatenate([codes, np.full(n_test, -1)]).astype(np.int32))
        columns["group_name"] = pa.array([*(names[code] for code in codes), *[""] * n_test]).dictionary_encode()
    if targets is not None:
        columns["target"] = pa.array([one for part in targets for one in _as_shown(part)])
    sink = pa.BufferOutputStream()
    how: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
    if "id" in columns and pa.types.is_integer(columns["id"].type):  # rows of a table take a byte or two each
        how |= {"use_dictionary": [name for name in columns if name != "id"]}
        how |= {"column_encoding": {"id": "DELTA_BINARY_PACKED"}}
    pq.write_table(pa.table(columns), sink, **how)
    content = sink.getvalue().to_pybytes()
    name = f"examples-{content_digest(content)}.parquet"
    place_of(directory).publish(directory / name, content, replace=False)
    return name


def _as_shown(targets: np.ndarray) -> list[Any]:
    if targets.ndim == 1 and targets.dtype.kind in "fU":
        return list(targets.tolist())
    rows = targets.tolist()
    return [_unicode(" ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in row)) for row in rows]


def _unicode(one: Any) -> Any:
    return one.encode(errors="backslashreplace").decode() if isinstance(one, str) else one


@dataclass(frozen=True)
class Examples:
    """The examples of the run at `run`, which has to agree with its run.json (`info`)."""

    run: Location
    info: RunInfo

    @property
    def path(self) -> Location:
        return self.run / str(self.info.dataset["examples"])

    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Label codes of the training and of the test examples."""
        train, test = (part.astype(np.int64) for part in self._of_splits("label", pa.int32()))
        classes = len(self.info.dataset["classes"])
        for split, codes in (("training", train), ("test", test)):
            if not 0 <= codes.min() <= codes.max() < classes:
                raise StoreError(
                    f"{self.path} has {split} labels that are none of the run's {classes} classes; {_ADVICE}."
                )
        return train, test

    def ids(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Ids of the training and of the test examples (int64, float64 or texts), where the data have any."""
        return self._of_splits("id", pa.int64(), pa.float64(), pa.string()) if self._has("id") else None

    def targets(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Targets of the training and of the test examples (float64 or texts), where they are no classes."""
        return self._of_splits("target", pa.float64(), pa.string()) if self._has("target") else None

    @property
    def has_groups(self) -> bool:
        """Whether the plan kept whole groups, and which those are is known."""
        return self.info.keeps_groups and self._has("group")

    def groups(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """The group of each training example, and the groups' names, where the plan kept whole groups."""
        if not self.info.keeps_groups:
            raise InputError(f"{self.run} has no groups; make a run with `groups` (a .npy file, or an attribute).")
        if not self.has_groups:
            raise InputError(
                f"{self.run} was imported from a file that does not say what its groups are; export the trials again"
                " where they were made, and import that file into a new directory."
            )
        codes = self._of_splits("group", pa.int32())[0].astype(np.int64)
        names = self._of_splits("group_name", pa.string())[0]
        found, first = np.unique(codes, return_index=True)
        if not np.array_equal(found, np.arange(len(found))):
            raise StoreError(f"{self.path} has groups that are not numbered from 0; {_ADVICE}.")
        return codes, tuple(names[first].tolist())

    def _of_splits(self, name: str, *kinds: pa.DataType) -> tuple[np.ndarray, np.ndarray]:
        """One column for the training and for the test examples."""
        with self._opened() as file:
            table = file.read(["split", name], shared=["id"])
        kind = pa.string() if pa.types.is_dictionary(table[name].type) else table[name].type
        if table["split"].type != pa.string() or kind not in kinds:
            raise StoreError(f"{self.path} has {kind!s:.60} as {name}, not {kinds[0]}; {_ADVICE}.")
        splits, values = as_array(table["split"]), as_array(table[name])
        parts = values[splits == "train"], values[splits == "test"]
        for split, part, n in zip(("training", "test"), parts, (self.info.n_train, self.info.n_test)):
            if len(part) != n:
                raise StoreError(
                    f"{self.path} has labels of {len(part)} {split} examples, and run.json says {n}; {_ADVICE}."
                )
        return parts

    def _has(self, name: str) -> bool:
        with self._opened() as file:
            return name in file.schema.names

    @contextmanager
    def _opened(self) -> Iterator[ParquetContent]:
        """The file, after verifying all of its bytes against the digest in its name."""
        path = self.path
        with file_errors(f"reading {path}"):
            content = place_of(path).read(path)
        if content_digest(content) != path.stem.rpartition("-")[2]:
            raise StoreError(f"{path} is torn or altered; {_ADVICE}.")
        try:
            with ParquetContent(content) as file:
                yield file
        except pa.ArrowException as error:
            says = " ".join(str(error).split())
            raise StoreError(f"{path} cannot be read as Parquet ({says:.120}); {_ADVICE}.") from error
