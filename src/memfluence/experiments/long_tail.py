"""The long tail itself: the theory that the paper tests (Feldman 2019), in worlds where the subpopulations are known.

The theory. Data are a mixture of subpopulations whose frequencies have a long tail, so many of them are seen once in a
training set (singletons). Nothing about a subpopulation's label can be told from the others: whoever does not memorize
the singleton gets the test examples of its subpopulation right by chance alone. So not memorizing singletons costs

    the share of test data whose subpopulation was seen once  *  (1 - chance),

and that is large where the frequencies have a long tail and n is not large against the number of subpopulations.

What is measured, in each world `longtail?exponent=...&subpopulations=...&n_train=...` (one of the three is varied at a
time): memorization by the size of the subpopulation (trials on random 70% subsets); the accuracy that is lost when
memorization of singletons is prevented by their removal, against the removal of as many random examples; and how much
one training example explains: of the errors on the test examples of singleton subpopulations that models without the
singleton make, the share that is gone in models with it. In the first world, too, what is lost when memorization is
limited in models that are given everything: by early stopping, by clipping the gradient of each example, and by noise
on clipped gradients, as in DP-SGD (Abadi et al. 2016). How private that makes a model is not said: no privacy budget is
accounted for.

Variance. Accuracies have the spread over repeats (unpaired), memorization that over examples of one size, the explained
share a jackknife over blocks of trials. A world is one draw of data; another seed gives another.

Failure cases. A world without singletons, or without test examples of theirs, says nothing about them: null.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from memfluence.datasets import Dataset
from memfluence.errors import InputError
from memfluence.estimators import memorization
from memfluence.experiments._checks import check_repeats
from memfluence.experiments._result import Result
from memfluence.experiments._retraining import Retraining
from memfluence.experiments._statistics import BLOCKS, difference, jackknife, spread
from memfluence.records import Trials
from memfluence.runs import Run
from memfluence.seeding import generator, random_subset
from memfluence.store import unpack

__all__ = ["Campaign", "World", "plan", "retraining", "summarize"]

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

    @property
    def dataset(self) -> str:
        """Its name for `datasets.load`."""
        options = {name: value for name, value in asdict(self).items() if name != "varied"}
        return "longtail?" + "&".join(f"{name}={value}" for name, value in options.items())

    @property
    def name(self) -> str:
        """Of its directory."""
        return f"exponent{self.exponent:g}-subpopulations{self.subpopulations}-n{self.n_train}"


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
    seed: int

    @property
    def stopped(self) -> dict[str, dict[str, Any]]:
        """What the learner is set to for early stopping, by the name of the store."""
        return {f"epochs-{count}": {"epochs": count} for count in self.epochs}

    @property
    def clipped(self) -> dict[str, dict[str, Any]]:
        """What it is set to for clipping and noise."""
        clipped = {f"clip-{clip:.12g}": {"clip": clip, "noise": 0.0} for clip in self.clips}
        at = self.noise_clip
        return clipped | {f"clip-{at:.12g}-noise-{noise:.12g}": {"clip": at, "noise": noise} for noise in self.noises}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def plan(
    exponents: Sequence[float] = (1.0, 0.5, 0.75, 1.25, 1.5),
    subpopulations: Sequence[int] = (500, 125, 250, 1000, 2000),
    sizes: Sequence[int] = (1000, 250, 500, 2000),
    *,
    trials: int = 300,
    repeats: int = 20,
    epochs: Sequence[int] = (1, 2, 3, 5, 8, 12, 20, 30),
    clips: Sequence[float] = (0.03, 0.1, 0.3, 1, 2, 3, 5, 10),  # from singletons by chance to nothing lost
    noises: Sequence[float] = (0.03, 0.1, 0.2, 0.4, 1, 3),  # the other way round
    noise_clip: float = 5.0,  # which alone costs little
    seed: int = 0,
) -> Campaign:
    """The base world has the first of the first three lists; each of the others differs from it in one of the three."""
    check_repeats(repeats)
    if trials < 2 * BLOCKS:
        raise InputError(f"The 'trials' parameter must be an integer >= {2 * BLOCKS}. Got {trials!r} instead.")
    if not (exponents and subpopulations and sizes):
        raise InputError("Give at least one Zipf exponent, one number of subpopulations and one training set size.")
    if not all(isinstance(one, int) and one >= 1 for one in epochs):
        raise InputError(f"The 'epochs' parameter must be integers from 1 on. Got {list(epochs)} instead.")
    for name, given in (("clips", clips), ("noises", noises), ("noise_clip", [noise_clip])):
        if not all(0 < one < math.inf for one in given):
            raise InputError(f"The '{name}' parameter must be finite and above 0. Got {given} instead.")
    base = World(exponents[0], subpopulations[0], sizes[0], seed=seed)
    worlds = [base]
    worlds += [World(one, base.subpopulations, base.n_train, "exponent", seed=seed) for one in exponents[1:]]
    worlds += [World(base.exponent, one, base.n_train, "subpopulations", seed=seed) for one in subpopulations[1:]]
    worlds += [World(base.exponent, base.subpopulations, one, "n_train", seed=seed) for one in sizes[1:]]
    return Campaign(
        tuple(worlds),
        trials,
        repeats,
        tuple(sorted(set(epochs))),
        tuple(sorted({*clips, noise_clip} if noises else set(clips))),  # what noise adds is seen against clipping alone
        tuple(sorted(set(noises))),
        noise_clip,
        seed,
    )


def retraining(dataset: Dataset, repeats: int, seed: int) -> Retraining:
    """Models on everything, without the singletons, and without as many random examples."""
    single = _seen(dataset)[dataset.attributes["train_subpopulation"]] == 1  # (n_train,) bool
    kept = int((~single).sum())
    masks: list[np.ndarray] = []
    purposes = []
    for arm in ARMS:
        for repeat in range(repeats):
            random = random_subset(generator(seed, "resample", len(masks)), dataset.n_train, kept)
            masks.append({"all": np.ones_like(single), "singletons": ~single, "random": random}[arm])
            purposes.append({"arm": arm, "repeat": repeat})
    return Retraining("long-tail", np.stack(masks), tuple(purposes), {"world": dataset.name, "repeats": repeats}, seed)


def summarize(campaign: Campaign, worlds: Mapping[str, Mapping[str, Run]]) -> Result:
    """Runs of each world by its name: "estimate", "removal", and those of the campaign's `stopped` and `clipped`."""
    import pandas as pd

    found = [_world(world, campaign, worlds[world.name]) for world in campaign.worlds]
    base, runs = campaign.worlds[0], worlds[campaign.worlds[0].name]
    numbers = {
        "worlds": found,
        "early_stopping": _early_stopping(campaign, runs),
        "clipping": _clipping(campaign, runs),
        "tail": _tail(runs["estimate"].dataset()),
    }
    rows = [
        {
            **{name: one[name] for name in ("exponent", "subpopulations", "n_train", "varied")},
            **{f"{name}_{kind}": one[name][kind] for name in ("lost", "lost_random") for kind in ("mean", "sd")},
            **{name: one[name] for name in ("singletons", "test_share", "predicted_loss", "explained")},
            "size": size["size"],
            "memorization": size["memorization"]["mean"],
            "memorization_sd": size["memorization"]["sd"],
            "examples": size["memorization"]["n"],
        }
        for one in found
        for size in one["by_size"]
    ]
    others = "world" if len(found) == 2 else "worlds"
    title = (
        f"longtail: {base.n_train:,} training examples of {base.subpopulations:,} subpopulations with Zipf exponent"
        f" {base.exponent:g}, and {len(found) - 1} other {others};\n{campaign.trials:,} models for memorization,"
        f" {campaign.repeats} for each accuracy, in each world"
    )
    return Result("long-tail", title, numbers, pd.DataFrame(rows), campaign.to_json())


