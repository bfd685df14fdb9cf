"""Commands of experiments that read runs: `examples`, `histogram`, `pairs`, `consistency` and `thresholds`."""

from typing import Annotated, Any

import typer

from memfluence.cli._experiment import OutOption, conclude, do
from memfluence.cli._options import (
    AnyClass,
    DataOption,
    InflOption,
    JsonOption,
    KeepOption,
    MemOption,
    MemoryOption,
    RunArgument,
    SeedOption,
    names,
)
from memfluence.cli._output import number

__all__ = ["consistency", "examples", "histogram", "pairs", "thresholds"]

SplitsOption = Annotated[int, typer.Option(help="Random splits of the trials, for means and spread.")]
PermutationsOption = Annotated[int, typer.Option(help="Permuted copies, for what chance gives.")]


def examples(
    run: RunArgument,
    classes: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Classes: bee,rose.  [default: the three that fit best]", show_default=False),
    ] = None,
    count: Annotated[int, typer.Option(help="Examples around each value.")] = 4,
    data: DataOption = None,
    keep: KeepOption = None,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """What is memorized, by class (Fig. 1).

    Training examples with a memorization around 0, 0.5 and 1. An example belongs to the value it is nearest to; of
    those the nearest are shown, ties to the lower index.
    """
    chosen = None if classes is None else names(classes)
    done = do("examples", [run], out, classes=chosen, count=count, dataset=data, keep=keep)
    columns = ["class", "around", "index", "memorization", "stderr"]
    rows = (
        (one[0], f"{one[1]:g}", one[2], number(one[3]), number(one[4]))
        for one in done[0].table[columns].itertuples(index=False)
    )
    conclude(done, json, columns, rows)


