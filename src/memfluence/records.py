"""Records that travel between the rooms: the plan, a trial, its outcome, and many outcomes at once.

Notation, here and everywhere: `n_train`, `n_test`, `trials`, `subset_size`, `mask` (trials, n_train); `keep` is
only ever the fraction, and subset_size = round(keep * n_train).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from memfluence.errors import one_line
from memfluence.seeding import Stream, generator, integer_seed

LONGEST_MESSAGE = 2_000  # letters of an error that are kept; some libraries raise pages
LONGEST_TRACEBACK = 20_000

# Columns a run may record beside correctness, and how each value is stored.
EXTRA_COLUMNS: dict[str, tuple[str, ...]] = {
    "prediction": ("train_prediction", "test_prediction"),
    "margin": ("train_margin", "test_margin"),
    "logit": ("train_logit", "test_logit"),
    "test_margin": ("test_margin",),  # a sixth of the size where there are five training examples to one of test
    "score": ("train_score", "test_score"),  # an outcome of the learner's own, in place of right and wrong
}
GIVEN = "given"  # in a learner's `record` where nobody chose: margins, if it gives scores


def canonical_json(value: Any) -> str:
    """One text per value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _bounded(text: str, longest: int) -> str:
    """A long text's beginning and end; lone surrogates, as in names of files that are not UTF-8, spelled out."""
    if len(text) > longest:
        half = longest // 2
        text = f"{text[:half]} [... {len(text) - 2 * half:,} letters ...] {text[-half:]}"
    return text.encode(errors="backslashreplace").decode()


def digest(value: Any) -> str:
    """32 hex digits that identify a JSON-able value."""
    return hashlib.blake2b(canonical_json(value).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Kind:
    """One kind of trial within a plan; estimates never pool trials of different kinds.

    `arm` says which side of the comparison its trials serve: "both" (most designs), "in" and "out" (the lemma's trials
    of size m and of size m - 1), or "neither" (sizes are uniform, so that the two sides differ in size).
    """

    keep: float | None
    subset_size: int | None  # None where it varies from trial to trial
    arm: Literal["both", "in", "out", "neither"] = "both"

    def to_json(self) -> dict[str, Any]:
        return {"keep": self.keep, "subset_size": self.subset_size, "arm": self.arm}


@dataclass(frozen=True)
class Plan:
    """Which subsets are drawn, for ever: independent of how many trials are run, where, or in what order."""

    n_train: int
    design: str
    keep: tuple[float, ...]
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "n_train": self.n_train,
            "design": self.design,
            "keep": list(self.keep),
            "seed": self.seed,
            "options": dict(self.options),
        }

    @cached_property
    def digest(self) -> str:
        return digest(self.to_json())


@dataclass(frozen=True, eq=False)
class Trial:
    """One model to train: a subset, and seeds for everything else that is random about it."""

    number: int
    kind: int
    mask: np.ndarray  # (n_train,) bool
    root: int

    @cached_property
    def kept(self) -> np.ndarray:
        """Indices of the kept examples, ascending."""
        return np.flatnonzero(self.mask)

    @property
    def seed(self) -> int:
        """One integer for learners that take one."""
        return integer_seed(self.root, "learner", self.number)

    def generator(self, stream: Stream) -> np.random.Generator:
        return generator(self.root, stream, self.number)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Everything that one trained model got right. `extras` holds the optional columns of `EXTRA_COLUMNS`.

    Where the learner has an outcome of its own (`train_score`, `test_score`) nothing is right or wrong: all bits are 0.
    """

    trial: int
    kind: int
    mask: np.ndarray  # (n_train,) bool
    train_correct: np.ndarray  # (n_train,) bool
    test_correct: np.ndarray  # (n_test,) bool
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)
    seconds: float = float("nan")
    host: str = ""
    device: str = ""
    process: int = -1  # its number on the host
    finished: float = float("nan")  # seconds since 1970

    @property
    def has_scores(self) -> bool:
        """Whether the learner gives a score of its own for each example."""
        return "train_score" in self.extras

    @property
    def means(self) -> tuple[float, float, float]:
        """The mean outcome on kept, left-out and test examples: shares right, or mean scores; NaN of an empty set."""
        on_train, on_test = self.train_correct, self.test_correct
        if self.has_scores:
            on_train, on_test = (self.extras[f"{split}_score"].astype(np.float64) for split in ("train", "test"))
        kept, left_out, test = (
            float(one.mean()) if len(one) else float("nan")
            for one in (on_train[self.mask], on_train[~self.mask], on_test)
        )
        return kept, left_out, test


@dataclass(frozen=True)
class Failure:
    """A trial whose learner raised. Its texts are Unicode of bounded length, whatever was raised."""

    trial: int
    message: str
    traceback: str = ""

    def __post_init__(self) -> None:
        for name, longest in (("message", LONGEST_MESSAGE), ("traceback", LONGEST_TRACEBACK)):
            object.__setattr__(self, name, _bounded(getattr(self, name), longest))

    @property
    def summary(self) -> str:
        """The message on one line of bounded length that a terminal shows and does not obey."""
        line = one_line(" ".join(self.message.split()))
        return line if len(line) <= 200 else f"{line[:197]}..."


@dataclass(frozen=True)
class PartWay:
    """The progress of a trial that is still in training. It is shown, never stored."""

    trial: int
    fraction: float
    start: float = 0.0  # the fraction that a checkpoint brought along


@dataclass(frozen=True, eq=False)
class Trials:
    """Many outcomes, bit-packed, one row per trial, ascending by trial number.

    Bits are packed along examples in little order (`np.packbits(..., bitorder="little")`), so example i of
    a row is bit i % 8 of byte i // 8; padding bits are 0.
    """

    numbers: np.ndarray  # (trials,) int64
    kinds: np.ndarray  # (trials,) int16
    mask: np.ndarray  # (trials, ceil(n_train / 8)) uint8
    train_correct: np.ndarray  # (trials, ceil(n_train / 8)) uint8
    test_correct: np.ndarray  # (trials, ceil(n_test / 8)) uint8
    n_train: int
    n_test: int
    repeats: int = 1  # models per mask: those of one number // repeats share one
    block: int = 1  # balanced masks are dealt in blocks: those of one number // block were dealt together

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def nbytes(self) -> int:
        return self.mask.nbytes + self.train_correct.nbytes + self.test_correct.nbytes

    @property
    def cluster(self) -> int:
        """Trials are independent of each other unless they share number // cluster."""
        return max(self.repeats, self.block)

    def select(self, rows: np.ndarray) -> "Trials":
        """The same columns of some rows (a boolean mask or ascending positions)."""
        columns = ("numbers", "kinds", "mask", "train_correct", "test_correct")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})
