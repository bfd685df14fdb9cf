"""What the explorer's files say, against the run they are made from."""

import json
from pathlib import Path

import numpy as np
import pytest
from explorer_files import data_folder, document, fractions, numbers
from tiny_run import CARRIED, MEMORIZED, N_TEST, N_TRAIN, TRIALS, make_run, trials

from memfluence.datasets import from_arrays
from memfluence.errors import InputError, RunMismatchError
from memfluence.findings import tail_map
from memfluence.records import Kind
from memfluence.report import write_report
from memfluence.report.explorer.influences import CARRIERS, TESTS, influence_details
from memfluence.report.explorer.scripts import packed, quantized, script
from memfluence.report.explorer.tables import votes
from memfluence.runs import Run


def images(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)


def facts(page: Path) -> dict:
    return document(page, "meta")["facts"]


def test_counts_and_accuracies(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    page = write_report(run, tmp_path / "out")
    known, said = trials(), facts(page)
    assert (document(page, "meta")["nTrain"], document(page, "meta")["nTest"]) == (N_TRAIN, N_TEST)
    assert said["trials"] == TRIALS
    assert said["accuracyIn"] == pytest.approx(known["train_correct"][known["mask"]].mean())
    assert said["accuracyOut"] == pytest.approx(known["train_correct"][~known["mask"]].mean())
    assert said["testAccuracy"] == pytest.approx(known["test_correct"].mean())
    assert said["memorized"] == said["surelyMemorized"] == len(MEMORIZED)
    assert sum(said["histogram"]["counts"]) == N_TRAIN
    assert said["pairs"]["pairs"] == len(CARRIED)
    assert said["pairs"]["believed"] == run.find_pairs(fdr=0.1).summary
    reached, pairs = said["pairs"]["atLeast"], run.find_pairs()
    assert [one[15] for one in reached["chance"]] == pairs.permuted_counts.tolist()
    assert reached["found"] == [int((pairs.influence >= k / 100).sum()) for k in range(101)]
    assert reached["believed"] == [int((run.find_pairs(fdr=0.1).influence >= k / 100).sum()) for k in range(101)]


def test_columns_are_the_runs_own(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    page = write_report(run, tmp_path / "out")
    table, train = run.memorization(), document(page, "train")
    assert np.array_equal(numbers(train["label"]), run.label_codes[0])
    for name, column in (("memorization",) * 2, ("stderr",) * 2, ("accuracyIn", "accuracy_in")):
        off = table[column].to_numpy() - fractions(train[name])
        assert off.min() >= 0
        assert off.max() < 0.0001 + 1e-12
    shown = np.argsort(numbers(train["place"])).tolist()
    keys = [(-fractions(train["memorization"]))[shown], fractions(train["stderr"])[shown]]
    assert shown[: len(MEMORIZED)] == sorted(MEMORIZED, key=lambda k: (quantized(table["stderr"].to_numpy())[k], k))
    assert sorted(zip(*keys)) == list(zip(*keys))  # most memorized first, of equal ones the surest
    test = document(page, "test")
    assert fractions(test["accuracy"]) == pytest.approx(trials()["test_correct"].mean(axis=0), abs=1e-4)
    pairs, found, believed = document(page, "pairs"), run.pairs(), run.pairs(fdr=0.1)
    assert numbers(pairs["train"]).tolist() == found["train_index"].tolist()
    assert numbers(pairs["test"]).tolist() == found["test_index"].tolist()
    assert numbers(test["pairs"]).tolist() == np.bincount(believed["test_index"], minlength=N_TEST).tolist()
    details = document(page, "train-0")
    assert fractions(details["lower"]) == pytest.approx(table["lower"].to_numpy(), abs=1.01e-4)
    assert numbers(details["trialsOut"]).tolist() == table["trials_out"].tolist()


def noisy_run(directory: Path) -> Run:
    """Outcomes with ties, an example that was never left out and one that was never kept."""
    rng = np.random.default_rng(3)
    known = {name: rng.random((25, values.shape[1])) < 0.6 for name, values in trials().items()}
    known["mask"][:, 4], known["mask"][:, 7] = True, False
    return make_run(directory, **known)


def test_lists_of_influence_against_the_whole_matrix(tmp_path: Path) -> None:
    run = noisy_run(tmp_path)
    details = influence_details(run, None, lambda share: None)
    matrix = run.influence()  # (train, test)
    train_labels, test_labels = run.label_codes
    for i in range(N_TRAIN):
        same = np.flatnonzero(test_labels == train_labels[i])
        best = sorted((j for j in same if matrix[i, j] > 0), key=lambda j: (-matrix[i, j], j))[:TESTS]
        assert [j for j in details.carried.index[i] if j >= 0] == best
        assert details.carried.influence[i][: len(best)] == pytest.approx([matrix[i, j] for j in best])
    for j in range(N_TEST):
        same = [i for i in np.flatnonzero(train_labels == test_labels[j]) if not np.isnan(matrix[i, j])]
        best = sorted((i for i in same if matrix[i, j] > 0), key=lambda i: (-matrix[i, j], i))[:CARRIERS]
        assert [i for i in details.carriers.index[j] if i >= 0] == best
        worst = sorted((i for i in same if matrix[i, j] < 0), key=lambda i: (matrix[i, j], i))[:4]
        assert [i for i in details.harmful.index[j] if i >= 0] == worst
        known = details.carriers.index[j] >= 0
        gain = details.carriers.accuracy_in[j] - details.carriers.accuracy_out[j]
        assert gain[known] == pytest.approx(details.carriers.influence[j][known])


def test_who_changes_nothing_carries_nobody(tmp_path: Path) -> None:
    details = influence_details(make_run(tmp_path), None, lambda share: None)
    always_right = np.setdiff1d(np.arange(N_TEST), list(CARRIED))
    assert (details.carriers.index[always_right] == -1).all()
    assert np.isnan(details.carriers.influence[always_right]).all()
    assert not np.isin(details.carried.index, always_right).any()
    for test, train in CARRIED.items():
        assert details.carriers.index[test, 0] == train


def test_a_class_in_parts_gives_the_same_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = noisy_run(tmp_path)
    whole = influence_details(run, None, lambda share: None)
    monkeypatch.setattr("memfluence.report.explorer.influences.COMPARED_AT_ONCE", 0)
    monkeypatch.setattr("memfluence.report.explorer.influences.VALUES_AT_ONCE", 40)
    parts = influence_details(run, None, lambda share: None)
    for name in ("carried", "carriers", "harmful"):
        assert np.array_equal(getattr(whole, name).index, getattr(parts, name).index)
    assert (parts.similar == -1).all()  # too large to compare, and says nothing


def test_similar_influences_are_correlations(tmp_path: Path) -> None:
    run = noisy_run(tmp_path)
    details = influence_details(run, None, lambda share: None)
    matrix = run.influence()
    labels, test_labels = run.label_codes
    for i in (0, 1, 4, 12):
        columns = test_labels == labels[i]
        others = [k for k in np.flatnonzero(labels == labels[i]) if k != i and not np.isnan(matrix[k, 0])]
        if np.isnan(matrix[i, 0]):
            assert (details.similar[i] == -1).all()
            continue
        values = [np.corrcoef(matrix[i, columns], matrix[k, columns])[0, 1] for k in others]
        assert details.similarity[i] == pytest.approx(sorted(values, reverse=True)[:6], abs=1e-5)


def test_votes_against_counting_one_by_one() -> None:
    rng = np.random.default_rng(2)
    said = rng.integers(0, 5, (30, 11))  # 4 is none of the classes
    mask = rng.random((30, 11)) < 0.6
    mask[:, 3] = True  # nobody left it out
    found = votes(said, 4, np.packbits(mask, axis=1, bitorder="little"))
    for j in range(11):
        out = said[~mask[:, j], j]
        counts = sorted(((int((out == code).sum()), -code) for code in range(4)), reverse=True)
        expected = [-code for count, code in counts if count]
        assert [code for code in found.code[j] if code >= 0] == expected
        if len(out):
            assert found.share[j][: len(expected)] == pytest.approx([(out == c).mean() for c in expected])
    everyone = votes(said, 4)
    assert everyone.share[0][0] == max((said[:, 0] == code).mean() for code in range(4))


def test_pairs_are_those_found_and_those_believed(tmp_path: Path) -> None:
    """Noise lifts some over the threshold that are not believed; with rare errors less is believed, too."""
    rng = np.random.default_rng(4)
    known = trials()
    known["test_correct"][:, 7:20] = rng.random((TRIALS, 13)) < 0.5
    known["test_correct"][:, 21:] = rng.random((TRIALS, 9)) < 0.5
    rare = known["mask"][:, 0] | (rng.random(TRIALS) < 0.87)
    known["test_correct"][:, 20] = rare  # an influence of about 0.13
    run = make_run(tmp_path, **known)
    page = write_report(run, tmp_path / "out")
    found, believed, table = run.find_pairs(), run.find_pairs(fdr=0.1), document(page, "pairs")
    sets = [set(zip(one.train_index.tolist(), one.test_index.tolist())) for one in (found, believed)]
    assert sets[0] - sets[1]
    assert sets[1] - sets[0]
    listed = list(zip(numbers(table["train"]).tolist(), numbers(table["test"]).tolist()))
    assert set(listed) == sets[0] | sets[1]
    assert len(listed) == len(set(listed))
    assert {pair for pair, sure in zip(listed, numbers(table["believed"])) if sure} == sets[1]
    influence = fractions(table["influence"])
    assert (np.diff(influence) <= 0).all()
    for name, split in (("carried", "train"), ("carriers", "test")):
        lists = document(page, f"{split}-0")[name]
        rows = numbers(lists["index"]).reshape(-1, numbers(lists["index"]).size // (40 if split == "train" else 30))
        flags = numbers(lists["believed"]).reshape(rows.shape)
        for row, column in zip(*np.nonzero(rows >= 0)):
            other = int(rows[row, column])
            pair = (int(row), other) if split == "train" else (other, int(row))
            assert bool(flags[row, column]) == (pair in sets[1])


def test_of_too_many_pairs_the_believed_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memfluence.report.explorer.tables.PAIRS", 3)
    page = write_report(make_run(tmp_path), tmp_path / "out")
    table = document(page, "pairs")
    assert facts(page)["pairs"]["believed"]["pairs"] == len(CARRIED)
    assert numbers(table["believed"]).tolist() == [1, 1, 1]


def test_the_map_is_that_of_the_run(tmp_path: Path) -> None:
    run = noisy_run(tmp_path)
    page = write_report(run, tmp_path / "out")
    cells, found = document(page, "map"), tail_map(run.estimate_memorization(), run.label_codes[0])
    for name in ("row", "column", "count", "index"):
        assert np.array_equal(numbers(cells[name]), getattr(found, name))
    assert fractions(cells["memorization"]) == pytest.approx(
        run.memorization()["memorization"][found.index], abs=1.01e-4
    )
    assert "sheet" not in cells  # no inputs are known
    assert "words" not in cells


def test_the_page_says_its_title_and_counts_without_its_program(tmp_path: Path) -> None:
    page = write_report(make_run(tmp_path), tmp_path / "out", title="<b>What</b> is memorized")
    text = page.read_text()
    assert "<h1>&lt;b&gt;What&lt;/b&gt; is memorized</h1>" in text
    assert f"{TRIALS} models, each trained on random subsets of {N_TRAIN} training examples" in text
    assert f"{len(MEMORIZED)} are memorized" in text


def test_thresholds_mean_the_same_after_rounding() -> None:
    edges = np.arange(-20, 21) / 20
    assert (quantized(edges) == np.arange(-20, 21) * 500).all()
    steps = np.arange(-10_000, 10_001)
    assert (quantized(steps / 10_000) == steps).all()
    assert (quantized(np.nextafter(steps / 10_000, -2)) == steps - 1).all()  # below a threshold stays below it
    assert (quantized(np.nextafter(edges - 1e-6, -2)) < np.arange(-20, 21) * 500).all()
    assert quantized(np.array([np.nan, 1.0, -1.0])).tolist() == [-32768, 10_000, -10_000]


def test_numbers_are_packed_in_the_narrowest_type() -> None:
    for values, letters in (([0, 255], "u1"), ([256], "u2"), ([70_000], "u4"), ([-1, 3], "u4"), ([], "u1")):
        made = packed(np.array(values, np.int64))
        assert made[0] == letters
        assert numbers(made).tolist() == values


def test_scripts_hold_no_markup_and_give_back_what_they_were_given() -> None:
    hostile = ["</script><script>alert(1)</script>", "<!--", "]]>", "\u2028\u2029", "\ud800", '"\\', "&amp;", "é"]
    text = script("a", {"b": hostile}).decode("ascii")
    assert not set("<>&") & set(text)
    assert json.loads(text[len('memfluence.take("a",') : -2]) == {"b": hostile}


def test_examples_without_an_estimate(tmp_path: Path) -> None:
    changed = trials()
    changed["mask"][:, 10], changed["mask"][:, 11] = True, False
    page = write_report(make_run(tmp_path, **changed), tmp_path / "out")
    assert facts(page)["known"] == 38
    assert facts(page)["histogram"]["missing"] == 2
    train = document(page, "train")
    assert np.flatnonzero(np.isnan(fractions(train["memorization"]))).tolist() == [10, 11]
    assert numbers(train["place"])[[10, 11]].tolist() == [38, 39]


def test_one_trial_has_nothing_to_say(tmp_path: Path) -> None:
    one = {name: values[:1] for name, values in trials().items()}
    page = write_report(make_run(tmp_path, **one), tmp_path / "out")
    said = facts(page)
    assert (said["known"], said["memorized"], said["stderr"], said["pairs"]["pairs"]) == (0, 0, None, 0)


def test_several_keep_fractions(tmp_path: Path, world) -> None:  # type: ignore[no-untyped-def]
    from dataclasses import replace

    from memfluence.store import TrialStore

    info = replace(world.info, kinds=(Kind(0.5, 10), Kind(0.7, 15)))
    store = TrialStore.create(tmp_path / "run", info, world.y_train, world.y_test)
    store.write([replace(world.outcome(number), kind=number % 2) for number in range(30)])
    page = write_report(Run(store), tmp_path / "out")
    assert "This is about the trials that keep 0.7; the run also has 0.5." in document(page, "meta")["notices"]
    assert (facts(page)["keep"], facts(page)["trials"]) == (0.7, 15)
    page = write_report(Run(store), tmp_path / "out", keep=0.5)
    assert facts(page)["keep"] == 0.5


def test_without_inputs_the_page_says_what_to_do(tmp_path: Path) -> None:
    meta = document(write_report(make_run(tmp_path), tmp_path / "out"), "meta")
    assert meta["inputs"] == "none"
    assert "Only numbers are shown, no inputs." in meta["notices"][0]
    assert "name them with `dataset`" in meta["notices"][0]
    gone = write_report(make_run(tmp_path / "b", name=f"npz:{tmp_path}/gone.npz"), tmp_path / "out")
    assert "gone.npz" in document(gone, "meta")["notices"][0]


def test_data_named_by_the_caller_must_load_and_agree(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    train, test = (run.classes[codes] for codes in run.label_codes)
    file = tmp_path / "data.npz"
    np.savez(file, x_train=images(N_TRAIN, 8, 8), y_train=train, x_test=images(N_TEST, 8, 8), y_test=test)
    page = write_report(run, tmp_path / "out", dataset=f"npz:{file}")
    assert document(page, "meta")["inputs"] == "images"
    assert document(page, "meta")["title"] == f"What is memorized in {N_TRAIN} examples"
    assert list(data_folder(page).glob("*.webp")) != []
    with pytest.raises(InputError, match="gone"):
        write_report(make_run(tmp_path), tmp_path / "out", dataset=f"npz:{tmp_path}/gone.npz")
    np.savez(file, x_train=images(N_TRAIN, 8, 8), y_train=train[::-1], x_test=images(N_TEST, 8, 8), y_test=test)
    with pytest.raises(RunMismatchError):
        write_report(make_run(tmp_path), tmp_path / "out", dataset=f"npz:{file}")
    with pytest.raises(RunMismatchError):  # also where the run itself names them
        write_report(make_run(tmp_path / "b", name=f"npz:{file}"), tmp_path / "out")


def test_likely_mislabels_and_near_duplicates(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    page = write_report(run, tmp_path / "out")
    listed = document(page, "mislabels")
    assert sorted(numbers(listed["index"])) == list(MEMORIZED)  # right only when kept; all others always right
    assert "suggestion" not in listed
    duplicates, found = document(page, "duplicates"), run.duplicates()
    assert numbers(duplicates["train"]).tolist() == found["train_index"].tolist()
    assert duplicates["total"] == len(found) == document(page, "meta")["found"]["duplicates"]


def test_a_list_that_is_cut_says_of_how_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memfluence.report.explorer.tables.LISTED", 1)
    page = write_report(make_run(tmp_path), tmp_path / "out")
    listed = document(page, "mislabels")
    assert len(numbers(listed["index"])) == 1
    assert listed["total"] == len(MEMORIZED) == document(page, "meta")["found"]["mislabels"]


def test_names_and_labels_of_classes(tmp_path: Path) -> None:
    long = "a very long name, " + "x" * 5000
    run = make_run(tmp_path, classes=("7", long))
    meta = document(write_report(run, tmp_path / "out"), "meta")
    assert meta["classes"][0] == "class 7"
    assert len(meta["classes"][1]) == 120
    assert meta["labels"] == ["7", long[:1000]]


def test_progress_goes_up_to_one(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    codes = run.label_codes
    data = from_arrays(
        images(N_TRAIN, 8, 8), run.classes[codes[0]], images(N_TEST, 8, 8), run.classes[codes[1]], name="digits"
    )
    shares: list[float] = []
    write_report(Run(run.store, data), tmp_path / "out", progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
