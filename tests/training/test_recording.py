"""What is recorded beside right and wrong: margins of learners that give scores, unless somebody chooses."""

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC

import memfluence as mf
from engines.commands import DATA, in_this_process
from memfluence.errors import InputError, MemfluenceWarning, RunMismatchError
from memfluence.store import TrialStore, run_file, segment_columns
from memfluence.training import campaign
from memfluence.training.options import PlanOptions
from small_world import SmallWorld


class LabelsOnly(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    def fit(self, x: Any, y: Any) -> "LabelsOnly":
        self.model_ = GaussianNB(var_smoothing=1e-2).fit(x, y)
        return self

    def predict(self, x: Any) -> Any:
        return self.model_.predict(x)


class UnableToSay(LabelsOnly):
    def predict_proba(self, x: Any) -> Any:
        raise ValueError("not of these")


def nearest(x: Any, y: Any, seed: int) -> Any:
    return lambda z: y[((z[:, None] - x[None]) ** 2).sum(axis=2).argmin(axis=1)]


def likely(x: Any, y: Any, seed: int) -> Any:
    return GaussianNB(var_smoothing=1e-2).fit(x, y).predict_proba


WITH_SCORES: dict[str, tuple[Any, dict[str, Any]]] = {
    "logistic regression": (LogisticRegression(), {}),
    "random forest": (RandomForestClassifier(5), {}),
    "decision values": (SVC(), {}),
    "function": (likely, {}),
    "mlp": ("mlp", {"epochs": 2}),
    "network": ("linear", {"epochs": 2, "batch": 9}),
    "networks at once": ("linear", {"epochs": 2, "batch": 9, "group": 3}),
}
WITHOUT: dict[str, Any] = {
    "labels alone": LabelsOnly(),
    "an estimator whose scores raise": UnableToSay(),
    "one against one": SVC(decision_function_shape="ovo"),
    "function": nearest,
}


def make(out: Path, learner: Any, data: Any = DATA, **options: Any) -> mf.Run:
    return mf.run(data, learner=learner, out=out, **{"trials": 6, "progress": False, **options})


def bits(run: mf.Run) -> list[list[list[int]]]:
    names = ("mask", "train_correct", "test_correct")
    return [getattr(run.trials, name).tolist() for name in names]


@pytest.mark.parametrize("name", WITH_SCORES)
def test_learners_with_scores_record_margins(tmp_path: Path, name: str) -> None:
    learner, settings = WITH_SCORES[name]
    data: Any = DATA
    if learner == "linear":
        digits = mf.datasets.load("digits")
        arrays = digits.x_train[:40], digits.labels("train")[:40], digits.x_test[:20], digits.labels("test")[:20]
        data = mf.datasets.from_arrays(*arrays, value_range=(0, 16))
    run, bare, chosen = (
        make(tmp_path / where, learner, data, settings=settings or None, **record)
        for where, record in (("usual", {}), ("bits", {"record": "none"}), ("chosen", {"record": ["margin"]}))
    )
    assert (run.info.record, bare.info.record) == (("margin",), ())
    assert run.info == dataclasses.replace(chosen.info, dataset=run.info.dataset, versions=run.info.versions)
    assert bits(run) == bits(bare) == bits(chosen), "what is recorded beside them changes no bit"
    for column in ("train_margin", "test_margin"):
        margins = run.recorded(column)
        assert margins.dtype == np.float16
        assert margins.tobytes() == chosen.recorded(column).tobytes()
    right = np.unpackbits(run.trials.test_correct, axis=1, count=run.info.n_test, bitorder="little")
    assert ((run.recorded("test_margin") > 0) <= right.astype(bool)).all(), "a positive margin is a right prediction"


@pytest.mark.parametrize("name", WITHOUT)
def test_learners_without_scores_record_bits_alone(tmp_path: Path, name: str) -> None:
    run, bare = make(tmp_path / "usual", WITHOUT[name]), make(tmp_path / "bits", WITHOUT[name], record=[])
    assert run.info.record == bare.info.record == ()
    assert run.info.columns == bare.info.columns
    assert bits(run) == bits(bare)
    with pytest.raises(InputError, match="`record='margin'`"):
        run.recorded("train_margin")


@pytest.mark.parametrize("learner", ["likely", "nearest"])
def test_two_workers_find_the_same(tmp_path: Path, learner: str) -> None:
    (tmp_path / "own.py").write_text(
        "from sklearn.naive_bayes import GaussianNB\n"
        "def nearest(x, y, seed):\n    return lambda z: y[((z[:, None] - x[None]) ** 2).sum(axis=2).argmin(axis=1)]\n"
        "def likely(x, y, seed):\n    return GaussianNB(var_smoothing=1e-2).fit(x, y).predict_proba\n"
    )
    line = ["run", DATA, "--learner", f"own.py:{learner}", "--trials", "12", "--workers", "2", "--out", "run"]
    in_this_process(*line, cwd=tmp_path)
    found, twin = mf.open(tmp_path / "run"), make(tmp_path / "twin", {"likely": likely, "nearest": nearest}[learner])
    twin = make(tmp_path / "twin", {"likely": likely, "nearest": nearest}[learner], trials=12)
    assert found.info.record == (("margin",) if learner == "likely" else ())
    assert bits(found) == bits(twin)
    if learner == "likely":
        assert found.recorded("train_margin").tobytes() == twin.recorded("train_margin").tobytes()
    in_this_process(*line[:-6], "--trials", "14", "--workers", "2", "--out", "run", cwd=tmp_path)
    assert len(mf.open(tmp_path / "run").trials) == 14
    assert "what is recorded" in in_this_process(*line, "--record", "logit", cwd=tmp_path, expect=2).stderr


@pytest.mark.parametrize("record", [(), ("prediction",), ("logit", "margin")])
def test_a_run_goes_on_with_what_it_recorded(tmp_path: Path, record: tuple[str, ...]) -> None:
    """Also those of older versions, which recorded bits alone unless somebody chose."""
    make(tmp_path / "run", likely, record=record)
    before = (tmp_path / "run" / "run.json").read_bytes()
    run = make(tmp_path / "run", likely)
    assert (tmp_path / "run" / "run.json").read_bytes() == before
    assert run.info.record == make(tmp_path / "run", likely, trials=9).info.record == record
    with pytest.raises(RunMismatchError, match="what is recorded"):
        make(tmp_path / "run", likely, record=["test_margin"])


def test_a_run_that_was_begun_without_a_choice_takes_none_that_differs(tmp_path: Path) -> None:
    make(tmp_path / "run", likely)
    with pytest.raises(RunMismatchError, match=r"what is recorded \(\['margin'\] there, \[\] asked\)"):
        make(tmp_path / "run", likely, record="none")
    assert len(make(tmp_path / "run", likely, record="margin", trials=8).trials) == 8


def test_margins_of_a_large_run_are_not_recorded_unless_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "LARGEST_MARGINS", 2 * (40 + 30) * 6)
    with warnings.catch_warnings():
        warnings.simplefilter("error", MemfluenceWarning)
        assert make(tmp_path / "fits", likely).info.record == ("margin",)
    with pytest.warns(MemfluenceWarning, match=r"980 bytes, more than 840.*`record=\['margin'\]` records") as told:
        assert make(tmp_path / "large", likely, trials=7).info.record == ()
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", MemfluenceWarning)
        assert make(tmp_path / "chosen", likely, trials=7, record=["margin"]).info.record == ("margin",)
        assert make(tmp_path / "fits", likely, trials=9).info.record == ("margin",), "it goes on with what it recorded"
        assert make(tmp_path / "large", likely, trials=8).info.record == (), "and so does this one"
        planned = mf.plan(DATA, learner=likely, trials=7, pilot=False)["disk_bytes"]
        assert planned == mf.plan(DATA, learner=likely, trials=7, pilot=False, record="none")["disk_bytes"]
    assert PlanOptions("digits").record is None
    planned = mf.plan(DATA, learner=likely, trials=6, pilot=False)["disk_bytes"]
    assert planned - mf.plan(DATA, learner=likely, trials=6, pilot=False, record="none")["disk_bytes"] == 840


