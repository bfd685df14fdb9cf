"""How well likely mislabels are found among planted flips: python benchmarks/mislabels.py [--tables [NAME ...]]

Without --tables: how many of the first k are flips, by ranking rule, in two worlds with known wrong labels: `longtail`
(10% flipped; about 130 of 1000 examples are the only ones of their subpopulation, held-out wrong as well), and digits
(5% flipped). The learner is `mlp`; a minute on two cores.

With --tables: the average precision of the ranking by votes and by margins on tables that scikit-learn ships, beside
cleanlab's (its scores from 5-fold cross-validation; `pip install cleanlab`), and precision and recall of `believed`.
A quarter of an hour on two cores.
"""

import argparse
import importlib.util
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn import datasets as shipped
from sklearn.base import ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import memfluence as mf
from memfluence.findings import Mislabels, likely_mislabels

LEARNERS: dict[str, Callable[[], ClassifierMixin]] = {
    "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "random forest": lambda: RandomForestClassifier(50, random_state=0),
    "naive Bayes": lambda: make_pipeline(StandardScaler(), GaussianNB(var_smoothing=1e-3)),
}
HAS_CLEANLAB = importlib.util.find_spec("cleanlab") is not None


def diabetes() -> tuple[np.ndarray, np.ndarray]:
    """A table on which no learner is right on more than about three in four: is the target above its median?"""
    x, y = shipped.load_diabetes(return_X_y=True)
    return x, (y > np.median(y)).astype(int)


TABLES: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "digits": lambda: shipped.load_digits(return_X_y=True),
    "breast cancer": lambda: shipped.load_breast_cancer(return_X_y=True),
    "wine": lambda: shipped.load_wine(return_X_y=True),
    "iris": lambda: shipped.load_iris(return_X_y=True),
    "diabetes": diabetes,
}


def digits_with_flips(share: float, seed: int = 0) -> tuple[mf.Dataset, np.ndarray]:
    data = mf.datasets.load("digits")
    rng = np.random.default_rng(seed)
    flipped = np.zeros(data.n_train, bool)
    flipped[rng.permutation(data.n_train)[: round(share * data.n_train)]] = True
    labels = np.where(flipped, (data.y_train + rng.integers(1, 10, data.n_train)) % 10, data.y_train)
    made = mf.datasets.from_arrays(
        data.x_train, labels, data.x_test, data.labels("test"), value_range=data.value_range, name="digits, 5% flipped"
    )
    return made, flipped


def rules(run: mf.Run, trials: int) -> dict[str, np.ndarray]:
    """Training examples in the order of each rule, from the first so many trials."""
    some = run.trials.select(np.arange(trials))
    labels = run.label_codes[0]
    said = run.recorded("train_prediction")[:trials]
    plain = likely_mislabels(some, run.info.kinds, labels, len(run.classes))
    by_memorization = np.empty(len(labels))
    by_memorization[plain.index] = plain.memorization
    agreed = likely_mislabels(some, run.info.kinds, labels, len(run.classes), said)
    return {
        "agreement": agreed.index,
        "agreement, ties to kept right": agreed.index[np.lexsort((-agreed.accuracy_in, -agreed.score))],
        "held-out wrong": plain.index,
        "held-out wrong, ties to kept right": plain.index[np.lexsort((-plain.accuracy_in, -plain.score))],
        "memorization": np.argsort(-by_memorization, kind="stable"),
    }


