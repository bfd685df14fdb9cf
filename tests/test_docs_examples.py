"""The examples of the docs run as they stand."""

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"
EXAMPLES = {
    f"{name} {number}": source
    for name in ("your-own-model.md",)
    for number, source in enumerate(re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL), 1)
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__example__"}
    exec(compile(EXAMPLES[example], example, "exec"), names)
    assert "memorization" in capsys.readouterr().out
    assert len(names["run"].memorization()) == 600
    assert len(list(tmp_path.glob("runs/*/run.json"))) == 1


def test_there_are_three_ways() -> None:
    assert len(EXAMPLES) == 3
