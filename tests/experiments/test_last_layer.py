"""Last layer: representations are what the head is given, and the comparison is that of sets worked by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import arrays, dataset, make_run

import memfluence as mf
from memfluence.datasets import Dataset, from_arrays
from memfluence.engines import Event, PartWay
from memfluence.engines.progress import Silent
from memfluence.errors import InputError, Interrupted, LearnerError, RunMismatchError
from memfluence.experiments import last_layer
from memfluence.experiments.last_layer import linear_at_once
from memfluence.learners import MLP, represent, resolve
from memfluence.learners.nets import watch
from memfluence.learners.nets.fresh_models import last_linear
from memfluence.records import Trial

NETWORK = {"learner": "a network", "features": 8, "test_accuracy": 0.9, "train_accuracy": 1.0}


def small_images() -> Dataset:
    rng = np.random.default_rng(0)
    y_train, y_test = np.arange(48) % 3, np.arange(12) % 3
    x_train, x_test = (
        (rng.integers(0, 80, (len(y), 8, 8)) + 60 * y[:, None, None]).astype(np.uint8) for y in (y_train, y_test)
    )
    return from_arrays(x_train, y_train, x_test, y_test)


def everything(n: int, number: int = 3) -> Trial:
    return Trial(number, 0, np.ones(n, bool), root=5)


def test_an_mlps_representation_goes_through_its_last_layer_to_its_scores() -> None:
    data, learner = small_images(), MLP(hidden=(16, 8), epochs=4)
    trial = everything(data.n_train)
    found = represent(learner, data, trial, device="cpu")
    assert (found.train.shape, found.test.shape) == ((48, 8), (12, 8))
    assert (found.train >= 0).all()  # after ReLU
    alone = next(iter(learner.train(data, [trial], record=("margin",), device="cpu")))
    assert np.array_equal(found.outcome.test_correct, alone.test_correct)  # type: ignore[union-attr]
    # The product with the last layer gives the scores back.
    from memfluence.learners.nets.batched_mlp import load_features

    features = load_features(data, torch.device("cpu"))
    with torch.inference_mode():
        models = learner._trained(data, [trial], features, None, torch.device("cpu"))
        scores = models.scores(0, features.blocks(features.test, 0, None))
        weight, bias = models._layers[-1]
        by_hand = found.test @ weight[0].numpy().T + bias[0].numpy().T
    np.testing.assert_allclose(by_hand, scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["resnet9@fast", "resnet18@paper"])
def test_a_networks_representation_goes_through_its_last_layer_to_its_scores(name: str) -> None:
    data = small_images()
    small = {"width": 4} if name.startswith("resnet9") else {}
    learner = resolve(name, {"epochs": 1, "batch": 16, "crop_padding": 0, **small})
    found = represent(learner, data, everything(data.n_train), device="cpu")
    assert found.train.shape[0] == 48
    assert found.train.dtype == np.float32
    trainer = next(iter(learner._trainers.values()))  # type: ignore[attr-defined]
    head = last_linear(trainer._model)
    with torch.no_grad():
        logits = head(torch.from_numpy(found.test))
    scale = 0.125 if name.startswith("resnet9") else 1.0
    np.testing.assert_allclose(scale * logits.numpy(), trainer.scores()[1].numpy(), rtol=1e-4, atol=1e-5)


def test_learners_without_a_last_layer_say_so() -> None:
    from sklearn.linear_model import LogisticRegression

    data = small_images()
    with pytest.raises(LearnerError, match="this needs a network"):
        represent(resolve(LogisticRegression()), data, everything(data.n_train), device="cpu")
    with pytest.raises(LearnerError, match="without hidden layers"):
        represent(MLP(hidden=()), data, everything(data.n_train), device="cpu")


def test_counts_and_agreement_by_hand(tmp_path: Path) -> None:
    run = make_run(tmp_path / "network")
    changed = arrays()
    changed["train_correct"][:, [2, 3, 5]] = True  # the last layer memorizes examples 0 and 1 alone
    changed["test_correct"][:, [4, 6]] = True  # and carries test examples 0 and 1
    linear = make_run(tmp_path / "linear", **changed)
    result = last_layer.summarize(run, linear, NETWORK)
    numbers = result.numbers
    assert (numbers["network"]["memorized"], numbers["linear"]["memorized"]) == (5, 2)
    assert numbers["memorized"]["shared"] == 2
    assert numbers["memorized"]["jaccard"] == pytest.approx(2 / 5)
    assert numbers["memorized"]["average_difference"] == pytest.approx(3 / 5)  # three of five are off by 1
    pairs = numbers["pairs"]["memorized"]
    assert (pairs["network"]["pairs"], pairs["linear"]["pairs"]) == (4, 2)
    assert pairs["agreement"] == {
        "threshold": 0.15,
        "network": 4,
        "linear": 2,
        "shared": 2,
        "jaccard": pytest.approx(1 / 2),
        "average_difference": pytest.approx(2 / 4),
    }
    without = numbers["pairs"]["any"]
    assert without["network"]["pairs"] == without["agreement"]["network"] >= 4
    assert "seen every training example" in numbers["note"]
    assert "200 networks, 200 linear models" in result.title


@pytest.mark.parametrize("infl", [0.155, 0.5, 1.0])
def test_agreement_is_that_of_the_threshold_asked_for(tmp_path: Path, infl: float) -> None:
    rng = np.random.default_rng(3)
    changed = arrays()
    changed["test_correct"] ^= rng.random(changed["test_correct"].shape) < 0.3
    run, linear = make_run(tmp_path / "network"), make_run(tmp_path / "linear", **changed)
    found = last_layer.summarize(run, linear, NETWORK, infl=infl).numbers["pairs"]
    for name, least in (("memorized", 0.25), ("any", -1.0)):
        sides = [side.find_pairs(least, infl, permutations=0) for side in (run, linear)]
        sets = [set(zip(one.train_index.tolist(), one.test_index.tolist())) for one in sides]
        agreement = found[name]["agreement"]
        assert agreement["threshold"] == infl
        assert [agreement["network"], agreement["linear"]] == [len(one) for one in sets]
        assert agreement["shared"] == len(sets[0] & sets[1])


def test_many_examples_are_trained_one_model_after_another_on_a_cpu() -> None:
    assert (linear_at_once(600, "cpu"), linear_at_once(50_000, "cpu")) == (50, 1)


def test_bad_input(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    other = make_run(tmp_path / "other", train_labels=np.arange(40) // 20)
    with pytest.raises(RunMismatchError, match="different data"):
        last_layer.summarize(run, other, NETWORK)
    with pytest.raises(InputError, match="`trials`"):
        last_layer.plan(run, trials=5)


def test_the_whole_way_and_again(tmp_path: Path) -> None:
    data = "longtail?n_train=60&n_test=40&n_classes=3&subpopulations=20&seed=1"
    run = mf.run(data, settings={"epochs": "5"}, trials=40, out=tmp_path / "run", progress=False)
    given = {"trials": 30, "linear": {"epochs": "3", "group": "10"}, "progress": False}
    result = mf.experiment("last-layer", run, **given)
    where = tmp_path / "run" / "experiments" / "last-layer"
    with np.load(where / "representations.npz") as file:
        assert file["x_train"].shape == (60, 128)
    before = (where / "representations.npz").stat().st_mtime_ns
    assert mf.experiment("last-layer", run, **given).to_json() == result.to_json()
    assert (where / "representations.npz").stat().st_mtime_ns == before
    assert mf.experiment("last-layer", run, trials=30, train=False).to_json() == result.to_json()
    with pytest.raises(InputError, match="its network was not trained yet"):
        mf.experiment("last-layer", run, train=False, out=tmp_path / "nothing")
    with pytest.raises(RunMismatchError, match="another network"):
        mf.experiment("last-layer", run, **given, seed=1)


class Stopping(Silent):
    """Presses Ctrl-C when a trial is half done, once."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.parts: list[PartWay] = []
        self.pressed = False

    def note(self, message: str) -> None:
        self.notes.append(message)

    def event(self, event: Event) -> None:
        if isinstance(event, PartWay):
            self.parts.append(event)
            if event.fraction >= 0.5 and not self.pressed:
                self.pressed = True
                raise KeyboardInterrupt


