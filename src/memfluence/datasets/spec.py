"""The text that names a dataset: `scheme`, `scheme:place`, and options as in `longtail?n_train=60&flip=0.1`."""

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_type_hints
from urllib.parse import quote, unquote

from memfluence.datasets.dataset import Dataset
from memfluence.errors import DatasetError, shortened

__all__ = [
    "Source",
    "absolute",
    "check_between",
    "check_lengths",
    "close_match",
    "folder_with",
    "parse_options",
    "portable_name",
    "require_file",
    "short_name",
    "split_spec",
    "true_or_false",
    "with_options",
]


_LONGEST, _LONGEST_PART = 4096, 300  # letters of a path, and bytes of one name in it with its scheme


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
                    found[name] = true_or_false if kind is bool else kind
        return found


def split_spec(spec: str) -> tuple[str, str, dict[str, str]]:
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


def parse_options(options: Mapping[str, str], source: Source, spec: str) -> dict[str, Any]:
    """Options as the loader's types."""
    parsed = {}
    for key, text in options.items():
        if key not in source.options:
            known = ", ".join(source.options) or "none"
            raise DatasetError(
                f"{spec}: {source.form} has no option {key!r}{close_match(key, source.options)}; its options: {known}."
            )
        kind = source.options[key]
        try:
            parsed[key] = kind(text)
        except ValueError:
            expected = {int: "an integer", float: "a number", true_or_false: "true or false"}.get(kind, "a text")
            raise DatasetError(f"{spec}: the option {key!r} must be {expected}; got {text!r}.") from None
    return parsed


def true_or_false(text: str) -> bool:
    """An option that is on or off; a ValueError where the text says neither."""
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def with_options(head: str, options: Mapping[str, str]) -> str:
    """The spec that `split_spec` takes apart again."""
    query = "&".join(f"{key}={quote(value, safe='/:,')}" for key, value in options.items())
    return f"{head}?{query}" if query or "?" in head else head


def check_lengths(spec: str) -> None:
    """Refuse a text that no file system can have a file or folder of, before one is asked."""
    longest = max(len(part.encode(errors="replace")) for part in spec.partition("?")[0].split("/"))
    if len(spec) > _LONGEST or longest > _LONGEST_PART:
        raise DatasetError(f"{shortened(spec)} is longer than any path; name a dataset, or a file or folder of data.")


def absolute(place: str) -> Path:
    """A path that means the same from every working directory."""
    try:
        return Path(place).expanduser().resolve()
    except RuntimeError:  # of pathlib: ~nobody
        raise DatasetError(
            f"{place} is in the home directory of a user who is not known; write out the path."
        ) from None


def check_between(name: str, option: str, value: float, low: float, high: float) -> None:
    """Refuse an option outside [low, high]."""
    if not low <= value <= high:
        raise DatasetError(f"{name}: the option {option!r} must be between {low} and {high}; got {value}.")


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


def close_match(given: str, known: Collection[str]) -> str:
    """' (did you mean ...?)', or nothing."""
    matches = difflib.get_close_matches(given, list(known), n=1, cutoff=0.5)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


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
    return place.rstrip("/").rpartition("/")[2] if scheme in ("csv", "npz", "folder", "hf") and place else scheme
