"""Experiments in common: their `Result`, means with their spread, and refusals of runs that say nothing."""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from memfluence.errors import InputError, MemfluenceWarning, RunMismatchError, checked_integer
from memfluence.estimators import arms
from memfluence.records import Trials
from memfluence.runs import Run
from memfluence.store import other_inputs

if TYPE_CHECKING:
    import pandas as pd

BLOCKS = 10  # of trials, for a jackknife
LEAST_TRIALS = 20  # fewer say nothing about who is memorized: a standard error of 0.24 at keep 0.7


class Spread(TypedDict):
    """A mean, and how far it can be trusted."""

    mean: float
    sd: float  # of one value
    stderr: float  # of the mean
    n: int


@dataclass(frozen=True)
class Said:
    """A table and lines, which the command line prints below the title of a result."""

    header: Sequence[str]
    rows: Iterable[Sequence[object]]
    lines: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Result:
    """Numbers with their spread, the long table behind them, and the settings that gave them."""

    name: str  # as on the command line: last-layer
    title: str  # what a figure says above it, n and t included
    numbers: Any  # a TypedDict of the experiment, JSON-able; every figure with its spread and n
    rows: Any  # of the long table behind them: a mapping each; or its columns, or a frame
    settings: Mapping[str, Any]
    pictures: Mapping[str, np.ndarray] = field(default_factory=dict)  # images that its figure shows; not saved
    runs: tuple[str, ...] = ()  # where the runs are that it was made from; not saved

    @cached_property
    def table(self) -> "pd.DataFrame":
        """The long table."""
        import pandas as pd

        return pd.DataFrame(self.rows)

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


def decimal(value: float | None, digits: int = 3, mark: str = "") -> str:
    """'0.123'; a dash for what is not known. `mark` may be a comma between thousands."""
    return "-" if value is None or math.isnan(value) else f"{value:{mark}.{digits}f}"


def points(found: Mapping[str, Any], spread: str = "stderr", digits: int = 2) -> str:
    """'1.47 ± 0.07', a mean in percent points."""
    mean, beside = (decimal(None if found[one] is None else 100 * found[one], digits) for one in ("mean", spread))
    return mean if "-" in (mean, beside) else f"{mean} ± {beside}"


def spread(values: Sequence[float] | np.ndarray) -> Spread:
    """Mean, standard deviation of one value (n - 1), standard error of the mean, n; NaN where n is too small."""
    array = np.asarray(values, dtype=np.float64)
    n = len(array)
    sd = float(array.std(ddof=1)) if n > 1 else math.nan
    return {"mean": float(array.mean()) if n else math.nan, "sd": sd, "stderr": sd / math.sqrt(max(n, 1)), "n": n}


def difference(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> Spread:
    """Mean of the first minus mean of the second, of runs that are not paired.

    `sd` is that of the difference of one run of each side, `stderr` that of the difference of means (Welch's).
    """
    one, other = spread(first), spread(second)
    return {
        "mean": one["mean"] - other["mean"],
        "sd": float(np.hypot(one["sd"], other["sd"])),
        "stderr": float(np.hypot(one["stderr"], other["stderr"])),
        "n": min(one["n"], other["n"]),
    }


def models(counts: Sequence[int]) -> str:
    """'20 models', or '3 to 5 models' where some are still missing."""
    least, most = min(counts), max(counts)
    return f"{most} models" if least == most else f"{least} to {most} models"


def jackknife(left_out: Sequence[float] | np.ndarray) -> float:
    """Standard error of a number, from what it is without each of the blocks of trials that it is made of."""
    values = np.asarray(left_out, dtype=np.float64)
    return float(np.sqrt((len(values) - 1) / len(values) * ((values - values.mean()) ** 2).sum()))


def of_keep(run: Run, keep: float | None) -> Trials:
    """The trials of one keep fraction, of both arms."""
    chosen = arms(run.bits, run.info.kinds, keep)
    numbers = np.union1d(chosen.in_trials.numbers, chosen.out_trials.numbers)
    return run.trials if len(numbers) == len(run.trials) else run.trials.select(np.isin(run.trials.numbers, numbers))


def check_trials(run: Run, least: int = LEAST_TRIALS) -> None:
    """Refuse a run whose trials are too few to estimate anything."""
    if (there := len(run.bits)) < least:
        raise InputError(
            f"{run.path} has {there} trial(s), too few to estimate memorization; run at least {least}, better hundreds."
        )


def check_repeats(repeats: int, name: str = "repeats") -> None:
    checked_integer(name, repeats, 2, why=", to give a spread")


def check_same_data(run: Run, other: Run, *, same_inputs: bool = True) -> None:
    """Refuse runs of different data: their labels say so, whatever the data are called. Other inputs are a warning."""
    same = all(np.array_equal(ours, theirs) for ours, theirs in zip(run.label_codes, other.label_codes))
    if not same or list(run.info.dataset["classes"]) != list(other.info.dataset["classes"]):
        raise RunMismatchError(
            f"{run.path} and {other.path} were made from different data (their labels differ); compare runs of the"
            " same dataset."
        )
    if same_inputs and (sentence := other_inputs(run.info, other.info, (run.path, other.path))) is not None:
        warn(sentence)


def check_classes(run: Run, kept: np.ndarray, which: str) -> list[str]:
    """Names of the classes of which nothing is kept, with a warning; refused where fewer than two would be left.

    Models that have lost a class are trained all the same: losing it is part of what the removal costs.
    """
    classes, names = run.label_codes[0], run.info.dataset["class_names"]
    left = np.unique(classes[kept])
    if len(left) < 2:
        raise InputError(
            f"Without the examples {which}, {len(left)} class(es) of {run.path} would be left, and a classifier needs"
            " two; remove fewer with higher thresholds."
        )
    emptied = [str(names[code]) for code in np.setdiff1d(classes, left).tolist()]
    if emptied:
        shown = ", ".join(emptied[:5]) + (", ..." if len(emptied) > 5 else "")
        warn(
            f"Without the examples {which} {len(emptied)} class(es) ({shown}) have no example left; models cannot get"
            " their test examples right, and that is counted."
        )
    return emptied


def warn(message: str) -> None:
    warnings.warn(message, MemfluenceWarning, stacklevel=4)
