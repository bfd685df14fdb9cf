"""What processes of a run import, and what a learner may rely on all the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engines.commands import DATA, memfluence

# A script of its own with a module beside it; a module of PYTHONPATH; a process that multiprocessing starts.
LEARNER = """
import multiprocessing, subprocess, sys
from pathlib import Path
import offered
import beside

def learn(x, y, seed):
    script = Path(__file__).parent / "tool" / "train.py"
    assert subprocess.run([sys.executable, str(script)], capture_output=True, text=True).stdout == "7\\n"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(abs, [-offered.VALUE]) == [beside.VALUE]
    most = int(y[0])
    return lambda z: [most] * len(z)
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_learners_import_and_start_what_they_did(tmp_path: Path, workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, name in (("mine", "beside"), ("mine/tool", "sibling"), ("offers", "offered")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text("VALUE = 7\n")
    (tmp_path / "mine" / "learner.py").write_text(LEARNER)
    (tmp_path / "mine" / "tool" / "train.py").write_text("import sibling\nprint(sibling.VALUE)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "offers"), os.environ.get("PYTHONPATH", "")]))
    learner = ["--learner", "mine/learner.py:learn", "--workers", workers, "--out", "run"]
    memfluence("run", DATA, "--trials", "2", *learner, cwd=tmp_path)


def test_an_installed_module_does_not_open_the_current_directory(tmp_path: Path) -> None:
    code = """
import sys
from memfluence.learners import resolve
resolve("sklearn.linear_model:RidgeClassifier")
assert "" not in sys.path and {here!r} not in sys.path, sys.path
resolve("mine:Mine")
assert sys.path[-1] == {here!r}
"""
    (tmp_path / "mine.py").write_text("from sklearn.linear_model import RidgeClassifier as Mine\n")
    line = [sys.executable, "-P", "-c", code.format(here=str(tmp_path))]
    subprocess.run(line, cwd=tmp_path, check=True)


def test_a_script_with_workers_and_a_function_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def most(y): return int(y[0])\n")
    (tmp_path / "script.py").write_text(f"""
import memfluence as mf
from helper import most

def learn(x, y, seed):
    first = most(y)
    return lambda z: [first] * len(z)

if __name__ == "__main__":
    run = mf.run({DATA!r}, learner=learn, trials=4, workers=2, out="run")
    assert run.status()["trials"] == 4
""")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    subprocess.run([sys.executable, "../script.py"], cwd=elsewhere, check=True)


def test_the_environment_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from memfluence.engines.environment import safe_children, scripts_as_ever

    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with safe_children():
        assert os.environ["PYTHONSAFEPATH"]
        scripts_as_ever()
        assert "PYTHONSAFEPATH" not in os.environ
    assert "PYTHONSAFEPATH" not in os.environ
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # the user's own wish goes to all processes
    with safe_children():
        scripts_as_ever()
        assert os.environ["PYTHONSAFEPATH"] == "1"
    assert os.environ["PYTHONSAFEPATH"] == "1"
