"""The commands as other people's scripts rely on them: names, JSON, exit codes, what goes to which stream."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from memfluence.cli import main
from memfluence.cli._findings import _said
from memfluence.findings.stability import Stability

LEARNER = """
import numpy as np

def learn(x, y, seed):
    if seed % {fails_at} == 0:
        raise ValueError("unlucky seed")
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(x.shape[1], 2))
    return lambda z: y[(((z @ w)[:, None] - (x @ w)[None]) ** 2).sum(-1).argmin(1)]
"""
DATA = "longtail?n_train=40&n_test=30&n_classes=3&seed=1"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "learner.py").write_text(LEARNER.format(fails_at=10**9))


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        captured = self._capsys.readouterr()
        assert (stop.value.code or 0) == code, captured.err
        self.errors = captured.err
        return captured.out

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def make_run(shell: Shell, *more: str) -> Any:
    """In this process, since the learner's own takes half a second to start; `test_run_and_status` has one."""
    run = ("run", DATA, "--learner", "learner.py:learn", "--trials", "60", "--out", "run", "--engine", "local")
    return shell.json(*run, *more)


def test_run_and_status(shell: Shell) -> None:
    status = make_run(shell, "--engine", "processes")
    assert status == shell.json("status", "run")
    assert (status["trials"], status["trials_wanted"], status["trials_failed"]) == (60, 60, 0)
    assert (status["n_train"], status["n_test"], status["learner"]) == (40, 30, "learn")
    assert 0 < status["test_accuracy"] < status["accuracy_in"] <= 1
    assert "60 of 60" in shell("status", "run")
    text = shell("run", DATA, "--learner", "learner.py:learn", "--trials", "60", "--out", "run", "--quiet")
    assert "Next: memfluence report run" in text


def test_scores_follow_the_contract(shell: Shell) -> None:
    make_run(shell)
    document = shell.json("scores", "run", "--out", "scores.csv")
    assert (document["n_train"], document["n_test"], document["trials"]) == (40, 30, 60)
    assert len(document["train"]) == 40
    needed = {"index", "label", "memorization", "stderr", "accuracy_in", "accuracy_out", "trials_in", "trials_out"}
    for k, row in enumerate(document["train"]):
        assert needed <= set(row)
        assert row["index"] == k
        assert row["trials_in"] + row["trials_out"] == 60
        assert row["memorization"] == row["accuracy_in"] - row["accuracy_out"]
        assert 0 < row["stderr"] < 0.5
        assert row["lower"] <= row["memorization"] <= row["upper"]
    csv = Path("scores.csv").read_text().splitlines()
    assert csv[0].startswith("index,label,memorization,stderr")
    assert len(csv) == 41
    assert "The most memorized" in shell("scores", "run")


def test_what_cannot_be_estimated_is_null(shell: Shell) -> None:
    masks = np.random.default_rng(0).random((10, 40)) < 0.7
    masks[:, 3] = True
    np.save("masks.npy", masks)
    make_run(shell, "--design", "explicit:masks.npy", "--trials", "10")
    row = shell.json("scores", "run")["train"][3]
    assert row["memorization"] is None
    assert row["accuracy_out"] is None
    assert row["stderr"] is None
    assert (row["trials_in"], row["trials_out"]) == (10, 0)
    assert row["accuracy_in"] is not None


def test_pairs_follow_the_contract(shell: Shell) -> None:
    make_run(shell)
    document = shell.json("pairs", "run", "--mem", "0.1", "--infl", "0.1", "--out", "pairs.parquet")
    summary = document["summary"]
    assert {"pairs", "train_examples", "test_examples", "single_test_examples"} <= set(summary)
    assert summary["pairs"] == len(document["pairs"]) > 0
    assert summary["expected_by_chance"] > 0
    assert "by chance" in summary["warning"]
    keys = {"train_index", "test_index", "label", "influence", "stderr", "memorization"}
    values = [row["influence"] for row in document["pairs"]]
    assert all(keys <= set(row) for row in document["pairs"])
    assert values == sorted(values, reverse=True)
    assert min(values) >= 0.1
    more = shell.json("pairs", "run", "--mem", "0.1", "--infl", "0.1", "--any-class")
    assert more["summary"]["pairs"] > summary["pairs"]
    assert Path("pairs.parquet").stat().st_size > 0
    assert "By chance alone" in shell("pairs", "run", "--mem", "0.1", "--infl", "0.1")
    assert "0 pairs" in shell("pairs", "run", "--mem", "1", "--infl", "1")


