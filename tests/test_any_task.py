"""Any task through one contract, end to end: regression, several labels, and a function with an outcome of its own."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor

import memfluence as mf
from memfluence.cli import main
from memfluence.errors import DatasetError, InputError, LearnerError, MemfluenceWarning, RunMismatchError
from memfluence.records import Outcome
from memfluence.runs import Run

OUTLIERS = [3, 17, 40, 66, 90]
FOREST = """
from sklearn.ensemble import RandomForestRegressor
forest = RandomForestRegressor(10, n_jobs=1)
"""


class Unsaid:
    """An estimator that does not say what it is."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def fit(self, x: Any, y: Any) -> "Unsaid":
        self.inner.fit(x, y)
        return self

    def predict(self, x: Any) -> Any:
        return self.inner.predict(x)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def homes(n: int = 150) -> pd.DataFrame:
    """Prices that follow from two columns, but for a few that are far off."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"area": rng.uniform(20, 120, n), "floor": rng.integers(0, 9, n)})
    table["price"] = 3 * table.area + 10 * table.floor + rng.normal(size=n)
    return table


def planted(table: pd.DataFrame) -> tuple[Any, Any, Any, Any]:
    train, test = table[:110].copy(), table[110:]
    train.loc[OUTLIERS, "price"] += 400
    inputs = ["area", "floor"]
    return train[inputs], train.price, test[inputs], test.price


def facts(page: Path) -> dict[str, Any]:
    (meta,) = page.parent.glob("data-*/meta.js")
    text = meta.read_text()
    found: dict[str, Any] = json.loads(text[text.index(",") + 1 : text.rindex(")")])
    return found


def refuses(run: Run) -> None:
    """What is about right and wrong says so in one sentence."""
    for ask in (
        lambda: run.memorization(outcome="correct"),
        run.c_scores,
        run.attack,
        run.groups,
        run.duplicates,
        run.held_out_votes,
        run.cross_fitted_pairs,
        run.pair_stability,
        lambda: run.trials_needed(stderr=0.1),
        lambda: mf.experiment("removal", run),
        lambda: mf.experiment("histogram", run),
        lambda: mf.export_trials(run, "trials.npz"),
        lambda: mf.export_published(run, "published.npz"),
        lambda: mf.export_published(run, "pairs.npz", pairs=True),
        lambda: mf.export_for(run, "held-out.csv", "cleanlab"),
        lambda: mf.export_for(run, "folder", "huggingface"),
        lambda: mf.compare(run, run),
    ):
        with pytest.raises(InputError, match=r"scores of its learner's own|has no groups|no column|'correct'"):
            ask()  # type: ignore[no-untyped-call]


def test_a_regression_with_planted_outliers() -> None:
    data = planted(homes())
    run = mf.run(data, learner=KNeighborsRegressor(3), trials=60, out="run", progress=False)
    assert (run.outcome, run.info.record, run.info.dataset["task"]) == ("score", ("score",), "numbers")
    assert run.status()["accuracy_in"] == pytest.approx(run.recorded("train_score")[unpacked(run)].mean(), rel=1e-3)

    found = run.mislabels()
    assert set(found.index[:5]) == set(OUTLIERS)
    assert set(OUTLIERS) <= set(found.index[found.believed])
    assert found.believed.sum() <= 7  # and a neighbour or two of theirs
    assert found.label[OUTLIERS[0]] == data[1][OUTLIERS[0]]  # the target itself
    assert {"mean_in", "mean_out"} <= set(found.columns)

    scores = run.memorization()
    held_out = [-run.recorded("train_score")[~unpacked(run)[:, row], row].mean() for row in OUTLIERS]
    assert -scores.mean_out[OUTLIERS].to_numpy() == pytest.approx(held_out, rel=1e-5)
    assert (scores.memorization[OUTLIERS] > 100).all()  # in the unit of prices
    assert (scores.lower <= scores.memorization).all()

    with pytest.warns(MemfluenceWarning):
        hard = run.pairs(infl=1e6)
    assert len(hard) == 0
    pairs = run.pairs()
    assert (pairs.q_value <= 0.1).all()
    assert len(pairs) == len(run.find_pairs(fdr=0.1)) > 0
    near = abs(data[0].area.to_numpy()[pairs.train_index] - data[2].area.to_numpy()[pairs.test_index])
    assert near.mean() < 10  # neighbours carry each other

    again = mf.open("run")
    assert np.array_equal(again.memorization().memorization, scores.memorization)
    assert again.labels[0].tolist() == data[1].tolist()
    profile = again.profile(0)
    assert profile.influence.iloc[0] > 0
    assert again.judge(again.influence()).to_json()["trials"] == 60
    assert again.datamodels([0]).weights.shape == (110, 1)
    run.report("site", dataset=data)
    about = facts(Path("site/index.html"))
    assert about["facts"]["outcome"] == "score"
    assert about["found"]["mislabels"] == found.believed.sum()
    assert "score of its own" in about["notices"][0]
    refuses(run)
    assert run.plot().axes


def unpacked(run: Run) -> np.ndarray:
    return np.unpackbits(run.trials.mask, axis=1, count=run.info.n_train, bitorder="little").astype(bool)


def test_a_csv_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A column of numbers is a regression, all the way to the explorer."""
    table = homes()
    table.loc[OUTLIERS, "price"] += 400
    table.to_csv("homes.csv", index=False)
    Path("learner.py").write_text(FOREST)

    def said(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        assert (ended.value.code or 0) == code
        heard = capsys.readouterr()
        return heard.err if code else heard.out

    data = "csv:homes.csv?label=price&test=0.2"
    ran = said("run", data, "--learner", "learner.py:forest", "--trials", "40", "--out", "run", "--quiet")
    assert "mean score on test examples -" in ran
    assert "score     -" in said("status", "run")
    assert "how much keeping an example raises its mean score" in said("scores", "run")
    listed = said("mislabels", "run")
    assert "targets are believed to be wrong" in listed
    document = json.loads(said("mislabels", "run", "--json"))
    wrong = {row["id"] for row in document["mislabels"] if row["believed"]}
    assert wrong
    assert wrong <= set(OUTLIERS)  # some of them are test examples
    assert "selected at a false discovery rate of 0.1" in said("pairs", "run")
    assert "label" in said("profile", "run", "0")
    said("report", "run", "--out", "site")
    assert facts(Path("site/index.html"))["facts"]["outcome"] == "score"
    assert "scores of its learner's own" in said("duplicates", "run", code=2)
    assert "this looks like a regression" in said("run", data, "--out", "other", "--trials", "2", code=2)
    said("verify", "run", "--sample", "1", "--learner", "learner.py:forest", "--data", data)


def test_several_labels_an_example() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(160, 6))
    y = (x[:, :4] + 0.2 * rng.normal(size=(160, 4)) > 0).astype(int)
    flipped = rng.choice(110, 6, replace=False)
    y[flipped] = 1 - y[flipped]
    data = (x[:110], y[:110], x[110:], y[110:])
    run = mf.run(data, learner=RandomForestClassifier(15), trials=60, out="run", progress=False)
    assert run.info.dataset["task"] == "labels"
    scores = run.recorded("train_score")
    assert set(np.unique(np.round(scores * 4, 3))) <= {0, 1, 2, 3, 4}
    found = run.mislabels()
    assert set(found.index[:6]) == set(flipped)
    assert found.label.iloc[0].split() == [str(one) for one in y[found.index[0]]]
    assert (run.memorization().memorization[flipped] > 0.4).all()
    values = mf.run(
        data, learner=RandomForestClassifier(5), trials=40, design="bernoulli", keep=0.5, out="values", progress=False
    ).values("banzhaf")
    assert values.value.notna().all()
    run.report("site", dataset=data)
    assert facts(Path("site/index.html"))["facts"]["unit"] == 1.0


