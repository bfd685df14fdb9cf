"""Segments (and the two other Parquet files of a run: the labels and the index of `status`), harmed.

The name of a segment has the digest of its bytes, and its pages have checksums, so harm would stop at the door: most
harmed files are named anew, and bytes are harmed in copies that were written without checksums.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuzzing.bytewise import bytewise, integer
from fuzzing.reading import Case
from fuzzing.runs import ask, seed_runs
from memfluence.store.parquet import content_digest

WRITINGS: tuple[dict[str, Any], ...] = (
    {"compression": "zstd", "write_page_checksum": True},
    {"compression": "none"},
    {"compression": "zstd"},
    {"compression": "snappy", "use_dictionary": True},
    {"compression": "gzip", "data_page_version": "2.0"},
    {"compression": "none", "use_dictionary": True, "row_group_size": 2, "write_statistics": True},
    {"compression": "lz4", "store_schema": False},
    {"compression": "brotli", "write_page_index": True},
)


class Segments:
    def __init__(self) -> None:
        self._runs = seed_runs()
        self.seeds = tuple(Case(run) for run in self._runs)
        self._tables = {
            (number, name): pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
            for number, run in enumerate(self._runs)
            for name, content in run.items()
            if name.endswith(".parquet")
        }
        self._written = {key: [written(table, how) for how in WRITINGS] for key, table in self._tables.items()}

    def harmed(self, chance: random.Random) -> Case:
        number = chance.randrange(len(self._runs))
        run = dict(self._runs[number])
        if ".index" in run and chance.random() < 0.15:
            run[".index"] = _harmed_index(run[".index"], chance)
            return Case(run)
        names = sorted(name for name in run if name.endswith(".parquet"))
        name = chance.choice([*names, *(one for one in names if one.startswith("trials/"))] * 2)
        if chance.random() < 0.5:
            content = bytewise_parquet(chance.choice(self._written[number, name]), chance, self._written[number, name])
        else:
            try:
                content = self._harmed_table(number, name, chance)
            except (pa.ArrowException, OSError, ValueError):  # what cannot be written is harmed as bytes
                content = bytewise_parquet(self._written[number, name][0], chance, self._written[number, name])
        if chance.random() < 0.1:  # the digest stays that of other bytes
            run[name] = content
            return Case(run)
        del run[name]
        renamed = f"{name.rpartition('-')[0]}-{content_digest(content)}.parquet"
        run[renamed] = content
        if name.startswith("examples-"):
            run["run.json"] = run["run.json"].replace(name.encode(), renamed.encode())
        return Case(run)

    def _harmed_table(self, number: int, name: str, chance: random.Random) -> bytes:
        if name.startswith("trials/") and chance.random() < 0.01:
            return _swollen(self._tables[number, name], chance)
        table = self._tables[number, name]
        for _ in range(chance.choice((1, 1, 2))):
            table = chance.choice(HARMS)(table, chance)
        return written(table, chance.choice(WRITINGS))

    def read(self, folder: Path, how: str) -> list[str]:
        return ask(folder)


def written(table: pa.Table, how: dict[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **{"use_dictionary": False, "write_statistics": ["trial"], **how})
    return bytes(sink.getvalue().to_pybytes())


def bytewise_parquet(content: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """Anywhere in the file, or in its footer alone, whose length is then set right in most cases."""
    if chance.random() < 0.4:
        return bytewise(content, chance, others)
    length = int.from_bytes(content[-8:-4], "little")
    pages, footer = content[: -8 - length], content[-8 - length : -8]
    if chance.random() < 0.5:
        at = chance.randrange(len(footer))
        footer = footer[:at] + _varint(integer(chance)) + footer[at + chance.randrange(1, 3) :]
    else:
        footer = bytewise(footer, chance)
    claimed = len(footer) if chance.random() < 0.9 else integer(chance) % 2**32
    return pages + footer + claimed.to_bytes(4, "little") + b"PAR1"


def _swollen(table: pa.Table, chance: random.Random) -> bytes:
    """Few bytes that become many: very many rows, or one long text in a dictionary that all of them share."""
    rows = chance.choice((5_000, 50_000, 200_000))
    columns = {}
    for field in table.schema:
        kind = field.type
        if field.name == "trial":
            values = pa.array(np.arange(rows))
        elif pa.types.is_fixed_size_binary(kind):
            values = pa.FixedSizeBinaryArray.from_buffers(
                kind, rows, [None, pa.py_buffer(bytes(rows * kind.byte_width))]
            )
        elif pa.types.is_string(kind):
            values = pa.array(["x" * (chance.choice((10**3, 10**7, 5 * 10**7)) // rows + 1)] * rows)
        else:
            values = pa.array(np.zeros(rows)).cast(kind)
        columns[field.name] = values
    swollen = pa.table(columns).replace_schema_metadata(table.schema.metadata)
    return written(swollen, {"compression": "zstd", "use_dictionary": ["host", "device"]})


def _varint(value: int) -> bytes:
    """As Thrift's compact protocol writes integers."""
    value = (value << 1 if value >= 0 else ~(value << 1)) & (2**64 - 1)
    found = bytearray()
    while value >= 128:
        found.append(value % 128 + 128)
        value >>= 7
    return bytes([*found, value])


