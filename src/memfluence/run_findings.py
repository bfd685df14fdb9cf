"""What else a run's trials say, as methods of `Run`: mislabels, train-test near-duplicates, membership, groups."""

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from memfluence.estimators import Influence, influence
from memfluence.findings import (
    Attack,
    Duplicates,
    GroupScores,
    Mislabels,
    group_scores,
    group_trials,
    likely_mislabels,
    membership_attack,
    train_test_duplicates,
)

if TYPE_CHECKING:
    import pandas as pd

    from memfluence.records import Trials
    from memfluence.store import RunInfo, TrialStore

__all__ = ["RunFindings"]


class RunFindings(Protocol):
    """The part of `Run` that looks for what people act on, and what it needs of the rest."""

    store: "TrialStore"

    @property
    def info(self) -> "RunInfo": ...
    @property
    def trials(self) -> "Trials": ...
    @property
    def classes(self) -> np.ndarray: ...
    @property
    def label_codes(self) -> tuple[np.ndarray, np.ndarray]: ...
    def _check_memory(self, memory: str | int | None) -> None: ...

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
        )

    def mislabels(self, keep: float | None = None) -> "pd.DataFrame":
        """Likely mislabels first, one row per training example; with `record=("prediction",)` also a better label."""
        import pandas as pd

        return pd.DataFrame(self.find_mislabels(keep).columns(self.classes))

    def find_duplicates(self, infl: float = 0.4, mem: float = 0.25, **options: Any) -> Duplicates:
        """Train-test near-duplicates by their influence; options of `findings.train_test_duplicates`."""
        self._check_memory(options.get("memory"))
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
        return group_scores(self.trials, self.info.kinds, *self.store.groups(), keep)

    def groups(self, keep: float | None = None) -> "pd.DataFrame":
        """One row per group: its memorization, and what it adds to the test accuracy."""
        import pandas as pd

        return pd.DataFrame(self.find_groups(keep).columns())

    def group_influence(self, keep: float | None = None) -> Influence:
        """Influence of groups on test examples: all that `influence_estimates` gives, with groups for examples."""
        return influence(group_trials(self.trials, self.store.groups()[0]), self.info.kinds, keep)

    def group_influence_columns(self, keep: float | None = None) -> dict[str, np.ndarray]:
        """The influence of every group on every test example as plain columns."""
        names = np.array(self.store.groups()[1])
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
        numbers, values = self.store.read_extra(column)
        return np.asarray(values[np.searchsorted(numbers, self.trials.numbers)])