def test_memory_is_capped(shell: Shell) -> None:
    make_run(shell)
    everything = ("--mem", "0.1", "--infl", "0.1")
    assert shell.json("pairs", "run", *everything, "--memory", "64GB") == shell.json("pairs", "run", *everything)
    for command in (["pairs", "run"], ["compare", "run"], ["export", "run", "out.npz"]):
        shell(*command, "--memory", "1MB", code=2)
        assert shell.errors.count("\n") == 1
        assert "beyond the memory of 1.0 MB; allow at least " in shell.errors
        shell(*command, "--memory", "much", code=2)
        assert "must be a size such as 2GB" in shell.errors
    assert not Path("out.npz").exists()
    shell("export", "run", "capped.npz", "--memory", "64GB")
    shell("export", "run", "plain.npz")
    assert Path("capped.npz").read_bytes() == Path("plain.npz").read_bytes()


def test_every_command_that_reads_trials_keeps_a_cap(shell: Shell) -> None:
    """Or refuses it with one sentence; what it says under a cap that it fits in is what it says without."""
    for name, options in {
        "run": ("--trials", "70", "--record", "prediction,margin,logit"),
        "grouped": ("--trials", "20", "--groups", "class", "--keep", "0.6"),
        "coins": ("--trials", "20", "--design", "bernoulli", "--keep", "0.5"),
        "sizes": ("--trials", "20", "--design", "uniform:10"),
    }.items():
        shell("run", DATA, "--set", "epochs=2", *options, "--out", name, "--quiet")
    np.save("scores.npy", np.zeros((40, 30)))
    for command in (
        ["scores", "run"],
        ["scores", "run", "--estimator", "adjusted"],
        ["scores", "run", "--outcome", "margin"],
        ["pairs", "run", "--stability"],
        ["pairs", "run", "--cross-fit"],
        ["pairs", "run", "--fdr", "0.1"],
        ["plan", "--run", "run", "--stderr", "0.1", "--jaccard", "0.5"],
        ["mislabels", "run"],
        ["duplicates", "run"],
        ["attack", "run"],
        ["groups", "grouped"],
        ["groups", "grouped", "--influence", "influence.npz"],
        ["values", "coins"],
        ["values", "sizes", "--kind", "shapley"],
        ["values", "run", "--kind", "c-score"],
        ["profile", "run", "3"],
        ["datamodels", "run", "--test", "3"],
        ["judge", "run", "scores.npy"],
        ["export", "run", "trials.npz", "--trials"],
        ["report", "run"],
    ):
        plain = shell.json(*command)
        assert shell.json(*command, "--memory", "64GB") == plain, command
        shell(*command, "--memory", "1MB", code=2)
        assert shell.errors.count("\n") == 1, command
        assert "beyond the memory of 1.0 MB; allow at least " in shell.errors, command
    shell("plan", "digits", "--no-pilot", "--memory", "1GB", code=2)
    assert "--memory" in shell.errors


def test_a_device_for_pairs(shell: Shell) -> None:
    make_run(shell)
    everything = ("pairs", "run", "--mem", "0.1", "--infl", "0.1")
    assert shell.json(*everything, "--device", "cpu:0") == shell.json(*everything)  # the GPU's way, on torch's CPU
    shell(*everything, "--device", "cuda:99", code=2)
    assert "'cuda:99' cannot be used; use cpu" in shell.errors


def test_scores_of_a_recorded_outcome(shell: Shell) -> None:
    shell("scores", make_run(shell)["run"], "--outcome", "margin", code=2)
    assert "--record margin" in shell.errors
    shell("scores", "run", "--outcome", "loss", code=2)
    assert "must be correct, score, margin, logit or an array" in shell.errors
    run = ("run", "digits", "--set", "epochs=1", "--trials", "6", "--record", "margin", "--out", "recorded")
    shell(*run)
    rows = shell.json("scores", "recorded", "--outcome", "margin")["train"]
    assert {"memorization", "stderr", "mean_in", "mean_out", "trials_in"} <= set(rows[0])
    assert "mean if held out" in shell("scores", "recorded", "--outcome", "margin")
    rows = shell.json("scores", "recorded", "--outcome", "margin", "--estimator", "adjusted")["train"]
    assert {"memorization", "stderr", "mean_in", "mean_out", "trials_in"} <= set(rows[0])
    shell("scores", "recorded", "--estimator", "shrunk", code=2)
    assert "'shrunk' was removed" in shell.errors
    assert "choose 'adjusted'" in shell.errors
    shell("scores", "recorded", "--outcome", "smoothed", code=2)
    assert "'smoothed' was removed" in shell.errors
    assert "choose 'margin', or 'correct' with the estimator 'adjusted'" in shell.errors
    shell("scores", "recorded", "--estimator", "best", code=2)
    assert "must be one of plain, adjusted." in shell.errors