def _harmed_index(content: bytes, chance: random.Random) -> bytes:
    inside = content[32:]
    if chance.random() < 0.4:
        table = pq.ParquetFile(pa.BufferReader(inside)).read(use_threads=False)
        text = table.schema.metadata[b"index"]
        harmed = bytewise(text, chance) if chance.random() < 0.5 else text.replace(*_swap(chance))
        inside = written(table.replace_schema_metadata({"index": harmed}), WRITINGS[1])
    else:
        inside = bytewise_parquet(inside, chance, [inside])
    return (content_digest(inside).encode() if chance.random() < 0.9 else content[:32]) + inside


def _swap(chance: random.Random) -> tuple[bytes, bytes]:
    return chance.choice((b"12", b"[", b"0", b'"trials', b"texts", b"host", b"5")), str(integer(chance)).encode()


def _pick(table: pa.Table, chance: random.Random) -> int:
    return chance.randrange(table.num_columns) if table.num_columns else 0


def _replaced(table: pa.Table, at: int, values: Any, metadata: Any = None) -> pa.Table:
    if not table.num_columns:
        return table
    field = pa.field(table.schema.names[at], values.type, metadata=metadata or table.schema.field(at).metadata)
    return table.set_column(at, field, values)


def _other_values(table: pa.Table, chance: random.Random) -> pa.Table:
    """Numbers beyond their range, in the type of the column where they fit."""
    numbers = [at for at, field in enumerate(table.schema) if not pa.types.is_fixed_size_binary(field.type)]
    at = chance.choice(numbers or [0])
    if not table.num_columns:
        return table
    kind, rows = table.schema.field(at).type, table.num_rows
    if pa.types.is_integer(kind):
        bits = kind.bit_width
        values = table.column(at).to_pylist()
        for row in range(rows) if chance.random() < 0.3 else [chance.randrange(rows)] if rows else []:
            values[row] = max(-(2 ** (bits - 1)), min(2 ** (bits - 1) - 1, integer(chance)))
        return _replaced(table, at, pa.array(values, pa.int64()).cast(kind))
    if pa.types.is_floating(kind):
        odd = (float("nan"), float("inf"), -float("inf"), 1e308, -1.0, 2.0, 1e-320)
        return _replaced(table, at, pa.array([chance.choice(odd) for _ in range(rows)], kind))
    texts = ("", "\n", "x" * 3000, "\x1b[2J", "é", "train", "test", "None")
    return _replaced(table, at, pa.array([chance.choice(texts) for _ in range(rows)], pa.string()))


def _other_type(table: pa.Table, chance: random.Random) -> pa.Table:
    at, rows = _pick(table, chance), table.num_rows
    numbers = np.arange(rows)
    makers: tuple[Callable[[], pa.Array], ...] = (
        lambda: pa.array(numbers.astype(chance.choice(("i1", "i2", "i4", "i8", "u1", "u4", "u8", "f2", "f4", "f8")))),
        lambda: pa.array([str(k) for k in range(rows)], chance.choice((pa.string(), pa.large_string(), pa.binary()))),
        lambda: pa.array([bytes(chance.choice((1, 3))) for _ in range(rows)], pa.binary()),
        lambda: pa.array([b"\xff\xfe"] * rows, pa.binary()).view(pa.string()),
        lambda: pa.array([[1, 2]] * rows),
        lambda: pa.array([{"a": 1}] * rows),
        lambda: pa.array([True] * rows),
        lambda: pa.nulls(rows, chance.choice((pa.int64(), pa.string(), pa.float64(), pa.null()))),
        lambda: pa.array(numbers).cast(pa.timestamp("ns")),
        lambda: pa.array([str(k % 2) for k in range(rows)]).dictionary_encode(),
        lambda: pa.array(list(range(rows)), pa.decimal128(20, 2)),
        lambda: (
            pa.array([bytes(width)] * rows, pa.binary(width))
            if (width := chance.choice((1, 2, 3, 4, 5, 26, 100)))
            else pa.nulls(rows)
        ),
    )
    return _replaced(table, at, chance.choice(makers)())


def _zeros(rows: int, width: int) -> pa.Array:
    kind = pa.binary(width)
    return pa.FixedSizeBinaryArray.from_buffers(kind, rows, [None, pa.py_buffer(bytes(rows * width))])


