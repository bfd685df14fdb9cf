"""Datasets: two splits with labels, by name (`load("digits")`), from files, or from arrays in memory."""

from pathlib import Path
from typing import Any

from memfluence.datasets import cifar, csv, digits, folder, huggingface, imagenet, longtail, mnist, npz
from memfluence.datasets.dataset import Dataset, from_arrays
from memfluence.datasets.images import LazyImages, picture_range, to_images
from memfluence.datasets.inputs import features, is_missing, one_input
from memfluence.datasets.spec import (
    absolute,
    check_lengths,
    close_match,
    parse_options,
    portable_name,
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
    "portable_name",
    "short_name",
    "to_images",
]

_SOURCES = {
    source.form.partition(":")[0]: source
    for source in (
        digits.SOURCE,
        longtail.SOURCE,
        csv.SOURCE,
        npz.SOURCE,
        mnist.SOURCE,
        cifar.CIFAR10,
        cifar.CIFAR100,
        folder.SOURCE,
        imagenet.SOURCE,
        huggingface.SOURCE,
    )
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
    if source.place == "path" or huggingface.is_local(place):
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
