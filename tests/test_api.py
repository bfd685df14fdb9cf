"""The Python API as its examples promise it."""

import signal
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

import memfluence as mf
from memfluence.errors import InputError, Interrupted, MemfluenceWarning
from memfluence.estimators import adjusted_influence, adjusted_memorization


def blobs(n_train: int = 40, n_test: int = 20) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(n_train + n_test) % 3
    x = rng.normal(size=(n_train + n_test, 4)) + y[:, None]
    return x[:n_train], y[:n_train], x[n_train:], y[n_train:]


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_example_of_the_readme() -> None:
    run = mf.run("digits", learner="mlp", settings={"epochs": "2"}, trials=40, keep=0.7, seed=0, out="runs/digits")
    table = run.memorization()
    assert list(table.columns) == [
        "index", "label", "memorization", "stderr", "lower", "upper",
        "accuracy_in", "accuracy_out", "trials_in", "trials_out", "id",
    ]  # fmt: skip
    assert len(table) == 600
    assert (table.trials_in + table.trials_out == 40).all()
    assert run.influence(test=[3, 7]).shape == (600, 2)
    assert len(run.influence(same_class=True)) == 10
    top = run.influence(top_k=4)
    assert top.index.shape == (1197, 4)
    full = run.influence()
    helped = run.influence(train=[5, 2], top_k=3, per="train")
    assert (helped.value == np.take_along_axis(full[[5, 2]], helped.index, axis=1)).all()
    assert (helped.value == -np.sort(-full[[5, 2]], axis=1)[:, :3]).all()
    assert (run.influence(top_k=4, device="cpu:0").index == top.index).all()
    with pytest.raises(mf.MemfluenceError, match="beyond the memory of"):
        run.influence(memory="1MB")
    for wrong in ({"per": "both"}, {"per": "train", "top_k": 2, "test": [1]}, {"device": "cuda"}):
        with pytest.raises(mf.MemfluenceError):
            run.influence(**wrong)
    assert (top.value == np.take_along_axis(full, top.index.T, axis=0).T).all()
    again = mf.open("runs/digits")
    assert again.memorization().equals(table)
    with pytest.warns(MemfluenceWarning):  # 40 trials: chance, or no pairs
        pairs = again.pairs(mem=0.25, infl=0.15)
    assert set(pairs.attrs["summary"]) == {"pairs", "train_examples", "test_examples", "single_test_examples"}


def test_an_estimator_on_arrays_goes_to_a_run_of_its_own_and_resumes() -> None:
    run = mf.run(blobs(), learner=GaussianNB(), trials=20, progress=False)
    assert run.path.parent == Path("runs")
    assert "GaussianNB" in run.path.name
    assert len(run.trials) == 20
    more = mf.run(blobs(), learner=GaussianNB(), trials=30, progress=False)
    assert more.path == run.path
    assert len(more.trials) == 30
    assert (more.trials.mask[:20] == run.trials.mask).all()
    assert more.dataset().n_train == 40
    with pytest.raises(InputError, match="`dataset`"):
        mf.open(run.path).dataset()


def test_text_with_a_pipeline() -> None:
    words = {"cat": "purr meow whisker paw", "dog": "bark woof tail paw"}
    rng = np.random.default_rng(0)
    labels = ["cat", "dog"] * 15
    texts = [" ".join(rng.choice(words[label].split(), 3)) for label in labels]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression())
    run = mf.run((texts[:20], labels[:20], texts[20:], labels[20:]), learner=model, trials=10, progress=False)
    assert set(run.memorization().label) == {"cat", "dog"}
    assert run.status()["test_accuracy"] > 0.8


