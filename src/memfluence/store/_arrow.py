"""Arrow columns as NumPy arrays without `to_numpy`, which imports pandas."""

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["as_array"]


def as_array(column: Any) -> np.ndarray:
    """A column without nulls, of numbers or strings, as an array of its own memory."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return np.asarray(column.to_pylist(), dtype=str)
    parts = [np.from_dlpack(chunk) for chunk in column.chunks if len(chunk)]
    return np.concatenate(parts) if parts else np.empty(0, column.type.to_pandas_dtype())
