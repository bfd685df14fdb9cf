"""Threshold choice: the lowest thresholds at which two halves of a run still select much the same.

Definition (the paper's Sec. 2). The selection is made twice, from two independent halves of the trials, over a range of
thresholds; the threshold on influence is one at which the Jaccard index of the two sets is at least 0.7. That keeps the
selection bias small: values near a threshold that noise decides are selected for their noise. The paper got 0.15 on
CIFAR-100, from halves of 2000 trials. Memorization is estimated over far fewer values, and the paper takes 0.25 there
as a significant level; here it is 0.25, or higher where the halves do not agree on who is memorized at 0.25.

Proposed is the lowest threshold of the grid at which the mean index over several splits is at least `jaccard` and both
halves select `FEWEST` or more on average: with fewer the index is jumpy, and says little.

What it is for. Halves have half of the trials, so all trials together select more surely than the index says. The
thresholds are a choice about noise, not about meaning: with more trials lower ones become possible. `memfluence plan
--run RUN --jaccard 0.7` says how many trials a given threshold takes.

Failure cases. Where no threshold will do there is no proposal (None), and `note` says so.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from memfluence.drawing import BLUE, GREY, INK, ORANGE, PAGE, curve, legend, panels
from memfluence.errors import InputError
from memfluence.experiments._result import Result, Said, decimal
from memfluence.experiments.consistency import (
    Side,
    agreement_table,
    by_chance,
    check_draws,
    compared,
    mean_sd,
    on_memorization,
    sides,
    trials_each,
)
from memfluence.findings.agreement import Agreement
from memfluence.runs import Run, about
from memfluence.wording import approximate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADING = "The lowest threshold at which halves agree (Sec. 2)"

FEWEST = 20  # selected by each half
MEMORIZED, PAPER = 0.25, 0.15  # the paper's significant level of memorization, and its threshold on influence


def summarize(
    run: Run,
    *,
    jaccard: Annotated[float, "Jaccard index that two halves of the trials are to reach."] = 0.7,
    mem: Annotated[float, "Least threshold on memorization to propose."] = MEMORIZED,
    same_class: bool = True,
    splits: int = 5,
    permutations: int = 3,
    keep: float | None = None,
    seed: int = 0,
    memory: str | int | None = None,
) -> Result:
    """Propose a threshold on memorization, at least `mem`, and with it one on influence."""
    import pandas as pd

    check_draws(splits, permutations)
    if not 0 < jaccard <= 1:
        raise InputError(f"The `jaccard` index to reach must be above 0 and at most 1. Got {jaccard!r} instead.")
    each = trials_each(run, keep=keep)

    def drawn() -> Iterator[list[Side]]:  # twice, not to hold the trials of all splits
        return sides(run, (), each, splits=splits, keep=keep, seed=seed, memory=memory)

    options: dict[str, Any] = {"infl": PAPER, "any_class": not same_class, "memory": memory}
    of_memorization = [on_memorization(*pair, mem=mem) for pair in drawn()]
    proposed_mem = propose(of_memorization, jaccard, at_least=mem)
    used = mem if proposed_mem is None else proposed_mem
    kind = "same_class" if same_class else "any_class"
    of_influence, chance = [], []
    for number, pair in enumerate(drawn()):
        of_influence.append(getattr(compared(*pair, mem=used, **options), kind))
        if not number:
            chance = by_chance(*pair, mem=used, permutations=permutations, seed=seed, **options)
    proposed_infl = propose(of_influence, jaccard)
    numbers = {
        "mem": proposed_mem,
        "infl": proposed_infl,
        "infl_could_be_lower": proposed_infl == of_influence[0].thresholds[0],  # it is the lowest that was looked at
        "jaccard": jaccard,
        "trials_each": each,
        "at": {
            "memorization": _at(of_memorization, proposed_mem),
            "influence": _at(of_influence, proposed_infl),
            "paper": _at(of_influence, PAPER),
        },
        "note": _note(run, proposed_mem, proposed_infl, jaccard, each),
    }
    tables = [
        agreement_table("two halves", "memorization", of_memorization),
        agreement_table("two halves", kind, of_influence),
    ]
    if chance:
        tables.append(agreement_table("by chance", kind, [getattr(one, kind) for one in chance]))
    settings = {"jaccard": jaccard, "mem": mem, "same_class": same_class, "splits": splits, "keep": keep, "seed": seed}
    title = f"{about(run.info)}; two halves of {each:,} models"
    return Result("thresholds", title, numbers, pd.concat(tables, ignore_index=True), settings)


def propose(found: Sequence[Agreement], jaccard: float, at_least: float = 0.0) -> float | None:
    """The lowest threshold, but at least `at_least`, at which two halves agree; None where there is none.

    Thresholds at which either half selects fewer than `FEWEST` on average say nothing, and are not looked at.
    """
    levels = found[0].thresholds
    index = mean_sd(one.jaccard for one in found)[0]
    selected = np.minimum(*(np.mean([getattr(one, side) for one in found], axis=0) for side in ("first", "second")))
    agreed = np.flatnonzero((selected >= FEWEST) & (levels >= at_least) & (index >= jaccard))
    return float(levels[agreed[0]]) if len(agreed) else None


def _at(found: Sequence[Agreement], threshold: float | None) -> dict[str, float] | None:
    if threshold is None:
        return None
    k = int(np.searchsorted(found[0].thresholds, threshold))
    columns = {name: mean_sd(getattr(one, name) for one in found) for name in ("jaccard", "first", "second")}
    return {"threshold": threshold} | {
        f"{name}{end}": float(values[k])
        for name, both in columns.items()
        for end, values in zip(("", "_sd"), both, strict=True)
    }


def _note(run: Run, mem: float | None, infl: float | None, jaccard: float, each: int) -> str | None:
    if mem is not None and infl is not None:
        return None
    what = "memorization" if mem is None else "influence"
    return (
        f"Two halves of {each} trials agree with a Jaccard index of {jaccard:g} at no threshold on {what}, for sets of"
        f" {FEWEST} or more; 'memfluence plan --run {run.path} --jaccard {jaccard:g}' says how many trials it takes."
    )


def draw(result: Result) -> "Figure":
    """The Jaccard index of two halves over thresholds, the index to reach, and the thresholds proposed."""
    numbers, table = result.numbers, result.table
    caption = (
        f"{result.title}. Dotted: the Jaccard index to reach; orange: the lowest threshold that reaches it, and how"
        " many each half selects; bands are one standard deviation over splits."
    )
    figure, axes = panels(caption, PAGE, 2.5, ("Memorized examples of two halves", "Pairs of two halves"))
    for panel, quantity, proposed in zip(axes, ("memorization", "influence"), (numbers["mem"], numbers["infl"])):
        here = table[table["quantity"] == quantity]
        own, chance = (here[here["compared"] == which] for which in ("two halves", "by chance"))
        jaccard = own["jaccard"], own["jaccard_sd"]
        curve(panel, own["threshold"], *jaccard, colour=BLUE, label="two halves", marker="", most=1)
        if len(chance):
            panel.plot(chance["threshold"], chance["jaccard"], color=GREY, linestyle="--", label="by chance")
        panel.axhline(numbers["jaccard"], color=INK, linewidth=0.6, linestyle=":")
        if proposed is not None:
            at = numbers["at"][quantity]
            panel.axvline(proposed, color=ORANGE, linewidth=1)
            said = f" {proposed:g}: {approximate((at['first'] + at['second']) / 2)} in each half"
            right = bool(proposed > own["threshold"].iloc[len(own) // 2])
            panel.text(proposed, 0.04, said + " " * right, color=ORANGE, ha="right" if right else "left")
        else:
            panel.text(0.98, 0.04, "none will do", color=ORANGE, ha="right", transform=panel.transAxes)
        panel.set_ylim(0, 1.02)
        panel.set_xlabel(f"{quantity} ≥")
        panel.set_ylabel("Jaccard index")
        legend(panel, 2)
    return figure


def say(result: Result) -> Said:
    found, any_class = result.numbers, not result.settings["same_class"]
    rows = []
    for name, key in (("memorization", "mem"), ("influence", "infl")):
        at, or_less = found["at"][name], " or less" if key == "infl" and found["infl_could_be_lower"] else ""
        if at is None:
            rows.append((name, "none", "-", "-", "-"))
        else:
            index = f"{decimal(at['jaccard'])} ± {decimal(at['jaccard_sd'])}"
            halves = (decimal(at["first"], 0), decimal(at["second"], 0))
            rows.append((name, f"{found[key]:g}{or_less}", index, *halves))
    if found["note"] is None:
        pairs = f"memfluence pairs {result.runs[0]} --mem {found['mem']:g} --infl {found['infl']:g}"
        line = f"Use them: {pairs}{' --any-class' if any_class else ''}"
    return Said(("threshold on", "proposed", "Jaccard", "one half", "other half"), rows, [found["note"] or line])


def report(result: Result, of: str) -> list[str]:
    found = result.numbers
    if found["note"] is not None:
        return [found["note"]]
    return [
        f"Two halves of {found['trials_each']:,} trials have a Jaccard index of at least {found['jaccard']:g} at a"
        f" memorization of {found['mem']:g}, the lowest from the usual one on, and at an influence of"
        f" {found['infl']:g}, the lowest{' looked at' if found['infl_could_be_lower'] else ' at which they do'}."
    ]
