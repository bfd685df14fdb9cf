"""The report: one Markdown page and one JSON document, with figures beside them.

It has the paper's setting beside ours, and the paper's numbers beside ours, row by row: whether they differ, and which
settings that they depend on do. `_setting` has the rules.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

from memfluence import paper
from memfluence.experiments import EXPERIMENTS, named
from memfluence.experiments._result import Result, plain
from memfluence.experiments.histogram import STRONG
from memfluence.experiments.reproduce._parts import Parts
from memfluence.experiments.reproduce._setting import (
    IS_SHARE,
    SETTINGS,
    Facts,
    Setting,
    depends,
    difference,
    interval,
    known,
    name_of,
    reasons,
    settings_beside,
    what_was_tested,
)
from memfluence.experiments.reproduce._subjects import SECTIONS, TITLES, Subject
from memfluence.paper import INFLUENCE, MEMORIZED, Reported
from memfluence.store import write_whole

MOST_BYTES = 150_000  # of a figure
ANOTHER_NETWORK = "Another network (Fig. 7)"  # the second section of the experiment consistency


def write_report(subject: Subject, parts: Parts, path: Path) -> dict[str, Any]:
    """Write `path`, the JSON and the figures beside it; gives what the JSON holds."""
    run = _run(parts)
    facts = facts_of(parts, run)
    results = {"run": run, **{name: one for name, one in parts.results.items() if name != "architectures"}}
    rows = rows_of(subject.paper, results, parts.missing, facts)
    settings = settings_beside(subject.paper, facts)
    of_report = {
        "dataset": subject.name,
        "data": asdict(facts.data),
        "paper": subject.paper,
        "setting": {word: asdict(one) for word, one in settings.items()},
        "run": run.to_json(),
        "numbers": rows,
        "parts": {name: one.to_json() for name, one in parts.results.items()},
        "missing": dict(parts.missing),
        "report": str(path),
    }
    document: dict[str, Any] = plain(of_report)
    text = [f"# The paper's experiments on {facts.data.phrase}", "", *_beginning(subject, parts, run), ""]
    text += [_made_with(parts), ""]
    text += ["## The paper's setting beside ours", "", *setting_as_markdown(settings, subject.paper, facts), ""]
    text += ["## The paper's numbers beside ours", "", *as_markdown(rows, subject.paper, facts), "", NOTE, ""]
    for part in SECTIONS:
        if part in parts.results:
            text += _section(part, parts.results[part], parts.where / part, path, facts.data.title)
    if lines := _missing(rows, parts.missing):
        text += ["## What is missing", "", *lines, ""]
    write_whole(path, ("\n".join(text).rstrip() + "\n").encode())
    write_whole(
        path.with_suffix(".json"), (json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
    )
    return document


def _section(part: str, result: Result, where: Path, path: Path, subject: str) -> list[str]:
    """The section of a part: its heading, its figure, and what its experiment says of it."""
    module = named(result.name)
    heading = ANOTHER_NETWORK if part == "architectures" else getattr(module, "HEADING", EXPERIMENTS[part].rstrip("."))
    caption = getattr(module, "CAPTION", heading)
    said = module.report(result, subject) if hasattr(module, "report") else [f"{caption} {result.title}."]
    figures = sorted(where.glob(f"{result.name}*.png"), key=lambda file: len(file.name))
    shown = (f"![{caption}]({_copied(file, path, part + file.stem.removeprefix(result.name))})\n" for file in figures)
    return [f"## {heading}", "", *shown, *said, ""]


def _run(parts: Parts) -> Result:
    """The run in numbers, with the accuracy of models on everything where some were trained."""
    kept = parts.overview
    for part, steps in (("utility", ("test", "accuracy")), ("removal", ("accuracy",))):
        found: Any = parts.results[part].numbers if part in parts.results else None
        for step in steps:
            found = None if found is None else found[step]
        if found is not None:
            return replace(kept, numbers={**kept.numbers, "accuracy_whole": found})
    return kept


def _beginning(subject: Subject, parts: Parts, run: Result) -> list[str]:
    found, info, data = run.numbers, parts.base.info, parts.data
    accuracy = found["test_accuracy"]
    lines = [
        f"Feldman & Zhang (2020) redone by `memfluence reproduce {subject.name}`: {found['trials']:,} models of"
        f" {name_of(info.learner)} on random {found['keep']:.0%} subsets of {info.n_train:,} training examples,"
        f" {info.n_test:,} test examples, mean test accuracy {accuracy['mean']:.2%} ± {accuracy['sd']:.2%} (standard"
        f" deviation over models), {found['memorized']:,} training examples with memorization >= {found['mem']:g}."
    ]
    theirs = TITLES[subject.paper]
    if data.is_known_as(theirs):
        return [f"{lines[0]} The data are {data.phrase} ({data.how})."]
    unknown = f"and not recognised as {theirs} or another known dataset, whatever the name"
    what = f"({data.how})" if data.how else unknown
    return [f"{lines[0]} The data are {data.phrase} {what}. The paper's numbers for {theirs} stand beside ours."]


def _made_with(parts: Parts) -> str:
    """On which devices and with which versions the models were trained, as far as their stores say."""
    devices, versions = Counter[str](), dict[str, None]()
    for run in parts.trained_runs():
        found: list[str] = list(run.store.scan(["device"]).details.get("device", []))
        devices.update(f"imported into {run.path.name}" if one == "imported" else f"on {one}" for one in found if one)
        versions |= {f"{name} {version}": None for name, version in run.info.versions.items()}
    known = ", ".join(f"{number:,} {where}" for where, number in devices.most_common()) or "not recorded where"
    return f"Models behind this page: {known}; {', '.join(versions) or 'versions not recorded'}."


NOTE = (
    "± is one standard deviation over models (for consistency: over draws of trials), or, marked (se), a standard error"
    " over trials; those of counts are rather too large, since parts of the trials are noisier than all of them. n is"
    " the number of models behind a number (of draws of trials, for consistency). *Higher* and *lower*: by more than"
    " the 95% interval of the difference and what the paper rounded off. *None seen*: that interval is no wider than a"
    " tenth of the paper's number (of a share: nor of what it lacks to 1). *Too few models to tell*: it is wider, and"
    " stands there. *(no spread)*: how far ours would move with other models is not known, so a difference may be"
    " chance. The paper does not say what its ± is; here it is taken for that of one run. Settings that differ are"
    " possible reasons; a difference is put down to none of them."
)


def _missing(rows: list[dict[str, Any]], missing: Mapping[str, str]) -> list[str]:
    """A sentence for each part that is missing, with the paper's numbers that have none of ours for it."""
    sentences = dict(missing)
    numbers: dict[str, list[str]] = {}
    for row in rows:
        if row["ours"] is None:
            part = row["name"].partition(".")[0]
            sentences.setdefault(part, row["reasons"]["missing"])
            numbers.setdefault(part, []).append(row["what"])
    return [
        f"- {part}: {' '.join(sentence.split())}"
        + (f" (The paper's numbers: {'; '.join(dict.fromkeys(numbers[part]))}.)" if part in numbers else "")
        for part, sentence in sentences.items()
    ]


