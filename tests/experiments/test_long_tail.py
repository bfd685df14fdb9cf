"""The long tail, with a learner for which the theory is exact: right where a neighbour was seen, else by chance."""

from pathlib import Path

import numpy as np
import pytest
from small_runs import trials_of

import memfluence as mf
from memfluence.datasets import Dataset, load
from memfluence.errors import InputError, MemfluenceWarning
from memfluence.experiments import long_tail
from memfluence.store import unpack

REST: dict[str, list[float]] = {"weight_decays": [], "prunes": [], "drops": [], "flips": []}
SMALL = {"exponents": [1.0, 1.5], "subpopulations": [40], "sizes": [80], "trials": 60, "repeats": 2} | REST
ONE = SMALL | {"exponents": [1.0], "epochs": [20], "clips": [], "noises": []}  # world, and no limits


def nearest(x: np.ndarray, y: np.ndarray, seed: int):  # type: ignore[no-untyped-def]
    return lambda z: y[((z[:, None] - x[None]) ** 2).sum(-1).argmin(1)]


def seen(data: Dataset) -> np.ndarray:
    return np.bincount(data.attributes["train_subpopulation"], minlength=40)


def test_every_world_differs_from_the_base_in_one_thing() -> None:
    campaign = long_tail.plan()
    base = campaign.worlds[0]
    options = ("exponent", "subpopulations", "n_train", "flip", "seed")
    for world in campaign.worlds[1:]:
        differs = [name for name in options if getattr(world, name) != getattr(base, name)]
        assert differs == [world.varied] if world.varied != "flip" else set(differs) <= {"flip", "seed"}
    assert len({world.name for world in campaign.worlds}) == len(campaign.worlds)
    flipped = [(world.flip, world.seed) for world in campaign.worlds if world.varied == "flip"]
    assert flipped == [(flip, seed) for flip in (0.0, 0.05, 0.1, 0.2) for seed in range(5)][1:]  # the base is the first
    assert base.dataset == "longtail?exponent=1.0&subpopulations=500&n_train=1000&n_test=4000&seed=0"
    assert load(campaign.worlds[-1].dataset).attributes["train_flipped"].sum() == 200
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


def test_weight_decay_pruning_and_dropping_are_limits_as_well(tmp_path: Path) -> None:
    given = ONE | {"epochs": [], "weight_decays": [1e-9, 0.3], "prunes": [0.01, 0.95], "drops": [0.1, 0.5]}
    result = mf.experiment("long-tail", out=tmp_path, progress=False, **given)
    for name, setting in (("weight_decay", "weight_decay"), ("pruning", "prune")):
        weak, strong = result.numbers[name]
        assert [weak[setting], strong[setting]] == given["weight_decays" if name == "weight_decay" else "prunes"]
        assert abs(weak["lost"]["test"]["mean"]) < 0.02
        assert strong["lost"]["test_once"]["mean"] > 0.3
    memorized, random = (
        [one for one in result.numbers["dropping"] if one["what"] == w] for w in ("memorized", "random")
    )
    assert [one["share"] for one in memorized] == [one["share"] for one in random] == [0.1, 0.5]
    for most, some in zip(memorized, random):
        assert most["lost"]["test_once"]["mean"] > some["lost"]["test_once"]["mean"] + 0.05
    (world,) = (one for one in tmp_path.iterdir() if one.is_dir())
    settings = [mf.open(world / part).info.learner["settings"] for part in ("weight-decay-0.3", "prune-0.95")]  # type: ignore[index]
    assert [one.get("weight_decay", one.get("prune")) for one in settings] == [0.3, 0.95]


