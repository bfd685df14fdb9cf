"""`mislabels`, `duplicates`, `attack` and `groups`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memfluence.cli._options import AnyClass, DataOption, JsonOption, KeepOption, MemOption, MemoryOption, RunArgument
from memfluence.cli._output import as_json, number, say, table

if TYPE_CHECKING:
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
    from memfluence.exchange import rows, write_table
    from memfluence.runs import open_run

    opened = open_run(run, memory=memory)
    found = opened.find_mislabels(keep)
    if images is not None:
        from memfluence.report import mislabels_figure

        mislabels_figure(opened, opened.dataset(data), found, images, top)
    if out is not None:
        write_table(found.columns(opened.classes), out)
    columns = found.columns(opened.classes, top)
    if json:
        as_json({"trials": len(opened.trials), "mislabels": rows(columns)})
        return
    said = found.agreement is not None
    if not said:
        say("Predictions were not recorded, so no better label is suggested (run with --record prediction).")
    table(
        (
            "index",
            "label",
            *(("suggestion", "agreement") if said else ()),
            "right if held out",
            "right if kept",
            "score",
        ),
        (
            (
                columns["index"][k],
                columns["label"][k],
                *((columns["suggestion"][k], number(columns["agreement"][k])) if said else ()),
                number(columns["accuracy_out"][k]),
                number(columns["accuracy_in"][k]),
                number(columns["score"][k]),
            )
            for k in range(len(columns["index"]))
        ),
    )
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
    from memfluence.exchange import rows, write_table
    from memfluence.runs import open_run

    opened = open_run(run, memory=memory)
    found = opened.find_duplicates(infl, mem, same_class=not any_class, keep=keep)
    if images is not None:
        from memfluence.report import duplicates_figure

        duplicates_figure(opened, opened.dataset(data), found, images, top)
    if out is not None:
        write_table(found.columns(opened.classes), out)
    columns = found.columns(opened.classes, top)
    if json:
        summary = {"pairs": len(found), "expected_by_chance": found.expected_by_chance, "trials": len(opened.trials)}
        as_json({"summary": summary, "duplicates": rows(columns)})
        return
    say(
        f"{len(found)} pairs with memorization >= {mem:g} and influence >= {infl:g};"
        f" permuted masks give {found.expected_by_chance:.1f}."
    )
    if len(found):
        values = ("influence", "stderr", "lower", "memorization", "same_outcome")
        table(
            ("train", "test", "label", *(name.replace("_", " ") for name in values)),
            (
                (
                    columns["train_index"][k],
                    columns["test_index"][k],
                    columns["train_label"][k],
                    *(number(columns[name][k]) for name in values),
                )
                for k in range(len(columns["train_index"]))
            ),
        )
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
    from memfluence.exchange import rows, write_table
    from memfluence.runs import open_run

    opened = open_run(run, memory=memory)
    found = opened.attack(keep, variance=variance)
    columns = opened.vulnerability_columns(found)
    if out is not None:
        write_table(columns, out)
    if figure is not None:
        from memfluence.report import attack_figure

        attack_figure(opened, found, figure)
    if json:
        variants = {name: _roc_json(roc) for name, roc in (("online", found.online), ("offline", found.offline))}
        about = {"targets": found.targets, "shadows": found.shadows, "variance": found.variance}
        as_json({**about, **variants, "train": rows(columns)})
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
    order = (-columns["separation"]).argsort(kind="stable")[:10]  # NaN last
    names = ("separation", "stderr", "detected")
    table(
        ("index", "label", *names),
        ((columns["index"][i], columns["label"][i], *(number(columns[name][i]) for name in names)) for i in order),
    )
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
    from memfluence.exchange import rows, write_table
    from memfluence.runs import open_run

    opened = open_run(run, memory=memory)
    found = opened.find_groups(keep)
    columns = found.columns()
    if out is not None:
        write_table(columns, out)
    if influence is not None:
        write_table(opened.group_influence_columns(keep), influence)
    if json:
        as_json({"trials": len(opened.trials), "relative": found.relative, "groups": rows(columns)})
        return
    say(f"{len(opened.trials)} trials; the groups that add most to the test accuracy:")
    order = (-columns["test_accuracy_gain"]).argsort(kind="stable")[:10]  # NaN last
    names = ("test_accuracy_gain", "test_accuracy_gain_stderr", "memorization", "stderr")
    table(
        ("group", "size", "test accuracy gain", "stderr", "memorization", "stderr"),
        ((columns["group"][i], columns["size"][i], *(number(columns[name][i]) for name in names)) for i in order),
    )
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