def test_what_is_recorded_is_chosen_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing called 'none' to record"):
        make(tmp_path / "run", likely, record=["none", "margin"])
    with pytest.raises(InputError, match=r"nothing called 'loss' to record; choose from prediction, .*, none"):
        make(tmp_path / "run", likely, record="loss")


def begun(path: Path, world: SmallWorld) -> TrialStore:
    """A run without a segment that nobody told what to record."""
    info = dataclasses.replace(world.info, columns=())
    return TrialStore.create(path, info, world.y_train, world.y_test)


def with_margins(world: SmallWorld, number: int) -> Any:
    extras = {f"{split}_margin": np.full(n, number, np.float16) for split, n in (("train", 21), ("test", 13))}
    return dataclasses.replace(world.outcome(number), extras=extras)


def test_the_first_segment_says_what_is_recorded(tmp_path: Path, world: SmallWorld) -> None:
    first, late = begun(tmp_path / "run", world), begun(tmp_path / "run", world)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["columns"] == []
    assert mf.open(tmp_path / "run").status()["trials"] == 0
    first.write([with_margins(world, 0), with_margins(world, 1)])
    late.write([with_margins(world, 2), world.outcome(3)])  # one without them, which nobody had asked for
    for store in (first, late, TrialStore.open(tmp_path / "run")):
        assert (store.info.record, store.info.columns[5:7]) == (("margin",), ("train_margin", "test_margin"))
        numbers, margins = store.read_extra("test_margin")
        assert numbers.tolist() == [0, 1, 2, 3]
        assert margins[:, 0].tolist()[:3] == [0, 1, 2]
        assert np.isnan(margins[3]).all()
    assert not TrialStore.open(tmp_path / "run").scan().damaged


