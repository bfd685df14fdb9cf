"""Limits on memorization: whom they cost in a world whose subpopulations are known (for `long_tail`).

All models are given the same data. They are stopped early, or trained with the gradient of each example clipped, with
noise on clipped gradients as in DP-SGD (Abadi et al. 2016), or with weight decay; or their smallest weights are pruned
after training; or the examples that are memorized most are dropped. As many random examples are dropped beside that:
less data is no limit on memorization, and what it costs is what anything may cost.

What is measured: points of accuracy lost on test examples by how often their subpopulation was seen, and by class.
Early stopping is compared with the longest training, everything else with models that are not limited. Strengths are
not comparable between kinds, so of each kind the one that costs nearly `TYPICAL` in all is looked at by size and class.

Failure cases. Learners without a setting (epochs, clip, noise, weight_decay, prune) cannot be limited so: the kind is
left out, with a warning. No privacy budget is accounted for. Dropping is by estimates, whose noise drops a few others.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.datasets import Dataset
from memfluence.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, SOFT, YELLOW, legend
from memfluence.errors import LearnerError, MemfluenceWarning
from memfluence.experiments._result import Spread, decimal, difference, points, spread
from memfluence.experiments._worlds import SIZES, Campaign, accuracies, size_names, times_seen
from memfluence.experiments.doing import Retraining
from memfluence.learners import Learner, resolve
from memfluence.runs import Run
from memfluence.seeding import generator, random_subset

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TYPICAL = 0.05  # of the accuracy lost: enough to tell who pays
KINDS = {
    "memorized": ("memorized dropped", ORANGE, "o"),
    "early_stopping": ("early stopping", BLUE, "s"),
    "clipping": ("clipping", GREEN, "^"),
    "noise": ("noise", SKY, "v"),
    "weight_decay": ("weight decay", PURPLE, "D"),
    "pruning": ("pruning", YELLOW, "P"),
    "random": ("random dropped", GREY, "X"),
}


def _settings(campaign: Campaign) -> dict[str, dict[str, dict[str, Any]]]:
    """Settings of the learner for each strength of each kind, by the name of the store."""
    at = campaign.noise_clip
    return {
        "early_stopping": {f"epochs-{count}": {"epochs": count} for count in campaign.epochs},
        "clipping": {f"clip-{clip:.12g}": {"clip": clip, "noise": 0.0} for clip in campaign.clips},
        "noise": {f"clip-{at:.12g}-noise-{noise:.12g}": {"clip": at, "noise": noise} for noise in campaign.noises},
        "weight_decay": {f"weight-decay-{decay:.12g}": {"weight_decay": decay} for decay in campaign.weight_decays},
        "pruning": {f"prune-{share:.12g}": {"prune": share} for share in campaign.prunes},
    }


def limited(campaign: Campaign, learner: Any, settings: Mapping[str, Any]) -> dict[str, Learner]:
    """The learner with settings that limit what it memorizes, by the name of the store, where it has such settings."""
    found: dict[str, Learner] = {}
    of = _settings(campaign)
    for what, limits in (
        ("Early stopping is", of["early_stopping"]),
        ("Clipping and noise are", of["clipping"] | of["noise"]),
        ("Weight decay is", of["weight_decay"]),
        ("Pruning is", of["pruning"]),
    ):
        try:
            found |= {part: resolve(learner, {**settings, **limit}) for part, limit in limits.items()}
        except LearnerError as error:
            warnings.warn(f"{what} left out: {error}", MemfluenceWarning, stacklevel=4)
    return found


def dropping(campaign: Campaign, data: Dataset, memorization: np.ndarray) -> Retraining:
    """Models on everything, without each share of the most memorized or of random examples, without the flipped.

    Of equal values the lower index goes first, and what is not known goes last.
    """
    order = np.argsort(-np.nan_to_num(memorization, nan=-np.inf), kind="stable")  # (n_train,)
    flipped = data.attributes["train_flipped"]
    masks, purposes = [], []

    def add(mask: np.ndarray, **purpose: Any) -> None:
        masks.append(mask)
        purposes.append(purpose)

    for repeat in range(campaign.repeats):
        add(np.ones(data.n_train, dtype=bool), arm="all", repeat=repeat)
    for share in campaign.drops:
        count = round(share * data.n_train)
        for repeat in range(campaign.repeats):
            kept = np.ones(data.n_train, dtype=bool)
            kept[order[:count]] = False
            add(kept, arm="memorized", share=share, repeat=repeat)
            at_random = random_subset(generator(campaign.seed, "resample", len(masks)), data.n_train, count)
            add(~at_random, arm="random", share=share, repeat=repeat)
    for repeat in range(campaign.repeats if flipped.any() else 0):
        add(~flipped, arm="flipped", share=float(flipped.mean()), repeat=repeat)
    return Retraining("long-tail", np.stack(masks), tuple(purposes), {"world": data.name}, campaign.seed)


Found = Sequence[tuple[Mapping[str, Any], Mapping[str, np.ndarray]]]  # of one kind: settings, accuracies


def limits(campaign: Campaign, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Accuracies under each limit, and what is lost; and by size and class what a typical loss is made of."""
    data = runs["removal"].dataset()
    whole = accuracies(runs["removal"], range(campaign.repeats))  # whose first models are those on everything
    found: dict[str, Found] = {
        kind: [(settings, accuracies(runs[name])) for name, settings in stores.items() if name in runs]
        for kind, stores in _settings(campaign).items()
    }
    if "drop" in runs:
        plan = dropping(campaign, data, runs["estimate"].estimate_memorization().value)
        for arm in ("memorized", "random"):
            found[arm] = [
                ({"share": share, "what": arm}, accuracies(runs["drop"], plan.rows(arm=arm, share=share)))
                for share in campaign.drops
            ]
    stopped = found["early_stopping"]
    against = {kind: stopped[-1][1] if kind == "early_stopping" and stopped else whole for kind in KINDS}
    entries = {
        kind: [{**settings, **_against(against[kind], parts)} for settings, parts in ones]
        for kind, ones in found.items()
    }
    free = [{"clip": 0.0, "noise": 0.0, **_against(whole, whole)}]
    return {
        "early_stopping": entries["early_stopping"],
        "clipping": [*free, *entries["clipping"], *entries["noise"]] if entries["clipping"] else [],
        "weight_decay": entries["weight_decay"],
        "pruning": entries["pruning"],
        "dropping": [one for arm in ("memorized", "random") for one in entries.get(arm, [])],
        "typical": [_typical(kind, found[kind], against[kind], data) for kind in KINDS if found.get(kind)],
    }


