"""C-scores beside memorization: a relation that was planted, its ceiling, and files that do not fit."""

import json
from pathlib import Path

import numpy as np
import pytest

import memfluence as mf
from exchange.trial_files import trials_file
from memfluence.cli import main
from memfluence.errors import InputError, MemfluenceWarning, RunMismatchError
from memfluence.exchange import compared, comparison_figure
from memfluence.runs import Run, Table

N = 600
HARD = np.random.default_rng(5).random(N)  # how often models that did not see an example are wrong on it
LABELS = np.random.default_rng(6).integers(0, 4, N)


def planted(path: Path, trials: int) -> Run:
    """A run in which memorization is one minus the C-score: models that saw an example are right on it."""
    rng = np.random.default_rng(7)
    mask = rng.permuted(np.tile(np.arange(N) < N // 2, (trials, 1)), axis=1)
    right = mask | (rng.random((trials, N)) >= HARD)
    test = rng.random((trials, 9)) < 0.6
    changes = {"mask": mask, "train_correct": right, "test_correct": test, "train_labels": LABELS}
    mf.import_trials(trials_file(path / "t.npz", **changes), path / f"run-{trials}")
    return mf.open(path / f"run-{trials}")


def c_scores(path: Path, **changes: object) -> Path:
    np.savez(path, **{"scores": (1 - HARD).astype(np.float32), "labels": LABELS, **changes})  # type: ignore[arg-type]
    return path


def test_the_planted_relation_reaches_its_ceiling(tmp_path: Path) -> None:
    file = c_scores(tmp_path / "c.npz")
    ceilings = []
    for trials in (40, 400):
        found = mf.compare(planted(tmp_path, trials), file)
        said = found["c_scores"]
        for kind in ("pearson", "spearman"):
            assert said[kind] == pytest.approx(said[f"{kind}_ceiling"], abs=0.015)
        ceilings.append(said["pearson_ceiling"])
        assert said["examples"] == found["n_train"] == N
        assert (found["trials_first"], found["trials_second"]) == (trials, None)
        json.dumps(found, allow_nan=False)
    assert ceilings[0] < 0.97 < 0.99 < ceilings[1] < 1
    assert said["mean_absolute_difference"] < 0.05


def test_the_correlations_are_those_of_plain_numpy(tmp_path: Path) -> None:
    run = planted(tmp_path, 20)
    scores = np.where(np.arange(N) % 3, 1 - HARD, np.nan)
    found = compared(c_scores(tmp_path / "c.npz", scores=scores), run)  # in either order
    known = np.arange(N) % 3 > 0
    value = run.estimate_memorization().value[known]
    assert found.document["c_scores"]["pearson"] == pytest.approx(np.corrcoef(HARD[known], value)[0, 1])
    ranks = [
        np.argsort(np.argsort(HARD[known])),
        (value[:, None] > value).sum(1) + (value[:, None] == value).sum(1) / 2,
    ]
    assert found.document["c_scores"]["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert found.c_scores is not None
    assert found.c_scores[1].tolist() == value.tolist()


def test_the_figure_says_n_and_t(tmp_path: Path) -> None:
    figure = comparison_figure(compared(planted(tmp_path, 20), c_scores(tmp_path / "c.npz")))
    (axes,) = figure.axes
    assert axes.get_xlabel() == "1 − C-score, c"
    assert axes.get_ylabel() == "memorization, run-20"
    assert axes.texts[0].get_text().startswith(f"n = {N} examples\nPearson 0.9")
    assert "n = 600 training, 9 test examples; t = 20." in " ".join(figure.texts[0].get_text().split())


def test_a_table_of_scores_has_no_ceiling(tmp_path: Path) -> None:
    table = tmp_path / "scores.csv"
    Table({"index": np.arange(N), "label": LABELS, "memorization": HARD}).write(table)
    said = mf.compare(c_scores(tmp_path / "c.npz"), table)["c_scores"]
    assert said["pearson"] == pytest.approx(1)
    assert said["pearson_ceiling"] is said["ceiling_from"] is None


def test_too_few_trials_have_no_ceiling(tmp_path: Path) -> None:
    with pytest.warns(MemfluenceWarning, match="too few trials to say how high"):
        said = mf.compare(planted(tmp_path, 3), c_scores(tmp_path / "c.npz"))["c_scores"]
    assert said["pearson_ceiling"] is said["spearman_ceiling"] is None
    assert said["pearson"] > 0.2


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    run = planted(tmp_path, 20)
    for refused, error, changes in (
        (
            "their training labels differ; the data are others, or in another order",
            RunMismatchError,
            {"labels": LABELS[::-1]},
        ),
        ("600 and 599 training examples", RunMismatchError, {"scores": HARD[1:], "labels": LABELS[1:]}),
        ("must be flat and equally long", InputError, {"labels": LABELS[1:]}),
        ("'scores' must hold numbers", InputError, {"scores": np.array(["high"] * N)}),
    ):
        with pytest.raises(error, match=refused):
            mf.compare(run, c_scores(tmp_path / "c.npz", **changes))
    with pytest.raises(InputError, match="nothing in common"):
        mf.compare(c_scores(tmp_path / "c.npz"), c_scores(tmp_path / "d.npz"))


def test_a_file_alone_and_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, run = c_scores(tmp_path / "c.npz"), planted(tmp_path, 20)
    assert mf.compare(file)["mean_c_score"] == pytest.approx((1 - HARD).mean())
    with pytest.raises(SystemExit) as stop:
        main(["compare", str(run.path), str(file), "--out", str(tmp_path / "out")])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "c scores:\n  examples: 600\n" in text
    assert "ceiling from: halves of the trials, Spearman-Brown" in text
    assert (tmp_path / "out" / "comparison.png").exists()
