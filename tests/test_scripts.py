"""Every script that README, the documentation or the Makefile name runs, at a size of seconds.

The scripts run in the process of the tests where they can, because importing takes most of the time of a small size.
Those that need a GPU must say so in one sentence. Some scripts have tests of their own, which look at what they find.
"""

import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import memfluence as mf

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "Makefile", *ROOT.glob("docs/**/*.md")]
ELSEWHERE = {
    "benchmarks/faults.py": "tests/store/upkeep/test_fault_campaign.py",
    "benchmarks/soak.py": "tests/store/upkeep/test_soak.py",
    **{f"deploy/{name}": "tests/test_deploy.py" for name in ("gnu-parallel.sh", "ray-cluster.sh", "slurm-array.sh")},
}
NEEDS_CUDA = ["benchmarks/limits.py", "benchmarks/norm.py", "benchmarks/train.py"]


def named_scripts() -> set[str]:
    """Every script of these folders that a page names, and every script beside the pages."""
    found = set(
        re.findall(r"\b(?:benchmarks|docs|deploy)/\w[\w-]*\.(?:py|sh)\b", "\n".join(p.read_text() for p in PAGES))
    )
    return found | {f"docs/{path.name}" for path in ROOT.glob("docs/*.py")}


def run(script: str, *arguments: object) -> str:
    """Run the script as its command would, in this process; what it prints."""
    with pytest.MonkeyPatch.context() as patch, threadpool_limits(1), redirect_stdout(io.StringIO()) as printed:
        patch.setattr(sys, "argv", [script, *map(str, arguments)])
        patch.syspath_prepend(str((ROOT / script).parent))
        runpy.run_path(str(ROOT / script), run_name="__main__")
    return printed.getvalue()


def run_alone(script: str, *arguments: object) -> None:
    """Run the script in a process of its own, if it needs what a process has once, such as Ray or an event loop."""
    command = [sys.executable, ROOT / script, *arguments]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def written(path: Path) -> Any:
    return json.loads(path.read_text())


def estimate(out: Path) -> None:
    run("benchmarks/estimate.py", "--scale", 0.01, "--repetitions", 1, "--results", out)
    found = written(out / "estimate.json")
    assert set(found) >= {"mnist", "cifar100", "imagenet_classes"}
    assert found["imagenet_classes"]["wrong"] == found["mnist"]["store"]["wrong"] == 0


def estimate_on_a_device(out: Path) -> None:
    device = ("--device", "cpu:0")  # torch's CPU counts as a GPU counts
    run("benchmarks/estimate.py", "--imagenet", *device, "--scale", 0.01, "--repetitions", 1, "--results", out)
    same = written(out / "estimate_gpu.json")["cpu_slice"]["same"]
    assert all(same.values())


def batched_mlp(out: Path) -> None:
    sizes = ("--trials", 64, "--plain", 2, "--repeats", 1)
    run("benchmarks/batched_mlp.py", *sizes, "--out", out / "found.json")
    found = written(out / "found.json")
    assert found["memfluence"]["models"] == 64
    assert found["plain_loop"][0]["models"] == 2


def counting(out: Path) -> None:
    run("benchmarks/counting.py", "--scale", 0.01, "--repeats", 1, "--out", out / "found.json")
    for case in written(out / "found.json")["cases"].values():
        assert set(case["factor_per_core"]) == {"popcount", "adders", "ours"}


def engines(out: Path) -> None:
    files = ("--out", out / "found.json", "--figure", out / "figure.png")
    sizes = ("--nothing", 320, "--trials", 32, "--repeats", 1, "--engines", "local", "ray")
    run_alone("benchmarks/engines.py", *sizes, *files)
    assert {row["engine"] for row in written(out / "found.json")["rows"]} == {"local", "ray"}
    assert (out / "figure.png").stat().st_size > 1000


def explorer(out: Path) -> None:
    need_a_browser()
    run_alone("benchmarks/explorer.py", "--examples", 300, "--repeats", 1, "--out", out / "found.json")
    found = written(out / "found.json")
    assert (found["n_train"], found["n_test"]) == (300, 60)
    assert found["scroll_index_reading"]["frames"] > 0


