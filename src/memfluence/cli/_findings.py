"""`pairs`, `mislabels`, `duplicates`, `attack` and `groups`."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from memfluence.cli._terminal import (
    AddressOption,
    AnyClass,
    DataOption,
    InflOption,
    KeepOption,
    MemOption,
    MemoryOption,
    OpenedRun,
    OutOption,
    RunArgument,
    Said,
    number,
    say,
    say_where,
    show,
    table,
)
from memfluence.errors import InputError

if TYPE_CHECKING:
    from memfluence.findings import CrossFit, Mislabels, Pairs, Variance
    from memfluence.findings.membership import Roc, Share
    from memfluence.findings.stability import Stability
    from memfluence.runs import Run, Table

DOUBTFUL = 0.8  # share of held-out models that are right, below which labels may be ambiguous and not wrong

TopOption = Annotated[int, typer.Option(min=1, help="How many to list and to draw.")]
ImagesOption = Annotated[Path | None, "Draw their pictures (.png, .svg, .pdf).", "--images FILE.png"]


def pairs(
    run: RunArgument,
    mem: Annotated[float | None, "Least memorization of the training example.  [default: 0.25]"] = None,
    infl: Annotated[float | None, "Least influence.  [default: 0.15, none with --fdr]"] = None,
    fdr: Annotated[
        float | None,
        "Select by p-values at this false discovery rate (Benjamini-Hochberg).  [default for scores: 0.1]",
    ] = None,
    by: Annotated[bool, "With --fdr: Benjamini-Yekutieli, for any dependence."] = False,
    null: Annotated[float, "With --fdr: the null is an influence of at most this."] = 0.0,
    any_class: AnyClass = False,
    top: TopOption = 10,
    out: OutOption = None,
    images: ImagesOption = None,
    data: DataOption = None,
    keep: KeepOption = None,
    permutations: Annotated[int, "Permuted copies for the number expected by chance."] = 5,
    stability: Annotated[bool, "Also how the pairs would vary from run to run (20 resamples)."] = False,
    cross_fit: Annotated[bool, "Select on each half of the trials, with values from the other: unbiased."] = False,
    memory: MemoryOption = None,
    device: Annotated[str, "Where pairs above thresholds are looked for: cpu or cuda."] = "cpu",
    engine: Annotated[str | None, "ray: look for pairs above thresholds on a cluster."] = None,
    address: AddressOption = None,
) -> Said:
    """Memorized training examples and the test examples that each of them carries.

    Where the learner has scores of its own, pairs are selected at a false discovery rate, and --mem and --infl are in
    the score's unit.
    """
    from memfluence.runs import open_run

    if fdr is None and (by or null):
        raise InputError("--by and --null belong to --fdr; give a false discovery rate, such as --fdr 0.1.")
    if fdr is not None and (stability or cross_fit):
        raise InputError("--stability and --cross-fit are about thresholds; leave out --fdr.")
    if cross_fit and device != "cpu":
        raise InputError("--device serves plain pairs; leave it out with --cross-fit.")
    if engine not in (None, "ray"):
        raise InputError(f"There is no engine {engine!r} for pairs; give --engine ray, or leave it out.")
    if engine is None and address is not None:
        raise InputError("--address names a Ray cluster; add --engine ray, or leave it out.")
    if engine and (fdr is not None or cross_fit or stability):
        raise InputError("--engine ray serves plain pairs; leave it out with --fdr, --cross-fit and --stability.")
    opened = open_run(run, memory=memory)
    options: dict[str, Any] = {"same_class": not any_class, "keep": keep}
    drawn: Pairs | CrossFit
    if cross_fit:
        drawn, summary, columns, lines = _cross_fitted(
            opened, 0.25 if mem is None else mem, 0.15 if infl is None else infl, options
        )
    else:
        selection: dict[str, Any] = {"fdr": fdr, "null": null, "any_dependence": by, "permutations": permutations}
        with _scan(engine, address, device) as where:
            drawn, summary, columns, lines = _selected(opened, mem, infl, {**options, **selection, **where})
    if stability:
        spread = opened.pair_stability(0.25 if mem is None else mem, 0.15 if infl is None else infl, **options)
        summary |= asdict(spread)
        lines.append(_said(spread))
    found = _written(opened, columns, out)
    if images is not None:
        from memfluence.report import pair_grid

        pair_grid(opened, opened.dataset(data), drawn, images, top)
    yield {"summary": summary, "pairs": found.rows()}
    say(*lines)
    if not len(found):
        return
    titles = {"train_index": "train", "test_index": "test", "label": "label", "influence": "influence"}
    titles |= {"stderr": "stderr", "memorization": "memorization"}
    more = {"q_value": "q", "influence_selecting": "selecting half"}
    show(opened, found.take(slice(top)), titles | {name: title for name, title in more.items() if name in columns})
    if len(found) > top or out:
        say_where(out, hint=True)
    say_where(images, "Their pictures are")


@contextmanager
def _scan(engine: str | None, address: str | None, device: str) -> Iterator[dict[str, Any]]:
    """The options of `find_pairs` that say where it looks: on the device here, or on such devices of a cluster."""
    if engine is None:
        yield {"device": device}
        return
    from memfluence.runs.scanning import scan_on_ray

    with scan_on_ray(address, device=device) as scan:
        yield {"scan": scan}


def _selected(
    run: "Run", mem: float | None, infl: float | None, options: dict[str, Any]
) -> tuple["Pairs", dict[str, Any], dict[str, Any], list[str]]:
    found = run.find_pairs(mem, infl, **options)
    counts, fdr = found.summary, found.fdr
    summary: dict[str, Any] = {
        **counts,
        "expected_by_chance": found.expected_by_chance,
        "expected_by_chance_sd": found.by_chance_spread,
        "mean_influence": float(found.influence.mean()) if len(found) else None,
        "tested": found.tested,
        "warning": found.warning,
    }
    lines = [
        f"{counts['pairs']} pairs of {counts['train_examples']} training and {counts['test_examples']} test examples;"
        f" {counts['single_test_examples']} test examples are in one pair only."
    ]
    if fdr is not None:
        procedure = "Benjamini-Yekutieli" if options["any_dependence"] else "Benjamini-Hochberg"
        selected, cut = found.selected, infl is not None
        summary |= {"fdr": fdr, "null": options["null"], "procedure": procedure, "selected": selected}
        summary["fdr_holds"] = not cut  # a threshold afterwards can drop true pairs and keep the false ones
        tested = f"Of {found.tested:,} pairs tested against influence <= {options['null']:g}"
        at_rate = f"selected at a false discovery rate of {fdr:g} ({procedure})"
        lines.append(
            f"{tested}, {selected:,} are {at_rate}; of those, {len(found):,} are at or above {infl:g}. The rate holds"
            " for the selection before that cut, not for what is left."
            if cut
            else f"{tested}, these are {at_rate}."
        )
    if options["permutations"]:
        lines.append(
            f"By chance alone (permuted masks) the same {'thresholds select' if fdr is None else 'p-value selects'}"
            f" {found.expected_by_chance:.1f} pairs"
            + (
                f", give or take {found.by_chance_spread:.1f}."
                if options["permutations"] > 1
                else "; one permutation does not say how much that varies."
            )
        )
    if found.warning:
        lines.append(f"Note: {found.warning}")
    return found, summary, found.columns(run.labels[0]), lines


def _cross_fitted(
    run: "Run", mem: float, infl: float, options: dict[str, Any]
) -> tuple["CrossFit", dict[str, Any], dict[str, Any], list[str]]:
    import numpy as np

    found = run.cross_fitted_pairs(mem, infl, **options)
    estimated = ~np.isnan(found.influence)  # (pairs,) the other half of few trials may never keep, or leave out, i
    summary = {
        "pairs": len(found),
        "estimated": int(estimated.sum()),
        "train_examples": len(set(found.train_index.tolist())),
        "test_examples": len(set(found.test_index.tolist())),
        "mean_influence": float(found.influence[estimated].mean()) if estimated.any() else None,
        "mean_influence_selecting": float(found.influence_selecting[estimated].mean()) if estimated.any() else None,
        "still_above": int((found.influence >= infl).sum()),
    }
    lines = [
        f"Each half of the trials selected pairs, {len(found)} in all, and the other half gives their values; a pair"
        " that both select is there twice. They describe what half of the trials select.",
    ]
    if not estimated.all():
        lines.append(
            f"The other half cannot give {int((~estimated).sum())} of them a value, since it always kept the training"
            f" example or always left it out; what follows is of the other {summary['estimated']}."
        )
    if estimated.any():
        lines.append(
            f"Mean influence {summary['mean_influence']:.3f}, where the selecting half says"
            f" {summary['mean_influence_selecting']:.3f}; {summary['still_above']} are again at or above {infl:g}."
        )
    return found, summary, found.columns(run.labels[0]), lines


def _said(spread: "Stability") -> str:
    """Numbers where the resampled runs give them, and words where they do not."""
    if not spread.pairs_stderr and math.isnan(spread.expected_jaccard):
        return "How the pairs vary from run to run cannot be said: resampled runs select none; run more trials."
    said = f"From run to run the number of pairs varies by {spread.pairs_stderr:.1f}"
    if math.isnan(spread.mean_influence_stderr):
        said += " (standard deviation); how their mean influence does cannot be said, since some runs would select none"
    else:
        said += f" and their mean influence by {spread.mean_influence_stderr:.4f} (standard deviations)"
    if math.isnan(spread.expected_jaccard):
        return f"{said}, nor how many of them two runs share."
    return (
        f"{said}; two runs share pairs with a Jaccard index of {spread.expected_jaccard:.2f} +-"
        f" {spread.expected_jaccard_stderr:.2f}."
    )


def mislabels(
    run: OpenedRun,
    top: TopOption = 40,
    out: OutOption = None,
    images: ImagesOption = None,
    data: DataOption = None,
    keep: KeepOption = None,
) -> Said:
    """Training examples whose label is believed to be wrong: held-out models reject it. The likeliest comes first.

    Ranked by margins where they were recorded (by default, if the learner gives scores), otherwise by votes. With
    predictions (run --record prediction,margin) also the label that held-out models agree on. --out and --json go on
    after the labels that are believed to be wrong.
    """
    from memfluence.report import mislabels_figure
    from memfluence.runs.values import check_bits

    found = run.find_mislabels(keep)
    believed = int(found.believed.sum())
    listed = _written(run, found.columns(run.classes, run.labels[0]), out)
    if images is not None:
        check_bits(run)
        mislabels_figure(run, run.dataset(data), found, images, top)
    yield {"trials": len(run.trials), "believed": believed, "mislabels": listed.take(slice(top)).rows()}
    say(_how_many(found, believed))
    titles = {"index": "index", "label": "label"}
    if found.has_scores:
        titles |= {"mean_out": "mean if held out", "mean_in": "mean if kept", "score": "score"}
    elif found.agreement is None:
        say("Predictions were not recorded, so no better label is suggested (run with --record prediction,margin).")
    else:
        titles |= {"suggestion": "suggestion", "agreement": "agreement"}
    if not found.has_scores:
        titles |= {"accuracy_out": "right if held out", "accuracy_in": "right if kept", "score": "score"}
    if believed:
        show(run, listed.take(slice(min(top, believed))), titles)
    say_where(out)
    say_where(images, "Their pictures are")


def _how_many(found: "Mislabels", believed: int) -> str:
    """The number of labels believed to be wrong, and how far to trust it."""
    shares = found.accuracy_out[found.trials_out > 0]
    right = shares.mean() if len(shares) else math.nan
    if found.has_scores:
        which = f"{believed} of {len(found)} targets are" if believed else "No target is"
        return (
            f"{which} believed to be wrong: held-out models score far below what is typical (at least 3.5 spreads). The"
            " score is how far, at least, in the unit of the learner's scores."
        )
    said = f"{believed} of {len(found)} labels are believed to be wrong"
    if not believed:
        return f"No label is believed to be wrong; models that did not see an example are right on {right:.0%} of them."
    said += ": models that did not see the example reject them as firmly as they accept a label on average."
    if right < DOUBTFUL:
        said += f" They are right on {right:.0%} only, so many of these may be ambiguous and not wrong."
    return said


def duplicates(
    run: OpenedRun,
    mem: MemOption = 0.25,
    infl: InflOption = 0.4,
    any_class: AnyClass = False,
    top: TopOption = 40,
    out: OutOption = None,
    images: ImagesOption = None,
    data: DataOption = None,
    keep: KeepOption = None,
) -> Said:
    """Training and test examples that are likely near-duplicates: very high influence, the surest first."""
    from memfluence.report import duplicates_figure

    found = run.find_duplicates(infl, mem, same_class=not any_class, keep=keep)
    if images is not None:
        duplicates_figure(run, run.dataset(data), found, images, top)
    listed = _written(run, found.columns(run.classes), out).take(slice(top))
    summary = {"pairs": len(found), "expected_by_chance": found.expected_by_chance, "trials": len(run.trials)}
    yield {"summary": summary, "duplicates": listed.rows()}
    say(
        f"{len(found)} pairs with memorization >= {mem:g} and influence >= {infl:g};"
        f" permuted masks give {found.expected_by_chance:.1f}."
    )
    if len(found):
        values = ("influence", "stderr", "lower", "memorization", "same_outcome")
        titles = {"train_index": "train", "test_index": "test", "train_label": "label"}
        show(run, listed, titles | {name: name.replace("_", " ") for name in values})
    say_where(out)
    say_where(images, "Their pictures are")


def attack(
    run: OpenedRun,
    out: OutOption = None,
    figure: Annotated[Path | None, "Draw the curve (.png, .svg or .pdf).", "--figure FILE.png"] = None,
    variance: Annotated[str, "Variances of the log-odds: of each example, pooled, or auto (by the trials)."] = "auto",
    keep: KeepOption = None,
) -> Said:
    """Infer membership from log-odds (LiRA): how often is a training example of a model recognized as one?

    Each trial is attacked with the others as shadow models. The run must have been made with --record logit.
    """
    from memfluence.report import attack_figure

    found = run.attack(keep, variance=cast("Variance", variance))
    of_examples = _written(run, found.columns(run.labels[0]), out)
    if figure is not None:
        attack_figure(run, found, figure)
    variants = {name: _roc_json(roc) for name, roc in (("online", found.online), ("offline", found.offline))}
    about = {"targets": found.targets, "shadows": found.shadows, "variance": found.variance}
    yield {**about, **variants, "train": of_examples.rows()}
    say(
        f"{found.targets} target models, each attacked with {found.shadows} shadow models; Gaussians with"
        f" {'variances of their own' if found.variance == 'example' else 'one variance for all examples'}."
    )
    table(
        (
            "attack",
            "area",
            "95%",
            *(title for rate in found.online.at for title in (f"found at {rate:.1%} false", "95%")),
        ),
        (
            (name, *(cell for share in (roc.auc, *roc.at.values()) for cell in (number(share.value), _interval(share))))
            for name, roc in (("online", found.online), ("offline", found.offline))
        ),
    )
    say("The most vulnerable training examples (detected: by the online attack at 1.0% false):")
    most = (-found.separation).argsort(kind="stable")[:10]  # NaN last
    names = ("index", "label", "separation", "stderr", "detected")
    show(run, of_examples.take(most), {name: name for name in names})
    say_where(out)
    say_where(figure, "The curve is")


def groups(
    run: OpenedRun,
    out: OutOption = None,
    influence: Annotated[
        Path | None, "Write the influence of each group on each test example.", "--influence FILE"
    ] = None,
    keep: KeepOption = None,
) -> Said:
    """Memorization of each group, and what it adds to the test accuracy; for runs made with --groups."""
    from memfluence.runs.values import group_influence_table

    found = run.find_groups(keep)
    listed = _written(run, found.columns(), out)
    if influence is not None:
        group_influence_table(run, keep).write(influence)
    yield {"trials": len(run.trials), "relative": found.relative, "groups": listed.rows()}
    say(f"{len(run.trials)} trials; the groups that add most to the test accuracy:")
    most = (-found.accuracy.value).argsort(kind="stable")[:10]  # NaN last
    titles = {"group": "group", "size": "size", "test_accuracy_gain": "test accuracy gain"}
    titles |= {"test_accuracy_gain_stderr": "stderr", "memorization": "memorization", "stderr": "stderr"}
    show(run, listed.take(most), titles)
    if found.relative:
        say(
            "Every trial keeps as many groups, so another one is there for each that is left out: these are differences"
            " from the average group, and gains sum to 0. A run with --design lemma says what each group adds."
        )
    for file in (out, influence):
        say_where(file)


def _written(run: "Run", columns: dict[str, Any], out: Path | None) -> "Table":
    """The columns, and the ids of their examples, as a table, which is written to a file if one is given."""
    from memfluence.runs import Table

    found = Table.of_examples(columns, run.ids)
    if out is not None:
        found.write(out)
    return found


def _roc_json(roc: "Roc") -> dict[str, Any]:
    return {
        "auc": asdict(roc.auc),
        "tpr_at_fpr": {f"{rate:g}": asdict(share) for rate, share in roc.at.items()},
        "members": roc.members,
        "non_members": roc.non_members,
        "curve": {"fpr": roc.rates.tolist(), "tpr": roc.found.tolist()},
    }


def _interval(share: "Share") -> str:
    return f"{number(share.lower)}-{number(share.upper)}"
