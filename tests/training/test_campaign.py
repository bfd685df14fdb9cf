"""Nothing of a run is lost or unsaid: strange errors, trials without a word, directories that change."""

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import memfluence as mf
from engines.commands import DATA, in_this_process, memfluence
from memfluence.errors import DeadlineReached, TrialsFailedError
from memfluence.records import LONGEST_MESSAGE, LONGEST_TRACEBACK, Failure
from memfluence.store import TrialStore

STRANGE = r"""
def learn(x, y, seed):
    if seed % 5 == 0:
        raise ValueError("no file '\udcff' \x1b[2J\x9b2J" + "x" * 500_000)
    most = int(y[0])
    return lambda z: [most] * len(z)
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_error_that_is_no_text_is_a_failure_all_the_same(tmp_path: Path, workers: str) -> None:
    (tmp_path / "strange.py").write_text(STRANGE)
    line = ["run", DATA, "--trials", "12", "--learner", "strange.py:learn", "--workers", workers, "--out", "run"]
    done = in_this_process(*line, cwd=tmp_path, expect=1)
    status = json.loads(in_this_process("status", "run", "--json", cwd=tmp_path).stdout)
    assert status["trials_failed"] > 0
    assert status["trials"] + status["trials_failed"] == 12
    assert f"{status['trials_failed']} trial(s) failed" in done.stderr
    shown = done.stdout + done.stderr + in_this_process("status", "run", cwd=tmp_path).stdout
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown), "a terminal would obey the learner's error"
    assert "no file '\\udcff'" in shown
    longest = max(path.stat().st_size for path in (tmp_path / "run" / "failures").iterdir())
    assert longest < 2 * (LONGEST_MESSAGE + LONGEST_TRACEBACK)


def test_notes_keep_both_ends_of_long_texts() -> None:
    failure = Failure(3, "begins " + "m" * 10**6 + " ends", "begins " + "t" * 10**6 + " ends")
    for text, longest in ((failure.message, LONGEST_MESSAGE), (failure.traceback, LONGEST_TRACEBACK)):
        assert text.startswith("begins")
        assert text.endswith("ends")
        assert longest < len(text) < longest + 50
    assert Failure(3, failure.message, "short").traceback == "short"


def test_a_trial_that_is_neither_stored_nor_failed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes of failures that nobody can read: the trials are missing, and the run says so."""

    def unlucky(x: np.ndarray, y: np.ndarray, seed: int) -> object:
        raise ValueError("unlucky")

    def lose(store: TrialStore, failure: Failure) -> None:
        (store.path / "failures" / "lost.json").write_text("{")  # type: ignore[operator]

    monkeypatch.setattr(TrialStore, "write_failure", lose)
    with pytest.raises(
        TrialsFailedError, match=r"^4 trial\(s\) \(0, 1, 2, 3\) are missing from .*run the same command"
    ):
        mf.run(DATA, learner=unlucky, trials=4, out=tmp_path / "run", progress=False)


def test_a_directory_whose_name_is_not_utf_8_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    done = memfluence("run", DATA, "--trials", "2", "--out", "ab\udcff", cwd=tmp_path, expect=2)
    assert done.stderr == (
        "memfluence: The name 'ab\\udcff' is not UTF-8, so neither run.json nor any table could say it; name another"
        " directory, or a link to this one.\n"
    )
    assert not list(tmp_path.iterdir())


def test_a_run_within_a_directory_whose_name_is_not_utf_8(tmp_path: Path) -> None:
    here = tmp_path / "ab\udcff"
    here.mkdir()
    memfluence("run", DATA, "--trials", "2", "--out", "run", cwd=here)
    assert "2 of 2" in memfluence("status", "run", cwd=here).stdout


def test_a_suggestion_does_not_take_a_directory_for_an_option(tmp_path: Path) -> None:
    done = in_this_process("run", DATA, "--trials", "2", "--out=-x", cwd=tmp_path)
    suggested = done.stdout.partition("Next: memfluence report ")[2].split()[0]
    assert suggested == str(tmp_path / "-x")
    in_this_process("report", suggested, cwd=tmp_path)


