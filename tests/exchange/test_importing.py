"""What `import` takes, joins and refuses."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memfluence as mf
from exchange.trial_files import N_TEST, N_TRAIN, TRIALS, everything, trials_file
from memfluence.errors import InputError, MemfluenceError, RunMismatchError
from memfluence.records import Kind, Outcome
from memfluence.store import RunInfo, TrialStore
from small_world import SmallWorld


def plain_file(path: Path, world: SmallWorld, outcomes: list[Outcome], **arrays: object) -> Path:
    """A file as the contract has it: numbers and plan, but neither `run` nor `kind`."""
    content = {
        name: np.stack([getattr(one, name) for one in outcomes]) for name in ("mask", "train_correct", "test_correct")
    }
    np.savez(
        path,
        **content,
        train_labels=world.y_train,
        test_labels=world.y_test,
        **{"trial": [one.trial for one in outcomes], "plan": world.info.plan["digest"], **arrays},  # type: ignore[arg-type, index]
    )
    return path


def exported(path: Path, world: SmallWorld, info: RunInfo, outcomes: list[Outcome]) -> Path:
    """What `export --trials` writes of a run with that description."""
    store = TrialStore.create(path.with_suffix(".run"), info, world.y_train, world.y_test)
    store.write(outcomes)
    mf.export_trials(mf.open(store.path), path)
    return path


class TestEqualContent:
    """Trials without numbers: how many of equal content are how many trials."""

    def few(self, path: Path, rows: list[int]) -> Path:
        """Trials on so few examples that many are equal."""
        mask = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], bool)[rows]
        labels = np.arange(4) % 2
        np.savez(path, mask=mask, train_correct=mask, test_correct=mask, train_labels=labels, test_labels=labels)
        return path

    def test_rows_of_one_file_are_all_different_trials(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        file = self.few(tmp_path / "t.npz", rng.integers(0, 3, 200).tolist())
        done = mf.import_trials(file, tmp_path / "run")
        assert (done.added, done.already_there) == (200, 0)
        before = everything(tmp_path / "run")
        again = mf.import_trials(str(file), tmp_path / "run")
        assert (again.added, again.already_there) == (0, 200)
        assert everything(tmp_path / "run") == before

    def test_a_row_is_there_only_as_often_as_the_run_has_it(self, tmp_path: Path) -> None:
        mf.import_trials([self.few(tmp_path / "a.npz", [0, 0, 1])], tmp_path / "run")
        more = mf.import_trials([self.few(tmp_path / "b.npz", [0, 0, 0, 1, 2, 2])], tmp_path / "run")
        assert (more.added, more.already_there) == (3, 3)
        assert mf.open(tmp_path / "run").trials.numbers.tolist() == list(range(6))

    def test_files_given_at_once_join_as_one_after_the_other(self, tmp_path: Path) -> None:
        files = [self.few(tmp_path / "a.npz", [0, 0, 1]), self.few(tmp_path / "b.npz", [0, 0, 0, 1, 2, 2])]
        done = mf.import_trials([*files, files[0]], tmp_path / "run")
        assert (done.added, done.already_there) == (6, 6)

    def test_folders_of_one_release_are_all_different_trials(self, tmp_path: Path) -> None:
        for number in range(3):
            (tmp_path / "release" / str(number)).mkdir(parents=True)
            np.savez(
                tmp_path / "release" / str(number) / "aux_arrays.npz",
                **{
                    f"index_{part}": rows for part, rows in {"train": [0, 2], "removed": [1, 3], "test": [1, 0]}.items()
                },  # type: ignore[arg-type]
                **{f"correctness_{part}": [True, False] for part in ("train", "removed", "test")},  # type: ignore[arg-type]
                subsample_idx=[0, 2],
            )
        x, y = np.zeros((4, 2)), np.arange(4) % 2
        np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
        for expected in ((3, 0), (0, 3)):
            done = mf.import_trials([tmp_path / "release"], tmp_path / "run", dataset=f"npz:{tmp_path}/data.npz")
            assert (done.added, done.already_there) == expected


class TestJoining:
    def test_a_file_of_the_contract_joins_a_run_of_ours(self, tmp_path: Path, world: SmallWorld) -> None:
        """The run says keep 0.7, of which 15 of 21 is no exact fraction; the file says nothing but its masks."""
        world.create(tmp_path / "run").write([world.outcome(k) for k in range(3)])
        file = plain_file(tmp_path / "t.npz", world, [world.outcome(k) for k in (1, 2, 7)])
        done = mf.import_trials([file], tmp_path / "run")
        assert (done.added, done.already_there) == (1, 2)
        run = mf.open(tmp_path / "run")
        assert run.trials.numbers.tolist() == [0, 1, 2, 7]
        assert run.info == dataclasses.replace(run.info, kinds=world.info.kinds, learner=world.info.learner)
        assert run.memorization().memorization.notna().any()

    def test_a_class_without_examples_is_no_difference(self, tmp_path: Path, world: SmallWorld) -> None:
        names = ["none", *map(str, range(3))]
        data = {**world.info.dataset, "classes": [-1, 0, 1, 2], "class_names": names}
        info = dataclasses.replace(world.info, dataset=data)
        store = TrialStore.create(tmp_path / "run", info, world.y_train + 1, world.y_test + 1)
        store.write([world.outcome(0)])
        file = plain_file(tmp_path / "t.npz", world, [world.outcome(1), world.outcome(200)])
        assert mf.import_trials([file], tmp_path / "run").added == 2
        run = mf.open(tmp_path / "run")
        assert run.classes[run.label_codes[0]].tolist() == world.y_train.tolist()
        moved = dataclasses.replace(world.info, dataset={**data, "classes": [0, 1, 2, 3]})
        store = TrialStore.create(tmp_path / "moved", moved, world.y_train + 1, world.y_test + 1)
        store.write([world.outcome(1)])
        with pytest.raises(RunMismatchError, match="labels differ"):
            mf.import_trials([file], tmp_path / "moved")

    def test_a_run_of_several_kinds_must_be_told_which(self, tmp_path: Path, world: SmallWorld) -> None:
        info = dataclasses.replace(world.info, kinds=(Kind(0.7, 15), Kind(0.5, 10)))
        world.info = info
        world.create(tmp_path / "run").write([world.outcome(0)])
        before = everything(tmp_path)
        outcomes = [world.outcome(2), world.outcome(3)]
        file = plain_file(tmp_path / "t.npz", world, outcomes)
        with pytest.raises(RunMismatchError, match=r"of which kind, and .* has 2; .* export RUN FILE --trials"):
            mf.import_trials([file], tmp_path / "run")
        wrong = plain_file(tmp_path / "t.npz", world, outcomes, kind=[0, 1])
        with pytest.raises(RunMismatchError, match=r"has trials of 15 kept examples, .* of 10"):
            mf.import_trials([wrong], tmp_path / "run")
        (tmp_path / "t.npz").unlink()
        assert everything(tmp_path) == before
        told = plain_file(tmp_path / "t.npz", world, outcomes, kind=[0, 0])
        assert mf.import_trials([told], tmp_path / "run").added == 2

    def test_pieces_of_any_size_join_masks_of_many_sizes(self, tmp_path: Path) -> None:
        mask = np.random.default_rng(0).random((TRIALS, N_TRAIN)) < 0.7
        mf.import_trials([trials_file(tmp_path / "a.npz", mask=mask)], tmp_path / "run")
        one = trials_file(tmp_path / "b.npz", slice(0, 1))
        assert mf.import_trials([one], tmp_path / "run").added == 1

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"learner": {"name": "another"}}, "another learner"),
            ({"repeats": 2}, "other kinds of trial"),
            ({"kinds": (Kind(0.7, 15, "in"), Kind(0.7, 14, "out"))}, "other kinds of trial"),
            (
                {"plan": {"design": "fixed", "keep": [0.7], "seed": 3, "digest": "q" * 32}},
                "has the plan p+, the file q+",
            ),
            ({"record": ("margin",)}, r"records \[\] beside correctness, the file \['margin'\]"),
        ],
    )
    def test_a_run_that_differs_is_refused(
        self, tmp_path: Path, world: SmallWorld, changes: dict[str, Any], says: str
    ) -> None:
        world.create(tmp_path / "run").write([world.outcome(0)])
        before = everything(tmp_path / "run")
        columns = {"train_margin": np.ones(21, np.float16), "test_margin": np.ones(13, np.float16)}
        outcome = dataclasses.replace(world.outcome(1), extras=columns if "record" in changes else {})
        if "record" in changes:
            changes = {**changes, "columns": (*world.info.columns, *columns)}
        file = exported(tmp_path / "t.npz", world, dataclasses.replace(world.info, **changes), [outcome])
        with pytest.raises(RunMismatchError, match=says):
            mf.import_trials([file], tmp_path / "run")
        same = exported(tmp_path / "same.npz", world, world.info, [world.outcome(1)])
        with pytest.raises(RunMismatchError, match=r"differ in their (data, learner or plan|plan|columns)"):
            mf.import_trials([same, file], tmp_path / "new")
        assert everything(tmp_path / "run") == before
        assert not (tmp_path / "new").exists()

    def test_columns_that_the_run_does_not_record_are_refused(self, tmp_path: Path) -> None:
        """The same for a file that says nothing about its run."""
        mf.import_trials([trials_file(tmp_path / "a.npz")], tmp_path / "run")
        margins = {"train_margin": np.zeros((TRIALS, N_TRAIN)), "test_margin": np.zeros((TRIALS, N_TEST))}
        with pytest.raises(RunMismatchError, match=r"records \[\] beside correctness, the file \['margin'\]"):
            mf.import_trials([trials_file(tmp_path / "b.npz", **margins)], tmp_path / "run")

    def test_other_inputs_with_the_same_labels_are_refused(self, tmp_path: Path, world: SmallWorld) -> None:
        data = {**world.info.dataset, "name": "npz:/one.npz"}
        world.info = dataclasses.replace(world.info, dataset=data)
        world.create(tmp_path / "run").write([world.outcome(0)])
        other = dataclasses.replace(world.info, dataset={**data, "fingerprint": "0" * 32})
        file = exported(tmp_path / "t.npz", world, other, [world.outcome(1)])
        with pytest.raises(RunMismatchError, match="other inputs"):
            mf.import_trials([file], tmp_path / "run")

    def test_a_plain_file_and_an_exported_one_at_once(self, tmp_path: Path, world: SmallWorld) -> None:
        plain = plain_file(tmp_path / "a.npz", world, [world.outcome(5)])
        rich = exported(tmp_path / "b.npz", world, world.info, [world.outcome(1)])
        mf.import_trials([plain, rich], tmp_path / "run")
        assert mf.open(tmp_path / "run").info.learner == world.info.learner
        assert mf.open(tmp_path / "run").trials.numbers.tolist() == [1, 5]


def test_two_sizes_without_a_description_are_one_kind(tmp_path: Path) -> None:
    """As the lemma's design gives them: no fraction is claimed, and everything can be estimated."""
    rng = np.random.default_rng(0)
    sizes = 14 - np.arange(TRIALS) % 2
    mask = rng.permuted(np.arange(N_TRAIN) < sizes[:, None], axis=1)
    mf.import_trials([trials_file(tmp_path / "t.npz", mask=mask)], tmp_path / "run")
    run = mf.open(tmp_path / "run")
    assert run.info.kinds == (Kind(None, None),)
    assert (run.memorization().trials_in == mask.sum(axis=0)).all()
    assert run.memorization().memorization.notna().all()
    assert np.isfinite(run.influence()).all()
    assert run.report(tmp_path / "site").is_file()


