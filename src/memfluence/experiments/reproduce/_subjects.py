"""Subjects that can be reproduced: their data, learners, parts and numbers of models, and the time for each."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memfluence.errors import InputError
from memfluence.experiments import EXPERIMENTS, named

LEAST = {"removal": 5, "utility": 20, "last-layer": 1000}  # repeats, repeats a side, linear models: done first
FEWEST = {"removal": 2, "utility": 2, "last-layer": 20, "second": 20}  # that say anything
MOST = {"removal": 20, "utility": 50}  # repeats that are worth having, if there is time left

# Sections of the report: the experiments, and consistency once more, with another network. Parts are done in another
# order: first what trains models, those with numbers of models before `second`, which trains that other network.
SECTIONS = tuple(
    part for name in EXPERIMENTS for part in ((name, "architectures") if name == "consistency" else (name,))
)
_PLANNED = [name for name in EXPERIMENTS if hasattr(named(name), "plan")]
TRAINED = (*(name for name in _PLANNED if name in LEAST), "second", *(name for name in _PLANNED if name not in LEAST))
PARTS = (*TRAINED, *(part for part in SECTIONS if part not in TRAINED))
BY_CHOICE = {"loo", "long-tail"}  # experiments that belong to the report of a subject only if it names them
_UNITS = {"s": 1, "m": 60, "h": 3600, "": 1}
BASE_SHARE = 0.4  # of the time, for the trials that everything else is made from
FEWEST_TRIALS = 40  # two halves of the fewest trials that say anything


@dataclass(frozen=True)
class Subject:
    """One dataset with what to train on it: digits on a CPU, the others are meant for a GPU."""

    name: str
    paper: str  # whose numbers stand beside ours
    learner: str
    second: str | None
    second_settings: Mapping[str, str] = field(default_factory=dict)
    trials: int = 4000  # the paper's; more are not made
    by_time: bool = True  # how many trials, and repeats of what is made from them, follows from the time of a call
    parts: tuple[str, ...] = PARTS
    budget: str = "30m"
    chosen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of `BY_CHOICE`, with their options
    thresholds: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)  # of removal


TITLES = {"digits": "digits", "mnist": "MNIST", "cifar100": "CIFAR-100", "imagenet": "ImageNet"}
SUBJECTS = {
    "digits": Subject(
        "digits",
        "cifar100",
        "mlp",
        "mlp",
        {"hidden": "32"},
        trials=2000,  # enough for halves that agree (docs/experiments.md)
        chosen={"loo": {"repeats": 500}, "long-tail": {"trials": 200, "repeats": 10}},
    ),
    "mnist": Subject("mnist", "mnist", "mlp@mnist", "inception@mnist-fast"),
    "cifar100": Subject("cifar100", "cifar100", "resnet9@fast", "resnet18@fast"),
    # What the paper does on it: Figs. 1 to 3 and 6. A model takes hours, so a call does what it can of all of them.
    "imagenet": Subject(
        "imagenet",
        "imagenet",
        "resnet50@imagenet",
        second=None,
        trials=2000,
        by_time=False,
        parts=("removal", "examples", "histogram", "pairs"),
        budget="24h",
    ),
}


def subject_of(name: str) -> Subject:
    if name not in SUBJECTS:
        raise InputError(f"There is nothing to reproduce for {name!r}; there are {', '.join(SUBJECTS)}.")
    return SUBJECTS[name]


def data_of(subject: Subject, place: str | None) -> str:
    """The data as a dataset's name: a path is a .npz file or the official files of the dataset."""
    if subject.name == "digits":
        if place is not None:
            raise InputError("The digits are built in; leave out `data`.")
        return subject.name
    if place is None:
        raise InputError(
            f"Say where the data are: `data='DIR'` with the files of {subject.name}, or `data='FILE.npz'`."
        )
    if ":" in place:
        return place
    return f"npz:{place}" if place.endswith(".npz") else f"{subject.name}:{place}"


def chosen_parts(subject: Subject, only: str | None) -> dict[str, int | None]:
    """The parts to do, in order, with how many models where that is said: 'removal,utility=30'."""
    allowed = [part for part in subject.parts if part not in BY_CHOICE or part in subject.chosen]
    if only is None:
        return dict.fromkeys(allowed)
    found: dict[str, int | None] = {}
    for text in (part.strip() for part in only.split(",")):
        name, equals, count = text.partition("=")
        if name not in allowed:
            raise InputError(f"There is no part {name!r} of this; there are {', '.join(allowed)}.")
        if equals and (not count.isdecimal() or name not in FEWEST):
            raise InputError(f"A number of models follows one of {', '.join(FEWEST)}, as removal=10. Got {text!r}.")
        if equals and int(count) < FEWEST[name]:
            raise InputError(f"The part {name} takes a number from {FEWEST[name]} on. Got {text!r}.")
        found[name] = int(count) if equals else None
    return {part: found[part] for part in allowed if part in found}


def seconds_of(budget: str) -> float:
    """'30m' -> 1800.0; '90', '90s', '1.5h'."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smh]?)", budget.strip())
    if match is None:
        raise InputError(f"The budget must be a time such as 30m, 90s or 1.5h, or 0. Got {budget!r} instead.")
    return float(match[1]) * _UNITS[match[2]]


def base_trials(budget: float, seconds_each: float, wanted: int) -> int:
    """The number of trials to begin with: what a share of the time allows, and no more than are wanted."""
    affordable = BASE_SHARE * budget / seconds_each if seconds_each > 0 else math.inf
    return int(min(max(affordable, FEWEST_TRIALS), wanted))


def more_repeats(there: int, most: int, left: float, seconds_each: float) -> int:
    """The number of repeats to have in the end, given what one more of them costs."""
    if left <= 0 or not seconds_each > 0:
        return there
    return max(there, min(most, there + int(left / seconds_each)))


def reserve(n_train: int, n_test: int, readings: int, budget: float) -> float:
    """Seconds to keep for what is only read and drawn: a minute for CIFAR-100's pairs, on two cores, and a little."""
    return min(0.25 * budget, readings * (5 + min(1e-7 * n_train * n_test, 600)))
