"""Commands of experiments that train models of their own: `removal`, `utility`, `last-layer`."""

import math
from typing import Annotated, Any

import typer

from memfluence.cli._experiment import OutOption, conclude, numbers, percent, train
from memfluence.cli._options import (
    AnyClass,
    DataOption,
    DeviceOption,
    InflOption,
    JsonOption,
    KeepOption,
    MemOption,
    RunArgument,
    SeedOption,
    SetOption,
    settings,
)
from memfluence.cli._output import number

__all__ = ["last_layer", "removal", "utility"]

LearnerAgainOption = Annotated[
    str | None, typer.Option("--learner", help="Another learner.  [default: the run's]", show_default=False)
]
EngineOption = Annotated[
    str | None, typer.Option(help="local or processes.  [default: by --workers]", show_default=False)
]
WorkersOption = Annotated[int, typer.Option(help="Worker processes.")]
RetryOption = Annotated[bool, typer.Option("--retry-failed", help="Run just the trials that failed.")]
NoTrainOption = Annotated[
    bool, typer.Option("--no-train", help="Summarize the models that are there; needs neither data nor learner.")
]
CheckpointOption = Annotated[float, typer.Option(metavar="SECONDS", help="As for run.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress.")]
RepeatsOption = Annotated[int, typer.Option(help="Models for each point, all with seeds of their own.")]


def removal(
    run: RunArgument,
    thresholds: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Of memorization.  [default: 0.1,0.2,...,0.9]", show_default=False),
    ] = None,
    repeats: RepeatsOption = 5,
    mem: Annotated[float, typer.Option(help="Threshold at which share and utility are stated.")] = 0.3,
    seed: SeedOption = 0,
    keep: KeepOption = None,
    out: OutOption = None,
    data: DataOption = None,
    learner: LearnerAgainOption = None,
    set_: SetOption = None,
    engine: EngineOption = None,
    workers: WorkersOption = 1,
    device: DeviceOption = "auto",
    retry_failed: RetryOption = False,
    no_train: NoTrainOption = False,
    checkpoint_every: CheckpointOption = 60,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Test accuracy without the examples memorized at or above each threshold, and without random ones (Fig. 2)."""
    chosen = {} if thresholds is None else {"thresholds": numbers(thresholds, "--thresholds")}
    done = train(
        "removal",
        [run],
        out,
        quiet,
        set_,
        **chosen,
        repeats=repeats,
        mem=mem,
        seed=seed,
        keep=keep,
        dataset=data,
        learner=learner,
        engine=engine,
        workers=workers,
        device=device,
        retry_failed=retry_failed,
        train=not no_train,
        checkpoint_every=checkpoint_every,
    )
    found = done[0].numbers
    conclude(
        done,
        json,
        ("memorization", "removed", "left", "accuracy %", "random %", "excess cost"),
        (
            (
                f">= {one['threshold']:g}",
                one["removed"],
                f"{one['fraction_left']:.1%}",
                percent(one["accuracy"]),
                percent(one["accuracy_random"]),
                f"{number(100 * one['excess']['mean'], 2)} ± {number(100 * one['excess']['stderr'], 2)}",
            )
            for one in found["points"]
        ),
        f"Nothing removed: {percent(found['accuracy'])}. ± is one standard deviation; of the excess, its error.",
        *_utility_of_memorized(found["memorized"], mem),
    )


def _utility_of_memorized(at: dict[str, Any] | None, mem: float) -> list[str]:
    if at is None:
        return [f"No example has a memorization of {mem:g} or more."]
    costs = (
        f"{number(100 * at[key]['mean'], 2)} ± {number(100 * at[key]['stderr'], 2)}" for key in ("cost", "cost_random")
    )
    return [
        "{share:.1%} of the examples are memorized at {mem:g} or above; their removal costs {0} points of accuracy,"
        " that of as many random ones {1} (± standard error).".format(*costs, share=at["share"], mem=mem)
    ]


def utility(
    run: RunArgument,
    repeats: RepeatsOption = 20,
    mem: MemOption = 0.25,
    infl: InflOption = 0.15,
    any_class: AnyClass = False,
    seed: SeedOption = 0,
    keep: KeepOption = None,
    out: OutOption = None,
    data: DataOption = None,
    learner: LearnerAgainOption = None,
    set_: SetOption = None,
    engine: EngineOption = None,
    workers: WorkersOption = 1,
    device: DeviceOption = "auto",
    retry_failed: RetryOption = False,
    no_train: NoTrainOption = False,
    checkpoint_every: CheckpointOption = 60,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Marginal utility of the training examples in high-influence pairs, and how much of it the pairs explain."""
    done = train(
        "utility",
        [run],
        out,
        quiet,
        set_,
        repeats=repeats,
        mem=mem,
        infl=infl,
        same_class=not any_class,
        seed=seed,
        keep=keep,
        dataset=data,
        learner=learner,
        engine=engine,
        workers=workers,
        device=device,
        retry_failed=retry_failed,
        train=not no_train,
        checkpoint_every=checkpoint_every,
    )
    found = done[0].numbers
    sets = {"test": "whole test set", "influenced": "influenced", "rest": "the rest"}
    columns = ("accuracy", "accuracy_without", "difference", "contribution")
    within = "within" if found["within_one_sd"] else "not within"
    away = found["rest_in_standard_errors"]
    known = away is not None and math.isfinite(away)
    rest = f"; the rest of it is {away:.1f} standard errors from 0, which says more" if known else ""
    errors = ", ".join(
        f"{title} {number(100 * found[name]['contribution']['stderr'], 2)}" for name, title in sets.items()
    )
    conclude(
        done,
        json,
        ("test examples", "n", "all kept %", "without S_h %", "lost %", "contributes, points"),
        (
            (title, found[name]["examples"], *(percent(found[name][key]) for key in columns))
            for name, title in sets.items()
        ),
        "± is one standard deviation of one run (of a difference: of one run of each side, which are not paired);"
        f" standard errors of the losses: {errors}. What the influenced examples contribute is {within} one standard"
        f" deviation of the whole loss, as the paper states it{rest}.",
    )


