"""What makes a function another learner, and what does not."""

import functools
import importlib
import json
import os
import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import identified_learners
import numpy as np
import pytest
import torch
from identified_learners import LEARNERS, Trainer, make
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import FunctionTransformer

import memfluence as mf
from memfluence.errors import MemfluenceError, MemfluenceWarning, RunMismatchError
from memfluence.learners import FunctionLearner, resolve, up_to_date

FACTOR = 3


def described(function: Any) -> dict[str, Any]:
    return FunctionLearner(function).describe()


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Write a module of the user's and import it; forgotten after the test."""
    monkeypatch.syspath_prepend(tmp_path)
    modules = set(sys.modules)

    def writer(name: str, source: str) -> ModuleType:
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
        importlib.invalidate_caches()
        dotted = name.replace("/", ".")
        sys.modules.pop(dotted, None)
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        try:
            return importlib.import_module(dotted)
        finally:
            sys.dont_write_bytecode = before

    yield writer
    for name in set(sys.modules) - modules:
        if name.startswith(("mine", "memfluence_learner_")):
            del sys.modules[name]


def test_a_fresh_process_calls_every_function_the_same() -> None:
    command = [sys.executable, str(Path(identified_learners.__file__))]
    environment = os.environ | {"PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"}
    elsewhere = subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout
    here = {name: described(function) for name, function in LEARNERS.items()}
    for name, found in json.loads(elsewhere).items():
        assert found == here[name], name
    assert " at 0x" not in elsewhere


def test_functions_that_differ_in_anything_are_others() -> None:
    texts = {name: json.dumps(described(function), sort_keys=True) for name, function in LEARNERS.items()}
    assert len(set(texts.values())) == len(texts)
    unknown = {"callable with a lock": ["lock"], "functions": ["closed"], "objects": ["closed"]}
    unknown["globals"] = ["FUNCTIONS_AND_MORE"]  # sets and arrays of anything but plain values
    found = {name: described(function).get("not_identified") for name, function in LEARNERS.items()}
    assert {name: told for name, told in found.items() if told} == unknown
    assert max(map(len, texts.values())) < 5000


def closing_over(value: Any) -> Any:
    return lambda x, y, seed: value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        ((1, 2), (2, 1)),
        ({1: "a"}, {"1": "a"}),
        ({1, 2}, [1, 2]),
        (np.zeros(3), np.zeros((3, 1))),
        (np.zeros(3), np.zeros(3, np.int64)),
        (np.float32(0.5), np.float64(0.5)),
        (torch.zeros(2), torch.ones(2)),
        (PCA(2), PCA(3)),
        (PCA(2).fit(np.eye(4)), PCA(2).fit(np.eye(4)[::-1] * 2)),
        (FunctionTransformer(make(1)), FunctionTransformer(make(2))),
        (functools.partial(make, 1), functools.partial(make, closed=1)),
        (Trainer(0.1).train, Trainer(0.1).helper),
        (SimpleNamespace(rate=1), SimpleNamespace(rate=2)),
        (np, torch),
        (len, sum),
        (np.exp, np.log),
        ([make(1), make(2), make(1)], [make(1), make(2), make(2)]),
        (list(range(1000)), [*range(999), 0]),
    ],
)
def test_values_that_differ(one: Any, other: Any) -> None:
    told = [json.dumps(described(closing_over(value)), sort_keys=True) for value in (one, other)]
    assert told[0] != told[1]
    assert "not_identified" not in told[0]


def test_sharing_a_function_is_not_having_two_of_a_name() -> None:
    one, two = make(1), make(2)
    assert described(make([one, two, one])) != described(make([one, two, two]))


@pytest.mark.parametrize(
    ("make_value", "name"),
    [
        (threading.Lock, "value"),
        (lambda: SimpleNamespace(rate=1, lock=threading.Lock()), "value.lock"),
        (lambda: [1, threading.Lock()], "value[1]"),
        (lambda: (k for k in [1]), "value"),
        (lambda: np.random.default_rng(), "value"),
        (lambda: torch.device(random.choice(["cpu", "cuda"])), "value"),
        (lambda: os.environ, "value"),
        (lambda: random.shuffle, "value.self"),
        (lambda: Trainer(0.5, threading.Lock()), "value.lock"),
        (lambda: threading.Timer(random.random(), print), "value"),  # a resource, with a number of its own
    ],
)
def test_what_cannot_be_told_is_named_and_does_not_stand_in_the_way(make_value: Any, name: str) -> None:
    found = described(closing_over(make_value()))
    assert found["not_identified"] == [name]
    assert described(closing_over(make_value())) == found