def test_a_function_with_margins_and_a_failure() -> None:
    def train(x: np.ndarray, y: np.ndarray, seed: int):  # type: ignore[no-untyped-def]
        if seed % 5 == 0:
            raise ValueError("unlucky")
        means = np.stack([x[y == k].mean(0) for k in range(3)])
        return lambda z: -((z[:, None] - means) ** 2).sum(-1)

    with pytest.warns(MemfluenceWarning, match=r"failed .*unlucky"):
        run = mf.run(blobs(), learner=train, trials=40, record=["margin", "prediction"], out="run", progress=False)
    done = run.trials.numbers
    status = run.status()
    assert status["trials"] + status["trials_failed"] == 40
    assert status["trials_failed"] > 0
    numbers, margins = run.store.read_extra("test_margin")
    assert (numbers == done).all()
    right = np.unpackbits(run.trials.test_correct, axis=1, count=20, bitorder="little").astype(bool)
    assert ((margins > 0) == right).all()
    kept = np.unpackbits(run.trials.mask, axis=1, count=40, bitorder="little").astype(bool)
    of_margin = run.influence(outcome="margin")
    expected = margins[kept[:, 3], 5].astype(float).mean() - margins[~kept[:, 3], 5].astype(float).mean()
    np.testing.assert_allclose(of_margin[3, 5], expected, rtol=1e-9)
    np.testing.assert_array_equal(run.influence(outcome=margins), of_margin)
    np.testing.assert_allclose(run.influence(outcome=right), run.influence(), atol=1e-14)
    table = run.memorization(outcome="margin")
    assert {"mean_in", "mean_out"} <= set(table.columns)
    assert (table.memorization - (table.mean_in - table.mean_out)).abs().max() < 1e-9
    labels = run.label_codes
    of_masks = adjusted_influence(run.trials, run.info.kinds, *labels)
    np.testing.assert_array_equal(run.influence([5], estimator="adjusted"), of_masks.block(None, [5]))
    both = adjusted_influence(run.trials, run.info.kinds, *labels, outcome=margins)
    np.testing.assert_array_equal(run.influence(outcome="margin", estimator="adjusted"), both.block())
    blocks = run.influence(same_class=True, estimator="adjusted")
    np.testing.assert_allclose(blocks[0].values, of_masks.block()[np.ix_(blocks[0].train, blocks[0].test)])
    np.testing.assert_allclose(
        run.memorization(estimator="adjusted").memorization,
        adjusted_memorization(run.trials, run.info.kinds, labels[0]).value,
    )
    for ask in (run.influence, run.memorization):
        with pytest.raises(InputError, match=r"'shrunk' was removed, .*choose 'adjusted'"):
            ask(estimator="shrunk")
        with pytest.raises(InputError, match=r"'smoothed' was removed, .*choose 'margin', or 'correct' with"):
            ask(outcome="smoothed")
    with pytest.raises(mf.MemfluenceError, match="has no column 'test_logit'"):
        run.influence(outcome="logit")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemfluenceWarning)
        again = mf.run(blobs(), learner=train, trials=40, record=["prediction", "margin"], out="run", progress=False)
    assert (again.trials.numbers == done).all()  # what failed is not run again unless asked


def test_retry_runs_just_what_failed() -> None:
    tried: list[int] = []

    def train(x: np.ndarray, y: np.ndarray, seed: int):  # type: ignore[no-untyped-def]
        tried.append(seed)
        if seed % 3 == 0 and not Path("mended").exists():
            raise ValueError("broken")
        return lambda z: np.zeros(len(z), int)

    with pytest.warns(MemfluenceWarning, match="failed"):
        mf.run(blobs(), learner=train, trials=30, out="run", progress=False)
    failed = [seed for seed in tried if seed % 3 == 0]
    tried.clear()
    Path("mended").touch()
    run = mf.run(blobs(), learner=train, trials=30, out="run", retry_failed=True, progress=False)
    assert tried == failed
    assert len(run.trials) == 30
    assert run.status()["trials_failed"] == 0


def test_an_interrupt_keeps_what_was_complete() -> None:
    done = 0

    def train(x: np.ndarray, y: np.ndarray, seed: int):  # type: ignore[no-untyped-def]
        nonlocal done
        if done == 7:
            raise KeyboardInterrupt
        done += 1
        return lambda z: np.zeros(len(z), int)

    with pytest.raises(Interrupted, match="7 of 30 trials are stored"):
        mf.run(blobs(), learner=train, trials=30, out="run", progress=False)
    assert mf.open("run").trials.numbers.tolist() == list(range(7))


@pytest.mark.parametrize("design", ["fixed", "balanced", "bernoulli", "lemma", "repeats:2"])
def test_every_design_runs_with_the_batched_learner(design: str) -> None:
    run = mf.run(
        blobs(),
        learner="mlp",
        settings={"epochs": "3", "hidden": "8"},
        design=design,
        trials=45,
        out="run",
        progress=False,
    )
    table = run.memorization()
    assert len(run.trials) == 45
    assert table.memorization.notna().all()
    used = 45 if design != "lemma" else None
    assert used is None or (table.trials_in + table.trials_out == used).all()


def test_explicit_masks_and_examples_never_left_out_are_nan() -> None:
    masks = np.random.default_rng(0).random((12, 40)) < 0.7
    masks[:, 0], masks[:, 1] = True, False
    run = mf.run(blobs(), learner=GaussianNB(), design="explicit", masks=masks, out="run", progress=False)
    table = run.memorization()
    assert run.info.trials == 12
    assert table.memorization.isna().tolist()[:2] == [True, True]
    assert table.trials_in.tolist()[:2] == [12, 0]
    assert np.isnan(run.influence()[:2]).all()
    batched = mf.run(
        blobs(), learner="mlp", settings={"epochs": "1"}, design="explicit", masks=masks, out="batched", progress=False
    )
    assert len(batched.trials) == 12  # the group's padding, past the last mask, is thrown away


def test_several_keep_fractions_are_estimated_apart() -> None:
    run = mf.run(blobs(), learner=GaussianNB(), keep=[0.5, 0.8], trials=40, out="run", progress=False)
    with pytest.raises(InputError, match=r"0\.5"):
        run.memorization()
    assert (run.memorization(keep=0.5).trials_in + run.memorization(keep=0.5).trials_out == 20).all()
    assert run.memorization(keep=0.8).trials_in.mean() == pytest.approx(16)


