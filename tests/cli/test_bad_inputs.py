"""A page of bad inputs: one sentence on stderr, the right exit code, nothing written, nothing lost."""

import gzip
import json
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from memfluence.cli import main
from memfluence.cli._terminal import table


def run_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def snapshot(directory: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
        if "__pycache__" not in path.parts
    }


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def arrays(**changes: object) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    plain = {
        "x_train": rng.normal(size=(20, 3)),
        "y_train": np.arange(20) % 2,
        "x_test": rng.normal(size=(6, 3)),
        "y_test": np.arange(6) % 2,
    }
    return {**plain, **changes}  # type: ignore[dict-item]


def npz(**changes: object) -> Callable[[Path], None]:
    def write(here: Path) -> None:
        content = {name: value for name, value in arrays(**changes).items() if value is not None}
        np.savez(here / "data.npz", **content)  # type: ignore[arg-type]

    return write


def with_nan() -> np.ndarray:
    x = arrays()["x_train"]
    x[7, 1] = np.nan
    return x


def idx(name: str, shape: tuple[int, ...], claimed: tuple[int, ...] | None = None) -> Callable[[Path], None]:
    def write(here: Path) -> None:
        header = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *(claimed or shape))
        (here / name).write_bytes(header + bytes(int(np.prod(shape))))

    return write


def mnist(here: Path) -> None:
    for split, n in (("train", 4), ("t10k", 2)):
        idx(f"{split}-images-idx3-ubyte", (n, 28, 28))(here)
        idx(f"{split}-labels-idx1-ubyte", (n,))(here)


def mnist_that_claims_too_much(here: Path) -> None:
    mnist(here)
    idx("train-images-idx3-ubyte", (4, 28, 28), (4_000_000_000, 28, 28))(here)


