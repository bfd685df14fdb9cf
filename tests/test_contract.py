"""What other people's scripts rely on, written down in contract.json: it may grow, and nothing in it may go away.

Commands with their arguments and options, the keys of each document that --json prints, the package's names; and here
the bytes of scores. A run of format 1 is kept in tests/store/format-1, where a test of the store reads it. After an
addition `PYTHONPATH=tests python tests/test_contract.py` writes contract.json anew; a line that this takes out breaks
somebody's script.
"""

import hashlib
import io
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import typer

import memfluence as mf
from exchange.trial_files import trials_file
from memfluence.cli import _app, main

CONTRACT = Path(__file__).with_name("contract.json")

WORLD = "longtail?n_train=60&n_test=80&n_classes=3&subpopulations=30&seed=1"
RUNS = f"""
run {WORLD} --trials 120 --set epochs=8 --record prediction,margin,logit --out small
run {WORLD} --trials 120 --set epochs=8 --seed 1 --out other
run {WORLD} --trials 64 --set epochs=4 --design bernoulli --keep 0.5 --out coins
run {WORLD} --trials 64 --set epochs=4 --design uniform:40 --out sizes
run {WORLD} --trials 64 --set epochs=4 --groups class --keep 0.6 --out grouped
run {WORLD} --trials 64 --set epochs=4 --shard 0/2 --out part
run {WORLD} --trials 64 --set epochs=4 --shard 1/2 --out torn
"""
DOCUMENTS = """
run digits --trials 600 --seed 7 --out digits
run digits --trials 8 --learner learner.py:learn --out failing
plan digits --trials 100
plan --run small --stderr 0.1 --jaccard 0.5 --fdr 0.1
status small
verify small --sample 1
merge whole part
compact whole
verify torn
repair torn
scores small
scores small --outcome margin
scores small --estimator adjusted
pairs small
pairs small --fdr 0.3 --mem -1
pairs small --cross-fit
pairs small --stability
mislabels small
duplicates small
groups grouped
attack small
report small
serve small --port 0
values coins
values sizes --kind shapley
values small --kind c-score
profile small 3
datamodels small --test 3
judge coins attributions.npy
experiment examples digits
experiment histogram small
experiment pairs digits
experiment consistency small
experiment thresholds small
experiment removal small --thresholds 0.2,0.4 --repeats 2 --mem 0.4
experiment utility small --repeats 2
experiment last-layer small --trials 30 --linear-set epochs=3 --infl 0.3
experiment long-tail --subpopulations 30 --sizes 60 --trials 32 --repeats 2 --epochs 1,4 --clips 0.1 \
--noises 0.5 --prunes 0.5 --weight-decays 0.1 --drops 0.2 --flips 0.2 --flip-worlds 2
reproduce digits --run digits --only histogram
compare small
compare small other
export small trials.npz --trials
import trials.npz --out imported
export small pairs.npz --pairs --mem 0 --infl 0.1
compare small pairs.npz --mem 0 --infl 0.1
compare small c-scores.npz
"""
LINES = DOCUMENTS.strip().splitlines()
CODES = {"run digits --trials 8 --learner learner.py:learn --out failing": 1, "verify torn": 1}  # the others: 0

UP_TO_COUNTS = ("index", "label", "memorization", "stderr", "lower", "upper", "accuracy_in", "accuracy_out")
COUNTS = ("trials_in", "trials_out")
SCORES_OF_DIGITS = "4a5f239fe63201538e3f40674cccdf3ca30a75f870d08c0095bb9ad751f80701"
COUNTS_OF_DIGITS = "1f8bbdf2fc7a4f7eb9d5784a418cb29c5a0a4283c79261e50bbb6c1dbb254e62"
SCORES_OF_A_FILE = "25b5d71ca8f99e43077aa57c1d5024bfcc63699a696cf67331c7cb3e17d8174e"
ARITHMETIC = "998c01ded81629c27b75884abc180773aed3c4d621cdd23abd547f34ec59198a"  # of torch, where digits have these


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contract")


@pytest.fixture(scope="module")
def printed(folder: Path) -> dict[str, Any]:
    with chdir(folder):
        return documents()


@pytest.fixture(scope="module")
def pinned() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(CONTRACT.read_text())
    return found


def test_the_package_keeps_its_names(pinned: dict[str, Any]) -> None:
    assert gone(pinned["python"], dir(mf)) == []
    for name in pinned["python"]:
        getattr(mf, name)
    assert gone(pinned["run"], dir(mf.Run)) == []


def test_commands_keep_their_arguments_and_options(pinned: dict[str, Any]) -> None:
    there = commands()
    assert gone(pinned["commands"], there) == []
    for command, names in pinned["commands"].items():
        assert gone(names, there[command]) == [], command


@pytest.mark.parametrize("line", LINES)
def test_documents_keep_their_keys(line: str, pinned: dict[str, Any], printed: dict[str, Any]) -> None:
    assert gone(pinned["json"][line], keys(printed[line])) == []


def test_scores_of_digits_are_the_same_bytes(printed: dict[str, Any], folder: Path) -> None:
    """Elsewhere torch may round otherwise, and some models with it get an example right that they get wrong here."""
    with chdir(folder):
        ask("scores", "digits", "--out", "digits.csv")
    assert digest(folder / "digits.csv", ("index", "label", *COUNTS)) == COUNTS_OF_DIGITS, "other masks were drawn"
    assert printed[LINES[0]]["accuracy_out"] == pytest.approx(0.9472, abs=0.002)
    if arithmetic() != ARITHMETIC:
        pytest.skip("torch's products round otherwise on this processor, or in this version: other bits are right here")
    assert digest(folder / "digits.csv", (*UP_TO_COUNTS, *COUNTS)) == SCORES_OF_DIGITS, (
        "torch computes what it did when this was pinned, and the same masks were drawn: the learner's steps, its"
        " streams of random numbers, the estimates or the CSV have changed"
    )


