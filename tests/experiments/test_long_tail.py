"""The long tail, with a learner for which the theory is exact: right where a neighbour was seen, else by chance."""

from pathlib import Path

import numpy as np
import pytest
from small_runs import trials_of

import memfluence as mf
from memfluence.datasets import Dataset, load
from memfluence.errors import InputError, MemfluenceWarning
from memfluence.experiments import long_tail

SMALL = {"exponents": [1.0, 1.5], "subpopulations": [40], "sizes": [80], "trials": 60, "repeats": 2}
ONE = SMALL | {"exponents": [1.0], "epochs": [20], "clips": [], "noises": []}  # world, and no limits


def nearest(x: np.ndarray, y: np.ndarray, seed: int):  # type: ignore[no-untyped-def]
    return lambda z: y[((z[:, None] - x[None]) ** 2).sum(-1).argmin(1)]


def seen(data: Dataset) -> np.ndarray:
    return np.bincount(data.attributes["train_subpopulation"], minlength=40)


def test_every_world_differs_from_the_base_in_one_thing() -> None:
    campaign = long_tail.plan()
    base = campaign.worlds[0]
    for world in campaign.worlds[1:]:
        differs = [
            name for name in ("exponent", "subpopulations", "n_train") if getattr(world, name) != getattr(base, name)
        ]
        assert differs == [world.varied]
    assert len({world.name for world in campaign.worlds}) == len(campaign.worlds)
    assert load(long_tail.World(1.25, 30, 50).dataset).n_train == 50


def test_singletons_are_removed_and_as_many_random_ones_anew() -> None:
    data = load("longtail?n_train=80&n_test=50&subpopulations=40")
    plan = long_tail.retraining(data, repeats=3, seed=0)
    single = seen(data)[data.attributes["train_subpopulation"]] == 1
    assert single.any()
    assert plan.masks[plan.rows(arm="all")].all()
    assert (plan.masks[plan.rows(arm="singletons")] == ~single).all()
    random = plan.masks[plan.rows(arm="random")]
    assert (random.sum(1) == (~single).sum()).all()
    assert len(np.unique(random, axis=0)) == 3


def test_one_example_explains_all_errors_where_it_alone_decides() -> None:
    data = load("longtail?n_train=80&n_test=200&subpopulations=40&seed=2")
    train, test = data.attributes["train_subpopulation"], data.attributes["test_subpopulation"]
    masks = np.random.default_rng(0).random((50, 80)) < 0.7
    present = np.stack([np.isin(test, train[mask]) for mask in masks])  # right where the subpopulation was kept
    found = long_tail._explained(data, trials_of(masks, present))
    assert found["explained"] == 1.0
    assert found["explained_stderr"] == 0.0
    assert found["pairs"] == int((seen(data) == 1)[test].sum())
    never = long_tail._explained(data, trials_of(masks, np.zeros_like(present)))
    assert never["explained"] == 0.0


def test_what_is_lost_is_the_share_of_singletons_but_for_chance(tmp_path: Path) -> None:
    with (
        pytest.warns(MemfluenceWarning, match="Early stopping is left out"),
        pytest.warns(MemfluenceWarning, match="Clipping and noise are left out"),
    ):
        result = mf.experiment("long-tail", out=tmp_path / "out", learner=nearest, progress=False, **SMALL)
    assert [one["varied"] for one in result.numbers["worlds"]] == ["base", "exponent"]
    for one, world in zip(result.numbers["worlds"], long_tail.plan(**SMALL).worlds):
        data = load(world.dataset)
        once = seen(data) == 1
        single, tests = (once[data.attributes[f"{split}_subpopulation"]] for split in ("train", "test"))
        right = nearest(data.x_train, data.y_train, 0)(data.x_test) == data.y_test
        without = nearest(data.x_train[~single], data.y_train[~single], 0)(data.x_test) == data.y_test
        assert one["singletons"] == single.sum()
        assert one["lost"]["mean"] == pytest.approx(right.mean() - without.mean())
        assert one["lost"]["sd"] == 0.0
        frequency = data.attributes["subpopulation_frequency"]
        assert one["predicted_loss"] == pytest.approx(frequency[once].sum() * (1 - 1 / data.n_classes))
        # by hand: what singletons carry is their test examples, of which some are right by chance without them
        assert right[tests].mean() > 0.8
        assert one["lost"]["mean"] == pytest.approx(
            tests.mean() * (right[tests].mean() - without[tests].mean()), abs=0.02
        )
        memorized = {size["size"]: size["memorization"]["mean"] for size in one["by_size"]}
        assert memorized["1"] > 0.6
        assert memorized["21+"] == pytest.approx(0, abs=0.02)
        assert one["explained"] > 0.7
    assert result.numbers["early_stopping"] == result.numbers["clipping"] == []
    assert (tmp_path / "out" / "long-tail.png").exists()


