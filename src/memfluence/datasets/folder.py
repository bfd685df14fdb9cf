"""`folder:DIR`: images in train/CLASS/ and test/CLASS/, read into memory or, with `lazy`, decoded as they are used."""

import os
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path

import numpy as np

from memfluence.datasets.dataset import Dataset, from_arrays
from memfluence.datasets.images import Files, Picture, lazy_dataset, open_picture, stack_pictures
from memfluence.errors import DatasetError

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}
_LAYOUT = "expected train/CLASS/IMAGE and test/CLASS/IMAGE (val is accepted for test)"


def load_folder(folder: Path, name: str, *, size: int | None = None, lazy: bool = False) -> Dataset:
    """The images as uint8, (n, h, w) if all are grey and (n, h, w, 3) otherwise, sorted by class and file name.

    Labels are the names of the class folders, ids the paths within `folder`. Hidden files and files without an image's
    suffix are ignored. With `size` every image is scaled so that its shorter side has `size` pixels, and the
    middle square is kept; without it, all images must have one size. With `lazy`, which needs a `size`, the images are
    `LazyImages`, (n, size, size, 3) always: for folders larger than memory.
    """
    if size is not None:
        check_between(name, "size", size, 1, 8192)
    elif lazy:
        raise DatasetError(f"{name}: lazy=true needs a size for all images; add &size=224, say.")
    check_folder(folder, name, _LAYOUT)
    train, test = (list_classes(folder, split, name, _LAYOUT) for split in (("train",), ("test", "val")))
    if lazy and size is not None:
        return lazy_dataset(train, test, name, size=size, shorter=size)
    pictures = {}
    for split, (files, _) in (("train", train), ("test", test)):
        paths = map(files.path, range(len(files)))
        pictures[split] = [Picture(path, partial(open_picture, path)) for path in paths]
    arrays = stack_pictures(pictures, size, name)
    return from_arrays(
        arrays["train"],
        train[1],
        arrays["test"],
        test[1],
        name=name,
        value_range=(0, 255),
        train_ids=list(train[0]),
        test_ids=list(test[0]),
    )


def check_between(name: str, option: str, value: float, low: float, high: float) -> None:
    """Refuse an option outside [low, high]."""
    if not low <= value <= high:
        raise DatasetError(f"{name}: the option {option!r} must be between {low} and {high}; got {value}.")


def subject(path: Path, name: str) -> str:
    """What a message about a path begins with: the dataset's name, and the path where the name has it not already."""
    return name if name.partition("?")[0].endswith(f":{path}") else f"{name}: {path}"


def require_file(path: Path, name: str) -> Path:
    """The path itself if it is a file; otherwise the `DatasetError` that a user needs."""
    if path.is_file():
        return path
    found = "is a folder, not a file" if path.is_dir() else "does not exist"
    raise DatasetError(f"{subject(path, name)} {found}; give the path of the data file.")


def folder_with(file_names: tuple[str, ...], folder: Path, inside: tuple[str, ...], name: str) -> Path:
    """The folder itself, or the one of its known subfolders, that holds any of the files."""
    if not folder.is_dir():
        found = "is a file, not a folder" if folder.exists() else "does not exist"
        raise DatasetError(f"{subject(folder, name)} {found}; give the folder that holds {file_names[0]}.")
    for candidate in (folder, *(folder / part for part in inside)):
        if any((candidate / file_name).is_file() for file_name in file_names):
            return candidate
    raise DatasetError(
        f"{subject(folder, name)} holds no {file_names[0]}; give the folder with the files as they are distributed."
    )


def check_folder(folder: Path, name: str, layout: str) -> None:
    """Refuse what is not a folder."""
    if not folder.is_dir():
        found = "is a file, not a folder" if folder.exists() else "does not exist"
        raise DatasetError(f"{subject(folder, name)} {found}; {layout}.")


def list_classes(root: Path, spellings: Collection[str], name: str, layout: str) -> tuple[Files, np.ndarray]:
    """The images in the class folders of a split, sorted by class and file name, and their classes (n,) as text.

    Hidden files and folders, and files without an image's suffix, are ignored. Each class must have an image.
    """
    first, *_ = spellings
    split = next((spelling for spelling in spellings if (root / spelling).is_dir()), None)
    if split is None:
        raise DatasetError(f"{subject(root, name)} has no folder {first}/; {layout}.")
    with os.scandir(root / split) as entries:
        classes = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        raise DatasetError(f"{name}: {root / split} has no class folders; {layout}.")
    return _joined(root, ((f"{split}/{label}", label, *_found(root / split / label, name)) for label in classes))


def list_files(root: Path, folder: str, classes: dict[str, str], name: str) -> tuple[Files, np.ndarray]:
    """The images of one folder whose classes are known by file name without suffix, sorted as `list_classes` does."""
    names, sizes = _found(root / folder, name)
    labels = [classes.get(file.partition(".")[0], "") for file in names]
    if "" in labels:
        raise DatasetError(f"{name}: no class is known for {root / folder / names[labels.index('')]}.")
    order = sorted(range(len(names)), key=lambda row: (labels[row], names[row]))
    by_class = ((folder, labels[row], [names[row]], [sizes[row]]) for row in order)
    return _joined(root, by_class)


def _found(folder: Path, name: str) -> tuple[list[str], list[int]]:
    """Names of the images in a folder, sorted, and their sizes."""
    with os.scandir(folder) as entries:
        found = sorted(
            (entry.name, entry.stat().st_size)
            for entry in entries
            if os.path.splitext(entry.name)[1].lower() in _SUFFIXES  # noqa: PTH122 a Path for each of a million is slow
            and not entry.name.startswith(".")
            and entry.is_file()
        )
    if not found:
        raise DatasetError(
            f"{name}: {folder} holds no images; add some ({', '.join(sorted(_SUFFIXES))}) or remove the folder."
        )
    return [file for file, _ in found], [size for _, size in found]


def _joined(root: Path, parts: Iterable[tuple[str, str, list[str], list[int]]]) -> tuple[Files, np.ndarray]:
    """`Files` and their classes from (folder, class, names, sizes)."""
    folders: dict[str, int] = {}
    folder, classes, names, sizes = [], [], [], []
    for where, label, own_names, own_sizes in parts:
        count = len(own_names)
        folder.append(np.full(count, folders.setdefault(where, len(folders)), dtype=np.int32))
        classes.append(np.full(count, label))
        names.append(np.array([os.fsencode(one) for one in own_names]))
        sizes.append(np.array(own_sizes, dtype=np.int64))
    return Files(root, tuple(folders), *map(np.concatenate, (folder, names, sizes))), np.concatenate(classes)
