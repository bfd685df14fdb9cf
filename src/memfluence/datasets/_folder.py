"""`folder:DIR`: images in train/CLASS/ and test/CLASS/, read into memory."""

from functools import partial
from pathlib import Path

from memfluence.datasets._dataset import Dataset, from_arrays
from memfluence.datasets._decode import Picture, stack_pictures
from memfluence.datasets._spec import check_between
from memfluence.errors import DatasetError

__all__ = ["OPTIONS", "load_folder"]

OPTIONS = {"size": int}

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}
_LAYOUT = "expected train/CLASS/IMAGE and test/CLASS/IMAGE (val is accepted for test)"


def load_folder(folder: Path, name: str, *, size: int | None = None) -> Dataset:
    """The images as uint8, (n, h, w) if all are grey and (n, h, w, 3) otherwise, sorted by class and file name.

    Labels are the names of the class folders, ids the paths within `folder`. Hidden files and files without an image's
    suffix are ignored. With `size` every image is scaled so that its shorter side has `size` pixels, and the
    middle square is kept; without it, all images must have one size.
    """
    from PIL import Image

    if size is not None:
        check_between(name, "size", size, 1, 8192)
    if not folder.is_dir():
        found = "is a file, not a folder" if folder.exists() else "does not exist"
        raise DatasetError(f"{name}: {folder} {found}; {_LAYOUT}.")
    paths = {"train": _images(folder, ("train",), name), "test": _images(folder, ("test", "val"), name)}
    ids = {split: [path.relative_to(folder).as_posix() for path in files] for split, files in paths.items()}
    arrays = stack_pictures(
        {split: [Picture(str(path), partial(Image.open, path)) for path in files] for split, files in paths.items()},
        size,
        name,
    )
    return from_arrays(
        arrays["train"],
        [path.parent.name for path in paths["train"]],
        arrays["test"],
        [path.parent.name for path in paths["test"]],
        name=name,
        value_range=(0, 255),
        train_ids=ids["train"],
        test_ids=ids["test"],
    )


def _images(folder: Path, spellings: tuple[str, ...], name: str) -> list[Path]:
    split = next((folder / spelling for spelling in spellings if (folder / spelling).is_dir()), None)
    if split is None:
        raise DatasetError(f"{name}: {folder} has no folder {spellings[0]}/; {_LAYOUT}.")
    classes = sorted(entry for entry in split.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        raise DatasetError(f"{name}: {split} has no class folders; {_LAYOUT}.")
    images = []
    for folder_of_class in classes:
        found = sorted(
            entry
            for entry in folder_of_class.iterdir()
            if entry.suffix.lower() in _SUFFIXES and not entry.name.startswith(".") and entry.is_file()
        )
        if not found:
            raise DatasetError(
                f"{name}: {folder_of_class} holds no images; add some"
                f" ({', '.join(sorted(_SUFFIXES))}) or remove the folder."
            )
        images += found
    return images
