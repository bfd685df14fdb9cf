"""`hf:NAME`: a dataset from the Hugging Face hub, or a folder written by its `save_to_disk`; columns by name."""

import importlib
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.datasets.dataset import Dataset, from_arrays
from memfluence.datasets.folder import check_between
from memfluence.datasets.images import Picture, stack_pictures
from memfluence.errors import DatasetError


def load_huggingface(
    place: str, name: str, *, config: str | None = None, revision: str | None = None, **options: Any
) -> Dataset:
    """Load by the hub's name or from a saved folder; `convert` says what the other options mean."""
    try:
        library = importlib.import_module("datasets")
    except ImportError as error:
        raise DatasetError(
            f"{name}: the Hugging Face datasets package is not installed; pip install 'memfluence[hf]'."
        ) from error
    try:
        if _is_saved(place):
            splits = library.load_from_disk(place)
        else:
            splits = library.load_dataset(place, name=config, revision=revision)
    except Exception as error:  # the hub, the network, a damaged cache
        detail = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DatasetError(f"{name}: Hugging Face datasets could not load it ({detail:.300}).") from error
    if not isinstance(splits, Mapping):
        raise DatasetError(f"{name}: the saved folder holds one split; save a DatasetDict with train and test.")
    return convert(splits, name, **options)


def is_local(place: str) -> bool:
    """True if the place is a path rather than a name on the hub."""
    return place.startswith(("/", ".", "~")) or _is_saved(place)


def _is_saved(place: str) -> bool:
    return any((Path(place).expanduser() / mark).is_file() for mark in ("dataset_dict.json", "state.json"))


def convert(
    splits: Mapping[str, Any],
    name: str,
    *,
    image: str | None = None,
    text: str | None = None,
    x: str | None = None,
    label: str | None = None,
    train: str = "train",
    test: str | None = None,
    size: int | None = None,
) -> Dataset:
    """A `Dataset` from splits that have `column_names`, `features` and columns by name.

    `image`, `text` or `x` (numbers, or equally long lists of them) names the column of inputs, `label` that of labels;
    what is not named is guessed where only one column fits. `test` falls back to the split "validation".
    `size` scales and crops images as in `folder:`.
    """
    if size is not None:
        check_between(name, "size", size, 1, 8192)
    if test is None:
        test = "test" if "test" in splits else "validation"
    for split in (train, test):
        if split not in splits:
            raise DatasetError(
                f"{name}: no split {split!r}; choose with ?train=...&test=... from: {', '.join(splits)}."
            )
    parts = {"train": splits[train], "test": splits[test]}
    features, columns = parts["train"].features, parts["train"].column_names
    label = _chosen(label, "label", columns, name) or _guess_label(features, columns, name)
    kind, column = _input_column({"image": image, "text": text, "x": x}, features, columns, label, name)
    for needed in (column, label):
        if needed not in parts["test"].column_names:
            raise DatasetError(f"{name}: the split {test!r} has no column {needed!r}; choose another split or column.")

    inputs = {split: part[column] for split, part in parts.items()}
    if kind == "image":
        pictures = {
            split: [_picture(values, row, f"{split} example {row}") for row in range(len(values))]
            for split, values in inputs.items()
        }
        inputs = dict(stack_pictures(pictures, size, name))
    else:
        inputs = {split: list(values) for split, values in inputs.items()}
        if kind == "text" and not all(isinstance(value, str) for values in inputs.values() for value in values):
            raise DatasetError(f"{name}: the column {column!r} is not all text; name numbers with ?x={column}.")
    labels = {split: list(part[label]) for split, part in parts.items()}
    class_names = getattr(features[label], "names", None)
    if class_names is not None and (-1 in labels["train"] or -1 in labels["test"]):
        raise DatasetError(
            f"{name}: some labels in {label!r} are -1, which means unlabelled; choose labelled splits with ?test=..."
        )
    return from_arrays(
        inputs["train"],
        labels["train"],
        inputs["test"],
        labels["test"],
        name=name,
        class_names=class_names,
        value_range=(0, 255) if kind == "image" else None,
    )


def _picture(values: Any, row: int, where: str) -> Picture:
    def opened(values: Any, row: int) -> Any:
        value = values[row]
        if hasattr(value, "convert"):
            return nullcontext(value)
        from PIL import Image

        return nullcontext(Image.fromarray(np.asarray(value, dtype=np.uint8)))

    return Picture(where, partial(opened, values, row))


def _input_column(
    given: Mapping[str, str | None], features: Mapping[str, Any], columns: Collection[str], label: str, name: str
) -> tuple[str, str]:
    """(image, text or x; its column)."""
    named = [(kind, column) for kind, column in given.items() if column is not None]
    if len(named) > 1:
        raise DatasetError(f"{name}: give one of image=, text= and x=; got {' and '.join(kind for kind, _ in named)}.")
    if named:
        kind, column = named[0]
        _chosen(column, kind, columns, name)
        return kind, column
    others = [column for column in columns if column != label]
    images = [column for column in others if type(features[column]).__name__ == "Image"]
    texts = [column for column in others if getattr(features[column], "dtype", "") in {"string", "large_string"}]
    if len(images) == 1:
        return "image", images[0]
    if not images and len(texts) == 1:
        return "text", texts[0]
    raise DatasetError(
        f"{name}: cannot tell which column holds the inputs; name it with ?image=..., ?text=... or ?x=...,"
        f" one of: {', '.join(others)}."
    )


def _guess_label(features: Mapping[str, Any], columns: Collection[str], name: str) -> str:
    coded = [column for column in columns if getattr(features[column], "names", None)]
    if "label" in columns:
        return "label"
    if len(coded) == 1:
        return coded[0]
    raise DatasetError(
        f"{name}: cannot tell which column holds the labels; name it with ?label=..., one of: {', '.join(columns)}."
    )


def _chosen(column: str | None, option: str, columns: Collection[str], name: str) -> str | None:
    if column is not None and column not in columns:
        raise DatasetError(f"{name}: no column {column!r} for {option}=; the columns are {', '.join(columns)}.")
    return column
