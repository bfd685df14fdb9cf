"""`Result`: what an experiment found, for people, programs and figures alike."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.datasets import short_name
from memfluence.store import RunInfo

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Result", "about", "plain"]


@dataclass(frozen=True, eq=False)
class Result:
    """Numbers with their spread, the long table behind them, and the settings that gave them."""

    name: str  # as on the command line: last-layer
    title: str  # what a figure says above it, n and t included
    numbers: Mapping[str, Any]  # nested, JSON-able; every figure with its spread and n
    table: "pd.DataFrame"  # long format
    settings: Mapping[str, Any]
    pictures: Mapping[str, np.ndarray] = field(default_factory=dict)  # images that its figure shows; not saved

    def to_json(self) -> dict[str, Any]:
        """All but the table and the pictures; what cannot be estimated is null."""
        document = {"experiment": self.name, "title": self.title, "settings": self.settings, "numbers": self.numbers}
        found: dict[str, Any] = plain(document)
        return found


def plain(value: Any) -> Any:
    """JSON-able: NumPy's numbers and arrays as Python's, NaN and infinities as None."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def about(info: RunInfo) -> str:
    """'digits, mlp: 1,197 training examples', the beginning of a title."""
    what = ", ".join(part for part in (short_name(str(info.dataset["name"])), (info.learner or {}).get("name")) if part)
    return f"{what}{': ' if what else ''}{info.n_train:,} training examples"
