"""Datasets: two splits with labels, by name (`load("digits")`), from files, or from arrays in memory."""

from pathlib import Path
from typing import Any

from memfluence.datasets.cifar import load_cifar10, load_cifar100
from memfluence.datasets.csv import OPTIONS as CSV_OPTIONS
from memfluence.datasets.csv import load_csv
from memfluence.datasets.dataset import Dataset, from_arrays
from memfluence.datasets.digits import load_digits
from memfluence.datasets.folder import OPTIONS as FOLDER_OPTIONS
from memfluence.datasets.folder import load_folder
from memfluence.datasets.huggingface import OPTIONS as HUGGINGFACE_OPTIONS
from memfluence.datasets.huggingface import is_local, load_huggingface
from memfluence.datasets.imagenet import OPTIONS as IMAGENET_OPTIONS
from memfluence.datasets.imagenet import load_imagenet
from memfluence.datasets.images import LazyImages
from memfluence.datasets.inputs import is_missing
from memfluence.datasets.longtail import OPTIONS as LONGTAIL_OPTIONS
from memfluence.datasets.longtail import load_longtail
from memfluence.datasets.looking import features, one_input, picture_range, to_images
from memfluence.datasets.mnist import load_mnist
from memfluence.datasets.npz import OPTIONS as NPZ_OPTIONS
from memfluence.datasets.npz import load_npz
from memfluence.datasets.spec import (
    Source,
    absolute,
    check_lengths,
    close_match,
    parse_options,
    short_name,
    split_spec,
    with_options,
)
from memfluence.errors import DatasetError

__all__ = [
    "Dataset",
    "LazyImages",
    "as_dataset",
    "features",
    "from_arrays",
    "is_missing",
    "load",
    "one_input",
    "picture_range",
    "short_name",
    "to_images",
]

_SOURCES: dict[str, Source] = {
    "digits": Source("digits", load_digits),
    "longtail": Source("longtail", load_longtail, options=LONGTAIL_OPTIONS),
    "csv": Source("csv:FILE", load_csv, "path", CSV_OPTIONS),
    "npz": Source("npz:FILE", load_npz, "path", NPZ_OPTIONS),
    "mnist": Source("mnist:DIR", load_mnist, "path"),
    "cifar10": Source("cifar10:DIR", load_cifar10, "path"),
    "cifar100": Source("cifar100:DIR", load_cifar100, "path"),
    "folder": Source("folder:DIR", load_folder, "path", FOLDER_OPTIONS),
    "imagenet": Source("imagenet:DIR", load_imagenet, "path", IMAGENET_OPTIONS),
    "hf": Source("hf:NAME", load_huggingface, "text", HUGGINGFACE_OPTIONS),
}


def load(spec: str, **options: Any) -> Dataset:
    """The dataset that a text names: `digits`, `longtail`, `csv:FILE`, `npz:FILE`, `mnist:DIR`, `cifar10:DIR`,
    `cifar100:DIR`, `folder:DIR`, `imagenet:DIR` or `hf:NAME`.

    Options stand in the text (`longtail?n_train=60&flip=0.1`) or are given by keyword. `Dataset.name` is the
    text with all options and with absolute paths: it alone loads the same data again.
    """
    check_lengths(spec)
    scheme, place, texts = split_spec(spec)
    source = _SOURCES.get(scheme)
    if source is None:
        raise _unknown(spec, scheme)
    if source.place == "none" and place:
        raise DatasetError(f"{spec}: {scheme} takes no path; write {source.form!r}.")
    if source.place != "none" and not place:
        raise DatasetError(f"{spec!r} does not say where the data are; write it as {source.form!r}.")
    if twice := sorted(texts.keys() & options.keys()):
        raise DatasetError(f"{spec}: the option {twice[0]!r} is given in the name and by keyword; give it once.")
    texts |= {key: str(value) for key, value in options.items()}
    parsed = parse_options(texts, source, spec)

    if source.place == "none":
        return source.load(with_options(scheme, texts), **parsed)
    if source.place == "path" or is_local(place):
        place = str(absolute(place))
    name = with_options(f"{scheme}:{place}", texts)
    return source.load(Path(place) if source.place == "path" else place, name, **parsed)


def as_dataset(data: Any) -> Dataset:
    """A `Dataset` from a `Dataset`, a text for `load`, or the tuple (x_train, y_train, x_test, y_test)."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str):
        return load(data)
    if isinstance(data, tuple | list) and len(data) == 4:
        return from_arrays(*data)
    got = f"a {type(data).__name__} of {len(data)}" if isinstance(data, tuple | list) else type(data).__name__
    raise DatasetError(
        "data must be a dataset's name (like 'digits' or 'npz:FILE'), a Dataset, or the tuple"
        f" (x_train, y_train, x_test, y_test); got {got}."
    )


def _unknown(spec: str, scheme: str) -> DatasetError:
    known = ", ".join(source.form for source in _SOURCES.values())
    if spec.endswith((".npz", ".csv")):
        hint = f" (did you mean '{spec[-3:]}:{spec}'?)"
    elif Path(spec).expanduser().is_dir():
        hint = f" (did you mean 'folder:{spec}'?)"
    else:
        hint = close_match(scheme.lower(), _SOURCES)
    return DatasetError(f"{spec!r} is not a dataset{hint}; the datasets are {known}.")
