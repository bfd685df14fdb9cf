"""Harmed and hostile files through every reader of what comes from outside: a few hundred of each kind, or with --soak
twenty thousand.

Each input begins as one of several small valid files in the real format and is harmed: in its structure, such as a size
in a header, an instruction of a pickle or a value in JSON, with checksums, digests and lengths set right so that the
parser gets to see it; or in its bytes. It is then read as the public functions read it: a run is opened, asked for its
status, scores and pairs, and verified; a dataset is loaded by name; trials are imported; tables are compared.

The library must take the input or say what is wrong with it in one sentence. A finding is anything else, see
`reading.py`. Hypothesis shows the generator of a finding: `chance=Random(NUMBER)` makes the
input again. The small version reads the same inputs each time, the long one others.
"""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzzing.archives import Archives
from fuzzing.idx import IdxFiles
from fuzzing.pickles import Pickles
from fuzzing.pictures import Pictures
from fuzzing.reading import LONGEST, Kind, read_case, sentence_fault, watched
from fuzzing.run_files import RunFiles
from fuzzing.segments import Segments
from fuzzing.tables import Tables

KINDS: list[Callable[[], Kind]] = [Segments, RunFiles, Archives, IdxFiles, Pickles, Pictures, Tables]
on_linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="it reads memory from /proc")


@on_linux
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", KINDS)
def test_harmed_files_are_taken_or_refused_in_words(kind: Callable[[], Kind], tmp_path: Path, soak: bool) -> None:
    made, verdicts = kind(), Counter[str]()
    with watched(made, tmp_path) as watch:

        @settings(max_examples=20_000 if soak else 250, derandomize=not soak, suppress_health_check=list(HealthCheck))
        @given(st.randoms(use_true_random=True))
        def read(chance: random.Random) -> None:
            case = made.harmed(chance)
            verdict, why = read_case(made, case, tmp_path, watch)
            verdicts[verdict] += 1
            assert not why, why

        read()
    # Harm comes in, and is noticed.
    assert min(verdicts["accepted"], verdicts["rejected"]) > sum(verdicts.values()) / 50


# A kind of file whose reader does what no reader may, one after the other; the fuzzing must notice each.
CONTROL = """
import os, pickle, sys, warnings
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from fuzzing.reading import Case, read_case, watched
from fuzzing.runs import refuse_hidden
from memfluence.errors import StoreError

class Control:
    seeds = (Case({"x": b""}, "nothing"),)
    def read(self, folder, how):
        return DEEDS[how](folder) or []

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
with watched(kind, here) as watch:
    for how in DEEDS:
        verdict, why = read_case(kind, Case({"x": b""}, how), here, watch)
        print(how, verdict, why[:80].replace(chr(10), " "))
        (here / "canary").unlink(missing_ok=True)
"""


@on_linux
def test_what_no_reader_may_do_is_a_finding(tmp_path: Path) -> None:
    line = [sys.executable, "-W", "ignore", "-c", CONTROL, str(Path(__file__).parent.parent), str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    verdicts = {how: verdict for how, verdict, *_ in map(str.split, done.stdout.splitlines())}
    fine = {"nothing": "accepted", "refused": "rejected", "resident": "accepted"}
    assert verdicts == {how: fine.get(how, "finding") for how in verdicts}, done.stdout
    assert len(verdicts) == 20


def test_what_people_read_is_one_sentence(tmp_path: Path) -> None:
    assert sentence_fault(f"{tmp_path}/x is damaged; write it again.", tmp_path) == ""
    for text in ("two\nlines.", "\x1b[2J.", "x" * LONGEST + ".", "", "no end"):
        assert sentence_fault(text, tmp_path)
