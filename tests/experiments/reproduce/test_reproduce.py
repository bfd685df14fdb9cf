"""From one command to one report: small, stopped, out of time, resumed, and refused."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memfluence as mf
from engines.commands import memfluence
from memfluence.engines import Event, TrialDone
from memfluence.engines.progress import Silent
from memfluence.errors import InputError, Interrupted
from memfluence.experiments.last_layer import linear_at_once
from memfluence.experiments.reproduce._subjects import SUBJECTS, chosen_parts, data_of, subject_of
from memfluence.learners import resolve
from memfluence.store import TrialStore

SMALL = "removal=2,utility=2,last-layer=20,second=24,histogram,consistency,architectures,thresholds,examples,pairs"
FAST = {"epochs": "20"}
pytestmark = pytest.mark.filterwarnings(
    "default::memfluence.errors.MemfluenceWarning"
)  # what few trials bring with them


def small(out: Path, **options: Any) -> dict[str, Any]:
    given = {"trials": 64, "only": SMALL, "settings": FAST, "out": out, "progress": False}
    return mf.reproduce("digits", **(given | options))


def test_one_call_leaves_one_report(tmp_path: Path) -> None:
    found = small(tmp_path / "out")
    text = (tmp_path / "out" / "reproduction.md").read_text()
    assert json.loads((tmp_path / "out" / "reproduction.json").read_text()) == found
    assert found["missing"] == {}
    for part in SMALL.split(","):
        part = part.partition("=")[0]
        if part != "second":
            assert f"(reproduction/{part}.png)" in text
            assert (tmp_path / "out" / "reproduction" / f"{part}.png").stat().st_size < 150_000
    assert "memorized examples hurt more than random ones" in text.lower()
    rows = {row["name"]: row for row in found["numbers"]}
    assert rows["run.trials"]["ours"]["mean"] == 64
    assert rows["utility.test.accuracy"]["ours"]["n"] == 2
    assert rows["run.accuracy_whole"]["ours"]["n"] == 2
    assert rows["last-layer.linear.trials"]["ours"]["mean"] == 20
    assert all(bool(row["reasons"]) == (row["difference"] not in ("same", "undecided")) for row in found["numbers"])
    assert rows["removal.memorized.cost_random"]["difference"] == "undecided"  # two models a side
    assert "| too few models to tell (± " in text
    assert found["data"]["title"] == "digits"
    assert "not tested" not in found["setting"]["network"]["tested"]
    assert "part architectures" in found["setting"]["network"]["tested"]
    assert found["setting"]["data"] == {"paper": "CIFAR-100", "ours": "digits", "differs": True, "tested": None}
    stores = [tmp_path / "out" / where for where in ("base", "second", "removal/trained", "last-layer/trained")]
    before = [sorted((store / "trials").iterdir()) for store in stores]
    assert small(tmp_path / "out") == found  # nothing is done twice
    assert [sorted((store / "trials").iterdir()) for store in stores] == before
    assert small(tmp_path / "out", trials=None, train=False) == found


def test_the_theory_has_its_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"exponents": [1.0], "subpopulations": [40], "sizes": [80], "trials": 32, "repeats": 2}
    limits = {"epochs": [1, 30], "clips": [0.1], "noises": [1.0], "weight_decays": [0.1], "prunes": [0.5]}
    limits |= {"drops": [0.2], "flips": [0.2], "flip_worlds": 2}
    monkeypatch.setitem(SUBJECTS, "digits", replace(SUBJECTS["digits"], chosen={"long-tail": one | limits}))
    found = small(tmp_path / "out", only="long-tail")
    text = (tmp_path / "out" / "reproduction.md").read_text()
    assert "have a mean memorization of" in text
    assert "with gradients clipped at 5 and noise of 1 times that, " in text
    for name in ("long-tail", "long-tail-flips"):
        assert f"(reproduction/{name}.png)" in text
        assert (tmp_path / "out" / "reproduction" / f"{name}.png").stat().st_size < 150_000
    assert "| memorization | 0." in text
    assert small(tmp_path / "out", only="long-tail", train=False) == found  # from what is kept
    assert (tmp_path / "out" / "reproduction.md").read_text() == text
    kept = tmp_path / "out" / "long-tail" / "long-tail.json"
    older = json.loads(kept.read_text())
    for name in ("clipping", "typical", "flips"):  # as results were before there was clipping
        del older["numbers"][name]
    kept.write_text(json.dumps(older))
    assert small(tmp_path / "out", only="long-tail")["missing"] == found["missing"] == {}
    assert "gradients" not in (tmp_path / "out" / "reproduction.md").read_text()


def test_leaving_one_out_belongs_to_the_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loo = {"loo": {"examples": 3, "repeats": 2}}
    monkeypatch.setitem(SUBJECTS, "digits", replace(SUBJECTS["digits"], chosen=loo))
    found = small(tmp_path / "out", only="loo")
    assert found["missing"] == {}
    assert "| memorization | 3 |" in (tmp_path / "out" / "reproduction.md").read_text()
    assert (tmp_path / "out" / "reproduction" / "loo.png").stat().st_size < 150_000
    assert not {"loo", "long-tail"} & set(chosen_parts(SUBJECTS["cifar100"], None))


def test_a_run_that_is_there_is_used(tmp_path: Path) -> None:
    base = mf.run("digits", settings=FAST, trials=64, out=tmp_path / "run", progress=False)
    other = mf.run("digits", settings={"epochs": "8"}, trials=40, seed=1, out=tmp_path / "other", progress=False)
    found = mf.reproduce(
        "digits", run=base.path, second_run=other.path, out=tmp_path / "out", budget="0", progress=False
    )
    assert not (tmp_path / "out" / "base").exists()
    assert {"histogram", "consistency", "architectures", "thresholds"} <= set(found["parts"])
    missing = found["missing"]["removal"]
    assert missing.startswith("Its models are not trained yet: 5 repeats of 13 models on all or most examples, about ")
    assert missing.endswith(" at the pace of the run; run it without `train=False`.")
    last = "Its models are not trained yet: a network on everything and 1000 linear models; run it without"
    assert found["missing"]["last-layer"].startswith(last)
    text = (tmp_path / "out" / "reproduction.md").read_text()
    assert f"- removal: {missing} (The paper's numbers: models" in text
    with pytest.raises(InputError, match="leave out `trials`"):
        mf.reproduce("digits", run=base.path, trials=50, out=tmp_path / "out", progress=False)


def test_an_experiment_without_a_heading_has_its_line_of_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What docs/architecture.md asks of an experiment is enough for its section."""
    base = mf.run("digits", settings=FAST, trials=64, out=tmp_path / "run", progress=False)
    for name in ("HEADING", "CAPTION", "report"):
        monkeypatch.delattr(mf.experiments.histogram, name, raising=False)
    mf.reproduce("digits", run=base.path, only="histogram", budget="0", out=tmp_path / "out", progress=False)
    text = (tmp_path / "out" / "reproduction.md").read_text()
    assert "## Influence of the pairs (Fig. 3)\n\n![Influence of the pairs (Fig. 3)](" in text


