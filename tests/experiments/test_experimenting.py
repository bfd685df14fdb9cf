"""From a run to files: the whole way, resumed, refused, and on the command line."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_runs import dataset, make_run

import memfluence as mf
from engines.commands import DATA, LEARNER, in_this_process, start
from memfluence.errors import InputError, LearnerError, MemfluenceWarning, RunMismatchError
from memfluence.experiments import Retraining, consistency, last_layer, removal
from memfluence.experiments.doing import saved_plan
from memfluence.store import TrialStore


def nearest(x: np.ndarray, y: np.ndarray, seed: int):  # type: ignore[no-untyped-def]
    """The nearest neighbour among a random nine tenths of what it is given."""
    rows = np.random.default_rng(seed).permutation(len(x))[: max(1, len(x) * 9 // 10)]
    return lambda z: y[rows][((z[:, None] - x[rows][None]) ** 2).sum(-1).argmin(1)]


@pytest.mark.parametrize("name", ["removal", "utility"])
def test_an_experiment_leaves_numbers_a_table_and_figures(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    given = {"dataset": dataset(), "learner": nearest, "repeats": 2, "progress": False}
    result = mf.experiment(name, run, **given)
    where = run.path / "experiments" / name
    written = {f"{name}{end}" for end in (".json", ".parquet", ".png", ".svg")}
    assert {path.name for path in where.iterdir()} == {"plan.json", "trained"} | written
    assert json.loads((where / f"{name}.json").read_text()) == result.to_json()
    assert result.settings["learner"] == "nearest"
    assert result.title.endswith("trained with nearest")
    pd.testing.assert_frame_equal(pd.read_parquet(where / f"{name}.parquet"), result.table)
    before = {path.name: path.read_bytes() for path in where.iterdir() if path.is_file()}
    segments = sorted((where / "trained" / "trials").iterdir())
    mf.experiment(name, run, **given)
    assert {path.name: path.read_bytes() for path in where.iterdir() if path.is_file()} == before
    assert sorted((where / "trained" / "trials").iterdir()) == segments


def test_a_plan_need_not_say_how_many_trials_it_is_from(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    mf.experiment("removal", run, dataset=dataset(), learner=nearest, repeats=2, progress=False)
    where = run.path / "experiments" / "removal"
    plan = json.loads((where / "plan.json").read_text())
    del plan["settings"]["memorization_from_trials"]
    (where / "plan.json").write_text(json.dumps(plan))
    read = saved_plan(where, run, {"repeats": 2})
    assert read is not None
    assert {one["arm"] for one in read.purposes} == {"all", "memorized", "random"}


@pytest.mark.parametrize("name", ["removal", "utility"])
def test_models_that_are_there_are_summarized_without_data(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    whole = mf.experiment(name, run, dataset=dataset(), learner=nearest, repeats=2, progress=False)
    assert mf.experiment(name, run, repeats=2, train=False).to_json() == whole.to_json()
    with pytest.raises(InputError, match="nothing has no models yet; run it without `train=False`"):
        mf.experiment(name, run, repeats=2, train=False, out=tmp_path / "nothing")


@pytest.mark.parametrize("name", ["removal", "utility"])
def test_models_outlive_more_trials_of_the_run(name: str, tmp_path: Path) -> None:
    given = {"out": tmp_path / "out", "repeats": 2}
    training = {"dataset": dataset(), "learner": nearest, "progress": False}
    first = mf.experiment(name, make_run(tmp_path / "few", 200), **training, **given)
    run = make_run(tmp_path / "more", 300)
    with pytest.warns(MemfluenceWarning, match=r"planned from 200 trials of .*, which has 300 by now"):
        again = mf.experiment(name, run, train=False, **given)
    assert again.to_json() == first.to_json()
    with pytest.raises(
        RunMismatchError, match="planned from 200 trials of the run, which has 300 by now; read them with `train=False`"
    ):
        mf.experiment(name, run, **training, **given)
    with pytest.raises(RunMismatchError, match="models of another plan, which differs in mem"):
        mf.experiment(name, run, mem=0.2, train=False, **given)


def test_another_plan_does_not_go_into_the_same_directory(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    given = {"dataset": dataset(), "learner": nearest, "progress": False, "repeats": 2}
    mf.experiment("removal", run, thresholds=[0.3], **given)
    with pytest.raises(RunMismatchError, match="models of another plan, which differs in emptied_classes, thresholds"):
        mf.experiment("removal", run, thresholds=[0.3, 0.5], **given)
    with pytest.raises(RunMismatchError, match="models of another plan, which differs in masks"):
        mf.experiment("removal", run, thresholds=[0.3], seed=1, **given)


@pytest.mark.parametrize("name", ["removal", "utility"])
def test_more_repeats_are_added_to_those_that_are_there(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    given = {"dataset": dataset(), "learner": nearest, "progress": False}
    where = run.path / "experiments" / name
    mf.experiment(name, run, repeats=2, **given)
    first = Retraining.from_json(json.loads((where / "plan.json").read_text()))
    before = {path.name for path in (where / "trained" / "trials").iterdir()}
    result = mf.experiment(name, run, repeats=5, **given)
    more = Retraining.from_json(json.loads((where / "plan.json").read_text()))
    assert more.settings["begun"] == [2, 5]
    assert np.array_equal(more.masks[: len(first.masks)], first.masks)
    assert more.purposes[: len(first.purposes)] == first.purposes
    assert before < {path.name for path in (where / "trained" / "trials").iterdir()}
    assert "5 models a" in result.title
    assert TrialStore.open(where / "trained").scan().numbers.tolist() == list(range(len(more.masks)))
    fewer = mf.experiment(name, run, repeats=3, **given)  # all that are there are used
    assert fewer.to_json() == result.to_json()


def test_what_cannot_be_found_out_has_to_be_given(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with pytest.raises(InputError, match="does not say where its data are"):
        mf.experiment("removal", run)
    with pytest.raises(LearnerError, match="imported, and nobody knows their learner; name it with `learner`"):
        mf.experiment("removal", run, dataset=dataset())
    other = dataset(np.arange(40) // 20)
    with pytest.raises(RunMismatchError, match="its labels differ"):
        mf.experiment("removal", run, dataset=other, learner="mlp")
    with pytest.raises(InputError, match=r"There is no experiment 'removel'; there are .*removal"):
        mf.experiment("removel", run)
    with pytest.raises(InputError, match="is about one run"):
        mf.experiment("removal", run, run)


def test_accuracies_and_counts_are_those_of_the_keep_that_was_asked_for(tmp_path: Path) -> None:
    given = {"learner": nearest, "progress": False}
    run = mf.run(dataset(), trials=80, keep=(0.7, 0.2), out=tmp_path / "run", **given)
    chosen = run.trials.kinds == [kind.keep for kind in run.info.kinds].index(0.2)
    correct = np.unpackbits(run.trials.test_correct[chosen], axis=1, bitorder="little")[:, : run.info.n_test]
    accuracy = pytest.approx(correct.mean())
    lines = consistency.summarize(run, keep=0.2, splits=2, permutations=0).numbers["lines"]
    assert (lines[0]["test_accuracy"]["mean"], lines[0]["test_accuracy"]["n"]) == (accuracy, 40)
    linear = mf.run(dataset(), trials=40, out=tmp_path / "linear", **given)
    last = last_layer.summarize(run, linear, {}, keep=0.2)
    assert (last.numbers["network"]["test_accuracy"]["mean"], last.numbers["network"]["trials"]) == (accuracy, 40)
    assert "; 40 networks, 40 linear models" in last.title
    seconds = run.store.scan(["seconds"])
    each = seconds.details["seconds"][np.isin(seconds.numbers, run.trials.numbers[chosen])].mean()  # type: ignore[index]
    assert last.numbers["speedup"] == pytest.approx(each / linear.status()["seconds_per_trial"])
    assert removal.plan(run, [0.1], 2, mem=0.1, keep=0.2).settings["memorization_from_trials"] == 40


@pytest.fixture
def here(tmp_path: Path) -> Path:
    noted = LEARNER.replace("def learn(x, y, seed):", "def learn(x, y, seed):\n    open('trained.log', 'a').write('.')")
    (tmp_path / "learner.py").write_text(noted)
    in_this_process("run", DATA, "--learner", "learner.py:learn", "--trials", "100", "--out", "run", cwd=tmp_path)
    return tmp_path


REMOVAL = ("experiment", "removal", "run", "--thresholds", "0.2,0.4", "--mem", "0.2", "--repeats", "3")
AGAIN = ("--learner", "learner.py:learn")


def test_stopped_and_resumed_it_trains_only_what_is_missing(here: Path) -> None:
    in_this_process(*REMOVAL, *AGAIN, "--out", "whole", cwd=here)
    trained = len(Path(here, "trained.log").read_text())
    process = start(*REMOVAL, *AGAIN, "--out", "stopped", cwd=here, pause=0.8)
    trials = here / "stopped" / "trained" / "trials"
    deadline = time.monotonic() + 120
    while len(Path(here, "trained.log").read_text()) < trained + 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command to go on" in errors
    first = TrialStore.open(trials.parent).scan().numbers.tolist()
    assert 0 < len(first) < 15
    assert not (here / "stopped" / "removal.json").exists()
    done = json.loads(in_this_process(*REMOVAL, *AGAIN, "--out", "stopped", "--json", cwd=here).stdout)
    kept = {path.name for path in trials.iterdir()}
    assert sorted(TrialStore.open(trials.parent).scan().numbers.tolist()) == list(range(15))
    assert len(kept) >= 2  # what was there and what was missing
    whole = json.loads((here / "whole" / "removal.json").read_text())
    assert done == whole
    for name in ("removal.parquet", "removal.png", "removal.svg"):
        assert (here / "stopped" / name).read_bytes() == (here / "whole" / name).read_bytes()


def test_the_runs_own_builtin_learner_is_made_again(tmp_path: Path) -> None:
    in_this_process("run", DATA, "--set", "epochs=3", "--trials", "60", "--out", "run", cwd=tmp_path)
    shown = in_this_process(*REMOVAL, cwd=tmp_path).stdout
    assert "memorized at 0.2 or above; their removal costs" in shown
    there = TrialStore.open(tmp_path / "run" / "experiments" / "removal" / "trained")
    assert there.info.learner == TrialStore.open(tmp_path / "run").info.learner
    assert there.info.learner["settings"]["epochs"] == 3  # type: ignore[index]


def test_a_learner_from_a_file_has_to_be_given_again(here: Path) -> None:
    failed = in_this_process(*REMOVAL, cwd=here, expect=2)
    assert "'learn' is not built in" in failed.stderr
    assert "--learner" in failed.stderr
    assert not (here / "run" / "experiments").exists()
