"""Last layer (the paper's Fig. 8): is it enough to retrain the last layer alone?

Definition. A network is trained once, on all training examples. What its last layer is given is the representation of
an example, and linear models are then trained on random subsets of these representations, by the paper's recipe
(`linear@paper`: 40 epochs). Memorization and influence are estimated from them as from any trials and compared with
those of a run that retrained the whole network: Jaccard index and average difference over thresholds
(`findings/agreement.py`), with and without the constraint that the training example is memorized.

What it is not. THE REPRESENTATION HAS SEEN EVERY TRAINING EXAMPLE, so no linear model is blind to the examples that it
leaves out, and its estimates are not those of Algorithm 1. That is the point: the paper finds 38 memorized examples in
place of 18,099, 457 pairs without the constraint of which most look alike in nothing, and linear models that are as
good on 70% of the data (75.8 +- 0.1%) as the network on all (75.9%; on 70%: 72.3 +- 0.3%), at 1/720 of the cost. So
memorization happens before the last layer.

Variance. Accuracies have the spread over models. The network is one, so what another one would give is not in it. The
two sides may differ in their numbers of trials, and the one with fewer is noisier. What is said about memorization has
a jackknife's standard error over blocks of trials of both sides. Pairs have the number that permuted masks give; how
far other trials would move them is what the experiment `consistency` says.

Failure cases. Learners without a last linear layer cannot be asked.
"""

import io
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from memfluence.datasets import Dataset
from memfluence.drawing import BLUE, ORANGE, PAGE, SOFT, axis_of_counts, legend, panels
from memfluence.engines import interrupted_at
from memfluence.errors import DeadlineReached, InputError, Interrupted, RunMismatchError, StoreError, checked_integer
from memfluence.estimators import memorization
from memfluence.experiments._result import (
    BLOCKS,
    Result,
    Said,
    check_same_data,
    check_trials,
    decimal,
    jackknife,
    of_keep,
    points,
    spread,
)
from memfluence.experiments.doing import Training, only
from memfluence.findings.agreement import MEMORIZATION, Agreement, Part, agreement, influence_agreement
from memfluence.learners import Learner, Representation, represent, resolve
from memfluence.npzfiles import open_npz
from memfluence.records import Trial, Trials, canonical_json, digest
from memfluence.runs import Run, about, open_run
from memfluence.store import CheckpointFiles, unpack, write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEADING = "What the last layer alone memorizes (Fig. 8)"

NOTE = (
    "The representation has seen every training example, so these linear models are not blind to the examples that they"
    " leave out: this is what the last layer alone memorizes, and no cheaper estimate of what the network does."
)
NETWORK_FILE = "representations.json"
CHECKPOINTS = "checkpoints"  # of the network, until its representations are there
AT_ONCE = 50  # linear models; on 50,000 x 512 features their scores take 1 GB
FEW = 10_000  # training examples, up to which a CPU spends its time on calls rather than on products
INFLUENCE = np.arange(1, 41) / 100  # thresholds compared; lower than elsewhere, since the last layer has weak ones


def plan(
    run: Run,
    trials: Annotated[int, "How many linear models to train."] = 1000,
    *,
    seed: int = 0,
    keep: float | None = None,
) -> dict[str, Any]:
    """The design of the linear models: random subsets as large as the run's. Its masks follow from it."""
    check_trials(run)
    checked_integer("trials", trials, 20)
    kept = [kind.keep for kind in run.info.kinds if kind.keep is not None]
    return {"design": "fixed", "keep": keep or (kept[0] if kept else 0.7), "trials": trials, "seed": seed}


def conduct(
    name: str,
    runs: list[Run],
    out: Path,
    training: Training,
    *,
    linear: Annotated[Mapping[str, str] | None, "Setting of the linear models (linear@paper); repeatable."] = None,
    **options: Any,
) -> Result:
    """Linear models on what the last layer of one network, trained on everything, is given."""
    run = only(runs, name)
    given = {one: options.pop(one) for one in ("trials", "seed") if one in options}
    design = plan(run, keep=options.get("keep"), **given)
    at_once = {"group": linear_at_once(run.info.n_train, training.device)}
    models = resolve("linear@paper", at_once | dict(linear or {}))
    if not training.train:
        network = _made_with(out)
        return summarize(run, open_run(out / "trained"), network, **options)
    dataset, network = _represented(training.learner_of(run), training.data_of(run), design["seed"], training, out)
    return summarize(run, training.run(out / "trained", dataset, models, **design), network, **options)


