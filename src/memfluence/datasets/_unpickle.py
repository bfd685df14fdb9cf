"""Reading a pickle of plain values and byte arrays without letting it run anything.

A pickle is a program that may name any function. Here the only names it can reach are stand-ins that note down an
array's parts, so that neither NumPy nor anything else acts on a hostile file; every other name is an error. The
pure-Python unpickler is used because the compiled one allocates whatever a crafted memo index or length asks for.
"""

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.errors import DatasetError

__all__ = ["PickledArray", "load_pickle"]

_MOST_BYTES = 1 << 30  # the largest official file has 155 MB


class PickledArray:
    """An array as its pickle describes it: nothing is allocated or checked before `to_bytes_array`."""

    def __init__(self, *_: Any) -> None:
        self._state: Any = None

    def __setstate__(self, state: Any) -> None:
        self._state = state

    def to_bytes_array(self, where: str) -> np.ndarray:
        """The array of unsigned bytes, if its shape and its content agree."""
        state = self._state
        if not isinstance(state, tuple) or len(state) != 5:
            raise DatasetError(f"{where} is not an array as NumPy pickles it; fetch the file again.")
        _, shape, dtype, fortran_order, content = state
        if not isinstance(dtype, _PickledDtype) or dtype.code not in {"u1", "|u1"}:
            raise DatasetError(f"{where} must be an array of unsigned bytes; fetch the file again.")
        if isinstance(content, str):  # what Python 2 wrote
            content = content.encode("latin1")
        if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
            raise DatasetError(f"{where} has an impossible shape; fetch the file again.")
        if not isinstance(content, bytes) or math.prod(shape) != len(content):
            held = len(content) if isinstance(content, bytes) else "no"
            raise DatasetError(f"{where} claims the shape {shape} but holds {held} bytes; fetch the file again.")
        return np.ndarray(shape, np.uint8, buffer=content, order="F" if fortran_order is True else "C")


class _PickledDtype:
    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        pass  # byte order and alignment, which bytes do not have


class _Encoded:
    """`_codecs.encode`, with which Python 3 writes bytes in old protocols."""

    def __new__(cls, text: Any, encoding: Any = None) -> Any:
        if not isinstance(text, str) or encoding != "latin1":
            raise pickle.UnpicklingError("only latin1 text can be encoded")
        return text.encode("latin1")

    def __setstate__(self, state: Any) -> None:
        pass


_STAND_INS: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): PickledArray,
    ("numpy", "ndarray"): PickledArray,
    ("numpy", "dtype"): _PickledDtype,
    ("_codecs", "encode"): _Encoded,
}


# Objects of classes, what only their owner could resolve, lists of bytes that are allocated before they are read, and
# texts of the first protocol, which are program text.
_REFUSED = (
    *(pickle.INST[0], pickle.OBJ[0], pickle.NEWOBJ[0], pickle.NEWOBJ_EX[0], pickle.PERSID[0], pickle.BINPERSID[0]),
    *(pickle.EXT1[0], pickle.EXT2[0], pickle.EXT4[0], pickle.BYTEARRAY8[0], pickle.NEXT_BUFFER[0]),
    *(pickle.READONLY_BUFFER[0], pickle.STRING[0]),
)


def _refuse(_: Any) -> None:
    raise pickle.UnpicklingError("it has instructions that data do not need")


class _PlainUnpickler(pickle._Unpickler):
    where = ""

    def find_class(self, module: str, name: str, /) -> Any:
        stand_in = _STAND_INS.get((module, name))
        if stand_in is None:
            raise DatasetError(
                f"{self.where} asks for {f'{module}.{name}'!r:.120}, which data do not need and which could run code;"
                " it was not loaded: fetch the official file."
            )
        return stand_in

    dispatch = pickle._Unpickler.dispatch | dict.fromkeys(_REFUSED, _refuse)


def load_pickle(path: Path, name: str) -> Any:
    """The content of a pickle of dicts, lists, strings, numbers and arrays, the arrays as `PickledArray`."""
    where = f"{name}: {path}"
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise DatasetError(f"{where} has more than {_MOST_BYTES} bytes; give the official Python version.")
        content = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{where} cannot be read ({error}).") from error
    unpickler = _PlainUnpickler(io.BytesIO(content), encoding="latin1")
    unpickler.where = where
    try:
        return unpickler.load()
    except DatasetError:
        raise
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DatasetError(f"{where} is not a whole pickle ({error!s:.120}); fetch the file again.") from error