def test_what_is_beside_the_unknown_still_counts() -> None:
    def learner(rate: float) -> dict[str, Any]:
        return described(closing_over(SimpleNamespace(rate=rate, lock=threading.Lock())))

    assert learner(1) == learner(1) != learner(2)
    assert described(Trainer(0.1, threading.Lock())) != described(Trainer(0.2, threading.Lock()))


def test_a_function_met_inside_something_unknown_is_still_told() -> None:
    def learner(k: int) -> dict[str, Any]:
        helper = make(k)
        return described(closing_over([threading.Timer(1, helper), helper]))

    assert learner(1) == learner(1) != learner(2)


def test_values_that_contain_themselves() -> None:
    def loop(end: int) -> list[Any]:
        values: list[Any] = [end]
        values.append(values)
        return values

    assert described(closing_over(loop(1))) == described(closing_over(loop(1))) != described(closing_over(loop(2)))
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert len(described(closing_over(deep))["not_identified"]) == 1


def test_what_a_function_sets_itself_is_not_part_of_it() -> None:
    calls, limit = 0, 5

    def train(x: Any, y: Any, seed: int) -> Any:
        nonlocal calls
        calls += 1
        return limit

    before = described(train)
    assert before["not_identified"] == ["calls"]
    train(0, 0, 0)
    assert described(train) == before
    limit = 6
    assert described(train) != before


def test_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: described(LEARNERS[name]) for name in ("recursive", "decorated", "bound", "globals", "a number")}
    monkeypatch.setattr(identified_learners, "EPOCHS", 4)  # used by `other`, `cached`, `Trainer.doubled`
    assert {name for name in before if described(LEARNERS[name]) == before[name]} == {"a number"}
    monkeypatch.undo()
    monkeypatch.setattr(Trainer, "scale", 3)
    assert {name for name in before if described(LEARNERS[name]) != before[name]} == {"bound"}


def test_modules_of_the_users(write: Any) -> None:
    """One that is used whole counts by its file, a function from one by its code and what that reaches."""
    write("mine_deeper", "def depth(): return 1\n")
    source = "from mine_deeper import depth\nRATE = UNUSED = 1\ndef build(): return RATE + depth()\n"
    helpers = write("mine_helpers", source)
    whole = "import mine_helpers\ndef train(x, y, seed): return mine_helpers.build()\n"
    part = "from mine_helpers import build\ndef train(x, y, seed): return build()\n"

    def told() -> list[dict[str, Any]]:
        return [described(write("mine_main", text).train) for text in (whole, part)]

    before = told()
    assert before == told()
    helpers.UNUSED = 2
    assert before == told()
    helpers.RATE = 2
    assert [one == other for one, other in zip(told(), before)] == [True, False]
    helpers.RATE = 1
    helpers.depth = write("mine_deeper", "# a comment\ndef depth():\n    return 1\n").depth
    assert before == told()
    helpers.depth = write("mine_deeper", "def depth(): return 2\n").depth
    assert [one == other for one, other in zip(told(), before)] == [True, False]
    write("mine_helpers", f"# a comment\n{source}").depth = write("mine_deeper", "def depth(): return 1\n").depth
    assert [one == other for one, other in zip(told(), before)] == [False, True]


def test_modules_that_are_imported_inside(write: Any) -> None:
    write("mine_helpers", "RATE = 1\n")
    write("mine_package/__init__", "")
    write("mine_package/part", "")
    main = write(
        "mine_main",
        "def train(x, y, seed):\n    import numpy, mine_helpers, no_such_module\n    import mine_package.part as p\n"
        "    from mine_package import part\n",
    )
    before = described(main.train)
    assert [one["module"] for one in before["function"]["imports"]] == [
        "mine_helpers",
        "mine_package",
        "mine_package.part",
    ]
    assert before["not_identified"] == ["import mine_package", "import mine_package.part"]
    del sys.modules["mine_helpers"]  # whether it has been imported yet makes no difference
    assert described(main.train) == before
    write("mine_helpers", "RATE = 2\n")
    assert described(main.train) != before


def test_where_code_is_written_makes_no_difference(write: Any) -> None:
    source = "def train(x, y, seed):\n    return lambda inputs: {'a', 'b'}\n"
    before = described(write("mine", source).train)
    assert described(write("mine", f"\n\n# a comment\n{source}").train) == before
    module = write("mine", source)
    (Path(module.__file__)).write_text("something else")  # what runs is what was imported
    assert described(module.train) == before
    assert described(write("mine", source.replace("'b'", "'c'")).train) != before


