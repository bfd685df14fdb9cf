"""Runs in a bucket of a real (if small) S3 server: killed, resumed, cut off and lied to, they end as local ones do."""

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from engines.commands import DATA, LEARNER, memfluence, scores_of, start
from memfluence.cli import main
from remote.s3_server import Storage

FUNCTION = ["run", DATA, "--learner", "learner.py:learn", "--trials", "60", "--seed", "4"]


def run_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """A command in this process, where starting one takes longer than what it does."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, storage: Storage) -> Path:
    """A directory with the learner and an undisturbed local run."""
    directory = tmp_path_factory.mktemp("here")
    (directory / "learner.py").write_text(LEARNER)
    memfluence(*FUNCTION, "--out", "local", cwd=directory)
    return directory


@pytest.fixture(scope="module")
def undisturbed(here: Path) -> bytes:
    return scores_of("local", here)


def scores_of_remote(uri: str, cwd: Path) -> bytes:
    for suffix in ("csv", "parquet"):
        memfluence("scores", uri, "--out", f"remote.{suffix}", cwd=cwd)
    return (cwd / "remote.csv").read_bytes() + (cwd / "remote.parquet").read_bytes()


def test_killed_and_resumed_while_requests_fail(here: Path, storage: Storage, undisturbed: bytes, soak: bool) -> None:
    """500s, time-outs, lost and torn answers throughout; two kills; then the scores are a local run's, to the byte."""
    uri = "s3://bucket/lab/killed?request_timeout=1"
    moments = random.Random(5)
    storage.proxy.seed(5)
    with storage.proxy.failing(E500=0.08, E503=0.04, lost=0.04, cut=0.04, hang=0.01):
        for _ in range(20 if soak else 2):
            process = start(*FUNCTION, "--out", uri, "--workers", "2", cwd=here, pause=0.2)
            before = len(storage.names("lab/killed/trials"))
            while len(storage.names("lab/killed/trials")) == before and process.poll() is None:
                time.sleep(0.02)
            time.sleep(moments.uniform(0, 1))
            assert soak or process.poll() is None, "it must be killed in the middle to show anything"
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        memfluence(*FUNCTION, "--out", uri, "--workers", "2", cwd=here)
        status = json.loads(memfluence("status", uri, "--json", cwd=here).stdout)
        assert (status["trials"], status["trials_failed"], status["damaged"]) == (60, 0, [])
        assert scores_of_remote(uri, here) == undisturbed
    assert len([fault for _, _, fault in storage.proxy.log if fault]) >= 5
    assert storage.names("lab/killed/damaged") == []


