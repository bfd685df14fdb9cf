"""`verify`, `repair`, `merge` and `compact` as scripts rely on them: exit codes, sentences, JSON."""

from pathlib import Path

import pytest

from cli.test_commands import DATA, LEARNER, Shell
from memfluence.store import TrialStore

RUN = ["run", DATA, "--learner", "learner.py:learn", "--trials", "30", "--quiet", "--out"]

RANDOM = """
import numpy as np

def learn(x, y, seed):
    return lambda z: y[np.random.default_rng().integers(len(y), size=len(z))]
"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "learner.py").write_text(LEARNER.format(fails_at=10**9))
    return Shell(capsys)


def torn(run: str) -> str:
    path = next(Path(run, "trials").glob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-9])
    return path.name


def test_from_damage_to_a_whole_run(shell: Shell) -> None:
    shell(*RUN, "run")
    assert "all is as it should be" in shell("verify", "run", "--sample", "2", "--learner", "learner.py:learn")
    whole = shell("scores", "run", "--json")
    name = torn("run")
    found = shell("verify", "run", code=1).splitlines()
    assert name in found[0]
    assert "0 of 30 trials in 0 segments" in found[1]
    assert "memfluence repair run" in found[2]
    document = shell.json("verify", "run", code=1)
    assert (document["clean"], document["problems"][0]["segment"]) == (False, name)
    would = shell("repair", "run", "--dry-run")
    assert f"{name} would be set aside in run/damaged." in would
    assert "30 trials would be missing, and the run's own command runs them: 0-29." in would
    document = shell.json("repair", "run")
    assert (document["set_aside"], document["missing"]) == ([name], list(range(30)))
    assert "nothing is wrong" in shell("repair", "run")
    shell(*RUN, "run")
    shell("verify", "run")
    assert shell("scores", "run", "--json") == whole


def test_a_learner_that_is_not_deterministic_is_no_damage(shell: Shell) -> None:
    Path("dice.py").write_text(RANDOM)
    shell("run", DATA, "--learner", "dice.py:learn", "--trials", "9", "--quiet", "--out", "run")
    found = shell("verify", "run", "--sample", "3", "--learner", "dice.py:learn", code=1)
    assert found.count("gives two answers: the learner is not deterministic") == 3
    assert "memfluence repair" not in found
    assert "nothing is wrong" in shell("repair", "run", "--dry-run")


def test_shards_that_were_made_apart_are_merged_and_compacted(shell: Shell) -> None:
    shell(*RUN, "whole")
    for part in range(3):
        shell(*RUN, f"part-{part}", "--shard", f"{part}/3")
    assert "20 trials added to out, 0 were there already; it has 20 now." in shell("merge", "out", "part-0", "part-1")
    document = shell.json("merge", "out", "part-1", "part-2")
    assert document == {"run": "out", "added": 10, "already_there": 10, "trials": 30, "differing": []}
    assert "out: 2 segments before, 1 now." in shell("compact", "out")
    assert shell.json("compact", "out")["written"] == 0
    assert shell.json("verify", "out")["clean"]
    assert shell("scores", "out", "--json") == shell("scores", "whole", "--json")


def test_a_part_of_a_run_is_copied(shell: Shell) -> None:
    shell(*RUN, "run", "--record", "prediction")
    assert shell.json("merge", "part", "run", "--trials", "9", "--record", "none")["trials"] == 9
    assert TrialStore.open("part").info.record == ()
    shell("merge", "part", "run", code=2)
    assert "Give --record to join what all of them have." in shell.errors
    assert shell.json("merge", "part", "run", "--record", "none")["trials"] == 30
    assert "margin" in shell("merge", "other", "run", "--record", "margin", code=2) + shell.errors
    assert shell.json("verify", "part")["clean"]


def test_misuse_is_a_sentence(shell: Shell, tmp_path: Path) -> None:
    for command in ("verify", "repair", "compact"):
        shell(command, "nowhere", code=2)
        assert "There is no run at nowhere" in shell.errors
    shell("merge", "out", "nowhere", code=2)
    shell("merge", "out", code=2)
    shell(*RUN, "run")
    shell("import", "run", "--out", "out", code=2)
    assert "'memfluence merge OUT run' joins runs" in shell.errors
    shell("verify", "run", "--sample", "-1", code=2)
    shell("verify", "run", "--sample", "1", code=2)  # the learner comes from a file that the run does not know
    assert "give it again with --learner" in shell.errors
    assert shell.errors.count("\n") == 1
    Path("run/run.json").write_text("{")
    shell("verify", "run", code=1)
    assert "run.json is damaged" in shell.errors


def test_a_labels_file_has_to_come_from_a_copy(shell: Shell) -> None:
    shell(*RUN, "run")
    Path("run", str(TrialStore.open("run").info.dataset["examples"])).write_bytes(b"")
    shell("verify", "run", code=1)
    assert "Cannot be mended here" in shell("repair", "run", code=1)


def test_many_ranges_are_cut_short() -> None:
    from memfluence.cli._upkeep import _ranges

    assert _ranges([3, 4, 5, 9]) == "3-5, 9"
    assert _ranges(range(0, 40, 2)).endswith("20, 22 and 8 more ranges")