def mislabels(out: Path) -> None:
    assert run("benchmarks/mislabels.py", "--trials", 16).count("| 16 | agreement |") == 2


def recording(out: Path) -> None:
    printed = run("benchmarks/recording.py", "--trials", 4, "--rounds", 1)
    assert [row.split(" | ")[0] for row in printed.splitlines()[2:]] == [
        "| mlp",
        "| logistic regression",
        "| random forest, 50 trees",
    ]


def mislabels_of_tables(out: Path) -> None:
    tiny = ("--tables", "wine", "--learners", "naive Bayes", "--shares", 0.1, "--seeds", 1, "--trials", 12)
    printed = run("benchmarks/mislabels.py", *tiny, "--out", out / "rows.json")
    assert run("benchmarks/mislabels.py", "--show", out / "rows.json") == printed
    head, _, row = (line.split(" | ") for line in printed.splitlines()[:3])
    assert row[:3] == ["| wine", "naive Bayes", "10%"]
    assert all(0 < float(area) <= 1 for area in row[3 : head.index("believed / flipped")])
    assert "Means of all rows: ours 0." in printed or "Means of all rows: ours 1." in printed


def recipes(out: Path) -> None:
    pairs = np.arange(0, 40, 2), np.arange(20)
    np.savez(out / "published.npz", tr_idx=pairs[0], tt_idx=pairs[1])
    given = ("digits", "mlp epochs=1", "--published", out / "published.npz", "--out", out / "found")
    run("benchmarks/recipes.py", *given, "--trials", 32)
    assert "| mlp epochs=1 | 64 |" in run("benchmarks/recipes.py", *given, "--trials", 64)  # goes on
    (row,) = written(out / "found" / "recipes.json")
    same = mf.run("digits", learner="mlp", settings={"epochs": 1}, trials=64, out=out / "run", progress=False)
    assert row["test"] == pytest.approx(same.status()["test_accuracy"])
    estimates = same.influence_estimates().at(*pairs)
    assert row["influence"] == pytest.approx(estimates.value.mean())
    assert row["influence_stderr"] > 0


def explained(out: Path) -> None:
    page = out / "variance.md"
    page.write_text("Before.\n<!-- limit -->\nold\n<!-- end of limit -->\nAfter.\n")
    mf.run("digits", trials=40, design="repeats:4", out=out / "run", progress=False)
    pairs = [mf.run("digits", trials=12, settings={"epochs": n}, out=out / f"{n}", progress=False).path for n in (1, 2)]
    given = ("--digits", out / "run", "--cifar100", *pairs, "--masks", 10)
    files = ("--docs", page, "--out", out / "found.json", "--image", out / "limit.png")
    run("benchmarks/explained.py", *given, *files)
    assert list(written(out / "found.json")) == ["longtail, noiseless", "longtail, noisy", "digits", "CIFAR-100"]
    assert "| longtail, noiseless | influence | 100.0% ± 0.0% | 0.00 |" in page.read_text()
    assert "| CIFAR-100 | influence | at least " in page.read_text()
    assert page.read_text().endswith("After.\n")
    assert (out / "limit.png").stat().st_size > 1000


def scale(out: Path) -> None:
    run_alone("benchmarks/scale.py", "--scale", 0.001, "--out", out / "found.json")
    found = written(out / "found.json")
    assert {name.partition(":")[0] for name in found if ":" in name} == {"trials", "segments", "wide", "classes"}
    assert all(found[name]["ratio"] > 0 for name in found if ":" in name)


def variance(out: Path) -> None:
    page = out / "variance.md"
    page.write_text("Before.\n<!-- tables -->\nold\n<!-- end of tables -->\nAfter.\n")
    file = out / "trials.npz"
    rng = np.random.default_rng(0)
    np.savez(
        file,
        mask=np.argsort(rng.random((40, 30)), axis=1) < 20,
        train_correct=rng.random((40, 30)) < 0.7,
        test_correct=rng.random((40, 20)) < 0.7,
        train_labels=np.arange(30) % 3,
        test_labels=np.arange(20) % 3,
    )
    given = ("--cifar100", f"small={file}", "--docs", page, "--out", out / "found.json")
    run("benchmarks/variance.py", "--tiny", *given)
    assert set(written(out / "found.json")) == {"longtail, noiseless", "longtail, noisy", "CIFAR-100 (small)"}
    assert "| fixed, 60 | plain | 1.00" in page.read_text()
    assert page.read_text().endswith("After.\n")