class Stopping(Silent):
    """Ctrl-C after so many trials."""

    left = 0

    def event(self, event: Event) -> None:
        if isinstance(event, TrialDone):
            Stopping.left -= 1
            if Stopping.left == 0:
                raise KeyboardInterrupt


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return small(tmp_path_factory.mktemp("whole"), only=STOPPED)


STOPPED = "removal=2,utility=2,last-layer=20"


def timeless(found: dict[str, Any]) -> str:
    """All but what depends on the directory and on the clock."""
    parts = {name: {**one, "numbers": dict(one["numbers"])} for name, one in found["parts"].items()}
    for name in ("representation", "speedup"):
        del parts["last-layer"]["numbers"][name]
    rows = [row for row in found["numbers"] if row["name"] != "last-layer.speedup"]
    return json.dumps({**found, "report": None, "parts": parts, "numbers": rows})


@pytest.mark.parametrize("after", [40, 64 + 5, 64 + 26 + 4 + 10])  # among the first trials, in removal, in last-layer
def test_stopped_and_called_again_it_goes_on(after: int, whole: dict[str, Any], tmp_path: Path) -> None:
    Stopping.left = after
    with pytest.raises(Interrupted, match="run the same command to go on"):
        small(tmp_path, only=STOPPED, progress=Stopping())
    done = len(TrialStore.open(tmp_path / "base").scan().numbers)
    assert 0 < done <= 64
    Stopping.left = 0
    assert timeless(small(tmp_path, only=STOPPED)) == timeless(whole)