def _world(world: World, campaign: Campaign, runs: Mapping[str, Run]) -> dict[str, Any]:
    data, estimate, removal = runs["estimate"].dataset(), runs["estimate"], runs["removal"]
    seen, train = _seen(data), data.attributes["train_subpopulation"]
    once = seen == 1  # (subpopulations,)
    sides = _arms(campaign, data, removal.trials)
    value = memorization(estimate.trials, estimate.info.kinds).value  # (n_train,)
    share = float((data.attributes["subpopulation_frequency"] * once).sum())
    return {
        **{name: getattr(world, name) for name in ("exponent", "subpopulations", "n_train", "varied", "seed")},
        "singletons": int(once[train].sum()),
        "never_seen": int((seen == 0).sum()),
        "test_share": share,
        "test_examples": int(once[data.attributes["test_subpopulation"]].sum()),
        "predicted_loss": share * (1 - 1 / data.n_classes),
        "accuracy": spread(sides["all"]),
        "lost": difference(sides["all"], sides["singletons"]),
        "lost_random": difference(sides["all"], sides["random"]),
        "by_size": [
            {
                "size": f"{low}" if low == high else f"{low}-{high}" if high < 10**9 else f"{low}+",
                "memorization": spread(value[(seen[train] >= low) & (seen[train] <= high) & ~np.isnan(value)]),
            }
            for low, high in SIZES
        ],
        **_explained(data, estimate.trials),
    }