def cifar_hostile(here: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {here / 'executed'}",)

    for name in ("train", "test", "meta"):
        (here / name).write_bytes(pickle.dumps({b"data": Evil(), b"fine_labels": [0]}))


def folder(here: Path) -> None:
    for split in ("train", "test"):
        for label in ("cat", "dog"):
            (here / split / label).mkdir(parents=True)
            for k in range(3):
                Image.fromarray(np.full((4, 4), 40 * k, np.uint8)).save(here / split / label / f"{k}.png")


def folder_with_text(here: Path) -> None:
    folder(here)
    (here / "train" / "cat" / "1.png").write_text("no image")


def folder_with_two_sizes(here: Path) -> None:
    folder(here)
    Image.fromarray(np.zeros((5, 4), np.uint8)).save(here / "train" / "cat" / "1.png")


def file(name: str, content: str) -> Callable[[Path], None]:
    return lambda here: (here / name).write_text(content) and None


def trials_npz(**changes: object) -> Callable[[Path], None]:
    def write(here: Path) -> None:
        rng = np.random.default_rng(0)
        content = {
            "mask": rng.random((5, 8)) < 0.7,
            "train_correct": rng.random((5, 8)) < 0.7,
            "test_correct": rng.random((5, 4)) < 0.7,
            "train_labels": np.arange(8) % 2,
            "test_labels": np.arange(4) % 2,
            **changes,
        }
        np.savez(here / "trials.npz", **{k: v for k, v in content.items() if v is not None})  # type: ignore[arg-type]

    return write


nothing: Callable[[Path], None] = lambda here: None  # noqa: E731

# (what is prepared, command, exit code, what stderr must say)
CASES: dict[str, tuple[Callable[[Path], None], list[str], int, str]] = {
    # data
    "unknown dataset": (nothing, ["run", "digit"], 2, "digits"),
    "missing npz": (nothing, ["run", "npz:nowhere.npz"], 2, "nowhere.npz"),
    "not an npz": (file("data.npz", "hello"), ["run", "npz:data.npz"], 2, "data.npz"),
    "wrong key": (npz(y_test=None), ["run", "npz:data.npz"], 2, "y_test"),
    "lengths disagree": (npz(y_train=np.arange(19) % 2), ["run", "npz:data.npz"], 2, "19"),
    "shapes disagree": (npz(x_test=np.zeros((6, 4))), ["run", "npz:data.npz"], 2, "shape"),
    "NaN": (npz(x_train=with_nan()), ["run", "npz:data.npz"], 2, "NaN"),
    "labels are fractions": (npz(y_train=np.linspace(0, 1, 20)), ["run", "npz:data.npz"], 2, "looks like a regression"),
    "labels of two kinds": (npz(y_test=np.array(list("ababab"))), ["run", "npz:data.npz"], 2, "strings"),
    "one class": (npz(y_train=np.zeros(20, int)), ["run", "npz:data.npz"], 2, "two classes"),
    "empty split": (npz(x_test=np.zeros((0, 3)), y_test=np.zeros(0, int)), ["run", "npz:data.npz"], 2, "empty"),
    "objects in an npz": (npz(x_train=np.array([{}] * 20, object)), ["run", "npz:data.npz"], 2, "data.npz"),
    "missing mnist": (nothing, ["run", "mnist:nowhere"], 2, "nowhere"),
    "an IDX header claims too much": (mnist_that_claims_too_much, ["run", "mnist:."], 2, "train-images"),
    "a gzip that is none": (
        lambda here: (
            mnist(here),
            (here / "train-images-idx3-ubyte").rename(here / "train-images-idx3-ubyte.gz"),
            None,
        )[2],
        ["run", "mnist:."],
        2,
        "train-images",
    ),
    "a cut gzip": (
        lambda here: (
            mnist(here),
            (here / "t10k-labels-idx1-ubyte").unlink(),
            (here / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(50))[:20]),
            None,
        )[3],
        ["run", "mnist:."],
        2,
        "t10k-labels",
    ),
    "a hostile pickle": (cifar_hostile, ["run", "cifar100:."], 2, "system"),
    "missing cifar": (nothing, ["run", "cifar10:."], 2, "data_batch"),
    "an image that is none": (folder_with_text, ["run", "folder:."], 2, "1.png"),
    "images of two sizes": (folder_with_two_sizes, ["run", "folder:."], 2, "size"),
    "no folders": (nothing, ["run", "folder:."], 2, "train"),
    "unknown option of a dataset": (nothing, ["run", "longtail?n_trian=4"], 2, "n_train"),
    "dataset option out of range": (nothing, ["run", "longtail?flip=2"], 2, "flip"),
    # options
    "keep above 1": (nothing, ["run", "digits", "--keep", "1.5"], 2, "keep"),
    "keep is a word": (nothing, ["run", "digits", "--keep", "most"], 2, "keep"),
    "keep too small": (nothing, ["run", "digits", "--keep", "0.0001"], 2, "keeps 0"),
    "too many trials": (nothing, ["run", "digits", "--trials", "1000000000000"], 2, "trials"),
    "keep with explicit masks": (
        lambda here: np.save(here / "m.npy", np.ones((3, 600), bool)),
        ["run", "digits", "--design", "explicit:m.npy", "--keep", "0.5"],
        2,
        "keep",
    ),
    "plan of nothing": (nothing, ["plan"], 2, "--run RUN"),
    "plan of both": (nothing, ["plan", "digits", "--run", "r"], 2, "--run RUN"),
    "a target without a run": (nothing, ["plan", "digits", "--jaccard", "0.5"], 2, "give --run"),
    "plan of a run that is not there": (nothing, ["plan", "--run", "r", "--stderr", "0.1"], 2, "no run at r"),
    "a null without a rate": (nothing, ["pairs", "r", "--null", "0.1"], 2, "--fdr"),
    "halves with a rate": (nothing, ["pairs", "r", "--cross-fit", "--fdr", "0.1"], 2, "leave out --fdr"),
    "plan without workers": (nothing, ["plan", "digits", "--workers", "0"], 2, "workers"),
    "a shard in superscript": (nothing, ["run", "digits", "--shard", "0/²"], 2, "shard"),
    "no trials": (nothing, ["run", "digits", "--trials", "0"], 2, "trials"),
    "trials is a word": (nothing, ["run", "digits", "--trials", "many"], 2, "--trials"),
    "no workers": (nothing, ["run", "digits", "--workers", "0"], 2, "workers"),
    "unknown design": (nothing, ["run", "digits", "--design", "random"], 2, "design"),
    "missing masks": (nothing, ["run", "digits", "--design", "explicit:no.npy"], 2, "no.npy"),
    "negative seed": (nothing, ["run", "digits", "--seed", "-1"], 2, "seed"),
    "bad shard": (nothing, ["run", "digits", "--shard", "3/3"], 2, "shard"),
    "shard is a word": (nothing, ["run", "digits", "--shard", "one"], 2, "shard"),
    "unknown engine": (nothing, ["run", "digits", "--engine", "slurm"], 2, "engine"),
    "local engine with workers": (nothing, ["run", "digits", "--engine", "local", "--workers", "2"], 2, "local"),
    "an address without a cluster": (nothing, ["run", "digits", "--address", "a:1"], 2, "--engine ray"),
    "gpus without a cluster": (nothing, ["run", "digits", "--gpus-per-worker", "1"], 2, "--engine ray"),
    "cpu workers with gpus": (
        nothing,
        ["run", "digits", "--engine", "ray", "--device", "cpu", "--gpus-per-worker", "1"],
        2,
        "--device cuda",
    ),
    "part of two gpus": (nothing, ["run", "digits", "--engine", "ray", "--gpus-per-worker", "1.5"], 2, "whole number"),
    "no part of a gpu": (
        nothing,
        ["run", "digits", "--engine", "ray", "--gpus-per-worker", "-1"],
        2,
        "--gpus-per-worker option",
    ),
    "a shard of no array": (nothing, ["run", "digits", "--shard", "auto"], 2, "--shard i/N"),
    "unknown device": (nothing, ["run", "digits", "--device", "tpu"], 2, "device"),
    "unknown record": (nothing, ["run", "digits", "--record", "loss"], 2, "loss"),
    "unknown option": (nothing, ["run", "digits", "--trails", "5"], 2, "--trails"),
    "unknown command": (nothing, ["rnu", "digits"], 2, "rnu"),
    "missing argument": (nothing, ["run"], 2, "DATASET"),
    # learners
    "unknown learner": (nothing, ["run", "digits", "--learner", "mpl"], 2, "mlp"),
    "unknown setting": (nothing, ["run", "digits", "--set", "epoch=3"], 2, "epochs"),
    "setting out of range": (nothing, ["run", "digits", "--set", "epochs=-3"], 2, "epochs"),
    "setting without a value": (nothing, ["run", "digits", "--set", "epochs"], 2, "NAME=VALUE"),
    "no learner file": (nothing, ["run", "digits", "--learner", "mine.py:learn"], 2, "mine.py"),
    "syntax error": (file("mine.py", "def learn(:\n"), ["run", "digits", "--learner", "mine.py:learn"], 2, "line 1"),
    "no such attribute": (
        file("mine.py", "def learn(x, y, seed): ...\n"),
        ["run", "digits", "--learner", "mine.py:laern"],
        2,
        "learn",
    ),
    "not a learner": (file("mine.py", "learn = 3\n"), ["run", "digits", "--learner", "mine.py:learn"], 2, "learn"),
    "a learner file that raises": (
        file("mine.py", "raise RuntimeError('no licence')\n"),
        ["run", "digits", "--learner", "mine.py:learn"],
        2,
        "no licence",
    ),
    "no module": (nothing, ["run", "digits", "--learner", "nowhere.at.all:learn"], 2, "nowhere"),
    # places
    "--out is a file": (file("thesis.tex", "mine"), ["run", "digits", "--out", "thesis.tex"], 2, "is a file"),
    "--out holds other files": (file("thesis.tex", "mine"), ["run", "digits", "--out", "."], 2, "thesis.tex"),
    "--out holds a folder called trials": (
        lambda here: (
            (here / "p" / "trials").mkdir(parents=True),
            (here / "p" / "trials" / "my.parquet").touch(),
            None,
        )[2],
        ["run", "digits", "--out", "p"],
        2,
        "trials",
    ),
    "no run": (nothing, ["scores", "nowhere"], 2, "nowhere"),
    "a run that is a file": (file("run", "mine"), ["status", "run"], 2, "run"),
    "nothing to compare": (nothing, ["compare", "nowhere.npz"], 2, "nowhere.npz"),
    "a file that is no result": (npz(), ["compare", "data.npz"], 2, "tr_mem"),
    # import
    "nothing to import": (nothing, ["import", "nowhere.npz", "--out", "run"], 2, "nowhere.npz"),
    "trials without masks": (trials_npz(mask=None), ["import", "trials.npz", "--out", "run"], 2, "mask"),
    "trials of two shapes": (
        trials_npz(test_correct=np.ones((4, 4))),
        ["import", "trials.npz", "--out", "run"],
        2,
        "shape",
    ),
    "outcomes that are no bits": (
        trials_npz(test_correct=np.full((5, 4), 0.5)),
        ["import", "trials.npz", "--out", "run"],
        2,
        "booleans",
    ),
    "the same number twice": (
        trials_npz(trial=np.zeros(5, int)),
        ["import", "trials.npz", "--out", "run"],
        2,
        "distinct",
    ),
    "a folder of nothing": (nothing, ["import", ".", "--out", "run"], 2, "aux_arrays"),
    "--out was forgotten": (trials_npz(), ["import", "trials.npz"], 2, "--out"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_sentence_and_nothing_written(case: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare, arguments, code, says = CASES[case]
    prepare(here)
    before = snapshot(here)
    got, out, err = run_command(arguments, capsys)
    assert got == code, err
    assert out == ""
    assert says in err
    assert err.startswith("memfluence: ")
    assert len(err.strip().splitlines()) == 1, err
    assert "Traceback" not in err
    assert snapshot(here) == before


@pytest.fixture
def a_run(here: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    npz()(here)
    file("mine.py", "def learn(x, y, seed):\n    return lambda z: y[:1].repeat(len(z))\n")(here)
    assert run_command(AGAIN, capsys)[0] == 0
    return here / "run"


AGAIN = [
    *("run", "npz:data.npz", "--learner", "mine.py:learn", "--trials", "6", "--out", "run", "--quiet"),
    *("--engine", "local"),  # no process of its own to wait for
]


def replaced(option: str, value: str) -> list[str]:
    arguments = [*AGAIN, option, value] if option not in AGAIN else list(AGAIN)
    arguments[arguments.index(option) + 1] = value
    return arguments


@pytest.mark.parametrize(
    ("change", "arguments", "says"),
    [
        (npz(x_test=np.zeros((6, 3))), AGAIN, "the data"),
        (file("mine.py", "def learn(x, y, seed):\n    return lambda z: y[-1:].repeat(len(z))\n"), AGAIN, "source"),
        (nothing, replaced("--learner", "mlp"), "the learner"),
        (nothing, replaced("--seed", "1"), "the plan's seed (0 there, 1 asked)"),
        (nothing, replaced("--keep", "0.5"), "the plan's keep"),
        (nothing, replaced("--design", "lemma"), "the plan's design"),
        (nothing, replaced("--record", "prediction"), "what is recorded"),
    ],
)
def test_a_run_of_something_else_is_refused(
    a_run: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], None], arguments: list[str], says: str
) -> None:
    change(a_run.parent)
    before = snapshot(a_run)
    code, out, err = run_command(arguments, capsys)
    assert (code, out) == (2, "")
    assert "holds a different run" in err
    assert says in err
    assert len(err.strip().splitlines()) == 1
    assert snapshot(a_run) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pairs", "run", "--mem", "2"], "mem"),
        (["pairs", "run", "--infl", "x"], "--infl"),
        (["scores", "run", "--keep", "0.3"], "keep"),
        (["scores", "run", "--out", "scores.xlsx"], ".csv, .parquet or .npz"),
        (["export", "run", "trials.zip", "--trials"], ".npz"),
        (["export", "run", "x.npz", "--trials", "--pairs"], "one of"),
        (["report", "run", "--out", "data.npz"], "data.npz"),
        (["compare", "run", "nowhere"], "nowhere"),
    ],
)
def test_reading_a_run_in_ways_that_it_has_not(
    a_run: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    before = snapshot(a_run.parent)
    code, out, err = run_command(arguments, capsys)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.strip().splitlines()) == 1
    assert snapshot(a_run.parent) == before


