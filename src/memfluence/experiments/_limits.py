"""Limits on memorization in models that are given everything: early stopping, clipping, noise (for `long_tail`).

Models are stopped early, or trained with the gradient of each example clipped, or with noise on clipped gradients, as
in DP-SGD (Abadi et al. 2016). Each kind is compared with the models that it limits least: the longest training, and
training without clipping. How private a limit makes a model is not said: no privacy budget is accounted for.

Failure cases. Learners without the settings epochs, clip and noise cannot be limited so: the kind is left out, with a
warning.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.datasets import Dataset
from memfluence.drawing import BLUE, GREEN, INK, ORANGE, curve
from memfluence.errors import LearnerError, MemfluenceWarning
from memfluence.experiments._result import decimal, difference, points, spread
from memfluence.learners import Learner, resolve
from memfluence.runs import Run
from memfluence.store import unpack

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from memfluence.experiments.long_tail import Campaign


def _stopped(campaign: "Campaign") -> dict[str, dict[str, Any]]:
    """Settings for early stopping, by the name of the store."""
    return {f"epochs-{count}": {"epochs": count} for count in campaign.epochs}


def _clipped(campaign: "Campaign") -> dict[str, dict[str, Any]]:
    """Settings for clipping and noise, by the name of the store."""
    clipped = {f"clip-{clip:.12g}": {"clip": clip, "noise": 0.0} for clip in campaign.clips}
    at = campaign.noise_clip
    return clipped | {f"clip-{at:.12g}-noise-{noise:.12g}": {"clip": at, "noise": noise} for noise in campaign.noises}


def limited(campaign: "Campaign", learner: Any, settings: Mapping[str, Any]) -> dict[str, Learner]:
    """The learner with settings that limit what it memorizes, by the name of the store, where it has such settings."""
    found: dict[str, Learner] = {}
    for what, limits in (
        ("Early stopping is", _stopped(campaign)),
        ("Clipping and noise are", _clipped(campaign)),
    ):
        try:
            found |= {part: resolve(learner, {**settings, **limit}) for part, limit in limits.items()}
        except LearnerError as error:
            warnings.warn(f"{what} left out: {error}", MemfluenceWarning, stacklevel=4)
    return found


def early_stopping(campaign: "Campaign", runs: Mapping[str, Run]) -> list[dict[str, Any]]:
    """Models on all the data by when training stopped, against the longest training."""
    found = {name: _by_seen(runs[name]) for name in _stopped(campaign) if name in runs}
    longest = found.get(f"epochs-{max(campaign.epochs, default=0)}", {})
    return [{**_stopped(campaign)[name], **_against(longest, parts)} for name, parts in found.items()]


def clipping(campaign: "Campaign", runs: Mapping[str, Run]) -> list[dict[str, Any]]:
    """Models on all the data by how gradients are clipped and made noisy, against those without (first in the list)."""
    found = {name: _by_seen(runs[name]) for name in _clipped(campaign) if name in runs}
    if not found:
        return []
    without = _by_seen(runs["removal"], first=campaign.repeats)  # whose first models are those on everything
    free = {"clip": 0.0, "noise": 0.0, **_against(without, without)}
    return [free, *({**_clipped(campaign)[name], **_against(without, parts)} for name, parts in found.items())]


def _against(reference: Mapping[str, np.ndarray], parts: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Accuracies on parts of the data, and what they lost against the reference."""
    lost = {name: difference(reference[name], values) for name, values in parts.items()}
    return {**{name: spread(values) for name, values in parts.items()}, "lost": lost}


def _by_seen(run: Run, first: int | None = None) -> dict[str, np.ndarray]:
    """Accuracy of each model, (models,), of all or of the first trials: on the singletons themselves, on test examples
    whose subpopulation was seen once or more often, and on all of them.
    """
    data, trials = run.dataset(), run.trials
    seen = times_seen(data)
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


