"""What else a run's trials say, as methods of `Run`: likely mislabels, train-test near-duplicates, membership."""

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from memfluence.findings import (
    Attack,
    Duplicates,
    Mislabels,
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

    def recorded(self, column: str) -> np.ndarray:
        """An optional column (trials, n) of the stored trials, or an error that says how to record it."""
        numbers, values = self.store.read_extra(column)
        return np.asarray(values[np.searchsorted(numbers, self.trials.numbers)])
