"""The soak of benchmarks/soak.py: two thousand trials, or with --soak a hundred thousand. Counts, no times."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[3] / "benchmarks" / "soak.py"


@pytest.mark.timeout(7200)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="it reads memory from /proc")
def test_many_trials_are_there_whatever_happens_to_compact(tmp_path: Path, soak: bool) -> None:
    trials = 100_000 if soak else 2_000
    line = [sys.executable, str(SOAK), "--trials", str(trials), "--kills", "8" if soak else "3"]
    out = tmp_path / "soak.json"
    done = subprocess.run([*line, "--out", str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(out.read_text())
    assert found["lost"] == 0
    assert found["compact"]["killed"] > 0
    assert found["same_scores"]
    assert found["verify"]["clean"]
    assert found["small_segments"]["segments"] >= trials // 100
    assert found["compacted"]["segments"] == 1 if trials < 10_000 else found["compacted"]["segments"] < 10
    if soak:  # the driver's memory does not grow with the trials
        memory = found["train"]["driver_bytes"]
        assert memory["90%"] < 1.1 * memory["10%"]