def test_at_the_deadline_it_stops_and_goes_on_later(tmp_path: Path) -> None:
    def slow(x: np.ndarray, y: np.ndarray, seed: int) -> object:
        time.sleep(0.05)
        return lambda z: np.zeros(len(z), int)

    options: dict[str, Any] = {"learner": slow, "trials": 30, "out": tmp_path / "run", "progress": False}
    with pytest.raises(DeadlineReached, match=r"^The time is over: \d+ of 30 trials are stored in .*run"):
        mf.run(DATA, deadline=time.monotonic() + 0.4, **options)
    assert len(mf.open(tmp_path / "run").store.scan().numbers) < 30
    assert len(mf.run(DATA, **options).trials) == 30


# Its file changes the directory when it is loaded, and each trial changes it again; what lies there is found.
RESTLESS = """
import os
os.chdir({elsewhere!r})

def learn(x, y, seed):
    assert os.path.exists("weights")
    os.chdir("deeper")
    return lambda z: y[abs(z[:, None] - x).argmin(axis=1)]
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_learner_that_changes_the_directory_changes_no_path_of_the_run(tmp_path: Path, workers: str) -> None:
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    for directory in (elsewhere / "deeper", here):
        directory.mkdir(parents=True)
    (elsewhere / "weights").touch()
    (here / "restless.py").write_text(RESTLESS.format(elsewhere=str(elsewhere)))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=40), np.arange(40) % 2
    x[:10] = y[:10]  # half of the training examples are easy, so that removing the others leaves some
    np.savez(here / "data.npz", x_train=x[:20], y_train=y[:20], x_test=x[20:], y_test=y[20:])
    learner = ["--learner", "restless.py:learn", "--workers", workers]
    done = in_this_process("run", "npz:data.npz", "--trials", "20", *learner, "--out", "run", cwd=here)
    assert "20 of 20 trials in run:" in done.stdout
    assert "Next: memfluence report run\n" in done.stdout
    in_this_process("verify", "run", "--sample", "2", "--learner", "restless.py:learn", cwd=here)
    in_this_process("experiment", "removal", "run", "--repeats", "2", *learner, "--out", "removal", cwd=here)
    assert (here / "removal" / "removal.json").is_file()
    assert {path.name for path in elsewhere.rglob("*")} == {"weights", "deeper"}


def test_a_function_that_changes_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process; whoever calls finds the directory as it was."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    def learn(x: np.ndarray, y: np.ndarray, seed: int) -> object:
        os.chdir(tmp_path / "elsewhere")
        return lambda z: np.zeros(len(z), int)

    run = mf.run(DATA, learner=learn, trials=6, out="run", progress=False)
    assert Path.cwd() == tmp_path
    assert run.status()["trials"] == 6
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (  # so long that the run's identity has a digest alone
            make_pipeline(StandardScaler(), LogisticRegression(C=1)),
            make_pipeline(StandardScaler(with_mean=False), LogisticRegression(C=3, max_iter=7)),
            "the learner (Pipeline(steps=[('standardscaler', StandardScaler()), ('logisticregression',"
            " LogisticRegression(C=1))]) there, Pipeline(steps=[('standardscaler', StandardScaler(with_mean=False)),"
            " ('logisticregression', LogisticRegression(C=3, max_iter=7))]) asked)",
        ),
        (
            LogisticRegression(C=1),
            LogisticRegression(C=2, class_weight=dict.fromkeys(range(10), 1.5)),
            "parameters.C (1 there, 2 asked); the learner's estimator.parameters.class_weight (None there, {'dict':"
            f" {[[k, '1.5'] for k in range(10)]}}} asked)",
        ),
        ("mlp", LogisticRegression(), "the learner (mlp there, LogisticRegression asked)"),
    ],
)
def test_what_differs_between_two_learners_is_shown_whole(tmp_path: Path, first: Any, second: Any, says: str) -> None:
    data, how = "longtail?n_train=30&n_test=10&n_classes=2", {"trials": 1, "out": tmp_path, "progress": False}
    mf.run(data, learner=first, **how)
    with pytest.raises(mf.errors.RunMismatchError) as caught:
        mf.run(data, learner=second, **how)
    assert says in str(caught.value)
