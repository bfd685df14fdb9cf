"""The run in numbers, and a jackknife against closed forms and against fresh trials."""

from pathlib import Path

import numpy as np
import pytest
from small_runs import MEMORIZED, make_run
from world_runs import world_run

from memfluence.errors import InputError
from memfluence.experiments import last_layer
from memfluence.experiments._result import jackknife, models
from memfluence.experiments.reproduce._parts import overview


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = np.random.default_rng(0).normal(size=10)
    left_out = [np.delete(values, k).mean() for k in range(10)]
    assert jackknife(left_out) == pytest.approx(values.std(ddof=1) / np.sqrt(10))


def test_numbers_of_models_in_words() -> None:
    assert models([20, 20]) == "20 models"
    assert models([5, 3, 4]) == "3 to 5 models"


def test_a_run_in_numbers(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    numbers = overview(run).numbers
    assert numbers["trials"] == 200
    assert numbers["memorized"] == len(MEMORIZED)
    assert numbers["memorized_stderr"] == 0  # they are memorized whatever is left out
    assert numbers["keep"] == pytest.approx(0.7, abs=0.02)
    assert numbers["test_accuracy"]["n"] == 200
    with pytest.raises(InputError, match="has 12 trial"):
        overview(make_run(tmp_path / "few", trials=12))


def test_its_errors_are_about_those_of_fresh_trials(tmp_path: Path) -> None:
    runs = [world_run(tmp_path / str(seed), 150, seed) for seed in range(16)]
    found = [overview(run).numbers for run in runs]
    truth = np.std([one["memorized"] for one in found], ddof=1)
    assert 0.5 < np.mean([one["memorized_stderr"] for one in found]) / truth < 2
    network = {"learner": "a network", "features": 8, "test_accuracy": 0.9, "train_accuracy": 1.0}
    pairs = [last_layer.summarize(*two, network).numbers["memorized"] for two in zip(runs[::2], runs[1::2])]
    truth = np.std([one["jaccard"] for one in pairs], ddof=1)
    assert 0.4 < np.mean([one["stderr"]["jaccard"] for one in pairs]) / truth < 2.5
