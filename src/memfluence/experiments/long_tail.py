"""The long tail itself: the theory that the paper tests (Feldman 2019), in worlds where the subpopulations are known.
The first exponent, number and size are the base world; each of the others differs from it in one thing. In the base
world memorization is also limited: by early stopping, by clipping and noise as in DP-SGD, by weight decay and by
pruning, for learners that have the settings, as mlp has; and by dropping what is memorized most. Then a share of the
training labels is flipped, in some worlds that are drawn like the base world.

The theory. Data are a mixture of subpopulations whose frequencies have a long tail, so many of them are seen once in a
training set (singletons). Nothing about a subpopulation's label can be told from the others: whoever does not memorize
the singleton gets the test examples of its subpopulation right by chance alone. So not memorizing singletons costs

    the share of test data whose subpopulation was seen once  *  (1 - chance),

and that is large where the frequencies have a long tail and n is not large against the number of subpopulations.

What is measured, in each world `longtail?exponent=...&subpopulations=...&n_train=...` (one of the three is varied at a
time): memorization by the size of the subpopulation (trials on random 70% subsets); the accuracy that is lost when
memorization of singletons is prevented by their removal, against the removal of as many random examples; and how much
one training example explains: of the errors on the test examples of singleton subpopulations that models without the
singleton make, the share that is gone in models with it. `_limits` has whom limits on memorization cost, and `_flips`
whether useful memorized examples can be told from useless ones.

Variance. Accuracies have the spread over repeats (unpaired), memorization that over examples of one size, the explained
share a jackknife over blocks of trials. A world is one draw of data; another seed gives another.

Failure cases. A world without singletons, or without test examples of theirs, says nothing about them: null.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from memfluence.datasets import Dataset, as_dataset
from memfluence.drawing import BLUE, GREEN, GREY, INK, ORANGE, PAGE, SOFT, axis_of_counts, legend, panels
from memfluence.errors import InputError, checked_integer
from memfluence.estimators import memorization
from memfluence.experiments._flips import (
    draw_areas,
    draw_curves,
    draw_lost,
    flips,
    middle_share,
    report_flips,
    say_flips,
)
from memfluence.experiments._limits import (
    TYPICAL,
    draw_classes,
    draw_costs,
    draw_sizes,
    dropping,
    limited,
    limits,
    report_limits,
    say_limits,
)
from memfluence.experiments._result import (
    BLOCKS,
    Result,
    Said,
    check_repeats,
    decimal,
    difference,
    jackknife,
    points,
    spread,
)
from memfluence.experiments._worlds import ARMS, Campaign, World, retraining, size_names, times_seen
from memfluence.experiments.doing import Training
from memfluence.learners import resolve
from memfluence.records import Trials
from memfluence.runs import Run
from memfluence.store import unpack

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEADING = "The theory (Feldman 2019), on data whose subpopulations are known"

EPOCHS = (1, 2, 3, 5, 6, 8, 12, 20, 30)
CLIPS = (0.03, 0.1, 0.3, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)  # from singletons by chance to nothing lost
NOISES = (0.03, 0.1, 0.2, 0.4, 1.0, 3.0)  # the other way round, as all that follow
DECAYS = (0.003, 0.005, 0.01, 0.015, 0.02, 0.03)
PRUNES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
DROPS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)


def plan(
    exponents: Annotated[Sequence[float], "Zipf exponents."] = (1.0, 0.5, 0.75, 1.25, 1.5),
    subpopulations: Annotated[Sequence[int], "How many of them."] = (500, 125, 250, 1000, 2000),
    sizes: Annotated[Sequence[int], "Sizes of the training set."] = (1000, 250, 500, 2000),
    *,
    trials: Annotated[int, "Models for memorization in each world."] = 300,
    repeats: Annotated[int, "Models for each accuracy."] = 20,
    epochs: Annotated[Sequence[int], "When to stop early."] = EPOCHS,
    clips: Annotated[Sequence[float], "Norms at which the gradient of each example is clipped."] = CLIPS,
    noises: Annotated[Sequence[float], "Noise on clipped gradients, in multiples of their norm."] = NOISES,
    noise_clip: Annotated[float, "Norm at which gradients with noise are clipped."] = 5.0,  # which alone costs little
    weight_decays: Annotated[Sequence[float], "Weight decays."] = DECAYS,
    prunes: Annotated[Sequence[float], "Shares of the weights that are pruned after training."] = PRUNES,
    drops: Annotated[Sequence[float], "Shares of the examples, the most memorized, that are dropped."] = DROPS,
    flips: Annotated[Sequence[float], "Shares of flipped labels."] = (0.05, 0.1, 0.2),
    flip_worlds: Annotated[int, "Worlds for each share of flipped labels, and without any."] = 5,
    margins: Annotated[bool, "Record no margins: for learners that give none.", "--no-margins"] = True,
    seed: int = 0,
) -> Campaign:
    """The base world has the first of the first three lists; each of the others differs from it in one of the three."""
    check_repeats(repeats)
    checked_integer("trials", trials, 2 * BLOCKS)
    if not (exponents and subpopulations and sizes):
        raise InputError("Give at least one Zipf exponent, one number of subpopulations and one training set size.")
    if not all(isinstance(one, int) and one >= 1 for one in epochs):
        raise InputError(f"The `epochs` parameter must be integers from 1 on. Got {list(epochs)} instead.")
    check_repeats(flip_worlds, "flip_worlds")
    for name, given in (
        ("clips", clips),
        ("noises", noises),
        ("noise_clip", [noise_clip]),
        ("weight_decays", weight_decays),
    ):
        if not all(0 < one < math.inf for one in given):
            raise InputError(f"The `{name}` parameter must be finite and above 0. Got {given} instead.")
    for name, given in (("prunes", prunes), ("drops", drops), ("flips", flips)):
        if not all(0 < one < 1 for one in given):
            raise InputError(f"The `{name}` parameter must be between 0 and 1. Got {given} instead.")
    base = World(exponents[0], subpopulations[0], sizes[0], seed=seed)
    worlds = [base]
    worlds += [World(one, base.subpopulations, base.n_train, "exponent", seed=seed) for one in exponents[1:]]
    worlds += [World(base.exponent, one, base.n_train, "subpopulations", seed=seed) for one in subpopulations[1:]]
    worlds += [World(base.exponent, base.subpopulations, one, "n_train", seed=seed) for one in sizes[1:]]
    worlds += [
        replace(base, varied="flip", flip=flip, seed=seed + number)
        for flip in (sorted({0.0, *flips}) if flips else ())
        for number in range(0 if flip else 1, flip_worlds)  # the base world is the first without flips
    ]
    return Campaign(
        tuple(worlds),
        trials,
        repeats,
        tuple(sorted(set(epochs))),
        tuple(sorted({*clips, noise_clip} if noises else set(clips))),  # what noise adds is seen against clipping alone
        tuple(sorted(set(noises))),
        noise_clip,
        tuple(sorted(set(weight_decays))),
        tuple(sorted(set(prunes))),
        tuple(sorted(set(drops))),
        margins,
        seed,
    )


def conduct(name: str, runs: list[Run], out: Path, training: Training, **options: Any) -> Result:
    """Train what the worlds need, into OUT/WORLD/estimate, removal and drop; of the first also epochs-N, clip-C, ..."""
    if runs or training.dataset is not None:
        raise InputError(f"The experiment {name} makes its own data; give no run and no dataset.")
    campaign, given, settings = plan(**options), training.learner or "mlp", dict(training.settings or {})
    learner, found = resolve(given, settings), {}
    for number, world in enumerate(campaign.worlds, start=1):
        training.note(f"world {number} of {len(campaign.worlds)}: {world.dataset}")
        data, where = as_dataset(world.dataset), out / world.name
        explicit: dict[str, Any] = {"design": "explicit", "seed": world.seed}
        record = ("margin", "prediction") if world.flip and campaign.margins else ("prediction",) if world.flip else ()
        estimate = training.run(
            where / "estimate", data, learner, trials=campaign.trials, seed=world.seed, record=record
        )
        stores = found[world.name] = {"estimate": estimate}
        if world.varied != "flip":
            models = retraining(data, campaign.repeats, campaign.seed)
            stores["removal"] = training.run(where / "removal", data, learner, masks=models.masks, **explicit)
        if campaign.drops and world.varied in ("base", "flip"):
            drops = dropping(campaign, data, estimate.estimate_memorization().value)
            stores["drop"] = training.run(where / "drop", data, learner, masks=drops.masks, **explicit)
        if number == 1:
            everything = models.masks[models.rows(arm="all")]
            for part, one in limited(campaign, given, settings).items():
                stores[part] = training.run(where / part, data, one, masks=everything, **explicit)
    return summarize(campaign, found)


def summarize(campaign: Campaign, worlds: Mapping[str, Mapping[str, Run]]) -> Result:
    """Runs of each world by its name: "estimate", "removal", "drop", and those of `_limits.limited`."""
    found = [_world(world, campaign, worlds[world.name]) for world in campaign.worlds if world.varied != "flip"]
    base, runs = campaign.worlds[0], worlds[campaign.worlds[0].name]
    flipped: dict[float, list[Mapping[str, Run]]] = {}
    for world in campaign.worlds:
        if world.varied == "flip":
            flipped.setdefault(world.flip, [] if world.flip else [runs]).append(worlds[world.name])
    numbers = {
        "worlds": found,
        **limits(campaign, runs),
        "flips": flips(campaign, flipped),
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
        f" {base.exponent:g}, and {len(found) - 1} other {others}; {campaign.trials:,} models for memorization,"
        f" {campaign.repeats} for each accuracy, in each world"
    )
    return Result("long-tail", title, numbers, rows, campaign.to_json())


def _world(world: World, campaign: Campaign, runs: Mapping[str, Run]) -> dict[str, Any]:
    data, estimate, removal = runs["estimate"].dataset(), runs["estimate"], runs["removal"]
    seen, train = times_seen(data), data.attributes["train_subpopulation"]
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
                "size": name,
                "memorization": spread(value[(seen[train] >= low) & (seen[train] <= high) & ~np.isnan(value)]),
            }
            for name, low, high in size_names()
        ],
        **_explained(data, estimate.trials),
    }


def _arms(campaign: Campaign, data: Dataset, trials: Trials) -> dict[str, np.ndarray]:
    """Test accuracy of each model that is there, by its arm."""
    accuracy = dict(zip(trials.numbers.tolist(), unpack(trials.test_correct, trials.n_test).mean(axis=1)))
    planned = retraining(data, campaign.repeats, campaign.seed)
    return {arm: np.array([accuracy[k] for k in planned.rows(arm=arm) if k in accuracy]) for arm in ARMS}


def _explained(data: Dataset, trials: Trials) -> dict[str, float]:
    """Of the errors on test examples of singletons without the singleton, the share that is gone with it."""
    train, test = data.attributes["train_subpopulation"], data.attributes["test_subpopulation"]
    once = times_seen(data) == 1
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


def _tail(data: Dataset) -> dict[str, Any]:
    """The subpopulations of a world, the most frequent first."""
    return {"frequency": data.attributes["subpopulation_frequency"].tolist(), "seen": times_seen(data).tolist()}


Shown = tuple[str, Callable[["Axes"], None]]  # a panel's heading, and what draws it
_VARIED = {
    "base": ("this world", INK, "*"),
    "exponent": ("other exponents", ORANGE, "o"),
    "subpopulations": ("other subpopulations", BLUE, "s"),
    "n_train": ("other sizes", GREEN, "^"),
}


def draw(result: Result) -> "Figure":
    """The theory in one look: the tail, who is memorized, what that buys, and whom limits cost."""
    numbers = result.numbers
    base, typical = numbers["worlds"][0], numbers["typical"]
    caption = (
        f"{result.title}. b: of the errors on test examples of a subpopulation seen once, its one training example"
        f" explains {base['explained']:.1%} ± {base['explained_stderr']:.1%}; bars are one standard deviation, below"
        " each size the number of examples. c: all worlds; open marks: as many random ones removed."
    )
    shown: list[Shown] = [
        ("Examples of each subpopulation", partial(_draw_tail, tail=numbers["tail"], base=base)),
        ("Memorization by size of the subpopulation", partial(_sizes, base=base)),
        ("Cost of being without those seen once", partial(_losses, worlds=numbers["worlds"])),
    ]
    if typical:
        shown += [
            ("Cost of limits where seen once", partial(draw_costs, numbers=numbers)),
            ("Cost of limits by size of the subpopulation", partial(draw_sizes, typical=typical)),
            ("Cost of limits by class", partial(draw_classes, typical=typical)),
        ]
        caption += (
            f" d: points of accuracy lost; dotted: both lose alike. e, f: where a limit costs about {100 * TYPICAL:g}"
            " points in all; e names its strength and that cost, f the correlation over classes."
        )
    return _page(caption, shown)


def draw_more(result: Result) -> "dict[str, Figure]":
    """Flipped labels: whether useful and useless memorized examples can be told apart, and what dropping costs."""
    flipped = result.numbers["flips"]
    if not flipped:
        return {}
    base, of, middle = result.numbers["worlds"][0], result.settings, middle_share(flipped)
    caption = (
        f"longtail: {base['n_train']:,} training examples of {base['subpopulations']:,} subpopulations with Zipf"
        f" exponent {base['exponent']:g}, a share of the labels flipped; {flipped[0]['worlds']} worlds for each share"
        f" (± standard error over worlds), {of['trials']:,} models for memorization and {of['repeats']} for each"
        f" accuracy in each world. a: at {middle['flip']:.0%} flipped, with the area below each curve (dotted: a guess,"
        " 0.50). b: areas over the share flipped; open marks: of those alone in their subpopulation; colours as in a."
    )
    shown: list[Shown] = [
        ("Useless examples found among the useful", partial(draw_curves, found=flipped)),
        ("Area, by the share of flipped labels", partial(draw_areas, found=flipped)),
    ]
    if flipped[0]["dropped"]:
        shown += [
            ("Cost of dropping the memorized, all test data", partial(draw_lost, found=flipped, part="test")),
            ("The same, on test data seen once", partial(draw_lost, found=flipped, part="test_once")),
        ]
        caption += " c, d: dotted: random ones dropped; stars: the flipped alone dropped."
    return {"flips": _page(caption, shown)}


def _page(caption: str, shown: Sequence[Shown]) -> "Figure":
    """Panels in two columns."""
    figure, axes = panels(caption, PAGE, 2.75 * -(-len(shown) // 2), [heading for heading, _ in shown], columns=2)
    for panel, (_, drawer) in zip(axes, shown):
        drawer(panel)
    return figure


def _draw_tail(axes: "Axes", tail: dict[str, Any], base: dict[str, Any]) -> None:
    frequency, seen = np.array(tail["frequency"]), np.array(tail["seen"])
    rank = np.arange(1, len(seen) + 1)
    axes.plot(rank, base["n_train"] * frequency, color=SOFT, linewidth=0.8, label="expected")
    for chosen, label, colour in (
        (seen > 1, f"seen more than once: {int((seen > 1).sum())}", BLUE),
        (seen == 1, f"seen once: {base['singletons']} ({base['test_share']:.1%} of test data)", ORANGE),
        (seen == 0, f"never seen: {base['never_seen']}", GREY),
    ):
        axes.plot(rank[chosen], seen[chosen], ".", color=colour, markersize=3.5, label=label)
    axes.set_xscale("log")
    axis_of_counts(axes, seen.max())
    axes.set_ylim(-0.2, 2 * max(1, seen.max()))
    axes.set_xlabel("subpopulations, the most frequent first")
    axes.set_ylabel("training examples")
    legend(axes, 2)


def _sizes(axes: "Axes", base: dict[str, Any]) -> None:
    sizes = [one for one in base["by_size"] if one["memorization"]["n"]]
    means, errors = ([one["memorization"][key] for one in sizes] for key in ("mean", "sd"))
    colours = [ORANGE if one["size"] == "1" else BLUE for one in sizes]
    axes.bar(range(len(sizes)), means, yerr=np.nan_to_num(errors), color=colours, ecolor=SOFT, capsize=2, width=0.75)
    axes.set_xticks(range(len(sizes)), [f"{one['size']}\n{one['memorization']['n']}" for one in sizes])
    axes.set_xlabel("training examples of the subpopulation")
    axes.set_ylabel("memorization")


def _losses(axes: "Axes", worlds: list[dict[str, Any]]) -> None:
    most = 100 * max(one["predicted_loss"] for one in worlds) * 1.1
    axes.plot([0, most], [0, most], color=SOFT, linewidth=0.8, linestyle=":", label="theory")
    for varied, (label, colour, marker) in _VARIED.items():
        of = [one for one in worlds if one["varied"] == varied]
        if not of:
            continue
        x = [100 * one["predicted_loss"] for one in of]
        for key, filled in (("lost", True), ("lost_random", False)):
            mean, error = ([100 * one[key][kind] for one in of] for kind in ("mean", "stderr"))
            axes.errorbar(
                x,
                mean,
                error,
                color=colour,
                marker=marker,
                markersize=7 if marker == "*" else 4,
                markerfacecolor=colour if filled else "white",
                linestyle="none",
                capsize=1.5,
                label=label if filled else None,
            )
    axes.axhline(0, color=SOFT, linewidth=0.5)
    axes.set_xlabel("test data seen once × (1 − chance)  (%)")
    axes.set_ylabel("accuracy lost without them (points)")
    legend(axes, 2)


def say(result: Result) -> Said:
    rows = (
        (
            f"{one['exponent']:g}",
            one["subpopulations"],
            one["n_train"],
            one["singletons"],
            decimal(100 * one["test_share"], 1),
            decimal(one["by_size"][0]["memorization"]["mean"], 2),
            decimal(100 * one["predicted_loss"], 1),
            points(one["lost"], digits=1),
            points(one["lost_random"], digits=1),
            points({"mean": one["explained"], "stderr": one["explained_stderr"]}, digits=1),
        )
        for one in result.numbers["worlds"]
    )
    columns = ("seen once", "test data %", "memorized", "theory", "lost", "random", "explained")
    line = (
        "test data: the share whose subpopulation was seen once in training; memorized: mean memorization of those"
        " training examples; theory: points of accuracy lost without them if one example is enough; lost: measured;"
        " random: without as many random ones; explained: of the errors on that test data without the one training"
        " example, the share (%) that is gone with it. ± standard error."
    )
    return Said(
        ("exponent", "subpops", "n", *columns),
        rows,
        [line, *say_limits(result.numbers), *say_flips(result.numbers["flips"])],
    )


def report(result: Result, of: str) -> list[str]:
    worlds = [one for one in result.numbers["worlds"] if one["singletons"] and one["predicted_loss"]]
    alone = [one["by_size"][0]["memorization"]["mean"] for one in worlds]
    costs = [one["lost"]["mean"] / one["predicted_loss"] for one in worlds]
    explained = [one["explained"] for one in worlds if one["explained"] is not None]
    return [
        f"In {len(worlds)} worlds, examples that are the only one of their subpopulation have a mean memorization of"
        f" {min(alone):.2f} to {max(alone):.2f}; being without them costs {min(costs):.0%} to {max(costs):.0%} of what"
        " theory says it would if one example were enough, and one training example explains"
        f" {min(explained):.0%} to {max(explained):.0%} of the errors on its subpopulation.",
        *report_limits(result.numbers),
        *report_flips(result.numbers.get("flips", [])),  # which older results lack
    ]
