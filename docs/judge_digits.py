"""Make the tables of docs/values.md on the digits data: python docs/judge_digits.py [NAME ...] [--runs DIR]

The tables are c-scores, values, judge and datamodels (all by default). Runs are made in DIR, or resumed there; without
it in a temporary directory (some five minutes on two cores in all).
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from make_tables import DOCS, commit, markdown, memfluence, put
from scipy.stats import spearmanr
from sklearn.neural_network import MLPClassifier

import memfluence as mf

NEIGHBOURS = 10
MODELS, EPOCHS = 5, (1, 3, 10, 30)  # of the gradient baseline: models, and after which epochs their gradients count

RUNS: dict[str, dict[str, Any]] = {
    "several": {"keep": [0.3, 0.5, 0.7, 0.9]},
    "bernoulli": {"design": "bernoulli", "keep": 0.5},
    "uniform": {"design": "uniform"},
    "uniform-30": {"design": "uniform:30"},
    "first": {"record": "margin"},
    "repeats": {"design": "repeats:4", "record": "margin", "seed": 1},
}


@dataclass(frozen=True)
class Runs:
    """Where the runs are, and the number of trials of each."""

    folder: Path
    trials: int


def make_run(runs: Runs, name: str) -> mf.Run:
    return mf.run("digits", trials=runs.trials, **RUNS[name], out=runs.folder / name, progress=False)


def c_scores(runs: Runs) -> str:
    """Held-out accuracy by keep fraction, for tenths of the examples in the order of their C-score."""
    table = mf.c_scores(make_run(runs, "several"))
    tenths = np.array_split(table.sort_values("c_score").index.to_numpy(), 10)
    rows = []
    for name, part in (("lowest tenth", tenths[0]), ("second tenth", tenths[1]), ("all", table.index.to_numpy())):
        some = table.loc[part]
        columns = [column for column in table if column.startswith("accuracy_out_")]
        rows.append(
            {"examples": name, "C-score": some["c_score"].mean(), "mean stderr": some["stderr"].mean()}
            | {f"held out, keep {column.rpartition('_')[2]}": some[column].mean() for column in columns}
        )
    return markdown(rows)


def values(runs: Runs) -> str:
    """Banzhaf and Shapley values next to each other and to the C-score."""
    tables = {
        "Banzhaf": mf.values(make_run(runs, "bernoulli"), "banzhaf"),
        "Shapley": mf.values(make_run(runs, "uniform"), "shapley"),
        "the same from subsets of 30 on": mf.values(make_run(runs, "uniform-30"), "shapley"),
    }
    held_out = mf.c_scores(make_run(runs, "several"))["c_score"]
    rows = []
    for name, table in tables.items():
        value, error = table["value"], table["stderr"]
        noise = float((error**2).mean())
        rows.append(
            {
                "value": name,
                "sum": value.sum(),
                "mean × 1000": 1000 * value.mean(),
                "spread × 1000": 1000 * value.std(),
                "stderr × 1000": 1000 * error.mean(),
                "share of the spread that is not noise": max(0.0, 1 - noise / float(value.var())),
                "rank correlation with the C-score": float(spearmanr(value, held_out).statistic),
            }
        )
    return markdown(rows)


def neighbours(data: mf.Dataset) -> np.ndarray:
    """+1 for those of the nearest training images that have the test image's label, -1 for the others of them."""
    train, test = (np.asarray(x, float).reshape(len(x), -1) for x in (data.x_train, data.x_test))
    distance = ((train[:, None] - test[None]) ** 2).sum(axis=2)  # (n_train, n_test)
    rank = distance.argsort(axis=0, kind="stable").argsort(axis=0)
    return np.where(rank < NEIGHBOURS, _sign(data), 0.0)


