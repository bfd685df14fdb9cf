"""What a user may call a learner, and what they are told when it is none."""

import multiprocessing
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from learner_worlds import clouds, outcomes, random_trials, same_bits
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from user_learners import Meant, nearest_scores

from memfluence.errors import LearnerError
from memfluence.learners import MLP, EstimatorLearner, FunctionLearner, Learner, resolve

USER_FILE = Path(__file__).parent / "user_learners.py"


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Any]:
    """Write a file of the user's; whatever loading it did to the import system is undone."""
    path, modules = list(sys.path), set(sys.modules)

    def writer(source: str, name: str = "mine.py") -> Path:
        (tmp_path / name).write_text(source)
        return tmp_path / name

    yield writer
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("memfluence_learner_", "mine", "helper", "broken")):
            del sys.modules[name]


def test_built_in_with_settings() -> None:
    assert resolve("mlp") == resolve() == MLP()
    given = {"hidden": "256,128", "epochs": "5", "rate": "2e-2", "models_at_once": "4"}
    assert resolve("mlp", given) == MLP(hidden=(256, 128), epochs=5, rate=0.02, models_at_once=4)
    assert resolve("mlp", {"hidden": ""}) == MLP(hidden=())
    assert (
        resolve("mlp", {"epochs": 5}) == resolve(MLP, {"epochs": 5}) == resolve(MLP(), {"epochs": "5"}) == MLP(epochs=5)
    )


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "mpl",
            {},
            r"no built-in learner 'mpl'; did you mean 'mlp'\? .*module:attribute or file.py:attribute; built in: .*mlp",
        ),
        ("transformer", {}, r"no built-in learner 'transformer'\. .*built in: .*mlp"),
        (
            "mlp",
            {"epoch": "3"},
            r"mlp has no setting 'epoch'; did you mean 'epochs'\? Its settings are batch, clip, epochs, hid",
        ),
        ("mlp", {"epochs": "many"}, "'epochs' of mlp must be an integer; got 'many'"),
        ("mlp", {"rate": "fast"}, "'rate' of mlp must be a number; got 'fast'"),
        ("mlp", {"hidden": "a,b"}, "'hidden' of mlp must be integers, like 256,128; got 'a,b'"),
        ("mlp", {"epochs": "-1"}, "'epochs' of mlp must be an integer of at least 1; got -1"),
        ("mlp", {"name": "x"}, "mlp has no setting 'name'"),
    ],
)
def test_built_in_that_is_not_there(name: str, settings: dict[str, str], message: str) -> None:
    with pytest.raises(LearnerError, match=message):
        resolve(name, settings)


def test_objects() -> None:
    assert isinstance(resolve(LogisticRegression()), EstimatorLearner)
    assert isinstance(resolve(LogisticRegression), EstimatorLearner)
    assert isinstance(resolve(Meant()), EstimatorLearner)
    assert isinstance(resolve(nearest_scores), FunctionLearner)
    learner = MLP(epochs=3)
    assert resolve(learner) is learner


def test_parameters_of_an_estimator() -> None:
    given = LogisticRegression()
    learner = resolve(given, {"C": "10", "solver": "saga", "max_iter": 7, "class_weight": "None"})
    assert isinstance(learner, EstimatorLearner)
    changed = learner.estimator.get_params()
    assert (changed["C"], changed["solver"], changed["max_iter"], changed["class_weight"]) == (10, "saga", 7, None)
    assert given.C == 1.0
    nested = resolve(make_pipeline(StandardScaler(), LogisticRegression()), {"logisticregression__C": "3"})
    assert nested.describe() != resolve(make_pipeline(StandardScaler(), LogisticRegression())).describe()
    with pytest.raises(LearnerError, match=r"has no parameter 'c'\. Its parameters are C, class_weight, "):
        resolve(given, {"c": "1"})


@pytest.mark.parametrize(
    ("learner", "settings", "message"),
    [
        (3, {}, r"a learner is a scikit-learn classifier .*; an object of type int is none of them"),
        (int, {}, "its type is type"),
        (None, {}, "NoneType"),
        (StandardScaler(), {}, "its type is StandardScaler"),
        (LinearRegression(), {"outcome": "cubed"}, "'outcome' of LinearRegression must be one of absolute"),
        (KNeighborsClassifier(), {"outcome": "squared"}, "must be one of share .*exact"),
        (lambda x: x, {}, r"called as train\(x, y, seed\)"),
        (nearest_scores, {"k": "3"}, "a function, which takes no settings; got k"),
        (Meant(), {"k": "3"}, "takes no settings"),
        (
            type("Needy", (KNeighborsClassifier,), {"__init__": lambda self, k: None}),
            {},
            "cannot be made without arguments",
        ),
    ],
)
def test_objects_that_are_no_learners(learner: Any, settings: dict[str, str], message: str) -> None:
    with pytest.raises(LearnerError, match=message):
        resolve(learner, settings)


@pytest.mark.parametrize("attribute", ["text_model", "nearest", "wide", "MyNearest", "Meant", "nearest_scores"])
def test_attributes_of_a_file(attribute: str) -> None:
    learner = resolve(f"{USER_FILE}:{attribute}")
    assert isinstance(learner, Learner)
    assert learner.name == attribute
    assert len(learner.describe()["source_sha256"]) == 64
    assert "memfluence_learner_" not in str(learner.describe())  # the same wherever the file lies


