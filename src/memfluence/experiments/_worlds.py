"""Worlds of `long_tail`: data whose subpopulations are known, what is planned for them, accuracies by subpopulation."""

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from memfluence.datasets import Dataset
from memfluence.experiments.doing import Retraining
from memfluence.runs import Run
from memfluence.seeding import generator, random_subset
from memfluence.store import unpack

SIZES = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, 20), (21, 10**9))  # of subpopulations, in the training set
ARMS = ("all", "singletons", "random")


@dataclass(frozen=True)
class World:
    """One dataset."""

    exponent: float
    subpopulations: int
    n_train: int
    varied: str = "base"
    n_test: int = 4000
    seed: int = 0
    flip: float = 0.0

    @property
    def dataset(self) -> str:
        """Its name for `datasets.load`."""
        left_out = {"varied"} if self.flip else {"varied", "flip"}
        options = {name: value for name, value in asdict(self).items() if name not in left_out}
        return "longtail?" + "&".join(f"{name}={value}" for name, value in options.items())

    @property
    def name(self) -> str:
        """Of its directory."""
        drawn_anew = f"-flip{self.flip:g}-seed{self.seed}" if self.varied == "flip" else ""
        return f"exponent{self.exponent:g}-subpopulations{self.subpopulations}-n{self.n_train}{drawn_anew}"


@dataclass(frozen=True)
class Campaign:
    """The worlds, and how many models each gets; the first world is the base of the others."""

    worlds: tuple[World, ...]
    trials: int
    repeats: int
    epochs: tuple[int, ...]  # at which training is stopped early
    clips: tuple[float, ...]  # norms at which gradients are clipped, without noise
    noises: tuple[float, ...]  # multipliers of the noise on gradients that are clipped at `noise_clip`
    noise_clip: float
    weight_decays: tuple[float, ...]
    prunes: tuple[float, ...]  # shares of the weights
    drops: tuple[float, ...]  # shares of the training examples
    margins: bool
    seed: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def times_seen(data: Dataset) -> np.ndarray:
    """How many training examples of each subpopulation have the right label, (subpopulations,)."""
    right = data.attributes["train_subpopulation"][~data.attributes["train_flipped"]]
    return np.bincount(right, minlength=len(data.attributes["subpopulation_class"]))


def size_names() -> Iterator[tuple[str, int, int]]:
    """The sizes of subpopulations as a reader knows them, with the least and the most examples."""
    for low, high in SIZES:
        yield f"{low}" if low == high else f"{low}-{high}" if high < 10**9 else f"{low}+", low, high


def accuracies(run: Run, rows: Collection[int] | None = None) -> dict[str, np.ndarray]:
    """Accuracies of each model of a world, (models,), of all or of some trials.

    On the singletons themselves (singletons), on test examples whose subpopulation was seen once (test_once) or more
    often (test_often), on all of them (test), on those of each size (size 4-5) and of each class (class 7).
    """
    data, trials = run.dataset(), run.trials
    chosen = slice(None) if rows is None else np.isin(trials.numbers, list(rows))
    of_train, of_test = (times_seen(data)[data.attributes[f"{split}_subpopulation"]] for split in ("train", "test"))
    test = unpack(trials.test_correct, trials.n_test)[chosen]
    which = {"test_once": of_test == 1, "test_often": of_test > 1, "test": of_test >= 0}
    which |= {f"size {name}": (of_test >= low) & (of_test <= high) for name, low, high in size_names()}
    which |= {f"class {name}": data.y_test == code for code, name in enumerate(data.class_names)}
    parts = {name: test[:, of] for name, of in which.items()}
    parts["singletons"] = unpack(trials.train_correct, trials.n_train)[chosen][:, of_train == 1]
    return {name: part.mean(axis=1) if part.shape[1] else np.empty(0) for name, part in parts.items()}


def retraining(dataset: Dataset, repeats: int, seed: int) -> Retraining:
    """Models on everything, without the singletons, and without as many random examples."""
    single = times_seen(dataset)[dataset.attributes["train_subpopulation"]] == 1  # (n_train,) bool
    kept = int((~single).sum())
    masks: list[np.ndarray] = []
    purposes = []
    for arm in ARMS:
        for repeat in range(repeats):
            random = random_subset(generator(seed, "resample", len(masks)), dataset.n_train, kept)
            masks.append({"all": np.ones_like(single), "singletons": ~single, "random": random}[arm])
            purposes.append({"arm": arm, "repeat": repeat})
    return Retraining("long-tail", np.stack(masks), tuple(purposes), {"world": dataset.name, "repeats": repeats}, seed)