def test_a_function_with_an_outcome_of_its_own() -> None:
    """Texts without labels: the outcome is the share of a text's letters that a bigram model predicts."""
    rng = np.random.default_rng(2)
    texts = ["".join(rng.choice(list("abc"), 30)) for _ in range(40)]
    texts[7] = "xyzxyzxyzxyz"
    tests = [*("".join(rng.choice(list("abc"), 30)) for _ in range(9)), "zxyzxyzxy"]

    def train(x: Any, y: Any, seed: int) -> Any:
        assert y is None
        counts: dict[tuple[str, str], int] = {}
        for text in x:
            for pair in pairwise(text):
                counts[pair] = counts.get(pair, 0) + 1
        best = {a: max("abcxyz", key=lambda b: counts.get((a, b), 0)) for a in "abcxyz"}
        return lambda x, y: [np.mean([best[a] == b for a, b in pairwise(text)]) for text in x]

    data = mf.datasets.from_arrays(texts, None, tests, None)
    run = mf.run(data, learner=train, trials=60, out="run", progress=False)
    assert run.info.dataset["task"] == "any"
    scores = run.memorization()
    assert scores.memorization.idxmax() == 7
    assert scores.memorization[7] == pytest.approx(1.0, abs=0.01)
    assert not run.trials.train_correct.any()
    pairs = run.pairs()
    assert (pairs.train_index[0], pairs.test_index[0]) == (7, 9)
    run.report("site", dataset=data)
    assert facts(Path("site/index.html"))["facts"]["memorized"] >= 1


