"""Tables for other people's tools: the same columns as CSV, Parquet or NPZ, the same bytes for the same values."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from memfluence.errors import InputError
from memfluence.npzfiles import npz_bytes
from memfluence.store import write_whole

__all__ = ["rows", "write_table"]


def write_table(columns: Mapping[str, np.ndarray], path: Path) -> None:
    """Write columns to `path` in the format that its ending names."""
    writers = {".csv": _csv, ".parquet": _parquet, ".npz": npz_bytes}
    if path.suffix.lower() not in writers:
        raise InputError(f"{path} must end in .csv, .parquet or .npz, which says the format.")
    write_whole(path, writers[path.suffix.lower()](columns))


def rows(columns: Mapping[str, np.ndarray]) -> list[dict[str, object]]:
    """One JSON-able dict per row; what cannot be estimated is None."""
    plain = {name: [_plain(value) for value in values.tolist()] for name, values in columns.items()}
    return [dict(zip(plain, values)) for values in zip(*plain.values())]


def _plain(value: object) -> object:
    return None if isinstance(value, float) and value != value else value


def _csv(columns: Mapping[str, np.ndarray]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*([_empty_for_nan(value) for value in values.tolist()] for values in columns.values())))
    return text.getvalue().encode()


def _empty_for_nan(value: object) -> object:
    return "" if isinstance(value, float) and value != value else value


def _parquet(columns: Mapping[str, np.ndarray]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    table = pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})  # NaN -> null
    integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=[name for name in columns if name not in integers],
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),  # an index takes a few bytes in all
    )
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
