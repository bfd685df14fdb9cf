"""What a run says when its first trials show that something is wrong, and what it does then."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import memfluence as mf
from engines.commands import in_this_process
from memfluence.datasets import load
from memfluence.engines import Event, Note, TrialDone, TrialFailed
from memfluence.engines.progress import Silent
from memfluence.errors import TrialsFailedError
from memfluence.training.campaign import FirstTrials

BROKEN = """
from pathlib import Path

def learn(x, y, seed):
    if not Path("installed").exists():
        raise ValueError(f"no column {seed}")
    return lambda z: [y[0]] * len(z)
"""
LINE = ("run", "digits", "--learner", "broken.py:learn", "--engine", "local", "--out", "run", "--trials")


class Notes(Silent):
    """A listener that keeps the notes and the numbers of trials that had been done by then."""

    def __init__(self) -> None:
        self.done, self.said = 0, dict[int, str]()

    def event(self, event: Event) -> None:
        self.done += isinstance(event, TrialDone)
        if isinstance(event, Note):
            assert self.done not in self.said
            self.said[self.done] = event.message


def notes_of(dataset: Any, learner: Any, tmp_path: Path, **options: Any) -> dict[int, str]:
    """What is said, by the number of trials that were done by then."""
    told = Notes()
    mf.run(dataset, learner=learner, out=tmp_path / "run", progress=told, **{"trials": 8, **options})
    return told.said


def arrays(y_train: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    data = load("digits")
    y = data.y_train if y_train is None else y_train
    return data.x_train.reshape(len(y), -1), y, data.x_test.reshape(len(data.y_test), -1), data.y_test


def a_guess(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    return lambda z: np.random.default_rng([seed, len(z)]).integers(0, 10, len(z))


def always_the_first(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    return lambda z: np.full(len(z), y[0])


def half_fits(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    tree = DecisionTreeClassifier(max_leaf_nodes=6, random_state=0).fit(x.reshape(len(x), -1), y)
    return lambda z: tree.predict(z.reshape(len(z), -1))


@pytest.mark.parametrize("learner", [a_guess, always_the_first])
def test_chance_is_said_after_five_trials(learner: Any, tmp_path: Path) -> None:
    said = notes_of("digits", learner, tmp_path)
    assert list(said) == [5]
    assert said[5].startswith("after 5 trial(s) models are right on ")
    end = " of the test examples, no better than always saying '3' (10.2%): more epochs, another learner?"
    assert said[5].endswith(end)


def test_the_most_frequent_class_is_called_by_its_name_and_few_trials_are_enough(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(90, 3))
    y = np.where(np.arange(90) % 3, "ham", "spam")

    def ham(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
        return lambda z: np.full(len(z), "ham")

    said = notes_of((x[:60], y[:60], x[60:], y[60:]), ham, tmp_path, trials=2)
    assert said == {
        2: "after 2 trial(s) models are right on 66.7% of the test examples, no better than always saying 'ham'"
        " (66.7%): more epochs, another learner?"
    }


def test_labels_that_do_not_belong_to_the_inputs_are_asked_about(tmp_path: Path) -> None:
    shuffled = np.random.default_rng(0).permutation(load("digits").y_train)
    (said,) = notes_of(arrays(shuffled), DecisionTreeClassifier(random_state=0), tmp_path).values()
    assert "no better than always saying '3' (10.2%), although on 100.0% of those that they keep" in said
    assert said.endswith("do the labels belong to the inputs?")


def test_models_that_do_not_fit_what_they_keep_are_told_of(tmp_path: Path) -> None:
    (said,) = notes_of("digits", half_fits, tmp_path).values()
    status = mf.open(tmp_path / "run").status()
    assert 0.3 < status["test_accuracy"] < status["accuracy_in"] < 0.6
    assert said.startswith("after 5 trial(s) models are right on only 5")
    assert said.endswith(
        "% of the examples that they keep; what models do not fit they cannot memorize, so scores will say little:"
        " more epochs, a larger model, another learner?"
    )


@pytest.mark.parametrize("learner", ["mlp", "sklearn.naive_bayes:GaussianNB"])
def test_nothing_is_said_of_a_learner_that_is_fine(learner: str, tmp_path: Path) -> None:
    assert notes_of("digits", learner, tmp_path) == {}


def test_a_linear_model_of_two_unequal_classes_is_fine(tmp_path: Path) -> None:
    """Three in four are of one class and the model is right on 85%: it does not memorize, and finds wrong labels."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 1))
    y = (x[:, 0] + rng.normal(size=2000) * 0.6 > 0.8).astype(int)
    said = notes_of((x[:500], y[:500], x[500:], y[500:]), "sklearn.linear_model:LogisticRegression", tmp_path)
    assert mf.open(tmp_path / "run").status()["accuracy_in"] < 0.9
    assert said == {}