class Over(Silent):
    """The end of the time, when so many trials are done."""

    after = 0

    def event(self, event: Event) -> None:
        if isinstance(event, TrialDone):
            Over.after -= 1
            if Over.after == 0:
                signal.raise_signal(signal.SIGALRM)


def test_out_of_time_it_says_what_is_missing_and_goes_on(tmp_path: Path) -> None:
    Over.after = 32  # one group
    with pytest.raises(Interrupted, match=r"The time was over after 32 of the 64 trials"):
        small(tmp_path, progress=Over())
    with pytest.raises(Interrupted, match=r"The time was over after 32 of the 64 trials"):
        small(tmp_path, budget="0.001s")
    small(tmp_path, only="examples")
    found = small(tmp_path, budget="0.001s")
    assert found["missing"]["utility"].startswith("There was not enough time")
    assert found["missing"]["histogram"].startswith("There was not enough time")
    assert set(found["parts"]) == {"examples"}
    assert small(tmp_path)["missing"] == {}


def test_linear_models_that_are_complete_when_the_time_is_over_are_kept(tmp_path: Path) -> None:
    small(tmp_path, only="histogram")
    Over.after = linear_at_once(60, "cpu")  # the group that is trained at once
    found = small(tmp_path, only="last-layer=120", progress=Over())
    there = TrialStore.open(tmp_path / "last-layer" / "trained").scan().numbers
    assert there.tolist() == list(range(linear_at_once(60, "cpu")))
    assert found["missing"]["last-layer"].startswith("Not all of its models are trained yet")


def test_a_network_that_the_end_of_the_time_stops_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(tmp_path, only="histogram")

    def stopped(*_: Any, **__: Any) -> Any:
        signal.raise_signal(signal.SIGALRM)
        raise AssertionError("the alarm is an interrupt")

    with monkeypatch.context() as patch:
        patch.setattr("memfluence.experiments.last_layer.represent", stopped)
        assert small(tmp_path, only="last-layer=20")["missing"]["last-layer"].endswith("run it without `train=False`.")
    assert small(tmp_path, only="last-layer=20")["missing"] == {}


def test_left_time_goes_into_more_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memfluence.experiments.reproduce._parts.LEAST", {"removal": 2, "utility": 2, "last-layer": 20})
    monkeypatch.setattr("memfluence.experiments.reproduce._parts.MOST", {"removal": 4, "utility": 5})
    found = small(tmp_path, only="removal,utility=3")
    assert found["parts"]["removal"]["settings"]["begun"] == [2, 4]
    assert found["parts"]["utility"]["settings"]["begun"] == [3]  # it was asked for 3


def test_parts_of_earlier_calls_stay_in_the_report(tmp_path: Path) -> None:
    small(tmp_path, only="removal=2")
    found = small(tmp_path, only="histogram")
    assert set(found["parts"]) == {"removal", "histogram"}
    read = small(tmp_path, only="removal,consistency", trials=None, train=False)
    assert set(read["parts"]) == {"removal", "histogram", "consistency"}
    assert read["parts"]["removal"] == found["parts"]["removal"]
    assert json.loads((tmp_path / "removal" / "plan.json").read_text())["settings"]["begun"] == [2]


def test_results_of_another_second_run_learner_or_seed_are_not_kept(tmp_path: Path) -> None:
    base = mf.run("digits", settings=FAST, trials=64, out=tmp_path / "run", progress=False).path
    others = [
        mf.run("digits", settings=FAST, trials=40, seed=seed, out=tmp_path / f"{seed}", progress=False).path
        for seed in (1, 2)
    ]
    given = {"run": base, "out": tmp_path / "out", "progress": False}

    def compared(other: Path) -> Any:
        found = mf.reproduce("digits", second_run=other, only="architectures", train=False, **given)
        return found["parts"]["architectures"]["numbers"]["lines"][1]

    first, second = (compared(other) for other in others)
    assert [line["run"] for line in (first, second)] == [str(other) for other in others]
    assert first["memorization"] != second["memorization"]
    only = {"only": "removal=2", "learner": "mlp", **given}
    quick = mf.reproduce("digits", settings={"epochs": "1"}, **only)
    assert "removal" in quick["parts"]
    for other in ({"settings": {"epochs": "2"}}, {"settings": {"epochs": "1"}, "seed": 1}):
        again = mf.reproduce("digits", **other, **only)  # type: ignore[arg-type]
        assert "removal" not in again["parts"]
        assert "another" in again["missing"]["removal"]
    read = mf.reproduce("digits", only="removal", train=False, **given)  # what is there, whoever trained it
    assert read["parts"]["removal"] == quick["parts"]["removal"]


