"""`Run`: trials on disk, and what they say."""

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

import memfluence
from memfluence import findings
from memfluence.datasets import Dataset, with_class_names
from memfluence.errors import InputError, MemfluenceError, MemfluenceWarning, checked_integer
from memfluence.estimators import (
    ClassBlock,
    Estimates,
    Influence,
    Memorization,
    Memory,
    RealInfluence,
    TopK,
    TopTests,
    adjusted_influence,
    influence,
)
from memfluence.findings import Selection
from memfluence.records import Trials
from memfluence.runs import values as answers
from memfluence.runs.options import DuplicateOptions, PairOptions, Targets, spelled_out
from memfluence.runs.status import status_of
from memfluence.runs.table import Table
from memfluence.runs.values import Outcome
from memfluence.store import Location, RunInfo, TrialStore, folder_for

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

READING = 8_000_000  # bytes that the libraries that read take, however few trials there are


@spelled_out
class Run:
    """Trials on disk, and what they say. It reads them once, when first asked.

    `memory` caps what the process may hold, such as "2GB", whatever the run is asked; methods that take a `memory` of
    their own take it in its place.
    """

    def __init__(
        self, store: TrialStore, dataset: Dataset | None = None, *, memory: str | int | Memory | None = None
    ) -> None:
        self.store, self.memory = store, Memory.of(memory)
        self._dataset = dataset
        self._estimates: dict[tuple[float | None, Memory, str], Influence | RealInfluence] = {}

    def __repr__(self) -> str:
        data = self.info.dataset
        return f"<Run {self.path}: {data['name']}, {self.info.n_train} train x {self.info.n_test} test examples>"

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    # ---- the trials, and what they were made from

    @property
    def path(self) -> Location:
        """The run's directory, or its URI."""
        return self.store.path

    @property
    def folder(self) -> Path:
        """The folder for what is made of the run, unless told otherwise: its own, or runs/NAME where it is remote."""
        return folder_for(self.path)

    @property
    def info(self) -> RunInfo:
        """The content of run.json."""
        return self.store.info

    @cached_property
    def trials(self) -> Trials:
        """All stored trials, bit-packed. Damaged segments are left out, with a warning that names them."""
        self._check_memory(self.memory)
        trials, damaged = self.store.read()
        for damage in damaged:
            warnings.warn(
                f"{damage.reason} It is left out; 'memfluence run' with the run's options sets it aside and runs"
                " its trials again.",
                MemfluenceWarning,
                stacklevel=2,
            )
        if not len(trials):
            raise InputError(f"{self.path} holds no trials yet; run some with 'memfluence run'.")
        return trials

    @property
    def outcome(self) -> str:
        """What is averaged unless something else is asked for: "correct" (right and wrong), or the learner's "score".

        Scores are one real number for each example, higher is better; memorization and influence are in their unit.
        """
        return self.info.outcome

    @property
    def bits(self) -> Trials:
        """The trials, for what is about right and wrong; refused where the learner has scores of its own instead."""
        answers.check_bits(self)
        return self.trials

    @property
    def classes(self) -> np.ndarray:
        """The labels as their owner wrote them, each once."""
        return np.asarray(self.info.dataset["classes"])

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes as people call them, in the order of `classes`."""
        return tuple(self.info.dataset["class_names"])

    @cached_property
    def label_codes(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions in the run's classes, of the training and of the test labels."""
        return self.store.examples.labels()

    @property
    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """The labels of the training and of the test examples, or other targets, as their owner wrote them.

        Several labels, or numbers, of an example are one text.
        """
        if (targets := self.store.examples.targets()) is not None:
            return targets
        return self.classes[self.label_codes[0]], self.classes[self.label_codes[1]]

    @cached_property
    def ids(self) -> tuple[np.ndarray, np.ndarray]:
        """What the data call the training and the test examples: a DataFrame's index, a CSV's rows, files, ...

        Positions where they call them nothing. Every table has them beside its columns of positions.
        """
        return self.store.examples.ids() or (np.arange(self.info.n_train), np.arange(self.info.n_test))

    def recorded(self, column: str, *, memory: Memory | None = None) -> np.ndarray:
        """A recorded column (trials, n), such as "train_prediction"; where it was not recorded, an error says how."""
        n = self.info.n_train if column.startswith("train") else self.info.n_test
        (memory or self.memory).check_column(len(self.trials), n)
        numbers, values = self.store.read_extra(column)
        return np.asarray(values[np.searchsorted(numbers, self.trials.numbers)])

    def dataset(self, spec: Any = None) -> Dataset:
        """The data, loaded again from where they were on this machine (or from `spec`) and checked to be the same.

        `spec` is a name, a `Dataset`, or arrays (x_train, y_train, x_test, y_test).
        """
        if self._dataset is None or spec is not None:
            from memfluence.training.again import load_again  # learners come with it, and scores need none

            found = load_again(self.store, spec)
            known = self.class_names != tuple(map(str, self.info.dataset["classes"]))
            self._dataset = with_class_names(found, self.class_names) if known else found
        return self._dataset

    def status(self) -> dict[str, Any]:
        """The progress of the run: trials done, wanted, part-way, failed and damaged; mean accuracies; who ran them.

        Segments that have not changed since they were last verified are not read again.
        """
        return status_of(self.store)

    # ---- estimates

    def estimate_memorization(self, keep: float | None = None) -> Memorization:
        """Memorization of every training example as arrays; `memorization` gives them as a table."""
        return answers.memorization_of(self, keep)

    def memorization(
        self, keep: float | None = None, *, outcome: Outcome | None = None, estimator: str = "plain"
    ) -> "pd.DataFrame":
        """One row per training example: its memorization, how sure that is, and what it is made of.

        `keep` chooses one fraction where the run has several. `stderr` and the 95% interval from `lower` to
        `upper` are Agresti and Caffo's; an estimate that the trials cannot give is NaN. `outcome` is what is averaged:
        "correct", whether models are right; the learner's own "score", where it has one; a recorded "margin" or
        "logit"; or an array (trials, n_train) of your own, its rows in the order of `trials.numbers`. Left out it is
        `Run.outcome`. Means of all but "correct" are `mean_in` and `mean_out`, and their errors are Welch's.
        `estimator="adjusted"` has less variance.
        """
        return answers.memorization_table(self, keep, outcome=outcome, estimator=estimator).frame()

    def influence_estimates(
        self, keep: float | None = None, *, memory: str | int | Memory | None = None, device: str = "cpu"
    ) -> Influence | RealInfluence:
        """The estimator behind `influence`, which also gives errors and intervals."""
        cap = self._cap(memory)
        if (key := (keep, cap, device)) not in self._estimates:
            self._check_memory(cap)
            self._estimates[key] = answers.influence_of(self, keep, None, cap, device)
        return self._estimates[key]

    def influence(
        self,
        test: int | Sequence[int] | None = None,
        *,
        train: int | Sequence[int] | None = None,
        same_class: bool = False,
        top_k: int | None = None,
        per: Literal["test", "train"] = "test",
        keep: float | None = None,
        dtype: Any = np.float64,
        outcome: Outcome | None = None,
        estimator: str = "plain",
        memory: str | int | None = None,
        device: str = "cpu",
    ) -> "np.ndarray | list[ClassBlock] | TopK | TopTests":
        """Influence of training on test examples, (train, test); positive means that the training example helps.

        All of both splits by default, or chosen ones. `same_class=True` gives one block per class instead of the
        matrix; `top_k=5` the five most influential training examples of each test example (`per="train"`: the five
        test examples that each training example helps most), without holding the matrix. `outcome` is what is
        averaged: see `memorization`, with arrays (trials, n_test). The `estimator` is "plain" (Algorithm 1) or
        "adjusted", which has less variance (docs/variance.md).
        `memory="2GB"` caps what the process may hold; `device="cuda"` finds `top_k` on a GPU.
        """
        answers.check_estimator(self, estimator)
        cap, of = self._cap(memory), (self.trials, self.info.kinds)
        recorded = answers.outcomes(self, "test", outcome, cap)
        estimates: Estimates
        if estimator == "adjusted":
            estimates = adjusted_influence(*of, *self.label_codes, keep, outcome=recorded, memory=cap)
        elif recorded is not None and outcome is not None:
            estimates = answers.influence_of(self, keep, recorded, cap)
        else:
            estimates = self.influence_estimates(keep, memory=cap, device=device)
        if device != "cpu" and (top_k is None or per != "test" or not isinstance(estimates, Influence)):
            raise InputError(f"The device {device!r} serves top_k per test example of 'correct'; leave it out.")
        if per not in ("test", "train"):
            raise InputError(f"The `per` parameter must be 'test' or 'train'. Got {per!r} instead.")
        if top_k is not None:
            top_k = checked_integer("top_k", top_k, 1)
            if same_class or (per == "test" and train is not None):
                raise InputError("top_k looks at all training examples; leave out train and same_class.")
            if per == "train" and test is not None:
                raise InputError("top_k per training example looks at all test examples; leave out test.")
            found = estimates.top_tests(top_k, train) if per == "train" else estimates.top_k(top_k, test)
            return answers.with_ties(self, found, keep, cap) if isinstance(estimates, Influence) else found
        if same_class:
            if test is not None or train is not None:
                raise InputError("same_class gives the blocks of all classes; leave out train and test.")
            return estimates.all_class_blocks(*self.label_codes, dtype=dtype)
        return estimates.block(train, test, dtype=dtype)

    values = answers.values
    c_scores = answers.c_scores
    profile = answers.profile
    datamodels = answers.datamodels
    judge = answers.judge

    # ---- findings

    def find_pairs(
        self, mem: float | None = None, infl: float | None = None, **options: Unpack[PairOptions]
    ) -> findings.Pairs:
        """High-influence pairs as arrays with their summary, and how many chance alone would give; labels are codes.

        `mem` is 0.25; `infl` is 0.15 unless `fdr` is given, a false discovery rate at which pairs are selected instead.
        Scores of the learner's own have no such thresholds: their pairs are selected at a rate of 0.1, or at an `fdr`,
        `mem` and `infl` of yours in the score's unit.
        """
        of, outcome = (self.trials, self.info.kinds, *self.label_codes), answers.scores_of(self)
        return findings.high_influence_pairs(*of, mem=mem, infl=infl, outcome=outcome, **self._capped(options, True))

    def pairs(
        self, mem: float | None = None, infl: float | None = None, **options: Unpack[PairOptions]
    ) -> "pd.DataFrame":
        """High-influence pairs, strongest first; options as for `find_pairs`.

        The table's `attrs` hold the paper's summary counts and `expected_by_chance`; a warning is given where that is
        not small.
        """
        found = self.find_pairs(mem, infl, **options)
        if found.warning:
            warnings.warn(found.warning, MemfluenceWarning, stacklevel=2)
        notes = {"summary": dict(found.summary), "expected_by_chance": found.expected_by_chance}
        return Table.of_examples(found.columns(self.labels[0]), self.ids, notes).frame()

    def cross_fitted_pairs(
        self, mem: float = 0.25, infl: float = 0.15, **options: Unpack[Selection]
    ) -> findings.CrossFit:
        """Pairs that each half of the trials selects, with values from the other half: free of selection bias."""
        return findings.cross_fitted_pairs(*self._for_pairs, mem=mem, infl=infl, **self._capped(options))

    def pair_stability(
        self, mem: float = 0.25, infl: float = 0.15, *, resamples: int = 20, **options: Unpack[Selection]
    ) -> findings.Stability:
        """The spread, from run to run, of the number of pairs, of their mean influence and of the pairs themselves."""
        chosen = {"mem": mem, "infl": infl, "resamples": resamples, **self._capped(options)}
        return findings.pair_stability(*self._for_pairs, **chosen)

    def trials_needed(self, **targets: Unpack[Targets]) -> dict[str, Any]:
        """The trials that a target takes (`stderr`, `jaccard`, `fdr`), and what multiples of today's would give."""
        return findings.trials_needed(*self._for_pairs, **self._capped(targets))

    def find_mislabels(self, keep: float | None = None, *, margins: bool = True) -> findings.Mislabels:
        """Training examples, ranked by how surely held-out models reject their label, as arrays; labels are codes.

        Where the run recorded margins they rank, unless `margins=False`: then models have one vote each. Where the
        learner has scores of its own, targets are ranked by how far held-out models score below what is typical.
        """
        if (scores := answers.scores_of(self)) is not None:
            return findings.unlikely_targets(self.trials, self.info.kinds, self.label_codes[0], scores[0], keep)
        names = ("train_prediction", "train_margin") if margins else ("train_prediction",)
        recorded = {name: self.recorded(name) for name in names if name in self.info.columns}
        said, held = recorded.get("train_prediction"), recorded.get("train_margin")
        of = self.trials, self.info.kinds, self.label_codes[0], len(self.classes)
        return findings.likely_mislabels(*of, said, keep, margins=held, memory=self.memory)

    def mislabels(self, keep: float | None = None) -> "pd.DataFrame":
        """Likely mislabels first, one row per training example; `believed` says which are taken to be wrong.

        Ranked by how far held-out models reject the label where margins were recorded, otherwise by votes. With
        `record=("prediction", "margin")` there is also a better label.
        """
        found = self.find_mislabels(keep).columns(self.classes, self.labels[0])
        return Table.of_examples(found, self.ids).frame()

    def held_out_votes(self, keep: float | None = None) -> np.ndarray:
        """Counts (n_train, n_classes): of the models that left a training example out, those that predict each class.

        Needs recorded predictions (`record=("prediction",)`).
        """
        of = self.bits, self.info.kinds, len(self.classes), self.recorded("train_prediction")
        return findings.held_out_votes(*of, keep)

    def find_duplicates(
        self, infl: float = 0.4, mem: float = 0.25, **options: Unpack[DuplicateOptions]
    ) -> findings.Duplicates:
        """Train-test near-duplicates by their influence, as arrays; labels are codes."""
        return findings.train_test_duplicates(*self._for_pairs, mem=mem, infl=infl, **self._capped(options, True))

    def duplicates(self, infl: float = 0.4, mem: float = 0.25, **options: Unpack[DuplicateOptions]) -> "pd.DataFrame":
        """Pairs of a training and a test example that are likely near-duplicates, the surest first."""
        found = self.find_duplicates(infl, mem, **options)
        notes = {"expected_by_chance": found.expected_by_chance}
        return Table.of_examples(found.columns(self.classes), self.ids, notes).frame()

    def attack(
        self,
        keep: float | None = None,
        *,
        variance: findings.Variance = "auto",
        resamples: int = 400,
        seed: int = 0,
        memory: str | int | Memory | None = None,
    ) -> findings.Attack:
        """An attack on membership by recorded log-odds, and its success; options of `findings.membership_attack`."""
        chosen = self._capped({"memory": memory})
        of = self.bits, self.info.kinds, self.recorded("train_logit")
        return findings.membership_attack(*of, keep, variance=variance, resamples=resamples, seed=seed, **chosen)

    def find_groups(self, keep: float | None = None) -> findings.GroupScores:
        """Memorization of each group, and what it adds to the test accuracy, as arrays; of a run with groups."""
        groups = self.store.examples.groups()
        return findings.group_scores(self.bits, self.info.kinds, *groups, keep, memory=self.memory)

    def groups(self, keep: float | None = None) -> "pd.DataFrame":
        """One row per group: its memorization, and what it adds to the test accuracy."""
        return Table(self.find_groups(keep).columns(), index="group").frame()

    def group_influence(self, keep: float | None = None) -> Influence:
        """Influence of groups on test examples: all that `influence_estimates` gives, with groups for examples."""
        grouped = findings.group_trials(self.bits, self.store.examples.groups()[0], self.memory)
        return influence(grouped, self.info.kinds, keep, memory=self.memory)

    # ---- showing it

    def report(
        self, out: str | Path | None = None, *, dataset: Any = None, keep: float | None = None, **options: Any
    ) -> "memfluence.report.ReportPage":
        """Write the explorer, a folder of plain files that any browser opens, and give the path of its page.

        The folder is RUN/report unless `out` names one. `dataset` is the data (a name, a `Dataset` or arrays) if the
        run does not say where they are; `title` is the page's; a function `progress` is told the share that is done.
        """
        folder = self.folder / "report" if out is None else Path(out)
        page = memfluence.report.write_report(self, folder, dataset=dataset, keep=keep, **options)
        return memfluence.report.ReportPage.of(page, self, keep)

    def show(
        self,
        example: Any = None,
        *,
        index: int | Sequence[int] | None = None,
        split: Literal["train", "test"] = "train",
        keep: float | None = None,
    ) -> "memfluence.report.Shown":
        """An example in a notebook: its input, its memorization, and the test examples that it carries.

        Of a test example (`split="test"`): the training examples that carry it. `example` is an id, as tables have it,
        or several, such as `run.mislabels().index[:5]`; `index` takes positions in its place.
        """
        return memfluence.report.show(self, example, index, split, keep)

    def show_pairs(
        self, top: int = 10, mem: float | None = None, infl: float | None = None, **options: Unpack[PairOptions]
    ) -> "memfluence.report.Shown":
        """The `top` training examples of the strongest pairs and what each carries; other options as for `pairs`."""
        return memfluence.report.show_pairs(self, top, {"mem": mem, "infl": infl, **options})

    def plot(self, keep: float | None = None) -> "Figure":
        """The histogram of memorization: a figure of Matplotlib, which a notebook shows."""
        return memfluence.report.histogram_plot(self, keep=keep)

    def _repr_html_(self) -> str:
        """The run as a notebook shows it."""
        status = self.status()
        if self.outcome == "score":
            return memfluence.report.run_html(status, None, "Memorization is in the score's unit: run.memorization().")
        try:
            return memfluence.report.run_html(status, self.estimate_memorization().value)
        except MemfluenceError as error:  # no trials yet, several keep fractions, a cap on memory
            return memfluence.report.run_html(status, None, str(error))

    # ---- options

    @property
    def _for_pairs(self) -> tuple[Any, ...]:
        return self.bits, self.info.kinds, *self.label_codes

    def _cap(self, memory: str | int | Memory | None) -> Memory:
        return self.memory if memory is None else Memory.of(memory)

    def _capped(self, options: Mapping[str, Any], ties: bool = False) -> dict[str, Any]:
        """The options with a cap on memory, the run's own where they have none; with `ties` margins, too."""
        cap = self._cap(options.get("memory"))
        self._check_memory(cap)
        return {**options, "memory": cap} | ({"margins": answers.margins_for_ties(self, cap)} if ties else {})

    def _check_memory(self, memory: Memory) -> None:
        """Refuse to read trials that do not fit; while they are read, each is held up to four times."""
        width = sum(-(-n // 8) for n in (self.info.n_train, self.info.n_train, self.info.n_test))
        if "trials" not in self.__dict__:
            needed = 4 * self.info.trials * width + READING
            memory.check(needed, "reading the trials", "a machine that has it")


def open_run(path: str | Location, *, memory: str | int | None = None) -> Run:
    """The run in a directory, or at a URI such as s3://bucket/run; `memory="2GB"` caps what the process may hold."""
    return Run(TrialStore.open(path), memory=memory)