def _seen(data: Dataset) -> np.ndarray:
    """How often each subpopulation is in the training set, (subpopulations,)."""
    return np.bincount(data.attributes["train_subpopulation"], minlength=len(data.attributes["subpopulation_class"]))


def _arms(campaign: Campaign, data: Dataset, trials: Trials) -> dict[str, np.ndarray]:
    """Test accuracy of each model that is there, by its arm."""
    accuracy = dict(zip(trials.numbers.tolist(), unpack(trials.test_correct, trials.n_test).mean(axis=1)))
    planned = retraining(data, campaign.repeats, campaign.seed)
    return {arm: np.array([accuracy[k] for k in planned.rows(arm=arm) if k in accuracy]) for arm in ARMS}


def _explained(data: Dataset, trials: Trials) -> dict[str, float]:
    """Of the errors on test examples of singletons without the singleton, the share that is gone with it."""
    train, test = data.attributes["train_subpopulation"], data.attributes["test_subpopulation"]
    once = _seen(data) == 1
    columns = np.flatnonzero(once[test])  # test examples of singleton subpopulations
    carriers = {int(train[i]): i for i in np.flatnonzero(once[train])}
    rows = np.array([carriers[int(test[j])] for j in columns], dtype=np.int64)  # the singleton of each
    kept = unpack(trials.mask, trials.n_train)[:, rows]  # (trials, pairs)
    wrong = ~unpack(trials.test_correct, trials.n_test)[:, columns]

    def share(which: np.ndarray) -> float:
        with np.errstate(invalid="ignore", divide="ignore"):
            rates = [(wrong & arm)[which].sum(0) / arm[which].sum(0) for arm in (kept, ~kept)]
            known = ~np.isnan(rates[0] + rates[1])
            return float(1 - rates[0][known].sum() / rates[1][known].sum()) if known.any() else float("nan")

    blocks = np.arange(len(kept)) % BLOCKS
    stderr = jackknife([share(blocks != block) for block in range(BLOCKS)])
    return {"explained": share(blocks >= 0), "explained_stderr": stderr, "pairs": len(columns)}


def _early_stopping(campaign: Campaign, runs: Mapping[str, Run]) -> list[dict[str, Any]]:
    """Models on all the data by when training stopped, against the longest training."""
    found = {name: _by_seen(runs[name]) for name in campaign.stopped if name in runs}
    longest = found.get(f"epochs-{max(campaign.epochs, default=0)}", {})
    return [{**campaign.stopped[name], **_against(longest, parts)} for name, parts in found.items()]


def _clipping(campaign: Campaign, runs: Mapping[str, Run]) -> list[dict[str, Any]]:
    """Models on all the data by how gradients are clipped and made noisy, against those without (first in the list)."""
    found = {name: _by_seen(runs[name]) for name in campaign.clipped if name in runs}
    if not found:
        return []
    without = _by_seen(runs["removal"], first=campaign.repeats)  # whose first models are those on everything
    free = {"clip": 0.0, "noise": 0.0, **_against(without, without)}
    return [free, *({**campaign.clipped[name], **_against(without, parts)} for name, parts in found.items())]


def _against(reference: Mapping[str, np.ndarray], parts: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Accuracies on parts of the data, and what they lost against the reference."""
    lost = {name: difference(reference[name], values) for name, values in parts.items()}
    return {**{name: spread(values) for name, values in parts.items()}, "lost": lost}


def _by_seen(run: Run, first: int | None = None) -> dict[str, np.ndarray]:
    """Accuracy of each model, (models,), of all or of the first trials: on the singletons themselves, on test examples
    whose subpopulation was seen once or more often, and on all of them.
    """
    data, trials = run.dataset(), run.trials
    seen = _seen(data)
    of_train, of_test = (seen[data.attributes[f"{split}_subpopulation"]] for split in ("train", "test"))
    chosen = slice(None) if first is None else trials.numbers < first
    train = unpack(trials.train_correct, trials.n_train)[chosen]
    test = unpack(trials.test_correct, trials.n_test)[chosen]
    parts = {
        "singletons": train[:, of_train == 1],
        "test_once": test[:, of_test == 1],
        "test_often": test[:, of_test > 1],
        "test": test,
    }
    return {name: part.mean(axis=1) if part.shape[1] else np.empty(0) for name, part in parts.items()}


def _tail(data: Dataset) -> dict[str, Any]:
    """The subpopulations of a world, the most frequent first."""
    return {"frequency": data.attributes["subpopulation_frequency"].tolist(), "seen": _seen(data).tolist()}
