"""Consistency (the paper's Fig. 7): would other trials, or another architecture, find the same?

Definition (Sec. 3.5). Two sides with as many trials each are compared at every threshold: the Jaccard index of what
they select and the average difference of their estimates over what either selects (`findings/agreement.py`), for
memorization and for influence. For influence a side selects pairs whose training example it finds memorized at `mem`
itself. The paper's sets for this figure do not ask for one class, its selection of pairs does: both are given.

Sides. The first line compares two disjoint halves of the run, the others one of these halves with as many trials of
another run (another seed, recipe or architecture), so that all sides are equally noisy, as in the paper (2000 trials
each). Where another run has fewer trials than half of the first, all sides have that many. Models that were given the
same subset err alike: 135 trials of ResNet-9 shared 47% more pairs at 0.15 with as many of ResNet-18 on the same masks
than on others (n = 3 draws). So where two runs have one plan, the second side has none of the first side's masks.

By chance. For each line, the same from masks that are dealt out anew on both sides, so that no training example
matters; for pairs, whom each side finds memorized is kept. A curve says something where it is well above this level.

Variance. Means and standard deviations over `splits` random draws of the sides. Draws share trials: on simulated worlds
(300 x 200, 1000 trials) their standard deviation is 0.6 to 1.2 times that of fresh trials. It does not hold what
another training set or learner would give.

Failure cases. Nothing selected: NaN. The index is jumpy where few are selected, as near memorization 1. Sides of a run
with few trials agree on noise little better than by chance, and the curves say so.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from memfluence.drawing import COLOURS, GREY, INK, PAGE, SOFT, curve, legend, panels
from memfluence.errors import InputError, checked_integer
from memfluence.estimators import Arms, Influence, Memory, arms, memorization_of
from memfluence.experiments._result import (
    LEAST_TRIALS,
    Result,
    Said,
    Spread,
    check_repeats,
    check_same_data,
    decimal,
    of_keep,
    spread,
)
from memfluence.findings.agreement import INFLUENCE, MEMORIZATION, Agreement, Part, agreement, influence_agreement
from memfluence.findings.cross_fit import halves
from memfluence.records import Trials
from memfluence.runs import Run, about
from memfluence.seeding import generator
from memfluence.store import unpack
from memfluence.wording import approximate, learner_name, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEADING = "Two halves of the trials (Fig. 7)"

KINDS = ("memorization", "same_class", "any_class")
LOW = 0.1  # where the paper sees influence become unreliable, and reads off the average difference as well
CUTS = 2**20  # numbers of draws that cut a side to size; those below split a run


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a comparison: some trials of a run, and what they say."""

    run: Run
    arms: Arms
    memorization: np.ndarray  # (n_train,)


@dataclass(frozen=True)
class Curves:
    """Agreements of two sides: on memorization, on influence within classes and across them (None: not asked for)."""

    memorization: Agreement
    same_class: Agreement
    any_class: Agreement | None


def check_draws(splits: int, permutations: int) -> None:
    """Refuse numbers of draws that say nothing."""
    check_repeats(splits, "splits")
    checked_integer("permutations", permutations, 0)