def test_failed_trials_end_with_code_1_and_the_command_to_retry_them(shell: Shell) -> None:
    Path("learner.py").write_text(LEARNER.format(fails_at=7))
    status = json.loads(
        shell("run", DATA, "--learner", "learner.py:learn", "--trials", "60", "--out", "run", "--json", code=1)
    )
    assert status["trials_failed"] > 0
    assert status["trials"] + status["trials_failed"] == 60
    assert "unlucky seed" in shell.errors
    assert "--retry-failed" in shell.errors
    again = shell.json("run", DATA, "--learner", "learner.py:learn", "--trials", "60", "--out", "run", code=1)
    assert again["trials"] == status["trials"]


def test_exports_for_other_tools(shell: Shell) -> None:
    make_run(shell, "--record", "prediction")
    for name, format in (("p.csv", "cleanlab"), ("s.json", "fiftyone"), ("hub", "huggingface")):
        assert shell.json("export", "run", name, "--format", format)["bytes"] > 1000
    for wrong in (["--format", "excel"], ["--format", "cleanlab", "--pairs"], ["--format", "fiftyone", "--trials"]):
        shell("export", "run", "x.npz", *wrong, code=2)
        assert "format" in shell.errors


def test_export_import_and_compare(shell: Shell) -> None:
    make_run(shell)
    assert shell.json("export", "run", "trials.npz", "--trials")["bytes"] > 0
    done = shell.json("import", "trials.npz", "--out", "copy")
    assert (done["added"], done["trials"]) == (60, 60)
    assert shell.json("scores", "copy") == shell.json("scores", "run")
    assert shell.json("compare", "run", "copy")["memorization"]["pearson"] == pytest.approx(1)
    shell("export", "run", "published.npz")
    shell("export", "run", "pairs.npz", "--pairs", "--mem", "0.1", "--infl", "0.1")
    assert shell.json("compare", "pairs.npz")["summary"]["pairs"] > 0
    assert "pearson: 1.000" in shell("compare", "run", "published.npz")
    # and the copy can be gone on with, since it knows its data, learner and plan
    more = shell.json("run", DATA, "--learner", "learner.py:learn", "--trials", "80", "--out", "copy")
    assert more["trials"] == 80


def test_pairs_with_error_control(shell: Shell) -> None:
    make_run(shell)
    found = shell.json("pairs", "run", "--mem", "-1", "--fdr", "0.3", "--out", "pairs.csv")
    assert {"pairs", "tested", "fdr", "null", "procedure", "expected_by_chance"} <= set(found["summary"])
    assert found["summary"]["procedure"] == "Benjamini-Hochberg"
    assert found["summary"]["pairs"] == len(found["pairs"]) > 0
    assert all(0 < row["p_value"] <= row["q_value"] <= 0.3 for row in found["pairs"])
    assert Path("pairs.csv").read_text().splitlines()[0].endswith("memorization,p_value,q_value")
    assert {"expected_by_chance", "expected_by_chance_sd"} <= set(found["summary"])
    strict = shell.json("pairs", "run", "--mem", "-1", "--fdr", "0.3", "--by")
    assert strict["summary"]["procedure"] == "Benjamini-Yekutieli"
    assert len(strict["pairs"]) <= len(found["pairs"])
    above = shell.json("pairs", "run", "--mem", "-1", "--fdr", "0.3", "--infl", "0.3", "--null", "0.05")
    assert all(row["influence"] >= 0.3 for row in above["pairs"])
    assert not above["summary"]["fdr_holds"]
    assert found["summary"]["fdr_holds"]
    assert found["summary"]["selected"] == len(found["pairs"])
    cut = shell.json("pairs", "run", "--mem", "-1", "--fdr", "0.3", "--infl", "0.5")["summary"]
    assert cut["pairs"] < cut["selected"] == len(found["pairs"])
    text = shell("pairs", "run", "--mem", "-1", "--fdr", "0.3", "--infl", "0.5")
    assert f"of those, {cut['pairs']} are at or above 0.5. The rate holds for the selection before that cut" in text
    assert "false discovery rate of 0.3" in shell("pairs", "run", "--mem", "-1", "--fdr", "0.3")
    plain = shell.json("pairs", "run")
    assert not {"p_value", "q_value"} & set(plain["pairs"][0] if plain["pairs"] else ())