def test_early_stopping_gives_a_point_for_each_number_of_epochs(tmp_path: Path) -> None:
    result = mf.experiment("long-tail", out=tmp_path, progress=False, **ONE | {"epochs": [1, 20]})
    first, last = result.numbers["early_stopping"]
    assert (first["epochs"], last["epochs"]) == (1, 20)
    assert last["singletons"]["mean"] > first["singletons"]["mean"]
    assert first["test"]["n"] == 2
    lost = first["lost"]["test_once"]["mean"]
    assert lost == pytest.approx(last["test_once"]["mean"] - first["test_once"]["mean"])
    assert last["lost"]["test"]["mean"] == 0.0


def test_clipping_and_noise_are_compared_with_models_without(tmp_path: Path) -> None:
    given = ONE | {"epochs": [30], "clips": [0.01, 1e6], "noises": [5.0], "noise_clip": 3.0}
    result = mf.experiment("long-tail", out=tmp_path, progress=False, **given)
    found = {(one["clip"], one["noise"]): one for one in result.numbers["clipping"]}
    assert list(found) == [(0.0, 0.0), (0.01, 0.0), (3.0, 0.0), (1e6, 0.0), (3.0, 5.0)]
    free = found[0.0, 0.0]
    (whole,) = result.numbers["early_stopping"]  # 30 epochs, the learner's default: the same models
    assert free["lost"]["test"]["mean"] == 0.0
    for name in ("singletons", "test_once", "test_often", "test"):
        assert found[1e6, 0.0][name] == free[name] == whole[name]  # clipped where no gradient is: the same models
        for strong in ((0.01, 0.0), (3.0, 5.0)):
            lost = found[strong]["lost"][name]
            assert lost["mean"] == pytest.approx(free[name]["mean"] - found[strong][name]["mean"])
            assert lost["mean"] > 0.1
            assert lost["n"] == 2
    (world,) = (one for one in tmp_path.iterdir() if one.is_dir())
    assert mf.open(world / "clip-3-noise-5").info.learner["settings"]["noise"] == 5.0  # type: ignore[index]
    assert (tmp_path / "long-tail.png").exists()


def test_clipping_alone_is_drawn_without_noise(tmp_path: Path) -> None:
    result = mf.experiment("long-tail", out=tmp_path, progress=False, **ONE | {"trials": 32, "clips": [1.0]})
    assert [one["clip"] for one in result.numbers["clipping"]] == [0.0, 1.0]
    assert (tmp_path / "long-tail.png").exists()


def test_a_learner_without_clipping_is_stopped_early_all_the_same(tmp_path: Path) -> None:
    given = ONE | {"trials": 32, "epochs": [1, 2], "clips": [1.0], "learner": "linear"}
    settings = {"normalization": "subset", "batch": "40", "epochs": "2", "schedule": "constant"}
    with pytest.warns(MemfluenceWarning, match="Clipping and noise are left out: linear@paper has no setting 'clip'"):
        result = mf.experiment("long-tail", out=tmp_path, settings=settings, progress=False, **given)
    assert [one["epochs"] for one in result.numbers["early_stopping"]] == [1, 2]
    assert result.numbers["clipping"] == []


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`trials`"):
        long_tail.plan(trials=5)
    with pytest.raises(InputError, match="at least one Zipf exponent"):
        long_tail.plan(exponents=[])
    for name, value in (("clips", [1.0, 0.0]), ("noises", [-1.0]), ("noise_clip", 0.0), ("clips", [float("inf")])):
        with pytest.raises(InputError, match=f"`{name}` parameter must be finite and above 0"):
            long_tail.plan(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="makes its own data"):
        mf.experiment("long-tail", dataset="digits", out=tmp_path)
