"""The notebooks of docs/notebooks run from top to bottom, and are stored as they came out of such a run.

They run with few models here, in an empty directory; --soak runs them as they are.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
FEW = {r"\btrials=\d+": "trials=16", r"\bmodels=\d+": "models=2"}

nbformat = pytest.importorskip("nbformat", reason="notebooks are run with memfluence[dev]")
nbclient = pytest.importorskip("nbclient", reason="notebooks are run with memfluence[dev]")


def notebook(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: Any) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    found = notebook(name)
    for cell in () if request.config.getoption("--soak") else found.cells:
        for many, few in FEW.items():
            cell.source = re.sub(many, few, cell.source)
    client = nbclient.NotebookClient(found, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "run.json").is_file()
    shown = [output for cell in found.cells for output in cell.get("outputs", ())]
    (progress,) = (one for one in shown if "trials in " in one.get("data", {}).get("text/plain", ""))
    result = r"\d+/\d+ trials in .*, (test accuracy [\d.]+%|mean test score -[\d.]+)"
    assert re.fullmatch(result, progress.data["text/plain"])


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_stored_as_it_ran(name: str) -> None:
    found = notebook(name)
    nbformat.validate(found)
    code = [cell for cell in found.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert all(cell.outputs for cell in code if not cell.source.startswith("import"))
    assert not [output for cell in code for output in cell.outputs if output.get("name") == "stderr"]  # no warnings
    assert 10 <= len(found.cells) <= 22
    text = (FOLDER / f"{name}.ipynb").read_text()
    assert len(text) < 400_000
    assert str(Path.home()) not in text
    assert found.cells[0].source.startswith("# ")


def test_every_notebook_has_a_page() -> None:
    settings = (ROOT / "mkdocs.yml").read_text()
    assert NAMES
    for name in NAMES:
        assert f"notebooks/{name}.md" in settings
