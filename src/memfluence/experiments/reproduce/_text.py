"""What each experiment found, in a sentence or two that are made of its numbers."""

import math
from collections.abc import Callable
from typing import Any

from memfluence.experiments import Result

__all__ = ["CAPTIONS", "SECTIONS", "said"]

# Part: the heading of its section, in the order of the paper.
SECTIONS = {
    "examples": "What is memorized (Fig. 1)",
    "removal": "What memorized examples are worth (Fig. 2)",
    "histogram": "How strong pairs are, and chance (Fig. 3)",
    "utility": "What the training examples in pairs are good for (Sec. 3.3)",
    "pairs": "Pairs to look at (Figs. 4 to 6)",
    "consistency": "Do two halves of the trials agree? (Fig. 7)",
    "architectures": "Does another network agree? (Fig. 7)",
    "thresholds": "How low can the threshold be? (Sec. 2)",
    "last-layer": "What the last layer alone memorizes (Fig. 8)",
    "long-tail": "The theory (Feldman 2019), on data whose subpopulations are known",
}


def said(part: str, result: Result, subject: str) -> list[str]:
    """Paragraphs and tables."""
    return _SAID[part](result, subject) if part in _SAID else [f"{CAPTIONS[part]} {result.title}."]


def points(found: dict[str, Any], spread: str = "stderr") -> str:
    """'1.47 ± 0.07', a mean in percent points."""
    if _unknown(found["mean"]):
        return "-"
    return f"{100 * found['mean']:.2f}" + ("" if _unknown(found[spread]) else f" ± {100 * found[spread]:.2f}")


