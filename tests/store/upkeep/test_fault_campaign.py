"""The fault campaign of benchmarks/faults.py: one round of each fault, or with --soak three hundred rounds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGN = Path(__file__).parents[3] / "benchmarks" / "faults.py"
FAULTS = [
    *("driver killed (SIGKILL)", "worker killed (SIGKILL)", "Ctrl-C", "torn segment", "flipped bits", "full disk"),
    *("read-only disk", "clock jumps", "two drivers at once", "compact killed (SIGKILL)", "long trial, then SIGKILL"),
    *("long group, then SIGKILL", "orphans, other results", "two drivers, other results", "stale listings"),
    *("two hosts of one name", "power cut, run", "power cut, compact", "power cut, merge", "power cut, repair"),
]


@pytest.mark.timeout(7200)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it finds worker processes in /proc")
def test_no_trial_is_lost_or_wrong(tmp_path: Path, soak: bool) -> None:
    out = tmp_path / "faults.json"
    rounds = "300" if soak else str(len(FAULTS))
    line = [sys.executable, str(CAMPAIGN), "--rounds", rounds, "--seed", "1", "--jobs", "2", "--out", str(out)]
    done = subprocess.run([*line, "--only", *FAULTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    found = json.loads(out.read_text())
    assert [row["fault"] for row in found["table"]] == [*FAULTS, "all"]
    everything = found["table"][-1]
    assert (everything["trials_lost"], everything["trials_wrong"], everything["other_scores"]) == (0, 0, 0)
    assert everything["silent"] == 0
    assert everything["left_to_run"] > 0  # the faults were faults