def judge_digits(out: Path) -> None:
    page = Path(shutil.copy(ROOT / "docs/values.md", out))
    run("docs/judge_digits.py", "--trials", 40, "--runs", out / "runs", "--page", page)
    assert page.read_text().count("40 trials a run") == 4


def make_figures(out: Path) -> None:
    run("docs/make_figures.py", "--trials", 60, "--images", out)
    assert (out / "digits-pairs.png").stat().st_size > 1000


def make_screenshots(out: Path) -> None:
    need_a_browser()
    made = mf.run("digits", trials=40, record="prediction", out=out / "run", progress=False)
    made.report(out / "site")
    run_alone("docs/make_screenshots.py", out / "site", out / "site", "--images", out)
    assert len(list(out.glob("explorer-*.png"))) == 8


def make_tables(out: Path) -> None:
    before = (ROOT / "docs/statistics.md").read_text()
    page = Path(shutil.copy(ROOT / "docs/statistics.md", out))
    run("docs/make_tables.py", "--tiny", "--docs", out)
    assert page.read_text().count("<!-- table") == before.count("<!-- table")
    assert page.read_text() != before


def make_table_of_cifar100(out: Path) -> None:
    (out / "results").mkdir()
    made = mf.run("digits", trials=60, out=out / "run", progress=False)
    trials, pairs = out / "trials.npz", made.find_pairs()
    mf.export_trials(made, trials)
    np.savez(out / "published.npz", tr_idx=pairs.train_index, tt_idx=pairs.test_index)
    run("docs/make_tables.py", "cifar100", "--trials", trials, "--published", out / "published.npz", "--docs", out)
    assert "from 60\ntrials" in (out / "results" / "cifar100-pairs.md").read_text()


def simulate_cluster(out: Path) -> None:
    assert "2 x 1,000 + 100 bits" in run("docs/simulate_cluster.py", "--repeats", 1, "--n-train", 1000, "--n-test", 100)


RUNS: dict[str, list[Callable[[Path], None]]] = {
    "benchmarks/batched_mlp.py": [batched_mlp],
    "benchmarks/counting.py": [counting],
    "benchmarks/engines.py": [engines],
    "benchmarks/explained.py": [explained],
    "benchmarks/estimate.py": [estimate, estimate_on_a_device],
    "benchmarks/explorer.py": [explorer],
    "benchmarks/mislabels.py": [mislabels, mislabels_of_tables],
    "benchmarks/recipes.py": [recipes],
    "benchmarks/recording.py": [recording],
    "benchmarks/scale.py": [scale],
    "benchmarks/variance.py": [variance],
    "docs/judge_digits.py": [judge_digits],
    "docs/make_figures.py": [make_figures],
    "docs/make_screenshots.py": [make_screenshots],
    "docs/make_tables.py": [make_tables, make_table_of_cifar100],
    "docs/simulate_cluster.py": [simulate_cluster],
}


def need_a_browser() -> None:
    pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install '.[dev]'")
    if not (os.environ.get("MEMFLUENCE_CHROMIUM") or shutil.which("chromium")):
        pytest.skip("there is no Chromium; install it, or name one in MEMFLUENCE_CHROMIUM")


@pytest.mark.parametrize("what", [one for some in RUNS.values() for one in some], ids=lambda one: one.__name__)
def test_a_script_runs(what: Callable[[Path], None], tmp_path: Path) -> None:
    what(tmp_path)


@pytest.mark.parametrize("script", NEEDS_CUDA)
def test_a_script_for_a_gpu_says_so_in_one_sentence(script: str) -> None:
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, ROOT / script], env=hidden, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.endswith(f"{Path(script).name}: error: this benchmark needs a CUDA device\n")


def test_every_script_that_is_named_has_a_test() -> None:
    assert named_scripts() == {*RUNS, *NEEDS_CUDA, *ELSEWHERE}
    for test in ELSEWHERE.values():
        assert (ROOT / test).exists()