def test_commands_take_a_uri_and_say_where_things_go(
    here: Path,
    storage: Storage,
    undisturbed: bytes,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`import` and `export` carry a run to the bucket and back; what is made of it goes into runs/ here."""
    monkeypatch.chdir(here)

    def ask(*arguments: str) -> Any:
        code, out, err = run_command([*arguments, "--json"], capsys)
        assert code == 0, err
        return json.loads(out)

    def scores(run: str) -> bytes:
        ask("scores", run, "--out", "scores.csv")
        ask("scores", run, "--out", "scores.parquet")
        return Path("scores.csv").read_bytes() + Path("scores.parquet").read_bytes()

    uri = "s3://bucket/lab/joined"
    ask("export", "local", "local.npz", "--trials")
    assert ask("import", "local.npz", "--out", uri)["added"] == 60
    again = ask("import", "local.npz", "--out", uri)
    assert again == {"run": uri, "added": 0, "already_there": 60, "trials": 60}
    assert scores(uri) == undisturbed
    ask("export", uri, "back.npz", "--trials")
    ask("import", "back.npz", "--out", (here / "back").as_uri())
    assert scores("back") == undisturbed
    page = ask("report", uri)["page"]
    assert page == "runs/s3-bucket-lab-joined/report/index.html"
    assert Path(page).is_file()
    assert ask("compare", uri, "local")["memorization"]["pearson"] == pytest.approx(1.0)
    ask("experiment", "examples", uri)
    assert Path("runs/s3-bucket-lab-joined/experiments/examples/examples.json").is_file()
    assert ask("plan", "--run", uri, "--stderr", "0.1")["trials"] == 60
    assert ask("status", uri)["run"] == uri
    assert not list(here.glob("s3*"))


def test_trials_outlive_an_outage(here: Path, storage: Storage, undisturbed: bytes, tmp_path: Path) -> None:
    """Nothing answers after the first segment: all trials are trained, kept here, and sent by the next command."""
    uri, cache = "s3://bucket/lab/outage", tmp_path / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMFLUENCE_CACHE", str(cache))
        patch.setenv("MEMFLUENCE_PATIENCE", "1")
        process = start(*FUNCTION, "--out", uri, cwd=here, pause=0.15)
        while not (before := storage.names("lab/outage/trials")):
            assert process.poll() is None
            time.sleep(0.01)
        with storage.proxy.failing(E503=1.0):
            _, errors = process.communicate(timeout=120)
        assert process.returncode == 1, errors
        assert "Meanwhile trials are kept in" in errors
        assert "trained trial(s) are kept in" in errors.splitlines()[-1]
        assert "Traceback" not in errors
        assert storage.names("lab/outage/trials") == before
        kept = [path.name for path in cache.rglob("unsent/*/*.parquet")]
        assert kept
        done = memfluence(*FUNCTION, "--out", uri, cwd=here)
        assert "60 of 60 trials" in done.stdout
        assert storage.names("lab/outage/trials") == sorted([*before, *kept])  # none was trained again
        assert list(cache.rglob("unsent/*/*.parquet")) == []
        assert scores_of_remote(uri, here) == undisturbed


def test_ctrl_c_stores_what_is_complete(here: Path, storage: Storage) -> None:
    uri = "s3://bucket/lab/interrupted"
    process = start(*FUNCTION, "--out", uri, cwd=here, pause=0.1)
    while not storage.names("lab/interrupted/trials") and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    stored = int(errors.partition("Stopped: ")[2].partition(" of 60")[0])
    assert f"{stored} of 60 trials are stored in {uri}; run the same command to go on" in errors
    assert stored == sum(int(name.split("-")[2]) for name in storage.names("lab/interrupted/trials")) > 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["status", "s3://no-such-bucket/run"], 2, "There is no bucket 'no-such-bucket'; make it first"),
        ([*FUNCTION, "--out", "s3://no-such-bucket/run"], 1, "there is no bucket 'no-such-bucket'; make it first"),
        (["status", "s3://bucket/nothing"], 2, "There is no run at s3://bucket/nothing"),
        (["status", "s3://"], 2, "s3:// is no place for a run; write s3://BUCKET/PATH"),
        (["status", "s3://bucket/../other"], 2, "without . and .. in the path"),
        (["status", "s3://key:secret@bucket/run"], 2, "A password does not belong into a URI (s3://...@bucket)"),
        (["status", "s3://bucket/run?colour=red"], 2, "s3:// URIs have no option 'colour'"),
        (["status", "s3://bucket/run?request_timeout=soon"], 2, "'request_timeout' of the s3:// URI cannot be 'soon'"),
        (["status", "gopher://host/run"], 2, "There is no file system for gopher:// here"),
        (["status", "file://host/run"], 2, "names another machine's file"),
        (["scores", "local", "--out", "s3://bucket/scores.csv"], 2, "write the file here, then copy it there"),
        (["report", "local", "--out", "s3://bucket/report"], 2, "write the file here, then copy it there"),
        (["experiment", "examples", "local", "--out", "s3://bucket/x"], 2, "write the file here, then copy it there"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    here: Path,
    storage: Storage,
    arguments: list[str],
    code: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(here)
    found, _, errors = run_command(arguments, capsys)
    assert found == code, errors
    assert says in errors
    assert len(errors.splitlines()) == 1
    assert "secret" not in errors
    assert not list(here.glob("*:*"))


def test_credentials_that_are_refused_are_not_tried_again(storage: Storage, capsys: pytest.CaptureFixture[str]) -> None:
    asked = len(storage.proxy.log)
    with storage.proxy.failing(E403=1.0):
        code, _, errors = run_command(["status", "s3://bucket/lab/joined"], capsys)
    assert code == 1
    assert "refuses these credentials" in errors
    assert "AWS_PROFILE" in errors
    assert len(errors.splitlines()) == 1
    assert len(storage.proxy.log) == asked + 1


def test_storage_that_does_not_answer_is_one_sentence(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MEMFLUENCE_PATIENCE", "0")
    with storage.proxy.failing(hang=1.0):
        code, _, errors = run_command(["status", "s3://bucket/lab/none?request_timeout=1&connect_timeout=1"], capsys)
    assert code == 1
    assert "the storage does not answer as it should" in errors
    assert len(errors.splitlines()) == 1
