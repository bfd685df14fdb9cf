"""Arrow columns as arrays."""

import warnings

import numpy as np
import pyarrow as pa
import pytest

from memfluence.store.parquet import as_array


@pytest.mark.parametrize("name", ["uint8", "int16", "int64", "float16", "float32", "float64"])
def test_numbers_of_sliced_and_empty_chunks(name):
    values = np.arange(20).astype(name)
    whole = pa.array(values)
    column = pa.chunked_array([whole.slice(3, 5), whole.slice(0, 0), whole.slice(11)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = as_array(column)
    assert found.dtype == values.dtype
    assert found.flags.owndata
    np.testing.assert_array_equal(found, np.concatenate([values[3:8], values[11:]]))
    empty = as_array(pa.chunked_array([], type=whole.type))
    assert (empty.dtype, empty.shape) == (values.dtype, (0,))


def test_texts():
    assert as_array(pa.chunked_array([["a", "bc"], ["d"]])).tolist() == ["a", "bc", "d"]
