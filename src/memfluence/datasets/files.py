"""Files of a dataset: those that must be there, and images by class, split/CLASS/FILE, listed without being opened."""

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.errors import DatasetError

__all__ = ["Files", "check_folder", "folder_with", "list_classes", "list_files", "require_file"]

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}


@dataclass(frozen=True, eq=False)
class Files(Sequence[str]):
    """Files within one folder. As a sequence: their paths there, like "train/cat/1.png"."""

    root: Path
    folders: tuple[str, ...]  # within the root: "train/cat"
    folder: np.ndarray  # (n,) which of the folders
    names: np.ndarray  # (n,) bytes, as the file system has them
    sizes: np.ndarray  # (n,) int64, in bytes

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        return f"{self.folders[self.folder[row]]}/{os.fsdecode(self.names[row])}"

    def path(self, row: int) -> str:
        return str(self.root / self[row])


def check_folder(folder: Path, name: str, layout: str) -> None:
    """Refuse what is not a folder."""
    if not folder.is_dir():
        found = "is a file, not a folder" if folder.exists() else "does not exist"
        raise DatasetError(f"{name}: {folder} {found}; {layout}.")


def list_classes(root: Path, spellings: Collection[str], name: str, layout: str) -> tuple[Files, np.ndarray]:
    """The images in the class folders of a split, sorted by class and file name, and their classes (n,) as text.

    Hidden files and folders, and files without an image's suffix, are ignored. Each class must have an image.
    """
    first, *_ = spellings
    split = next((spelling for spelling in spellings if (root / spelling).is_dir()), None)
    if split is None:
        raise DatasetError(f"{name}: {root} has no folder {first}/; {layout}.")
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


def require_file(path: Path, name: str) -> Path:
    """The path itself if it is a file; otherwise the `DatasetError` that a user needs."""
    if path.is_file():
        return path
    found = "is a folder, not a file" if path.is_dir() else "does not exist"
    raise DatasetError(f"{name}: {path} {found}; give the path of the data file.")


def folder_with(file_names: tuple[str, ...], folder: Path, inside: tuple[str, ...], name: str) -> Path:
    """The folder itself, or the one of its known subfolders, that holds any of the files."""
    if not folder.is_dir():
        found = "is a file, not a folder" if folder.exists() else "does not exist"
        raise DatasetError(f"{name}: {folder} {found}; give the folder that holds {file_names[0]}.")
    for candidate in (folder, *(folder / part for part in inside)):
        if any((candidate / file_name).is_file() for file_name in file_names):
            return candidate
    raise DatasetError(
        f"{name}: {folder} holds no {file_names[0]}; give the folder with the files as they are distributed."
    )
