"""Files planted in the current directory, named as modules that Python and its libraries import: none may run.

Each says that it runs, and then is the module that it hides, so that one command tells of all that it would run. The
command is started as an installed one is: by the path of a script, not by `python -m memfluence`, for which Python
itself puts the current directory first.
"""

import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["COMMANDS", "MODULES", "planted_runs"]

MODULES = (
    *("pickle", "numpy", "torch", "sitecustomize", "usercustomize", "memfluence", "json", "pyarrow", "random"),
    *("signal", "threadpoolctl", "multiprocessing", "ray", "sklearn", "joblib", "copyreg", "struct", "socket"),
    *("cloudpickle", "pandas", "polars", "cupy", "matplotlib", "fsspec"),
)

_TRIALS = ("run", "digits", "--trials", "4", "--quiet")
_MLP = (*_TRIALS, "--set", "epochs=2")
_CV = ("--learner", "sklearn.linear_model:LogisticRegressionCV")
_JOBS = ("--set", "n_jobs=2", "--set", "cv=2", "--set", "Cs=2", "--set", "max_iter=2")  # processes of joblib's
COMMANDS = {
    "1 worker": (*_MLP, "--out", "{out}/one"),
    "2 workers": (*_MLP, "--workers", "2", "--out", "{out}/two"),
    "Ray": (*_MLP, "--engine", "ray", "--address", "{address}", "--out", "{out}/ray"),
    "an estimator's processes": (*_TRIALS, *_CV, *_JOBS, "--out", "{out}/jobs"),
    "report": ("report", "{out}/one", "--out", "{out}/page"),
}

_SCRIPT = """
import sys
from memfluence.cli import main
if __name__ == "__main__":
    sys.exit(main())
"""

_PLANTED = """
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


def planted_runs(here: Path) -> list[dict[str, Any]]:
    """For each command which planted modules ran. The first row is Python's own way, in which they do."""
    downloads, script, ran = here / "downloads", here / "memfluence", here / "ran"
    for folder in (downloads, ran):
        folder.mkdir(parents=True)
    script.write_text(_SCRIPT)
    for name in MODULES:
        (downloads / f"{name}.py").write_text(_PLANTED.format(ran=str(ran)))
    rows = [_row("python -c 'import multiprocessing.spawn'", ["-c", "import multiprocessing.spawn"], downloads, ran)]
    cluster = _cluster()
    try:
        for name, line in COMMANDS.items():
            if "{address}" in line and cluster is None:
                continue
            filled = [word.format(out=here, address=getattr(cluster, "address", "")) for word in line]
            rows.append(_row(name, [str(script), *filled], downloads, ran))
    finally:
        if cluster is not None:
            cluster.shutdown()
    return rows


def _row(name: str, line: list[str], downloads: Path, ran: Path) -> dict[str, Any]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, *line], cwd=downloads, env=environment, capture_output=True, text=True, check=False
    )
    executed = sorted({path.name.partition("-")[0] for path in ran.iterdir()})
    shutil.rmtree(ran)
    ran.mkdir()
    return {"command": name, "code": done.returncode, "executed": executed, "said": done.stderr[-300:]}


def _cluster() -> Any:
    """A Ray cluster of one node on this machine, or None where Ray is not installed."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        from ray.cluster_utils import Cluster
    except ImportError:
        return None
    node = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    return Cluster(initialize_head=True, head_node_args=node)