def _copied(figure: Path, report: Path, part: str) -> str:
    """A copy of a figure beside the report, small enough for a repository; gives its place in the report."""
    write_whole(report.parent / report.stem / f"{part}.png", _small_enough(figure.read_bytes()))
    return f"{report.stem}/{part}.png"


@lru_cache(maxsize=32)  # the report is written again after each part, and most figures are those of before
def _small_enough(picture: bytes) -> bytes:
    """The picture, or a smaller one of it with fewer colours."""
    from PIL import Image

    content = picture
    for scale in (1.0, 0.8, 0.6, 0.4) if len(picture) > MOST_BYTES else ():
        with Image.open(BytesIO(picture)) as image:
            size = [round(scale * side) for side in image.size]
            smaller = image.convert("RGB").resize((size[0], size[1]), Image.Resampling.LANCZOS)
        stream = BytesIO()  # a palette that covers all colours, however few pixels have them
        few = smaller.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(stream, "PNG", optimize=True)
        content = stream.getvalue()
        if len(content) <= MOST_BYTES:
            break
    return content


CHOSEN = {"run.mem", "run.infl", "run.keep", "thresholds.jaccard"}  # settings, or what was to be reached
TWICE = {"last-layer.network.test_accuracy", "last-layer.network.memorized"}  # the same as those of the run
ELSEWHERE = "removal.memorized"  # share and utility, which the paper states for ImageNet


