"""Ties of right and wrong go to the larger influence on the margin, where margins were recorded; all else stays."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import memfluence as mf
from memfluence.findings import high_influence_pairs, train_test_duplicates

LOW = {"mem": 0.0, "infl": 0.1, "permutations": 0}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> mf.Run:
    """Few trials, so that many pairs have the same influence."""
    out: Path = tmp_path_factory.mktemp("ties") / "run"
    data = "longtail?n_train=40&n_test=30&n_classes=3&seed=1"
    return mf.run(data, learner=GaussianNB(var_smoothing=1e-2), trials=12, keep=0.5, out=out, progress=False)


def by_margin(run: mf.Run) -> np.ndarray:
    """Influence on margins (n_train, n_test), as means of two groups of trials."""
    margins = run.recorded("test_margin").astype(float)
    kept = np.unpackbits(run.trials.mask, axis=1, count=run.info.n_train, bitorder="little").astype(bool)
    return np.array([margins[of].mean(axis=0) - margins[~of].mean(axis=0) for of in kept.T])


def test_pairs_and_duplicates(run: mf.Run) -> None:
    labels, finer = (run.trials, run.info.kinds, *run.label_codes), by_margin(run)
    found, plain = run.find_pairs(**LOW), high_influence_pairs(*labels, **LOW)
    alike, bare = run.find_duplicates(**LOW), train_test_duplicates(*labels, **LOW)
    for one, other, value in ((found, plain, "influence"), (alike, bare, "lower")):
        first, second = (list(zip(-getattr(of, value), of.train_index, of.test_index)) for of in (one, other))
        assert second == sorted(second)
        assert sorted(first) == second, "the same pairs with the same values"
        assert first == sorted(first, key=lambda pair: (pair[0], -round(finer[pair[1], pair[2]], 9), *pair[1:]))
        assert first != second


@pytest.mark.parametrize("per", ["test", "train"])
def test_the_largest(run: mf.Run, per: str) -> None:
    estimates, finer = run.influence_estimates(), by_margin(run)
    plain = estimates.top_k(6) if per == "test" else estimates.top_tests(6)
    found = run.influence(top_k=6, per=per)
    assert np.array_equal(found.value, plain.value)
    assert np.array_equal(np.sort(found.index), np.sort(plain.index)), "the same examples"
    assert not np.array_equal(found.index, plain.index)
    for row, (index, value) in enumerate(zip(found.index, found.value)):
        of = finer[index, row] if per == "test" else finer[row, index]
        assert sorted(zip(-value, -of.round(9), index)) == list(zip(-value, -of.round(9), index))


def test_where_there_are_no_margins_ties_go_to_the_lower_index(run: mf.Run, tmp_path: Path) -> None:
    bare = mf.run(
        "longtail?n_train=40&n_test=30&n_classes=3&seed=1",
        learner=GaussianNB(var_smoothing=1e-2),
        trials=12,
        keep=0.5,
        out=tmp_path / "bare",
        record="none",
        progress=False,
    )
    plain = high_influence_pairs(run.trials, run.info.kinds, *run.label_codes, **LOW)
    for name in ("train_index", "test_index", "influence"):
        assert np.array_equal(getattr(bare.find_pairs(**LOW), name), getattr(plain, name))
    assert bare.influence(top_k=3).index.tolist() == bare.influence_estimates().top_k(3).index.tolist()