def _with_nulls(table: pa.Table, chance: random.Random) -> pa.Table:
    at, rows = _pick(table, chance), table.num_rows
    if not table.num_columns:
        return table
    gone = pa.array([chance.random() < 0.5 for _ in range(rows)])
    values = table.column(at).combine_chunks().to_pylist()
    kept = [None if is_gone.as_py() else value for value, is_gone in zip(values, gone)]
    kind = table.schema.field(at).type
    return _replaced(table, at, pa.array(kept, pa.string() if pa.types.is_dictionary(kind) else kind))


def _other_rows(table: pa.Table, chance: random.Random) -> pa.Table:
    """No rows, rows twice, in another order, or of another file's number."""
    rows = table.num_rows
    which = chance.randrange(5)
    if which == 0 or not rows:
        return table.slice(0, 0)
    if which == 1:
        return pa.concat_tables([table] * chance.choice((2, 3, 40)))
    if which == 2:
        return table.take(pa.array(chance.sample(range(rows), rows)))
    if which == 3:
        return table.slice(chance.randrange(rows))
    return table.take(pa.array([chance.randrange(rows) for _ in range(chance.choice((1, rows, 100)))]))


def _many_rows(table: pa.Table, chance: random.Random) -> pa.Table:
    """A small file of very many rows, or of very wide ones."""
    if not table.num_rows or chance.random() < 0.9:  # they take a while to make
        return _other_rows(table, chance)
    at = _pick(table, chance)
    if chance.random() < 0.5:
        return pa.concat_tables([table.slice(0, 1)] * 20_000).combine_chunks()
    width = chance.choice((2**16, 2**20, 2**23))
    return _replaced(table, at, pa.array([bytes(width)] * table.num_rows, pa.binary(width)))


def _other_columns(table: pa.Table, chance: random.Random) -> pa.Table:
    at, which = _pick(table, chance), chance.randrange(4)
    if not table.num_columns or which == 0:
        return table.remove_column(at) if table.num_columns else table
    if which == 1:
        name = chance.choice(("more", "trial", "mask", "x" * 3000, "\n", "train_prediction", "id", "group"))
        return table.append_column(name, pa.array(np.arange(table.num_rows)))
    if which == 2:
        names = list(table.schema.names)
        names[at] = chance.choice((names[0], names[-1], "", "a.b", "mask ", "é"))
        return table.rename_columns(names)
    return (
        table.select(chance.sample(table.schema.names, len(set(table.schema.names))))
        if len(set(table.schema.names)) == table.num_columns
        else table
    )


def _other_metadata(table: pa.Table, chance: random.Random) -> pa.Table:
    """What the file says of its run, and what a column says of its values."""
    if chance.random() < 0.5 and table.num_columns:
        at = _pick(table, chance)
        dtypes = (
            b"O",
            b"V100000000",
            b"S10",
            b"f8",
            b"float16",
            b"\xff",
            b"",
            b"i4,i4",
            b"M8[ns]",
            b"U2147483647",
            b"x" * 3000,
        )
        metadata = {b"dtype": chance.choice(dtypes), b"length": str(integer(chance)).encode()}
        if chance.random() < 0.3:
            metadata.pop(chance.choice((b"dtype", b"length")))
        field = table.schema.field(at)
        return table.set_column(at, pa.field(field.name, field.type, metadata=metadata), table.column(at))
    metadata = dict(table.schema.metadata or {b"a": b"b"})
    key = chance.choice(list(metadata))
    value = chance.choice((b"\xff\xfe", b"", b"x" * 3000, b"\n", metadata[key] + b"0", b"1"))
    if chance.random() < 0.3:
        metadata[b"\xff" if chance.random() < 0.5 else b"more"] = metadata.pop(key)
    else:
        metadata[key] = value
    return table.replace_schema_metadata(metadata if chance.random() < 0.9 else None)


def _padding(table: pa.Table, chance: random.Random) -> pa.Table:
    """Random bytes in the columns of bits: masks that the plan would not give, and padding that is not 0."""
    bits = [at for at, field in enumerate(table.schema) if pa.types.is_fixed_size_binary(field.type)]
    if not bits:
        return _other_values(table, chance)
    at = chance.choice(bits)
    width = table.schema.field(at).type.byte_width
    fill = chance.choice((lambda: chance.randbytes(width), lambda: b"\xff" * width, lambda: bytes(width)))
    return _replaced(table, at, pa.array([fill() for _ in range(table.num_rows)], pa.binary(width)))


HARMS: tuple[Callable[[pa.Table, random.Random], pa.Table], ...] = (
    *(_other_values, _other_values, _other_type, _other_type, _with_nulls, _other_rows, _many_rows),
    *(_other_columns, _other_metadata, _padding),
)