def test_settings_of_an_attribute() -> None:
    assert resolve(f"{USER_FILE}:wide", {"epochs": "9"}).describe()["settings"]["epochs"] == 9
    assert (
        resolve(f"{USER_FILE}:nearest", {"n_neighbors": "3"}).describe() != resolve(f"{USER_FILE}:nearest").describe()
    )


def test_a_module_of_the_current_directory(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("from sklearn.svm import SVC\nclass models:\n    svm = SVC()\n", "mine_too.py")
    monkeypatch.chdir(path.parent)
    assert resolve("mine_too:models.svm").name == "svm"
    assert resolve("mine_too.py:models.svm").name == "svm"
    assert resolve("sklearn.naive_bayes:GaussianNB").name == "GaussianNB"
    assert pickle.loads(pickle.dumps(resolve("mine_too:models.svm"))).name == "svm"


def test_a_file_may_import_its_neighbours(write: Any) -> None:
    write("def train(x, y, seed):\n    return None\n", "helper_of_mine.py")
    path = write("from helper_of_mine import train\n")
    assert resolve(f"{path}:train").name == "train"


@pytest.mark.parametrize(
    ("source", "attribute", "message"),
    [
        ("def train(x, y, seed:\n    pass\n", "train", r"mine.py, line 1: .*; correct the file"),
        (
            "import math\nmath.nothing\n",
            "train",
            r"mine.py, line 2 raised AttributeError: .*nothing.* while it was loaded",
        ),
        ("import no_such_package\n", "train", "line 1 raised ModuleNotFoundError: No module named 'no_such_package'"),
        ("raise SystemExit(3)\n", "train", "raised SystemExit: 3"),
        ("def train(x, y, seed): pass\nx = 1\n", "trian", r"no attribute 'trian'; did you mean 'train'\? .*: train\."),
        ("x = 1\n", "train", "no attribute 'train'. What could be a learner in it: none"),
        ("x = 1\n", "x", "mine.py:x is none of them .its type is int"),
        ("def train(x, y): pass\n", "train", r"called as train\(x, y, seed\), which train\(x, y\) does not allow"),
        ("\0", "train", "mine.py"),
    ],
)
def test_files_that_hold_no_learner(write: Any, source: str, attribute: str, message: str) -> None:
    path = write(source)
    with pytest.raises(LearnerError, match=message) as raised:
        resolve(f"{path}:{attribute}")
    assert "\n" not in str(raised.value)


def test_origins_that_are_not_there(tmp_path: Path, write: Any) -> None:
    with pytest.raises(LearnerError, match=r"nowhere.py cannot be read \(No such file"):
        resolve(f"{tmp_path}/nowhere.py:train")
    with pytest.raises(LearnerError, match=r"no module 'no_such_module' here; .*no_such_module.py:"):
        resolve("no_such_module:train")
    with pytest.raises(LearnerError, match=r"no module 'sklearn.no_such_module' here"):
        resolve("sklearn.no_such_module:train")
    for incomplete in (":train", "mine.py:"):
        with pytest.raises(LearnerError, match=rf"is module:attribute or file.py:attribute; got '{incomplete}'"):
            resolve(incomplete)
    with pytest.raises(LearnerError, match=r"which attribute of the file is the learner: .*mine.py:fit_it"):
        resolve(str(write("def fit_it(x, y, seed): pass\n")))


def test_identity_follows_the_source_not_the_path(write: Any, tmp_path: Path) -> None:
    first = resolve(f"{write('def train(x, y, seed): return 1')}:train").describe()
    (tmp_path / "elsewhere").mkdir()
    assert resolve(f"{write('def train(x, y, seed): return 1', 'elsewhere/mine.py')}:train").describe() == first
    assert resolve(f"{write('def train(x, y, seed): return 2')}:train").describe() != first


def test_a_file_changed_under_a_run_is_noticed(write: Any) -> None:
    learner = resolve(f"{write('def train(x, y, seed): return 1')}:train")
    pickled = pickle.dumps(learner)
    assert pickle.loads(pickled).describe() == learner.describe()
    write("def train(x, y, seed): return 2")
    with pytest.raises(LearnerError, match="has changed since the run was started"):
        pickle.loads(pickled)


def _outcome_elsewhere(pickled: bytes) -> Any:
    return outcomes(pickle.loads(pickled), clouds(), random_trials([28]))[0]


def test_a_fresh_process_makes_the_same_learner() -> None:
    learners = [resolve(f"{USER_FILE}:MyNearest"), resolve(KNeighborsClassifier(1)), resolve("mlp", {"epochs": "2"})]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        elsewhere = pool.map(_outcome_elsewhere, [pickle.dumps(learner) for learner in learners])
    for learner, outcome in zip(learners, elsewhere):
        assert same_bits(outcomes(learner, clouds(), random_trials([28]))[0], outcome)


@pytest.mark.parametrize("name", ["mlp", "resnet9", "resnet50@imagenet"])
def test_without_torch_a_network_says_how_to_get_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LearnerError, match=rf"learner {name} needs torch, .* pip install 'memfluence\[torch\]' .* "):
        resolve(name)
    assert resolve("sklearn.naive_bayes:GaussianNB").name == "GaussianNB"
