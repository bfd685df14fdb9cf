"""`hf:`: choosing columns and splits, on objects that look like the library's."""

import sys

import numpy as np
import pytest
from PIL import Image as PillowImage

from memfluence.datasets import from_arrays, load
from memfluence.datasets.huggingface import convert
from memfluence.errors import DatasetError

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (4, 5, 5, 3), dtype=np.uint8)


class Image:
    pass


class ClassLabel:
    def __init__(self, *names):
        self.names = list(names)


class Value:
    def __init__(self, dtype):
        self.dtype = dtype


class Split:
    def __init__(self, **columns):
        self._columns = {name: values for name, (_, values) in columns.items()}
        self.features = {name: feature for name, (feature, _) in columns.items()}
        self.column_names = list(columns)

    def __getitem__(self, column):
        return self._columns[column]


def pictures(pixels=PIXELS):
    return Image(), [PillowImage.fromarray(picture) for picture in pixels]


def labels(values=(0, 1, 0, 1)):
    return ClassLabel("cat", "dog"), list(values)


def texts(values=("a", "b", "c", "d")):
    return Value("string"), list(values)


def both(**columns):
    return {"train": Split(**columns), "test": Split(**columns)}


def fails(splits, message, **options):
    with pytest.raises(DatasetError, match=message) as caught:
        convert(splits, "hf:it", **options)
    assert "\n" not in str(caught.value)


def test_images():
    dataset = convert(both(img=pictures(), label=labels(), id=texts()), "hf:it")
    assert np.array_equal(dataset.x_train, PIXELS)
    assert dataset.class_names == ("cat", "dog")
    assert dataset.value_range == (0, 255)
    y = [0, 1, 0, 1]
    assert dataset.fingerprint == from_arrays(PIXELS, y, PIXELS, y).fingerprint


def test_images_of_several_sizes():
    uneven = Image(), [PillowImage.fromarray(PIXELS[0]), PillowImage.fromarray(PIXELS[1, :4])] * 2
    fails(both(img=uneven, label=labels()), "train example 1 is 5 x 4 but train example 0 is 5 x 5")
    assert convert(both(img=uneven, label=labels()), "hf:it", size=3).x_train.shape == (4, 3, 3, 3)


def test_text():
    dataset = convert(both(sentence=texts(), label=labels()), "hf:it")
    assert dataset.x_train == ["a", "b", "c", "d"]
    assert dataset.value_range is None
    named = convert(both(one=texts(), two=texts("wxyz"), label=texts("pqpq")), "hf:it", text="two")
    assert named.x_train == list("wxyz")
    assert named.classes == ("p", "q")


def test_numbers():
    rows = Value("float32"), [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]
    dataset = convert(both(v=rows, label=labels()), "hf:it", x="v")
    assert dataset.x_train.shape == (4, 2)
    fails(both(v=rows, label=labels()), "'v' is not all text; name numbers with .x=v", text="v")


def test_ambiguous_columns():
    fails(both(a=texts(), b=texts(), label=labels()), "which column holds the inputs; .* one of: a, b")
    fails(both(a=pictures(), b=pictures(), label=labels()), "which column holds the inputs")
    fails(both(img=pictures(), fine=labels(), coarse=labels()), "which column holds the labels; .*: img, fine, coarse")
    chosen = convert(both(img=pictures(), fine=labels(), coarse=labels((1, 1, 0, 0))), "hf:it", label="coarse")
    assert chosen.y_train.tolist() == [1, 1, 0, 0]
    assert convert(both(img=pictures(), kind=labels()), "hf:it").n_classes == 2


def test_wrong_columns_and_splits():
    splits = both(img=pictures(), label=labels())
    fails(splits, "no column 'lable' for label=; the columns are img, label", label="lable")
    fails(splits, "no column 'image' for image=", image="image")
    fails(splits, "give one of image=, text= and x=; got image and x", image="img", x="img")
    fails(splits, "no split 'dev'; choose with .* from: train, test", test="dev")
    fails({"train": splits["train"]}, "no split 'validation'")
    fails({"all": splits["train"]}, "no split 'train'")
    fails({"train": splits["train"], "test": Split(img=pictures())}, "the split 'test' has no column 'label'")
    assert convert({"train": splits["train"], "validation": splits["test"]}, "hf:it").n_test == 4
    assert convert({"a": splits["train"], "b": splits["test"]}, "hf:it", train="a", test="b").n_test == 4


def test_unlabelled_test_split():
    splits = {"train": Split(t=texts(), label=labels()), "test": Split(t=texts(), label=labels([-1] * 4))}
    fails(splits, "-1, which means unlabelled")


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DatasetError, match=r"pip install 'memfluence\[hf\]'"):
        load("hf:cifar100")


def test_through_load(monkeypatch, tmp_path):
    class Library:
        asked = None

        def load_dataset(self, place, **options):
            self.asked = place, options
            if place == "broken":
                raise ConnectionError("no network\nat all")
            return both(img=pictures(), fine=labels(), other=labels())

        def load_from_disk(self, place):
            self.asked = place, {}
            return both(t=texts(), label=labels()) if "whole" in place else Split(t=texts(), label=labels())

    library = Library()
    monkeypatch.setitem(sys.modules, "datasets", library)
    dataset = load("hf:uoft-cs/cifar100?label=fine&config=plain&revision=abc", image="img")
    assert library.asked == ("uoft-cs/cifar100", {"name": "plain", "revision": "abc"})
    assert dataset.name == "hf:uoft-cs/cifar100?label=fine&config=plain&revision=abc&image=img"
    with pytest.raises(DatasetError, match=r"could not load it \(no network\)"):
        load("hf:broken")

    monkeypatch.chdir(tmp_path)
    for folder, mark in (("whole", "dataset_dict.json"), ("single", "state.json")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / mark).write_text("{}")
    assert load("hf:whole").name == f"hf:{tmp_path}/whole"
    with pytest.raises(DatasetError, match="holds one split"):
        load("hf:single")
    with pytest.raises(DatasetError, match="no option 'column'"):
        load("hf:whole?column=t")


def test_the_real_library(tmp_path):
    library = pytest.importorskip("datasets", minversion="2.19")
    features = library.Features({"img": library.Image(), "fine": library.ClassLabel(names=["cat", "dog"])})
    split = library.Dataset.from_dict({"img": pictures()[1], "fine": [0, 1, 0, 1]}, features=features)
    library.DatasetDict({"train": split, "test": split}).save_to_disk(tmp_path / "saved")
    dataset = load(f"hf:{tmp_path}/saved")
    assert np.array_equal(dataset.x_train, PIXELS)
    assert dataset.class_names == ("cat", "dog")