def test_other_data_and_another_learner(tmp_path: Path) -> None:
    digits = mf.datasets.load("digits")
    labels = {f"y_{split}": digits.labels(split) for split in ("train", "test")}
    np.savez(tmp_path / "mnist.npz", x_train=digits.x_train, x_test=digits.x_test, **labels)
    found = mf.reproduce(
        "mnist",
        str(tmp_path / "mnist.npz"),
        learner="mlp",
        trials=64,
        only="removal=2,histogram,consistency",
        out=tmp_path / "out",
        progress=False,
    )
    rows = {row["name"]: row for row in found["numbers"]}
    assert rows["histogram.pairs"]["paper"]["value"] == 35
    assert "not small Inception" in rows["histogram.pairs"]["reasons"]["network"]
    file = "a file of 1,797 images named mnist.npz"
    assert found["data"] == {"title": "mnist.npz", "phrase": file, "how": None}
    assert rows["histogram.pairs"]["reasons"]["data"] == f"{file}, not MNIST (not tested)"
    text = (tmp_path / "out" / "reproduction.md").read_text()
    assert text.startswith(f"# The paper's experiments on {file}\n")
    assert f"The data are {file} and not recognised as MNIST or another known dataset" in text
    assert set(found["parts"]) == {"removal", "histogram", "consistency"}


def test_subjects() -> None:
    assert data_of(subject_of("mnist"), "files") == "mnist:files"
    assert data_of(subject_of("cifar100"), "c.npz") == "npz:c.npz"
    assert data_of(subject_of("cifar100"), "hf:cifar100") == "hf:cifar100"
    assert list(chosen_parts(SUBJECTS["digits"], "pairs, removal=3")) == ["removal", "pairs"]  # in the order of work
    assert "long-tail" not in chosen_parts(SUBJECTS["mnist"], None)
    for one in SUBJECTS.values():
        assert resolve(one.learner).name
        assert one.second is None or resolve(one.second, one.second_settings).name


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["svhn"], "There is nothing to reproduce for 'svhn'; there are digits, mnist, cifar100, imagenet."),
        (["mnist"], "Say where the data are: --data DIR with the files of mnist, or --data FILE.npz."),
        (["digits", "--data", "x"], "The digits are built in; leave out --data."),
        (["digits", "--budget", "soon"], "The budget must be a time such as 30m"),
        (["digits", "--only", "removel"], "There is no part 'removel' of this; there are removal, utility"),
        (["digits", "--only", "pairs=3"], "A number of models follows one of removal, utility"),
        (["digits", "--only", "removal=1"], "The part removal takes a number from 2 on. Got 'removal=1'."),
        (["digits", "--no-train"], "runs/reproduce-digits has no trials yet; run it without --no-train"),
        (["cifar100", "--data", "none.npz"], "none.npz"),
        (["digits", "--run", "nothing"], "There is no run at nothing"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    done = memfluence("reproduce", *arguments, cwd=tmp_path, expect=2)
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not (tmp_path / "runs").exists()


def test_runs_of_other_data_are_refused(tmp_path: Path) -> None:
    other = mf.run("longtail?n_train=40&n_test=30", trials=24, out=tmp_path / "run", progress=False)
    with pytest.raises(InputError, match="is not what"):
        mf.reproduce("digits", run=other.path, out=tmp_path / "out", progress=False)


def test_the_command_prints_a_table_or_json(tmp_path: Path) -> None:
    base = ("reproduce", "digits", "--out", "out", "--set", "epochs=8", "--trials", "64", "--only", "histogram")
    shown = memfluence(*base, "--report", "page.md", cwd=tmp_path)
    assert "pairs selected" in shown.stdout
    assert "64 trials" in shown.stderr  # the plan comes first
    assert (tmp_path / "page" / "histogram.png").is_file()
    assert "(page/histogram.png)" in (tmp_path / "page.md").read_text()
    found = json.loads(memfluence(*base, "--json", "--quiet", cwd=tmp_path).stdout)
    assert found["dataset"] == "digits"
