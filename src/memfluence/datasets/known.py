"""Known datasets: the paper's, CIFAR-10 and scikit-learn's digits, recognised by what they hold and not by their name.

Images in memory are compared in full: `content` is a digest of all images and labels, in any order and type of number.
Where only a run is at hand its dataset's fingerprint stands for that, and for trials made elsewhere their labels. All
were computed from copies of the data in the official order. ImageNet would take hours to read, and no copy of CIFAR-10
was at hand: they are known by how many examples each class has and by names of classes and files. `Data.how` says what
was compared.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from memfluence.datasets.dataset import Dataset
from memfluence.datasets.images import LazyImages, to_images
from memfluence.datasets.spec import short_name


@dataclass(frozen=True)
class Data:
    """The dataset of a run, in words."""

    title: str  # "MNIST", or the name that it goes by
    phrase: str  # "MNIST", or "a file of 1,500 images named mnist.npz"
    how: str | None  # how it was recognised; None: it is not a known one, or could not be looked at

    def is_known_as(self, title: str) -> bool:
        """Whether it is this dataset, and not only called so."""
        return self.how is not None and self.title == title


COMPARED, LABELS = "all images and labels compared", "in their order; no images compared"
# title: content; fingerprint, of uint8 images in the official order, (n, h, w[, 3]), with labels 0, 1, ...; the labels
_KNOWN = {
    "digits": (
        "9c8abf98c435682dd53a795c349f60e2",
        "e1de658bf75acb126f38049cf586050c",
        "443eb8fe51c9734087b0187b1359b446",
    ),
    "MNIST": (
        "2064b8732aa50a1690a9a9fabeea5b25",
        "76d1024666ddb7f3476822cff1c6be1a",
        "555b9d6ce23aba68662e6c6eb11e8c46",
    ),
    "CIFAR-100": (
        "db0b340684bede95a0c6ce9e2c4bcca3",
        "e0ea2b2902672971aec74da6ff66bd7c",
        "0ae617eab93bdb7a68bd398e2e199c78",
    ),
}
_CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
_VALIDATION = {  # some of ImageNet's, from its published solution
    "ILSVRC2012_val_00000001": "n01751748",
    "ILSVRC2012_val_00000002": "n09193705",
    "ILSVRC2012_val_00000003": "n02105855",
    "ILSVRC2012_val_00000004": "n04263257",
}
_KINDS = {"npz": "file", "csv": "file", "hf": "dataset"}  # others with a place are folders


def data_of(
    info: Mapping[str, Any],  # what run.json says of the dataset
    labels: tuple[np.ndarray, np.ndarray],  # codes of the training and of the test labels
    test_ids: np.ndarray,
    loaded: Dataset | None = None,
) -> Data:
    """The dataset of a run, recognised by its content or described by its size and name."""
    here = None if loaded is None else content(loaded)
    for title, (inside, fingerprint, of_labels) in _KNOWN.items():
        if here == inside or info["fingerprint"] == fingerprint:
            return Data(title, title, COMPARED)
        if loaded is None and labels_digest(labels) == of_labels:
            return Data(title, f"data with the labels of {title}", LABELS)
    counts = [np.bincount(part, minlength=len(info["classes"])) for part in labels]
    if _is_cifar10(info["class_names"], counts):
        return Data("CIFAR-10", "CIFAR-10", "by its classes and their sizes; images were not compared")
    if _is_imagenet(info["classes"], counts, labels[1], test_ids):
        return Data(
            "ImageNet", "ImageNet", "by its classes, their sizes and names of files; pictures were not compared"
        )
    scheme, _, place = info["name"].partition("?")[0].partition(":")
    name = place.rstrip("/").rpartition("/")[2] or short_name(info["name"])
    kind = _KINDS.get(scheme, "folder" if place else "dataset")
    pictures = loaded is not None and to_images(loaded.x_train, loaded.value_range, np.arange(1)) is not None
    size = f"{info['n_train'] + info['n_test']:,} {'images' if pictures else 'examples'}"
    called = (f" named {name}" if name else "") + (" (not at hand)" if loaded is None else "")
    return Data(name or "the arrays", f"a {kind} of {size}{called}", None)


def title_of(info: Mapping[str, Any]) -> str:
    """A dataset's name for a heading, of what run.json says: a known one's in the official order, whatever its file."""
    known = (title for title, (_, fingerprint, _) in _KNOWN.items() if info["fingerprint"] == fingerprint)
    return next(known, short_name(str(info["name"])))


def content(data: Dataset) -> str | None:
    """32 hex digits of all images in memory and their labels, whatever their order and type; None without such."""
    found = ""
    for inputs, labels in ((data.x_train, data.y_train), (data.x_test, data.y_test)):
        images = None if isinstance(inputs, LazyImages) else to_images(inputs, data.value_range)
        if images is None:
            return None
        each = (
            hashlib.blake2b(b"%d " % label + image.tobytes(), digest_size=8).digest()
            for image, label in zip(images, labels.tolist())
        )
        found += f"{sum(int.from_bytes(one, 'little') for one in each) % 2**64:016x}"
    return found


def labels_digest(labels: tuple[np.ndarray, np.ndarray]) -> str:
    """32 hex digits of the codes of all labels in their order."""
    return hashlib.blake2b(np.concatenate(labels).astype("<i8").tobytes(), digest_size=16).hexdigest()


def _is_cifar10(names: list[str], counts: list[np.ndarray]) -> bool:
    return sorted(names) == _CIFAR10 and bool((counts[0] == 5000).all() and (counts[1] == 1000).all())


def _is_imagenet(classes: list[Any], counts: list[np.ndarray], y_test: np.ndarray, test_ids: np.ndarray) -> bool:
    if len(classes) != 1000 or (classes[0], classes[-1]) != ("n01440764", "n15075141"):
        return False
    train, test = counts
    if train.sum() != 1_281_167 or (train.min(), train.max()) != (732, 1300) or (test != 50).any():
        return False
    stems = (str(one).rpartition("/")[2].partition(".")[0] for one in test_ids)
    found = {stem: classes[code] for stem, code in zip(stems, y_test.tolist()) if stem in _VALIDATION}
    return found == _VALIDATION
