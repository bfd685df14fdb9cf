"""Values, profiles, datamodels and judgements of real runs, from Python and from the command line."""

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import hypergeom

import memfluence as mf
from memfluence.cli import main
from memfluence.errors import InputError
from memfluence.estimators.intervals import difference
from memfluence.runs.values import clear_by_chance

DATA = "longtail?n_train=40&n_test=30&n_classes=3&seed=1"


def learn(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """One nearest neighbour under a random projection: works on subsets of any size."""
    w = np.random.default_rng(seed).normal(size=(x.shape[1], 2))
    return lambda z: y[(((z @ w)[:, None] - (x @ w)[None]) ** 2).sum(-1).argmin(1)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, mf.Run]:
    folder = tmp_path_factory.mktemp("runs")
    wanted = {
        "fixed": {"trials": 120},
        "several": {"trials": 150, "keep": [0.3, 0.5, 0.9]},
        "bernoulli": {"trials": 120, "design": "bernoulli", "keep": [0.5, 0.7]},
        "uniform": {"trials": 120, "design": "uniform"},
        "uniform:5": {"trials": 60, "design": "uniform:5"},
        "repeats": {"trials": 120, "design": "repeats:3", "seed": 1},
    }
    return {
        name: mf.run(DATA, learner=learn, out=folder / name.replace(":", ""), progress=False, **options)  # type: ignore[arg-type]
        for name, options in wanted.items()
    }


def command(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    captured = capsys.readouterr()
    assert (stop.value.code or 0) == code, captured.err
    return captured.err if code else captured.out


def bits(run: mf.Run) -> tuple[np.ndarray, np.ndarray]:
    """(mask, test_correct) of all trials."""
    trials = run.trials
    return tuple(  # type: ignore[return-value]
        np.unpackbits(packed, axis=1, count=n, bitorder="little").astype(bool)
        for packed, n in ((trials.mask, trials.n_train), (trials.test_correct, trials.n_test))
    )


def test_banzhaf_values_are_of_the_trials_with_keep_a_half(runs: dict[str, mf.Run]) -> None:
    run = runs["bernoulli"]
    table = mf.values(run, test=[3, 5, 6])
    mask, right = bits(run)
    half = run.trials.kinds == 0
    utility = right[half][:, [3, 5, 6]].mean(axis=1)
    for i in (0, 17, 39):
        kept = mask[half, i]
        assert table["value"][i] == pytest.approx(utility[kept].mean() - utility[~kept].mean())
    assert list(table) == ["index", "label", "value", "stderr", "lower", "upper", "id"]
    assert table.attrs["target"].startswith("Banzhaf")


def test_shapley_values_add_up_to_what_training_gains(runs: dict[str, mf.Run]) -> None:
    table = mf.values(runs["uniform"], "shapley")
    mask, right = bits(runs["uniform"])
    large = right[mask.sum(axis=1) > 35].mean()
    assert table["value"].sum() == pytest.approx(large - 1 / 3, abs=0.05)
    assert table.attrs["target"] == "Shapley value, where no training at all is worth 0.333333"
    shifted = mf.values(runs["uniform"], "shapley", empty=0.0)
    np.testing.assert_allclose(shifted["value"] - table["value"], 1 / 3 / 40)
    smaller = mf.values(runs["uniform:5"], "shapley")
    assert "subsets of at least 5 others" in smaller.attrs["target"]
    given = mf.values(runs["uniform"], "shapley", outcome=right.astype(float))
    assert "at least 1 others" in given.attrs["target"]


def test_values_of_other_designs_are_refused(runs: dict[str, mf.Run], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"bernoulli design with keep 0.5, and .* has the design fixed with keep 0.7;"):
        mf.values(runs["fixed"])
    with pytest.raises(InputError, match=r"uniform design, and .* has the design bernoulli with keep 0.5, 0.7;"):
        mf.values(runs["bernoulli"], "shapley")
    with pytest.raises(InputError, match="has the design uniform; ask for `kind='shapley'`"):
        mf.values(runs["uniform"])
    with pytest.raises(InputError, match="'banzhaf' or 'shapley'"):
        mf.values(runs["fixed"], "loo")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no use for `empty`"):
        mf.values(runs["bernoulli"], empty=0.1)
    with pytest.raises(InputError, match="leave out `empty`"):
        mf.values(runs["uniform:5"], "shapley", empty=0.1)
    with pytest.raises(InputError, match=r"shape \(trials, n_test\)"):
        mf.values(runs["bernoulli"], outcome=np.zeros((3, 30)))
    mf.export_trials(runs["bernoulli"], tmp_path / "trials.npz")
    with np.load(tmp_path / "trials.npz") as file:
        np.savez(
            tmp_path / "bare.npz",
            **{name: file[name] for name in file.files if name not in ("run", "plan", "trial", "kind")},
        )
    mf.import_trials([tmp_path / "bare.npz"], tmp_path / "bare")
    with pytest.raises(InputError, match="has trials made elsewhere"):
        mf.values(mf.open(tmp_path / "bare"))


def test_uniform_sizes_give_no_memorization(runs: dict[str, mf.Run]) -> None:
    for ask in (runs["uniform"].memorization, runs["uniform"].influence, lambda: mf.c_scores(runs["uniform"])):
        with pytest.raises(InputError, match="those that did are larger"):
            ask()


def test_uniform_has_no_keep_and_survives_export(runs: dict[str, mf.Run], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="uniform design has its sizes of subsets already"):
        mf.run(DATA, learner=learn, design="uniform", keep=0.5, out=tmp_path / "run")
    mf.export_trials(runs["uniform"], tmp_path / "trials.npz")
    mf.import_trials([tmp_path / "trials.npz"], tmp_path / "again")
    again = mf.values(mf.open(tmp_path / "again"), "shapley")
    np.testing.assert_array_equal(again["value"], mf.values(runs["uniform"], "shapley")["value"])


def test_trials_that_failed_are_said(tmp_path: Path) -> None:
    def needs_two_classes(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
        if len(np.unique(y)) < 2:
            raise ValueError("one class")
        return learn(x, y, seed)

    with pytest.warns(mf.MemfluenceWarning, match="failed"):
        run = mf.run(DATA, learner=needs_two_classes, design="uniform", trials=60, out=tmp_path, progress=False)
    with pytest.warns(mf.MemfluenceWarning, match="trials failed and are left out"):
        mf.values(run, "shapley")


def test_c_scores(runs: dict[str, mf.Run], capsys: pytest.CaptureFixture[str]) -> None:
    table = mf.c_scores(runs["several"])
    parts = [f"accuracy_out_{keep}" for keep in ("0.3", "0.5", "0.9")]
    np.testing.assert_allclose(table["c_score"], table[parts].mean(axis=1))
    for keep in (0.3, 0.5, 0.9):
        np.testing.assert_array_equal(table[f"accuracy_out_{keep}"], runs["several"].memorization(keep)["accuracy_out"])
    found = json.loads(command(capsys, "values", str(runs["several"].path), "--kind", "c-score", "--json"))
    assert found["train"][7]["c_score"] == pytest.approx(table["c_score"][7])
    assert "accuracy_out_0.3" in command(capsys, "values", str(runs["several"].path), "--kind", "c-score")
    said = command(capsys, "values", str(runs["several"].path), "--kind", "c-score", "--test", "3", code=2)
    assert "leave out --test" in said


def test_the_profile_of_a_test_example(runs: dict[str, mf.Run], capsys: pytest.CaptureFixture[str]) -> None:
    run = runs["fixed"]
    table = mf.profile(run, 4)
    column = run.influence(test=4)
    assert isinstance(column, np.ndarray)
    order = np.argsort(-column[:, 0], kind="stable")
    np.testing.assert_array_equal(table["index"], order)
    np.testing.assert_array_equal(table["influence"], column[order, 0])
    assert (table["lower"] <= table["influence"]).all()
    _, right = bits(run)
    np.testing.assert_allclose(mf.profile(run, 4, outcome=right.astype(float))["influence"], table["influence"])
    found = json.loads(command(capsys, "profile", str(run.path), "4", "--json"))
    assert [row["index"] for row in found["train"]] == order.tolist()
    clear = found["clear"]
    assert clear["helpful"] == int((table["lower"] > 0).sum())
    assert clear["harmful"] == int((table["upper"] < 0).sum())
    assert clear["expected_by_chance"] == clear_by_chance(run, 4)
    assert len(command(capsys, "profile", str(run.path), "4", "--top", "3").splitlines()) == 1 + 1 + 6 + 1
    assert "indices from 0 to 29" in command(capsys, "profile", str(run.path), "30", code=2)


def test_chance_in_a_profile_is_that_of_shuffled_outcomes(runs: dict[str, mf.Run]) -> None:
    """Which of the kept trials are right is hypergeometric then; the number of clear intervals follows exactly."""
    run = runs["fixed"]
    mask, right = bits(run)
    for test in (int(right.mean(axis=0).argmax()), int(np.abs(right.mean(axis=0) - 0.5).argmin())):
        n_right, expected = int(right[:, test].sum()), np.zeros(2)
        for kept in mask.sum(axis=0).tolist():
            both = np.arange(max(0, kept + n_right - 120), min(kept, n_right) + 1)
            found = difference(both, kept, n_right - both, 120 - kept)
            chance = hypergeom(120, n_right, kept).pmf(both)
            expected += [chance[found.lower > 0].sum(), chance[found.upper < 0].sum()]
        counted = clear_by_chance(run, test, permutations=400)
        # A permutation's count has a standard deviation of about 1, so the mean of 400 one of 0.05.
        assert np.abs([counted["helpful"], counted["harmful"]] - expected).max() < 0.25
        assert expected.max() < 0.1 * 40
        as_numbers = clear_by_chance(run, test, outcome=right.astype(float), permutations=20)
        assert set(as_numbers) == {"helpful", "harmful"}


def test_datamodels_of_a_run(runs: dict[str, mf.Run], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(runs["fixed"].path)
    found = mf.datamodels(runs["fixed"], [2, 9])
    assert found.weights.shape == (40, 2)
    text = command(capsys, "datamodels", path, "--test", "2,9", "--out", str(tmp_path / "models.npz"), "--json")
    document = json.loads(text)
    assert (document["outcome"], document["trials"], document["trials_held_out"]) == ("correct", 96, 24)
    assert [model["test_index"] for model in document["models"]] == [2, 9]
    with np.load(tmp_path / "models.npz") as file:
        np.testing.assert_array_equal(file["weights"], found.weights)
    every = json.loads(command(capsys, "datamodels", path, "--test", "0-29", "--json"))["models"]
    helped = mf.datamodels(runs["fixed"], list(range(30))).weights.max(axis=0) > 0  # (tests,)
    assert not helped.all()
    assert [model["most_helpful"] is not None for model in every] == helped.tolist()
    assert "correlation" in command(capsys, "datamodels", path, "--test", "0-3")
    assert "such as 3,7,20-29" in command(capsys, "datamodels", path, "--test", "three", code=2)


def test_a_judgement(runs: dict[str, mf.Run], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(runs["repeats"].path)
    influence = runs["fixed"].influence()
    np.save(tmp_path / "influence.npy", influence)
    np.savez(tmp_path / "chance.npz", scores=np.random.default_rng(0).normal(size=(40, 30)), other=np.zeros(3))
    files = [str(tmp_path / name) for name in ("influence.npy", "chance.npz")]
    found = json.loads(command(capsys, "judge", path, *files, "--json"))
    assert (found["trials"], found["masks"], found["outcome"]) == (120, 40, "correct")
    assert [one["name"] for one in found["scores"]] == files
    first, second = found["scores"]
    assert first["lds"]["value"] > second["lds"]["value"]
    assert first["lds"]["lower"] < first["lds"]["value"] < found["ceiling"]["lds"]["upper"]
    assert second["lds_minus_first"]["value"] == pytest.approx(second["lds"]["value"] - first["lds"]["value"])
    assert [one["named"] for one in first["counterfactual"]] == [1, 2, 3]
    same = mf.judge(runs["repeats"], influence)  # type: ignore[arg-type]
    assert same.scores["scores"].lds.value == first["lds"]["value"]
    text = command(capsys, "judge", path, *files)
    assert "ceiling" in text
    assert "look too good" in text


def test_a_judgement_of_chosen_trials_and_test_examples(
    runs: dict[str, mf.Run], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(runs["fixed"].path)
    np.save(tmp_path / "scores.npy", np.random.default_rng(0).normal(size=(40, 30)))
    scores = str(tmp_path / "scores.npy")
    found = json.loads(command(capsys, "judge", path, scores, "--trials", "60:", "--test", "0-9", "--json"))
    assert found["trials"] == 60
    assert found["scores"][0]["lds"]["test_examples"] <= 10
    assert found["ceiling"]["lds"] is None
    _, right = bits(runs["fixed"])
    again = mf.judge(runs["fixed"], scores, trials=(60, None), test=range(10), outcome=right.astype(float))
    assert again.scores["scores"].lds.value == pytest.approx(found["scores"][0]["lds"]["value"])
    for options, says in (
        (["--trials", "sixty"], "FROM:TO"),
        (["--trials", "0:2"], "at least 4 masks"),
        (["--test", "99"], "indices from 0 to 29"),
        (["--outcome", "margin"], "--record margin"),
        ([scores], "given twice"),
    ):
        assert says in command(capsys, "judge", path, scores, *options, code=2)
    np.save(tmp_path / "scores.npy", np.zeros((30, 40)))
    assert "(n_train, n_test) = (40, 30)" in command(capsys, "judge", path, scores, code=2)
    np.savez(tmp_path / "two.npz", a=np.zeros(3), b=np.zeros(3))
    assert "no array 'scores'" in command(capsys, "judge", path, str(tmp_path / "two.npz"), code=2)
    assert "There is no file" in command(capsys, "judge", path, str(tmp_path / "none.npy"), code=2)


def test_values_on_the_command_line(
    runs: dict[str, mf.Run], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(runs["bernoulli"].path)
    text = command(capsys, "values", path, "--test", "3,5-6", "--out", str(tmp_path / "values.csv"))
    assert "Banzhaf" in text
    assert len((tmp_path / "values.csv").read_text().splitlines()) == 41
    found = json.loads(command(capsys, "values", path, "--test", "3,5-6", "--json"))
    expected = mf.values(runs["bernoulli"], test=[3, 5, 6])
    assert [row["value"] for row in found["train"]] == expected["value"].tolist()
    assert "make a run with --design uniform" in command(capsys, "values", path, "--kind", "shapley", code=2)
    assert "'banzhaf' or 'shapley'" in command(capsys, "values", path, "--kind", "loo", code=2)


def test_values_and_the_others_are_methods_too(runs: dict[str, mf.Run]) -> None:
    run, names = runs["fixed"], ("values", "c_scores", "profile", "datamodels", "judge")
    for name in names:
        assert getattr(mf.Run, name) is getattr(mf, name)
    assert run.profile(3).equals(mf.profile(run, 3))
    assert run.c_scores().equals(mf.c_scores(run))


def test_dir_shows_what_a_user_may_call_and_nothing_else(runs: dict[str, mf.Run]) -> None:
    assert dir(runs["fixed"]) == [
        "attack",
        "bits",
        "c_scores",
        "class_names",
        "classes",
        "cross_fitted_pairs",
        "datamodels",
        "dataset",
        "duplicates",
        "estimate_memorization",
        "find_duplicates",
        "find_groups",
        "find_mislabels",
        "find_pairs",
        "folder",
        "group_influence",
        "groups",
        "held_out_votes",
        "ids",
        "influence",
        "influence_estimates",
        "info",
        "judge",
        "label_codes",
        "labels",
        "memorization",
        "memory",
        "mislabels",
        "outcome",
        "pair_stability",
        "pairs",
        "path",
        "plot",
        "profile",
        "recorded",
        "report",
        "show",
        "show_pairs",
        "status",
        "store",
        "trials",
        "trials_needed",
        "values",
    ]
    for name in set(dir(runs["fixed"])) - {"memory", "store"}:
        named = getattr(mf.Run, name)
        function = getattr(named, "fget", None) or getattr(named, "func", None) or named
        known = inspect.signature(function).parameters.values()
        assert all(one.annotation is not one.empty for one in known if one.name != "self"), name
        assert inspect.signature(function).return_annotation is not inspect.Signature.empty, name
        assert function.__doc__, name