def test_pairs_corrected_for_selection_and_their_stability(shell: Shell) -> None:
    make_run(shell)
    found = shell.json("pairs", "run", "--cross-fit")
    assert found["summary"]["pairs"] == len(found["pairs"]) > 0
    assert {row["half"] for row in found["pairs"]} == {0, 1}
    assert all(row["influence_selecting"] >= 0.15 for row in found["pairs"])
    assert found["summary"]["mean_influence"] < found["summary"]["mean_influence_selecting"]
    assert "the selecting half says" in shell("pairs", "run", "--cross-fit")
    spread = shell.json("pairs", "run", "--stability")["summary"]
    assert spread["pairs_stderr"] > 0
    assert 0 < spread["expected_jaccard"] < 1
    assert "From run to run" in shell("pairs", "run", "--stability")


def test_what_few_trials_cannot_say_is_said_in_words(shell: Shell) -> None:
    make_run(shell)
    text = shell("pairs", "run", "--permutations", "1")
    assert "one permutation does not say how much that varies" in text
    assert "nan" not in text
    make_run(shell, "--trials", "6", "--out", "few")
    found = shell.json("pairs", "few", "--cross-fit")
    values = [row["influence"] for row in found["pairs"] if row["influence"] is not None]
    assert found["summary"]["estimated"] == len(values) < len(found["pairs"])
    assert found["summary"]["mean_influence"] == pytest.approx(np.mean(values))
    text = shell("pairs", "few", "--cross-fit")
    assert f"The other half cannot give {len(found['pairs']) - len(values)} of them a value" in text
    assert "nan" not in text
    make_run(shell, "--trials", "3", "--out", "fewer")
    text = shell("pairs", "fewer", "--stability")
    assert "cannot be said: resampled runs select none" in text
    assert "nan" not in text


def test_a_spread_says_what_it_can() -> None:
    nan = float("nan")
    assert _said(Stability(20, 3.0, nan, nan, nan)).endswith("would select none, nor how many of them two runs share.")
    one = _said(Stability(20, 3.0, nan, 0.5, 0.1))
    assert "varies by 3.0 (standard deviation)" in one
    assert one.endswith("Jaccard index of 0.50 +- 0.10.")


def test_plan_for_more_trials(shell: Shell) -> None:
    make_run(shell)
    found = shell.json("plan", "--run", "run", "--stderr", "0.05", "--jaccard", "0.6", "--fdr", "0.1")
    assert set(found["targets"]) == {"stderr", "jaccard", "fdr"}
    assert found["targets"]["stderr"]["trials"] > 60
    assert found["targets"]["stderr"]["lemma_design_trials"] > found["targets"]["stderr"]["trials"]
    text = shell("plan", "--run", "run", "--stderr", "0.05", "--jaccard", "0.6")
    assert "trials of the design lemma" in text
    assert "another design, for which it guarantees nothing" in text
    assert "60 trials so far" in text


def test_the_lemma_is_claimed_for_its_own_design_alone(shell: Shell) -> None:
    make_run(shell, "--design", "lemma")
    assert shell.json("plan", "--run", "run")["lemma_applies"] is True
    assert "of the design lemma, which these are" in shell("plan", "--run", "run")
    make_run(shell, "--design", "repeats:20", "--out", "shared")
    assert "60 trials of 3 masks so far" in shell("plan", "--run", "shared")


def test_plan(shell: Shell) -> None:
    found = shell.json("plan", DATA, "--learner", "learner.py:learn", "--trials", "500", "--keep", "0.5")
    assert found["trials"] == 500
    assert found["seconds"] > 0
    assert found["largest_stderr"] == pytest.approx(0.5 * (2 / 250) ** 0.5)
    assert "disk" in shell("plan", DATA, "--learner", "learner.py:learn", "--no-pilot")
    assert not Path("runs").exists()
    options = (DATA, "--learner", "learner.py:learn", "--no-pilot", "--design", "uniform")
    assert shell.json("plan", *options)["largest_stderr"] is None
    assert "standard error" not in shell("plan", *options)