def test_scores_of_a_trials_file_are_the_same_bytes(tmp_path: Path) -> None:
    """No model is trained, so these bytes are the same on any processor."""
    trials_file(tmp_path / "trials.npz")
    with chdir(tmp_path):
        ask("import", "trials.npz", "--out", "run")
        ask("scores", "run", "--out", "scores.csv")
    assert digest(tmp_path / "scores.csv", (*UP_TO_COUNTS, *COUNTS)) == SCORES_OF_A_FILE


def test_keys_tell_names_from_data() -> None:
    document = {"train": [{"index": 0}, {"index": 1, "of": {"a host (cpu)": 3, "0.5": None}}], "none": []}
    assert list(keys(document)) == ["train", "train[].index", "train[].of", "train[].of.*", "train[].of.0.5", "none"]


# ---- what is there now


def gone(pinned: Sequence[str] | dict[str, Any], there: Sequence[str] | dict[str, Any]) -> list[str]:
    return [name for name in pinned if name not in there]


def documents() -> dict[str, Any]:
    """What the commands of DOCUMENTS print, read from JSON; their runs and files are made in the current directory."""
    Path("learner.py").write_text("def learn(x, y, seed):\n    raise ValueError('unlucky')\n")
    np.save("attributions.npy", np.zeros((60, 80)))
    for line in RUNS.strip().splitlines():
        ask(*line.split(), "--quiet")
    labels = mf.open("small").labels[0]
    np.savez("c-scores.npz", scores=np.linspace(0, 1, len(labels)), labels=labels)
    segment = next(Path("torn", "trials").iterdir())
    segment.write_bytes(segment.read_bytes()[:-9])
    with patch("memfluence.report.ReportServer.serve_forever"):
        return {line: json.loads(ask(*line.split(), "--json", code=CODES.get(line, 0))) for line in LINES}


def ask(*arguments: str, code: int = 0) -> str:
    """What a command prints, in this process."""
    printed, said = io.StringIO(), io.StringIO()
    with pytest.raises(SystemExit) as stop, redirect_stdout(printed), redirect_stderr(said):
        main(arguments)
    assert (stop.value.code or 0) == code, f"memfluence {' '.join(arguments)}: {said.getvalue()}"
    return printed.getvalue()


def keys(value: Any, where: str = "") -> list[str]:
    """The keys of a document with the way to each; one that is no word (a host, say) is data, and stands as *."""
    found: dict[str, None] = {}
    if isinstance(value, dict):
        for key, one in value.items():
            here = f"{where}.{key if re.fullmatch(r'[a-z0-9_.-]+', key) else '*'}".removeprefix(".")
            found |= dict.fromkeys([here, *keys(one, here)])
    elif isinstance(value, list):
        found = dict.fromkeys(key for one in value for key in keys(one, f"{where}[]"))
    return list(found)


def commands() -> dict[str, list[str]]:
    """Arguments (by the name that --help shows) and options of all commands."""
    return dict(_commands(typer.main.get_command(_app.app), "memfluence"))


def _commands(command: Any, name: str) -> Iterator[tuple[str, list[str]]]:
    given = [[*one.opts, *one.secondary_opts] if one.opts[0][0] == "-" else [one.metavar] for one in command.params]
    yield name, sorted(option for options in given for option in options)
    for sub, one in getattr(command, "commands", {}).items():
        yield from _commands(one, f"{name} {sub}")


def digest(table: Path, names: Sequence[str]) -> str:
    """Of some columns of a CSV, as text."""
    lines = [line.split(",") for line in table.read_text().splitlines()]
    chosen = [lines[0].index(name) for name in names]
    text = "\n".join(",".join(line[k] for k in chosen) for line in lines)
    return hashlib.sha256(text.encode()).hexdigest()


def arithmetic() -> str:
    """Digest of what torch makes of a few steps of a network, by calls of torch alone, on one thread.

    Its kernels are chosen by the processor, and each of them rounds in its own way.
    """
    rng = np.random.default_rng(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        shapes = ((32, 64, 64), (32, 64, 128), (32, 10, 128))
        x, first, last = (torch.from_numpy(rng.normal(size=shape).astype(np.float32)) / 8 for shape in shapes)
        for _ in range(10):
            hidden = torch.bmm(x, first).relu_()
            error = torch.softmax(torch.bmm(last, hidden.mT), 1)
            back = torch.bmm(error.mT, last) * (hidden > 0)
            last.baddbmm_(error, hidden, alpha=-0.01)
            first.baddbmm_(x.mT, back, alpha=-0.01)
            first += back.sum(1, keepdim=True) / 64
    finally:
        torch.set_num_threads(threads)
    return hashlib.sha256(first.numpy().tobytes() + last.numpy().tobytes()).hexdigest()


def contract() -> dict[str, Any]:
    """What contract.json holds. Of keys within keys the innermost are enough."""
    found = {line: keys(document) for line, document in documents().items()}
    inner = {
        line: [key for key in names if not any(other.startswith((f"{key}.", f"{key}[")) for other in names)]
        for line, names in found.items()
    }
    run = [name for name in dir(mf.Run) if not name.startswith("_")]
    return {"python": dir(mf), "run": run, "commands": commands(), "json": inner}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place, chdir(place):
        found = contract()
    CONTRACT.write_text(json.dumps(found, indent=1) + "\n")