def test_a_stopped_network_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_SECONDS_BETWEEN_PAUSES", 0.0)
    monkeypatch.setattr(watch, "_SECONDS_BETWEEN_REPORTS", 0.0)
    run, rng = make_run(tmp_path), np.random.default_rng(0)
    _, y_train, _, y_test = dataset()
    x_train, x_test = (rng.integers(0, 255, (len(y), 8, 8), dtype=np.uint8) for y in (y_train, y_test))
    small = {"width": "4", "epochs": "3", "batch": "16", "crop_padding": "0"}
    given = {
        "dataset": from_arrays(x_train, y_train, x_test, y_test),
        "learner": "resnet9@fast",
        "settings": small,
        "trials": 20,
        "linear": {"epochs": "2", "batch": "16"},
    }
    listener = Stopping()
    with pytest.raises(Interrupted, match=r"the network on all examples is kept at \d\d% in .*run the same command"):
        mf.experiment("last-layer", run, out=tmp_path / "stopped", progress=listener, **given)
    assert "resnet9@fast on all 40 training examples" in listener.notes[0]
    assert not (tmp_path / "stopped" / "representations.npz").exists()
    with pytest.raises(InputError, match="its network was not trained yet"):
        mf.experiment("last-layer", run, out=tmp_path / "stopped", train=False, progress=False)
    listener.parts.clear()
    gone_on = mf.experiment("last-layer", run, out=tmp_path / "stopped", progress=listener, **given)
    assert listener.parts[0].start >= 0.5
    assert not (tmp_path / "stopped" / "checkpoints").exists()
    at_once = mf.experiment("last-layer", run, out=tmp_path / "at-once", progress=False, **given)
    arrays = [np.load(tmp_path / name / "representations.npz")["x_train"] for name in ("stopped", "at-once")]
    assert np.array_equal(*arrays)
    for result in (gone_on, at_once):
        result.numbers["representation"].pop("seconds")
        result.numbers.pop("speedup")
    assert gone_on.to_json() == at_once.to_json()


def test_a_network_that_keeps_nothing_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("memfluence.experiments.last_layer.represent", interrupted)
    data = from_arrays(*dataset())
    with pytest.raises(Interrupted, match="the network on all examples is not kept"):
        mf.experiment("last-layer", run, dataset=data, learner="mlp", out=tmp_path / "out", progress=False)
