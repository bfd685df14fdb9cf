"""What the pages of a Parquet file claim, added up before anything is decompressed.

A page says how large it will be, and a footer how many values there are; Arrow allocates what they say. zstd makes
gigabytes of zeros out of a few kB, and a dictionary makes one value into millions. So the claims are held against the
size of the file first: `most_bytes`. Honest segments are far from it: those that we write hold 64 MiB, unless a single
trial is larger, and trained models' bits hardly compress.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

__all__ = ["check_claims", "most_bytes"]

_ALWAYS = 128 * 2**20
_EXPANSION = 100  # masks are random, so no honest segment comes near
_PLAIN, _RLE = 0, 3
_INTEGERS = 5  # as differences, in the tables that we write; Arrow refuses it for texts
_ENCODINGS = {_PLAIN, 2, _RLE, _INTEGERS, 8}  # 2 and 8: dictionaries. Others say one long text often in a few bytes
_LARGEST_HEADER = 1 << 16
_DEEPEST = 12
_LONGEST_LIST = 200  # in headers: of columns, or of groups of up to a million rows
_TEXT = 4  # bytes of a position in a dictionary, as which texts are read


def most_bytes(size: int) -> int:
    """What a Parquet file of `size` bytes may take when it is read."""
    return max(_ALWAYS, _EXPANSION * size)


def check_claims(content: pa.Buffer, schema: pa.Schema) -> None:
    """Raise ArrowInvalid where the columns are not flat, or claim more than a file of this size may."""
    view = memoryview(content).cast("B")  # Arrow has signed bytes
    groups = _entry(_footer(view), 4, list)
    widths = [_checked_width(field) for field in schema]
    if len(set(schema.names)) != len(schema.names):
        raise pa.ArrowInvalid("it has two columns of one name")
    claimed = 0
    for group in groups:
        columns, rows = _entry(group, 1, list), _entry(group, 3, int)
        if len(columns) != len(widths):
            raise pa.ArrowInvalid("it has columns within columns")
        for column, width in zip(columns, widths):
            described = _entry(column, 3, dict)
            values = _entry(described, 5, int)
            if min(rows, values) < 0:
                raise pa.ArrowInvalid("it claims a negative number of rows")
            claimed += max(rows, values) * width + sum(_page_sizes(view, described))
            if claimed > most_bytes(content.size):
                raise pa.ArrowInvalid(f"it claims more than {most_bytes(content.size)} bytes, from {content.size}")


def _footer(view: memoryview) -> dict[int, Any]:
    """The entries of the footer: 4 are the groups of rows, of which 1 are the columns and 3 the number of rows.

    Arrow's own description of it is not asked, because looking at what is wrong in it may end the process.
    """
    length = int.from_bytes(view[-8:-4], "little")
    found, _ = _parsed(view[max(0, len(view) - 8 - length) : -8])
    return found


def _checked_width(field: pa.Field) -> int:
    width = _width(field.type)
    if width is None:
        raise pa.ArrowInvalid(f"its column {field.name!r:.40} holds {field.type!s:.40}")
    return width


def _width(kind: Any) -> int | None:
    """Bytes that each value of a column takes; None for types that are not read."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type if pa.types.is_string(kind.value_type) else None
    if kind is None or pa.types.is_string(kind):
        return kind and _TEXT
    if kind.id == pa.binary(1).id:
        return int(kind.byte_width)
    return kind.bit_width // 8 if pa.types.is_integer(kind) or pa.types.is_floating(kind) else None


def _page_sizes(view: memoryview, column: dict[int, Any]) -> Iterator[int]:
    """The uncompressed size of each page of a column, which says where they are: 7 bytes from 9, or from 11."""
    at, first = _entry(column, 9, int), column.get(11)
    if isinstance(first, int) and 0 < first < at:  # a dictionary goes before
        at = first
    end = at + _entry(column, 7, int)
    if not 0 <= at <= end <= len(view):
        raise pa.ArrowInvalid("a column lies outside the file")
    while at < end:
        header, length = _parsed(view[at : min(end, at + _LARGEST_HEADER)])
        size, compressed = _entry(header, 2, int), _entry(header, 3, int)
        if min(size, compressed) < 0:
            raise pa.ArrowInvalid("a page has a negative size")
        inside = header.get(5) or header.get(8)  # of a page of data: its encoding is entry 2, or 4 in version 2
        encoding = inside.get(2 if 5 in header else 4) if isinstance(inside, dict) else _PLAIN
        if not isinstance(encoding, int) or encoding not in _ENCODINGS:
            raise pa.ArrowInvalid(f"a page is encoded in an unusual way ({encoding!s:.40})")
        yield size
        at += length + compressed


def _entry(entries: Any, number: int, kind: type) -> Any:
    found = entries.get(number) if isinstance(entries, dict) else None
    if not isinstance(found, kind):
        raise pa.ArrowInvalid("a header lacks what every header has")
    return found


def _parsed(content: memoryview) -> tuple[dict[int, Any], int]:
    """The entries of a structure by number, and its length: Thrift's compact protocol. Texts are left out."""
    try:
        return _struct(content, 0, _DEEPEST)
    except IndexError:
        raise pa.ArrowInvalid("a header is cut off") from None


def _struct(content: memoryview, at: int, levels: int) -> tuple[dict[int, Any], int]:
    found: dict[int, Any] = {}
    number = 0
    while content[at]:
        step, kind = content[at] >> 4, content[at] & 15
        at += 1
        if step:
            number += step
        else:
            number, at = _integer(content, at)
        if number in found:
            raise pa.ArrowInvalid("a header says one thing twice")
        found[number], at = _value(content, at, kind, levels)
    return found, at + 1


def _value(content: memoryview, at: int, kind: int, levels: int) -> tuple[Any, int]:
    if kind in (1, 2):  # booleans are their own type
        return kind == 1, at
    if kind == 3:
        return content[at], at + 1
    if kind in (4, 5, 6):
        return _integer(content, at)
    if kind == 7:
        return None, at + 8
    if kind == 8:
        length, at = _varint(content, at)
        return None, at + length
    if kind == 12 and levels:
        return _struct(content, at, levels - 1)
    if kind == 9 and levels:
        size, of = content[at] >> 4, content[at] & 15
        size, at = _varint(content, at + 1) if size == 15 else (size, at + 1)
        if size > _LONGEST_LIST:
            raise pa.ArrowInvalid(f"a header has a list of {size}")
        parts = []
        for _ in range(size):
            part, at = (content[at], at + 1) if of in (1, 2) else _value(content, at, of, levels - 1)
            parts.append(part)
        return parts, at
    raise pa.ArrowInvalid("a header has an entry that is not known")


def _integer(content: memoryview, at: int) -> tuple[int, int]:
    value, at = _varint(content, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while content[at] >= 128:
        value |= (content[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | content[at] << shift, at + 1
