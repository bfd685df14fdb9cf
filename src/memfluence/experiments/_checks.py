"""What several experiments ask of the runs they are given, each refusal one sentence."""

import warnings

import numpy as np

from memfluence.errors import InputError, MemfluenceWarning, RunMismatchError
from memfluence.runs import Run
from memfluence.store import other_inputs

__all__ = ["LEAST_TRIALS", "check_classes", "check_repeats", "check_same_data", "check_trials", "warn"]

LEAST_TRIALS = 20  # fewer say nothing about who is memorized: a standard error of 0.24 at keep 0.7


def check_trials(run: Run, least: int = LEAST_TRIALS) -> None:
    """Refuse a run whose trials are too few to estimate anything."""
    if (there := len(run.trials)) < least:
        raise InputError(
            f"{run.path} has {there} trial(s), too few to estimate memorization; run at least {least}, better hundreds."
        )


def check_repeats(repeats: int) -> None:
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 2:
        raise InputError(f"The 'repeats' parameter must be an integer >= 2, to give a spread. Got {repeats!r} instead.")


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
