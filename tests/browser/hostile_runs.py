"""Runs with any number of examples and classes, and data of any kind behind them."""

from pathlib import Path
from typing import Any

import numpy as np

from memfluence.datasets import Dataset
from memfluence.exchange.importing import Labels, import_trials
from memfluence.runs import Run


def run_of(
    directory: Path,
    n_train: int,
    n_test: int,
    classes: list[str],
    trials: int = 30,
    *,
    wrong: tuple[int, ...] = (),
    test_correct: Any = None,
) -> tuple[Run, Any, Any]:
    """Trials in which the first examples are memorized and carry the first test examples, unless others are given.

    Models are always wrong on the training examples `wrong`.
    """
    trials = trials if test_correct is None else len(test_correct)
    rng = np.random.default_rng(0)
    mask = rng.random((trials, n_train)) < 0.6
    train_correct, some = np.ones((trials, n_train), bool), min(4, n_train, n_test)
    train_correct[:, :some] = mask[:, :some]
    train_correct[:, list(wrong)] = False
    if test_correct is None:
        test_correct = np.ones((trials, n_test), bool)
        test_correct[:, :some] = mask[:, :some]
    codes = np.arange(n_train) % len(classes), np.arange(n_test) % len(classes)
    directory.mkdir(parents=True)
    file = directory / "trials.npz"
    np.savez(
        file,
        mask=mask,
        train_correct=train_correct,
        test_correct=test_correct,
        train_labels=codes[0],
        test_labels=codes[1],
    )
    store = import_trials([file], directory / "run", labels=Labels(*codes, "labels of a test", None)).store
    return Run(store), *codes


def with_data(run: Run, codes: tuple[Any, Any], classes: list[str], x_train: Any, x_test: Any, **options: Any) -> Run:
    present = len(run.classes)
    return Run(
        run.store,
        Dataset("hf:<b>evil</b>", x_train, x_test, *codes, tuple(range(present)), tuple(classes[:present]), **options),
    )
