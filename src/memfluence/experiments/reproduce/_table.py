"""The paper's numbers beside ours, row by row."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from memfluence import paper
from memfluence.experiments import Result
from memfluence.experiments.histogram import STRONG
from memfluence.experiments.reproduce._reasons import Facts, difference, reasons, thresholds_of_ours
from memfluence.experiments.reproduce._subjects import TITLES
from memfluence.paper import Reported

__all__ = ["as_markdown", "in_words", "rows_of", "sides_in_words"]

PERCENT = {"accuracy", "accuracy_without", "accuracy_whole", "test_accuracy", "contribution", "share", "test_share"}
PERCENT |= {"share_below_strong", "cost", "cost_random", "found_again"}
CHOSEN = {"run.mem", "run.infl", "run.keep", "thresholds.jaccard"}  # settings: ours are the paper's
TWICE = {"last-layer.network.test_accuracy", "last-layer.network.memorized"}  # the same as those of the run
ELSEWHERE = "removal.memorized"  # share and utility, which the paper states for ImageNet


def rows_of(
    dataset: str, results: Mapping[str, Result], missing: Mapping[str, str], facts: Facts
) -> list[dict[str, Any]]:
    """One row for each number of the paper: its value, ours with spread and n, and why they differ."""
    theirs = [(dataset, one) for one in paper.reported(dataset).values() if one.name not in CHOSEN | TWICE]
    theirs += [("imagenet", one) for one in paper.reported("imagenet").values() if one.name.startswith(ELSEWHERE)]
    found = []
    for of, one in theirs:
        part = one.name.partition(".")[0]
        mine = paper.ours(one, results[part]) if part in results and not _says_nothing(one, facts) else None
        row = {"name": one.name, "what": one.what, "where": one.where, "of": of, "paper": _theirs(one)}
        row["at"] = thresholds_of_ours(one, facts)  # other thresholds than the paper's
        if mine is None:
            absent = _absent(one, part in results, missing, facts)
            found.append({**row, "ours": None, "difference": None, "reasons": {"missing": absent}})
        else:
            ours = {key: value for key in ("mean", "sd", "stderr") if (value := mine.get(key)) is not None}
            why = reasons(one, mine, replace(facts, of=of))
            n = mine.get("n") or _models(one.name, facts)
            found.append(
                {
                    **row,
                    "ours": {**ours, "n": n},
                    "difference": difference(one, mine),
                    "reasons": why,
                }
            )
    return found


def _says_nothing(one: Reported, facts: Facts) -> bool:
    """The share of pairs below 0.4, of pairs that were selected from 0.4 on."""
    return one.name == "histogram.share_below_strong" and facts.infl >= STRONG


def _absent(one: Reported, there: bool, missing: Mapping[str, str], facts: Facts) -> str:
    """Why we have no such number."""
    part = one.name.partition(".")[0]
    if one.name == "run.accuracy_whole":
        return "No models were trained on everything."
    if there and one.name == "last-layer.speedup":
        return "The trials do not say how long they took."
    if there and _says_nothing(one, facts):
        return f"All of ours were selected from {facts.infl:g} on."
    if part == "thresholds" and there:
        return "Two halves do not agree at any threshold (see its section)."
    return "It could not be estimated." if there else missing.get(part, "It was not asked for.")


def _theirs(one: Reported) -> dict[str, Any]:
    return {"value": one.value, "spread": one.spread, "n": one.runs, "bound": one.bound}


def _models(name: str, facts: Facts) -> int | None:
    """How many models a number without an n of its own comes from; None for numbers of models."""
    part, _, last = name.partition(".")
    if name == "last-layer.representation.test_accuracy":
        return 1
    if last.endswith(("trials", "trials_each", "accuracy.n")) or part not in (
        "run",
        "histogram",
        "thresholds",
        "last-layer",
        "removal",
    ):
        return None
    return facts.linear_models if part == "last-layer" else facts.trials


def as_markdown(rows: list[dict[str, Any]], dataset: str) -> list[str]:
    """A table of the rows that have a number of ours, and what its words for reasons stand for."""
    lines = [f"| | | paper ({TITLES[dataset]}) | ours | n | difference |", "|---|---|---|---|---|---|"]
    meant: dict[str, list[str]] = {}
    for row in rows:
        if row["ours"] is None:
            continue
        other = "" if row["of"] == dataset else f" ({TITLES[row['of']]})"
        for word, reason in row["reasons"].items():
            said = meant.setdefault(word, [])
            if not any(one.startswith(reason) for one in said):
                said.append(reason)
        why = "none" if row["difference"] == "same" else f"{row['difference']}: {', '.join(row['reasons'])}"
        theirs, ours = sides_in_words(row)
        n = _count(row["ours"]["n"])
        lines.append(f"| {row['what']} | {row['where']} | {theirs}{other} | {ours} | {n} | {why} |")
    return [*lines, "", *(f"- **{word}**: {'; '.join(said)}." for word, said in meant.items())]


def sides_in_words(row: Mapping[str, Any]) -> tuple[str, str]:
    """'about 82.00%' and '15.39% ± 0.43 (influence >= 0.4)': the paper's number and ours, of a row that has both."""
    theirs, ours = row["paper"], row["ours"]
    bound = f"{theirs['bound']} " if theirs["bound"] else ""
    mark = " (se)" if ours.get("sd") is None and ours.get("stderr") is not None else ""
    at = f" ({row['at']})" if row["at"] else ""
    mine = in_words(row["name"], ours["mean"], ours.get("sd", ours.get("stderr")))
    return f"{bound}{in_words(row['name'], theirs['value'], theirs['spread'])}", f"{mine}{mark}{at}"


def _count(n: int | None) -> str:
    return "" if n is None else f"{n:,}"


def in_words(name: str, value: float, spread: float | None = None) -> str:
    """'76.06% ± 0.28', '1,015', '0.70 ± 0.02': by what the number is."""
    last = name.rpartition(".")[2]
    percent = last in PERCENT or name == "utility.test.difference"
    known = spread is not None and math.isfinite(spread)
    if percent:
        return f"{100 * value:.2f}%" + (f" ± {100 * spread:.2f}" if known else "")  # type: ignore[operator]
    if (float(value).is_integer() and abs(value) >= 1) or abs(value) >= 100 or last in ("first", "second", "pairs"):
        return f"{value:,.0f}" + (f" ± {spread:,.0f}" if known else "")
    return f"{value:.3g}" + (f" ± {spread:.2g}" if known else "")