def _removal(result: Result, subject: str) -> list[str]:
    found = result.numbers
    known = [one for one in found["points"] if not _unknown(one["excess"]["stderr"])]
    worse = [one for one in known if one["excess"]["mean"] > 2 * one["excess"]["stderr"]]
    better = [one for one in known if one["excess"]["mean"] < -2 * one["excess"]["stderr"]]
    if len(worse) > len(known) / 2:
        verdict = (
            f"Memorized examples hurt more than random ones at {_all(worse, known)} (by more than two standard errors)."
        )
    else:
        less = f"; at {_all(better, known)} they hurt less" if better else ""
        where = f"at {_all(worse, known)}" if worse else "at no threshold"
        verdict = (
            f"{subject} does not show that memorized examples hurt more than random ones: by more than two standard"
            f" errors they do {where}{less}."
        )
    lines = [verdict, ""]
    lines += ["| memorization | removed | all kept % | without them % | without random ones % | excess cost (se) | n |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for one in found["points"]:
        lines.append(
            f"| >= {one['threshold']:g} | {one['removed']:,} ({one['share']:.1%}) | {points(found['accuracy'], 'sd')} |"
            f" {points(one['accuracy'], 'sd')} | {points(one['accuracy_random'], 'sd')} | {points(one['excess'])} |"
            f" {one['excess']['n']} |"
        )
    emptied = {
        f"{one['threshold']:g}": len(one["emptied_classes"]) for one in found["points"] if one["emptied_classes"]
    }
    if emptied:
        said_ = ", ".join(f"{count} at {level}" for level, count in emptied.items())
        lines += ["", f"Classes that lose all their examples: {said_}; their test examples are lost with them."]
    return lines


def _all(some: list[Any], known: list[Any]) -> str:
    if len(some) == len(known):
        return "every threshold"
    levels = ", ".join(f"{one['threshold']:g}" for one in some)
    return f"{len(some)} of {len(known)} thresholds ({levels})"


def _histogram(result: Result, subject: str) -> list[str]:
    found, chance = result.numbers, result.numbers["by_chance"]
    return [
        f"{found['pairs']:,} pairs of {found['train_examples']:,} training and {found['test_examples']:,} test"
        f" examples; permuted masks give {chance['mean']:,.0f} ± {chance['sd']:,.1f} (n = {chance['n']}).",
    ]


def _utility(result: Result, subject: str) -> list[str]:
    found, settings = result.numbers, result.settings
    within = "within" if found["within_one_sd"] else "not within"
    return [
        f"Without the {settings['removed']:,} training examples in the {settings['pairs']:,} pairs (of which"
        f" {settings['pairs_by_chance']:,.0f} are expected by chance) models lose"
        f" {points(found['test']['difference'])} points of accuracy (± standard error,"
        f" {found['test']['difference']['n']} models a side, not paired). The {found['influenced']['examples']:,} test"
        f" examples in pairs contribute {points(found['influenced']['contribution'])}, all others"
        f" {points(found['rest']['contribution'])}{_from_0(found['rest_in_standard_errors'])}."
        f" As the paper states it, what the test examples in pairs contribute is {within} one standard deviation"
        f" of the whole ({points(found['test']['contribution'], 'sd')} for one run of each side); the"
        " standard errors say more.",
    ]


def _from_0(standard_errors: float | None) -> str:
    known = standard_errors is not None and math.isfinite(standard_errors)
    return f", which is {standard_errors:.1f} standard errors from 0" if known else ""


def _agreement(result: Result, subject: str) -> list[str]:
    found, lines = result.numbers, []
    for line in found["lines"] if len(found["lines"]) == 1 else found["lines"][1:]:  # halves have their own section
        what = "Two halves" if line["halves"] else f"The other network ({line['compared']}) and one half"
        memorized, pair, chance = line["memorization"][0], line["same_class"][0], line["by_chance"]
        lines.append(
            f"{what}, {found['trials_each']:,} trials each, have a Jaccard index of {_index(memorized)} on who is"
            f" memorized at {memorized['threshold']:g} ({_by_chance(chance, 'memorization')}) and of"
            f" {_index(pair)} on pairs at {pair['threshold']:g} ({_by_chance(chance, 'same_class')});"
            f" {_number(pair['first']['mean'], 0)} and {_number(pair['second']['mean'], 0)} pairs, mean test accuracy"
            f" {line['test_accuracy']['mean']:.1%}."
        )
    return [" ".join(lines), "", f"± is the {found['spread']}."]


def _by_chance(chance: dict[str, Any], kind: str) -> str:
    """What permuted masks give."""
    if not chance[kind]:
        return "chance was not asked for"
    found = chance[kind][0]
    return "permuted masks select nothing" if _unknown(found["jaccard"]["mean"]) else f"by chance {_index(found)}"


def _unknown(value: float | None) -> bool:
    return value is None or math.isnan(value)


def _index(found: dict[str, Any]) -> str:
    value, sd = found["jaccard"]["mean"], found["jaccard"]["sd"]
    return _number(value, 3) + ("" if _unknown(sd) else f" ± {sd:.3f}")


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None or _unknown(value) else f"{value:,.{digits}f}"


def _pm(spread: float | None, digits: int) -> str:
    return "" if _unknown(spread) else f" ± {_number(spread, digits)}"


def _thresholds(result: Result, subject: str) -> list[str]:
    found = result.numbers
    if found["note"] is not None:
        return [found["note"]]
    return [
        f"Two halves of {found['trials_each']:,} trials have a Jaccard index of at least {found['jaccard']:g} at a"
        f" memorization of {found['mem']:g}, the lowest from the usual one on, and at an influence of"
        f" {found['infl']:g}, the lowest{' looked at' if found['infl_could_be_lower'] else ' at which they do'}."
    ]


def _last_layer(result: Result, subject: str) -> list[str]:
    found, pairs = result.numbers, result.numbers["pairs"]["any"]
    memorized, error = found["memorized"], found["memorized"]["stderr"]
    return [
        f"{found['linear']['trials']:,} linear models find {memorized['linear']:,}{_pm(error['linear'], 0)}"
        f" memorized examples where {found['network']['trials']:,} whole networks find"
        f" {memorized['network']:,}{_pm(error['network'], 0)} (Jaccard index"
        f" {_number(memorized['jaccard'], 3)}{_pm(error['jaccard'], 3)}, standard errors over trials), and"
        f" {pairs['linear']['pairs']:,} pairs without"
        f" the constraint on memorization ({pairs['linear']['by_chance']['mean']:,.0f} by chance) in place of"
        f" {pairs['network']['pairs']:,} ({pairs['network']['by_chance']['mean']:,.0f} by chance)."
        f" {found['note']}"
    ]


def _long_tail(result: Result, subject: str) -> list[str]:
    worlds = [one for one in result.numbers["worlds"] if one["singletons"] and one["predicted_loss"]]
    alone = [one["by_size"][0]["memorization"]["mean"] for one in worlds]
    costs = [one["lost"]["mean"] / one["predicted_loss"] for one in worlds]
    explained = [one["explained"] for one in worlds if one["explained"] is not None]
    return [
        f"In {len(worlds)} worlds, examples that are the only one of their subpopulation have a mean memorization of"
        f" {min(alone):.2f} to {max(alone):.2f}; being without them costs {min(costs):.0%} to {max(costs):.0%} of what"
        " theory says it would if one example were enough, and one training example explains"
        f" {min(explained):.0%} to {max(explained):.0%} of the errors on its subpopulation.",
        *_limits(result.numbers.get("clipping", [])),  # which older results lack
    ]


def _limits(clipping: list[dict[str, Any]]) -> list[str]:
    """What clipping and noise cost where that differs most between what was seen once and the rest."""

    def apart(one: dict[str, Any]) -> float:
        return float(one["lost"]["test_once"]["mean"] - one["lost"]["test_often"]["mean"])

    known = [one for one in clipping[1:] if not _unknown(one["lost"]["test_once"]["mean"])]
    kinds = ([one for one in known if bool(one["noise"]) == noisy] for noisy in (False, True))
    chosen = [max(kind, key=apart) for kind in kinds if kind]
    costs = []
    for one in chosen:
        noise = f" and noise of {one['noise']:g} times that" if one["noise"] else ""
        once, often = (points(one["lost"][part]) for part in ("test_once", "test_often"))
        costs.append(
            f"with gradients clipped at {one['clip']:g}{noise}, {once} points are lost on test examples whose"
            f" subpopulation was seen once, and {often} on those whose subpopulation was seen more often"
        )
    if not costs:
        return []
    n = chosen[0]["test_once"]["n"]
    return [
        f"Where memorization is limited in models that are given everything: {'; '.join(costs)} (± standard error, {n}"
        " models each)."
    ]


CAPTIONS = {
    "examples": "Training examples with memorization around 0, 0.5 and 1.",
    "pairs": "Chosen by the paper's procedure.",
}
_SAID: dict[str, Callable[[Result, str], list[str]]] = {
    "removal": _removal,
    "histogram": _histogram,
    "utility": _utility,
    "consistency": _agreement,
    "architectures": _agreement,
    "thresholds": _thresholds,
    "last-layer": _last_layer,
    "long-tail": _long_tail,
}
