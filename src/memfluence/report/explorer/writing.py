"""`write_report`: everything that the explorer shows, from a run into a folder."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from memfluence import __version__
from memfluence.datasets import Dataset, as_dataset, short_name, title_of
from memfluence.errors import InputError, RunMismatchError
from memfluence.estimators import Memorization, q_values
from memfluence.estimators.counts import column_counts
from memfluence.findings import Pairs, influences_by_chance, tail_map
from memfluence.paper import INFLUENCE, MEMORIZED
from memfluence.report._histogram import histogram
from memfluence.report.explorer import tables
from memfluence.report.explorer.folder import PAGE, Folder, check_place, new_folder
from memfluence.report.explorer.influences import influence_details
from memfluence.report.explorer.inputs import add_inputs
from memfluence.report.explorer.scripts import script
from memfluence.report.explorer.tail import add_map
from memfluence.wording import class_name, count, learner_name, percent, shortened

if TYPE_CHECKING:
    from memfluence.runs import Run

_FILES = ("csv:", "npz:", "folder:", "hf:/", "hf:.")  # data that are called by the names of their files
NAME_LETTERS, LABEL_LETTERS = 120, 1000
# Shares of the time that each part takes, for the progress bar.
FOUND, COUNTED, TOLD, MAPPED = 0.15, 0.35, 0.4, 0.45

RATE = 0.1  # false discovery rate of the pairs that are believed
STEPS = 100  # thresholds on influence per unit, at which pairs are counted

Progress = Callable[[float], None]
T = TypeVar("T")


def write_report(
    run: "Run",
    out: Path,
    *,
    dataset: Any = None,
    keep: float | None = None,
    title: str | None = None,
    progress: Progress = lambda share: None,
) -> Path:
    """Write the explorer into the folder `out`, which is made where it is missing, and give the path of its page.

    Inputs come from where the run says, or from `dataset` (a name, a `Dataset`, or arrays). Where the run does not say,
    or what it names cannot be loaded, the explorer is written without them and says so; data that load and disagree
    with the run are an error.
    `keep` chooses one fraction where the run has several; the largest is shown otherwise. `title` is the page's.
    `progress` is told the share that is done.
    """
    check_place(out)
    made_of = _made_of(run, dataset, keep, title)
    data, notice = _data_of(run, dataset)
    keep, others = chosen_keep(run, keep)
    notices = [notice] if notice else []
    if others:
        fractions = ", ".join(f"{fraction:g}" for fraction in others)
        shown = run.influence_estimates(keep).arms.keep
        notices.append(f"This is about the trials that keep {shown:g}; the run also has {fractions}.")
    with new_folder(out) as folder:
        title = title or _heading(run, data)
        about, order, scores = _findings(run, keep, folder, progress)
        of_map = scores
        if run.outcome == "score":
            of_map = replace(
                scores, mean_in=np.ones_like(scores.value), mean_out=1 - scores.value
            )  # no such chart of them
            notices.append(_of_scores(about["facts"]["unit"]))
        cells = tail_map(of_map, run.label_codes[0])
        add_map(folder, data, cells, scores, lambda share: progress(TOLD + (MAPPED - TOLD) * share))
        progress(MAPPED)
        about |= add_inputs(folder, data, run, order, lambda share: progress(MAPPED + (1 - MAPPED) * share))
        assets = files("memfluence.report.explorer") / "assets"
        for name in ("explorer.js", "explorer.css", "licences.txt"):
            folder.add(name, (assets / name).read_bytes())
        folder.add("meta.js", script("meta", {"title": title, "notices": notices, **_names(run, data), **about}))
        template = Template((assets / "index.html").read_text(encoding="utf-8"))
        page = folder.publish(
            lambda name: template.substitute(
                title=escape(f"{title} – memfluence"),
                heading=escape(title),
                lead=escape(_lead(run, about["facts"])),
                version=__version__,
                data=name,
                made_of=made_of,
            )
        )
    progress(1.0)
    return page


def _of_scores(unit: float) -> str:
    """What a reader has to know of a run whose learner has scores of its own."""
    return (
        "The learner has a score of its own for each example, higher is better: where this page speaks of accuracy, or"
        f" of a share that is right, it is the mean score. 1 here (or 100%) is a score of {unit:g}; memorization"
        " and influence are in the same unit. Pairs and memorized examples are selected at a false discovery rate of"
        " 0.1."
    )


def is_current(
    run: "Run", out: Path, *, dataset: str | None = None, keep: float | None = None, title: str | None = None
) -> bool:
    """True if `out` holds the explorer of this run as it is now, made with these options by this version."""
    page = out / PAGE
    made_of = _made_of(run, dataset, keep, title)
    return page.is_file() and made_of in page.read_text(encoding="utf-8", errors="replace")[:4000]


def _made_of(run: "Run", dataset: Any, keep: float | None, title: str | None) -> str:
    """32 hex digits of all that the explorer depends on; data are taken by their name, if they were named."""
    dataset = dataset if dataset is None or isinstance(dataset, str) else as_dataset(dataset).fingerprint
    program = (files("memfluence.report.explorer") / "assets" / "explorer.js").read_bytes()
    numbers = run.trials.numbers.tobytes()
    parts = [
        json.dumps([__version__, run.info.identity, dataset, keep, title], sort_keys=True).encode(),
        numbers,
        program,
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def _data_of(run: "Run", spec: Any) -> tuple[Dataset | None, str | None]:
    """The run's data, or why there are none."""
    try:
        return run.dataset(spec), None
    except RunMismatchError:
        raise
    except InputError as error:
        if spec is not None:
            raise
        return None, f"Only numbers are shown, no inputs. {error}"