def last_layer(
    run: RunArgument,
    trials: Annotated[int, typer.Option(help="How many linear models to train.")] = 1000,
    mem: MemOption = 0.25,
    infl: InflOption = 0.15,
    any_class: AnyClass = False,
    seed: SeedOption = 0,
    keep: KeepOption = None,
    linear_set: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Setting of the linear models (linear@paper); repeatable.", show_default=False
        ),
    ] = None,
    out: OutOption = None,
    data: DataOption = None,
    learner: LearnerAgainOption = None,
    set_: SetOption = None,
    engine: EngineOption = None,
    workers: WorkersOption = 1,
    device: DeviceOption = "auto",
    retry_failed: RetryOption = False,
    checkpoint_every: CheckpointOption = 60,
    no_train: NoTrainOption = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Retrain the last layer alone, on representations that have seen everything: how little it memorizes (Fig. 8)."""
    done = train(
        "last-layer",
        [run],
        out,
        quiet,
        set_,
        trials=trials,
        mem=mem,
        infl=infl,
        same_class=not any_class,
        seed=seed,
        keep=keep,
        linear=settings(linear_set),
        dataset=data,
        learner=learner,
        engine=engine,
        workers=workers,
        device=device,
        retry_failed=retry_failed,
        checkpoint_every=checkpoint_every,
        train=not no_train,
    )
    found = done[0].numbers
    pairs, network = found["pairs"], found["representation"]
    rows = (
        ("test accuracy %", *(percent(found[side]["test_accuracy"]) for side in ("network", "linear")), ""),
        (f"memorized (>= {mem:g})", *_sides(found["memorized"])),
        (f"pairs (influence >= {infl:g})", *_sides(pairs["memorized"]["agreement"])),
        ("pairs, memorized or not", *_sides(pairs["any"]["agreement"])),
    )
    conclude(
        done,
        json,
        ("", "whole networks", "linear models", "Jaccard"),
        rows,
        f"The network trained once, on everything ({network['learner']}, {network['features']} features): test accuracy"
        f" {network['test_accuracy']:.2%}.",
        "Standard errors over trials: {network:.0f} and {linear:.0f} memorized, Jaccard {jaccard:.3f}.".format(
            **found["memorized"]["stderr"]
        ),
        f"Note: {found['note']}",
    )


def _sides(found: dict[str, Any]) -> tuple[object, ...]:
    return found["network"], found["linear"], number(found["jaccard"])
