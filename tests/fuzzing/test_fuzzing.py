"""The fuzzing of benchmarks/fuzz.py: a few hundred inputs of each kind, or with --soak twenty thousand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent.parent.parent / "benchmarks" / "fuzz.py"
KINDS = ["segment", "run.json", "npz", "idx", "pickle", "png"]


@pytest.mark.timeout(7200)
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="it reads memory from /proc")
def test_harmed_files_are_taken_or_refused_in_one_sentence(tmp_path: Path, soak: bool) -> None:
    inputs, out, page = 20_000 if soak else 250, tmp_path / "fuzz.json", tmp_path / "fuzzing.md"
    line = [sys.executable, str(FUZZ), "--inputs", str(inputs), "--seed", "2", "--findings", str(tmp_path / "findings")]
    done = subprocess.run(
        [*line, "--out", str(out), "--page", str(page)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(out.read_text())
    assert found["findings"] == 0
    for row, kind in zip(found["table"], KINDS, strict=True):
        assert (row["kind"], row["inputs"]) == (kind, inputs)
        assert row["accepted"] + row["rejected"] == inputs
        assert min(row["accepted"], row["rejected"]) > inputs / 50  # harm gets through the door, and is noticed
        assert row["commands"] == inputs // 500
    assert f"| png | {inputs:,} |" in page.read_text()


def test_a_finding_is_saved_and_read_again(tmp_path: Path) -> None:
    """A case whose answer is no sentence, because nobody expects a reader to say it."""
    sys.path.insert(0, str(FUZZ.parent))
    try:
        from fuzzing.case import Case, from_json, to_json
        from fuzzing.worker import LONGEST, sentence_fault
    finally:
        sys.path.remove(str(FUZZ.parent))
    case = Case({"train/a.png": b"\x00\xff", "x": b""}, "?size=8")
    assert from_json(to_json("png", case, why="longer than 10 s")) == ("png", case)
    assert sentence_fault(f"{tmp_path}/x is damaged; write it again.", tmp_path) == ""
    for text in ("two\nlines.", "\x1b[2J.", "x" * LONGEST + ".", "", "no end"):
        assert sentence_fault(text, tmp_path)
