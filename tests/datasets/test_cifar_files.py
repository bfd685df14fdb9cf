"""`cifar10:` and `cifar100:`: the official pickles, and hostile ones."""

import os
import pickle
import struct

import numpy as np
import pytest

from memfluence.datasets import load
from memfluence.errors import DatasetError

RNG = np.random.default_rng(0)


def python2_batch(entries: dict[str, object]) -> bytes:
    """A dict as Python 2's cPickle wrote it in the official files: byte strings, and NumPy's old module names."""

    def text(value: str | bytes) -> bytes:
        raw = value.encode() if isinstance(value, str) else value
        return b"U" + bytes([len(raw)]) + raw if len(raw) < 256 else b"T" + struct.pack("<i", len(raw)) + raw

    def encoded(value) -> bytes:
        if isinstance(value, str):
            return text(value)
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, list):
            return b"](" + b"".join(encoded(item) for item in value) + b"e"
        shape = b"".join(encoded(size) for size in value.shape)
        return (
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(J\0\0\0\0t" + text("b") + b"tR"
            b"(J\1\0\0\0(" + shape + b"tcnumpy\ndtype\n(" + text("u1") + encoded(0) + encoded(1) + b"tR"
            b"(J\3\0\0\0" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffJ\0\0\0\0tb"
            b"\x89" + text(value.tobytes()) + b"tb"
        )

    return b"\x80\x02}(" + b"".join(encoded(key) + encoded(value) for key, value in entries.items()) + b"u."


def pixels(n):
    return RNG.integers(0, 256, (n, 3072), dtype=np.uint8)


def write_cifar100(folder, dump=python2_batch, **replaced: bytes):
    folder.mkdir(parents=True, exist_ok=True)
    train, test = pixels(4), pixels(2)
    files = {
        "train": dump(
            {
                "filenames": [f"f{k}.png" for k in range(4)],
                "batch_label": "training batch 1 of 1",
                "fine_labels": [0, 1, 2, 0],
                "coarse_labels": [0, 0, 1, 0],
                "data": train,
            }
        ),
        "test": dump({"fine_labels": [0, 2], "coarse_labels": [0, 1], "data": test}),
        "meta": dump({"fine_label_names": ["apple", "bee", "cup"], "coarse_label_names": ["food", "things"]}),
    }
    for name, content in (files | replaced).items():
        (folder / name).write_bytes(content)
    return train, test


DUMPS = [python2_batch, *(lambda entries, p=p: pickle.dumps(entries, protocol=p) for p in range(5))]


@pytest.mark.parametrize("dump", DUMPS, ids=["python2", *(f"protocol{p}" for p in range(5))])
@pytest.mark.parametrize("inside", ["", "cifar-100-python"])
def test_cifar100(tmp_path, dump, inside):
    train, test = write_cifar100(tmp_path / inside, dump)
    dataset = load(f"cifar100:{tmp_path}")
    assert dataset.x_train.shape == (4, 32, 32, 3)
    assert dataset.x_train[1, 5, 7].tolist() == train[1, [5 * 32 + 7, 1024 + 5 * 32 + 7, 2048 + 5 * 32 + 7]].tolist()
    assert np.array_equal(dataset.x_test, test.reshape(2, 3, 32, 32).transpose(0, 2, 3, 1))
    assert dataset.y_train.tolist() == [0, 1, 2, 0]
    assert dataset.class_names == ("apple", "bee", "cup")
    assert dataset.value_range == (0, 255)
    assert list(dataset.train_ids) == ["f0.png", "f1.png", "f2.png", "f3.png"]


@pytest.mark.parametrize("inside", ["", "cifar-10-batches-py"])
def test_cifar10_in_the_official_order(tmp_path, inside):
    folder = tmp_path / inside
    folder.mkdir(exist_ok=True)
    data = {f"data_batch_{k}": pixels(2) for k in range(1, 6)} | {"test_batch": pixels(3)}
    for name, array in data.items():
        (folder / name).write_bytes(python2_batch({"data": array, "labels": list(range(len(array)))}))
    (folder / "batches.meta").write_bytes(python2_batch({"label_names": ["plane", "car", "bird"], "num_vis": 3072}))
    dataset = load(f"cifar10:{tmp_path}")
    expected = np.concatenate([data[f"data_batch_{k}"] for k in range(1, 6)])
    assert np.array_equal(dataset.x_train.transpose(0, 3, 1, 2).reshape(10, 3072), expected)
    assert dataset.y_train.tolist() == [0, 1] * 5
    assert len(dataset.notes) == 1  # test's class 2
    (folder / "data_batch_3").unlink()
    fails(tmp_path, "data_batch_3 does not exist", "cifar10")


def fails(folder, message, scheme="cifar100"):
    with pytest.raises(DatasetError, match=message) as caught:
        load(f"{scheme}:{folder}")
    assert "\n" not in str(caught.value)


class Call:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_a_hostile_pickle_runs_nothing(tmp_path):
    mark = tmp_path / "ran"
    for attack in (Call(os.system, f"touch {mark}"), Call(exec, f"open({str(mark)!r}, 'w')"), Call(eval, "1")):
        write_cifar100(tmp_path, train=pickle.dumps({"data": attack}))
        fails(tmp_path, r"train asks for '(posix|nt|builtins|os)\.(system|exec|eval)', which .* could run code")
        assert not mark.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"cos\nsystem\n(S'touch ran'\ntR.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x09touch ran\x85R.",
        b"(S'touch ran'\nios\nsystem\n.",
        b"(cos\nsystem\nS'touch ran'\no.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"cnumpy.core.multiarray\nscalar\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.",
        b"cnumpy\nndarray\n(S'__setstate__'\nS'x'\ndb.",  # BUILD on a class
        b"c_codecs\nencode\nN}S'f'\ncnumpy\nndarray\ns\x86b.",
        b"\x82\x01.",  # extension registry
        b"Pperson\n.",  # persistent id
        b"c_codecs\nencode\n(V" + b"a" * 10 + b"\nS'zip'\ntR.",
        b"r\xff\xff\xff\x7f.",  # a memo index of 2**31
        b"N\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",  # bytes of 2**63
        b"\x80\x05\x96\xff\xff\xff\xff\xff\x00\x00\x00.",  # a bytearray of 2**40
        b"",
        b"\x80\x63.",
        b"not a pickle",
        b"((((((",
    ],
)
def test_hostile_and_broken_programs(tmp_path, program, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_cifar100(tmp_path, train=program)
    fails(tmp_path, "asks for|is not a whole pickle|no entry")
    assert not (tmp_path / "ran").exists()
    write_cifar100(tmp_path, train=pickle.dumps({"data": pixels(1)}))
    fails(tmp_path, "no entry 'fine_labels'")  # nothing was left behind in the reader


def test_array_that_claims_more_than_it_holds(tmp_path):
    honest = python2_batch({"fine_labels": [0, 1], "data": pixels(2)})
    shape = b"J" + struct.pack("<i", 2) + b"J" + struct.pack("<i", 3072)
    assert honest.count(shape) == 1
    write_cifar100(
        tmp_path, train=honest.replace(shape, b"J" + struct.pack("<i", 2**30) + b"J" + struct.pack("<i", 2**30))
    )
    fails(tmp_path, "'data' in .*train must be an array of unsigned bytes, all of them there")
    write_cifar100(
        tmp_path, train=honest.replace(shape, b"J" + struct.pack("<i", -2) + b"J" + struct.pack("<i", -3072))
    )
    fails(tmp_path, "'data' in .*train must be an array of unsigned bytes, all of them there")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"fine_labels": [0, 1]}, "no entry 'data' .found: fine_labels"),
        ({"data": pixels(2)}, "no entry 'fine_labels'"),
        ({"data": pixels(2), "fine_labels": [0, 1, 2]}, r"shape \(2, 3072\) for 3 labels"),
        ({"data": pixels(2)[:, :3000], "fine_labels": [0, 1]}, r"shape \(2, 3000\) for 2 labels"),
        ({"data": pixels(2).astype(float), "fine_labels": [0, 1]}, "must be an array of unsigned bytes"),
        ({"data": pixels(2).astype(object), "fine_labels": [0, 1]}, "must be an array of unsigned bytes"),
        ({"data": [1, 2], "fine_labels": [0, 1]}, "'data' in .* must be an array"),
        ({"data": pixels(2), "fine_labels": ["a", "b"]}, "must be a list of integers"),
        ({"data": pixels(2), "fine_labels": [0, 7]}, "a label is 7, but meta names the classes 0 to 2"),
        ([1, 2], "no entry 'fine_labels' .found: no dict"),
    ],
)
def test_faults_of_the_content(tmp_path, entries, message):
    write_cifar100(tmp_path, train=pickle.dumps(entries, protocol=2))
    fails(tmp_path, message)


def test_missing_and_cut_files(tmp_path):
    fails(tmp_path, "holds no train")
    write_cifar100(tmp_path)
    (tmp_path / "meta").unlink()
    fails(tmp_path, "meta does not exist")
    write_cifar100(tmp_path)
    whole = (tmp_path / "train").read_bytes()
    (tmp_path / "train").write_bytes(whole[:-500])
    fails(tmp_path, "train is not a whole pickle")
