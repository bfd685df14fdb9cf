"""The paper's numbers agree with each other, and each has its place in the result of an experiment."""

from pathlib import Path
from typing import get_args

import pytest

from experiments.world_runs import world_run
from memfluence.errors import InputError
from memfluence.experiments import EXPERIMENTS, consistency, histogram, thresholds
from memfluence.paper import DATASETS, PAPER, Data, ours, reported

N_TEST = {"mnist": 10_000, "cifar100": 10_000, "imagenet": 50_000}


def test_numbers_that_follow_from_others() -> None:
    assert get_args(Data) == DATASETS == tuple(PAPER)
    for dataset, n_test in N_TEST.items():
        found = reported(dataset)
        assert len(found) == len(PAPER[dataset])  # no name twice
        share = found["histogram.test_examples"].value / n_test
        assert found["histogram.test_share"].value == pytest.approx(share, abs=5e-5)
    found = {name: one.value for name, one in reported("cifar100", "utility").items()}
    loss = found["utility.test.accuracy"] - found["utility.test.accuracy_without"]
    assert found["utility.test.difference"] == pytest.approx(loss)
    on_pairs = found["utility.influenced.accuracy"] - found["utility.influenced.accuracy_without"]
    assert found["utility.influenced.contribution"] == pytest.approx(888 / 10_000 * on_pairs, abs=5e-5)


def test_names_begin_with_an_experiment() -> None:
    for dataset in DATASETS:
        assert {name.partition(".")[0] for name in reported(dataset)} <= {*EXPERIMENTS, "run"}


def test_ours_beside_theirs(tmp_path: Path) -> None:
    run = world_run(tmp_path, 300)
    for result in (
        histogram.summarize(run, permutations=2),
        consistency.summarize(run, splits=2, permutations=1),
        thresholds.summarize(run, splits=2, permutations=1, jaccard=0.3),
    ):
        for name, one in reported("cifar100", result.name).items():
            found = ours(one, result)
            assert found is not None, name
            assert isinstance(found["mean"], int | float)
        assert ours(reported("cifar100")["run.trials"], result) is None
    assert ours(reported("cifar100")["histogram.pairs"], histogram.summarize(run, permutations=0)) == {
        "mean": len(run.find_pairs())
    }


def test_other_data() -> None:
    with pytest.raises(InputError, match="no results for 'digits'; it has them for mnist, cifar100, imagenet"):
        reported("digits")