WHOLE = {"train": (TRIALS, N_TRAIN), "test": (TRIALS, N_TEST)}


def both(what: str, values: Any) -> dict[str, np.ndarray]:
    return {f"{split}_{what}": np.full(shape, values) for split, shape in WHOLE.items()}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kind": np.full(TRIALS, 1)}, "'kind' goes up to 1, but .* has 1 kind"),
        ({"kind": np.full(TRIALS, 2**16)}, "small integers"),
        ({"kind": np.full(TRIALS, -1)}, "small integers"),
        ({"kind": np.zeros(TRIALS)}, "small integers"),
        ({"kind": np.zeros(3, int)}, "shape"),
        ({"trial": np.arange(TRIALS) + 2**31 - 1}, "below 2147483648. Got 2147483706"),
        ({"trial": np.arange(TRIALS).astype(np.uint64) + np.uint64(2**63)}, "below 2147483648"),
        ({"trial": np.arange(TRIALS) - 1}, "distinct numbers >= 0"),
        ({"plan": np.array(["a", "b"])}, "one text"),
        ({"run": np.asarray("{")}, "JSON text"),
        ({"run": np.asarray("[" * 100_000)}, "JSON text"),
        ({"run": np.asarray("[]")}, "run.json"),
        (both("margin", "0.5"), "floats"),
        (both("logit", 1), "floats"),
        (both("margin", np.longdouble(1)), "at most 64 bits"),
        (both("prediction", 0.5), "class codes, integers"),
        (both("prediction", -1), "class codes, integers"),
        (both("prediction", "1"), "class codes, integers"),
        (both("prediction", 7), "class codes from 0 to 3"),
        ({"train_margin": np.zeros(WHOLE["train"])}, "'train_margin' without 'test_margin'"),
        ({"train_labels": np.zeros((N_TRAIN, 2), int)}, "'train_labels' must be a flat array"),
        ({"test_labels": np.asarray(3)}, "'test_labels' must be a flat array"),
        ({"train_labels": np.zeros(0, int), "mask": np.zeros((TRIALS, 0), bool)}, "flat array, one label"),
        ({"train_labels": np.linspace(0, 1, N_TRAIN)}, "integers or strings"),
        ({"train_labels": np.full(N_TRAIN, np.nan)}, "integers or strings"),
        ({"train_labels": np.full(N_TRAIN, b"a")}, "integers or strings"),
        ({"train_labels": np.full(N_TRAIN, 2**63, np.uint64)}, "integers or strings"),
        ({"train_labels": np.full(N_TRAIN, "a")}, "strings, the other integers"),
        ({"mask": np.asarray(True)}, "a row for each trial"),
        ({"mask": np.zeros((0, N_TRAIN), bool)}, "at least one"),
        ({"mask": np.zeros((TRIALS, N_TRAIN), object)}, "Python objects"),
    ],
)
def test_what_could_not_be_estimated_later_is_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    if any(values.dtype == object for values in changes.values()):
        np.savez(tmp_path / "t.npz", allow_pickle=True, **dict(np.load(trials_file(tmp_path / "x.npz"))) | changes)
    else:
        trials_file(tmp_path / "t.npz", **changes)
    with pytest.raises(InputError, match=says) as caught:
        mf.import_trials([tmp_path / "t.npz"], tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("labels", "classes"), [(np.arange(N_TRAIN) % 4.0, [0, 1, 2, 3]), (np.arange(N_TRAIN) % 2 == 0, [0, 1, 2, 3])]
)
def test_labels_are_read_as_datasets_read_them(tmp_path: Path, labels: np.ndarray, classes: list[int]) -> None:
    mf.import_trials([trials_file(tmp_path / "t.npz", train_labels=labels)], tmp_path / "run")
    assert mf.open(tmp_path / "run").info.dataset["classes"] == classes


