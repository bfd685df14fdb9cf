"""The page: one HTML file that needs nothing but itself, the same bytes for the same run."""

import math
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from memfluence import __version__
from memfluence.datasets import Dataset
from memfluence.errors import InputError, RunMismatchError, StoreError
from memfluence.report._contents import Contents, contents_of
from memfluence.report._examples import INFLUENCE, MEMORIZED
from memfluence.report._inputs import inputs_as_html
from memfluence.report._sections import (
    carriers_as_html,
    gallery_as_html,
    histogram_as_html,
    notice_as_html,
    pair_counts_as_html,
)
from memfluence.report._wording import approximate, class_name, count, percent, short_name, value
from memfluence.store import write_whole

if TYPE_CHECKING:
    from memfluence.runs import Run

__all__ = ["write_report"]

PAGE = "index.html"
MARK = '<meta name="generator" content="memfluence">'  # only pages that carry it are written over


def write_report(run: "Run", out: Path, *, dataset: str | None = None, keep: float | None = None) -> Path:
    """Write the page to `out`/index.html and give its path; `out` is made where it is missing.

    Inputs come from where the run says, or from `dataset`. Where the run does not say, or what it names cannot be
    loaded, the page is written without them and says so; data that load and disagree with the run are an error. `keep`
    chooses one fraction where the run has several; the largest is shown otherwise.
    """
    _check_place(out)
    data, notice = _data_of(run, dataset)
    contents = contents_of(run, keep)
    page = out / PAGE
    html = _render(run, contents, data, notice)
    write_whole(page, html.encode("utf-8", errors="replace"))  # names from a file system need not be text
    return page


def _check_place(out: Path) -> None:
    """Refuse a place that cannot take the page, before any work is done."""
    page = out / PAGE
    try:
        if out.exists() and not out.is_dir():
            raise InputError(f"{out} is a file, but a report is a directory; choose another --out.")
        if page.exists() and MARK not in page.read_text(encoding="utf-8", errors="replace")[:2000]:
            raise InputError(f"{page} was not written by memfluence and is left alone; choose another --out.")
    except OSError as error:
        raise StoreError(f"Failed reading {page}: {error.strerror or error}; choose another --out.") from error


def _data_of(run: "Run", spec: str | None) -> tuple[Dataset | None, str | None]:
    """The run's data, or why there are none."""
    try:
        return run.dataset(spec), None
    except RunMismatchError:
        raise
    except InputError as error:
        if spec is not None:
            raise
        return None, f"Only numbers are shown, no inputs. {error}"


def _render(run: "Run", contents: Contents, data: Dataset | None, notice: str | None) -> str:
    names = [class_name(str(name)) for name in (data.class_names if data else run.info.dataset["class_names"])]
    train_inputs, test_inputs = (
        inputs_as_html(data, split, contents.shown(split)) if data else {} for split in ("train", "test")
    )
    name = short_name(data.name if data else str(run.info.dataset["name"]))
    learner = (run.info.learner or {}).get("name")
    heading = (f"What {learner} memorizes" if learner else "What is memorized") + (f" in {name}" if name else "")
    notices = [notice] if notice else []
    if contents.other_keeps:
        others = ", ".join(f"{fraction:g}" for fraction in contents.other_keeps)
        notices.append(f"This page is about the trials that keep {contents.keep:g}; the run also has {others}.")
    templates = files("memfluence.report") / "templates"
    return Template((templates / "page.html").read_text(encoding="utf-8")).substitute(
        style=(templates / "style.css").read_text(encoding="utf-8").strip(),
        version=__version__,
        title=escape(f"{heading} – memfluence"),
        heading=escape(heading),
        lead=_lead(run, contents),
        notices="\n".join(map(notice_as_html, notices)),
        accuracy_in=percent(contents.accuracy_in, 1),
        accuracy_out=percent(contents.accuracy_out, 1),
        test_accuracy=percent(contents.test_accuracy, 1),
        trials=count(contents.trials),
        memorized=count(contents.memorized),
        share=percent(contents.memorized / run.info.n_train, 1),
        by_chance=approximate(contents.pairs.expected_by_chance),
        n_pairs=count(len(contents.pairs)),
        precision=_precision(contents),
        histogram=histogram_as_html(contents.histogram, contents.memorized),
        mem_threshold=value(MEMORIZED),
        infl_threshold=value(INFLUENCE),
        pair_counts=pair_counts_as_html(contents),
        carriers=carriers_as_html(contents.carriers, names, train_inputs, test_inputs),
        most=gallery_as_html(contents.most, names, train_inputs),
        least=gallery_as_html(contents.least, names, train_inputs),
    )


def _lead(run: "Run", contents: Contents) -> str:
    unfinished = f" of {count(run.info.trials)}" if run.info.trials > len(run.trials) else ""
    subset = f"a random {contents.keep:.0%} of" if contents.keep is not None else "random subsets of"
    return (
        f"{count(len(run.trials) if unfinished else contents.trials)}{unfinished} models, each trained on {subset}"
        f" {count(run.info.n_train)} training examples and asked about {count(run.info.n_test)} test examples."
    )


def _precision(contents: Contents) -> str:
    seen = (
        f"Here a training example was seen by about {count(contents.trials_in)} models and left out of about"
        f" {count(contents.trials_out)}"
    )
    if math.isnan(contents.stderr):
        return f"{seen}."
    of_whom = "a memorized example's" if contents.memorized else "a typical"
    return f"{seen}; {of_whom} standard error is about {value(contents.stderr, 3)}."
