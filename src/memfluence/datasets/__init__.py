"""Datasets: two splits with labels, by name (`load("digits")`), from files, or from arrays in memory."""

from memfluence.datasets._dataset import Dataset, from_arrays

__all__ = ["Dataset", "from_arrays"]
