"""`Run`: trials on disk, and what they say."""

import warnings
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from memfluence import findings
from memfluence.datasets import Dataset, load
from memfluence.errors import InputError, MemfluenceError, MemfluenceWarning, RunMismatchError
from memfluence.estimators import (
    ClassBlock,
    Estimates,
    Influence,
    Memorization,
    Memory,
    TopK,
    TopTests,
    ask,
    chosen_influence,
    chosen_memorization,
    influence,
    memorization,
)
from memfluence.records import Trials
from memfluence.runs._findings import RunFindings
from memfluence.runs.status import summary
from memfluence.store import INDEXED, Location, RunInfo, TrialStore, folder_for

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Run", "open_run"]


class Run(RunFindings):
    """Trials on disk, and what they say. It reads them once, when first asked.

    `memory` caps what the process may hold, such as "2GB", whatever the run is asked; methods that take a `memory` of
    their own take it in its place.
    """

    def __init__(
        self, store: TrialStore, dataset: Dataset | None = None, *, memory: str | int | Memory | None = None
    ) -> None:
        self.store, self.memory = store, Memory.of(memory)
        self._dataset = dataset
        self._estimates: dict[tuple[float | None, Memory, str], Influence] = {}

    def __repr__(self) -> str:
        data = self.info.dataset
        return f"<Run {self.path}: {data['name']}, {self.info.n_train} train x {self.info.n_test} test examples>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from memfluence.report import run_html

        status = self.status()
        try:
            return run_html(status, self.estimate_memorization().value)
        except MemfluenceError as error:  # no trials yet, several keep fractions, a cap on memory
            return run_html(status, None, str(error))

    @property
    def path(self) -> Location:
        """The run's directory, or its URI."""
        return self.store.path

    @property
    def folder(self) -> Path:
        """Where what is made of the run goes unless told otherwise: into its directory; of a remote one runs/NAME."""
        return folder_for(self.path)

    @property
    def info(self) -> RunInfo:
        """What run.json says."""
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

    @cached_property
    def label_codes(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions in the run's classes, of the training and of the test labels."""
        return self.store.labels()

    @property
    def classes(self) -> np.ndarray:
        """The labels as their owner wrote them."""
        return np.asarray(self.info.dataset["classes"])

    def dataset(self, spec: str | None = None) -> Dataset:
        """The data, loaded again from where the run says (or from `spec`) and checked to be the same."""
        if self._dataset is None or spec is not None:
            name = spec or str(self.info.dataset["name"])
            if name == "arrays" or name.startswith("labels of "):
                raise InputError(
                    f"{self.path} does not say where its data are; name them with --dataset (such as npz:FILE)."
                )
            found = load(name)
            codes = self.label_codes
            same_labels = np.array_equal(found.y_train, codes[0]) and np.array_equal(found.y_test, codes[1])
            if not same_labels or (spec is None and found.fingerprint != self.info.dataset["fingerprint"]):
                raise RunMismatchError(f"{name} is not what {self.path} was made from: its content differs.")
            self._dataset = found
        return self._dataset

    def estimate_memorization(self, keep: float | None = None) -> Memorization:
        """Memorization of every training example as arrays; `memorization` gives them as a table."""
        return memorization(self.trials, self.info.kinds, keep)

    def memorization_columns(
        self, keep: float | None = None, *, outcome: "str | np.ndarray" = "correct", estimator: str = "plain"
    ) -> dict[str, np.ndarray]:
        """The columns of `memorization` as plain arrays."""
        of = self.store, self.trials, self.info.kinds, self.label_codes[0]
        found = chosen_memorization(*of, keep, outcome, estimator, self.memory)
        arms = ("accuracy_in", "accuracy_out") if isinstance(found, Memorization) else ("mean_in", "mean_out")
        names = ("stderr", "lower", "upper", *arms, "trials_in", "trials_out")
        return {
            "index": np.arange(self.info.n_train),
            "label": self.classes[self.label_codes[0]],
            "memorization": found.value,
            **{name: getattr(found, name) for name in names},
        }

    def memorization(
        self, keep: float | None = None, *, outcome: "str | np.ndarray" = "correct", estimator: str = "plain"
    ) -> "pd.DataFrame":
        """One row per training example: its memorization, how sure that is, and what it is made of.

        `keep` chooses one fraction where the run has several. `stderr` and the 95% interval from `lower` to
        `upper` are Agresti and Caffo's; an estimate that the trials cannot give is NaN. `outcome` is what is averaged:
        whether models are right, a recorded "margin" or "logit", or an array (trials, n_train) of your own, its rows in
        the order of `trials.numbers`; its means are then `mean_in` and `mean_out`, and errors are Welch's.
        `estimator="adjusted"` has less variance.
        """
        import pandas as pd

        return pd.DataFrame(self.memorization_columns(keep, outcome=outcome, estimator=estimator))

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
        outcome: "str | np.ndarray" = "correct",
        estimator: str = "plain",
        memory: str | int | None = None,
        device: str = "cpu",
    ) -> "np.ndarray | list[ClassBlock] | TopK | TopTests":
        """Influence of training on test examples, (train, test); positive means that the training example helps.

        All of both splits by default, or chosen ones. `same_class=True` gives one block per class instead of the
        matrix; `top_k=5` the five most influential training examples of each test example (`per="train"`: the five
        test examples that each training example helps most), without holding the matrix. `outcome` is what is
        averaged: whether models are right, a recorded "margin" or "logit", or an array (trials, n_test) of your own,
        its rows in the order of `trials.numbers`. The `estimator` is "plain" (Algorithm 1) or "adjusted", which has
        less variance (docs/variance.md).
        `memory="2GB"` caps what the process may hold; `device="cuda"` finds `top_k` on a GPU.
        """
        estimates: Estimates
        if isinstance(outcome, str) and (outcome, estimator) == ("correct", "plain"):
            estimates = self.influence_estimates(keep, memory=memory, device=device)
        else:
            of = self.store, self.trials, self.info.kinds, self.label_codes
            estimates = chosen_influence(*of, keep, outcome, estimator, self.memory if memory is None else memory)
        if device != "cpu" and (top_k is None or per != "test" or not isinstance(estimates, Influence)):
            raise InputError(f"The device {device!r} serves top_k per test example of 'correct'; leave it out.")
        return ask(
            estimates,
            self.label_codes,
            train=train,
            test=test,
            same_class=same_class,
            top_k=top_k,
            per=per,
            dtype=dtype,
        )

    def influence_estimates(
        self, keep: float | None = None, *, memory: str | int | Memory | None = None, device: str = "cpu"
    ) -> Influence:
        """The estimator behind `influence`, which also gives errors and intervals."""
        cap = self.memory if memory is None else Memory.of(memory)
        if (key := (keep, cap, device)) not in self._estimates:
            self._check_memory(cap)
            self._estimates[key] = influence(self.trials, self.info.kinds, keep, memory=cap, device=device)
        return self._estimates[key]

    def find_pairs(self, mem: float = 0.25, infl: float | None = None, **options: Any) -> findings.Pairs:
        """High-influence pairs with their summary, and how many chance alone would give; labels are codes.

        `infl` is 0.15 unless `fdr` is given, a false discovery rate at which pairs are selected instead. Other options:
        `null`, `any_dependence`, `same_class`, `keep`, `permutations`, `memory`, `device`
        (`findings.high_influence_pairs`).
        """
        options = self._capped(options)
        return findings.high_influence_pairs(*self._for_pairs, mem=mem, infl=infl, **options)

    def pair_columns(self, pairs: findings.Pairs) -> dict[str, np.ndarray]:
        """Pairs as plain columns (`p_value` and `q_value` with error control), labels as their owner wrote them."""
        return {
            "train_index": pairs.train_index,
            "test_index": pairs.test_index,
            "label": self.classes[pairs.label],
            "influence": pairs.influence,
            "stderr": pairs.stderr,
            "lower": pairs.lower,
            "upper": pairs.upper,
            "memorization": pairs.memorization,
            **({} if pairs.p_value is None else {"p_value": pairs.p_value, "q_value": pairs.q_value}),
        }

    def pairs(self, mem: float = 0.25, infl: float | None = None, **options: Any) -> "pd.DataFrame":
        """High-influence pairs, strongest first; options as for `find_pairs`.

        The table's `attrs` hold the paper's summary counts and `expected_by_chance`; a warning is given where that is
        not small.
        """
        import pandas as pd

        found = self.find_pairs(mem, infl, **options)
        if found.warning:
            warnings.warn(found.warning, MemfluenceWarning, stacklevel=2)
        table = pd.DataFrame(self.pair_columns(found))
        table.attrs = {"summary": dict(found.summary), "expected_by_chance": found.expected_by_chance}
        return table

    def status(self) -> dict[str, Any]:
        """How far the run is: trials done, wanted, part-way, failed and damaged; mean accuracies; who ran them.

        Segments that have not changed since they were last verified are not read again.
        """
        scan = self.store.scan(INDEXED, indexed=True)
        done = scan.numbers.tolist()
        failures, part_way = self.store.failures(done), self.store.checkpoints().part_way(done)

        return {
            "run": str(self.path),
            "dataset": self.info.dataset["name"],
            "n_train": self.info.n_train,
            "n_test": self.info.n_test,
            "learner": (self.info.learner or {}).get("name"),
            "design": (self.info.plan or {}).get("design"),
            "keep": [kind.keep for kind in self.info.kinds],
            "trials": len(scan.numbers),
            "trials_wanted": self.info.trials,
            "part_way": [asdict(one) for one in part_way],
            "trials_failed": len(failures),
            "failures": [{"trial": number, "message": one.summary} for number, one in list(failures.items())[:10]],
            "segments": scan.segments,
            "damaged": [{"path": str(damage.path), "reason": damage.reason} for damage in scan.damaged],
            **summary(scan.details),
        }

    def report(self, out: str | Path, *, dataset: str | None = None, keep: float | None = None, **options: Any) -> Path:
        """Write the explorer, a folder of plain files that any browser opens, and give the path of its page.

        `dataset` says where the data are, if the run does not; a function `progress` is told the share that is done.
        """
        from memfluence.report import write_report

        return write_report(self, Path(out), dataset=dataset, keep=keep, **options)


def open_run(path: str | Location, *, memory: str | int | None = None) -> Run:
    """The run in a directory, or at a URI such as s3://bucket/run; `memory="2GB"` caps what the process may hold."""
    return Run(TrialStore.open(path), memory=memory)