def _findings(
    run: "Run", keep: float | None, folder: Folder, progress: Progress
) -> tuple[dict[str, Any], np.ndarray, Memorization]:
    """Write every table of numbers; give what the overview says about them, the order of training examples, and scores.

    All that is measured in the unit of a learner's own scores is divided by one that makes it fit the page.
    """
    scores, has_scores = run.estimate_memorization(keep), run.outcome == "score"
    believed = run.find_pairs(None if has_scores else MEMORIZED, fdr=RATE, keep=keep, permutations=0)
    pairs = believed if has_scores else run.find_pairs(MEMORIZED, INFLUENCE, keep=keep, permutations=0)
    mislabels = run.find_mislabels(keep)
    duplicates = None if has_scores else run.find_duplicates(keep=keep)
    progress(FOUND)
    details = influence_details(run, keep, lambda share: progress(FOUND + (COUNTED - FOUND) * share))
    unit = _unit(run, scores, details.carried.influence, details.harmful.influence)
    scores, mislabels = _in_unit(scores, unit), _in_unit(mislabels, unit)
    pairs, believed = _in_unit(pairs, unit), _in_unit(believed, unit)
    lists = {name: _in_unit(getattr(details, name), unit) for name in ("carried", "carriers", "harmful")}
    details = replace(details, **lists)
    said_out, said = _said(run, keep)
    train_labels, test_labels = run.label_codes
    accuracy = _test_accuracies(run, keep) / unit
    order = tables.default_order(scores, details.carried.influence[:, 0])
    documents = {
        "train": tables.train_columns(train_labels, scores, details, believed, order),
        "test": tables.test_columns(test_labels, accuracy, details, believed),
        "pairs": tables.pair_table(run, pairs, believed, keep, unit),
        "mislabels": tables.mislabel_list(mislabels),
        "duplicates": tables.duplicate_list(duplicates),
    }
    for name, document in documents.items():
        folder.add(f"{name}.js", script(name, document))
    for split, chunks in (
        ("train", tables.train_chunks(scores, details, believed, run.info.n_test, said_out)),
        ("test", tables.test_chunks(details, believed, run.info.n_test, said)),
    ):
        for number, document in enumerate(chunks):
            folder.add(f"{split}-{number}.js", script(f"{split}-{number}", document))
    about = {
        "nTrain": run.info.n_train,
        "nTest": run.info.n_test,
        "chunk": tables.CHUNK,
        "predictions": said_out is not None,
        "scores": has_scores,
        "found": {"mislabels": int(mislabels.believed.sum()), "duplicates": len(duplicates or ())},
        "facts": _facts_of(run, keep, scores, pairs, believed, unit),
    }
    return about, order, scores