def linear_at_once(n_train: int, device: str) -> int:
    """The number of linear models trained at once: on a CPU, an epoch of 50,000 x 512 features takes one alone 0.083 s,
    ten at once 0.112 s each.
    """
    from memfluence.learners.nets.device import torch_device

    return AT_ONCE if n_train <= FEW or torch_device(device).type == "cuda" else 1


def _made_with(out: Path) -> dict[str, Any]:
    """The network that made the representations in a directory."""
    if not (out / NETWORK_FILE).is_file():
        raise InputError(f"{out} has no {NETWORK_FILE}: its network was not trained yet; run it without `train=False`.")
    found: dict[str, Any] = json.loads((out / NETWORK_FILE).read_bytes())
    return found


def _represented(
    learner: Learner, dataset: Dataset, seed: int, training: Training, out: Path
) -> tuple[Dataset, dict[str, Any]]:
    """The dataset with representations for inputs, and what made them; kept in files, so that they are made once."""
    arrays, notes = out / "representations.npz", out / NETWORK_FILE
    made_by = {"learner": learner.describe(), "data": dataset.fingerprint, "seed": seed}
    if arrays.is_file() and notes.is_file():
        network = _made_with(out)
        if canonical_json(network["made_by"]) != canonical_json(made_by):
            raise RunMismatchError(
                f"{arrays} holds what another network was made of (another learner, seed or data); choose another"
                " directory (`out`)."
            )
    else:
        outcome, train, test = _trained(learner, dataset, seed, training, out, digest(made_by))
        network = {
            "made_by": made_by,
            "learner": learner.name,
            "features": train.shape[1],
            "test_accuracy": float(outcome.test_correct.mean()),
            "train_accuracy": float(outcome.train_correct.mean()),
            "seconds": outcome.seconds,
        }
        content = io.BytesIO()
        labels = {f"y_{split}": dataset.labels(split) for split in ("train", "test")}
        np.savez(content, x_train=train, x_test=test, **labels)  # type: ignore[arg-type]
        write_whole(arrays, content.getvalue())
        write_whole(notes, (json.dumps(network, indent=2) + "\n").encode())
        shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    with open_npz(arrays, StoreError) as file:
        train, test = file.read("x_train"), file.read("x_test")
    name = f"npz:{arrays.resolve()}"
    return replace(dataset, name=name, x_train=train, x_test=test, value_range=None, attributes={}), network


def _trained(
    learner: Learner, dataset: Dataset, seed: int, training: Training, out: Path, made_by: str
) -> Representation:
    """The network on everything. Stopped, it goes on from where it was."""
    everything = Trial(0, 0, np.ones(dataset.n_train, dtype=bool), seed)
    listener, every = training.listener, training.checkpoint_every
    kept = CheckpointFiles(out / CHECKPOINTS, {"made_by": made_by}, every, listener.note) if every else None
    listener.note(f"{learner.name} on all {dataset.n_train:,} training examples, whose representations are taken:")
    listener.start(total=1, done=0)
    try:
        with interrupted_at(training.deadline):
            return represent(
                learner, dataset, everything, device=training.device, checkpoints=kept, report=listener.event
            )
    except (KeyboardInterrupt, DeadlineReached) as end:
        part_way = kept.part_way(()) if kept else []
        where = f"is kept at {part_way[0].fraction:.0%} in {out}" if part_way else "is not kept"
        over, kind = (
            ("The time is over", DeadlineReached) if isinstance(end, DeadlineReached) else ("Stopped", Interrupted)
        )
        raise kind(f"{over}: the network on all examples {where}; run the same command to go on.") from None
    finally:
        listener.stop()


