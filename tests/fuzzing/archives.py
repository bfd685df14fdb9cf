"""Archives of arrays: dataset files, trials files of `import`, and folders of the authors' release.

Harm is done to the arrays, to the headers of arrays within an archive that is otherwise whole (sizes and checksums are
those of the harmed content), to the archive's own records, and to its bytes.
"""

import io
import json
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import memfluence as mf
from fuzzing.bytewise import bytewise, integer
from fuzzing.jsons import harmed_value
from fuzzing.loading import load
from fuzzing.reading import Case
from fuzzing.runs import ask, refuse_hidden
from memfluence.designs import make
from memfluence.errors import MemfluenceError
from memfluence.records import Kind

Arrays = dict[str, np.ndarray]
_FILES = {"npz": "data.npz", "trials": "trials.npz", "release": "release/run-0/aux_arrays.npz"}


class Archives:
    def __init__(self) -> None:
        self._arrays = [("npz", arrays) for arrays in _datasets()] + [("trials", arrays) for arrays in _trials()]
        self._arrays.append(("release", _release()))
        self._whole = [
            (how, zipped(arrays, compression))
            for how, arrays in self._arrays
            for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        ]
        self.seeds = tuple(Case(_files(how, content), how) for how, content in self._whole)

    def harmed(self, chance: random.Random) -> Case:
        which = chance.random()
        if which < 0.25:
            how, content = chance.choice(self._whole)
            return Case(_files(how, bytewise(content, chance, [one for _, one in self._whole[:4]])), how)
        if which < 0.4:
            how, content = chance.choice(self._whole)
            return Case(_files(how, _harmed_records(content, chance)), how)
        how, arrays = chance.choice(self._arrays)
        compression = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
        if which < 0.6:
            return Case(_files(how, _harmed_headers(arrays, compression, chance)), how)
        arrays = dict(arrays)
        for _ in range(chance.choice((1, 1, 1, 2))):
            name = chance.choice(sorted(arrays)) if arrays else "mask"
            if name == "run" and chance.random() < 0.8:
                run = harmed_value(json.loads(str(arrays["run"])) if arrays["run"].size == 1 else {}, chance)
                text = json.dumps(run, ensure_ascii=True)
                arrays["run"] = np.asarray(text) if chance.random() < 0.9 else np.asarray([text, text])
            else:
                chance.choice(HARMS)(arrays, name, chance)
        return Case(_files(how, zipped(arrays, compression)), how)

    def read(self, folder: Path, how: str) -> list[str]:
        if how == "npz":
            return load(f"npz:{folder / 'data.npz'}")
        out = folder / "run"
        labels = f"npz:{folder / 'labels.npz'}" if how == "release" else None
        try:
            mf.import_trials([folder / _FILES[how].partition("/")[0]], out, dataset=labels)
        except MemfluenceError as error:
            refuse_hidden(error)
            assert not list(out.glob("trials/*")), "trials were written although the file was refused"
            return [str(error)]
        return ask(out)


def _files(how: str, content: bytes) -> dict[str, bytes]:
    labels = {"labels.npz": zipped(_datasets()[0], zipfile.ZIP_STORED)} if how == "release" else {}
    return {_FILES[how]: content, **labels}


def _datasets() -> list[Arrays]:
    rng = np.random.default_rng(0)
    y_train, y_test = np.arange(12) % 3, np.arange(6) % 3
    images = {
        "x_train": rng.integers(0, 256, (12, 4, 4), np.uint8),
        "x_test": rng.integers(0, 256, (6, 4, 4), np.uint8),
    }
    table = {"x_train": rng.normal(size=(12, 5)), "x_test": rng.normal(size=(6, 5))}
    names = np.array(["ant", "bee", "fly"])
    return [
        {**images, "y_train": y_train, "y_test": y_test},
        {**table, "y_train": names[y_train], "y_test": names[y_test]},
        {**images, "y_train": y_train, "y_test": y_test, "class_names": names},
        {"x_train": np.array(["text"] * 12), "x_test": np.array(["t"] * 6), "y_train": y_train, "y_test": y_test},
    ]