def _unit(run: "Run", scores: Memorization, *influences: np.ndarray) -> float:
    """What is 1 on the page, whose scale runs from -1 to 1: of scores the least of 1, 2, 5, 10, ... above them all."""
    if run.outcome != "score":
        return 1.0
    shown = (scores.mean_in, scores.mean_out, scores.value, *influences)
    highest = max((float(np.nanmax(np.abs(part))) for part in shown if not np.isnan(part).all()), default=0.0)
    power = 10.0 ** np.floor(np.log10(highest)) if highest > 0 else 1.0
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= highest * (1 - 1e-9)))


def _in_unit(found: T, unit: float) -> T:
    """The same with all that is measured in the unit."""
    if unit == 1:
        return found
    real = {name: part for name, part in vars(found).items() if getattr(part, "dtype", None) == np.float64}
    own = {name: part / unit for name, part in real.items() if not name.endswith("_value")}
    return replace(found, **own)  # type: ignore[type-var]


def _said(run: "Run", keep: float | None) -> tuple[tables.Votes | None, tables.Votes | None]:
    """Predictions of the models that left a training example out, and of all for test examples, where recorded."""
    arms = run.influence_estimates(keep).arms
    rows = np.searchsorted(run.trials.numbers, arms.out_trials.numbers)
    found: list[tables.Votes | None] = []
    for column, mask in (("train_prediction", arms.out_trials.mask), ("test_prediction", None)):
        recorded = column in run.info.columns
        found.append(tables.votes(run.recorded(column)[rows], len(run.classes), mask) if recorded else None)
    return found[0], found[1]


def _names(run: "Run", data: Dataset | None) -> dict[str, Any]:
    """Classes as people call them, and as their owner wrote them where that is something else."""
    given = data.class_names if data else run.info.dataset["class_names"]
    names = [shortened(class_name(str(name)), NAME_LETTERS) or "(no name)" for name in given]
    labels = [str(label)[:LABEL_LETTERS] for label in run.classes.tolist()]
    return {
        "classes": names,
        "labels": None if labels == names else labels,
        "version": __version__,
        "key": hashlib.sha256(str(run.info.dataset["fingerprint"]).encode()).hexdigest()[:12],  # of the reader's notes
    }


def _heading(run: "Run", data: Dataset | None) -> str:
    """Names that mean something to everyone; those of files, of variables and of functions do not."""
    name, learner = data.name if data else str(run.info.dataset["name"]), run.info.learner or {}
    title = title_of(run.info.dataset)
    if title != short_name(str(run.info.dataset["name"])):  # a known one, whatever its file is called
        name = title
    is_file = name == "arrays" or name.startswith(("labels of ", *_FILES))
    known = "name" in learner and "attribute" not in learner and learner.get("kind") != "function"
    what = f"What {learner_name(str(learner['name']))} memorizes" if known else "What is memorized"
    return f"{what} in {count(run.info.n_train) + ' examples' if is_file else short_name(name)}"


def _lead(run: "Run", facts: dict[str, Any]) -> str:
    """What the page says before its program is there."""
    subsets = "random subsets" if facts["keep"] is None else f"a random {percent(facts['keep'])}"
    return (
        f"{count(facts['trials'])} models, each trained on {subsets} of {count(run.info.n_train)} training examples:"
        f" {count(facts['memorized'])} are memorized, and {count(facts['pairs']['believed']['test_examples'])} test"
        " predictions depend on one of them."
    )


def chosen_keep(run: "Run", keep: float | None) -> tuple[float | None, list[float]]:
    """The fraction that is shown (the largest, where the run has several and none is asked for), and the others."""
    keeps = sorted({kind.keep for kind in run.info.kinds if kind.keep is not None})
    if keep is None and len(keeps) > 1:
        keep = keeps[-1]
    shown = run.influence_estimates(keep).arms.keep
    return keep, [fraction for fraction in keeps if fraction != shown]