def last_layer(data: mf.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Similarity of gradients of the loss by the last layer, and of representations before it, summed over models.

    The first is TracIn (Pruthi et al. 2020) of the last layer; the second the cosine, signed by whether labels agree.
    """
    train, test = (np.asarray(x, float).reshape(len(x), -1) / 16 for x in (data.x_train, data.x_test))
    gradient, representation = np.zeros((2, data.n_train, data.n_test))
    for seed in range(MODELS):
        net = MLPClassifier((128,), solver="sgd", learning_rate_init=0.1, batch_size=64, alpha=0.0, random_state=seed)
        for epoch in range(1, max(EPOCHS) + 1):
            net.partial_fit(train, data.y_train, classes=np.unique(data.y_train))
            if epoch in EPOCHS:
                hidden = [np.maximum(0, x @ net.coefs_[0] + net.intercepts_[0]) for x in (train, test)]
                errors = [net.predict_proba(x) - np.eye(10)[y] for x, y in ((train, data.y_train), (test, data.y_test))]
                gradient += (hidden[0] @ hidden[1].T + 1) * (errors[0] @ errors[1].T)
        hidden = [h / np.linalg.norm(h, axis=1, keepdims=True) for h in hidden]
        representation += hidden[0] @ hidden[1].T * _sign(data)
    return gradient, representation


def _sign(data: mf.Dataset) -> np.ndarray:
    return np.where(data.y_train[:, None] == data.y_test[None], 1.0, -1.0)  # (n_train, n_test)


def judge(runs: Runs) -> str:
    """Scores from one run's trials and from none, judged by another run's."""
    first, data = make_run(runs, "first"), mf.datasets.load("digits")
    make_run(runs, "repeats")
    gradient, representation = last_layer(data)
    matrices = {
        "influence on the margin, from 2000 other trials": first.influence(outcome="margin"),
        "influence on right and wrong, from the same": first.influence(),
        "gradient similarity (TracIn, last layer)": gradient,
        "representation similarity (last layer)": representation,
        f"{NEIGHBOURS} nearest neighbours in pixel space": neighbours(data),
    }
    files = [runs.folder / f"scores-{k}.npy" for k in range(len(matrices))]
    for file, matrix in zip(files, matrices.values()):
        np.save(file, matrix)
    found = memfluence("judge", str(runs.folder / "repeats"), *map(str, files))
    titles = [*matrices, "ceiling"]
    scores = [*found["scores"], {**found["ceiling"], "counterfactual": [None, None, None]}]
    return markdown(
        {"score": title, "LDS": _interval(one["lds"]), "ranking": _interval(one["ranking"])}
        | {f"top {k} matter by": _interval(mean) for k, mean in enumerate(one["counterfactual"], start=1)}
        for title, one in zip(titles, scores)
    )


def _interval(mean: dict[str, float] | None) -> str:
    return "" if mean is None else f"{mean['value']:.3f} ({mean['lower']:.3f} to {mean['upper']:.3f})"


def datamodels(runs: Runs) -> str:
    """Held-out correlations of datamodels of the first 20 test examples, next to the sum of influences."""
    run = make_run(runs, "first")
    found = mf.datamodels(run, np.arange(20))
    nonzero = (found.weights != 0).sum(axis=0)
    row = {
        "test examples": len(found.test),
        "trials fitted": found.trials,
        "trials held out": found.trials_held_out,
        "mean correlation": found.correlation.mean(),
        "lowest": found.correlation.min(),
        "highest": found.correlation.max(),
        "weights that are not 0, of 600": nonzero.mean(),
    }
    return markdown([row])


TABLES: dict[str, Callable[[Runs], str]] = {
    "c-scores": c_scores,
    "values": values,
    "judge": judge,
    "datamodels": datamodels,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TABLES))
    parser.add_argument("--runs", type=Path, help="where the runs are, or are to be; a temporary directory if left out")
    parser.add_argument("--trials", type=int, default=2000, help="of each run")
    parser.add_argument("--page", type=Path, default=DOCS / "values.md", help="where the tables are put")
    options = parser.parse_args()
    if unknown := set(options.names) - set(TABLES):
        parser.error(f"There is no table {sorted(unknown)[0]}; choose from {', '.join(TABLES)}.")
    with tempfile.TemporaryDirectory() as temporary:
        runs = Runs(options.runs or Path(temporary), options.trials)
        for name in options.names or TABLES:
            started = time.monotonic()
            note = f"`python docs/judge_digits.py {name}`, commit {commit()}, {options.trials} trials a run."
            put(options.page, name, f"{TABLES[name](runs)}\n\n{note}")
            print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