def _trials() -> list[Arrays]:
    rng = np.random.default_rng(1)
    n_trials, n_train, n_test = 10, 12, 6
    design = make("fixed", n_train=n_train, keep=0.5, seed=1)
    mask = np.stack([design.trial(number).mask for number in range(n_trials)])
    plain = {
        "mask": mask,
        "train_correct": mask | (rng.random((n_trials, n_train)) < 0.5),
        "test_correct": rng.random((n_trials, n_test)) < 0.6,
        "train_labels": np.arange(n_train) % 3,
        "test_labels": np.arange(n_test) % 3,
    }
    extras = {
        f"{split}_{what}": values
        for split, n in (("train", n_train), ("test", n_test))
        for what, values in (
            ("prediction", rng.integers(0, 3, (n_trials, n), np.uint8)),
            ("margin", rng.normal(size=(n_trials, n)).astype(np.float16)),
        )
    }
    info = {
        "dataset": {
            "name": "npz:/data/insects.npz",
            "fingerprint": "0123456789abcdef" * 2,
            "n_train": n_train,
            "n_test": n_test,
            "classes": [0, 1, 2],
            "class_names": ["ant", "bee", "fly"],
        },
        "learner": {"name": "mlp", "epochs": 30},
        "plan": {**design.plan.to_json(), "digest": design.plan.digest},
        "kinds": [Kind.to_json(kind) for kind in design.kinds],
        "trials": n_trials,
        "group_size": 4,
        "repeats": 1,
        "record": [],
        "columns": ["trial", "kind", "mask"],
        "versions": {"numpy": "2.4.6"},
        "format": 1,
    }
    numbered = {"trial": np.arange(n_trials), "kind": np.zeros(n_trials, np.int16)}
    described = {**numbered, "plan": np.asarray(design.plan.digest), "run": np.asarray(json.dumps(info))}
    with_extras = np.asarray(json.dumps({**info, "record": ["margin", "prediction"]}))
    groups = {"group": np.arange(n_train), "group_names": np.array([f"g{k}" for k in range(n_train)])}
    return [
        plain,
        {**plain, **numbered, "plan": np.asarray("0" * 32)},
        {**plain, **described},
        {**plain, **extras, **described, "run": with_extras},
        {**plain, **groups, "train_labels": np.array(["a", "b"] * 6), "test_labels": np.array(["a", "b"] * 3)},
    ]


def _release() -> Arrays:
    order = np.random.default_rng(2).permutation(12)
    return {
        "index_train": order[:8],
        "index_removed": order[8:],
        "index_test": np.arange(6),
        "correctness_train": np.ones(8),
        "correctness_removed": np.array([0.0, 1, 0, 1]),
        "correctness_test": np.array([True, False] * 3),
        "subsample_idx": np.sort(order[:8]),
    }


def _npy(values: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, values, allow_pickle=True)
    return content.getvalue()


def zipped(arrays: Arrays, compression: int) -> bytes:
    return _archive({f"{name}.npy": _npy(values) for name, values in arrays.items()}, compression)


def _archive(members: dict[str, bytes], compression: int) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression, compresslevel=1) as archive:
        for name, part in members.items():
            archive.writestr(zipfile.ZipInfo(name), part, compress_type=compression)
    return content.getvalue()


def _harmed_headers(arrays: Arrays, compression: int, chance: random.Random) -> bytes:
    """Headers of arrays that lie, in an archive that is whole; or members under strange names."""
    members = {f"{name}.npy": _npy(values) for name, values in arrays.items()}
    name = chance.choice(sorted(members))
    content = members[name]
    length = int.from_bytes(content[8:10], "little")
    head, rest = content[10 : 10 + length].decode("latin1"), content[10 + length :]
    which = chance.randrange(8)
    if which == 0:
        shape = tuple(integer(chance) for _ in range(chance.choice((0, 1, 2, 3, 40, 70))))
        head = head[: head.index("'shape'")] + f"'shape': {shape}, }}\n"
    elif which == 1:
        kinds = (
            "|O",
            "<f8",
            "|S2147483647",
            "<U536870911",
            "|V0",
            "|S0",
            "<U0",
            "|b1",
            "<c16",
            "<M8[ns]",
            "<m8",
            ">i8",
        )
        kind = repr(chance.choice(kinds)) if chance.random() < 0.8 else "[('a', '<i4'), ('b', '|O')]"
        head = "{'descr': " + kind + head[head.index(", 'fortran_order'") :]
    elif which == 2:
        head = bytewise(head.encode("latin1"), chance).decode("latin1")
    elif which == 3:
        texts = (
            "(" * 5000,
            "{}",
            "__import__('os').system('x')",
            "[" * 90,
            "1" * 9000,
            "{'descr': 1}",
            "{" + "'a':" * 99,
        )
        head = chance.choice(texts)
    elif which == 4:
        head = head.replace("False", chance.choice(("True", "None", "1", "2**99")))
    elif which == 5:
        rest = bytewise(rest, chance) if chance.random() < 0.5 else rest + bytes(chance.choice((1, 7, 10**6)))
    elif which == 6:
        strange = (
            "../../out.npy",
            "/etc/passwd",
            "..\\x.npy",
            "a/../mask.npy",
            "mask",
            "x" * 3000,
            "\x1b[2J.npy",
            "\n",
        )
        members[chance.choice(strange)] = members.pop(name)
        return _archive(members, compression)
    version = chance.choice((b"\1\0", b"\1\0", b"\1\0", b"\2\0", b"\3\0", b"\4\0", b"\xff\xff"))
    size = struct.pack("<H" if version == b"\1\0" else "<I", len(head) % 65536)
    if which == 7:
        size = (integer(chance) & (256 ** len(size) - 1)).to_bytes(len(size), "little")
    members[name] = b"\x93NUMPY" + version + size + head.encode("latin1") + rest
    return _archive(members, compression)


