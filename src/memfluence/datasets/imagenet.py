"""`imagenet:DIR`: the official JPEGs, train/WNID/*.JPEG and val/WNID/*.JPEG, decoded as they are used."""

import csv
from pathlib import Path

import numpy as np

from memfluence.datasets.dataset import Dataset
from memfluence.datasets.folder import check_between, check_folder, list_classes, list_files
from memfluence.datasets.images import Files, lazy_dataset
from memfluence.errors import DatasetError

_SOLUTION, _SYNSETS = "LOC_val_solution.csv", "LOC_synset_mapping.txt"  # Kaggle's names
_LAYOUT = f"expected train/WNID/*.JPEG and val/WNID/*.JPEG (or val/*.JPEG beside {_SOLUTION})"


def load_imagenet(folder: Path, name: str, *, size: int = 224, shorter: int | None = None) -> Dataset:
    """ImageNet as `LazyImages`; labels are the WordNet ids, whose sorted order is the usual numbering of the classes.

    The paper says 224 x 224 and no more: that the shorter side is scaled to 256 (8/7 of `size`, unless `shorter`
    is given) and the middle is cut out is our choice, the usual one. Kaggle's tree is read as it is unpacked, with its
    flat val folder and its names of the classes.
    """
    shorter = round(size * 8 / 7) if shorter is None else shorter
    check_between(name, "size", size, 1, 8192)
    check_between(name, "shorter", shorter, size, 8192)
    check_folder(folder, name, _LAYOUT)
    kaggle = folder / "ILSVRC" / "Data" / "CLS-LOC"
    root = kaggle if kaggle.is_dir() else folder
    train = list_classes(root, ("train",), name, _LAYOUT)
    test = _validation(folder, root, name)
    classes = sorted({*train[1].tolist(), *test[1].tolist()})
    return lazy_dataset(train, test, name, size=size, shorter=shorter, class_names=_names(folder / _SYNSETS, classes))


def _validation(folder: Path, root: Path, name: str) -> tuple[Files, np.ndarray]:
    solution = folder / _SOLUTION
    if not solution.is_file() or any(entry.is_dir() for entry in _entries(root / "val")):
        return list_classes(root, ("val", "test"), name, _LAYOUT)
    try:
        with solution.open(newline="") as lines:
            rows = csv.DictReader(lines)
            classes = {row["ImageId"]: row["PredictionString"].split()[0] for row in rows}
    except (KeyError, IndexError, AttributeError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(
            f"{name}: {solution} must have the columns ImageId and PredictionString, as Kaggle has it ({error!r:.80})."
        ) from error
    return list_files(root, "val", classes, name)


def _entries(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if not entry.name.startswith(".")] if folder.is_dir() else []


def _names(synsets: Path, classes: list[str]) -> list[str]:
    """For people: the first word of each class's synset ("tench"), or its id where the file is missing."""
    known = {}
    if synsets.is_file():
        for line in synsets.read_text(encoding="utf-8").splitlines():
            wnid, _, words = line.partition(" ")
            known[wnid] = words.partition(",")[0]
    return [known.get(wnid) or wnid for wnid in classes]
