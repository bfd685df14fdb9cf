"""`npz:`: whole files, damaged files and hostile ones."""

import io
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest

from memfluence.datasets import from_arrays, load
from memfluence.errors import DatasetError

RNG = np.random.default_rng(0)
ARRAYS = {
    "x_train": RNG.integers(0, 256, (6, 4, 4), dtype=np.uint8),
    "y_train": np.array([0, 1, 2, 0, 1, 2]),
    "x_test": RNG.integers(0, 256, (3, 4, 4), dtype=np.uint8),
    "y_test": np.array([0, 1, 2]),
}


def npy(array) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array))
    return stream.getvalue()


def header(shape, dtype="|u1") -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def write(path, compression=zipfile.ZIP_STORED, **replaced: bytes):
    members = {key: npy(array) for key, array in ARRAYS.items()} | replaced
    with zipfile.ZipFile(path, "w", compression) as archive:
        for key, content in members.items():
            archive.writestr(f"{key}.npy", content)
    return f"npz:{path}"


def fails(spec, message):
    with pytest.raises(DatasetError, match=message) as caught:
        load(spec)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_round_trip(tmp_path, save):
    save(tmp_path / "data.npz", **ARRAYS, unrelated=np.arange(3))
    dataset = load(f"npz:{tmp_path}/data.npz")
    assert np.array_equal(dataset.x_train, ARRAYS["x_train"])
    assert dataset.value_range == (0, 255)
    assert dataset.fingerprint == from_arrays(*ARRAYS.values()).fingerprint
    dataset.x_train[0] = 0  # writable, as any array


def test_class_names(tmp_path):
    names = np.array(["ant", "bee", "cat"])
    named = load(write(tmp_path / "named.npz", class_names=npy(names)))
    assert named.class_names == ("ant", "bee", "cat")
    assert named.classes == (0, 1, 2)
    assert named.fingerprint == from_arrays(*ARRAYS.values()).fingerprint
    fails(write(tmp_path / "few.npz", class_names=npy(names[:2])), "class")
    fails(write(tmp_path / "numbers.npz", class_names=npy(np.arange(3))), "flat array of texts")


def test_text_and_fortran_order(tmp_path):
    x = np.asfortranarray(RNG.normal(size=(6, 5)))
    np.savez(tmp_path / "a.npz", x_train=x, y_train=list("abcabc"), x_test=x[:3], y_test=list("abc"))
    dataset = load(f"npz:{tmp_path}/a.npz")
    assert np.array_equal(dataset.x_train, x)
    assert dataset.classes == ("a", "b", "c")
    texts = np.array(["one", "two words", "é"] * 2)
    np.savez(tmp_path / "t.npz", x_train=texts, y_train=ARRAYS["y_train"], x_test=texts, y_test=ARRAYS["y_train"])
    assert load(f"npz:{tmp_path}/t.npz").x_train.tolist() == texts.tolist()


def test_missing_key(tmp_path):
    np.savez(tmp_path / "data.npz", x_train=np.eye(2), y=np.arange(2))
    fails(f"npz:{tmp_path}/data.npz", "no array 'y_train'; it must hold x_train, .*, and holds x_train, y")
    np.savez(tmp_path / "none.npz")
    fails(f"npz:{tmp_path}/none.npz", "and holds nothing")


def test_not_a_zip(tmp_path):
    np.save(tmp_path / "data.npy", np.eye(2))
    fails(f"npz:{tmp_path}/data.npy", r"not a whole .npz \(zip\) file")
    (tmp_path / "empty.npz").touch()
    fails(f"npz:{tmp_path}/empty.npz", "not a whole .npz")