def _harmed_records(content: bytes, chance: random.Random) -> bytes:
    """The archive's directory, or the header before a member, with other numbers in it."""
    found = bytearray(content)
    places = [at for mark in (b"PK\1\2", b"PK\3\4", b"PK\5\6") for at in _positions(content, mark)]
    at = chance.choice(places) + 4
    for _ in range(chance.choice((1, 1, 2))):
        offset, width = at + 2 * chance.randrange(20), chance.choice((2, 4))
        value = integer(chance) if chance.random() < 0.7 else chance.choice((8, 12, 14, 93, 95, 99, 1, 0x800, 0x41))
        found[offset : offset + width] = (value & (256**width - 1)).to_bytes(width, "little")
    return bytes(found)


def _positions(content: bytes, mark: bytes) -> list[int]:
    found, at = [], content.find(mark)
    while at >= 0:
        found.append(at)
        at = content.find(mark, at + 1)
    return found


def _another_array(arrays: Arrays, name: str, chance: random.Random) -> None:
    rng = np.random.default_rng(chance.randrange(2**32))
    n = chance.choice((0, 1, 2, 6, 10, 12, 13))
    makers: tuple[Callable[[], Any], ...] = (
        lambda: np.array([{}, []], dtype=object),
        lambda: np.array(None),
        lambda: np.zeros(n, [("a", "i4"), ("b", "f8")]),
        lambda: np.full(n, np.nan),
        lambda: np.full((n, 12), np.inf),
        lambda: np.array([integer(chance) for _ in range(max(n, 1))], dtype=object).astype(np.float64),
        lambda: np.arange(n).astype("M8[s]"),
        lambda: np.zeros(n, complex),
        lambda: np.array([b"bytes"] * max(n, 1)),
        lambda: np.array(["\ud800", "\n", "x" * 400, "", "é"][: max(n, 1)]),
        lambda: np.zeros((1,) * chance.choice((0, 5, 32, 60)), np.uint8),
        lambda: np.zeros((n, 0)),
        lambda: np.zeros((0, n)),
        lambda: rng.integers(-5, 5, n).astype(chance.choice(("i1", "i2", "u1", "u8", "f2", "f4", "f8", "?"))),
        lambda: np.zeros((chance.choice((1000, 10**6)), 3), np.uint8),
        lambda: np.asarray(2**63 + np.zeros(n, np.uint64)),
        lambda: np.full(n, 1e300, np.longdouble),
    )
    arrays[name] = makers[chance.randrange(len(makers))]()


def _another_value(arrays: Arrays, name: str, chance: random.Random) -> None:
    values = np.array(arrays[name])
    if values.size and values.dtype.kind in "biuf":
        with np.errstate(over="ignore", invalid="ignore"):
            new = np.array(float(integer(chance)) if values.dtype.kind == "f" else integer(chance) % 2**31)
            values.reshape(-1)[chance.randrange(values.size)] = new.astype(values.dtype)
    elif values.size and values.dtype.kind == "U":
        values = values.astype("U40")
        values.reshape(-1)[chance.randrange(values.size)] = chance.choice(("", "\n\x1b[2J", "0", "\udcff", "x" * 40))
    arrays[name] = values


def _another_type(arrays: Arrays, name: str, chance: random.Random) -> None:
    kinds = ("i1", "i8", "u2", "f2", "f4", "f8", "?", "U", "c8", ">i4", "O", "g")
    with np.errstate(all="ignore"):
        try:
            arrays[name] = np.asarray(arrays[name]).astype(chance.choice(kinds))
        except (TypeError, ValueError):
            arrays[name] = np.asarray(0)


def _another_shape(arrays: Arrays, name: str, chance: random.Random) -> None:
    values = np.asarray(arrays[name])
    rows = values if values.ndim else values.reshape(1)
    shapes = (values[None], values.reshape(-1), rows[:1], rows[:0], rows[1:], np.concatenate([rows, rows]), values.T)
    arrays[name] = chance.choice(shapes) if chance.random() < 0.9 else np.asfortranarray(values[..., None])


def _another_name(arrays: Arrays, name: str, chance: random.Random) -> None:
    if name in arrays:
        values = arrays.pop(name)
        if chance.random() < 0.5:
            arrays[chance.choice(("more", "kind", "trial", "group", "plan", "run", "class_names", "test_logit"))] = (
                values
            )


def _bomb(arrays: Arrays, name: str, chance: random.Random) -> None:
    if chance.random() < 0.05:
        arrays[name] = np.zeros(chance.choice(((10, 2 * 10**6), (4 * 10**6,))), np.uint8)
    else:
        _another_value(arrays, name, chance)


HARMS = (
    _another_array,
    _another_array,
    _another_value,
    _another_value,
    _another_type,
    _another_shape,
    _another_name,
    _bomb,
)
