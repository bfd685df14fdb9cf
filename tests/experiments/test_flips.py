"""Useful and useless memorized examples: areas by brute force, worlds by enumeration, and what symmetry says."""

from pathlib import Path

import numpy as np
import pytest

import memfluence as mf
from memfluence.datasets import Dataset, load
from memfluence.errors import InputError
from memfluence.experiments import _flips, long_tail
from memfluence.experiments._limits import dropping
from memfluence.runs import Run
from memfluence.store import unpack

FEW = {"exponents": [1.0], "subpopulations": [40], "sizes": [80], "trials": 60, "repeats": 2}
NO_LIMITS: dict[str, list[float]] = {"epochs": [], "clips": [], "noises": [], "weight_decays": [], "prunes": []}
FLIPPED = FEW | NO_LIMITS | {"drops": [0.1, 0.3], "flips": [0.2], "flip_worlds": 2}


def nearest(x: np.ndarray, y: np.ndarray, seed: int):  # type: ignore[no-untyped-def]
    return lambda z: y[((x**2).sum(axis=1) - 2 * z @ x.T).argmin(axis=1)]


def pairs_won(useful: np.ndarray, useless: np.ndarray, score: np.ndarray) -> float:
    """Mann and Whitney's count, pair by pair."""
    known = ~np.isnan(score)
    won = [
        (score[j] > score[i]) + (score[j] == score[i]) / 2
        for i in np.flatnonzero(useful & known)
        for j in np.flatnonzero(useless & known)
    ]
    return float(np.mean(won))


def sides(masks: np.ndarray, right: np.ndarray, kept: bool) -> np.ndarray:
    """How often models are right on each example that they kept, or did not keep."""
    return np.array([right[masks[:, i] == kept, i].mean() for i in range(masks.shape[1])])


@pytest.mark.parametrize("seed", range(5))
def test_the_area_is_the_share_of_pairs_won(seed: int) -> None:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, 60)  # useful, useless, neither
    score = rng.integers(0, 6, 60) / 5 + rng.choice([0, np.nan], 60, p=[0.9, 0.1])
    area, curve = _flips.receiver(group == 0, group == 1, score)
    assert area == pytest.approx(pairs_won(group == 0, group == 1, score))
    assert curve[-1] == 1
    assert (np.diff(curve) >= 0).all()
    for threshold in range(6):  # at each threshold the curve is what is counted there
        called = score >= threshold / 5
        wrong, right = (called[(group == k) & ~np.isnan(score)].mean() for k in (0, 1))
        at = np.searchsorted(_flips.RATES, wrong)
        assert curve[max(at - 1, 0)] - 1e-12 <= right <= curve[at] + 1e-12


def test_ideal_memorization_tells_apart_by_chance_alone() -> None:
    """Of ten useful examples one is right without being seen; of the flipped ones none is."""
    memorized = np.array([1.0] * 9 + [0.0] + [1.0] * 7)
    area, _ = _flips.receiver(np.arange(17) < 10, np.arange(17) >= 10, memorized)
    assert area == pytest.approx(0.5 + 0.1 / 2)


def test_an_area_needs_both_sides() -> None:
    nobody, somebody = np.zeros(3, dtype=bool), np.ones(3, dtype=bool)
    for sides in ((nobody, somebody), (somebody, nobody)):
        area, curve = _flips.receiver(*sides, np.arange(3.0))
        assert np.isnan(area)
        assert np.isnan(curve).all()


def test_who_is_useful_is_counted_by_hand() -> None:
    data = load("longtail?n_train=60&n_test=20&subpopulations=40&flip=0.3")
    useful, useless, alone = _flips.useful_and_useless(data)
    of, flipped = data.attributes["train_subpopulation"], data.attributes["train_flipped"]
    for i in range(60):
        others = [k for k in range(60) if of[k] == of[i] and k != i]
        assert useful[i] == (not flipped[i] and all(flipped[k] for k in others))
        assert useless[i] == flipped[i] == (data.y_train[i] != data.attributes["subpopulation_class"][of[i]])
        assert alone[i] == (not others)
    assert (useful & ~alone).any()  # one right example among flipped ones is the first of its subpopulation, too


