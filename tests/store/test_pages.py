"""What pages of Parquet files claim, where a header is not what headers are."""

import pyarrow as pa
import pytest

from memfluence.store._pages import _page_sizes

# Thrift's compact protocol: entries 2 and 3 (sizes) are 0, entry 5 (a page of data) is a structure, whose entry 2 (its
# encoding) is one, too, in place of a number.
STRUCTURE_FOR_A_NUMBER = bytes([0x25, 0, 0x15, 0, 0x2C, 0x2C, 0, 0, 0])


def test_an_encoding_that_is_no_number():
    column = {9: 0, 7: len(STRUCTURE_FOR_A_NUMBER)}
    with pytest.raises(pa.ArrowInvalid, match="encoded in an unusual way"):
        list(_page_sizes(memoryview(STRUCTURE_FOR_A_NUMBER), column))
