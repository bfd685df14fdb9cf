"""How many of the first k likely mislabels are planted flips, by ranking rule: python benchmarks/mislabels.py

Two worlds with known wrong labels: `longtail` (10% flipped; about 130 of 1000 examples are the only ones of their
subpopulation, held-out wrong as well), and digits (5% flipped). The learner is `mlp`; a minute on two cores.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

import memfluence as mf
from memfluence.findings import likely_mislabels


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, nargs="+", default=[50, 138, 300])
    wanted = parser.parse_args().trials
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


if __name__ == "__main__":
    main()