def test_a_learner_of_a_file_is_the_file_and_the_attribute(tmp_path: Path, write: Any) -> None:
    path = tmp_path / "mine_file.py"
    path.write_text(
        "import time\nfrom identified_learners import make as their_make\nSTART = time.time()\n"
        "def make(k):\n    def train(x, y, seed, k=k): return START\n    return train\n"
        "class A: train = staticmethod(make(1))\n"
        "class B: train = staticmethod(make(2))\n"
        "theirs = their_make(3)\n"
        "class Own:\n    def __call__(self, x, y, seed): return START\n"
        "own = Own()\n"
    )
    first, second = (resolve(f"{path}:{attribute}.train").describe() for attribute in "AB")
    assert first["function"] == {"function": "make.<locals>.train"}
    assert first != second
    assert resolve(f"{path}:own").describe()["function"] == {"object": {"class": "Own"}}
    assert "bytecode" in resolve(f"{path}:theirs").describe()["function"]  # another file's


def test_a_run_is_not_continued_by_another_of_the_name(tmp_path: Path) -> None:
    def constant(label: int) -> Any:
        return lambda x, y, seed: lambda inputs: np.full(len(inputs), label)

    x, y = np.arange(12.0).reshape(12, 1), np.arange(12) % 2
    first = mf.run((x, y, x, y), learner=constant(0), trials=4, out=tmp_path / "run", progress=False)
    assert first.status()["trials"] == 4
    again = mf.run((x, y, x, y), learner=constant(0), trials=6, out=tmp_path / "run", progress=False)
    assert again.status()["trials"] == 6
    with pytest.raises(MemfluenceError, match=r"learner's function\.closure\.label \(0 there, 1 asked\)"):
        mf.run((x, y, x, y), learner=constant(1), trials=4, out=tmp_path / "run", progress=False)


def test_an_estimator_counts_what_its_class_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(LogisticRegression):
        def fit(self, x: Any, y: Any) -> Any:
            return super().fit(x * FACTOR, y)

    before = resolve(Mine()).describe()
    assert resolve(Mine()).describe() == before
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 4)
    assert resolve(Mine()).describe() != before


# Runs that were begun with the first version of the identity.

FIRST = json.loads((Path(__file__).parent / "identity-1.json").read_text())  # of `LEARNERS`, in CPython 3.11


def as_first(name: str) -> dict[str, Any]:
    """The first version's description; of another version of Python, with what that one compiles."""
    text = json.dumps(FIRST[name])
    if sys.implementation.cache_tag != "cpython-311":
        pytest.skip("the descriptions hold code that Python 3.11 compiled")
    return dict(json.loads(text))


@pytest.mark.parametrize("name", LEARNERS)
def test_what_the_first_version_said_is_recognized_and_nothing_else(name: str) -> None:
    looser = {"objects", "functions", "an object", "a counter", "decorated", "compiled"}  # other parts are identified
    learner = FunctionLearner(LEARNERS[name])
    now = json.loads(json.dumps(learner.describe()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemfluenceWarning)
        recognized = {other for other in LEARNERS if up_to_date(learner)(as_first(other)) == now}
    assert name in recognized
    if name not in looser:
        assert recognized == {name}
    assert ("identity" in now) == (as_first(name) != now)


def constant(label: int, kinds: Any) -> Any:
    def train(x: Any, y: Any, seed: int) -> Any:
        return lambda inputs: np.full(len(inputs), label) if kinds else None

    return train


def test_a_run_of_the_first_version_goes_on_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.arange(12.0).reshape(12, 1), np.arange(12) % 2

    def run(learner: Any, trials: int) -> mf.Run:
        return mf.run((x, y, x, y), learner=learner, trials=trials, out=tmp_path, progress=False)

    set_of_pairs = {(1, 2), (3, 4)}  # the first version looked into it
    with monkeypatch.context() as older:
        describe = FunctionLearner.describe

        def described_then(learner: FunctionLearner) -> dict[str, Any]:
            found = describe(learner)
            closure = found["function"]["closure"] | {"kinds": {"set": [[1, 2], [3, 4]]}}
            return {"name": "train", "kind": "function", "function": found["function"] | {"closure": closure}}

        older.setattr(FunctionLearner, "describe", described_then)
        run(constant(0, set_of_pairs), 2)
    with pytest.raises(RunMismatchError, match=r"learner's function\.closure"):
        run(constant(1, set_of_pairs), 4)
    with pytest.warns(MemfluenceWarning, match="begun by an older memfluence, which looked at other parts of train"):
        again = run(constant(0, set_of_pairs), 4)
    assert again.status()["trials"] == 4