def histogram(
    run: RunArgument,
    mem: MemOption = 0.25,
    infl: InflOption = 0.15,
    any_class: AnyClass = False,
    permutations: PermutationsOption = 5,
    seed: SeedOption = 0,
    keep: KeepOption = None,
    memory: MemoryOption = None,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """How strong pairs are, and chance (Fig. 3).

    The influence of high-influence pairs in bins, their counts, and what the same thresholds select when masks are
    permuted, so that no training example can matter.
    """
    options: dict[str, Any] = {"permutations": permutations, "seed": seed, "keep": keep, "memory": memory}
    done = do("histogram", [run], out, mem=mem, infl=infl, same_class=not any_class, **options)
    found, table = done[0].numbers, done[0].table
    shown = table[(table["pairs"] > 0) | (table["by_chance"] > 0)]
    rows = (
        (f"{low:.3f}-{high:.3f}", pairs, f"{number(mean, 1)} ± {number(sd, 1)}")
        for low, high, pairs, mean, sd in shown.itertuples(index=False)
    )
    by_chance = found["by_chance"]
    conclude(
        done,
        json,
        ("influence", "pairs", "by chance"),
        rows,
        f"{found['pairs']} pairs of {found['train_examples']} training and {found['test_examples']} test examples"
        f" ({found['test_share']:.2%} of the test set); {found['single_test_examples']} test examples are in one pair"
        f" only. {found['share_below_strong']:.1%} of the influences are below 0.4.",
        f"By chance alone (permuted masks): {number(by_chance['mean'], 1)} ± {number(by_chance['sd'], 1)} pairs.",
    )


def pairs(
    run: RunArgument,
    mem: MemOption = 0.25,
    infl: InflOption = 0.15,
    any_class: AnyClass = False,
    data: DataOption = None,
    keep: KeepOption = None,
    memory: MemoryOption = None,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Pairs to look at, not picked by hand (Figs. 4-6).

    Three sets of five training examples, spread evenly over the order of their highest influence (the paper's App. C),
    each with the four test examples that it influences most.
    """
    same_class = not any_class
    done = do("pairs", [run], out, mem=mem, infl=infl, same_class=same_class, dataset=data, keep=keep, memory=memory)
    columns = ["set", "train_index", "class", "memorization", "test_index", "influence"]
    rows = (
        (one[0] + 1, one[1], one[2], number(one[3]), one[4], number(one[5]))
        for one in done[0].table[columns].itertuples(index=False)
    )
    conclude(done, json, ("set", "train", "class", "memorization", "test", "influence"), rows)


def consistency(
    run: RunArgument,
    others: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OTHER...]", help="Other runs of the same data.", show_default=False),
    ] = None,
    mem: MemOption = 0.25,
    infl: InflOption = 0.15,
    same_class_only: Annotated[
        bool, typer.Option("--same-class-only", help="Leave out pairs of two classes, which take most of the time.")
    ] = False,
    splits: SplitsOption = 5,
    permutations: PermutationsOption = 3,
    trials: Annotated[
        int | None, typer.Option(help="Trials of each side.  [default: as many as possible]", show_default=False)
    ] = None,
    seed: SeedOption = 0,
    keep: KeepOption = None,
    memory: MemoryOption = None,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Do halves and other runs agree? (Fig. 7)

    The Jaccard index and the average difference over thresholds, of memorization and of influence, between two halves
    of RUN and between RUN and each OTHER run (another seed, recipe or architecture), all with as many trials.
    """
    done = do(
        "consistency",
        [run, *(others or ())],
        out,
        mem=mem,
        infl=infl,
        any_class=not same_class_only,
        splits=splits,
        permutations=permutations,
        trials=trials,
        seed=seed,
        keep=keep,
        memory=memory,
    )
    found = done[0].numbers
    kinds = ("memorization", "same_class", *(() if same_class_only else ("any_class",)))
    chance = [{"compared": f"by chance, {one['compared']}", **one["by_chance"]} for one in found["lines"]]
    lines = [*found["lines"], *chance]
    rows = (
        (
            line["compared"],
            kind.replace("_", " "),
            f"{at['threshold']:g}",
            number(at["first"]["mean"], 0),
            number(at["second"]["mean"], 0),
            f"{number(at['jaccard']['mean'])} ± {number(at['jaccard']['sd'])}",
            number(at["found_again"]["mean"]),
            f"{number(at['difference']['mean'])} ± {number(at['difference']['sd'])}",
        )
        for line in lines
        for kind in kinds
        for at in line[kind]
    )
    header = ("compared", "what", "from", "first", "second", "Jaccard", "found again", "difference")
    accuracies = ", ".join(f"{one['compared']} {one['test_accuracy']['mean']:.1%}" for one in found["lines"])
    conclude(done, json, header, rows, f"± is the {found['spread']}. Mean test accuracy: {accuracies}.")


def thresholds(
    run: RunArgument,
    jaccard: Annotated[float, typer.Option(help="Jaccard index that two halves of the trials are to reach.")] = 0.7,
    mem: Annotated[float, typer.Option(help="Least threshold on memorization to propose.")] = 0.25,
    any_class: AnyClass = False,
    splits: SplitsOption = 5,
    permutations: PermutationsOption = 3,
    seed: SeedOption = 0,
    keep: KeepOption = None,
    memory: MemoryOption = None,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Propose thresholds for a run (Sec. 2).

    The lowest at which two halves of its trials select much the same; so the paper chose an influence of 0.15.
    """
    options: dict[str, Any] = {"splits": splits, "permutations": permutations, "seed": seed, "keep": keep}
    options |= {"mem": mem, "same_class": not any_class, "memory": memory}
    done = do("thresholds", [run], out, jaccard=jaccard, **options)
    found = done[0].numbers
    could_be_lower = found["infl_could_be_lower"]  # the lowest that was looked at
    rows = (
        (
            name,
            "none" if found[key] is None else f"{found[key]:g}{' or less' if key == 'infl' and could_be_lower else ''}",
            *(("-", "-", "-") if (at := found["at"][name]) is None else _at(at)),
        )
        for name, key in (("memorization", "mem"), ("influence", "infl"))
    )
    proposal = (
        f"memfluence pairs {run} --mem {found['mem']:g} --infl {found['infl']:g}" if found["note"] is None else None
    )
    lines = [found["note"] or f"Use them: {proposal}{' --any-class' if any_class else ''}"]
    conclude(done, json, ("threshold on", "proposed", "Jaccard", "one half", "other half"), rows, *lines)


def _at(at: dict[str, Any]) -> tuple[str, str, str]:
    return (
        f"{number(at['jaccard'])} ± {number(at['jaccard_sd'])}",
        number(at["first"], 0),
        number(at["second"], 0),
    )
