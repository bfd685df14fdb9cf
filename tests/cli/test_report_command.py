"""`report` as other people's scripts rely on it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_commands import Shell, make_run
from test_commands import shell as shell  # a fixture


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    from test_commands import LEARNER

    (tmp_path / "learner.py").write_text(LEARNER.format(fails_at=10**9))


def test_a_folder_beside_the_run_or_elsewhere(shell: Shell) -> None:
    make_run(shell)
    said: Any = shell.json("report", "run")
    assert said["page"] == "run/report/index.html"
    files = [file for file in Path("run/report").rglob("*") if file.is_file()]
    assert (said["files"], said["bytes"]) == (len(files), sum(file.stat().st_size for file in files))
    assert "Open site/index.html" in shell("report", "run", "--out", "site")


def test_data_of_an_imported_run(shell: Shell, tmp_path: Path) -> None:
    make_run(shell)
    shell("export", "run", "trials.npz", "--trials")
    shell("import", "trials.npz", "--out", "imported")
    labels = [np.load("trials.npz")[f"{split}_labels"] for split in ("train", "test")]
    pictures = [np.zeros((len(one), 9, 9), np.uint8) for one in labels]
    np.savez("data.npz", x_train=pictures[0], y_train=labels[0], x_test=pictures[1], y_test=labels[1])
    shell("report", "imported", "--out", "numbers")
    assert not list(Path("numbers").rglob("*.webp"))
    for option in ("--data", "--dataset"):
        shell("report", "imported", option, "npz:data.npz", "--out", "site")
        assert list(Path("site").rglob("*.webp"))
    np.savez("data.npz", x_train=pictures[0], y_train=labels[0][::-1], x_test=pictures[1], y_test=labels[1])
    shell("report", "imported", "--data", "npz:data.npz", "--out", "site", code=2)
    assert "its content differs" in shell.errors


def test_serve_refuses_what_it_cannot_do(shell: Shell) -> None:
    make_run(shell)
    shell("serve", "run", "--port", "70000", code=2)
    assert "0 to 65535" in shell.errors
    shell("serve", "nowhere", code=2)