def facts_of(parts: Parts, overview: Result) -> Facts:
    """From the results that are there."""
    info, numbers = parts.base.info, {name: one.numbers for name, one in parts.results.items()}
    histogram, halves, last = (numbers.get(name) for name in ("histogram", "consistency", "last-layer"))
    other = parts.other if "architectures" in parts.results else None
    of_other = None if other is None else other.info.learner
    in_half = None if halves is None else halves["lines"][0]
    dealt = [] if in_half is None else in_half["by_chance"]["same_class"]
    return Facts(
        parts.data,
        info.n_train,
        info.n_test,
        info.learner,
        overview.numbers["keep"],
        overview.numbers["trials"],
        parts.mem,
        parts.infl,
        pairs=None if histogram is None else histogram["pairs"],
        chance=None if histogram is None else histogram["by_chance"]["mean"],
        trials_each=None if halves is None else halves["trials_each"],
        pairs_of_half=None if in_half is None else in_half["same_class"][0]["first"]["mean"],
        chance_of_half=dealt[0]["first"]["mean"] if dealt else None,
        linear_models=None if last is None else last["linear"]["trials"],
        emptied=len(parts.results["utility"].settings["emptied_classes"]) if "utility" in parts.results else 0,
        tested=what_was_tested(parts.results, info.learner, of_other, parts.at_paper_s),
    )


def thresholds_of_ours(one: Reported, facts: Facts) -> str:
    """Our thresholds where they are not the paper's: 'influence >= 0.4'; otherwise empty."""
    known = (("memorization", facts.mem, MEMORIZED), ("influence", facts.infl, INFLUENCE))
    return ", ".join(f"{word} >= {ours:g}" for word, ours, theirs in known if ours != theirs and word in depends(one))


def rows_of(
    dataset: str, results: Mapping[str, Result], missing: Mapping[str, str], facts: Facts
) -> list[dict[str, Any]]:
    """One row for each number of the paper: its value, ours with spread and n, and which settings differ."""
    theirs = [(dataset, one) for one in paper.reported(dataset).values() if one.name not in CHOSEN | TWICE]
    if dataset != "imagenet":
        theirs += [("imagenet", one) for one in paper.reported("imagenet").values() if one.name.startswith(ELSEWHERE)]
    found = []
    for of, one in theirs:
        part = one.name.partition(".")[0]
        mine = paper.ours(one, results[part]) if part in results and not _says_nothing(one, facts) else None
        row: dict[str, Any] = {"name": one.name, "what": one.what, "where": one.where, "of": of}
        row["paper"] = {"value": one.value, "spread": one.spread, "n": one.runs, "bound": one.bound}
        row["at"] = thresholds_of_ours(one, facts)  # other thresholds than the paper's
        if mine is None:
            absent = _absent(one, part in results, missing, facts)
            row |= {"ours": None, "difference": None, "interval": None, "reasons": {"missing": absent}}
        else:
            n = mine.get("n") or _models(one.name, facts)
            ours = {key: mine[key] for key in ("mean", "sd", "stderr") if known(mine.get(key)) is not None}
            verdict = difference(one, mine, n)
            row |= {"ours": {**ours, "n": n}, "difference": verdict, "interval": interval(one, mine)}
            row["reasons"] = reasons(one, verdict, of, facts)
        found.append(row)
    return found


def _says_nothing(one: Reported, facts: Facts) -> bool:
    """The share of pairs below 0.4, of pairs that were selected from 0.4 on."""
    return one.name == "histogram.share_below_strong" and facts.infl >= STRONG


def _absent(one: Reported, there: bool, missing: Mapping[str, str], facts: Facts) -> str:
    """The reason that we have no such number."""
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


def _models(name: str, facts: Facts) -> int | None:
    """The number of models behind a number without an n of its own; None for numbers of models."""
    part, _, last = name.partition(".")
    if name == "last-layer.representation.test_accuracy":
        return 1
    of_trials = part in ("run", "histogram", "thresholds", "last-layer", "removal")
    if not of_trials or last.endswith(("trials", "accuracy.n")):
        return None
    return facts.linear_models if part == "last-layer" else facts.trials


