"""`imagenet:` and `folder:?lazy=true`: images in files, against plain decoding with Pillow."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from image_trees import CLASSES, image_tree, picture, save
from memfluence.datasets import Dataset, LazyImages, load, to_images
from memfluence.errors import DatasetError


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return image_tree(tmp_path / "imagenet")


def fails(spec: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        load(spec)
    assert "\n" not in str(caught.value)


def test_layout(tree: Path) -> None:
    dataset = load(f"imagenet:{tree}?size=16")
    assert (dataset.n_train, dataset.n_test) == (24, 9)
    assert dataset.classes == dataset.class_names == CLASSES
    assert dataset.value_range == (0, 255)
    assert dataset.y_train.tolist() == [0] * 8 + [1] * 8 + [2] * 8
    assert dataset.train_ids is not None
    assert dataset.test_ids is not None
    assert list(dataset.train_ids)[8] == dataset.train_ids[8] == "train/n01443537/n01443537_0.JPEG"
    assert dataset.test_ids[-1] == "val/n01484850/ILSVRC2012_val_22.JPEG"
    assert dataset.test_ids[:2] == list(dataset.test_ids)[:2]
    assert load(dataset.name).fingerprint == dataset.fingerprint


def plainly(path: Path, size: int, shorter: int) -> np.ndarray:
    """Decode in full, scale all of it, cut the middle; no fractions of pixels."""
    with Image.open(path) as image:
        whole = image.convert("RGB")
    factor = shorter / min(whole.size)
    scaled = whole.resize((round(whole.width * factor), round(whole.height * factor)), Image.Resampling.BILINEAR)
    left, top = (scaled.width - size) // 2, (scaled.height - size) // 2
    return np.asarray(scaled.crop((left, top, left + size, top + size)))


@pytest.mark.parametrize(
    ("options", "size", "shorter"), [("", 224, 256), ("?size=28", 28, 32), ("?shorter=240", 224, 240)]
)
def test_pictures_are_scaled_and_cut(tree: Path, options: str, size: int, shorter: int) -> None:
    """RGB, grey, CMYK and PNG, up to the fraction of a pixel by which cuts differ and the shortcut for large JPEGs."""
    images = load(f"imagenet:{tree}{options}").x_train
    assert images.shape == (24, size, size, 3)
    for row in range(4):
        expected = plainly(tree / "train" / CLASSES[0] / f"{CLASSES[0]}_{row}.JPEG", size, shorter)
        assert images[row].shape == expected.shape
        assert np.abs(images[row].astype(int) - expected).mean() < 3


def test_a_picture_of_the_right_size_is_itself(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 12, 12, 3), dtype=np.uint8)
    for number, label in enumerate("aabb"):
        save(tmp_path / "train" / label / f"{number}.png", Image.fromarray(pixels[number]), "PNG")
        save(tmp_path / "test" / label / f"{number}.png", Image.fromarray(pixels[number]), "PNG")
    eager, lazy = load(f"folder:{tmp_path}"), load(f"folder:{tmp_path}?lazy=true&size=12")
    assert np.array_equal(lazy.x_train[:], pixels)
    assert np.array_equal(lazy.labels("train"), eager.labels("train"))
    assert list(lazy.train_ids or ()) == eager.train_ids
    small, other = (load(f"folder:{tmp_path}?size=5{lazily}").x_test for lazily in ("", "&lazy=true"))
    assert isinstance(small, np.ndarray)
    assert np.array_equal(np.asarray(other), small)
    assert load(f"folder:{tmp_path}?lazy=false").fingerprint == eager.fingerprint


def test_large_jpegs_are_decoded_small(tree: Path) -> None:
    """The shortcut gives what decoding in full gives, nearly, and never less than is asked for."""
    path = tree / "train" / CLASSES[0] / f"{CLASSES[0]}_0.JPEG"
    save(path, picture(0, 0).resize((500, 400), Image.Resampling.BICUBIC))
    found = load(f"imagenet:{tree}?size=40&shorter=40").x_train[0].astype(int)
    assert np.abs(found - plainly(path, 40, 40)).mean() < 2


@pytest.mark.parametrize(
    "rows",
    [3, -1, slice(2, 7, 2), [5, 1], np.array([23, 0, 0]), np.arange(24) % 5 == 0, np.int32(4), np.array([], int)],
)
def test_rows_are_taken_as_from_an_array(tree: Path, rows: Any) -> None:
    images = load(f"imagenet:{tree}?size=8").x_train
    array = np.asarray(images)
    assert array.shape == images.shape == (24, 8, 8, 3)
    assert array.dtype == images.dtype == np.uint8
    assert np.array_equal(images[rows], array[rows])
    assert images[rows].shape == array[rows].shape


def test_what_the_package_asks_of_inputs(tree: Path) -> None:
    dataset = load(f"imagenet:{tree}?size=8")
    assert isinstance(dataset.x_train, LazyImages)
    assert dataset.x_train.nbytes == 24 * 8 * 8 * 3
    taken = dataset.take_train(np.array([3, 9]))
    assert np.array_equal(taken, np.asarray(dataset.x_train)[[3, 9]])
    shown = to_images(dataset.x_test, dataset.value_range, np.array([2, 0]))
    assert shown is not None
    assert np.array_equal(shown, dataset.x_test[[2, 0]])
    again: Dataset = pickle.loads(pickle.dumps(dataset))
    assert again.fingerprint == dataset.fingerprint
    assert np.array_equal(again.x_test[1], dataset.x_test[1])
    with pytest.raises(IndexError):
        dataset.x_train[24]


def test_nothing_is_decoded_before_it_is_asked_for(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "open", lambda *_: pytest.fail("opened"))
    dataset = load(f"imagenet:{tree}?size=8")
    assert len(dataset.fingerprint) == 32
    assert len(dataset.x_train) == 24


def test_more_than_memory_is_refused(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = load(f"imagenet:{tree}?size=8").x_train
    monkeypatch.setattr("os.sysconf", lambda name: 1)
    with pytest.raises(DatasetError, match=r"24 images take 0 GB decoded, more than .* use a network"):
        np.asarray(images)
    assert images[0].shape == (8, 8, 3)


def test_the_fingerprint_follows_names_sizes_and_decoding(tree: Path, tmp_path: Path) -> None:
    def fingerprint(options: str = "?size=8") -> str:
        return load(f"imagenet:{tree}{options}").fingerprint

    before = {fingerprint(), fingerprint("?size=9"), fingerprint("?size=8&shorter=10")}
    assert len(before) == 3
    assert fingerprint("?size=8&shorter=9") == fingerprint()  # said or not
    one = tree / "train" / CLASSES[1] / f"{CLASSES[1]}_4.JPEG"
    content = one.read_bytes()
    one.write_bytes(content[:-1] + b"?")  # which is what it cannot see
    assert fingerprint() in before
    one.write_bytes(content + b"?")
    assert fingerprint() not in before
    one.write_bytes(content)
    one = one.rename(one.with_name("other.JPEG"))
    assert fingerprint() not in before
    one = one.rename(one.with_name(f"{CLASSES[1]}_4.JPEG"))
    assert fingerprint() in before
    one.rename(tree / "train" / CLASSES[2] / one.name)
    assert fingerprint() not in before  # another label
    (tree / "train" / CLASSES[2] / one.name).rename(one)
    tree = tree.rename(tmp_path / "elsewhere")
    assert fingerprint() in before


def test_a_flat_val_folder_with_kaggles_solution(tree: Path) -> None:
    """The same dataset as with class folders, to the fingerprint."""
    expected = load(f"imagenet:{tree}?size=8")
    images = np.asarray(expected.x_test)
    lines = ["ImageId,PredictionString"]
    for path in sorted((tree / "val").glob("*/*"), key=lambda path: path.name[::-1]):
        lines.append(f"{path.stem},{path.parent.name} 85 1 499 272 {path.parent.name} 1 2 3 4")
        path.rename(tree / "val" / path.name)
    for label in CLASSES:
        (tree / "val" / label).rmdir()
    fails(f"imagenet:{tree}", r"val has no class folders; .*LOC_val_solution\.csv")
    solution = tree / "LOC_val_solution.csv"
    solution.write_text("\n".join(lines))
    (tree / "LOC_synset_mapping.txt").write_text(
        "n01440764 tench, Tinca tinca\nn01443537 goldfish, Carassius auratus\n"
    )
    found = load(f"imagenet:{tree}?size=8")
    assert found.fingerprint == expected.fingerprint
    assert np.array_equal(np.asarray(found.x_test), images)
    assert found.class_names == ("tench", "goldfish", "n01484850")
    (tree / "ILSVRC" / "Data").mkdir(parents=True)
    (tree / "ILSVRC" / "Data" / "CLS-LOC").mkdir()
    for split in ("train", "val"):
        (tree / split).rename(tree / "ILSVRC" / "Data" / "CLS-LOC" / split)
    assert load(f"imagenet:{tree}?size=8").fingerprint == expected.fingerprint
    solution.write_text("\n".join(lines[:-1]))
    fails(f"imagenet:{tree}", r"no class is known for .*val/ILSVRC2012_val_")
    solution.write_text("a,b\n1,2\n")
    fails(f"imagenet:{tree}", "must have the columns ImageId and PredictionString")


def test_layout_faults(tree: Path) -> None:
    fails(f"imagenet:{tree}/train", r"has no folder train/; expected train/WNID/\*\.JPEG")
    (tree / "train" / "n09999999").mkdir()
    fails(f"imagenet:{tree}", "n09999999 holds no images; add some .* or remove the folder")
    fails(f"folder:{tree}?lazy=true&size=8", "n09999999 holds no images")
    (tree / "train" / "n09999999").rmdir()
    (tree / "val").rename(tree / "validation")
    fails(f"imagenet:{tree}", r"has no folder val/; expected")


def test_a_class_that_train_lacks(tree: Path) -> None:
    save(tree / "val" / "n09999999" / "x.JPEG", picture(0, 0))
    dataset = load(f"imagenet:{tree}?size=8")
    assert dataset.classes == (*CLASSES, "n09999999")
    assert "class(es) that train lacks ('n09999999')" in dataset.notes[0]


@pytest.mark.parametrize("content", [b"", b"not an image", None])
def test_a_broken_file_is_named_when_it_is_asked_for(tree: Path, content: bytes | None) -> None:
    path = tree / "train" / CLASSES[1] / f"{CLASSES[1]}_0.JPEG"
    path.write_bytes(path.read_bytes()[:400] if content is None else content)
    images = load(f"imagenet:{tree}?size=8").x_train
    assert images[7].shape == (8, 8, 3)
    with pytest.raises(DatasetError, match=f"{path} cannot be decoded as an image .* replace or remove it"):
        images[8]
    save(path, Image.fromarray(np.zeros((9, 9), np.uint16)), "PNG")
    with pytest.raises(DatasetError, match=f"{path} has pixels of more than 8 bits"):
        images[[7, 8]]


def test_names_of_any_letters(tree: Path) -> None:
    path = tree / "train" / CLASSES[0] / "größe ✓.jpg"
    save(path, picture(1, 0))
    dataset = load(f"imagenet:{tree}?size=8")
    assert dataset.train_ids is not None
    row = list(dataset.train_ids).index(f"train/{CLASSES[0]}/größe ✓.jpg")
    assert dataset.x_train[row].any()