def test_optional_columns_come_back(tmp_path: Path) -> None:
    extras = {**both("prediction", 4), **both("margin", np.float32(0.5)), **both("logit", np.float16(2))}
    mf.import_trials([trials_file(tmp_path / "t.npz", **extras)], tmp_path / "run")
    run = mf.open(tmp_path / "run")
    assert run.info.record == ("logit", "margin", "prediction")
    for name, values in extras.items():
        assert np.array_equal(run.store.read_extra(name)[1], values)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kinds": []}, "kinds"),
        ({"kinds": [{"keep": "most", "subset_size": 15}]}, "kinds"),
        ({"kinds": [{"keep": 0.7, "subset_size": 15, "arm": "left"}]}, "kinds"),
        ({"kinds": [{"keep": 0.7, "subset_size": 14}]}, "has trials of 15 kept examples, .* of 14"),
        ({"kinds": [{"kept": 0.7}]}, "run.json"),
        ({"trials": "many"}, "trials"),
        ({"trials": 2**40}, "trials"),
        ({"group_size": 0}, "group_size"),
        ({"repeats": None}, "repeats"),
        ({"format": 9}, "format"),
        ({"learner": {"rate": float("nan")}}, "run.json"),
        ({"plan": {"digest": "another"}}, "plan"),
        ({"record": ["margin"]}, "record"),
        ({"record": ["loss"]}, "run.json"),
        ({"dataset": {"name": "x"}}, "run.json"),
        ({"something": 1}, "run.json"),
    ],
)
def test_descriptions_that_do_not_fit(tmp_path: Path, world: SmallWorld, changes: dict[str, Any], says: str) -> None:
    run = {**dataclasses.asdict(world.info), **changes}
    file = plain_file(tmp_path / "t.npz", world, [world.outcome(0)], run=json.dumps(run))
    with pytest.raises(InputError, match=says) as caught:
        mf.import_trials([file], tmp_path / "new")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("read", ["import", "compare", "compare with a run", "masks"])
def test_damaged_archives_are_one_sentence(tmp_path: Path, read: str) -> None:
    """Every byte of the archive in turn (in steps), every cut: refused or harmless, never another exception."""
    mf.import_trials([trials_file(tmp_path / "t.npz")], tmp_path / "run")
    run = mf.open(tmp_path / "run")
    file = tmp_path / "file.npz"
    if read.startswith("compare"):
        mf.export_published(run, file)
    else:
        mf.export_trials(run, file)
    good, rng = file.read_bytes(), np.random.default_rng(0)
    refused = []
    for step in range(150):
        bad = bytearray(good)
        if step % 3:
            for position in rng.integers(0, len(bad), 3):
                bad[position] ^= int(rng.integers(1, 256))
        else:
            del bad[int(rng.integers(len(bad))) :]
        file.write_bytes(bytes(bad))
        try:
            if read == "import":
                mf.import_trials([file], tmp_path / "run")
            elif read == "masks":
                mf.designs.make(f"explicit:{file}", n_train=N_TRAIN)
            else:
                mf.compare(*([run, file] if read == "compare with a run" else [file]))
        except MemfluenceError as error:
            refused.append(str(error))
    assert len(refused) > 50
    assert not [message for message in refused if "\n" in message]
