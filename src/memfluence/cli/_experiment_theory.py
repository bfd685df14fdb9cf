"""`experiment long-tail`, which makes its own data."""

from typing import Annotated

import typer

from memfluence.cli._experiment import OutOption, conclude, integers, numbers, train
from memfluence.cli._options import DeviceOption, JsonOption, SeedOption, SetOption
from memfluence.cli._output import number

__all__ = ["long_tail"]


def long_tail(
    exponents: Annotated[str, typer.Option(metavar="LIST", help="Zipf exponents.")] = "1,0.5,0.75,1.25,1.5",
    subpopulations: Annotated[str, typer.Option(metavar="LIST", help="How many of them.")] = "500,125,250,1000,2000",
    sizes: Annotated[str, typer.Option(metavar="LIST", help="Sizes of the training set.")] = "1000,250,500,2000",
    trials: Annotated[int, typer.Option(help="Models for memorization in each world.")] = 300,
    repeats: Annotated[int, typer.Option(help="Models for each accuracy.")] = 20,
    epochs: Annotated[str, typer.Option(metavar="LIST", help="When to stop early.")] = "1,2,3,5,8,12,20,30",
    clips: Annotated[
        str, typer.Option(metavar="LIST", help="Norms at which the gradient of each example is clipped.")
    ] = "0.03,0.1,0.3,1,2,3,5,10",
    noises: Annotated[
        str, typer.Option(metavar="LIST", help="Noise on clipped gradients, in multiples of their norm.")
    ] = "0.03,0.1,0.2,0.4,1,3",
    noise_clip: Annotated[float, typer.Option(help="Norm at which gradients with noise are clipped.")] = 5.0,
    seed: SeedOption = 0,
    out: OutOption = None,
    learner: Annotated[str, typer.Option(help="As for run.")] = "mlp",
    set_: SetOption = None,
    workers: Annotated[int, typer.Option(help="Worker processes.")] = 1,
    device: DeviceOption = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    json: JsonOption = False,
) -> None:
    """The theory on synthetic data: who is memorized in a long tail, and what not memorizing costs. Needs no RUN.

    The first exponent, number and size are the base world; the others differ from it in one thing at a time. In the
    base world memorization is also limited by early stopping, and by clipping and noise as in DP-SGD, for learners that
    have the settings epochs, clip and noise, as mlp has. No privacy budget is accounted for.
    """
    done = train(
        "long-tail",
        [],
        out,
        quiet,
        set_,
        exponents=numbers(exponents, "--exponents"),
        subpopulations=integers(subpopulations, "--subpopulations"),
        sizes=integers(sizes, "--sizes"),
        trials=trials,
        repeats=repeats,
        epochs=integers(epochs, "--epochs"),
        clips=numbers(clips, "--clips"),
        noises=numbers(noises, "--noises"),
        noise_clip=noise_clip,
        seed=seed,
        learner=learner,
        workers=workers,
        device=device,
    )
    seen_once = ("seen once", "test data %", "memorized", "theory", "lost", "random", "explained")
    conclude(
        done,
        json,
        ("exponent", "subpops", "n", *seen_once),
        (
            (
                f"{one['exponent']:g}",
                one["subpopulations"],
                one["n_train"],
                one["singletons"],
                number(100 * one["test_share"], 1),
                number(one["by_size"][0]["memorization"]["mean"], 2),
                number(100 * one["predicted_loss"], 1),
                *(
                    f"{number(100 * one[key]['mean'], 1)} ± {number(100 * one[key]['stderr'], 1)}"
                    for key in ("lost", "lost_random")
                ),
                f"{number(100 * one['explained'], 1)} ± {number(100 * one['explained_stderr'], 1)}",
            )
            for one in done[0].numbers["worlds"]
        ),
        "test data: the share whose subpopulation was seen once in training; memorized: mean memorization of those"
        " training examples; theory: points of accuracy lost without them if one example is enough; lost: measured;"
        " random: without as many random ones; explained: of the errors on that test data without the one training"
        " example, the share (%) that is gone with it. ± standard error.",
    )
