"""The pickles of CIFAR-10 and CIFAR-100 in protocols 2 to 5, harmed as programs: a pickle is one.

Instructions are put in between others that name functions which run commands (`os.system`, `eval`, ...), and that
claim sizes and positions which nobody has; a command that was run would leave the canary behind.
"""

import io
import pickle
import pickletools
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.bytewise import bytewise, integer
from fuzzing.loading import load
from fuzzing.reading import CANARY, Case

_RUN = f"touch {CANARY}; touch ../{CANARY}"
_WRITE = f"__import__('pathlib').Path('../{CANARY}').write_text('x')"
_CALLS = (
    *(
        ("os", "system", _RUN),
        ("posix", "system", _RUN),
        ("subprocess", "getoutput", _RUN),
        ("builtins", "eval", _WRITE),
    ),
    *(("builtins", "exec", _WRITE), ("__builtin__", "eval", _WRITE)),
    *(("os", "popen", _RUN), ("runpy", "run_path", "x")),
    *(("numpy", "load", f"../{CANARY}"), ("numpy.core.multiarray", "scalar", "x"), ("numpy", "ndarray.tofile", "x")),
    *(("importlib", "import_module", "antigravity"), ("_codecs", "encode.__globals__", "x"), ("numpy", "dtype", "O")),
    *(("numpy", "ndarray.__new__", "x"), ("_codecs", "decode", "x"), ("copyreg", "_reconstructor", "x")),
    *(("builtins", "getattr", "x"), ("builtins", "open", f"../{CANARY}"), ("codecs", "open", f"../{CANARY}")),
    *(("numpy", "dtype.newbyteorder", "x"), ("numpy.f2py", "run_main", "x"), ("torch", "load", "x"), ("x\n", "y", "z")),
)


class Pickles:
    def __init__(self) -> None:
        seeds = []
        for protocol in (2, 3, 4, 5):
            seeds.append(Case(_cifar100(protocol), "cifar100"))
        seeds += [Case(_cifar10(protocol), "cifar10") for protocol in (2, 4)]
        self.seeds = tuple(seeds)
        self._instructions = {
            content: [place for _, _, place in pickletools.genops(content) if place is not None]
            for seed in self.seeds
            for content in seed.files.values()
        }

    def harmed(self, chance: random.Random) -> Case:
        seed = chance.choice(self.seeds)
        files = dict(seed.files)
        name = chance.choice(sorted(files))
        content = files[name]
        if chance.random() < 0.3:
            files[name] = bytewise(content, chance, list(files.values()))
        else:
            files[name] = self._harmed_program(content, chance)
        return Case(files, seed.how)

    def _harmed_program(self, content: bytes, chance: random.Random) -> bytes:
        places = self._instructions[content]
        which = chance.random()
        if which < 0.1:  # instructions that are gone, or there twice
            at = chance.randrange(len(places))
            first, last = places[at], places[min(len(places) - 1, at + chance.choice((1, 1, 2, 5)))]
            return content[:first] + content[first:last] * chance.choice((0, 2, 2, 30)) + content[last:]
        if which < 0.2:  # a number within
            at = chance.choice(places) + 1
            width = chance.choice((1, 2, 4, 8))
            return content[:at] + (integer(chance) & (256**width - 1)).to_bytes(width, "little") + content[at + width :]
        if which < 0.3:  # another value altogether
            return _dumped(_other_content(chance), chance.choice((2, 3, 4, 5)))
        for _ in range(chance.choice((1, 1, 2))):
            at = chance.choice(places)
            content = content[:at] + _program(chance) + content[at:]
        return content

    def read(self, folder: Path, how: str) -> list[str]:
        return load(f"{how}:{folder}")


class _AsOfficial(pickle.Pickler):
    """Arrays as NumPy wrote them when the files were made, whatever the protocol."""

    def reducer_override(self, value: Any) -> Any:
        return value.__reduce__() if isinstance(value, np.ndarray) else NotImplemented


def _dumped(value: Any, protocol: int) -> bytes:
    content = io.BytesIO()
    _AsOfficial(content, protocol).dump(value)
    return content.getvalue()


def _pixels(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (n, 3072), np.uint8)


def _cifar100(protocol: int) -> dict[str, bytes]:
    def part(n: int) -> bytes:
        names = [f"image_{k}.png" for k in range(n)]
        labels = [k % 2 for k in range(n)]
        return _dumped(
            {"filenames": names, "fine_labels": labels, "coarse_labels": labels, "data": _pixels(n)}, protocol
        )

    meta = {"fine_label_names": ["apple", "bear"], "coarse_label_names": ["fruit", "animal"]}
    return {"train": part(3), "test": part(2), "meta": _dumped(meta, protocol)}


