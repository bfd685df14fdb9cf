"""Files planted in the current directory, named as modules that Python and its libraries import: none may run.

Each says that it runs, and then is the module that it hides, so that one command tells of all that it would run. The
command is started as an installed one is: by the path of a script, not by `python -m memfluence`, for which Python
itself puts the current directory first.
"""

import os
import subprocess
import sys
from pathlib import Path

MODULES = (
    *("pickle", "numpy", "torch", "sitecustomize", "usercustomize", "memfluence", "json", "pyarrow", "random"),
    *("signal", "threadpoolctl", "multiprocessing", "ray", "sklearn", "joblib", "copyreg", "struct", "socket"),
    *("cloudpickle", "pandas", "polars", "cupy", "matplotlib", "fsspec"),
)
SCRIPT = """
import sys
from memfluence.cli import main
if __name__ == "__main__":
    sys.exit(main())
"""

PLANTED = """
import os, sys
os.close(os.open({ran!r} + "/" + __name__ + "-" + str(os.getpid()), os.O_CREAT | os.O_WRONLY))
_here = os.path.dirname(os.path.abspath(__file__))
_spec = sys.meta_path[-1].find_spec(__name__, [_one for _one in sys.path if _one and os.path.abspath(_one) != _here])
if _spec is None:
    raise ImportError(__name__ + " is planted")
_module = sys.modules[__name__]
_module.__spec__, _module.__file__ = _spec, _spec.origin
if _spec.submodule_search_locations is not None:
    _module.__path__, _module.__package__ = _spec.submodule_search_locations, __name__
_spec.loader.exec_module(_module)
"""


def plant(here: Path) -> str:
    """Plant the modules, in HERE/downloads; gives the script that is the command."""
    for folder in ("downloads", "ran"):
        (here / folder).mkdir()
    for name in MODULES:
        (here / "downloads" / f"{name}.py").write_text(PLANTED.format(ran=str(here / "ran")))
    (here / "memfluence").write_text(SCRIPT)
    return str(here / "memfluence")


def executed_by(here: Path, *line: str) -> set[str]:
    """The planted modules that a command runs in any of its processes."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
    command = [sys.executable, *line]
    done = subprocess.run(command, cwd=here / "downloads", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {path.name.partition("-")[0] for path in (here / "ran").iterdir()}


def test_pythons_own_way_runs_them(tmp_path: Path) -> None:
    """So that the other tests show something."""
    plant(tmp_path)
    assert {"pickle", "struct", "signal"} <= executed_by(tmp_path, "-c", "import multiprocessing.spawn")


def test_no_command_does(tmp_path: Path) -> None:
    """Not with one worker, not with two, not in processes that joblib starts for an estimator; `test_ray` has Ray's."""
    script, run = plant(tmp_path), ("run", "digits", "--trials", "4", "--quiet")
    jobs = ("--set", "n_jobs=2", "--set", "cv=2", "--set", "Cs=2", "--set", "max_iter=2")
    for line in (
        (*run, "--set", "epochs=2", "--out", "../one"),
        (*run, "--set", "epochs=2", "--workers", "2", "--out", "../two"),
        (*run, "--learner", "sklearn.linear_model:LogisticRegressionCV", *jobs, "--out", "../jobs"),
        ("report", "../one", "--out", "../page"),
    ):
        assert executed_by(tmp_path, script, *line) == set(), line