def _against(reference: Mapping[str, np.ndarray], parts: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Accuracies on parts of the data, and what they lost against the reference."""
    usual = ("singletons", "test_once", "test_often", "test")
    lost = {name: difference(reference[name], parts[name]) for name in usual}
    return {**{name: spread(parts[name]) for name in usual}, "lost": lost}


def _typical(kind: str, found: Found, reference: Mapping[str, np.ndarray], data: Dataset) -> dict[str, Any]:
    """The strength of a kind that costs nearly `TYPICAL`: what is lost by size and by class."""

    def lost(parts: Mapping[str, np.ndarray], name: str) -> Spread:
        return difference(reference[name], parts[name])

    settings, parts = min(found, key=lambda one: abs(lost(one[1], "test")["mean"] - TYPICAL))
    seen = times_seen(data)[data.attributes["test_subpopulation"]]  # (n_test,)
    return {
        "kind": kind,
        "strength": _strength(kind, settings),
        "lost": lost(parts, "test"),
        "by_size": [
            {
                "size": name,
                "test_examples": int(((seen >= low) & (seen <= high)).sum()),
                "lost": lost(parts, f"size {name}"),
            }
            for name, low, high in size_names()
        ],
        "by_class": [
            {
                "class": name,
                "training_examples": int((data.y_train == code).sum()),
                "seen_once": spread(seen[data.y_test == code] == 1)["mean"],
                "lost": lost(parts, f"class {name}"),
            }
            for code, name in enumerate(data.class_names)
        ],
    }


def _strength(kind: str, settings: Mapping[str, Any]) -> str:
    if kind == "early_stopping":
        epochs: int = settings["epochs"]
        return f"{epochs} epochs" if epochs > 1 else "1 epoch"
    if kind in ("clipping", "noise", "weight_decay"):
        return format(settings["clip" if kind == "clipping" else kind], "g")
    return format(settings["prune" if kind == "pruning" else "share"], ".0%")


def _of_kinds(numbers: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The entries of each kind."""
    clipped, dropped = numbers["clipping"], numbers["dropping"]
    return {
        "memorized": [one for one in dropped if one["what"] == "memorized"],
        "early_stopping": numbers["early_stopping"],
        "clipping": [one for one in clipped if one["clip"] and not one["noise"]],
        "noise": [one for one in clipped if one["noise"]],
        "weight_decay": numbers["weight_decay"],
        "pruning": numbers["pruning"],
        "random": [one for one in dropped if one["what"] == "random"],
    }


def draw_costs(axes: "Axes", numbers: Mapping[str, Any]) -> None:
    """Of each kind a line through its strengths: lost where the subpopulation was seen once, and more often."""
    for kind, entries in _of_kinds(numbers).items():
        often, once = (
            np.array([100 * one["lost"][part]["mean"] for one in entries]) for part in ("test_often", "test_once")
        )
        order = np.argsort(often)
        if len(order):
            words, colour, marker = KINDS[kind]
            axes.plot(often[order], once[order], color=colour, marker=marker, markersize=3.5, linewidth=1, label=words)
    most = 30
    axes.plot([0, most], [0, most], color=SOFT, linewidth=0.8, linestyle=":")
    axes.set_xlim(-1, most)
    axes.set_ylim(-3, 83)
    axes.set_xlabel("lost where seen more than once (points)")
    axes.set_ylabel("lost where seen once (points)")
    legend(axes, 2)


def draw_sizes(axes: "Axes", typical: Sequence[Mapping[str, Any]]) -> None:
    for one in typical:
        words, colour, marker = KINDS[one["kind"]]
        mean, error = ([100 * part["lost"][key] for part in one["by_size"]] for key in ("mean", "stderr"))
        label = f"{words} ({one['strength']}): {100 * one['lost']['mean']:.1f}"
        at = range(len(mean))
        axes.errorbar(at, mean, error, color=colour, marker=marker, markersize=3.5, linewidth=1, label=label)
    axes.set_xticks(range(len(typical[0]["by_size"])), [one["size"] for one in typical[0]["by_size"]])
    axes.axhline(0, color=SOFT, linewidth=0.5)
    axes.set_xlabel("training examples of the subpopulation")
    axes.set_ylabel("points of accuracy lost")
    legend(axes, 2)


def draw_classes(axes: "Axes", typical: Sequence[Mapping[str, Any]]) -> None:
    for one in typical:
        words, colour, marker = KINDS[one["kind"]]
        at, mean = _by_class(one)
        error = [100 * part["lost"]["stderr"] for part in one["by_class"]]
        label = f"{words}: {decimal(correlation(at, mean), 2)}"
        axes.errorbar(
            at, mean, error, color=colour, marker=marker, markersize=3.5, linewidth=0.5, linestyle="none", label=label
        )
        known = ~np.isnan(at + mean)
        if known.any() and np.ptp(at[known]):
            slope, start = np.polyfit(at[known], mean[known], 1)
            ends = np.array([at[known].min(), at[known].max()])
            axes.plot(ends, start + slope * ends, color=colour, linewidth=0.8)
    axes.axhline(0, color=SOFT, linewidth=0.5)
    axes.set_xlabel("test data of the class that was seen once (%)")
    axes.set_ylabel("points of accuracy lost")
    legend(axes, 2)


def _by_class(one: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Of each class the test data that was seen once, and what is lost, in percent; NaN where it has no test data."""
    found = [(part["seen_once"], part["lost"]["mean"]) for part in one["by_class"]]
    at, lost = 100 * np.array(found, dtype=np.float64).T  # null is NaN
    return at, lost


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Pearson's, of what is known; NaN where one of them does not vary."""
    one, other = np.stack([one, other])[:, ~np.isnan(one + other)]
    return float(np.corrcoef(one, other)[0, 1]) if len(one) and np.ptp(one) and np.ptp(other) else float("nan")


def say_limits(numbers: Mapping[str, Any]) -> list[str]:
    """A line for each kind: points lost in all, where seen once, and where seen most often."""
    return [
        f"{KINDS[one['kind']][0]} ({one['strength']}): {points(one['lost'], digits=1)} points of accuracy lost,"
        f" {points(one['by_size'][0]['lost'], digits=1)} where the subpopulation was seen once,"
        f" {points(one['by_size'][-1]['lost'], digits=1)} where it was seen {SIZES[-1][0]} times or more"
        for one in numbers["typical"]
    ]


def report_limits(numbers: Mapping[str, Any]) -> list[str]:
    """A sentence on clipping and noise, and a table of what each kind costs by size and by class."""
    typical = numbers.get("typical")  # which older results lack
    lines = report_clipping(numbers.get("clipping", []))
    if not typical:
        return lines
    ends = [which(typical[0]["by_class"], key=lambda one: one["training_examples"]) for which in (min, max)]
    header = ["limit", "all", *(f"seen {one['size']}" for one in typical[0]["by_size"])]
    header += [f"class with {one['training_examples']}" for one in ends]
    header += ["r over classes"]
    rows = []
    for one in typical:
        of = {part["class"]: part for part in one["by_class"]}
        parts = [one, *one["by_size"], *(of[end["class"]] for end in ends)]
        lost = [points(part["lost"], digits=1) for part in parts]
        rows.append([f"{KINDS[one['kind']][0]} ({one['strength']})", *lost, decimal(correlation(*_by_class(one)), 2)])
    return [
        *lines,
        "",
        f"Points of accuracy lost (± standard error, {typical[0]['lost']['n']} models each) where a limit costs about"
        f" {100 * TYPICAL:g} points in all, by how often the subpopulation was seen, and for the smallest and the"
        " largest class; r is the correlation, over the classes, of what is lost with the share of the class's test"
        " data that was seen once:",
        "",
        *markdown(header, rows),
    ]


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table."""
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]


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
