"""The fuzzing of benchmarks/fuzz.py: a few hundred inputs of each kind, or with --soak twenty thousand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent.parent.parent / "benchmarks" / "fuzz.py"
KINDS = ["segment", "run.json", "npz", "idx", "pickle", "png", "table"]


@pytest.mark.timeout(7200)
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="it reads memory from /proc")
def test_harmed_files_are_taken_or_refused_in_one_sentence(tmp_path: Path, soak: bool) -> None:
    inputs, out, page = 20_000 if soak else 250, tmp_path / "fuzz.json", tmp_path / "fuzzing.md"
    line = [sys.executable, str(FUZZ), "--inputs", str(inputs), "--seed", "2", "--findings", str(tmp_path / "findings")]
    done = subprocess.run(
        [*line, "--only", *KINDS, "--out", str(out), "--page", str(page)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
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


@pytest.mark.timeout(600)
def test_nothing_runs_because_it_lies_in_the_current_directory(tmp_path: Path) -> None:
    """Not in workers, not on Ray, not in joblib's processes; the first row is Python's own way, in which it does."""
    out, page = tmp_path / "fuzz.json", tmp_path / "fuzzing.md"
    line = [sys.executable, str(FUZZ), "--only", "directory", "--out", str(out), "--page", str(page)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    control, *commands = json.loads(out.read_text())["directory"]
    assert {"pickle", "struct", "signal"} <= set(control["executed"])
    assert {row["command"] for row in commands} >= {"1 worker", "2 workers", "an estimator's processes"}
    assert not any(row["executed"] or row["code"] for row in commands)
    assert "| 2 workers | 0 |" in page.read_text()


# A kind of file whose reader does what no reader may, one after the other; the fuzzing must notice each.
CONTROL = """
import os, pickle, sys, warnings
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from fuzzing.case import Case
from fuzzing.worker import prepared, read_case
from fuzzing.runs import refuse_hidden
from memfluence.errors import StoreError

class Control:
    seeds = (Case({"x": b""}, "nothing"),)
    def read(self, folder, how):
        return DEEDS[how](folder) or []
    def command(self, folder, how, chance):
        return ["status", str(folder)]

def fail(error):
    raise error

def hide(folder):
    try:
        try:
            bytearray(2**30)
        except MemoryError as error:
            raise StoreError("It is damaged.") from error
    except StoreError as error:
        refuse_hidden(error)
        return [str(error)]

DEEDS = {
    "nothing": lambda folder: None,
    "refused": lambda folder: [f"{folder}/x is damaged; write it again."],
    "system": lambda folder: os.system("true") and None,
    "eval": lambda folder: eval("[1]")[1:],
    "exec": lambda folder: exec("pass"),
    "unpickle": lambda folder: pickle.loads(b"cbuiltins\\nlen\\n.") and None,
    "write": lambda folder: (folder.parent / "elsewhere").write_text("x") and None,
    "canary": lambda folder: os.mkfifo(folder.parent / "canary"),
    "read": lambda folder: Path("/etc/passwd").read_text()[:0],
    "arrow": lambda folder: sys.modules["pyarrow"].OSFile("/etc/passwd").close(),
    "remove": lambda folder: (folder.parent / "elsewhere").unlink(missing_ok=True),
    "import": lambda folder: __import__("stranger") and None,
    "raise": lambda folder: fail(KeyError("x")),
    "exit": lambda folder: fail(SystemExit(3)),
    "warn": lambda folder: warnings.warn("careful"),
    "allocate": lambda folder: bytearray(2**30)[:0].decode() or None,
    "hide": hide,
    "resident": lambda folder: (bytes(2**20) * 400)[:0].decode() or None,
    "lines": lambda folder: ["two\\nlines."],
    "long": lambda folder: ["x" * 1000 + "."],
}
here = Path(sys.argv[2])
os.chdir(here)
(here / "stranger.py").write_text("")
sys.path.insert(0, str(here))
kind = Control()
watch = prepared(kind, here)
for how in DEEDS:
    result = read_case(kind, Case({"x": b""}, how), here, watch)
    print(how, result["verdict"], result["why"][:80].replace(chr(10), " "))
    if (here / "canary").exists():
        (here / "canary").unlink()
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="it reads memory from /proc")
def test_what_no_reader_may_do_is_a_finding(tmp_path: Path) -> None:
    line = [sys.executable, "-W", "ignore", "-c", CONTROL, str(FUZZ.parent), str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    verdicts = {how: verdict for how, verdict, *_ in map(str.split, done.stdout.splitlines())}
    fine = {"nothing": "accepted", "refused": "rejected", "resident": "accepted"}
    assert verdicts == {how: fine.get(how, "finding") for how in verdicts}, done.stdout
    assert len(verdicts) == 20


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