def test_notes_go_to_stderr_and_quiet_leaves_them_out(tmp_path: Path) -> None:
    line = ("run", "digits", "--set", "epochs=1", "--trials", "8", "--json", "--out")
    done = in_this_process(*line, "run", cwd=tmp_path)
    assert json.loads(done.stdout)["trials"] == 8
    assert done.stderr.count("what models do not fit they cannot memorize") == 1
    assert not in_this_process(*line, "again", "--quiet", cwd=tmp_path).stderr


@pytest.mark.parametrize("engine", [("local",), ("processes", "--workers", "2")])
def test_the_first_20_that_fail_alike_end_the_run(engine: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    done = in_this_process(*LINE, "300", "--json", "--engine", *engine, cwd=tmp_path, expect=1)
    status = json.loads(done.stdout)
    assert status["trials"] == 0
    assert 20 <= status["trials_failed"] < 300
    first = done.stderr.partition("ValueError: ")[2].partition(" (the others go on)")[0]
    assert done.stderr.endswith(
        f"ValueError: {first}), so the others were not begun; mend the learner or the data (docs/your-own-model.md),"
        " then run again with --retry-failed, or with --keep-going to go on all the same.\n"
    )
    assert "memfluence: The first 20 trials failed alike (trial " in done.stderr


def test_keep_going_goes_on(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    done = in_this_process(*LINE, "30", "--keep-going", cwd=tmp_path, expect=1)
    assert done.stderr.splitlines()[-1].startswith("memfluence: 30 trial(s) failed (trial 0: ValueError: no column")
    assert "and none succeeded; mend the learner or the data" in done.stderr


@pytest.mark.parametrize("mend", ["the learner", "what it needs"])
def test_the_advice_after_failures_trains_all_trials(mend: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    in_this_process(*LINE, "30", cwd=tmp_path, expect=1)
    if mend == "the learner":  # it is another learner now
        (tmp_path / "broken.py").write_text("def learn(x, y, seed):\n    return lambda z: [y[0]] * len(z)\n")
    else:
        (tmp_path / "installed").touch()
    done = in_this_process(*LINE, "30", "--retry-failed", cwd=tmp_path)
    assert done.stdout.startswith("30 of 30 trials in run")
    done = in_this_process(*LINE, "40", "--retry-failed", cwd=tmp_path)
    assert done.stdout.startswith("30 of 40 trials in run")
    assert "note: No trial has failed; leave out --retry-failed to train the 10 that are missing." in done.stderr


def test_a_learner_that_is_mended_after_some_have_succeeded_needs_another_directory(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN.replace('Path("installed").exists()', "seed % 2"))
    done = in_this_process(*LINE, "12", cwd=tmp_path, expect=1)
    said = "--retry-failed runs just those again (a learner that was mended is another one and needs another --out)."
    assert said in done.stderr
    (tmp_path / "broken.py").write_text(BROKEN)
    done = in_this_process(*LINE, "12", "--retry-failed", cwd=tmp_path, expect=2)
    assert "Choose another directory (--out)" in done.stderr


@pytest.mark.parametrize("trials", [12, 40])
def test_in_python_a_run_without_a_good_trial_raises(trials: int, tmp_path: Path) -> None:
    def broken(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
        raise KeyError("weight")

    with pytest.raises(TrialsFailedError, match=r"trial 0: KeyError: 'weight'.*`retry_failed=True`"):
        mf.run("digits", learner=broken, trials=trials, out=tmp_path / "run", progress=False)
    assert len(mf.open(tmp_path / "run").store.failures()) == min(trials, 20)


def looked_at(*messages: str | None, pending: int = 100, keep_going: bool = False) -> int:
    """How many events pass, failures with these messages or trials that are done (None)."""
    passed: list[Event] = []
    first = FirstTrials(load("digits"), pending, passed.append, keep_going)
    for number, message in enumerate(messages):
        event = TrialDone(number, 0.9, 1.0, 0.9) if message is None else TrialFailed(number, message)
        try:
            first.event(event)
        except TrialsFailedError:
            return len(passed)
    return len(passed)


def test_when_failures_are_alike() -> None:
    same = [f"ValueError: row {number}" for number in range(30)]
    assert looked_at(*same) == 20
    assert looked_at(*(f"worker process {number} was killed by signal 9 (memory)" for number in range(30))) == 20
    assert looked_at(*same, keep_going=True) == 30
    assert looked_at(*same[:20], "nothing to stop", pending=20) == 21
    assert looked_at(None, *same) == 31
    assert looked_at(*same[:19], None, *same) == 50
    assert looked_at(*same[:19], "KeyError: 3", *same) == 50


def test_it_raises_once() -> None:
    """Engines go on to pass events on while they stop their workers."""
    passed: list[Event] = []
    first = FirstTrials(load("digits"), 100, passed.append, keep_going=False)
    events = [TrialFailed(number, "ValueError") for number in range(25)]
    for event in events[:19]:
        first.event(event)
    with pytest.raises(TrialsFailedError):
        first.event(events[19])
    for event in events[20:]:
        first.event(event)
    assert passed == events
