"""How well likely mislabels are found among planted flips: python benchmarks/mislabels.py [--tables [NAME ...]]

Without --tables: how many of the first k are flips, by ranking rule, in two worlds with known wrong labels: `longtail`
(10% flipped; about 130 of 1000 examples are the only ones of their subpopulation, held-out wrong as well), and digits
(5% flipped). The learner is `mlp`; a minute on two cores.

With --tables: the average precision of what `mislabels` gives on tables that scikit-learn ships, with the learner's
margins (ours) and by votes, beside cleanlab (its scores from 5-fold cross-validation), pyDVL's KNN-Shapley and Data-OOB
(as many models as trials), where these are installed (`pip install cleanlab pydvl`); precision and recall of
`believed`; and seconds of the processor. `--out` saves the rows, `--show` prints the table of saved ones.
"""

import argparse
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets as shipped
from sklearn.base import ClassifierMixin
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import memfluence as mf
from memfluence.findings import Mislabels, likely_mislabels

LEARNERS: dict[str, Callable[[], ClassifierMixin]] = {
    "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "random forest": lambda: RandomForestClassifier(50, random_state=0),
    "naive Bayes": lambda: make_pipeline(StandardScaler(), GaussianNB(var_smoothing=1e-3)),
}
HAS_CLEANLAB, HAS_PYDVL = (importlib.util.find_spec(name) is not None for name in ("cleanlab", "pydvl"))
METHODS = ("ours", "votes", "cleanlab", "KNN-Shapley", "Data-OOB")
Row = dict[str, Any]  # data, learner, flipped, trials, seeds: what `one_table` gives for each


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


