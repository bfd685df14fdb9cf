"""The report: one Markdown page and one JSON document, with figures beside them.

Its table has the paper's numbers beside ours, row by row, and why they differ: data, network, trials, chance.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

from memfluence import paper
from memfluence.experiments import named
from memfluence.experiments._result import Result
from memfluence.experiments.histogram import STRONG
from memfluence.experiments.reproduce._parts import Parts
from memfluence.experiments.reproduce._subjects import ARCHITECTURES, SECTIONS, TITLES, Subject
from memfluence.paper import Reported
from memfluence.store import write_whole

MOST_BYTES = 150_000  # of a figure
ANOTHER_NETWORK = "Does another network agree? (Fig. 7)"  # the second section of the experiment consistency


def write_report(subject: Subject, parts: Parts, path: Path) -> dict[str, Any]:
    """Write `path`, the JSON and the figures beside it; gives what the JSON holds."""
    run = _run(parts)
    facts = facts_of(subject, run, parts.results, parts.base.info)
    results = {"run": run, **{name: one for name, one in parts.results.items() if name != "architectures"}}
    rows = rows_of(subject.paper, results, parts.missing, facts)
    document = {
        "dataset": subject.name,
        "paper": subject.paper,
        "run": run.to_json(),
        "numbers": rows,
        "parts": {name: one.to_json() for name, one in parts.results.items()},
        "missing": dict(parts.missing),
        "report": str(path),
    }
    text = [f"# The paper's experiments on {TITLES[subject.name]}", "", *_beginning(subject, parts, run), ""]
    text += [_made_with(parts), "", "## The paper's numbers beside ours", ""]
    text += [*as_markdown(rows, subject.paper), "", NOTE, ""]
    for part in SECTIONS:
        if part in parts.results:
            text += _section(part, parts.results[part], parts.where / part, path, subject.name)
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
    heading = ANOTHER_NETWORK if part == "architectures" else module.HEADING
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
    found = run.numbers
    learner = (parts.base.info.learner or {}).get("name") or "a learner that is not recorded"
    info = parts.base.info
    accuracy = found["test_accuracy"]
    lines = [
        f"Feldman & Zhang (2020) redone by `memfluence reproduce {subject.name}`: {found['trials']:,} models of"
        f" {learner} on random {found['keep']:.0%} subsets of {info.n_train:,} training examples, {info.n_test:,} test"
        f" examples, mean test accuracy {accuracy['mean']:.2%} ± {accuracy['sd']:.2%} (standard deviation over models),"
        f" {found['memorized']:,} training examples with memorization >= {found['mem']:g}."
    ]
    if subject.name != subject.paper:
        lines[0] += f" The paper has no {subject.name}: its numbers for {TITLES[subject.paper]} stand beside ours."
    return lines


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
    " the number of models behind a number (of draws of trials, for consistency). Reasons follow from"
    " the runs themselves: data, network, numbers of trials and what permuted masks give. A difference within two"
    " standard errors of both sides is none (for consistency: within one standard deviation; within 5% where neither"
    " has a spread). The paper does not say what its ± is; here it is taken for that of one run."
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


PERCENT = {"accuracy", "accuracy_without", "accuracy_whole", "test_accuracy", "contribution", "share", "test_share"}
PERCENT |= {"share_below_strong", "cost", "cost_random", "found_again"}
CHOSEN = {"run.mem", "run.infl", "run.keep", "thresholds.jaccard"}  # settings: ours are the paper's
TWICE = {"last-layer.network.test_accuracy", "last-layer.network.memorized"}  # the same as those of the run
CLOSE = 0.05  # of the paper's number, where neither side has a spread
NOTABLE = 0.05  # of the pairs: chance that is worth a word
ELSEWHERE = "removal.memorized"  # share and utility, which the paper states for ImageNet


@dataclass(frozen=True)
class Facts:
    """Facts about our side, and the paper's."""

    subject: Subject
    of: str  # the dataset that the paper's number is about
    n_train: int
    learner: str
    keep: float
    trials: int
    accuracy: float
    pairs: int | None = None
    chance: float | None = None  # pairs that permuted masks give
    trials_each: int | None = None  # of each half
    chance_jaccard: float | None = None  # of two halves with permuted masks
    linear_models: int | None = None
    linear_chance: float | None = None  # pairs of linear models that permuted masks give
    mem: float = 0.25
    infl: float = 0.15
    emptied: int = 0  # classes without a training example when those in pairs are left out

    @property
    def paper_trials(self) -> int:
        return int(paper.reported(self.of)["run.trials"].value)

    @property
    def paper_accuracy(self) -> float | None:
        known = paper.reported(self.of).get("run.test_accuracy")
        return None if known is None else known.value