def test_plan_refuses_what_it_would_ignore(shell: Shell) -> None:
    make_run(shell)
    shell("plan", "--run", "run", "--trials", "500", "--design", "lemma", "--no-pilot", code=2)
    assert "more trials of its own kind; leave out --trials, --design, --pilot/--no-pilot." in shell.errors
    for option in ("--infl", "--stderr"):
        shell("plan", DATA, option, "0.1", code=2)
        assert f"give --run RUN, or leave out {option}." in shell.errors


def test_several_fractions_ask_which_one(shell: Shell) -> None:
    make_run(shell, "--keep", "0.5,0.8")
    shell("scores", "run", code=2)
    assert "--keep" in shell.errors
    assert shell.json("scores", "run", "--keep", "0.8")["train"][0]["trials_in"] > 15


def test_shards_divide_the_groups(shell: Shell) -> None:
    for part in ("1/3", "0/3"):
        status = make_run(shell, "--shard", part)
    assert status["trials"] == 40
    assert make_run(shell)["trials"] == 60


def test_version_and_help(shell: Shell) -> None:
    assert shell("--version").strip() == "0.1.0"
    assert "memfluence run digits" in shell("--help")
    for command in ("run", "plan", "status", "scores", "pairs", "report", "serve", "compare", "export", "import"):
        assert "--json" in shell(command, "--help")


def test_mislabels_and_duplicates(shell: Shell, tmp_path: Path) -> None:
    make_run(shell, "--record", "prediction")
    found = shell.json("mislabels", "run", "--top", "5", "--out", "mislabels.csv")
    assert found["trials"] == 60
    assert len(found["mislabels"]) == 5
    assert {"index", "label", "score", "suggestion", "agreement", "agreement_stderr"} <= set(found["mislabels"][0])
    assert len((tmp_path / "mislabels.csv").read_text().splitlines()) == 41  # all of them, and a header
    table = pd.read_csv(tmp_path / "mislabels.csv")
    believed = int(table["believed"].sum())
    assert found["believed"] == believed
    said = shell("mislabels", "run").splitlines()
    assert said[0].startswith(
        f"{believed} of 40 labels are believed to be wrong" if believed else "No label is believed"
    )
    rows = [line.split()[0] for line in said if line.split()[0].isdigit()][bool(believed) :]
    assert rows == [str(index) for index in table["index"][:believed]]  # cut there, not filled up
    pairs = shell.json("duplicates", "run", "--infl", "0.1", "--out", "pairs.parquet")
    assert pairs["summary"]["pairs"] >= len(pairs["duplicates"]) > 0
    lower = [row["lower"] for row in pairs["duplicates"]]
    assert lower == sorted(lower, reverse=True)
    assert "permuted masks" in shell("duplicates", "run")
    shell("mislabels", "run", "--images", "grid.png", code=2)
    assert "holds no images to draw" in shell.errors