def summarize(
    run: Run,
    linear: Run,
    network: Mapping[str, Any],
    *,
    mem: float = 0.25,
    infl: float = 0.15,
    same_class: bool = True,
    keep: float | None = None,
) -> Result:
    """Estimates of `run` against those of `linear`, whose inputs are what the last layer of `network` is given.

    `network` says what that network was: learner, test_accuracy, train_accuracy, features.
    """
    for one in (run, linear):
        check_trials(one)
    check_same_data(run, linear, same_inputs=False)  # those of the linear models are representations
    sides = {"network": (run, keep), "linear": (linear, None)}
    memorized = {name: side.estimate_memorization(kept).value for name, (side, kept) in sides.items()}
    estimates = {name: side.influence_estimates(kept) for name, (side, kept) in sides.items()}
    known = [~np.isnan(values) for values in memorized.values()]
    part = Part(memorized["network"], memorized["linear"], np.asarray(True), np.asarray(True))
    levels = np.union1d(INFLUENCE, [infl])
    curves = {"memorization": agreement([part], MEMORIZATION)}
    for name, allowed in (
        ("influence of memorized", tuple(values >= mem for values in memorized.values())),
        ("influence", (known[0], known[1])),
    ):
        curves[name] = influence_agreement(
            estimates["network"],
            estimates["linear"],
            (allowed[0], allowed[1]),
            *run.label_codes,
            levels,
            same_class=same_class,
        )
    stderr = _jackknifed(sides, mem)
    numbers: dict[str, Any] = {
        "note": NOTE,
        "representation": dict(network),
        "speedup": _seconds(run, keep) / _seconds(linear, None),  # of one model
        "memorized": {**_counts(agreement([part], [mem])), "stderr": stderr},
        **{
            name: {**_side(of_keep(side, kept), memorized[name], mem), "memorized_stderr": stderr[name]}
            for name, (side, kept) in sides.items()
        },
        "pairs": {
            name: {
                **_pairs(sides, least, infl, same_class),
                "agreement": {"threshold": infl, **_counts(curves[curve], int(np.searchsorted(levels, infl)))},
            }
            for name, curve, least in (("memorized", "influence of memorized", mem), ("any", "influence", -1.0))
        },
    }
    settings = {"mem": mem, "infl": infl, "same_class": same_class, "keep": keep}
    title = f"{about(run.info)}; {len(of_keep(run, keep)):,} networks, {len(linear.trials):,} linear models"
    return Result("last-layer", title, numbers, _rows(curves), settings)


def _side(trials: Trials, memorized: np.ndarray, mem: float) -> dict[str, Any]:
    accuracy = unpack(trials.test_correct, trials.n_test).mean(axis=1)  # (trials,)
    return {
        "trials": len(trials),
        "test_accuracy": spread(accuracy),
        "memorized": int((memorized >= mem).sum()),
        "largest_memorization": float(np.nanmax(memorized)),
    }


def _seconds(run: Run, keep: float | None) -> float:
    """Of one model with this keep fraction, as it was measured; NaN where it was not."""
    scan = run.store.scan(["seconds"])
    seconds = (scan.details or {}).get("seconds", np.empty(0))  # (trials,)
    known = seconds[np.isin(scan.numbers, of_keep(run, keep).numbers) & np.isfinite(seconds)] if len(seconds) else ()
    return float(np.mean(known)) if len(known) else float("nan")


