"""Datasets: two splits with labels, by name (`load("digits")`), from files, or from arrays in memory."""

from memfluence.datasets.dataset import Dataset, as_numbers, from_arrays, with_class_names
from memfluence.datasets.images import LazyImages, features, one_input, picture_range, to_images
from memfluence.datasets.known import title_of
from memfluence.datasets.labels import Task, ids_of_one_kind, is_missing
from memfluence.datasets.spec import as_dataset, load, portable_name, short_name
from memfluence.datasets.telling import UNUSUAL, telling

__all__ = [
    "UNUSUAL",
    "Dataset",
    "LazyImages",
    "Task",
    "as_dataset",
    "as_numbers",
    "features",
    "from_arrays",
    "ids_of_one_kind",
    "is_missing",
    "load",
    "one_input",
    "picture_range",
    "portable_name",
    "short_name",
    "telling",
    "title_of",
    "to_images",
    "with_class_names",
]