def test_what_is_lost_by_size_and_by_class_is_counted_in_the_trials(tmp_path: Path) -> None:
    given = ONE | {"prunes": [0.2, 0.5, 0.9], "drops": [0.3]}
    result = mf.experiment("long-tail", out=tmp_path, progress=False, **given)
    typical = {one["kind"]: one for one in result.numbers["typical"]}
    assert list(typical) == ["memorized", "early_stopping", "pruning", "random"]
    costs = {one["prune"]: one["lost"]["test"]["mean"] for one in result.numbers["pruning"]}
    nearly = min(costs, key=lambda share: abs(costs[share] - 0.05))
    assert typical["pruning"]["strength"] == f"{nearly:.0%}"

    data = load(long_tail.plan(**ONE).worlds[0].dataset)
    of = seen(data)[data.attributes["test_subpopulation"]]
    (world,) = (one for one in tmp_path.iterdir() if one.is_dir())
    free, pruned = (mf.open(world / store).trials for store in ("removal", f"prune-{nearly:g}"))
    assert free.numbers[:2].tolist() == pruned.numbers.tolist() == [0, 1]
    right = [unpack(trials.test_correct, trials.n_test)[:2] for trials in (free, pruned)]

    def lost(which: np.ndarray) -> float:
        return float(right[0][:, which].mean() - right[1][:, which].mean())

    parts = next(one for one in result.numbers["pruning"] if one["prune"] == nearly)["lost"]
    for name, which in (("test_once", of == 1), ("test_often", of > 1), ("test", of >= 0)):
        assert parts[name]["mean"] == pytest.approx(lost(which))
    for part in typical["pruning"]["by_size"]:
        least, _, most = part["size"].rstrip("+").partition("-")
        which = (of >= int(least)) & (of <= int(most or ("9999" if "+" in part["size"] else least)))
        assert part["test_examples"] == which.sum()
        if which.any():
            assert part["lost"]["mean"] == pytest.approx(lost(which))
    for code, part in enumerate(typical["pruning"]["by_class"]):
        assert part["lost"]["mean"] == pytest.approx(lost(data.y_test == code))
        assert part["seen_once"] == pytest.approx((of[data.y_test == code] == 1).mean())
        assert part["training_examples"] == (data.y_train == code).sum()
    for one in typical.values():  # classes are all of the test data
        whole = [part["lost"]["mean"] * (data.y_test == code).mean() for code, part in enumerate(one["by_class"])]
        assert sum(whole) == pytest.approx(one["lost"]["mean"])
    (row,) = (line for line in long_tail.report(result, "digits") if line.startswith("| pruning ("))
    counts = np.bincount(data.y_train, minlength=10)
    for cell, code in zip(row.split(" | ")[-3:-1], (counts.argmin(), counts.argmax())):
        assert cell.startswith(f"{100 * typical['pruning']['by_class'][code]['lost']['mean']:.1f} ± ")
    assert any(line.startswith("pruning (") for line in long_tail.say(result).lines)


def test_clipping_alone_is_drawn_without_noise(tmp_path: Path) -> None:
    result = mf.experiment("long-tail", out=tmp_path, progress=False, **ONE | {"trials": 32, "clips": [1.0]})
    assert [one["clip"] for one in result.numbers["clipping"]] == [0.0, 1.0]
    assert (tmp_path / "long-tail.png").exists()


def test_a_learner_without_clipping_is_stopped_early_all_the_same(tmp_path: Path) -> None:
    given = ONE | {"trials": 32, "epochs": [1, 2], "clips": [1.0], "prunes": [0.5], "learner": "linear"}
    settings = {"normalization": "subset", "batch": "40", "epochs": "2", "schedule": "constant"}
    with (
        pytest.warns(MemfluenceWarning, match="Clipping and noise are left out: linear@paper has no setting 'clip'"),
        pytest.warns(MemfluenceWarning, match="Pruning is left out: linear@paper has no setting 'prune'"),
    ):
        result = mf.experiment("long-tail", out=tmp_path, settings=settings, progress=False, **given)
    assert [one["epochs"] for one in result.numbers["early_stopping"]] == [1, 2]
    assert result.numbers["clipping"] == result.numbers["pruning"] == []


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`trials`"):
        long_tail.plan(trials=5)
    with pytest.raises(InputError, match="at least one Zipf exponent"):
        long_tail.plan(exponents=[])
    infinite = ("clips", [float("inf")])
    for name, value in (
        ("clips", [1.0, 0.0]),
        ("noises", [-1.0]),
        ("noise_clip", 0.0),
        ("weight_decays", [0.0]),
        infinite,
    ):
        with pytest.raises(InputError, match=f"`{name}` parameter must be finite and above 0"):
            long_tail.plan(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="makes its own data"):
        mf.experiment("long-tail", dataset="digits", out=tmp_path)
