"""`folder:DIR`: images in train/CLASS/ and test/CLASS/, read into memory or, with `lazy`, decoded as they are used."""

from functools import partial
from pathlib import Path

from memfluence.datasets.dataset import Dataset, from_arrays
from memfluence.datasets.files import check_folder, list_classes
from memfluence.datasets.images import Picture, lazy_dataset, open_picture, stack_pictures
from memfluence.datasets.spec import Source, check_between
from memfluence.errors import DatasetError

__all__ = ["SOURCE"]

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


SOURCE = Source("folder:DIR", load_folder, "path")