def test_nothing_tells_examples_apart_that_are_alone() -> None:
    """Their labels are as good as drawn at random, so on average over worlds each score has an area of a half."""
    areas = []
    for seed in range(40):
        data = load(f"longtail?n_train=60&n_test=1&subpopulations=200&exponent=0.3&dimension=8&flip=0.4&seed={seed}")
        useful, useless, alone = _flips.useful_and_useless(data)
        masks = np.random.default_rng(seed).random((60, 60)) < 0.7
        right = np.stack([nearest(data.x_train[mask], data.y_train[mask], 0)(data.x_train) for mask in masks])
        kept, held_out = (sides(masks, right == data.y_train, side) for side in (True, False))
        value = kept - held_out
        areas.append(_flips.receiver(useful & alone, useless & alone, value)[0])
    error = np.std(areas, ddof=1) / np.sqrt(len(areas))
    assert error < 0.02
    assert abs(np.mean(areas) - 0.5) < 3 * error


def test_dropping_takes_the_most_memorized_and_as_many_random_ones() -> None:
    data = load("longtail?n_train=20&n_test=5&n_classes=2&subpopulations=4&flip=0.25")
    campaign = long_tail.plan(**FLIPPED)
    value = np.linspace(0, 1, 20)
    value[[3, 7]] = np.nan  # never left out
    value[[18, 19]] = 1.0  # equal: the lower index goes first
    plan = dropping(campaign, data, value)
    assert plan.masks[plan.rows(arm="all")].all()
    dropped = [np.flatnonzero(~row).tolist() for row in plan.masks[plan.rows(arm="memorized", share=0.1)]]
    assert dropped == [[18, 19]] * 2
    assert np.flatnonzero(~plan.masks[plan.rows(arm="memorized", share=0.3)[0]]).tolist() == list(range(14, 20))
    one = dropping(long_tail.plan(**FLIPPED | {"drops": [0.05]}), data, value)
    assert np.flatnonzero(~one.masks[one.rows(arm="memorized")[0]]).tolist() == [18]
    every = dropping(long_tail.plan(**FLIPPED | {"drops": [0.9]}), data, value)
    assert np.flatnonzero(every.masks[every.rows(arm="memorized")[0]]).tolist() == [3, 7]
    random = plan.masks[plan.rows(arm="random", share=0.3)]
    assert (random.sum(axis=1) == 14).all()
    assert (random[0] != random[1]).any()
    assert (plan.masks[plan.rows(arm="flipped")] == ~data.attributes["train_flipped"]).all()


@pytest.fixture(scope="module")
def flipped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, mf.experiments.Result]:
    out = tmp_path_factory.mktemp("flipped")
    given = FLIPPED | {"learner": nearest, "margins": False, "progress": False}
    return out, mf.experiment("long-tail", out=out, **given)


def worlds_of(out: Path) -> list[tuple[Run, Run, Dataset]]:
    worlds = sorted(path for path in out.iterdir() if "flip0.2" in path.name)
    runs = [(mf.open(world / "estimate"), mf.open(world / "drop")) for world in worlds]
    return [(estimate, drop, estimate.dataset()) for estimate, drop in runs]


def accuracy_without(data: Dataset, dropped: np.ndarray) -> float:
    return float((nearest(data.x_train[~dropped], data.y_train[~dropped], 0)(data.x_test) == data.y_test).mean())


def test_what_dropping_costs_is_what_the_nearest_neighbour_loses(flipped: tuple[Path, mf.experiments.Result]) -> None:
    out, result = flipped
    nothing, some = result.numbers["flips"]
    assert (nothing["flip"], some["flip"], some["worlds"]) == (0.0, 0.2, 2)
    found = {(one["what"], one["share"]): one for one in some["dropped"]}
    assert list(found) == [(what, share) for share in (0.1, 0.3) for what in ("memorized", "random")] + [
        ("flipped", 0.2)
    ]
    worlds = [data for _, _, data in worlds_of(out)]
    whole = [accuracy_without(data, np.zeros(80, dtype=bool)) for data in worlds]
    clean = [accuracy_without(data, data.attributes["train_flipped"]) for data in worlds]
    lost = np.subtract(whole, clean)
    assert found["flipped", 0.2]["lost_test"]["mean"] == pytest.approx(lost.mean())
    assert found["flipped", 0.2]["lost_test"]["stderr"] == pytest.approx(abs(lost[0] - lost[1]) / 2)
    assert lost.max() < -0.03  # to be without wrong labels is a gain
    assert found["flipped", 0.2]["useless_gone"]["mean"] == 1.0
    assert found["flipped", 0.2]["useful_gone"]["mean"] == 0.0

    gone, costs = [], []
    for estimate, _, data in worlds_of(out):
        value = estimate.memorization()["memorization"].to_numpy()
        dropped = np.zeros(80, dtype=bool)
        dropped[sorted(range(80), key=lambda i: -value[i])[:24]] = True  # sorted is stable
        gone.append(dropped[data.attributes["train_flipped"]].mean())
        costs.append(accuracy_without(data, np.zeros(80, dtype=bool)) - accuracy_without(data, dropped))
    assert found["memorized", 0.3]["useless_gone"]["mean"] == pytest.approx(np.mean(gone))
    assert found["memorized", 0.3]["lost_test"]["mean"] == pytest.approx(np.mean(costs))
    whole_test = [one["lost_test"]["mean"] for one in nothing["dropped"] if one["what"] == "memorized"]
    assert whole_test[1] > found["memorized", 0.3]["lost_test"]["mean"]  # where nothing is flipped it costs more