def setting_as_markdown(settings: Mapping[str, Setting], of: str, facts: Facts) -> list[str]:
    """A table of the paper's setting and ours, and what of it was tested."""
    lines = [f"| | paper ({TITLES[of]}) | ours | differs | tested by a run of ours |", "|---|---|---|---|---|"]
    for word, one in settings.items():
        tested = "" if not one.differs else one.tested or "not tested"
        what = f"{word} ({SETTINGS[word]})" if SETTINGS[word] else word
        lines.append(f"| {what} | {one.paper} | {one.ours} | {'**yes**' * one.differs or 'no'} | {tested} |")
    said = [
        "A setting that differs is a possible reason for another number, and where it was not tested that is a guess.",
        "*Tested* means that a run of ours exchanged it: what came of it is said, and need not be all of a difference.",
    ]
    return [*lines, "", " ".join(said)]


def as_markdown(rows: list[dict[str, Any]], dataset: str, facts: Facts) -> list[str]:
    """A table of the rows that have a number of ours, and what stands behind words that are no settings."""
    lines = [f"| | | paper ({TITLES[dataset]}) | ours | n | difference | settings that differ |"]
    lines.append("|---|---|---|---|---|---|---|")
    meant: dict[str, str] = {}
    for row in rows:
        if row["ours"] is None:
            continue
        other = "" if row["of"] == dataset else f" ({TITLES[row['of']]})"
        meant |= {word: said for word, said in row["reasons"].items() if word not in SETTINGS}
        theirs, ours = sides_in_words(row)
        n = "" if row["ours"]["n"] is None else f"{row['ours']['n']:,}"
        cells = (
            row["what"],
            row["where"],
            theirs + other,
            ours,
            n,
            difference_in_words(row),
            ", ".join(row["reasons"]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    found = [*lines, "", *(f"- **{word}**: {said}." for word, said in meant.items())]
    if any(row["of"] != dataset and row["ours"] is not None for row in rows):
        there = settings_beside("imagenet", facts)
        differ = "; ".join(f"{word} ({one.ours}, not {one.paper})" for word, one in there.items() if one.differs)
        found.append(f"- **ImageNet**, for which alone the paper states some numbers, differs from ours in {differ}.")
    return found


def difference_in_words(row: Mapping[str, Any]) -> str:
    """'lower', 'none seen', 'too few models to tell (± 14.20%)', 'higher (no spread)'."""
    if row["difference"] == "undecided":
        width = row["interval"]
        return "too few models to tell" + ("" if width is None else f" (± {in_words(row['name'], width)})")
    said = "none seen" if row["difference"] == "same" else str(row["difference"])
    known = row["interval"] is not None or "asked" in row["reasons"]
    return said if known or row["ours"]["mean"] == row["paper"]["value"] else f"{said} (no spread)"


def sides_in_words(row: Mapping[str, Any]) -> tuple[str, str]:
    """'about 82.00%' and '15.39% ± 0.43 (influence >= 0.4)': the paper's number and ours, of a row that has both."""
    theirs, ours = row["paper"], row["ours"]
    bound = f"{theirs['bound']} " if theirs["bound"] else ""
    mark = " (se)" if ours.get("sd") is None and ours.get("stderr") is not None else ""
    at = f" ({row['at']})" if row["at"] else ""
    mine = in_words(row["name"], ours["mean"], ours.get("sd", ours.get("stderr")))
    return f"{bound}{in_words(row['name'], theirs['value'], theirs['spread'])}", f"{mine}{mark}{at}"


def in_words(name: str, value: float, spread: float | None = None) -> str:
    """'76.06% ± 0.28', '1,015', '0.70 ± 0.02': by what the number is."""
    last = name.rpartition(".")[2]
    percent = last in IS_SHARE or name == "utility.test.difference"
    known = spread is not None and math.isfinite(spread)
    if percent:
        return f"{100 * value:.2f}%" + (f" ± {100 * spread:.2f}" if known else "")  # type: ignore[operator]
    if (float(value).is_integer() and abs(value) >= 1) or abs(value) >= 100 or last in ("first", "second", "pairs"):
        return f"{value:,.0f}" + (f" ± {spread:,.0f}" if known else "")
    return f"{value:.3g}" + (f" ± {spread:.2g}" if known else "")