def test_a_stored_trial_is_what_the_learner_gives_for_it() -> None:
    """The store's rows against the plan and the learner asked directly, one trial at a time."""
    from memfluence import designs, learners

    run = mf.run(blobs(), learner=GaussianNB(), trials=8, seed=3, out="run", progress=False)
    design = designs.make("fixed", n_train=40, keep=0.7, seed=3)
    learner = learners.resolve(GaussianNB())
    for row in range(8):
        trial = design.trial(row)
        (outcome,) = learner.train(run.dataset(), [trial], record=(), device="cpu")
        assert (np.unpackbits(run.trials.mask[row], count=40, bitorder="little") == trial.mask).all()
        assert (np.unpackbits(run.trials.test_correct[row], count=20, bitorder="little") == outcome.test_correct).all()


def test_margins_of_test_examples_alone_go_the_whole_way() -> None:
    """Recorded, estimated from, planned for, and taken along by export and import."""
    settings = {"learner": GaussianNB(), "trials": 30, "progress": False}
    run = mf.run(blobs(), record=["test_margin"], out="run", **settings)
    both = mf.run(blobs(), record=["margin"], out="both", **settings)
    several = mf.run(blobs(), record=["test_margin", "margin"], out="several", **settings)
    columns = [[name for name in one.info.columns if "margin" in name] for one in (run, both, several)]
    assert columns == [["test_margin"], ["train_margin", "test_margin"], ["train_margin", "test_margin"]]
    influence = run.influence(outcome="margin")
    np.testing.assert_array_equal(influence, both.influence(outcome="margin"))
    with pytest.raises(mf.MemfluenceError, match="no column 'train_margin'; make a run with `record='margin'`"):
        run.memorization(outcome="margin")
    kinds: list[list[str]] = [[], ["test_margin"], ["margin"]]
    plans = [mf.plan(blobs(), learner=GaussianNB(), trials=30, record=kind, pilot=False) for kind in kinds]
    sizes = [one["disk_bytes"] for one in plans]
    assert np.diff(sizes).tolist() == [30 * 2 * 20, 30 * 2 * 40]

    mf.export_trials(run, "trials.npz")
    mf.import_trials("trials.npz", "again")
    again = mf.open("again")
    assert again.info.record == ("test_margin",)
    np.testing.assert_array_equal(again.recorded("test_margin"), run.recorded("test_margin"))


def test_plan_says_what_a_run_takes() -> None:
    found = mf.plan("digits", learner="mlp", settings={"epochs": "1"}, trials=1000)
    assert found["disk_bytes"] == 1000 * (75 + 75 + 150 + 2 * (600 + 1197))  # bits, and margins in float16
    assert found["seconds"] == pytest.approx(1000 * found["seconds_per_trial"])
    assert found["largest_stderr"] == pytest.approx(np.sqrt(0.25 / 700 + 0.25 / 300))
    assert not Path("runs").exists()


def test_opening_what_is_no_run() -> None:
    with pytest.raises(InputError, match="no run at nowhere"):
        mf.open("nowhere")


def test_a_network_is_checkpointed_from_python_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in the middle of the second trial; what goes on has the scores of a run that was not."""
    from memfluence.learners.nets.trainer import Trainer
    from memfluence.learners.network import Network
    from memfluence.learners.recipes import Recipe

    network = Network("linear", "linear", Recipe(epochs=5, batch=7, rate=0.05, normalization="subset"))
    whole = mf.run(blobs(), learner=network, trials=4, out="whole", checkpoint_every=0, progress=False)
    step, steps = Trainer._step, iter(range(1, 1000))

    def interrupted(trainer: Trainer, width: int) -> None:
        step(trainer, width)
        if next(steps) == 33:  # of 20 a trial
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Trainer, "_step", interrupted)
    with pytest.raises(Interrupted, match=r"Stopped: 1 of 4 trials are stored in part, trial 1 is kept at 65%;"):
        mf.run(blobs(), learner=network, trials=4, out="part", progress=False)
    (part,) = mf.open("part").status()["part_way"]
    assert (part["trial"], part["fraction"]) == (1, 0.65)
    run = mf.run(blobs(), learner=network, trials=4, out="part", progress=False)
    assert next(steps) == 33 + 7 + 2 * 20 + 1
    assert run.memorization().equals(whole.memorization())
    assert run.status()["part_way"] == []
    with pytest.raises(InputError, match=r"`checkpoint_every` parameter must be a number of seconds >= 0. Got -1"):
        mf.run(blobs(), learner=network, trials=4, out="whole", checkpoint_every=-1, progress=False)


def test_masks_of_groups_are_not_adjusted_for() -> None:
    """An example's mask then says which others were kept, which the adjustment takes the design to rule out."""

    def train(x: np.ndarray, y: np.ndarray, seed: int):  # type: ignore[no-untyped-def]
        return lambda z: np.full(len(z), np.bincount(y).argmax())

    run = mf.run(blobs(), learner=train, trials=6, groups=np.arange(40) // 4, out="run", progress=False)
    for ask in (run.influence, run.memorization):
        with pytest.raises(InputError, match="in groups; leave out the estimator"):
            ask(estimator="adjusted")
