"""`mislabels`, `duplicates`, `attack` and `groups`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from memfluence.cli._options import AnyClass, DataOption, JsonOption, KeepOption, MemOption, MemoryOption, RunArgument
from memfluence.cli._output import as_json, number, say, show, table

if TYPE_CHECKING:
    from memfluence.findings import Variance
    from memfluence.findings.roc import Roc, Share

__all__ = ["attack", "duplicates", "groups", "mislabels"]

TopOption = Annotated[int, typer.Option("--top", min=1, help="How many to list and to draw.")]
FileOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write all rows to FILE.csv, .parquet or .npz.", show_default=False),
]
ImagesOption = Annotated[
    Path | None,
    typer.Option("--images", metavar="FILE.png", help="Draw their pictures (.png, .svg, .pdf).", show_default=False),
]


def mislabels(
    run: RunArgument,
    top: TopOption = 40,
    out: FileOption = None,
    images: ImagesOption = None,
    data: DataOption = None,
    keep: KeepOption = None,
    memory: MemoryOption = None,
    json: JsonOption = False,
) -> None:
    """Training examples whose label held-out models reject, the likeliest mislabel first.

    With predictions recorded (run --record prediction) also the label that held-out models agree on.
    """
    from memfluence.runs import Table, open_run

    opened = open_run(run, memory=memory)
    found = opened.find_mislabels(keep)
    if images is not None:
        from memfluence.report import mislabels_figure

        mislabels_figure(opened, opened.dataset(data), found, images, top)
    listed = Table(found.columns(opened.classes))
    if out is not None:
        listed.write(out)
    listed = listed.take(slice(top))
    if json:
        as_json({"trials": len(opened.trials), "mislabels": listed.rows()})
        return
    titles = {"index": "index", "label": "label"}
    if found.agreement is None:
        say("Predictions were not recorded, so no better label is suggested (run with --record prediction).")
    else:
        titles |= {"suggestion": "suggestion", "agreement": "agreement"}
    show(listed, titles | {"accuracy_out": "right if held out", "accuracy_in": "right if kept", "score": "score"})
    _say_where(out, images)


def duplicates(
    run: RunArgument,
    mem: MemOption = 0.25,
    infl: Annotated[float, typer.Option(help="Least influence.")] = 0.4,
    any_class: AnyClass = False,
    top: TopOption = 40,
    out: FileOption = None,
    images: ImagesOption = None,
    data: DataOption = None,
    keep: KeepOption = None,
    memory: MemoryOption = None,
    json: JsonOption = False,
) -> None:
    """Training and test examples that are likely near-duplicates: very high influence, the surest first."""
    from memfluence.runs import Table, open_run

    opened = open_run(run, memory=memory)
    found = opened.find_duplicates(infl, mem, same_class=not any_class, keep=keep)
    if images is not None:
        from memfluence.report import duplicates_figure

        duplicates_figure(opened, opened.dataset(data), found, images, top)
    listed = Table(found.columns(opened.classes))
    if out is not None:
        listed.write(out)
    listed = listed.take(slice(top))
    if json:
        summary = {"pairs": len(found), "expected_by_chance": found.expected_by_chance, "trials": len(opened.trials)}
        as_json({"summary": summary, "duplicates": listed.rows()})
        return
    say(
        f"{len(found)} pairs with memorization >= {mem:g} and influence >= {infl:g};"
        f" permuted masks give {found.expected_by_chance:.1f}."
    )
    if len(found):
        values = ("influence", "stderr", "lower", "memorization", "same_outcome")
        titles = {"train_index": "train", "test_index": "test", "train_label": "label"}
        show(listed, titles | {name: name.replace("_", " ") for name in values})
    _say_where(out, images)


def attack(
    run: RunArgument,
    out: FileOption = None,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", metavar="FILE.png", help="Draw the curve (.png, .svg or .pdf).", show_default=False),
    ] = None,
    variance: Annotated[
        str, typer.Option(help="Variances of the log-odds: of each example, pooled, or auto (by the trials).")
    ] = "auto",
    keep: KeepOption = None,
    memory: MemoryOption = None,
    json: JsonOption = False,
) -> None:
    """Infer membership from log-odds (LiRA): how often is a training example of a model recognized as one?

    Each trial is attacked with the others as shadow models. The run must have been made with --record logit.
    """
    from memfluence.runs import Table, open_run

    opened = open_run(run, memory=memory)
    found = opened.attack(keep, variance=cast("Variance", variance))
    of_examples = Table(found.columns(opened.labels[0]))
    if out is not None:
        of_examples.write(out)
    if figure is not None:
        from memfluence.report import attack_figure

        attack_figure(opened, found, figure)
    if json:
        variants = {name: _roc_json(roc) for name, roc in (("online", found.online), ("offline", found.offline))}
        about = {"targets": found.targets, "shadows": found.shadows, "variance": found.variance}
        as_json({**about, **variants, "train": of_examples.rows()})
        return
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
    show(of_examples.take(most), {name: name for name in names})
    if out is not None:
        say(f"All of them are in {out}.")
    if figure is not None:
        say(f"The curve is in {figure}.")


def groups(
    run: RunArgument,
    out: FileOption = None,
    influence: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the influence of each group on each test example.", show_default=False
        ),
    ] = None,
    keep: KeepOption = None,
    memory: MemoryOption = None,
    json: JsonOption = False,
) -> None:
    """Memorization of each group, and what it adds to the test accuracy; for runs made with --groups."""
    from memfluence.runs import Table, open_run
    from memfluence.runs.values import group_influence_table

    opened = open_run(run, memory=memory)
    found = opened.find_groups(keep)
    listed = Table(found.columns())
    if out is not None:
        listed.write(out)
    if influence is not None:
        group_influence_table(opened, keep).write(influence)
    if json:
        as_json({"trials": len(opened.trials), "relative": found.relative, "groups": listed.rows()})
        return
    say(f"{len(opened.trials)} trials; the groups that add most to the test accuracy:")
    most = (-found.accuracy.value).argsort(kind="stable")[:10]  # NaN last
    titles = {"group": "group", "size": "size", "test_accuracy_gain": "test accuracy gain"}
    titles |= {"test_accuracy_gain_stderr": "stderr", "memorization": "memorization", "stderr": "stderr"}
    show(listed.take(most), titles)
    if found.relative:
        say(
            "Every trial keeps as many groups, so another one is there for each that is left out: these are differences"
            " from the average group, and gains sum to 0. A run with --design lemma says what each group adds."
        )
    for file in filter(None, (out, influence)):
        say(f"All of them are in {file}.")


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


def _say_where(out: Path | None, images: Path | None) -> None:
    if out is not None:
        say(f"All of them are in {out}.")
    if images is not None:
        say(f"Their pictures are in {images}.")
