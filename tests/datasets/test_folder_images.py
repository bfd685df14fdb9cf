"""`folder:`: images by class."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from memfluence.datasets import from_arrays, load
from memfluence.errors import DatasetError

RNG = np.random.default_rng(0)


def save(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)
    return array


def colour(height=6, width=6):
    return RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)


def grey(height=6, width=6):
    return RNG.integers(0, 256, (height, width), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path):
    for split in ("train", "test"):
        for label in ("cat", "dog"):
            for name in ("a.png", "b.png"):
                save(tmp_path / split / label / name, colour())
    return tmp_path


def fails(folder, message, options=""):
    with pytest.raises(DatasetError, match=message) as caught:
        load(f"folder:{folder}{options}")
    assert "\n" not in str(caught.value)


def test_content(tmp_path):
    arrays = {
        name: save(tmp_path / name, colour())
        for name in ("train/dog/x.png", "train/cat/2.bmp", "train/cat/10.PNG", "test/dog/t.tif", "test/cat/u.ppm")
    }
    (tmp_path / "train/cat/.hidden.png").write_bytes(b"not an image")
    (tmp_path / "train/cat/notes.txt").write_text("ignored")
    (tmp_path / "train/.cache").mkdir()
    dataset = load(f"folder:{tmp_path}")
    assert dataset.train_ids == ["train/cat/10.PNG", "train/cat/2.bmp", "train/dog/x.png"]
    assert dataset.test_ids == ["test/cat/u.ppm", "test/dog/t.tif"]
    assert dataset.classes == ("cat", "dog")
    assert np.array_equal(dataset.x_train, np.stack([arrays[name] for name in dataset.train_ids]))
    assert dataset.value_range == (0, 255)
    same = from_arrays(dataset.x_train, ["cat", "cat", "dog"], dataset.x_test, ["cat", "dog"])
    assert dataset.fingerprint == same.fingerprint


@pytest.mark.parametrize("suffix", ["png", "jpg", "jpeg", "bmp", "gif", "webp", "ppm", "tif", "tiff"])
def test_formats(folder, suffix):
    (folder / "train/cat/a.png").unlink()
    save(folder / f"train/cat/a.{suffix}", colour())
    assert load(f"folder:{folder}").x_train.shape == (4, 6, 6, 3)


def test_grey_and_mixed(tmp_path):
    pictures = {name: save(tmp_path / name, grey()) for name in ("train/a/1.png", "train/b/1.pgm", "test/a/1.png")}
    dataset = load(f"folder:{tmp_path}")
    assert dataset.x_train.shape == (2, 6, 6)
    assert np.array_equal(dataset.x_train[1], pictures["train/b/1.pgm"])
    save(tmp_path / "test/b/1.png", colour())
    mixed = load(f"folder:{tmp_path}")
    assert mixed.x_train.shape == (2, 6, 6, 3)
    assert np.array_equal(mixed.x_train[1, :, :, 2], pictures["train/b/1.pgm"])


def test_transparency_and_palettes(folder):
    rgba = RNG.integers(0, 256, (6, 6, 4), dtype=np.uint8)
    save(folder / "train/cat/a.png", rgba)
    Image.fromarray(colour()).quantize(8).save(folder / "train/cat/b.png")
    dataset = load(f"folder:{folder}")
    assert np.array_equal(dataset.x_train[0], rgba[..., :3])


def test_val_is_accepted_for_test(folder):
    (folder / "test").rename(folder / "val")
    dataset = load(f"folder:{folder}")
    assert dataset.test_ids[0] == "val/cat/a.png"


def test_sizes_must_agree_or_be_chosen(folder):
    save(folder / "test/dog/b.png", colour(8, 12))
    fails(folder, r"test/dog/b.png is 12 x 8 but .*train/cat/a.png is 6 x 6 pixels; .* add \?size=64")
    dataset = load(f"folder:{folder}?size=4")
    assert dataset.x_train.shape == (4, 4, 4, 3)
    assert dataset.name.endswith("?size=4")


def test_size_scales_and_takes_the_middle(folder):
    picture = np.zeros((8, 16, 3), np.uint8)
    picture[:, 2:14] = 200  # the edges lie outside the middle square and the filter
    save(folder / "train/cat/a.png", picture)
    assert (load(f"folder:{folder}", size=4).x_train[0] == 200).all()
    exact = load(f"folder:{folder}", size=6)
    assert np.array_equal(exact.x_train[1], np.asarray(Image.open(folder / "train/cat/b.png")))


def test_layout_faults(folder, tmp_path):
    fails(folder / "train", r"has no folder train/; expected train/CLASS/IMAGE")
    (folder / "test").rename(folder / "testing")
    fails(folder, r"has no folder test/; expected .*\(val is accepted for test\)")
    (folder / "test").mkdir()
    fails(folder, "has no class folders")
    (folder / "test/cow").mkdir()
    fails(folder, "cow holds no images")
    fails(folder / "train/cat/a.png", "is a file, not a folder")


def test_a_class_that_train_lacks_and_a_single_class(folder):
    save(folder / "test/cow/a.png", colour())
    assert "class(es) that train lacks ('cow')" in load(f"folder:{folder}").notes[0]
    for name in ("a.png", "b.png"):
        (folder / "train/dog" / name).unlink()
    (folder / "train/dog").rmdir()
    fails(folder, "all training labels are 'cat'")


@pytest.mark.parametrize("content", [b"", b"not an image", b"\x89PNG\r\n\x1a\n"])
def test_undecodable(folder, content):
    (folder / "train/dog/b.png").write_bytes(content)
    fails(folder, "train/dog/b.png cannot be decoded as an image")


def test_truncated(folder):
    path = folder / "test/dog/b.png"
    save(path, colour(60, 60))
    for other in folder.rglob("*.png"):
        save(other, colour(60, 60))
    path.write_bytes(path.read_bytes()[:2000])
    fails(folder, "test/dog/b.png cannot be decoded as an image")


def png_claiming(width, height) -> bytes:
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [10_000, 30_000])  # Pillow warns of the first and refuses the second
def test_decompression_bomb(folder, side):
    (folder / "train/dog/b.png").write_bytes(png_claiming(side, side))
    fails(folder, "train/dog/b.png claims more pixels than an honest image has", "?size=4")


def test_deep_pixels(folder):
    save(folder / "train/dog/b.png", np.zeros((6, 6), np.uint16))
    fails(folder, "train/dog/b.png has pixels of more than 8 bits")