def _jackknifed(sides: Mapping[str, tuple[Run, float | None]], mem: float) -> dict[str, float]:
    """Standard errors of `_counts` of the memorized, from leaving out a block of trials of both sides at a time."""
    found = []
    for block in range(BLOCKS):
        values = []
        for run, keep in sides.values():
            trials = run.trials  # dealt out in whole clusters, since only those are independent
            left = trials.select(trials.numbers // trials.cluster % BLOCKS != block)
            values.append(memorization(left, run.info.kinds, keep).value)
        found.append(_counts(agreement([Part(values[0], values[1], np.asarray(True), np.asarray(True))], [mem])))
    return {name: jackknife([one[name] for one in found]) for name in found[0]}


def _pairs(sides: Mapping[str, tuple[Run, float | None]], mem: float, infl: float, same_class: bool) -> dict[str, Any]:
    """The number of pairs that each side selects, and the number by chance."""
    found: dict[str, Any] = {}
    for name, (run, keep) in sides.items():
        pairs = run.find_pairs(mem, infl, same_class=same_class, keep=keep)
        found[name] = {
            "pairs": len(pairs),
            "by_chance": {"mean": pairs.expected_by_chance, "sd": pairs.by_chance_spread},
        }
    return found


def _counts(found: Agreement, k: int = 0) -> dict[str, Any]:
    return {
        "network": int(found.first[k]),
        "linear": int(found.second[k]),
        "shared": int(found.shared[k]),
        "jaccard": float(found.jaccard[k]),
        "average_difference": float(found.difference[k]),
    }


def _rows(curves: Mapping[str, Agreement]) -> list[dict[str, Any]]:
    columns = {"network": "first", "linear": "second"} | {name: name for name in ("shared", "jaccard", "difference")}
    return [
        {"quantity": name, "threshold": threshold, **{ours: getattr(one, its)[k] for ours, its in columns.items()}}
        for name, one in curves.items()
        for k, threshold in enumerate(one.thresholds.tolist())
    ]


def draw(result: Result) -> "Figure":
    """Examples that the last layer memorizes, and the agreement of its influences with those of whole networks."""
    table = result.table
    caption = (
        f"{result.title}. The representation has seen every training example: these linear models are not blind to what"
        " they leave out. b, c: influences of all training examples, or of those that both find memorized; dotted: the"
        " usual thresholds."
    )
    headings = ("Memorized examples", "Jaccard index of pairs", "Average difference")
    figure, axes = panels(caption, PAGE, 2.6, headings)
    _memorized(axes[0], result)
    for one, column in zip(axes[1:], ("jaccard", "difference")):
        for quantity, label, colour in (
            ("influence", "memorized or not", BLUE),
            ("influence of memorized", "memorized ones", ORANGE),
        ):
            of = table[table["quantity"] == quantity]
            one.plot(of["threshold"], of[column], color=colour, label=label)
        one.axvline(result.settings["infl"], color=SOFT, linewidth=0.8, linestyle=":")
        one.set_ylim(0, 1.02 if column == "jaccard" else None)
        one.set_xlabel("influence ≥")
        legend(one)
    return figure


def _memorized(axes: "Axes", result: Result) -> None:
    """The number of training examples that each side memorizes at each threshold."""
    of = result.table[result.table["quantity"] == "memorization"]
    for side, label, colour in (("network", "whole networks", BLUE), ("linear", "last layer alone", ORANGE)):
        axes.plot(of["threshold"], of[side], color=colour, label=label)
    top = max(1, int(of[["network", "linear"]].to_numpy().max()))
    axis_of_counts(axes, top)
    axes.set_ylim(-0.2, 1.5 * top)
    axes.axvline(result.settings["mem"], color=SOFT, linewidth=0.8, linestyle=":")
    axes.set_xlabel("memorization ≥")
    legend(axes)


def say(result: Result) -> Said:
    found, settings = result.numbers, result.settings
    pairs, network = found["pairs"], found["representation"]

    def sides(one: Mapping[str, Any]) -> tuple[object, ...]:
        return one["network"], one["linear"], decimal(one["jaccard"])

    rows = (
        ("test accuracy %", *(points(found[side]["test_accuracy"], "sd") for side in ("network", "linear")), ""),
        (f"memorized (>= {settings['mem']:g})", *sides(found["memorized"])),
        (f"pairs (influence >= {settings['infl']:g})", *sides(pairs["memorized"]["agreement"])),
        ("pairs, memorized or not", *sides(pairs["any"]["agreement"])),
    )
    error = found["memorized"]["stderr"]
    lines = (
        f"The network trained once, on everything ({network['learner']}, {network['features']} features): test accuracy"
        f" {network['test_accuracy']:.2%}.",
        f"Standard errors over trials: {error['network']:.0f} and {error['linear']:.0f} memorized, Jaccard"
        f" {error['jaccard']:.3f}.",
        f"Note: {found['note']}",
    )
    return Said(("", "whole networks", "linear models", "Jaccard"), rows, lines)


def report(result: Result, of: str) -> list[str]:
    found, pairs = result.numbers, result.numbers["pairs"]["any"]
    memorized, error = found["memorized"], found["memorized"]["stderr"]

    def beside(name: str, digits: int) -> str:
        shown = decimal(error[name], digits, ",")
        return "" if shown == "-" else f" ± {shown}"

    return [
        f"{found['linear']['trials']:,} linear models find {memorized['linear']:,}{beside('linear', 0)}"
        f" memorized examples where {found['network']['trials']:,} whole networks find"
        f" {memorized['network']:,}{beside('network', 0)} (Jaccard index"
        f" {decimal(memorized['jaccard'])}{beside('jaccard', 3)}, standard errors over trials), and"
        f" {pairs['linear']['pairs']:,} pairs without"
        f" the constraint on memorization ({pairs['linear']['by_chance']['mean']:,.0f} by chance) in place of"
        f" {pairs['network']['pairs']:,} ({pairs['network']['by_chance']['mean']:,.0f} by chance)."
        f" {found['note']}"
    ]
