"""Data files made to do harm: what the fuzzing (docs/fuzzing.md) found or was made to look for."""

import io
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from memfluence.datasets import load
from memfluence.errors import DatasetError

GREY = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))


def png(image: Image.Image = GREY) -> bytes:
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


def tree(root: Path, hostile: bytes) -> Path:
    """train/CLASS/*.png and test/CLASS/*.png, of which one is `hostile`."""
    for name in ("train/a", "train/b", "test/a", "test/b"):
        (root / name).mkdir(parents=True)
        (root / name / "1.png").write_bytes(png())
    (root / "train/a/1.png").write_bytes(hostile)
    return root


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@pytest.mark.parametrize("options", ["", "?size=8", "?lazy=true&size=8"])
@pytest.mark.parametrize("content", [b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n", b"no image at all", b""])
def test_only_formats_of_images_are_decoded(tmp_path: Path, content: bytes, options: str) -> None:
    """Pillow would hand an EPS file to Ghostscript, whatever the file is called."""
    with pytest.raises(DatasetError, match="it is none of PNG, JPEG"):
        load(f"folder:{tree(tmp_path, content)}{options}").x_train[:]


@pytest.mark.parametrize("options", ["", "?size=8", "?lazy=true&size=8"])
def test_a_picture_that_claims_more_pixels_than_it_holds(tmp_path: Path, options: str) -> None:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 9000, 9000, 8, 2, 0, 0, 0))
    content = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    with pytest.raises(DatasetError, match=r"cannot be decoded as an image|9000 x 9000 pixels"):
        load(f"folder:{tree(tmp_path, content)}{options}").x_train[:]


def test_a_chunk_that_claims_gigabytes_is_not_allocated(tmp_path: Path) -> None:
    whole = png()
    at = whole.index(b"IDAT")
    content = whole[: at - 4] + struct.pack(">I", 2**31 - 1) + whole[at:]
    root = tree(tmp_path, content)
    tracemalloc.start()
    try:
        load(f"folder:{root}")
    except DatasetError:
        pass  # Pillow takes some such files, because all of the pixels are there
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 64 * 2**20


def test_pillow_does_not_warn_about_palettes(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    content = io.BytesIO()
    GREY.convert("P").save(content, "PNG", transparency=bytes(range(64)))
    assert load(f"folder:{tree(tmp_path, content.getvalue())}").n_train == 2
    assert not recwarn.list


@pytest.mark.parametrize(
    "program",
    [
        b"\x96" + struct.pack("<Q", 2**40),  # a list of bytes, allocated before it is read
        b"S'\\u00'\n",  # text of the first protocol
        b"(S'x'\nios\nsystem\n",
        b"\x82\x01",
        b"Pid\n",
        b"\x97",
    ],
)
def test_instructions_that_data_do_not_need_do_nothing(tmp_path: Path, program: bytes) -> None:
    (tmp_path / "train").write_bytes(b"\x80\x04" + program + b".")
    for split in ("test", "meta"):
        (tmp_path / split).write_bytes(b"\x80\x04N.")
    with pytest.raises(DatasetError, match=r"asks for|not a whole pickle|no entry") as caught:
        load(f"cifar100:{tmp_path}")
    assert not isinstance(caught.value.__cause__, MemoryError)


@pytest.mark.parametrize("code", [0xD800, 0x110000, 0xFFFFFFFF])
@pytest.mark.parametrize("order", ["<", ">"])
def test_texts_in_npz_files_are_unicode(tmp_path: Path, code: int, order: str) -> None:
    """Halves of letters could not be written to run.json, and numbers beyond Unicode not be read at all."""
    codes = np.full((4, 1), ord("a")).astype(f"{order}u4")
    codes[1] = code
    y = codes.view(f"{order}U1")[:, 0]
    x = np.zeros((4, 2))
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x, y_test=np.array(list("abab")))
    with pytest.raises(DatasetError, match=r"'y_train' cannot be read .*; the file is damaged"):
        load(f"npz:{tmp_path / 'data.npz'}")


def test_headers_are_quoted_in_part(tmp_path: Path) -> None:
    head = b"1" * 9000
    member = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head
    x = np.zeros((4, 2))
    np.savez(tmp_path / "data.npz", x_test=x, y_train=np.arange(4), y_test=np.arange(4))
    with zipfile.ZipFile(tmp_path / "data.npz", "a") as archive:
        archive.writestr("x_train.npy", member)
    with pytest.raises(DatasetError, match="cannot be read") as caught:
        load(f"npz:{tmp_path / 'data.npz'}")
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


def test_labels_in_half_precision_are_whole_numbers(recwarn: pytest.WarningsRecorder) -> None:
    from memfluence.datasets import from_arrays

    x = np.zeros((4, 2))
    assert from_arrays(x, np.array([0, 1, 0, 1], np.float16), x, np.array([0, 1, 1, 1], np.float16)).n_classes == 2
    assert not recwarn.list


@pytest.mark.parametrize(
    "spec", ["x" * 5000, "npz:/" + "x" * 400, "folder:" + "/x" * 4000, "npz:~nobody-of-that-name/x"]
)
def test_names_that_no_file_system_has(spec: str) -> None:
    with pytest.raises(DatasetError, match=r"too long|does not exist|is not a dataset"):
        load(spec)


def test_pillow_says_nothing_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a TIFF with 279 samples a pixel it would, through Python's logging."""
    content = io.BytesIO()
    GREY.convert("RGB").save(content, "TIFF")
    entry = struct.pack("<HHI", 277, 3, 1)  # samples per pixel
    harmed = content.getvalue().replace(entry + struct.pack("<H", 3), entry + struct.pack("<H", 279))
    assert harmed != content.getvalue()
    with pytest.raises(DatasetError, match="cannot be decoded"):
        load(f"folder:{tree(tmp_path, harmed)}")
    assert capsys.readouterr().err == ""