def _cifar10(protocol: int) -> dict[str, bytes]:
    def part(n: int) -> bytes:
        return _dumped({"batch_label": "x", "labels": [k % 2 for k in range(n)], "data": _pixels(n)}, protocol)

    meta = _dumped({"num_cases_per_batch": 2, "label_names": ["cat", "dog"], "num_vis": 3072}, protocol)
    return {**{f"data_batch_{k}": part(2) for k in range(1, 6)}, "test_batch": part(2), "batches.meta": meta}


def _other_content(chance: random.Random) -> Any:
    value: Any = chance.choice((0, "x", b"x", [1], {"data": 0}, None, 10**3000, float("nan"), {1, 2}, "x" * 10**5))
    labels = chance.choice(
        ([0, 1], [0, integer(chance)], ["a", "b"], [True, False], [0.5, 1], 3, [], [0] * 2000, [[0], [1]])
    )
    data = chance.choice((_pixels(2), _pixels(2).astype("f4"), _pixels(2).reshape(2, 3, 32, 32), _pixels(2)[:, :5], 0))
    names = chance.choice((["a", "b"], ["a"], ["a", 3], ["\n", "\ud800"], ["x" * 5000, "b"], "ab", [], ["a"] * 3000))
    whole = {"fine_labels": labels, "labels": labels, "data": data, "filenames": names, "fine_label_names": names}
    whole["label_names"] = names
    if chance.random() < 0.4:
        whole[chance.choice(("data", "labels", "fine_labels", "fine_label_names", "x" * 5000, "\n"))] = value
    return whole if chance.random() < 0.9 else value


def _text(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def _program(chance: random.Random) -> bytes:
    """Instructions that leave one value on the stack, or break it."""
    module, name, argument = chance.choice(_CALLS)
    named = f"c{module}\n{name}\n".encode() if chance.random() < 0.5 else _text(module) + _text(name) + b"\x93"
    called = b"(" + _text(argument) + b"t"
    size = integer(chance)
    programs: tuple[bytes, ...] = (
        named + called + b"R",
        named + called + b"R0",  # and taken away again, so that the data are whole
        named + called + b"b",
        b"(" + named + _text(argument) + b"o",
        f"(S'{argument}'\ni{module}\n{name}\n".encode(),
        named + called + b"\x81",
        named + called + b"}\x92",
        named + b"0",
        b"\x82" + bytes((chance.randrange(256),)),  # extensions
        b"\x83" + struct.pack("<H", chance.randrange(65536)),
        b"\x84" + struct.pack("<i", size % 2**31 * chance.choice((1, -1))),
        f"P{argument}\n".encode() if "\n" not in argument else b"Pid\n",
        _text("id") + b"Q",
        b"r" + struct.pack("<I", size % 2**32),  # memo
        b"j" + struct.pack("<I", size % 2**32),
        f"p{size}\n".encode(),
        f"g{size}\n".encode(),
        b"\x8e" + struct.pack("<Q", size % 2**64),  # lengths
        b"\x8d" + struct.pack("<Q", size % 2**64),
        b"\x96" + struct.pack("<Q", size % 2**64),
        b"B" + struct.pack("<I", size % 2**32),
        b"X" + struct.pack("<I", size % 2**32),
        b"T" + struct.pack("<i", (size % 2**32) - 2**31),
        b"\x8b" + struct.pack("<i", (size % 2**32) - 2**31),
        b"\x95" + struct.pack("<Q", size % 2**64),
        b"\x80" + bytes((chance.randrange(256),)),
        f"L{'9' * chance.choice((5, 5000))}L\n".encode(),
        f"I{'9' * chance.choice((5, 5000))}\n".encode(),
        b"F1e999\n",
        b"S'\\x00\\ud800'\n",
        b"V\\ud800\n",
        b"]" + b"2a" * chance.choice((1, 50)),  # lists within themselves
        b"}" + b"]" + b"Ns",
        b"(" * chance.choice((1, 3000)),
        b")" + b"\x85" * chance.choice((10, 3000, 50_000)) + b"0",
        b"]" + b"(l" * chance.choice((10, 3000)),
        b"\x97",
        b"\x98",
        b".",
        b"0" * chance.choice((1, 5)),
        b"2",
        b"b",
        b"R",
        b"e",
        b"u",
        b"\x90",
        b"\x91",
        b"}Nb",
        b"(NK\x01K\x02tb",
    )
    return chance.choice(programs)