def test_areas_are_those_of_the_worlds(flipped: tuple[Path, mf.experiments.Result]) -> None:
    out, result = flipped
    found = result.numbers["flips"][1]["scores"]
    assert list(found) == [name for name in _flips.SCORES if "margin" not in name]  # it gives labels alone
    areas: dict[str, list[float]] = {name: [] for name in found}
    curves: dict[str, list[np.ndarray]] = {name: [] for name in found}
    for estimate, _, data in worlds_of(out):
        useful, useless, _ = _flips.useful_and_useless(data)
        trials = estimate.trials
        kept = unpack(trials.mask, 80).astype(bool)
        right, test = unpack(trials.train_correct, 80), unpack(trials.test_correct, trials.n_test)
        means = [sides(kept, right, side) for side in (True, False)]
        influence = np.stack([test[kept[:, i]].mean(axis=0) - test[~kept[:, i]].mean(axis=0) for i in range(80)])
        by_hand = {
            "memorization": means[0] - means[1],
            "held_out_accuracy": -means[1],
            "kept_accuracy": -means[0],
            "mean_influence": -influence.mean(axis=1).round(12),
            "largest_influence": -influence.max(axis=1).round(12),
        }
        for name, score in by_hand.items():
            areas[name].append(pairs_won(useful, useless, score))
            curves[name].append(_flips.receiver(useful, useless, score)[1])
    for name in ("memorization", "held_out_accuracy", "kept_accuracy", "mean_influence", "largest_influence"):
        assert found[name]["area"]["mean"] == pytest.approx(np.mean(areas[name]), abs=1e-9), name
    first, second = curves["memorization"]
    assert found["memorization"]["curve"] == pytest.approx((first + second) / 2)
    assert found["memorization"]["curve_stderr"] == pytest.approx(abs(first - second) / 2)
    assert found["kept_accuracy"]["area"]["mean"] == 0.5  # a nearest neighbour is always right on itself
    assert found["largest_influence"]["area"]["mean"] > 0.8  # what test data say


def test_figures_and_words(flipped: tuple[Path, mf.experiments.Result]) -> None:
    out, result = flipped
    assert (out / "long-tail-flips.png").stat().st_size > 10_000
    assert any(line.startswith("20% of the labels flipped: area") for line in long_tail.say(result).lines)
    report = "\n".join(long_tail.report(result, "digits"))
    assert "| memorization | 0." in report
    assert "| 20% | 20%, the flipped | 100 ± 0 | 0 ± 0 | -" in report


def test_worlds_without_flips_have_one_figure(tmp_path: Path) -> None:
    given = FEW | NO_LIMITS | {"drops": [], "flips": [], "progress": False}
    result = mf.experiment("long-tail", out=tmp_path, **given)
    assert result.numbers["flips"] == []
    assert (tmp_path / "long-tail.png").exists()
    assert not (tmp_path / "long-tail-flips.png").exists()
    assert "flipped" not in "\n".join(long_tail.report(result, "digits"))


def test_bad_input() -> None:
    for name in ("flips", "drops", "prunes"):
        for value in ([0.0], [0.1, 1.0], [float("nan")]):
            with pytest.raises(InputError, match=f"`{name}` parameter must be between 0 and 1"):
                long_tail.plan(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="`flip_worlds`"):
        long_tail.plan(flip_worlds=1)
