"""The four IDX files of MNIST, plain and gzipped, harmed before and after they are compressed."""

import gzip
import random
import struct
import zlib
from pathlib import Path

import numpy as np

from fuzzing.bytewise import bytewise, integer
from fuzzing.loading import load
from fuzzing.reading import Case


class IdxFiles:
    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._plain = {}
        for part, n in (("train", 12), ("t10k", 6)):
            self._plain[f"{part}-images-idx3-ubyte"] = _idx(rng.integers(0, 256, (n, 5, 4), np.uint8))
            self._plain[f"{part}-labels-idx1-ubyte"] = _idx((np.arange(n) % 3).astype(np.uint8))
        self._gzipped = {f"{name}.gz": gzip.compress(content, 1, mtime=0) for name, content in self._plain.items()}
        dotted = {name.replace("-idx", ".idx"): content for name, content in self._plain.items()}
        self.seeds = (Case(self._plain), Case(self._gzipped), Case(dotted))

    def harmed(self, chance: random.Random) -> Case:
        files = dict(chance.choice(self.seeds).files)
        name = chance.choice(sorted(files))
        content = files[name]
        others = list(self._plain.values())
        if not name.endswith(".gz"):
            files[name] = _harmed(content, chance, others)
        elif chance.random() < 0.3:
            files[name] = bytewise(content, chance, list(self._gzipped.values()))
        else:
            files[name] = _compressed(_harmed(gzip.decompress(content), chance, others), chance)
        if chance.random() < 0.03:
            files[chance.choice(sorted(files))] = b""
        return Case(files)

    def read(self, folder: Path, how: str) -> list[str]:
        return load(f"mnist:{folder}")


def _idx(values: np.ndarray) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def _harmed(content: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    which, axes = chance.random(), content[3]
    if which < 0.3:
        return bytewise(content, chance, others)
    found = bytearray(content)
    if which < 0.6:  # a size
        at = 4 + 4 * chance.randrange(axes)
        found[at : at + 4] = (integer(chance) % 2**32).to_bytes(4, "big")
        if chance.random() < 0.3:
            other = 4 + 4 * chance.randrange(axes)
            found[other : other + 4] = bytes(4)
    elif which < 0.7:  # the type, or the number of axes
        found[chance.choice((2, 3))] = chance.choice((0, 1, 2, 3, 8, 9, 11, 12, 13, 14, 127, 255))
    elif which < 0.8:
        return bytes(found) + bytes(chance.choice((1, 100, 10**6, 3 * 10**7 if chance.random() < 0.05 else 10)))
    elif which < 0.9:  # other labels, other pixels
        found[4 + 4 * axes :] = chance.randbytes(len(found) - 4 - 4 * axes)
    else:
        return bytes(found[: chance.randrange(len(found))])
    return bytes(found)


def _compressed(content: bytes, chance: random.Random) -> bytes:
    which = chance.random()
    whole = gzip.compress(content, 1, mtime=0)
    if which < 0.5:
        return whole
    if which < 0.6:  # two members
        half = chance.randrange(len(content) + 1)
        return gzip.compress(content[:half], 1) + gzip.compress(content[half:], 1)
    if which < 0.7:
        return whole + chance.randbytes(chance.randrange(40))
    if which < 0.8:  # a checksum or a length that is not that of the content
        return whole[:-8] + struct.pack("<II", integer(chance) % 2**32, integer(chance) % 2**32)
    if which < 0.9:  # flags: a name, a comment, more
        return whole[:3] + bytes((chance.randrange(256),)) + whole[4:]
    raw = zlib.compressobj(1, zlib.DEFLATED, -15)
    harmed = bytewise(raw.compress(content) + raw.flush(), chance)
    return whole[:10] + harmed + struct.pack("<II", zlib.crc32(content), len(content) % 2**32)