def test_a_run_goes_on_with_its_scores_and_with_no_others() -> None:
    data = planted(homes())
    mf.run(data, learner=Ridge(), trials=10, out="run", progress=False)
    run = mf.run(data, learner=Ridge(), trials=20, out="run", progress=False)
    assert run.recorded("test_score").shape == (20, 40)
    with pytest.raises(RunMismatchError, match="outcome"):
        mf.run(data, learner=Ridge(), settings={"outcome": "squared"}, trials=20, out="run", progress=False)
    with pytest.raises(LearnerError, match="leave out"):
        mf.run(data, learner=Ridge(), trials=5, record=(), out="bits", progress=False)
    with pytest.raises(LearnerError, match="margin"):
        mf.run(data, learner=Ridge(), trials=5, record=("margin",), out="margins", progress=False)
    merged = mf.merge("both", ["run"])
    assert merged.trials == 20
    assert mf.open("both").labels[0].tolist() == data[1].tolist()


def test_a_function_gives_scores_of_all_trials_or_of_none() -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    data = (x[:40], (x[:40, 0] > 0).astype(int), x[40:], (x[40:, 0] > 0).astype(int))

    def now_and_then(x: Any, y: Any, seed: int) -> Any:
        return (lambda x, y: x[:, 0]) if seed % 2 else (lambda x: (x[:, 0] > 0).astype(int))

    with pytest.raises(LearnerError, match="a score of the learner's own"):
        mf.run(data, learner=now_and_then, trials=12, out="run", progress=False)
    stored = mf.open("run")
    kept = len(stored.trials)
    assert 0 < kept < 12
    assert stored.trials.test_correct.all() == (stored.outcome == "correct")  # no zeros of trials that had scores


def test_segments_of_scores_and_of_right_and_wrong_are_not_joined() -> None:
    mf.run(planted(homes()), learner=Ridge(), trials=2, out="run", progress=False)
    store = mf.open("run").store
    kept = np.arange(110) < 77
    bits = Outcome(5, 0, kept, kept, np.ones(40, bool))
    with pytest.raises(LearnerError, match="records score, and trial 5 gives right and wrong"):
        store.write([bits])


def test_an_outcome_that_nobody_would_use_is_refused() -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    y = (x > 0).astype(int)
    for targets, outcome in ((y[:, 0], "exact"), (y[:, 0], lambda target, found: target == found), (y, "squared")):
        data = (x[:40], targets[:40], x[40:], targets[40:])
        learner = RandomForestClassifier(3) if outcome != "squared" else Unsaid(RandomForestClassifier(3))
        with pytest.raises(LearnerError, match="the setting 'outcome'"):
            mf.run(data, learner=learner, settings={"outcome": outcome}, trials=2, out="run", progress=False)


def test_a_plan_counts_scores_and_knows_no_error_in_their_unit() -> None:
    for options in ({}, {"record": "score"}):
        found = mf.plan(planted(homes()), learner=Ridge(), trials=10, pilot=False, **options)
        assert found["disk_bytes"] == 10 * (4 * (110 + 40) + 2 * 14 + 5)
        assert found["largest_stderr"] is None


def test_samples_for_fiftyone_have_targets() -> None:
    run = mf.run(planted(homes()), learner=Ridge(), trials=10, out="run", progress=False)
    mf.export_for(run, "samples.json", "fiftyone")
    samples = json.loads(Path("samples.json").read_text())["samples"]
    assert [sample["ground_truth"]["value"] for sample in samples] == run.labels[0].tolist()
    assert samples[3]["mean_out"] == run.memorization().mean_out[3]


def test_labels_that_are_whole_numbers_are_targets_of_a_regressor() -> None:
    x, y = np.arange(60.0)[:, None], np.arange(60) * 3
    data = (x[:40], y[:40], x[40:], y[40:])
    run = mf.run(data, learner=Ridge(), trials=10, out="run", progress=False)
    assert run.info.dataset["task"] == "numbers"
    assert mf.open("run").dataset(data).task == "numbers"
    with pytest.raises(DatasetError, match="a regressor needs numbers"):
        mf.run((x[:40], ["a", "b"] * 20, x[40:], ["a", "b"] * 10), learner=Ridge(), trials=10, out="r", progress=False)


def test_weights_that_a_learner_does_not_take_are_told_of() -> None:
    data = planted(homes())
    weighted = mf.datasets.from_arrays(*data, attributes={"train_sample_weight": np.ones(110)})
    with pytest.warns(MemfluenceWarning, match="KNeighborsRegressor takes no sample_weight"):
        mf.run(weighted, learner=KNeighborsRegressor(3), trials=2, out="run", progress=False)
    mf.run(weighted, learner=Ridge(), trials=2, out="other", progress=False)


def test_a_classifier_keeps_right_and_wrong() -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    y = (x[:, 0] > 0).astype(int)
    data = (x[:40], y[:40], x[40:], y[40:])
    run = mf.run(data, learner=LogisticRegression(), trials=20, out="run", progress=False)
    assert run.outcome == "correct"
    assert "task" not in run.info.dataset
    assert run.bits is run.trials
    with pytest.raises(InputError, match="no column 'train_score'"):
        run.memorization(outcome="score")