def times_seen(data: Dataset) -> np.ndarray:
    """The number of training examples of each subpopulation, (subpopulations,)."""
    return np.bincount(data.attributes["train_subpopulation"], minlength=len(data.attributes["subpopulation_class"]))


def draw_stopping(axes: "Axes", stopped: list[dict[str, Any]]) -> None:
    at = [one["epochs"] for one in stopped]
    _accuracies(axes, stopped, at, [str(one) for one in at])
    if at:
        axes.legend(frameon=False, fontsize=7, loc="lower right")
    axes.set_xlabel("epochs of training (early stopping)")
    ask(axes, "4  Whom does early stopping cost?")


def draw_clips(axes: "Axes", clipped: list[dict[str, Any]]) -> None:
    largest = max(one["clip"] for one in clipped)
    at = [one["clip"] or 2.5 * largest for one in clipped]  # no clipping has a place on the right
    _accuracies(axes, clipped, at, [f"{one['clip']:g}" if one["clip"] else "none" for one in clipped])
    axes.set_xlabel("largest norm of an example's gradient (clipping)")
    ask(axes, "5  Whom does clipping gradients cost?")


def draw_noises(axes: "Axes", clipping: list[dict[str, Any]], clip: float) -> None:
    smallest = min((one["noise"] for one in clipping if one["noise"]), default=1.0)
    noisy = [one for one in clipping if one["clip"] == clip]
    at = [one["noise"] or smallest / 2.5 for one in noisy]  # and so has no noise
    _accuracies(axes, noisy, at, [f"{one['noise']:g}" if one["noise"] else "none" for one in noisy])
    axes.invert_xaxis()  # as in the other panels, less is memorized on the left
    axes.set_xlabel(f"noise on gradients clipped at {clip:g}, in multiples of that")
    ask(axes, "6  Whom does noise on gradients cost?")


def _accuracies(axes: "Axes", limited: list[dict[str, Any]], at: list[float], labels: list[str]) -> None:
    """On what was seen once and on the rest, by where each limit has its place; the strictest one is on the left."""
    order = np.argsort(at)
    for key, label, colour in (
        ("test_often", "test, seen more than once", BLUE),
        ("singletons", "training, seen once", ORANGE),
        ("test_once", "test, seen once", GREEN),
    ):
        mean, sd = (np.array([100 * one[key][kind] for one in limited])[order] for kind in ("mean", "sd"))
        curve(axes, np.array(at)[order], mean, sd, colour=colour, label=label)
    if at:
        axes.set_xscale("log")
        axes.set_xticks(at, labels)
        axes.minorticks_off()
    axes.set_ylim(0, 103)
    axes.set_ylabel("accuracy (%)")


def ask(axes: "Axes", question: str) -> None:
    """The title of a panel."""
    axes.set_title(question, fontsize=8, color=INK, loc="left", weight="bold")


def report_clipping(clipping: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence on clipping and noise where their cost to what was seen once differs most from that to the rest."""

    def apart(one: Mapping[str, Any]) -> float:
        return float(one["lost"]["test_once"]["mean"] - one["lost"]["test_often"]["mean"])

    known = [one for one in clipping[1:] if decimal(one["lost"]["test_once"]["mean"]) != "-"]
    kinds = ([one for one in known if bool(one["noise"]) == noisy] for noisy in (False, True))
    costs = []
    for one in [max(kind, key=apart) for kind in kinds if kind]:
        noise = f" and noise of {one['noise']:g} times that" if one["noise"] else ""
        once, often = (points(one["lost"][part]) for part in ("test_once", "test_often"))
        costs.append(
            f"with gradients clipped at {one['clip']:g}{noise}, {once} points are lost on test examples whose"
            f" subpopulation was seen once, and {often} on those whose subpopulation was seen more often"
        )
    if not costs:
        return []
    return [
        f"Where memorization is limited in models that are given everything: {'; '.join(costs)} (± standard error,"
        f" {known[0]['test_once']['n']} models each)."
    ]
