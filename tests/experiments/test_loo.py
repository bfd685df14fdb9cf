"""Leave-one-out: its values against counts by hand and a learner that is known exactly, and the command end to end."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from small_runs import N_TEST, N_TRAIN, dataset, make_run, trials_of

import memfluence as mf
from memfluence.errors import InputError
from memfluence.experiments import loo


def test_values_and_errors_by_hand() -> None:
    kept = np.ones((4, N_TRAIN), bool)  # also what each model gets right on training examples
    whole, without = kept.copy(), kept.copy()
    without[:, 7] = [False, False, False, True]
    right = np.zeros((2, 4, 3), bool)  # (sides, models, test examples)
    right[:, :, 0] = True
    right[0, :2, 1] = True
    right[1, 3, 1] = True
    value, error, pairs = loo.left_out(trials_of(whole, right[0]), trials_of(without, right[1]), 7)
    assert pairs == 4
    assert value.tolist() == [0.75, 0.0, 0.25, 0.0]  # the example itself; always right; two gained and one lost; never
    for k, (gained, lost) in enumerate([(3, 0), (0, 0), (2, 1), (0, 0)]):
        b, c, n = gained + 0.5, lost + 0.5, 4 + 2  # Agresti and Min (2005): half a pair in each of four cells
        assert error[k] == pytest.approx(np.sqrt((b + c) - (b - c) ** 2 / n) / n)


def test_models_are_paired_by_their_number(tmp_path: Path) -> None:
    right = np.eye(5, 3, dtype=bool)
    whole = trials_of(np.ones((5, N_TRAIN), bool), right)
    part = whole.select(np.array([1, 2]))  # three of its models failed
    value, _, pairs = loo.left_out(whole, part, 0)
    assert pairs == 2
    assert not value.any()


@pytest.mark.parametrize(("gained", "lost"), [(5, 5), (30, 0), (100, 20)])
def test_errors_cover(gained: int, lost: int) -> None:
    """Intervals of 1.96 errors, over draws of 200 pairs from these shares, hold the true difference."""
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(200, [gained / 200, lost / 200, 1 - (gained + lost) / 200], size=4000)
    value = (drawn[:, 0] - drawn[:, 1]) / 200
    inside = np.abs(value - (gained - lost) / 200) <= 1.96 * loo.paired_error(drawn[:, 0], drawn[:, 1], 200)
    assert inside.mean() > 0.94


def test_the_slope_is_not_flattened_by_noise_of_the_subsampled_values() -> None:
    rng = np.random.default_rng(1)
    true = rng.normal(0, 0.3, (300, 1))
    noise = np.full_like(true, 0.2)
    x, y = true + noise * rng.normal(size=true.shape), 0.8 * true - 0.1 + 0.05 * rng.normal(size=true.shape)
    found = loo.compared(x, noise, y, np.full_like(true, 0.05), 0)
    plain = np.polyfit(x[:, 0], y[:, 0], 1)[0]
    assert plain < 0.6 < 0.7 < found["slope"] < 0.9
    assert abs(found["slope"] - 0.8) < 2.5 * found["slope_stderr"]
    assert found["ceiling"] == pytest.approx(found["correlation"], abs=0.05)
    assert found["keeping"] == pytest.approx((x - y).mean())


def test_examples_are_spread_over_the_range(tmp_path: Path) -> None:
    chosen = loo.plan(make_run(tmp_path), 4)
    assert len(set(chosen)) == 4
    value = make_run(tmp_path / "again").estimate_memorization().value[chosen]
    assert value[0] == 0
    assert value[-1] == 1
    with pytest.raises(InputError, match=r"in \[2, 40\]"):
        loo.plan(make_run(tmp_path / "third"), 41)


def test_a_learner_that_is_known(tmp_path: Path) -> None:
    """The nearest neighbour is no random learner, so leaving one out can be done by hand."""
    data = dataset()
    x_train, y_train, x_test, y_test = data
    run = mf.run(data, learner=KNeighborsClassifier(1), trials=60, out=tmp_path / "run", progress=False)
    how = {"learner": KNeighborsClassifier(1), "out": tmp_path / "loo", "progress": False}
    result = mf.experiment("loo", run, examples=5, repeats=2, **how)

    def right(kept: np.ndarray) -> np.ndarray:  # on all training and test examples
        model = KNeighborsClassifier(1).fit(x_train[kept], y_train[kept])
        return np.concatenate([model.predict(x_train) == y_train, model.predict(x_test) == y_test])

    every = np.arange(N_TRAIN)
    for one in result.numbers["examples"]:
        gain = right(every).astype(int) - right(every[every != one["train_index"]])
        of_tests = result.table[result.table["train_index"] == one["train_index"]]
        assert one["leave_one_out"] == gain[one["train_index"]]
        assert of_tests["leave_one_out"].tolist() == [gain[one["train_index"]], *gain[N_TRAIN:]]
    assert len(result.table) == 5 * (1 + N_TEST)
    assert (tmp_path / "loo" / "loo.png").stat().st_size > 1000

    more = mf.experiment("loo", run, examples=5, repeats=3, **how)  # goes on
    assert {one["pairs"] for one in more.numbers["examples"]} == {3}
    read = mf.experiment("loo", run, examples=5, out=tmp_path / "loo", train=False)
    assert read.to_json() == more.to_json()
    with pytest.raises(InputError, match="was begun with examples=5, not 6"):
        mf.experiment("loo", run, examples=6, repeats=3, **how)
    assert json.loads((tmp_path / "loo" / "loo.json").read_text())["settings"]["repeats"] == 3
