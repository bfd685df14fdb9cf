"""`mnist:`: IDX files in their spellings, and headers that lie."""

import gzip
import struct
import tracemalloc

import numpy as np
import pytest

from memfluence.datasets import from_arrays, load
from memfluence.errors import DatasetError

RNG = np.random.default_rng(0)
IMAGES = {"train": RNG.integers(0, 256, (6, 28, 28), dtype=np.uint8), "t10k": np.zeros((3, 28, 28), np.uint8)}
LABELS = {"train": np.array([5, 0, 4, 5, 0, 4], np.uint8), "t10k": np.array([0, 4, 5], np.uint8)}


def idx(array) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write(folder, separator="-", compressed=False):
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "t10k"):
        for kind, arrays in (("images", IMAGES), ("labels", LABELS)):
            content = idx(arrays[part])
            path = folder / f"{part}-{kind}{separator}idx{arrays[part].ndim}-ubyte{'.gz' if compressed else ''}"
            path.write_bytes(gzip.compress(content) if compressed else content)
    return f"mnist:{folder}"


@pytest.mark.parametrize("separator", ["-", "."])
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("inside", ["", "raw", "MNIST/raw"])
def test_every_layout(tmp_path, separator, compressed, inside):
    write(tmp_path / inside, separator, compressed)
    dataset = load(f"mnist:{tmp_path}")
    assert np.array_equal(dataset.x_train, IMAGES["train"])
    assert dataset.labels("test").tolist() == [0, 4, 5]
    assert dataset.value_range == (0, 255)
    same = from_arrays(IMAGES["train"], LABELS["train"], IMAGES["t10k"], LABELS["t10k"])
    assert dataset.fingerprint == same.fingerprint


def fails_small(spec, message):
    """The error comes, in one line, before anything large is allocated."""
    tracemalloc.start()
    try:
        with pytest.raises(DatasetError, match=message) as caught:
            load(spec)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)


def test_missing_files(tmp_path):
    fails_small(f"mnist:{tmp_path}", "holds no train-images-idx3-ubyte")
    spec = write(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    fails_small(spec, "holds no t10k-labels-idx1-ubyte")


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    "shape", [(7, 28, 28), (5, 28, 28), (60000, 28, 28), (2**31, 2**31, 2**31), (2**18, 28, 28), (2**32 - 1,) * 3]
)
def test_header_that_claims_another_size(tmp_path, compressed, shape):
    spec = write(tmp_path, compressed=compressed)
    content = struct.pack(">HBB3I", 0, 8, 3, *shape) + IMAGES["train"].tobytes()
    path = tmp_path / f"train-images-idx3-ubyte{'.gz' if compressed else ''}"
    path.write_bytes(gzip.compress(content) if compressed else content)
    fails_small(spec, "header of .*train-images-idx3-ubyte.* claims .* bytes, but the file holds")


def test_a_gzipped_file_that_holds_more_than_its_header_claims(tmp_path):
    spec = write(tmp_path, compressed=True)
    content = gzip.compress(struct.pack(">HBB3I", 0, 8, 3, 6, 28, 28) + bytes(2**16))
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(content)
    fails_small(spec, "but the file holds")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not start as an IDX file"),
        (b"\0\0\x08", "does not start as an IDX file"),
        (b"<html>not found</html>", "does not start as an IDX file of bytes with 3 axes"),
        (idx(LABELS["train"]) + bytes(20), "does not start as an IDX file of bytes with 3 axes"),
    ],
)
def test_not_idx(tmp_path, content, message):
    spec = write(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(content)
    fails_small(spec, message)


def test_damaged_gzip(tmp_path):
    spec = write(tmp_path, compressed=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-200])
    fails_small(spec, "train-images-idx3-ubyte.gz cannot be read")
    path.write_bytes(idx(IMAGES["train"]))
    fails_small(spec, "cannot be read .*fetch the file again")


def test_images_and_labels_disagree(tmp_path):
    spec = write(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(LABELS["train"][:5]))
    fails_small(spec, "train has 6 inputs but 5 labels")