def test_a_run_that_has_no_trials_becomes_what_is_asked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Advice like 'leave it out of --record' can be followed with the same --out."""
    npz()(here)
    file("mine.py", "def learn(x, y, seed):\n    return lambda z: y[:1].repeat(len(z))\n")(here)
    code, _, err = run_command([*AGAIN, "--record", "margin"], capsys)
    assert code == 2
    assert "--record" in err
    assert run_command(AGAIN, capsys)[0] == 0
    assert run_command([*AGAIN, "--record", "prediction"], capsys)[0] == 2  # now it has trials


@pytest.mark.parametrize("how", ["flipped", "cut"])
def test_a_damaged_segment_is_named_and_left_out_of_scores(
    a_run: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    segment = next((a_run / "trials").iterdir())
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 4
    segment.write_bytes(bytes(content) if how == "flipped" else bytes(content[:-5]))
    before = snapshot(a_run)
    code, out, err = run_command(["scores", "run", "--json"], capsys)
    assert (code, out) == (2, "")
    assert segment.name in err  # the note that names it
    assert "no trials" in err  # the error: nothing else is left
    assert snapshot(a_run) == before
    code, out, err = run_command(["status", "run", "--json"], capsys)
    assert json.loads(out)["damaged"][0]["path"].endswith(segment.name)


def test_two_conflicting_records_of_one_trial(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trials_npz(trial=np.arange(5), plan=np.asarray("p"))(here)
    assert run_command(["import", "trials.npz", "--out", "run"], capsys)[0] == 0
    trials_npz(trial=np.arange(5), plan=np.asarray("p"), test_correct=np.zeros((5, 4), bool))(here)
    before = snapshot(here / "run")
    code, out, err = run_command(["import", "trials.npz", "--out", "run"], capsys)
    assert (code, out) == (1, "")
    assert "another record of trial 0" in err
    assert snapshot(here / "run") == before


@contextmanager
def as_somebody_else(path: Path) -> Iterator[None]:
    """Root may write anywhere; be a user for whom permissions count, who can pass through to `path`."""
    for parent in [path, *path.parents][:4]:
        parent.chmod(parent.stat().st_mode | 0o755)
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_read_only_directory(a_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    locked = a_run.parent / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    before = snapshot(a_run.parent)
    with as_somebody_else(a_run.parent):
        made = run_command(replaced("--out", "locked/run"), capsys)
        grown = run_command(replaced("--trials", "12"), capsys)
    for code, out, err in (made, grown):
        assert (code, out) == (1, "")
        assert "Permission denied; this user may not do that: change its permissions or choose another --out" in err
        assert len(err.strip().splitlines()) == 1
    assert snapshot(a_run.parent) == before


def test_a_full_disk(a_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A limit on file sizes stands in for a disk that fills up while a segment is written."""
    import resource

    before = snapshot(a_run / "trials")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, limits[1]))
        code, _, err = run_command(replaced("--trials", "12"), capsys)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 1
    assert "disk is full" in err
    assert snapshot(a_run / "trials") == before
    assert run_command(replaced("--trials", "12"), capsys)[0] == 0


def test_debug_shows_the_traceback(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "memfluence", "scores", "nowhere", "--debug"],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["plot", "RUN"], "memfluence --help"),
        (["experiment", "nope"], "memfluence experiment --help"),
        (["report", "--nope"], "memfluence report --help"),
    ],
)
def test_help_is_named_that_there_is(
    arguments: list[str], where: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, errors = run_command(arguments, capsys)
    assert code == 2
    assert errors.endswith(f"See '{where}'.\n")


def test_a_label_does_not_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    table(["index", "label"], [[1, "two\nlines"], [2, "\x1b[31mred\u202e"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["index      label", "    1  two lines", "    2  \ufffd[31mred\ufffd"]
