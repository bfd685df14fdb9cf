"""What else a run's trials say, as methods of `Run`: how sure pairs are, mislabels, duplicates, membership, groups."""

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from memfluence.estimators import Influence, Memory, influence
from memfluence.findings import (
    Attack,
    CrossFit,
    Duplicates,
    GroupScores,
    Mislabels,
    Stability,
    cross_fitted_pairs,
    group_scores,
    group_trials,
    held_out_votes,
    likely_mislabels,
    membership_attack,
    pair_stability,
    train_test_duplicates,
    trials_needed,
)

if TYPE_CHECKING:
    import pandas as pd

    from memfluence.records import Trials
    from memfluence.store import RunInfo, TrialStore

__all__ = ["RunFindings"]

READING = 8_000_000  # bytes that the libraries that read take, however few trials there are


class RunFindings(Protocol):
    """The part of `Run` that looks for what people act on, and what it needs of the rest."""

    store: "TrialStore"
    memory: Memory

    @property
    def info(self) -> "RunInfo": ...
    @property
    def trials(self) -> "Trials": ...
    @property
    def classes(self) -> np.ndarray: ...
    @property
    def label_codes(self) -> tuple[np.ndarray, np.ndarray]: ...
    @property
    def _for_pairs(self) -> tuple[Any, ...]:
        return self.trials, self.info.kinds, *self.label_codes

    @property
    def ids(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Names of the training and of the test examples (files, rows of a CSV), where the data have them."""
        return self.store.ids()

    def _capped(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options with a cap on memory, the run's own where they have none; trials must fit in it, too."""
        cap = Memory.of(options["memory"]) if options.get("memory") is not None else self.memory
        self._check_memory(cap)
        return {**options, "memory": cap}

    def _check_memory(self, memory: Memory) -> None:
        """Refuse to read trials that do not fit; while they are read, each is held up to four times."""
        width = sum(-(-n // 8) for n in (self.info.n_train, self.info.n_train, self.info.n_test))
        if "trials" not in self.__dict__:
            needed = 4 * self.info.trials * width + READING
            memory.check(needed, "reading the trials", "a machine that has it")

    def cross_fitted_pairs(self, mem: float = 0.25, infl: float = 0.15, **options: Any) -> CrossFit:
        """Pairs that each half of the trials selects, with values from the other half: free of selection bias."""
        options = self._capped(options)
        return cross_fitted_pairs(*self._for_pairs, mem=mem, infl=infl, **options)

    def pair_stability(self, mem: float = 0.25, infl: float = 0.15, **options: Any) -> Stability:
        """How the number of pairs, their mean influence and the pairs themselves would vary from run to run."""
        options = self._capped(options)
        return pair_stability(*self._for_pairs, mem=mem, infl=infl, **options)

    def trials_needed(self, **targets: Any) -> dict[str, Any]:
        """How many trials a target takes (`stderr`, `jaccard`, `fdr`), and what multiples of the trials would give."""
        targets = self._capped(targets)
        return trials_needed(*self._for_pairs, **targets)

    def find_mislabels(self, keep: float | None = None) -> Mislabels:
        """Training examples ranked by how surely held-out models reject their label (`findings/mislabels.py`)."""
        recorded = "train_prediction" in self.info.columns
        return likely_mislabels(
            self.trials,
            self.info.kinds,
            self.label_codes[0],
            len(self.classes),
            self.recorded("train_prediction") if recorded else None,
            keep,
            memory=self.memory,
        )

    def mislabels(self, keep: float | None = None) -> "pd.DataFrame":
        """Likely mislabels first, one row per training example; with `record=("prediction",)` also a better label."""
        import pandas as pd

        return pd.DataFrame(self.find_mislabels(keep).columns(self.classes))

    def held_out_votes(self, keep: float | None = None) -> np.ndarray:
        """How many of the models that left each training example out predict each class, (n_train, n_classes).

        Needs recorded predictions (`record=("prediction",)`).
        """
        predictions = self.recorded("train_prediction")
        return held_out_votes(self.trials, self.info.kinds, len(self.classes), predictions, keep)

    def find_duplicates(self, infl: float = 0.4, mem: float = 0.25, **options: Any) -> Duplicates:
        """Train-test near-duplicates by their influence; options of `findings.train_test_duplicates`."""
        options = self._capped(options)
        return train_test_duplicates(self.trials, self.info.kinds, *self.label_codes, mem=mem, infl=infl, **options)

    def duplicates(self, infl: float = 0.4, mem: float = 0.25, **options: Any) -> "pd.DataFrame":
        """Pairs of a training and a test example that are likely near-duplicates, the surest first."""
        import pandas as pd

        found = self.find_duplicates(infl, mem, **options)
        table = pd.DataFrame(found.columns(self.classes))
        table.attrs = {"expected_by_chance": found.expected_by_chance}
        return table

    def attack(self, keep: float | None = None, **options: Any) -> Attack:
        """How well membership can be inferred from recorded log-odds; options of `findings.membership_attack`."""
        options = self._capped(options)
        return membership_attack(self.trials, self.info.kinds, self.recorded("train_logit"), keep, **options)

    def vulnerability_columns(self, found: Attack) -> dict[str, np.ndarray]:
        """What an attack found about each training example, as plain columns."""
        names = ("separation", "stderr", "detected", "trials_in", "trials_out")
        return {
            "index": np.arange(self.info.n_train),
            "label": self.classes[self.label_codes[0]],
            **{name: getattr(found, name) for name in names},
        }

    def find_groups(self, keep: float | None = None) -> GroupScores:
        """Memorization of each group, and what it adds to the test accuracy, of a run with groups."""
        return group_scores(self.trials, self.info.kinds, *self.store.groups(), keep, memory=self.memory)

    def groups(self, keep: float | None = None) -> "pd.DataFrame":
        """One row per group: its memorization, and what it adds to the test accuracy."""
        import pandas as pd

        return pd.DataFrame(self.find_groups(keep).columns())

    def group_influence(self, keep: float | None = None) -> Influence:
        """Influence of groups on test examples: all that `influence_estimates` gives, with groups for examples."""
        return influence(self.group_trials(), self.info.kinds, keep, memory=self.memory)

    def group_trials(self) -> "Trials":
        """The trials with a column per group in place of a training example, of a run with groups."""
        return group_trials(self.trials, self.store.groups()[0], self.memory)

    def group_influence_columns(self, keep: float | None = None) -> dict[str, np.ndarray]:
        """The influence of every group on every test example as plain columns."""
        names = np.array(self.store.groups()[1])
        self.memory.check_matrix(len(names), self.info.n_test, 12 * 8 + names.itemsize)
        found = self.group_influence(keep).block_with_errors()  # (groups, n_test) each
        n_test = self.info.n_test
        return {
            "group": np.repeat(names, n_test),
            "test_index": np.tile(np.arange(n_test), len(names)),
            "influence": found.value.ravel(),
            "stderr": found.stderr.ravel(),
            "lower": found.lower.ravel(),
            "upper": found.upper.ravel(),
        }

    def recorded(self, column: str) -> np.ndarray:
        """An optional column (trials, n) of the stored trials, or an error that says how to record it."""
        self.memory.check_column(
            len(self.trials), self.info.n_train if column.startswith("train") else self.info.n_test
        )
        numbers, values = self.store.read_extra(column)
        return np.asarray(values[np.searchsorted(numbers, self.trials.numbers)])
