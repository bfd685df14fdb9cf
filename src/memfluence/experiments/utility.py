"""Marginal utility of the high-influence training examples S_h (the paper's section on influence).

Definition. S_h and S'_h are the training and the test examples in high-influence pairs, as a run finds them. Models are
trained on all of S and on S without S_h. How much accuracy is lost on the whole test set, how much of that is due to
S'_h, |S'_h| / n_test times the loss on S'_h, and how much to the other test examples. The paper (CIFAR-100, 100 runs):
76.06 +- 0.28 and 73.52 +- 0.25, 2.54 +- 0.2 lost, of which S'_h contributes 2.38 +- 0.17: the influences that were
found are all that S_h is good for.

Estimator. Models are counted, not averaged: the correct answers on S'_h and on the rest are integers over one
denominator and add up to the whole exactly (`decomposition`).

Variance. Standard deviations are of one run (of a difference: of one run of each side), standard errors of the means.
The two sides share no seeds, so they are not paired.

Failure cases. The models are new, so nothing here suffers from the selection of the pairs; which pairs were selected
does: with few trials many are chance, and S_h is then larger and S'_h less affected. Removing S_h may empty a class:
see `removal`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from memfluence.errors import InputError
from memfluence.experiments._checks import check_classes, check_repeats, check_trials, warn
from memfluence.experiments._result import Result, about
from memfluence.experiments._retraining import Retraining, blocks, correct_by_trial
from memfluence.experiments._splits import of_keep
from memfluence.experiments._statistics import difference, models, spread
from memfluence.records import Trials
from memfluence.runs import Run

__all__ = ["plan", "summarize"]

ARMS = ("all", "without")


def plan(
    run: Run,
    repeats: int = 20,
    *,
    mem: float = 0.25,
    infl: float = 0.15,
    same_class: bool = True,
    seed: int = 0,
    keep: float | None = None,
    begun: Sequence[int] = (),
) -> Retraining:
    """`repeats` models that keep all examples, and as many without S_h, by turns: wherever training is cut, both sides
    have models. `begun`: see `removal.plan`.
    """
    check_trials(run)
    check_repeats(repeats)
    pairs = run.find_pairs(mem, infl, same_class=same_class, keep=keep)
    if not len(pairs):
        raise InputError(f"{run.path} has no high-influence pairs to remove. {pairs.warning}")
    if pairs.warning is not None:  # before anything is trained
        warn(
            f"S_h would be made of {len(pairs):,} pairs, of which about {pairs.expected_by_chance:,.0f} are expected by"
            f" chance, and its models would measure noise as well; raise the threshold on influence (--infl, now"
            f" {infl:g}), or run more trials."
        )
    kept = np.ones(run.info.n_train, dtype=bool)
    kept[pairs.train_index] = False
    emptied = check_classes(run, kept, "in high-influence pairs")
    parts = blocks(repeats, begun)
    purposes = tuple({"arm": arm, "repeat": repeat} for part in parts for repeat in part for arm in ARMS)
    masks = [kept if one["arm"] == "without" else np.ones_like(kept) for one in purposes]
    settings = {
        "about": about(run.info),
        "repeats": parts[-1].stop,
        "begun": [part.stop for part in parts],
        "mem": mem,
        "infl": infl,
        "same_class": same_class,
        "keep": keep,
        "pairs": len(pairs),
        "pairs_by_chance": pairs.expected_by_chance,
        "influence_from_trials": len(of_keep(run, keep)),
        "n_train": run.info.n_train,
        "n_test": run.info.n_test,
        "removed": int((~kept).sum()),
        "influenced": np.unique(pairs.test_index).tolist(),  # S'_h
        "emptied_classes": emptied,
    }
    return Retraining("utility", np.stack(masks), purposes, settings, seed, len(ARMS) * len(parts[0]))


def summarize(plan: Retraining, trials: Trials) -> Result:
    """Accuracies of both sides on the whole test set and on S'_h, the loss, and what contributes to it."""
    import pandas as pd

    settings, n_test = plan.settings, int(plan.settings["n_test"])
    influenced = np.zeros(n_test, dtype=bool)
    influenced[settings["influenced"]] = True
    sets = {"test": np.ones(n_test, dtype=bool), "influenced": influenced, "rest": ~influenced}
    correct = correct_by_trial(plan, trials)
    counts = {  # correct answers of each model, integers: (models,) for each arm and set of test examples
        (arm, name): np.array(
            [int(correct[number][members].sum()) for number in plan.rows(arm=arm) if number in correct], dtype=np.int64
        )
        for arm in ARMS
        for name, members in sets.items()
    }
    if missing := [arm for arm in ARMS if not len(counts[arm, "test"])]:
        raise InputError(f"There is no trained model of the side {missing[0]!r} yet; run the experiment to its end.")
    numbers: dict[str, Any] = {}
    for name, members in sets.items():
        size = int(members.sum())
        sides = [counts[arm, name] / size if size else counts[arm, name] * np.nan for arm in ARMS]
        numbers[name] = {
            "examples": size,
            "accuracy": spread(sides[0]),
            "accuracy_without": spread(sides[1]),
            "difference": difference(*sides),
            "contribution": difference(*(counts[arm, name] / n_test for arm in ARMS)),  # to the test set's difference
        }
    whole, part, rest = (numbers[name]["contribution"] for name in sets)
    numbers |= {
        "decomposition": _decomposition(counts, n_test),
        "share_of_influenced": part["mean"] / whole["mean"] if whole["mean"] else float("nan"),
        "within_one_sd": abs(whole["mean"] - part["mean"]) <= whole["sd"],
        "rest_in_standard_errors": rest["mean"] / rest["stderr"] if rest["stderr"] else float("nan"),
        "paired": False,
    }
    rows = [
        {"arm": arm, "set": name, "run": k, "correct": int(one), "examples": numbers[name]["examples"]}
        for (arm, name), of in counts.items()
        for k, one in enumerate(of)
    ]
    there = [len(counts[arm, "test"]) for arm in ARMS]
    title = (
        f"{settings['about']}, {settings['removed']:,} of them in {settings['pairs']:,} pairs from"
        f" {settings['influence_from_trials']:,} models; {models(there)} a side"
    )
    return Result("utility", title, numbers, pd.DataFrame(rows), settings)


def _decomposition(counts: dict[tuple[str, str], np.ndarray], n_test: int) -> dict[str, int]:
    """The loss on the test set, and what S'_h and the rest add to it, as integers over one denominator."""
    models = {arm: len(counts[arm, "test"]) for arm in ARMS}
    found = {
        name: int(counts["all", name].sum()) * models["without"] - int(counts["without", name].sum()) * models["all"]
        for name in ("test", "influenced", "rest")
    }
    return {**found, "denominator": models["all"] * models["without"] * n_test}
