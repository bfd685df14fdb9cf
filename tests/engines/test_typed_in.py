"""What a notebook's cells and prompts define goes to worker processes, which have no file to import it from."""

import subprocess
import sys
from pathlib import Path

import pytest

CELLS = """
import numpy as np
import memfluence as mf

scale = 2.0

class Model:
    def __init__(self, seed):
        self.seed = seed

    def fit(self, x, y):
        from sklearn.naive_bayes import GaussianNB
        self.fitted = GaussianNB().fit(scale * x.reshape(len(x), -1), y)
        return self

def train(x, y, seed):
    model = Model(seed).fit(x, y)
    return lambda new: model.fitted.predict(scale * new.reshape(len(new), -1))

settings = {"learner": train, "trials": 6, "progress": False}
alone = mf.run("digits", out="alone", **settings)
run = mf.run("digits", out="run", workers=2, **settings)
assert np.array_equal(run.trials.test_correct, alone.trials.test_correct)
print("the same", globals().get("__file__"))
"""
LOCKED = """
import threading
import memfluence as mf

lock = threading.Lock()

def train(x, y, seed):
    with lock:
        return lambda new: y[: len(new)]

mf.run("digits", learner=train, trials=2, workers=2, out="run", progress=False)
"""


def run(code: str, way: str, where: Path) -> subprocess.CompletedProcess[str]:
    """Typed at a prompt (which is what a notebook is), given by -c, or on standard input, whose name is <stdin>."""
    if way == "prompt":
        typed = f"code.InteractiveInterpreter(globals()).runcode(compile({code!r}, 'cell', 'exec'))"
        (where / "prompt.py").write_text(f"import code\ndel __file__\n{typed}\n")
    ends = {"prompt": ["prompt.py"], "-c": ["-c", code], "stdin": ["-"]}
    given = code if way == "stdin" else ""
    return subprocess.run(
        [sys.executable, *ends[way]], cwd=where, input=given, capture_output=True, text=True, timeout=200, check=False
    )


@pytest.mark.parametrize(("way", "file"), [("prompt", "None"), ("stdin", "<stdin>")])
def test_functions_of_a_cell_train_in_workers(way: str, file: str, tmp_path: Path) -> None:
    done = run(CELLS, way, tmp_path)
    assert done.stdout == f"the same {file}\n", done.stderr


def test_what_cannot_be_sent_says_so(tmp_path: Path) -> None:
    done = run(LOCKED, "-c", tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert "The learner or the data cannot be sent to worker processes (" in last
    assert "lock" in last
    assert last.endswith("define the learner in a file or module (file.py:name), or use one worker.")