def _test_accuracies(run: "Run", keep: float | None) -> np.ndarray:
    """The share of models that are right on each test example, or their mean score, (n_test,); NaN without trials."""
    if run.outcome == "score":
        recorded = run.recorded("test_score").astype(np.float64)
        numbers = np.concatenate([part.numbers for part in run.influence_estimates(keep).arms.parts])
        return np.asarray(recorded[np.searchsorted(run.trials.numbers, numbers)].mean(axis=0))
    parts = run.influence_estimates(keep).arms.parts
    trials = sum(map(len, parts))
    right = sum(column_counts(part.test_correct, part.n_test) for part in parts)
    return np.asarray(right) / trials if trials else np.full(run.info.n_test, np.nan)


def _facts_of(
    run: "Run", keep: float | None, scores: Memorization, pairs: Pairs, believed: Pairs, unit: float
) -> dict[str, Any]:
    """Counts, accuracies, the histogram and how sure it all is; what is not known is None."""
    arms = run.influence_estimates(keep).arms
    known = ~np.isnan(scores.value)
    memorized = scores.value >= MEMORIZED  # NaN is never at least anything
    thresholds = {"memorization": MEMORIZED, "influence": INFLUENCE}
    if scores.p_value is not None:
        memorized = q_values(scores.p_value, len(scores.p_value)) <= RATE
        least = {"memorization": scores.value[memorized], "influence": pairs.influence}
        thresholds = {name: float(np.floor(found.min(initial=1.0) * 1e4) / 1e4) for name, found in least.items()}
    bins = histogram(scores.value)
    return {
        "trials": sum(map(len, arms.parts)),
        "trialsWanted": run.info.trials,
        "keep": arms.keep,
        "accuracyIn": _mean(scores.accuracy_in, scores.trials_in),
        "accuracyOut": _mean(scores.accuracy_out, scores.trials_out),
        "testAccuracy": _number(_test_accuracies(run, keep).mean() / unit),
        "outcome": run.outcome,
        "unit": unit,
        "trialsIn": _number(np.median(scores.trials_in)),
        "trialsOut": _number(np.median(scores.trials_out)),
        "stderr": _number(np.median(scores.stderr[known])) if known.any() else None,
        "stderrOfMemorized": _number(np.median(scores.stderr[memorized])) if memorized.any() else None,
        "surelyMemorized": int((scores.lower >= thresholds["memorization"]).sum()),
        "memorized": int(memorized.sum()),
        "known": int(known.sum()),
        "meanMemorization": _number(scores.value[known].mean()) if known.any() else None,
        "histogram": {"edges": bins.edges.tolist(), "counts": bins.counts.tolist(), "missing": bins.missing},
        "thresholds": thresholds,
        "pairs": {
            **pairs.summary,
            "tested": pairs.tested,
            "rate": RATE,
            "believed": believed.summary,
            "atLeast": _at_least(run, keep, pairs, believed),
        },
    }


def _at_least(run: "Run", keep: float | None, pairs: Pairs, believed: Pairs) -> dict[str, Any]:
    """How many pairs reach each threshold on influence: those found, those believed, those of each permutation.

    Below the paper's threshold only the believed are counted.
    """
    of = run.trials, run.info.kinds, *run.label_codes
    chance = []  # of real outcomes no threshold is asked about
    if run.outcome == "correct":
        chance = influences_by_chance(*of, mem=MEMORIZED, infl=INFLUENCE, keep=keep, memory=run.memory)
    steps = np.arange(STEPS + 1) / STEPS  # (thresholds,)

    def counts(influences: np.ndarray) -> list[int]:
        reached: list[int] = (len(influences) - np.searchsorted(np.sort(influences), steps)).tolist()
        return reached

    return {
        "steps": STEPS,
        "found": counts(pairs.influence),
        "believed": counts(believed.influence),
        "chance": [counts(values) for values in chance],
    }


def _mean(accuracy: np.ndarray, trials: np.ndarray) -> float | None:
    """Mean accuracy over all models and examples; None where there are none."""
    known = trials > 0
    return float(np.average(accuracy[known], weights=trials[known])) if known.any() else None


def _number(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)