def trials_each(
    run: Run, others: Sequence[Run] = (), *, keep: float | None = None, splits: int = 1, seed: int = 0
) -> int:
    """The number of trials of each side in every comparison: as many as all can give.

    The first run gives two sides, so at most half of its trials. `splits` and `seed` are those of `sides`.
    """
    whole, *rest = (of_keep(one, keep) for one in (run, *others))
    there = [len(whole) // 2]
    for other, some in zip(others, rest):
        firsts = (halves(whole, seed, number)[0] for number in range(splits))
        there.append(min(len(_apart(run, first, other, some)) for first in firsts))
    most = min(there)
    if most < LEAST_TRIALS:
        few = (run, *others)[there.index(most)]
        shared = (
            f" of other subsets than half of {run.path}" if few is not run and len(of_keep(few, keep)) > most else ""
        )
        raise InputError(
            f"{few.path} has {len(whole) if few is run else most} trial(s){shared}, too few for"
            f" {'two independent halves' if few is run else 'a comparison'}; run at least"
            f" {LEAST_TRIALS * (2 if few is run else 1)}, better hundreds{shared and ', with another `seed`'}."
        )
    return most


def _apart(run: Run, first: Trials, other: Run, trials: Trials) -> Trials:
    """The other run's trials without those whose masks the first side of `run` has, too."""
    if run.info.plan is None or run.info.plan != other.info.plan:
        return trials
    return trials.select(~np.isin(trials.numbers // trials.cluster, first.numbers // first.cluster))


def sides(
    run: Run,
    others: Sequence[Run],
    trials: int,
    *,
    splits: int,
    keep: float | None = None,
    seed: int = 0,
    memory: str | int | None = None,
) -> Iterator[list[Side]]:
    """For each split: two disjoint sides of the first run, then one of each other run, drawn anew."""
    whole, *rest = (of_keep(one, keep) for one in (run, *others))
    size = sum(2 * some.mask.nbytes + some.test_correct.nbytes for some in (whole, *rest))
    Memory.of(memory).check(size, "some of the trials once more", "runs of fewer trials")
    for number in range(splits):
        first, second = halves(whole, seed, number)
        drawn = [first, second, *(_apart(run, first, other, some) for other, some in zip(others, rest))]
        yield [
            _side(one, _cut(some, trials, seed, CUTS * (k + 1) + number), keep)
            for k, (one, some) in enumerate(zip((run, run, *others), drawn))
        ]


def on_memorization(first: Side, second: Side, *, mem: float, permuted: bool = False) -> Agreement:
    """The agreement of two sides on memorization, at `mem` and at the thresholds of the grid."""
    values = [memorization_of(side.arms).value if permuted else side.memorization for side in (first, second)]
    return agreement([Part(values[0], values[1], np.True_, np.True_)], np.union1d(MEMORIZATION, [mem]))


def compared(
    first: Side,
    second: Side,
    *,
    mem: float,
    infl: float,
    any_class: bool,
    memory: str | int | None = None,
    permuted: bool = False,
) -> Curves:
    """The agreement of two sides, at `mem` and `infl` and at the thresholds of the grids.

    With `permuted`, their arms have permuted masks, and whom they find memorized is kept.
    """
    estimates = [Influence(side.arms, memory=memory) for side in (first, second)]
    memorized = (first.memorization >= mem, second.memorization >= mem)
    codes, levels = first.run.label_codes, np.union1d(INFLUENCE, [infl])
    same, *every = (
        influence_agreement(estimates[0], estimates[1], memorized, *codes, levels, same_class=same_class)
        for same_class in ((True, False) if any_class else (True,))
    )
    return Curves(on_memorization(first, second, mem=mem, permuted=permuted), same, every[0] if every else None)


def by_chance(first: Side, second: Side, *, permutations: int, seed: int, **options: Any) -> list[Curves]:
    """The same with masks dealt out anew on both sides, where no training example can matter, for each permutation.

    `options` are those of `compared`.
    """
    size = bool(permutations) * sum(side.arms.in_trials.mask.nbytes for side in (first, second))
    Memory.of(options.get("memory")).check(size, "permuted masks", "`permutations=0`")
    found = []
    for number in range(permutations):
        dealt = [
            replace(side, arms=side.arms.permuted(generator(seed, "permutation", 2 * number + k)))
            for k, side in enumerate((first, second))
        ]
        found.append(compared(dealt[0], dealt[1], permuted=True, **options))
    return found


def _side(run: Run, trials: Trials, keep: float | None) -> Side:
    chosen = arms(trials, run.info.kinds, keep)
    return Side(run, chosen, memorization_of(chosen).value)


def _cut(trials: Trials, wanted: int, seed: int, number: int) -> Trials:
    """About so many of the trials at random: whole clusters, of each kind the same share."""
    if wanted >= len(trials):
        return trials
    cluster, chosen = trials.numbers // trials.cluster, np.zeros(len(trials), dtype=bool)
    rng = generator(seed, "resample", number)
    for kind in np.unique(trials.kinds):
        ids = np.unique(cluster[trials.kinds == kind])
        some = rng.permutation(ids)[: round(len(ids) * wanted / len(trials))]
        chosen |= (trials.kinds == kind) & np.isin(cluster, some)
    return trials.select(chosen)


def summarize(
    run: Run,
    *others: Run,
    mem: float = 0.25,
    infl: float = 0.15,
    any_class: Annotated[bool, "Leave out pairs of two classes, which take most of the time."] = True,
    splits: int = 5,
    permutations: int = 3,
    trials: Annotated[int | None, "Trials of each side.  [default: as many as possible]"] = None,
    keep: float | None = None,
    seed: int = 0,
    memory: str | int | None = None,
) -> Result:
    """Agreement between two halves of `run`, and between `run` and each of the others, over thresholds.

    `mem` and `infl` are where pairs are counted and the curves are read off; `trials` is how many each side has, as
    many as possible if left out. `any_class=False` leaves out pairs of two classes, which takes most of the time.
    """
    import pandas as pd

    for other in others:
        check_same_data(run, other)
    check_draws(splits, permutations)
    for name, level in (("mem", mem), ("infl", infl)):
        if not 0 < level <= 1:
            raise InputError(f"The `{name}` threshold must be above 0 and at most 1. Got {level!r} instead.")
    most = trials_each(run, others, keep=keep, splits=splits, seed=seed)
    each = most if trials is None else trials
    if not LEAST_TRIALS <= each <= most:
        raise InputError(
            f"The `trials` of each side must be from {LEAST_TRIALS} to {most}, which is what the runs can give. Got"
            f" {trials!r} instead."
        )
    names = _names(run, others)
    options: dict[str, Any] = {"mem": mem, "infl": infl, "any_class": any_class, "memory": memory}
    found: list[list[Curves]] = [[] for _ in names]
    chance: list[list[Curves]] = []  # of each line, from the first draw
    for drawn in sides(run, others, each, splits=splits, keep=keep, seed=seed, memory=memory):
        if not chance:
            chance = [by_chance(drawn[0], one, permutations=permutations, seed=seed, **options) for one in drawn[1:]]
        for line, side in enumerate(drawn[1:]):
            found[line].append(compared(drawn[0], side, **options))
    kinds = KINDS if any_class else KINDS[:2]
    levels = {kind: (mem,) if kind == "memorization" else (infl, LOW) for kind in kinds}
    lines = [
        {
            "compared": name,
            "run": str(other.path),
            "halves": other is run,
            "test_accuracy": spread(unpack(of_keep(other, keep).test_correct, other.info.n_test).mean(axis=1)),
            **{kind: _read_off(_of(found[line], kind), *levels[kind]) for kind in kinds},
            "by_chance": {kind: _read_off(_of(chance[line], kind), *levels[kind]) for kind in kinds},
        }
        for line, (name, other) in enumerate(zip(names, (run, *others)))
    ]
    numbers = {
        "trials_each": each,
        "lines": lines,
        "by_chance": lines[0]["by_chance"],  # of the two halves
        "spread": f"standard deviation over {splits} draws of {each} trials for each side, which share trials",
    }
    tables = [agreement_table(name, kind, _of(found[line], kind)) for line, name in enumerate(names) for kind in kinds]
    for name, curves in zip(names, chance) if permutations else ():
        tables += [agreement_table(f"by chance, {name}", kind, _of(curves, kind)) for kind in kinds]
    settings = {"mem": mem, "infl": infl, "splits": splits, "permutations": permutations, "keep": keep, "seed": seed}
    title = f"{about(run.info)}; {each:,} models on each side"
    return Result("consistency", title, numbers, pd.concat(tables, ignore_index=True), {**settings, "trials": each})


def mean_sd(values: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (n - 1) over the first axis, of what there is; NaN where that is too little."""
    import pandas as pd

    draws = pd.DataFrame([np.asarray(one, dtype=float) for one in values])  # (draws, thresholds)
    return draws.mean().to_numpy(), draws.std().to_numpy()


def _of(curves: Sequence[Curves], kind: str) -> list[Agreement]:
    return [getattr(one, kind) for one in curves]


def _read_off(found: Sequence[Agreement], *thresholds: float) -> list[dict[str, Any]]:
    """The agreement at some of the thresholds, over the draws."""

    def over(values: Iterable[float]) -> Spread:
        return spread([value for value in values if not np.isnan(value)])

    rows = []
    for threshold in thresholds if found else ():
        k = int(np.searchsorted(found[0].thresholds, threshold))
        columns = ("first", "second", "shared", "jaccard", "difference")
        both = (
            np.mean([one.shared[k] / side[k] for side in (one.first, one.second)])
            for one in found
            if one.first[k] and one.second[k]
        )
        rows.append(
            {"threshold": threshold}
            | {column: over(float(getattr(one, column)[k]) for one in found) for column in columns}
            | {"found_again": over(both)}  # of what a side selects, by the other side
        )
    return rows


def agreement_table(name: str, kind: str, found: Sequence[Agreement]) -> "Any":
    """One row for each threshold: means over the draws, with standard deviations."""
    import pandas as pd

    columns: dict[str, Any] = {
        "compared": name,
        "quantity": "memorization" if kind == "memorization" else "influence",
        "same_class": None if kind == "memorization" else kind == "same_class",
        "threshold": found[0].thresholds,
    }
    for column in ("jaccard", "difference", "first", "second", "shared"):
        columns[column], columns[f"{column}_sd"] = mean_sd(getattr(one, column) for one in found)
    return pd.DataFrame(columns).astype({"same_class": "boolean"})


def _names(run: Run, others: Sequence[Run]) -> list[str]:
    """Names of the lines: the learner, with as much of the directory as it takes to tell them apart."""
    runs = (run, *others)
    learners = [learner_name((one.info.learner or {}).get("name", "")) for one in runs]
    names = [learner or one.path.name for learner, one in zip(learners, runs)]
    for parts in range(1, 4):
        if len(set(names)) == len(names):
            break
        places = ["/".join(one.path.absolute().parts[-parts:]) for one in runs]
        names = [f"{learner} ({place})" if learner else place for learner, place in zip(learners, places)]
    return names if len(set(names)) == len(names) else [f"{name}, run {k}" for k, name in enumerate(names, 1)]


MEASURES = (("difference", "Average difference"), ("jaccard", "Jaccard index"))


def draw(result: Result) -> "Figure":
    """Agreement over thresholds: the average difference on the left, the Jaccard index on the right."""
    lines, settings, table = result.numbers["lines"], result.settings, result.table
    anything = [line for line in lines if "any_class" in line]
    caption = f"{result.title}. Bands: {result.numbers['spread']}; the thin vertical lines are the usual thresholds."
    headings = [f"{words} of {quantity}" for quantity in ("memorization", "influence") for _, words in MEASURES]
    figure, axes = panels(caption, PAGE, 4.9, headings, columns=2)
    for row, (quantity, level) in enumerate((("memorization", settings["mem"]), ("influence", settings["infl"]))):
        here = table[table["quantity"] == quantity]
        for column, (measure, words) in enumerate(MEASURES):
            panel = axes[2 * row + column]
            for colour, line in zip(cycle(COLOURS), lines):
                own = here[here["compared"] == line["compared"]]
                within = own[own["same_class"].fillna(True)]
                of = within["threshold"], within[measure], within[f"{measure}_sd"]
                curve(panel, *of, colour=colour, label=_legend(line), marker="", most=1)
                across = own[~own["same_class"].fillna(True)]
                panel.plot(across["threshold"], across[measure], color=colour, linewidth=1, linestyle=":")
                chance = here[(here["compared"] == f"by chance, {line['compared']}") & here["same_class"].fillna(True)]
                grey = GREY if len(lines) == 1 else colour
                panel.plot(chance["threshold"], chance[measure], color=grey, linewidth=1, linestyle="--")
            panel.axvline(level, color=INK, linewidth=0.6, alpha=0.6)
            panel.set_xlabel(f"{quantity} ≥")
            panel.set_ylabel(words.lower().replace("jaccard", "Jaccard"))
            own = here[~here["compared"].str.startswith("by chance, ")]
            top = 1.02 if measure == "jaccard" else 1.25 * np.nanmax(own[measure].to_numpy(), initial=0.02)
            panel.set_ylim(0, top)  # chance may leave the panel
    _key(axes[0], dotted=bool(anything), chance=bool(result.numbers["by_chance"]["memorization"]))
    return figure


def _legend(line: dict[str, Any]) -> str:
    """'resnet18: 1,020 pairs, 71.3%', as in the paper."""
    of = "two halves of one run" if line["halves"] else "with half of it"
    accuracy = percent(line["test_accuracy"]["mean"], 1)
    return f"{line['compared']}, {of}: {approximate(line['same_class'][0]['second']['mean'])} pairs, {accuracy}"


def _key(axes: "Axes", *, dotted: bool, chance: bool) -> None:
    if dotted:
        axes.plot([], [], color=SOFT, linestyle=":", label="pairs of any two classes")
    if chance:
        axes.plot([], [], color=GREY, linestyle="--", label="by chance: permuted masks, pairs of one class")
    legend(axes, 2)


def say(result: Result) -> Said:
    found = result.numbers
    chance = [{"compared": f"by chance, {one['compared']}", **one["by_chance"]} for one in found["lines"]]
    rows = (
        (
            line["compared"],
            kind.replace("_", " "),
            f"{at['threshold']:g}",
            decimal(at["first"]["mean"], 0),
            decimal(at["second"]["mean"], 0),
            f"{decimal(at['jaccard']['mean'])} ± {decimal(at['jaccard']['sd'])}",
            decimal(at["found_again"]["mean"]),
            f"{decimal(at['difference']['mean'])} ± {decimal(at['difference']['sd'])}",
        )
        for line in [*found["lines"], *chance]
        for kind in KINDS
        for at in line.get(kind, ())
    )
    header = ("compared", "what", "from", "first", "second", "Jaccard", "found again", "difference")
    accuracies = ", ".join(f"{one['compared']} {one['test_accuracy']['mean']:.1%}" for one in found["lines"])
    return Said(header, rows, [f"± is the {found['spread']}. Mean test accuracy: {accuracies}."])


def report(result: Result, of: str) -> list[str]:
    found, said = result.numbers, []
    for line in found["lines"] if len(found["lines"]) == 1 else found["lines"][1:]:  # halves have their own section
        what = "Two halves" if line["halves"] else f"The other network ({line['compared']}) and one half"
        memorized, pair, chance = line["memorization"][0], line["same_class"][0], line["by_chance"]
        said.append(
            f"{what}, {found['trials_each']:,} trials each, have a Jaccard index of {_index(memorized)} on who is"
            f" memorized at {memorized['threshold']:g} ({_by_chance(chance['memorization'])}) and of"
            f" {_index(pair)} on pairs at {pair['threshold']:g} ({_by_chance(chance['same_class'])});"
            f" {decimal(pair['first']['mean'], 0, ',')} and {decimal(pair['second']['mean'], 0, ',')} pairs, mean test"
            f" accuracy {line['test_accuracy']['mean']:.1%}."
        )
    return [" ".join(said), "", f"± is the {found['spread']}."]


def _by_chance(found: Sequence[dict[str, Any]]) -> str:
    """The index that permuted masks give."""
    if not found:
        return "chance was not asked for"
    index = _index(found[0])
    return "permuted masks select nothing" if index == "-" else f"by chance {index}"


def _index(found: dict[str, Any]) -> str:
    mean, sd = decimal(found["jaccard"]["mean"]), decimal(found["jaccard"]["sd"])
    return mean if sd == "-" else f"{mean} ± {sd}"