def test_what_not_all_of_the_first_segment_have_is_not_recorded(tmp_path: Path, world: SmallWorld) -> None:
    store = begun(tmp_path / "run", world)
    store.write([with_margins(world, 0), world.outcome(1)])
    store.write([with_margins(world, 2)])
    assert TrialStore.open(tmp_path / "run").info == dataclasses.replace(
        world.info, dataset=store.info.dataset, trials=100
    )
    assert store.scan().numbers.tolist() == [0, 1, 2]


def test_what_is_recorded_is_said_again_if_another_process_began_the_run_anew(
    tmp_path: Path, world: SmallWorld
) -> None:
    store = begun(tmp_path / "run", world)
    store.info = run_file.say_record(store.path, store.info, ["train_margin", "test_margin"])
    assert begun(tmp_path / "run", world).info.record == (), "there is no segment yet"
    store.write([with_margins(world, 0)])
    assert begun(tmp_path / "run", world).info.record == ("margin",)


def test_a_choice_still_counts_where_there_is_no_segment(tmp_path: Path, world: SmallWorld) -> None:
    begun(tmp_path / "run", world)
    store = world.create(tmp_path / "run")
    assert TrialStore.open(tmp_path / "run").info.columns == world.info.columns
    store.write([with_margins(world, 0)])
    assert begun(tmp_path / "run", world).info.record == ()


def test_a_choice_of_another_process_stops_the_one_that_cannot_give_it(tmp_path: Path, world: SmallWorld) -> None:
    late = begun(tmp_path / "run", world)
    info = dataclasses.replace(world.info, record=("prediction",), columns=segment_columns(["prediction"]))
    TrialStore.create(tmp_path / "run", info, world.y_train, world.y_test)
    with pytest.raises(RunMismatchError, match="there is no test_prediction here; run the same command again"):
        late.write([with_margins(world, 0)])
    assert not TrialStore.open(tmp_path / "run").scan().damaged


def test_a_run_without_a_segment_takes_what_others_recorded(tmp_path: Path, world: SmallWorld) -> None:
    """Merged with one that has segments, first or last."""
    begun(tmp_path / "empty", world)
    begun(tmp_path / "full", world).write([with_margins(world, 0)])
    for number, order in enumerate((["empty", "full"], ["full", "empty"])):
        mf.merge(tmp_path / f"out-{number}", [tmp_path / name for name in order])
        assert TrialStore.open(tmp_path / f"out-{number}").read_extra("train_margin")[1].tolist() == [[0.0] * 21]
    mf.merge(tmp_path / "empty", [tmp_path / "full"])
    assert TrialStore.open(tmp_path / "empty").info.record == ("margin",)
