"""On a Ray cluster whose nodes, workers and driver are killed: the scores are byte for byte those of a local run."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import memfluence as mf
from engines import test_long_trials
from engines.commands import DATA, LEARNER, command, memfluence, scores_of, start
from engines.ray_cluster import SmallCluster, wait_for_segments
from engines.test_planted_modules import executed_by, plant
from memfluence.runs import scanning
from memfluence.seeding import integer_seed

SMALL = ["run", DATA, "--learner", "learner.py:learn", "--trials", "24", "--seed", "4"]
DEADLY = [trial for trial in range(24) if integer_seed(4, "learner", trial) % 19 == 0]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster(nodes=2) as made:
        yield made


@pytest.fixture(scope="module")
def digits(request: pytest.FixtureRequest) -> list[str]:
    trials = 500 if request.config.getoption("--soak") else 96
    small_groups = ["--set", "models_at_once=8", "--set", "epochs=40"]
    return ["run", "digits", "--trials", str(trials), "--seed", "4", *small_groups]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, digits: list[str]) -> Path:
    """A directory with learners and the undisturbed local runs `local` and `small`."""
    directory = tmp_path_factory.mktemp("cluster")
    (directory / "learner.py").write_text(LEARNER)
    memfluence(*digits, "--out", "local", cwd=directory)
    memfluence(*SMALL, "--out", "small", cwd=directory)
    return directory


@pytest.fixture(scope="module")
def undisturbed(here: Path) -> dict[str, bytes]:
    return {name: scores_of(name, here) for name in ("local", "small")}


def on(cluster: SmallCluster, *more: str) -> list[str]:
    return ["--engine", "ray", "--address", cluster.address, *more]


def test_a_node_is_killed_and_another_joins(
    here: Path, undisturbed: dict[str, bytes], cluster: SmallCluster, digits: list[str], soak: bool
) -> None:
    process = start(*digits, "--out", "node", *on(cluster), "--json", cwd=here)
    for segments in (2, 6, 10) if soak else (2,):
        wait_for_segments(here / "node", process, segments)
        cluster.kill(cluster.take_busy(process))
        cluster.nodes.append(cluster.join())
    output, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors
    assert json.loads(output)["trials"] == int(digits[3]), "Ray has much to say about a dead node, but not on stdout"
    assert "a node of the cluster was lost" in errors, "it must lose something to show anything"
    assert scores_of("node", here) == undisturbed["local"]


def test_the_driver_is_killed_and_started_again(
    here: Path, undisturbed: dict[str, bytes], cluster: SmallCluster, digits: list[str], soak: bool
) -> None:
    arguments = [*digits, "--out", "driver", *on(cluster)]
    for round_ in range(3 if soak else 1):
        process = start(*arguments, cwd=here)
        wait_for_segments(here / "driver", process, 2 + 3 * round_)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert json.loads(memfluence("status", "driver", "--json", cwd=here).stdout)["trials"] < int(digits[3])
    memfluence(*arguments, cwd=here)
    assert scores_of("driver", here) == undisturbed["local"]


def test_a_killed_worker_costs_nothing(
    here: Path, undisturbed: dict[str, bytes], cluster: SmallCluster, digits: list[str]
) -> None:
    process = start(*digits, "--out", "worker", *on(cluster, "--workers", "2"), cwd=here)
    wait_for_segments(here / "worker", process)
    killed = cluster.workers()
    assert killed
    os.kill(killed[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "a worker process of the cluster died" in errors
    assert scores_of("worker", here) == undisturbed["local"]


def test_ctrl_c_keeps_what_is_stored(
    here: Path, undisturbed: dict[str, bytes], cluster: SmallCluster, digits: list[str]
) -> None:
    arguments = [*digits, "--out", "interrupted", *on(cluster)]
    process = start(*arguments, cwd=here)
    wait_for_segments(here / "interrupted", process)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    status = json.loads(memfluence("status", "interrupted", "--json", cwd=here).stdout)
    assert 0 < status["trials"] < int(digits[3])
    assert f"Stopped: {status['trials']} of {digits[3]}" in errors
    memfluence(*arguments, cwd=here)
    assert scores_of("interrupted", here) == undisturbed["local"]


def test_errors_of_the_learner_are_recorded_and_not_tried_again(here: Path, cluster: SmallCluster) -> None:
    trouble = "open('calls', 'a').write(f'{seed}\\n'); assert seed % 19, 'unlucky'"
    (here / "raises.py").write_text(LEARNER.replace("    time.sleep", f"    {trouble}\n    time.sleep", 1))
    arguments = ["run", DATA, "--learner", "raises.py:learn", *SMALL[4:], "--out", "raises", *on(cluster), "--json"]
    done = memfluence(*arguments, cwd=here, expect=1)
    status = json.loads(done.stdout)
    assert DEADLY
    assert [failure["trial"] for failure in status["failures"]] == DEADLY
    assert "unlucky" in status["failures"][0]["message"]
    calls = (here / "calls").read_text().split()
    assert len(calls) == len(set(calls)) == 24


def test_a_trial_that_kills_its_workers_fails_in_the_end(
    here: Path, undisturbed: dict[str, bytes], cluster: SmallCluster
) -> None:
    kill = "if seed % 19 == 0 and not os.path.exists('spared'): os.kill(os.getpid(), 9)"
    (here / "deadly.py").write_text(LEARNER.replace("    time.sleep", f"    {kill}\n    time.sleep", 1))
    arguments = ["run", DATA, "--learner", "deadly.py:learn", *SMALL[4:], "--out", "deadly", *on(cluster)]
    done = memfluence(*arguments, cwd=here, expect=1)
    assert "3 times in this trial" in done.stderr
    status = json.loads(memfluence("status", "deadly", "--json", cwd=here).stdout)
    assert [failure["trial"] for failure in status["failures"]] == DEADLY
    assert status["trials"] == 24 - len(DEADLY)
    (here / "spared").touch()
    memfluence(*arguments, "--retry-failed", cwd=here)
    assert scores_of("deadly", here) == undisturbed["small"]


def test_a_long_trial_goes_on_from_its_checkpoint_elsewhere(cluster: SmallCluster, tmp_path: Path, soak: bool) -> None:
    if not soak:
        pytest.skip("as with processes, which the small tests have; long trials take long")
    test_long_trials.write_data_and_learner(tmp_path)
    long = [*test_long_trials.RUN, *test_long_trials.OFTEN]
    memfluence(*long, "--out", "whole", cwd=tmp_path)
    process = start(*long, "--out", "ray", *on(cluster), cwd=tmp_path)
    while len(test_long_trials.checkpoints(tmp_path / "ray")) < 2:  # one of each trial, whichever is killed
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    os.kill(cluster.workers()[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "goes on from" in errors
    assert scores_of("ray", tmp_path) == scores_of("whole", tmp_path)


def test_pairs_found_on_the_cluster_are_those_found_here(
    here: Path, cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in many small tiles, and of permuted masks."""
    monkeypatch.setattr(scanning, "_LEAST_PAIRS", 3000)
    run = mf.open(here / "local")
    for options in ({"same_class": False}, {"mem": 0.1, "permutations": 2}):
        options = {"mem": 0.0, "infl": 0.3, "permutations": 0, **options}
        expected = run.find_pairs(**options)
        with mf.scan_on_ray(cluster.address) as scan:
            found = run.find_pairs(**options, scan=scan)
        assert len(expected) > 0
        for name in ("train_index", "test_index", "influence", "stderr", "memorization", "permuted_counts"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    with pytest.raises(mf.MemfluenceError, match="fdr"), mf.scan_on_ray(cluster.address) as scan:
        run.find_pairs(fdr=0.1, scan=scan)


def test_the_command_pairs_on_the_cluster(here: Path, cluster: SmallCluster) -> None:
    thresholds = ["--mem", "0.05", "--infl", "0.3", "--permutations", "1", "--json"]
    expected = memfluence("pairs", "local", *thresholds, cwd=here).stdout
    found = memfluence("pairs", "local", *thresholds, *on(cluster), cwd=here).stdout
    assert json.loads(found)["summary"]["pairs"] > 0
    assert found == expected


def test_an_experiment_on_the_cluster_is_that_of_this_machine(
    here: Path, cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files of the result, and the scores of the models that it trained."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)  # where the user's own script would find its cluster
    run, small = mf.open(here / "local"), {"thresholds": [0.1], "mem": 0.1, "repeats": 6, "progress": False}
    for engine in ("local", "ray"):
        mf.experiment("removal", run, out=here / f"removal-{engine}", engine=engine, **small)
    files = [f"removal.{kind}" for kind in ("json", "parquet", "png", "svg")]
    local, ray = ([(here / f"removal-{name}" / file).read_bytes() for file in files] for name in ("local", "ray"))
    assert ray == local
    assert scores_of("removal-ray/trained", here) == scores_of("removal-local/trained", here)
    makers = {one["process"] for one in mf.open(here / "removal-ray" / "trained").status()["processes"]}
    assert makers
    assert os.getpid() not in makers


def test_no_node_has_a_gpu(here: Path, cluster: SmallCluster) -> None:
    done = memfluence(*SMALL, "--out", "gpu", *on(cluster, "--gpus-per-worker", "0.5"), cwd=here, expect=2)
    assert "No node of the Ray cluster has 0.5 GPU(s)" in done.stderr


def test_there_is_no_cluster(here: Path) -> None:
    done = memfluence(*SMALL, "--out", "no", "--engine", "ray", "--address", "127.0.0.1:1", cwd=here, expect=1)
    assert "There is no Ray cluster at 127.0.0.1:1" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_token_is_wrong(here: Path, cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, soak: bool) -> None:
    if not soak:
        pytest.skip("Ray tries for 20 seconds")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    done = memfluence(*SMALL, "--out", "no", *on(cluster), cwd=here, expect=1)
    assert "RAY_AUTH_MODE=token" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("address", ["10.0.0.1", ":6379", "host:port"])
def test_an_address_that_is_none(here: Path, address: str) -> None:
    done = memfluence(*SMALL, "--out", "no", "--engine", "ray", "--address", address, cwd=here, expect=2)
    assert "HOST:PORT" in done.stderr


def test_there_is_no_ray(here: Path) -> None:
    (here / "without").mkdir()
    (here / "without" / "ray.py").write_text("raise ImportError('no module named ray')\n")
    path = os.pathsep.join([str(here / "without"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command(*SMALL, "--out", "no-ray", "--engine", "ray"),
        cwd=here,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert "pip install 'memfluence[ray]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_nothing_runs_because_it_lies_in_the_current_directory(cluster: SmallCluster, tmp_path: Path) -> None:
    run = [plant(tmp_path), "run", "digits", "--trials", "4", "--quiet", "--set", "epochs=2", "--out", "../ray"]
    assert executed_by(tmp_path, *run, *on(cluster)) == set()


def test_ray_is_imported_only_when_used() -> None:
    code = "import sys, memfluence.engines; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
