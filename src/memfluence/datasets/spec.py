"""Datasets by name: `scheme`, `scheme:place`, and options as in `longtail?n_train=60&flip=0.1`."""

import inspect
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_type_hints
from urllib.parse import quote, unquote

from memfluence.datasets.cifar import load_cifar10, load_cifar100
from memfluence.datasets.csv import load_csv
from memfluence.datasets.dataset import Dataset, from_arrays
from memfluence.datasets.digits import load_digits
from memfluence.datasets.folder import load_folder
from memfluence.datasets.huggingface import convert, is_local, load_huggingface
from memfluence.datasets.imagenet import load_imagenet
from memfluence.datasets.longtail import load_longtail
from memfluence.datasets.mnist import load_mnist
from memfluence.datasets.npz import load_npz
from memfluence.errors import DatasetError, nearest, shortened


@dataclass(frozen=True)
class Source:
    """One kind of dataset: how it is written, what loads it, which options it takes."""

    form: str  # for messages: "npz:FILE"
    load: Callable[..., Dataset]  # load([place,] name, *, ...): its keywords are the options
    place: Literal["none", "path", "text"] = "none"
    also: Callable[..., Any] | None = None  # a function whose keywords are options, too

    @property
    def options(self) -> dict[str, Callable[[str], Any]]:
        """The function that reads the text of each option, by its annotation in the loader's signature."""
        found: dict[str, Callable[[str], Any]] = {}
        for function in filter(None, (self.load, self.also)):
            hints = get_type_hints(function)
            for name, parameter in inspect.signature(function).parameters.items():
                if parameter.kind is parameter.KEYWORD_ONLY:
                    kind = next(one for one in (get_args(hints[name]) or (hints[name],)) if one is not NoneType)
                    found[name] = _true_or_false if kind is bool else kind
        return found


_SOURCES = {
    source.form.partition(":")[0]: source
    for source in (
        Source("digits", load_digits),
        Source("longtail", load_longtail),
        Source("csv:FILE", load_csv, "path"),
        Source("npz:FILE", load_npz, "path"),
        Source("mnist:DIR", load_mnist, "path"),
        Source("cifar10:DIR", load_cifar10, "path"),
        Source("cifar100:DIR", load_cifar100, "path"),
        Source("folder:DIR", load_folder, "path"),
        Source("imagenet:DIR", load_imagenet, "path"),
        Source("hf:NAME", load_huggingface, "text", also=convert),
    )
}


def load(spec: str, **options: Any) -> Dataset:
    """The dataset that a text names: `digits`, `longtail`, `csv:FILE`, `npz:FILE`, `mnist:DIR`, `cifar10:DIR`,
    `cifar100:DIR`, `folder:DIR`, `imagenet:DIR` or `hf:NAME`.

    Options stand in the text (`longtail?n_train=60&flip=0.1`) or are given by keyword. `Dataset.name` is the
    text with all options and with absolute paths: it alone loads the same data again.
    """
    scheme, place, texts = _split(spec)
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
    parsed = _parsed(texts, source, spec)

    if source.place == "none":
        return source.load(_joined(scheme, texts), **parsed)
    try:
        if source.place == "path" or is_local(place):
            place = str(Path(os.path.expanduser(place)).resolve())  # noqa: PTH111 it lets ~nobody stand
        name = _joined(f"{scheme}:{place}", texts)
        return source.load(Path(place) if source.place == "path" else place, name, **parsed)
    except OSError as error:  # a folder that may not be read, a name longer than any path
        raise DatasetError(f"{shortened(spec)} cannot be read ({error.strerror}); name a file or folder.") from error


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


def _split(spec: str) -> tuple[str, str, dict[str, str]]:
    """(scheme, place, options as text). A place that holds a "?" needs one more at the end of the spec."""
    head, mark, query = spec.rpartition("?")
    if not mark:
        head, query = spec, ""
    scheme, _, place = head.partition(":")
    options: dict[str, str] = {}
    for part in query.split("&") if query else []:
        key, equals, value = part.partition("=")
        if not key or not equals or not value:
            raise DatasetError(
                f"{spec}: options follow the '?' as name=value, joined by '&'; got {part!r}"
                " (if the '?' belongs to a path, end the name with another '?')."
            )
        if key in options:
            raise DatasetError(f"{spec}: the option {key!r} is given twice; give it once.")
        options[key] = unquote(value)
    return scheme, place, options


def _parsed(options: Mapping[str, str], source: Source, spec: str) -> dict[str, Any]:
    """Options as the loader's types."""
    parsed = {}
    for key, text in options.items():
        if key not in source.options:
            known = ", ".join(source.options) or "none"
            raise DatasetError(
                f"{spec}: {source.form} has no option {key!r}{_close_match(key, source.options)}; its options: {known}."
            )
        kind = source.options[key]
        try:
            parsed[key] = kind(text)
        except ValueError:
            expected = {int: "an integer", float: "a number", _true_or_false: "true or false"}.get(kind, "a text")
            raise DatasetError(f"{spec}: the option {key!r} must be {expected}; got {text!r}.") from None
    return parsed


def _true_or_false(text: str) -> bool:
    """An option that is on or off; a ValueError where the text says neither."""
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _joined(head: str, options: Mapping[str, str]) -> str:
    """The spec that `_split` takes apart again."""
    query = "&".join(f"{key}={quote(value, safe='/:,')}" for key, value in options.items())
    return f"{head}?{query}" if query or "?" in head else head


def _unknown(spec: str, scheme: str) -> DatasetError:
    known = ", ".join(source.form for source in _SOURCES.values())
    if spec.endswith((".npz", ".csv")):
        hint = f" (did you mean '{spec[-3:]}:{spec}'?)"
    elif os.path.isdir(os.path.expanduser(spec)):  # noqa: PTH111, PTH112 any text may be asked about
        hint = f" (did you mean 'folder:{spec}'?)"
    else:
        hint = _close_match(scheme.lower(), _SOURCES)
    return DatasetError(f"{shortened(spec, 300)} is not a dataset{hint}; the datasets are {known}.")


def _close_match(given: str, known: Collection[str]) -> str:
    """' (did you mean ...?)', or nothing."""
    close = nearest(given, known, cutoff=0.5)
    return f" (did you mean {close!r}?)" if close else ""


def portable_name(dataset: str) -> str:
    """A dataset's name without the directories that it lies in, which say who has it and not what it is."""
    return re.sub(r"(?<=[:=])/([^?&]*/)?", "", dataset)


def short_name(dataset: str) -> str:
    """A dataset's name for a heading: no directories, which are nobody's business, and no options."""
    if dataset == "arrays":
        return ""
    if dataset.startswith("labels of "):  # of a trials file, which is all that is known
        return dataset.removeprefix("labels of ")
    scheme, _, place = dataset.partition("?")[0].partition(":")
    own = scheme in ("csv", "npz", "folder", "hf", "mnist", "imagenet")  # others have those layouts, too
    return place.rstrip("/").rpartition("/")[2] if own and place else scheme
