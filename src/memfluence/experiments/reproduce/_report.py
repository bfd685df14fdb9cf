"""The report: one Markdown page and one JSON document, with figures beside them."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

from memfluence.experiments import named
from memfluence.experiments._result import Result
from memfluence.experiments.reproduce._parts import Parts
from memfluence.experiments.reproduce._subjects import SECTIONS, TITLES, Subject
from memfluence.experiments.reproduce._table import as_markdown, facts_of, rows_of
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
    text += [_made_with(parts), ""]
    text += ["## The paper's numbers beside ours", ""]
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
    return [f"## {heading}", "", f"![{caption}]({_copied(where / f'{result.name}.png', path, part)})", "", *said, ""]


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
    from PIL import Image

    content = figure.read_bytes()
    for scale in (1.0, 0.8, 0.6, 0.4) if len(content) > MOST_BYTES else ():
        with Image.open(BytesIO(figure.read_bytes())) as image:
            size = [round(scale * side) for side in image.size]
            smaller = image.convert("RGB").resize((size[0], size[1]), Image.Resampling.LANCZOS)
        stream = BytesIO()  # a palette that covers all colours, however few pixels have them
        few = smaller.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(stream, "PNG", optimize=True)
        content = stream.getvalue()
        if len(content) <= MOST_BYTES:
            break
    write_whole(report.parent / report.stem / f"{part}.png", content)
    return f"{report.stem}/{part}.png"