def test_truncated(tmp_path):
    spec = write(tmp_path / "data.npz")
    content = (tmp_path / "data.npz").read_bytes()
    (tmp_path / "data.npz").write_bytes(content[: len(content) // 2])
    fails(spec, "not a whole .npz")


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_flipped_bits(tmp_path, compression):
    spec = write(tmp_path / "data.npz", compression, x_train=npy(RNG.integers(0, 256, (6, 40, 40), dtype=np.uint8)))
    content = bytearray((tmp_path / "data.npz").read_bytes())
    content[4000] ^= 0xFF
    (tmp_path / "data.npz").write_bytes(content)
    fails(spec, "cannot be read|not a whole|damaged")


class Hostile:
    def __reduce__(self):
        return (exec, ("raise SystemExit('a pickle ran')",))


def test_objects_are_never_unpickled(tmp_path):
    objects = np.empty(6, dtype=object)
    objects[:] = [Hostile()] * 6
    stream = io.BytesIO()
    np.lib.format.write_array(stream, objects, allow_pickle=True)
    fails(write(tmp_path / "a.npz", x_train=stream.getvalue()), "Python objects or records")
    fails(write(tmp_path / "b.npz", x_train=pickle.dumps(Hostile())), "'x_train' cannot be read")
    records = np.zeros(6, dtype=[("a", "f4"), ("b", "i4")])
    fails(write(tmp_path / "c.npz", x_train=npy(records)), "Python objects or records")


def peak_bytes(action) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("shape", [(6, 2**14, 2**14), (6, 2**40), (7, 4, 4), (5, 4, 4), (-6, -4, 4), (2**70, 2**70)])
def test_header_that_claims_more_than_the_file(tmp_path, compression, shape):
    spec = write(tmp_path / "data.npz", compression, x_train=header(shape) + bytes(96))
    assert peak_bytes(lambda: fails(spec, "header of 'x_train' claims .* but the file holds 96")) < 2**22


@pytest.mark.parametrize("claimed", [2**33, 2**31, 100_000])
def test_zip_entry_that_claims_more_than_the_file(tmp_path, claimed):
    """The directory of the zip and the header agree with each other, but not with the bytes."""
    content = header((claimed,)) + bytes(96)
    spec = write(tmp_path / "data.npz", zipfile.ZIP_DEFLATED, x_train=content)
    path = tmp_path / "data.npz"
    size = len(content).to_bytes(4, "little")
    lie = min(claimed + len(header((claimed,))), 2**32 - 2).to_bytes(4, "little")
    raw = path.read_bytes()
    assert size in raw
    path.write_bytes(raw.replace(size, lie))
    assert peak_bytes(lambda: fails(spec, "'x_train' .*(claims|cannot be read|ends after)")) < 2**22


def test_bomb(tmp_path):
    """A member that expands a thousandfold under a header for few bytes is not expanded."""
    bomb = header((6, 4, 4)) + bytes(2**26)
    spec = write(tmp_path / "data.npz", zipfile.ZIP_DEFLATED, x_train=bomb)
    del bomb
    assert peak_bytes(lambda: fails(spec, "claims .* 96 bytes, but the file holds 67108864")) < 2**22


def test_unusual_compression(tmp_path):
    fails(write(tmp_path / "data.npz", zipfile.ZIP_LZMA), "unusual compression")


def test_faults_of_the_content(tmp_path):
    fails(write(tmp_path / "a.npz", x_train=npy(np.full((6, 4, 4), np.nan))), "train example 0 holds a NaN")
    fails(write(tmp_path / "b.npz", x_test=npy(np.zeros((3, 4, 5), np.uint8))), r"\(4, 4\) but a test input \(4, 5\)")
    fails(write(tmp_path / "c.npz", y_test=npy(np.zeros(2, int))), "test has 3 inputs but 2 labels")
    fails(write(tmp_path / "d.npz", y_train=npy(np.zeros(6, int))), "all training labels are 0")
    fails(write(tmp_path / "e.npz", y_train=npy(np.array([b"a"] * 6))), "must be all integers or all strings")
    fails(write(tmp_path / "f.npz", x_test=npy(np.zeros((0, 4, 4))), y_test=npy([])), "the test split is empty")


def test_images_that_use_little_of_their_range_are_mentioned_once(tmp_path):
    """uint8 says 0..255: digits stored as 0..16 would be nearly black to a network, and nobody would know why."""
    dark = {**ARRAYS, "x_train": ARRAYS["x_train"] // 16, "x_test": ARRAYS["x_test"] // 16}
    np.savez(tmp_path / "dark.npz", **dark)
    (note,) = load(f"npz:{tmp_path}/dark.npz").notes
    assert "no value of its images is above 15" in note
    assert "range=0,15" in note
    said = load(f"npz:{tmp_path}/dark.npz?range=0,16")
    assert (said.notes, said.value_range) == ((), (0, 16))
    assert load(write(tmp_path / "bright.npz")).notes == ()
    features = {key: value.reshape(len(value), -1) if key.startswith("x") else value for key, value in dark.items()}
    np.savez(tmp_path / "features.npz", **features)  # no images: nothing is assumed about them
    assert load(f"npz:{tmp_path}/features.npz").notes == ()


def test_a_range_that_is_none(tmp_path):
    spec = write(tmp_path / "data.npz")
    for text in ("16", "0,16,32", "low,high", "0,"):
        fails(f"{spec}?range={text}", "the lowest and the highest value, as 0,16")
    fails(f"{spec}?range=16,0", "lowest < highest")
