"""Trials and results that travel: import, export, compare, tables."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import memfluence as mf
from exchange.trial_files import everything, full_disk, trials_file
from memfluence.errors import InputError, RunMismatchError, StoreError
from memfluence.exchange import read_published
from memfluence.runs import Table
from memfluence.store import TrialStore, unpack
from small_world import SmallWorld


class TestImport:
    def test_scores_equal_plain_numpy_to_the_last_bit(self, tmp_path: Path) -> None:
        z = np.load(trials_file(tmp_path / "t.npz"))
        mf.import_trials([tmp_path / "t.npz"], tmp_path / "run")
        mask, right = z["mask"], z["train_correct"]
        kept, out = mask.sum(0), (~mask).sum(0)
        expected = (mask & right).sum(0) / kept - (~mask & right).sum(0) / out
        found = mf.open(tmp_path / "run").memorization()
        assert (found.memorization.to_numpy() == expected).all()
        assert (found.trials_in.to_numpy() == kept).all()
        influence = mf.open(tmp_path / "run").influence(test=[2, 5])
        test = z["test_correct"][:, [2, 5]]
        naive = (mask.T.astype(int) @ test) / kept[:, None] - ((~mask).T.astype(int) @ test) / out[:, None]
        assert (influence == naive).all()

    def test_pieces_join_and_joining_twice_changes_nothing(self, tmp_path: Path) -> None:
        whole = mf.import_trials([trials_file(tmp_path / "whole.npz")], tmp_path / "whole")
        assert (whole.added, whole.already_there) == (60, 0)
        parts = [
            trials_file(tmp_path / f"{k}.npz", slice(20 * k, 20 * k + 20), trial=np.arange(20 * k, 20 * k + 20))
            for k in (2, 0, 1)
        ]
        mf.import_trials(parts[:1], tmp_path / "run")
        joined = mf.import_trials(parts, tmp_path / "run")
        assert (joined.added, joined.already_there) == (40, 20)
        before = everything(tmp_path / "run")
        assert mf.import_trials(parts, tmp_path / "run").added == 0
        assert everything(tmp_path / "run") == before
        a, b = mf.open(tmp_path / "whole").trials, mf.open(tmp_path / "run").trials
        assert (a.numbers == b.numbers).all()
        assert (a.mask == b.mask).all()

    def test_trials_without_numbers_are_told_apart_by_content(self, tmp_path: Path) -> None:
        trials_file(tmp_path / "first.npz", slice(0, 30))
        trials_file(tmp_path / "second.npz", slice(20, 60))
        mf.import_trials([tmp_path / "first.npz"], tmp_path / "run")
        again = mf.import_trials([tmp_path / "second.npz"], tmp_path / "run")
        assert (again.added, again.already_there) == (30, 10)
        assert mf.open(tmp_path / "run").trials.numbers.tolist() == list(range(60))

    def test_what_does_not_belong_is_refused_and_nothing_is_written(self, tmp_path: Path) -> None:
        base = {"trial": np.arange(60), "plan": np.asarray("aa")}
        mf.import_trials([trials_file(tmp_path / "a.npz", **base)], tmp_path / "run")
        before = everything(tmp_path / "run")
        other = np.ones((60, 9), bool)
        for changes, error, says in [
            ({"plan": np.asarray("bb")}, RunMismatchError, "plan"),
            ({"train_labels": np.arange(20) % 2}, RunMismatchError, "labels differ"),
            ({"test_correct": other}, StoreError, "another record of trial 0"),
            ({"mask": np.arange(20)[None].repeat(60, 0) < 10}, RunMismatchError, "kept examples"),
        ]:
            file = trials_file(tmp_path / "b.npz", **{**base, **changes})
            with pytest.raises(error, match=says):
                mf.import_trials([file], tmp_path / "run")
        assert everything(tmp_path / "run") == before

    def test_the_authors_release(self, tmp_path: Path) -> None:
        """Two run folders as they published them: shuffled indices, correctness in that order, no labels."""
        rng = np.random.default_rng(0)
        truth = []
        for number in (0, 10):
            kept = np.sort(rng.permutation(12)[:8])
            train, test = rng.random(12) < 0.8, rng.random(5) < 0.5
            truth.append((kept, train, test))
            removed, order = rng.permutation(np.setdiff1d(np.arange(12), kept)), rng.permutation(5)
            shuffled = rng.permutation(kept)
            folder = tmp_path / "cifar100-inception" / "0.7" / str(number)
            folder.mkdir(parents=True)
            np.savez(
                folder / "aux_arrays.npz",
                index_train=shuffled,
                index_removed=removed,
                index_test=order,
                correctness_train=train[shuffled],
                correctness_removed=train[removed],
                correctness_test=test[order],
                subsample_idx=kept,
            )
        x = np.zeros((12, 2))
        np.savez(tmp_path / "data.npz", x_train=x, y_train=np.arange(12) % 3, x_test=x[:5], y_test=np.arange(5) % 3)
        with pytest.raises(InputError, match="`dataset`"):
            mf.import_trials([tmp_path / "cifar100-inception"], tmp_path / "run")
        mf.import_trials([tmp_path / "cifar100-inception"], tmp_path / "run", dataset=f"npz:{tmp_path / 'data.npz'}")
        trials = mf.open(tmp_path / "run").trials
        for row, (kept, train, test) in enumerate(truth):
            assert np.flatnonzero(unpack(trials.mask[row], 12)).tolist() == kept.tolist()
            assert (unpack(trials.train_correct[row], 12) == train).all()
            assert (unpack(trials.test_correct[row], 5) == test).all()
        assert mf.open(tmp_path / "run").dataset().n_train == 12


class TestExport:
    def test_a_run_survives_the_journey(self, tmp_path: Path, world: SmallWorld) -> None:
        columns = {"train_margin": np.linspace(-2, 2, 21).astype(np.float16), "test_margin": np.ones(13, np.float16)}
        info = dataclasses.replace(world.info, record=("margin",), columns=(*world.info.columns, *columns))
        store = TrialStore.create(tmp_path / "there", info, world.y_train, world.y_test)
        store.write([dataclasses.replace(world.outcome(k), extras=columns) for k in (0, 1, 5)])
        mf.export_trials(mf.open(tmp_path / "there"), tmp_path / "t.npz")
        mf.import_trials([tmp_path / "t.npz"], tmp_path / "here")
        there, here = mf.open(tmp_path / "there"), mf.open(tmp_path / "here")
        assert here.info == there.info
        for name in ("numbers", "kinds", "mask", "train_correct", "test_correct"):
            assert (getattr(here.trials, name) == getattr(there.trials, name)).all()
        assert (here.store.read_extra("train_margin")[1] == there.store.read_extra("train_margin")[1]).all()

    def test_the_published_layout(self, tmp_path: Path) -> None:
        mf.import_trials([trials_file(tmp_path / "t.npz")], tmp_path / "run")
        run = mf.open(tmp_path / "run")
        mf.export_published(run, tmp_path / "scores.npz")
        z = np.load(tmp_path / "scores.npz")
        assert (z["tr_mem"] == run.memorization().memorization).all()
        matrix = run.influence()
        for label in range(4):
            train, test = z[f"tr_classidx_{label}"], z[f"tt_classidx_{label}"]
            assert (z["tr_labels"][train] == label).all()
            assert (z["tt_labels"][test] == label).all()
            assert z[f"infl_matrix_class{label}"].dtype == np.float64
            assert (z[f"infl_matrix_class{label}"] == matrix[np.ix_(train, test)]).all()
        mf.export_published(run, tmp_path / "pairs.npz", pairs=True, mem=0, infl=0.1)
        found = run.find_pairs(0, 0.1)
        assert (np.load(tmp_path / "pairs.npz")["infl"] == found.influence).all()
        assert read_published(tmp_path / "pairs.npz").summary() == found.summary

    @pytest.mark.parametrize("names", [(3, 7), ("3", "10"), ("a cat", "dog/é"), ("", "x.npy")])
    def test_classes_are_called_by_their_labels(self, tmp_path: Path, names: tuple[int | str, int | str]) -> None:
        labels = np.array(names)
        train, test = labels[np.arange(20) % 2], labels[np.arange(9) % 2]
        mf.import_trials([trials_file(tmp_path / "t.npz", train_labels=train, test_labels=test)], tmp_path / "run")
        run = mf.open(tmp_path / "run")
        mf.export_published(run, tmp_path / "scores.npz")
        z = np.load(tmp_path / "scores.npz")
        expected = {f"{part}_classidx_{name}" for name in names for part in ("tr", "tt")}
        expected |= {f"infl_matrix_class{name}" for name in names}
        assert set(z.files) == {"tr_mem", "tr_labels", "tt_labels"} | expected
        for name in names:
            assert z[f"tr_classidx_{name}"].tolist() == np.flatnonzero(train == name).tolist()
        assert mf.compare(run, tmp_path / "scores.npz", mem=0, infl=0)["pairs"]["jaccard"] == 1

    @pytest.mark.parametrize("what", ["scores", "pairs", "trials", "table"])
    def test_a_full_disk_leaves_what_was_there(self, tmp_path: Path, what: str) -> None:
        mf.import_trials([trials_file(tmp_path / "t.npz")], tmp_path / "run")
        run = mf.open(tmp_path / "run")
        file = tmp_path / "out" / ("scores.csv" if what == "table" else "file.npz")

        def write(mem: float) -> None:
            if what == "table":
                Table({"index": np.arange(99), "value": np.full(99, mem)}).write(file)
            elif what == "trials":
                mf.export_trials(run, file)
            else:
                mf.export_published(run, file, pairs=what == "pairs", mem=mem, infl=0)

        write(0.0)
        before = everything(file.parent)
        assert list(before) == [str(file)]
        with full_disk(), pytest.raises(StoreError, match=r"Failed writing .*disk is full"):
            write(0.1)
        assert everything(file.parent) == before
        write(0.1)
        assert list(everything(file.parent)) == [str(file)]

    def test_places_that_cannot_take_a_file(self, tmp_path: Path) -> None:
        mf.import_trials([trials_file(tmp_path / "t.npz")], tmp_path / "run")
        run = mf.open(tmp_path / "run")
        (tmp_path / "folder.npz").mkdir()
        for write in (mf.export_trials, mf.export_published):
            with pytest.raises(InputError, match="is a directory; name a file"):
                write(run, tmp_path / "folder.npz")
            with pytest.raises(StoreError, match="check the disk and the path"):
                write(run, tmp_path / "t.npz" / "below.npz")


class TestCompare:
    def test_a_run_with_its_export_selects_the_same_pairs(self, tmp_path: Path) -> None:
        """Each example is kept 20 times of 40, so that estimates are twentieths, of which 0.15 has two spellings."""
        rng = np.random.default_rng(0)
        mask = rng.permuted(np.tile(np.arange(20) < 10, (20, 1)), axis=1)
        mask = np.concatenate([mask, ~mask])
        outcomes = {name: rng.random((40, n)) < 0.5 for name, n in (("train_correct", 20), ("test_correct", 9))}
        mf.import_trials([trials_file(tmp_path / "t.npz", mask=mask, **outcomes)], tmp_path / "run")
        run = mf.open(tmp_path / "run")
        mf.export_published(run, tmp_path / "scores.npz")
        codes = run.label_codes
        values = run.influence()[codes[0][:, None] == codes[1]]  # of pairs of one class
        tipped = 0
        for infl in np.unique(values[values > 0]).tolist():
            pairs = mf.compare(run, tmp_path / "scores.npz", mem=-1, infl=infl)["pairs"]
            assert pairs["first"] == pairs["shared"] == pairs["second"] == (values >= infl).sum()
            tipped += int(((values.astype(np.float32) >= np.float32(infl)) != (values >= infl)).sum())
        assert tipped > 0  # float32 would select others

    def test_a_run_alone_looks_at_nothing_by_chance(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        mf.import_trials([trials_file(tmp_path / "t.npz")], tmp_path / "run")
        run = mf.open(tmp_path / "run")
        expected = run.find_pairs(0, 0.1, permutations=0).summary
        monkeypatch.setattr("memfluence.estimators.Arms.permuted", lambda *_: pytest.fail("a permutation"))
        assert mf.compare(run, mem=0, infl=0.1) == {"first": str(run.path), "summary": expected}

    @pytest.mark.parametrize(
        ("arrays", "says"),
        [
            ({"tr_idx": [0.0], "tt_idx": [0], "infl": [0.2]}, "'tr_idx' must be a flat array of indices"),
            ({"tr_idx": [-1], "tt_idx": [0], "infl": [0.2]}, "'tr_idx' must be a flat array of indices"),
            ({"tr_idx": [[0]], "tt_idx": [0], "infl": [0.2]}, "'tr_idx' must be a flat array of indices"),
            ({"tr_idx": [0], "tt_idx": [0], "infl": ["a"]}, "'infl' must hold numbers"),
            ({"tr_idx": [0], "tt_idx": [0], "infl": [np.nan]}, "no number"),
            ({"tr_idx": [0], "tt_idx": [0, 1], "infl": [0.2]}, "equally long"),
            ({"tr_mem": [["a"]]}, "'tr_mem' must hold numbers"),
            ({"tr_mem": [[0.5]]}, "flat"),
            ({"tr_mem": np.zeros(20), "tr_labels": np.zeros(3)}, "equally long"),
            ({"tr_mem": np.zeros(20), "infl_matrix_class3": np.zeros((1, 1))}, "without 'tr_classidx_3'"),
            (
                {"tr_mem": np.zeros(20), "infl_matrix_class3": [[0.5]], "tr_classidx_3": [1], "tt_classidx_3": [1, 2]},
                "does not fit",
            ),
            (
                {"tr_mem": np.zeros(20), "infl_matrix_class3": [[0.5]], "tr_classidx_3": [20], "tt_classidx_3": [1]},
                "does not fit",
            ),
            ({"tr_mem": np.zeros(19)}, "20 and 19 training examples"),
            ({"mem": np.zeros(19)}, "tr_mem"),
        ],
    )
    def test_published_files_that_contradict_themselves(
        self, tmp_path: Path, arrays: dict[str, object], says: str
    ) -> None:
        mf.import_trials([trials_file(tmp_path / "t.npz")], tmp_path / "run")
        np.savez(tmp_path / "p.npz", **arrays)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=says) as caught:
            mf.compare(tmp_path / "run", tmp_path / "p.npz")
        assert "\n" not in str(caught.value)

    def test_a_run_with_itself(self, tmp_path: Path) -> None:
        mf.import_trials([trials_file(tmp_path / "t.npz")], tmp_path / "run")
        result = mf.compare(tmp_path / "run", tmp_path / "run", mem=0.0, infl=0.1)
        assert result["memorization"]["pearson"] == pytest.approx(1)
        assert result["memorization"]["mean_absolute_difference"] == 0
        assert result["pairs"]["jaccard"] == 1
        json.dumps(result, allow_nan=False)

    def test_published_pairs_against_a_run(self, tmp_path: Path) -> None:
        mf.import_trials([trials_file(tmp_path / "t.npz")], tmp_path / "run")
        run = mf.open(tmp_path / "run")
        mf.export_published(run, tmp_path / "pairs.npz", pairs=True, mem=0, infl=0.1)
        result = mf.compare(tmp_path / "pairs.npz", run, mem=0, infl=0.1)
        published = result["published_pairs"]
        assert published["correlation"] == pytest.approx(1)
        assert published["mean_influence_here"] == published["mean_influence_published"]
        # by hand: the strongest of its class for each test example
        codes, matrix, firsts = run.label_codes, run.influence(), 0
        for i, j in zip(*(np.load(tmp_path / "pairs.npz")[name] for name in ("tr_idx", "tt_idx"))):
            firsts += matrix[i, j] == matrix[codes[0] == codes[1][j], j].max()
        assert published["most_influential_of_class"] == firsts

    def test_a_file_of_other_data_is_noticed(self, tmp_path: Path) -> None:
        mf.import_trials([trials_file(tmp_path / "t.npz")], tmp_path / "run")
        np.savez(tmp_path / "p.npz", tr_idx=[0, 1], tt_idx=[0, 2], infl=[0.2, 0.2], mem=[0.5, 0.5])
        with pytest.raises(RunMismatchError, match="1 of its pairs have two classes"):
            mf.compare(tmp_path / "run", tmp_path / "p.npz")
        np.savez(tmp_path / "p.npz", tr_idx=[99], tt_idx=[0], infl=[0.2], mem=[0.5])
        with pytest.raises(RunMismatchError, match="does not have"):
            mf.compare(tmp_path / "run", tmp_path / "p.npz")

    def test_the_summary_of_a_file_alone(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "p.npz", tr_idx=[4, 4, 5], tt_idx=[0, 1, 1], infl=[0.2, 0.2, 0.3], mem=[0.5, 0.5, 0.9])
        counts = {"pairs": 3, "train_examples": 2, "test_examples": 2, "single_test_examples": 1}
        assert mf.compare(tmp_path / "p.npz")["summary"] == counts
