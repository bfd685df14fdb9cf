"""`pairs`: by thresholds, by false discovery rate, or corrected for selection."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memfluence.cli._options import (
    AddressOption,
    AnyClass,
    JsonOption,
    KeepOption,
    MemOption,
    MemoryOption,
    RunArgument,
    TableOption,
)
from memfluence.cli._output import as_json, say, show
from memfluence.errors import InputError

if TYPE_CHECKING:
    from memfluence.findings.stability import Stability
    from memfluence.runs import Run

__all__ = ["pairs"]

_SHOWN = 10  # rows that a person sees; --json and --out give all


def pairs(
    run: RunArgument,
    mem: MemOption = 0.25,
    infl: Annotated[
        float | None, typer.Option(help="Least influence.  [default: 0.15, none with --fdr]", show_default=False)
    ] = None,
    fdr: Annotated[
        float | None,
        typer.Option(help="Select by p-values at this false discovery rate (Benjamini-Hochberg).", show_default=False),
    ] = None,
    by: Annotated[bool, typer.Option("--by", help="With --fdr: Benjamini-Yekutieli, for any dependence.")] = False,
    null: Annotated[float, typer.Option(help="With --fdr: the null is an influence of at most this.")] = 0.0,
    any_class: AnyClass = False,
    out: TableOption = None,
    keep: KeepOption = None,
    permutations: Annotated[int, typer.Option(help="Permuted copies for the number expected by chance.")] = 5,
    stability: Annotated[
        bool, typer.Option("--stability", help="Also how the pairs would vary from run to run (20 resamples).")
    ] = False,
    cross_fit: Annotated[
        bool,
        typer.Option("--cross-fit", help="Select on each half of the trials, with values from the other: unbiased."),
    ] = False,
    memory: MemoryOption = None,
    device: Annotated[str, typer.Option(help="Where pairs above thresholds are looked for: cpu or cuda.")] = "cpu",
    engine: Annotated[
        str | None, typer.Option(help="ray: look for pairs above thresholds on a cluster.", show_default=False)
    ] = None,
    address: AddressOption = None,
    json: JsonOption = False,
) -> None:
    """Memorized training examples and the test examples that each of them carries."""
    from memfluence.runs import Table, open_run

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
    if cross_fit:
        summary, columns, lines = _cross_fitted(opened, mem, 0.15 if infl is None else infl, options)
    else:
        selection: dict[str, Any] = {"fdr": fdr, "null": null, "any_dependence": by, "permutations": permutations}
        with _scan(engine, address, device) as where:
            summary, columns, lines = _selected(opened, mem, infl, {**options, **selection, **where})
    if stability:
        spread = opened.pair_stability(mem, 0.15 if infl is None else infl, **options)
        summary |= asdict(spread)
        lines.append(_said(spread))
    found = Table(columns)
    if out is not None:
        found.write(out)
    if json:
        as_json({"summary": summary, "pairs": found.rows()})
        return
    say(*lines)
    if not len(found):
        return
    titles = {"train_index": "train", "test_index": "test", "label": "label", "influence": "influence"}
    titles |= {"stderr": "stderr", "memorization": "memorization"}
    more = {"q_value": "q", "influence_selecting": "selecting half"}
    show(found.take(slice(_SHOWN)), titles | {name: title for name, title in more.items() if name in columns})
    if len(found) > _SHOWN or out:
        say(f"All of them are in {out}." if out else "All of them: --out FILE.csv or --json.")


@contextmanager
def _scan(engine: str | None, address: str | None, device: str) -> Iterator[dict[str, Any]]:
    """Where pairs are looked for: on the device here, or on such devices of a cluster."""
    if engine is None:
        yield {"device": device}
        return
    from memfluence.runs.scanning import scan_on_ray

    with scan_on_ray(address, device=device) as scan:
        yield {"scan": scan}


def _selected(
    run: "Run", mem: float, infl: float | None, options: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    found = run.find_pairs(mem, infl, **options)
    counts, fdr = found.summary, options["fdr"]
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
    return summary, found.columns(run.classes), lines


def _cross_fitted(
    run: "Run", mem: float, infl: float, options: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
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
    return summary, found.columns(run.labels[0]), lines


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