def facts_of(subject: Subject, overview: Result, results: Mapping[str, Result], info: Any) -> Facts:
    """From the results that are there."""
    numbers = {name: one.numbers for name, one in results.items()}
    histogram, halves, last = (numbers.get(name) for name in ("histogram", "consistency", "last-layer"))
    by_chance = None if halves is None else halves["by_chance"]["same_class"]
    return Facts(
        subject,
        subject.paper,
        info.n_train,
        str((info.learner or {}).get("name") or "another learner"),
        overview.numbers["keep"],
        overview.numbers["trials"],
        overview.numbers["test_accuracy"]["mean"],
        pairs=None if histogram is None else histogram["pairs"],
        chance=None if histogram is None else histogram["by_chance"]["mean"],
        trials_each=None if halves is None else halves["trials_each"],
        chance_jaccard=by_chance[0]["jaccard"]["mean"] if by_chance else None,
        linear_models=None if last is None else last["linear"]["trials"],
        linear_chance=None if last is None else last["pairs"]["any"]["linear"]["by_chance"]["mean"],
        mem=overview.numbers["mem"],
        infl=overview.numbers["infl"],
        emptied=len(results["utility"].settings["emptied_classes"]) if "utility" in results else 0,
    )


def difference(one: Reported, found: Mapping[str, Any]) -> str:
    """Our number against the paper's: "same", "higher" or "lower".

    The same is within two standard errors, the paper's ± taken for that of one of its runs. Halves of trials share
    trials, so there is no standard error over draws of them: one standard deviation. Without a spread: 5%.
    """
    gap = found["mean"] - one.value
    if (one.bound in ("at least", "more than") and gap >= 0) or (one.bound == "less than" and gap < 0):
        return "same"
    error = None if one.name.startswith("consistency.") else _known(found.get("stderr"))
    sd, theirs = _known(found.get("sd")), _known(one.spread) or 0.0
    if error is not None:
        allowed = 2 * math.hypot(error, theirs / math.sqrt(one.runs or 1))
    else:
        allowed = math.hypot(sd or 0.0, theirs) or CLOSE * abs(one.value)
    if one.bound == "about":
        allowed = max(allowed, CLOSE * abs(one.value))
    return "same" if abs(gap) <= allowed else "higher" if gap > 0 else "lower"


def _known(value: float | None) -> float | None:
    return value if value and math.isfinite(value) else None


def reasons(one: Reported, found: Mapping[str, Any], facts: Facts) -> dict[str, str]:
    """Reasons that may explain the difference, by a word for each; none where there is no difference."""
    if difference(one, found) == "same":
        return {}
    return {rule.__name__.strip("_"): reason for rule in _rules(one) if (reason := rule(facts)) is not None}


def thresholds_of_ours(one: Reported, facts: Facts) -> str:
    """Our thresholds where they are not the paper's: 'influence >= 0.4'; otherwise empty."""
    rules = _rules(one)
    mem = facts.mem != 0.25 and (_memorized in rules or _thresholds in rules)
    infl = facts.infl != 0.15 and (_influence in rules or _thresholds in rules)
    said = [f"memorization >= {facts.mem:g}"] * mem + [f"influence >= {facts.infl:g}"] * infl
    return ", ".join(said)


def _rules(one: Reported) -> tuple["Rule", ...]:
    return next(rules for prefix, rules in RULES if one.name.startswith(prefix))


def _data(facts: Facts) -> str | None:
    if facts.subject.name == facts.of:
        return None
    return f"ours are {TITLES[facts.subject.name]}, with {facts.n_train:,} training examples, not {TITLES[facts.of]}"


def _network(facts: Facts) -> str:
    known = facts.subject.name == facts.of and facts.paper_accuracy is not None
    theirs = ARCHITECTURES[facts.of] + (f" with {facts.paper_accuracy:.1%}" if known else "")
    return f"ours is {facts.learner}, with a test accuracy of {facts.accuracy:.1%} on {facts.keep:.0%}, not {theirs}"


def _trials(facts: Facts) -> str | None:
    if facts.trials >= facts.paper_trials:
        return None
    error = math.sqrt(0.25 / (facts.keep * facts.trials) + 0.25 / ((1 - facts.keep) * facts.trials))
    return f"{facts.trials:,} trials, not {facts.paper_trials:,}: estimates have standard errors of up to {error:.3f}"