def cleanlabs(model: ClassifierMixin, x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """1 minus cleanlab's label quality, from the probabilities of its default cross-validation (5 shuffled folds)."""
    from cleanlab.rank import get_label_quality_scores

    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    probabilities = cross_val_predict(model, x, labels, cv=folds, method="predict_proba")
    return 1 - np.asarray(get_label_quality_scores(labels, probabilities))


def knn_shapley(x: np.ndarray, labels: np.ndarray, x_test: np.ndarray, y_test: np.ndarray) -> np.ndarray:
    """Minus pyDVL's exact Shapley values of 5 neighbours for the test examples, whose labels are right."""
    from pydvl.valuation import Dataset, KNNShapleyValuation

    scaler = StandardScaler().fit(x)
    test = Dataset(scaler.transform(x_test), y_test)
    valuation = KNNShapleyValuation(KNeighborsClassifier(5), test, progress=False)
    valuation.fit(Dataset(scaler.transform(x), labels))
    return -of_all(valuation.result, len(x))


def data_oob(model: ClassifierMixin, x: np.ndarray, labels: np.ndarray, models: int) -> np.ndarray:
    """Minus pyDVL's Data-OOB: how often the models of a bag that lack an example are right on it."""
    from pydvl.valuation import DataOOBValuation, Dataset

    valuation = DataOOBValuation(BaggingClassifier(model, n_estimators=models, random_state=0).fit(x, labels))
    valuation.fit(Dataset(x, labels))
    return -of_all(valuation.result, len(x))


def of_all(result: Any, n_train: int) -> np.ndarray:
    """pyDVL's values of all examples; the largest where it has none."""
    values = np.full(n_train, np.max(result.values))
    values[result.indices] = result.values
    return values


def one_table(x: np.ndarray, y: np.ndarray, learner: str, share: float, trials: int, seed: int) -> dict[str, Any]:
    """Average precision and seconds of each method; how many ours believes in, their precision and recall."""
    rng = np.random.default_rng(seed)
    test = rng.permutation(len(y)) < len(y) // 10
    x_train, y_train, classes = x[~test], y[~test], y.max() + 1
    flipped = rng.permutation(len(y_train)) < max(1, round(share * len(y_train)))
    labels = np.where(flipped, (y_train + rng.integers(1, classes, len(y_train))) % classes, y_train)
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        how: dict[str, Any] = {"trials": trials, "seed": seed, "progress": False, "out": folder}
        run = mf.run((x_train, labels, x[test], y[test]), learner=LEARNERS[learner](), **how)
        ours = run.find_mislabels()
        seconds = {"ours": time.process_time() - started}
        votes = run.find_mislabels(margins=False)
    believed, right = int(ours.believed.sum()), int(flipped[ours.index[ours.believed]].sum())
    areas = {"ours": precision(ours, flipped), "votes": precision(votes, flipped)}
    others: dict[str, Callable[[], np.ndarray]] = {}
    if HAS_CLEANLAB:
        others["cleanlab"] = lambda: cleanlabs(LEARNERS[learner](), x_train, labels)
    if HAS_PYDVL:
        others["KNN-Shapley"] = lambda: knn_shapley(x_train, labels, x[test], y[test])
        others["Data-OOB"] = lambda: data_oob(LEARNERS[learner](), x_train, labels, trials)
    for name, suspicion in others.items():
        started = time.process_time()
        found = suspicion()
        seconds[name] = time.process_time() - started
        areas[name] = float(average_precision_score(flipped, found))
    cut = {"believed": believed, "right": right, "flipped": int(flipped.sum())}
    return {"area": areas, "seconds": seconds, "cut": cut}


def of_tables(names: list[str], learners: list[str], shares: list[float], trials: int, seeds: int) -> list[Row]:
    """A row for each table, learner and share, with what each seed gave."""
    rows: list[Row] = []
    for name in names:
        x, y = TABLES[name]()
        for learner in learners:
            for share in shares:
                found = [one_table(x, y, learner, share, trials, seed) for seed in range(seeds)]
                rows.append({"data": name, "learner": learner, "flipped": share, "trials": trials, "seeds": found})
    return rows


def shown(rows: list[Row]) -> None:
    """The table of means over seeds; the means of all rows; and the rows where another method is better by 0.01."""
    methods = [name for name in METHODS if all(name in one["area"] for row in rows for one in row["seeds"])]
    timed = [name for name in methods if name != "votes"]
    heads = [*methods, "believed / flipped", "precision", "recall", *(f"s {name}" for name in timed)]
    print("| data | learner | flipped |", " | ".join(heads), "|\n|---|---|---|" + "---|" * len(heads))
    means, behind = [], []
    for row in rows:
        areas = {name: float(np.mean([one["area"][name] for one in row["seeds"]])) for name in methods}
        believed, right, flipped = (
            sum(one["cut"][name] for one in row["seeds"]) for name in ("believed", "right", "flipped")
        )
        cut = [believed / flipped, right / believed if believed else np.nan, right / flipped]
        spent = [float(np.mean([one["seconds"][name] for one in row["seeds"]])) for name in timed]
        values = [f"{areas[name]:.3f}" for name in methods]
        values += ["-" if np.isnan(value) else f"{value:.2f}" for value in cut] + [f"{value:.1f}" for value in spent]
        title = [row["data"], row["learner"], f"{row['flipped']:.0%}"]
        print("|", " | ".join([*title, *values]), "|")
        means.append(areas)
        best = max(methods, key=lambda name: areas[name])
        if areas[best] - areas["ours"] > 0.01:
            behind.append(f"{', '.join(title)}: {best} {areas[best]:.3f}, ours {areas['ours']:.3f}")
    print("\nMeans of all rows:", ", ".join(f"{name} {np.mean([one[name] for one in means]):.3f}" for name in methods))
    print(f"Behind the best by more than 0.01 in {len(behind)} of {len(rows)} rows.", *behind, sep="\n- ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, nargs="+", help="50 138 300, or 100 with --tables, unless said")
    parser.add_argument("--tables", nargs="*", choices=list(TABLES), help="all of them, unless named")
    parser.add_argument("--learners", nargs="+", choices=list(LEARNERS), default=list(LEARNERS))
    parser.add_argument("--shares", type=float, nargs="+", default=[0.01, 0.05, 0.2])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="save the rows of --tables as JSON")
    parser.add_argument("--show", type=Path, nargs="+", help="the table of saved rows")
    chosen = parser.parse_args()
    if chosen.show:
        shown([row for path in chosen.show for row in json.loads(path.read_text())])
    elif chosen.tables is None:
        of_worlds(chosen.trials or [50, 138, 300])
    else:
        tables = chosen.tables or list(TABLES)
        rows = of_tables(tables, chosen.learners, chosen.shares, max(chosen.trials or [100]), chosen.seeds)
        if chosen.out:
            chosen.out.write_text(json.dumps(rows, indent=1) + "\n")
        shown(rows)


if __name__ == "__main__":
    main()