def test_pictures_of_imported_trials_come_from_data(shell: Shell, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    mask = rng.random((40, 12)) < 0.7
    train, test = np.arange(12) % 2, np.arange(6) % 2
    right = mask | (np.arange(12) > 2)  # the first three labels are rejected by all models that did not see them
    outcomes = {"mask": mask, "train_correct": right, "test_correct": mask[:, :6]}
    np.savez(tmp_path / "trials.npz", **outcomes, train_labels=train, test_labels=test)
    pixels = rng.integers(0, 256, (12, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", x_train=pixels, y_train=train, x_test=pixels[:6], y_test=test)
    np.savez(tmp_path / "other.npz", x_train=pixels, y_train=1 - train, x_test=pixels[:6], y_test=test)
    shell("import", "trials.npz", "--out", "run")
    for command in ("mislabels", "duplicates"):
        shell(command, "run", "--images", "a.png", code=2)
        assert "does not say where its data are" in shell.errors
        shell(command, "run", "--images", "a.png", "--data", "npz:other.npz", code=2)
        assert "is not what run was made from" in shell.errors
        assert "pictures are in a.png" in shell(command, "run", "--images", "a.png", "--data", "npz:data.npz")
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
        (tmp_path / "a.png").unlink()


def test_attack(shell: Shell, tmp_path: Path) -> None:
    shell("run", DATA, "--trials", "40", "--keep", "0.5", "--record", "logit", "--out", "run", "--quiet")
    found = shell.json("attack", "run", "--figure", "roc.png", "--out", "examples.csv")
    assert (found["targets"], found["shadows"], found["variance"]) == (40, 39, "pooled")
    for variant in ("online", "offline"):
        assert 0.5 < found[variant]["auc"]["lower"] <= found[variant]["auc"]["value"] <= found[variant]["auc"]["upper"]
        assert set(found[variant]["tpr_at_fpr"]) == {"0.001", "0.01"}
    assert len(found["train"]) == 40
    assert (tmp_path / "roc.png").read_bytes().startswith(b"\x89PNG")
    assert "most vulnerable" in shell("attack", "run")
    shell("attack", "run", "--variance", "both", code=2)
    make_run_without = ("run", DATA, "--trials", "10", "--out", "plain", "--quiet")
    shell(*make_run_without)
    shell("attack", "plain", code=2)
    assert "has no column 'train_logit'; make a run with --record logit." in shell.errors


def test_groups(shell: Shell, tmp_path: Path) -> None:
    make_run(shell, "--groups", "class", "--keep", "0.6")
    found = shell.json("groups", "run", "--influence", "influence.npz", "--out", "groups.csv")
    assert [row["group"] for row in found["groups"]] == ["0", "1", "2"]
    assert sum(row["size"] for row in found["groups"]) == 40
    assert all(row["memorization"] > 0.5 for row in found["groups"])  # a class that nobody saw is never right
    with np.load(tmp_path / "influence.npz") as file:
        assert len(file["influence"]) == 3 * 30
    assert "test accuracy gain" in shell("groups", "run")
    shell("run", DATA, "--groups", "colour", "--out", "other", code=2)
    assert "choose one of class, flipped, subpopulation" in shell.errors
    shell("run", DATA, "--trials", "10", "--out", "plain", "--quiet")
    shell("groups", "plain", code=2)
    assert "has no groups" in shell.errors


def test_groups_travel_with_exported_trials(shell: Shell) -> None:
    """Eleven of them, so that their order is not that of their names; an old file without them is told from none."""
    np.save("sources.npy", np.arange(40) % 11)
    planned = shell.json("plan", DATA, "--learner", "learner.py:learn", "--groups", "sources.npy", "--no-pilot")
    assert planned["largest_stderr"] > 0
    shell("plan", DATA, "--groups", "colour", code=2)
    assert "no attribute 'colour'" in shell.errors
    make_run(shell, "--groups", "sources.npy", "--keep", "0.6")
    shell("plan", "--run", "run", "--groups", "class", code=2)
    assert "leave out --groups" in shell.errors
    shell("export", "run", "trials.npz", "--trials")
    shell("import", "trials.npz", "--out", "again")
    assert shell.json("groups", "again") == shell.json("groups", "run")
    assert shell.json("import", "trials.npz", "--out", "run")["added"] == 0
    with np.load("trials.npz") as file:
        arrays = dict(file)
    np.savez("old.npz", **{name: array for name, array in arrays.items() if not name.startswith("group")})
    shell("import", "old.npz", "--out", "old")
    shell("groups", "old", code=2)
    assert "does not say what its groups are; export the trials again" in shell.errors
    shell("export", "old", "older.npz", "--trials")  # as far as it knows
    for name, changed, says in (
        ("group", np.roll(arrays["group"], 1), "kept a part of a group"),
        ("group", arrays["group"] + 1, "positions in 'group_names'"),
        ("group_names", arrays["group_names"][:5], "positions in 'group_names'"),
        ("group", arrays["group"][:3], "has the shape (3,)"),
    ):
        np.savez("bad.npz", **{**arrays, name: changed})
        shell("import", "bad.npz", "--out", "bad", code=2)
        assert says in shell.errors
        assert not Path("bad").exists()


def test_ctrl_c_within_executed_text_ends_with_its_code(tmp_path: Path) -> None:
    """Python would end by the signal if it came while the text of a dataclass, say, was executed."""
    (tmp_path / "interrupted.py").write_text(
        "import memfluence.cli._app as cli\n"
        "cli.app = lambda **_: exec('raise KeyboardInterrupt')\n"
        "cli.main(['status', 'x'])\n"
    )
    command = [sys.executable, "-m", "interrupted"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "memfluence: Stopped.\n")