def _chance(facts: Facts) -> str | None:
    if facts.pairs is None or facts.chance is None or not facts.chance > NOTABLE * facts.pairs:
        return None
    return f"permuted masks alone give {facts.chance:,.0f} pairs where ours give {facts.pairs:,}"


def _halves(facts: Facts) -> str | None:
    if facts.trials_each is None or facts.trials_each >= facts.paper_trials / 2:
        return None
    chance = facts.chance_jaccard
    level = "" if chance is None or math.isnan(chance) else f", and permuted masks give a Jaccard index of {chance:.2f}"
    return f"halves of {facts.trials_each:,} trials, not {facts.paper_trials // 2:,}{level}"


def _linear(facts: Facts) -> str | None:
    if facts.linear_models is None or facts.linear_models >= facts.paper_trials:
        return None
    chance = facts.linear_chance or 0.0
    noise = f", of whose pairs {chance:,.0f} are chance" if chance >= 1 else ""
    return f"{facts.linear_models:,} linear models, not {facts.paper_trials:,}{noise}"


def _thresholds(facts: Facts) -> str | None:
    if (facts.mem, facts.infl) == (0.25, 0.15):
        return None
    return f"pairs with a memorization >= {facts.mem:g} and an influence >= {facts.infl:g}, not 0.25 and 0.15"


def _memorized(facts: Facts) -> str | None:
    return None if facts.mem == 0.25 else f"memorized are those with a memorization >= {facts.mem:g}, not 0.25"


def _influence(facts: Facts) -> str | None:
    return None if facts.infl == 0.15 else f"pairs with an influence >= {facts.infl:g}, not 0.15"


def _asked(facts: Facts) -> str:
    return "as many as were asked for, or as the time allowed"


def _emptied(facts: Facts) -> str | None:
    return f"{facts.emptied} class(es) lose all their training examples" if facts.emptied else None


Rule = Callable[[Facts], str | None]
RULES: tuple[tuple[str, tuple[Rule, ...]], ...] = (  # the first prefix that fits
    ("run.trials", (_asked,)),
    ("run.memorized", (_data, _memorized, _network, _trials)),
    ("run.", (_data, _network)),
    ("histogram.", (_data, _thresholds, _network, _trials, _chance)),
    ("removal.accuracy.n", (_asked,)),
    ("removal.", (_data, _network, _trials)),
    ("utility.test.accuracy_without", (_data, _thresholds, _network, _chance, _emptied)),
    ("utility.test.accuracy", (_data, _network)),
    ("utility.", (_data, _thresholds, _network, _trials, _chance, _emptied)),
    ("consistency.trials_each", (_asked,)),
    ("consistency.lines.0.any_class.1", (_data, _memorized, _halves, _network)),  # whatever our threshold on influence
    ("consistency.", (_data, _thresholds, _halves, _chance, _network)),
    ("thresholds.", (_data, _halves)),
    ("last-layer.linear.trials", (_asked,)),
    ("last-layer.network.memorized", (_data, _memorized, _network, _trials)),
    ("last-layer.linear.memorized", (_data, _memorized, _network, _linear)),
    ("last-layer.pairs.any", (_data, _influence, _network, _linear)),
    ("last-layer.network", (_data, _network)),
    ("last-layer.representation", (_data, _network)),
    ("last-layer.linear.test_accuracy", (_data, _network)),
    ("last-layer.speedup", (_data, _network)),
)


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
        row: dict[str, Any] = {"name": one.name, "what": one.what, "where": one.where, "of": of}
        row["paper"] = {"value": one.value, "spread": one.spread, "n": one.runs, "bound": one.bound}
        row["at"] = thresholds_of_ours(one, facts)  # other thresholds than the paper's
        if mine is None:
            absent = _absent(one, part in results, missing, facts)
            found.append({**row, "ours": None, "difference": None, "reasons": {"missing": absent}})
        else:
            ours = {key: value for key in ("mean", "sd", "stderr") if (value := mine.get(key)) is not None}
            why = reasons(one, mine, replace(facts, of=of))
            n = mine.get("n") or _models(one.name, facts)
            found.append({**row, "ours": {**ours, "n": n}, "difference": difference(one, mine), "reasons": why})
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
    if not of_trials or last.endswith(("trials", "trials_each", "accuracy.n")):
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
        n = "" if row["ours"]["n"] is None else f"{row['ours']['n']:,}"
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