def of_worlds(wanted: list[int]) -> None:
    """The share of flips among the first k, by rule."""
    longtail = mf.datasets.load("longtail?flip=0.1")
    worlds = [(longtail, longtail.attributes["train_flipped"]), digits_with_flips(0.05)]
    print("| data | trials | rule | k = flips / 4 | k = flips / 2 | k = flips |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for number, (data, flipped) in enumerate(worlds):
            out = Path(folder) / str(number)
            run = mf.run(data, trials=max(wanted), record=["prediction"], out=out, progress=False)
            count = int(flipped.sum())
            for trials in wanted:
                for rule, order in rules(run, trials).items():
                    found = [f"{flipped[order[:k]].mean():.2f}" for k in (count // 4, count // 2, count)]
                    print("|", " | ".join([data.name, str(trials), rule, *found]), "|")


def precision(found: Mislabels, flipped: np.ndarray) -> float:
    """The average precision of a list."""
    return float(average_precision_score(flipped[found.index], -np.arange(len(flipped))))


def cleanlabs(model: ClassifierMixin, x: np.ndarray, labels: np.ndarray, flipped: np.ndarray) -> float:
    """The average precision of cleanlab's label quality, from its default cross-validation; NaN where it is missing."""
    if not HAS_CLEANLAB:
        return float("nan")
    from cleanlab.rank import get_label_quality_scores

    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    probabilities = cross_val_predict(model, x, labels, cv=folds, method="predict_proba")
    return float(average_precision_score(flipped, -get_label_quality_scores(labels, probabilities)))


def one_table(x: np.ndarray, y: np.ndarray, learner: str, share: float, trials: int, seed: int) -> list[float]:
    """Average precision by votes, by agreement, by margins, of cleanlab; believed per flip, their precision, recall."""
    rng = np.random.default_rng(seed)
    test = rng.permutation(len(y)) < len(y) // 10
    x_train, y_train, classes = x[~test], y[~test], y.max() + 1
    flipped = rng.permutation(len(y_train)) < max(1, round(share * len(y_train)))
    labels = np.where(flipped, (y_train + rng.integers(1, classes, len(y_train))) % classes, y_train)
    with tempfile.TemporaryDirectory() as folder:
        how = {"trials": trials, "seed": seed, "record": ["prediction", "margin"], "progress": False, "out": folder}
        run = mf.run((x_train, labels, x[test], y[test]), learner=LEARNERS[learner](), **how)
        of = run.trials, run.info.kinds, run.label_codes[0], len(run.classes)
        margins = run.find_mislabels()
        lists = likely_mislabels(*of), run.find_mislabels(margins=False), margins
    areas = [precision(found, flipped) for found in lists]
    believed, right = int(margins.believed.sum()), int(flipped[margins.index[margins.believed]].sum())
    cut = [believed / flipped.sum(), right / believed if believed else np.nan, right / flipped.sum()]
    return [*areas, cleanlabs(LEARNERS[learner](), x_train, labels, flipped), *cut]


def of_tables(names: list[str], learners: list[str], shares: list[float], trials: int, seeds: int) -> None:
    """Means over seeds, one row for each table, learner and share."""
    heads = ["votes", "agreement", "margins", "cleanlab", "believed / flipped", "precision", "recall", "s"]
    print("| data | learner | flipped |", " | ".join(heads), "|\n|---|---|---|" + "---|" * len(heads))
    for name in names:
        x, y = TABLES[name]()
        for learner in learners:
            for share in shares:
                started = time.perf_counter()
                found = [one_table(x, y, learner, share, trials, seed) for seed in range(seeds)]
                with warnings.catch_warnings(action="ignore"):  # nothing believed: no precision
                    mean = np.nanmean(found, axis=0)
                values = ["-" if np.isnan(value) else f"{value:.3f}" for value in mean[:4]]
                values += ["-" if np.isnan(value) else f"{value:.2f}" for value in mean[4:]]
                values.append(f"{(time.perf_counter() - started) / seeds:.0f}")
                print("|", " | ".join([name, learner, f"{share:.0%}", *values]), "|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, nargs="+", help="50 138 300, or 100 with --tables, unless said")
    parser.add_argument("--tables", nargs="*", choices=list(TABLES), help="all of them, unless named")
    parser.add_argument("--learners", nargs="+", choices=list(LEARNERS), default=list(LEARNERS))
    parser.add_argument("--shares", type=float, nargs="+", default=[0.01, 0.05, 0.2])
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    if chosen.tables is None:
        of_worlds(chosen.trials or [50, 138, 300])
    else:
        tables = chosen.tables or list(TABLES)
        of_tables(tables, chosen.learners, chosen.shares, max(chosen.trials or [100]), chosen.seeds)


if __name__ == "__main__":
    main()
