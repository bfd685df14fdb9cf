"""What other tools read: written by a run, read back with plain readers (and with the tool itself where it is here)."""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline

import memfluence as mf
from memfluence.cli import main
from memfluence.errors import InputError
from memfluence.store import unpack


def small_run(tmp_path: Path, data: object = "digits", **options: object) -> mf.Run:
    learner = options.pop("learner", GaussianNB())
    return mf.run(data, learner=learner, trials=12, out=tmp_path / "run", progress=False, **options)  # type: ignore[arg-type]


def naive_votes(run: mf.Run) -> np.ndarray:
    """One vote at a time."""
    mask = unpack(run.trials.mask, run.info.n_train)
    said = run.recorded("train_prediction")
    votes = np.zeros((run.info.n_train, len(run.classes)))
    for trial in range(len(mask)):
        for example in np.flatnonzero(~mask[trial]):
            votes[example, said[trial, example]] += 1
    return votes


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_cleanlab_gets_what_held_out_models_say(tmp_path: Path, suffix: str) -> None:
    run = small_run(tmp_path, record=["prediction"])
    votes = naive_votes(run)
    assert (run.held_out_votes() == votes).all()
    mf.export_for(run, tmp_path / f"probabilities{suffix}", "cleanlab")
    table = (pd.read_csv if suffix == ".csv" else pd.read_parquet)(tmp_path / f"probabilities{suffix}")
    seen = votes.sum(axis=1) > 0
    shares = table[[f"pred_prob_{k}" for k in range(10)]].to_numpy()
    np.testing.assert_allclose(shares[seen], (votes / np.maximum(votes.sum(1, keepdims=True), 1))[seen], rtol=1e-15)
    assert np.isnan(shares[~seen]).all()
    assert (table["given_label"] == run.label_codes[0]).all()
    assert (table["predicted_label"][~seen] == -1).all()
    assert (table["predicted_label"][seen] == votes[seen].argmax(1)).all()
    right = run.memorization()["accuracy_out"]
    np.testing.assert_allclose(table["label_quality"], right, rtol=1e-15)  # it is the C-score of this run


def test_cleanlab_gets_the_quality_by_which_mislabels_are_ranked(tmp_path: Path) -> None:
    run = small_run(tmp_path, record=["prediction", "margin"])
    mf.export_for(run, tmp_path / "probabilities.csv", "cleanlab")
    quality = pd.read_csv(tmp_path / "probabilities.csv")["label_quality"].to_numpy()
    mask, margins = unpack(run.trials.mask, run.info.n_train), run.recorded("train_margin").astype(float)
    accepts = np.where(mask, np.nan, 1 / (1 + np.exp(-margins)))
    seen = ~mask.all(axis=0)
    np.testing.assert_allclose(quality[seen], np.nanmean(accepts[:, seen], axis=0), rtol=1e-12)
    assert np.isnan(quality[~seen]).all()


def test_cleanlab_and_tables_of_scores_have_no_class_or_id_that_runs(tmp_path: Path) -> None:
    rows = "".join(f"=cmd|{k},{k % 7},{('=1+1', 'b')[k % 2]}\n" for k in range(30))
    (tmp_path / "t.csv").write_text("name,x,label\n" + rows)
    small_run(tmp_path, f"csv:{tmp_path}/t.csv?columns=x&id=name", record=["prediction"])
    for command in (["scores", str(tmp_path / "run"), "--out"], ["export", str(tmp_path / "run"), "--format=cleanlab"]):
        with pytest.raises(SystemExit) as end:
            main([*command, str(tmp_path / "out.csv")])
        assert end.value.code == 0
        table = pd.read_csv(tmp_path / "out.csv")
        assert set(table["label"]) == {"'=1+1", "b"}
        assert table["id"].str.startswith("'=cmd|").all()


def test_cleanlab_needs_predictions(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="prediction"):
        mf.export_for(small_run(tmp_path), tmp_path / "p.csv", "cleanlab")


def test_fiftyone_samples_point_at_the_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for split, count in (("train", 6), ("test", 3)):
        for name in ("ant", "bee & <b>"):
            (tmp_path / "photos" / split / name).mkdir(parents=True)
            for number in range(count):
                level = rng.integers(0, 120, (4, 4, 3)) + (0 if name == "ant" else 130)
                Image.fromarray(level.astype(np.uint8)).save(tmp_path / "photos" / split / name / f"{number}.png")
    run = small_run(tmp_path, f"folder:{tmp_path}/photos", record=["prediction"], learner=LogisticRegression())
    mf.export_for(mf.open(tmp_path / "run"), tmp_path / "samples.json", "fiftyone")
    samples = json.loads((tmp_path / "samples.json").read_text())["samples"]
    scores = run.memorization()
    assert [sample["index"] for sample in samples] == list(range(12))
    for sample, (_, row) in zip(samples, scores.iterrows()):
        assert Path(sample["filepath"]).is_file()
        assert Path(sample["filepath"]).parent.name == sample["ground_truth"]["label"] == row["label"]
        assert sample["example_id"] == run.ids[0][sample["index"]]
        expected = row["memorization"]
        assert sample["memorization"] == expected or (sample["memorization"] is None and np.isnan(expected))
    mislabels = run.mislabels().set_index("index")
    assert [sample["suggestion"] for sample in samples] == [str(mislabels.suggestion[k]) for k in range(12)]


def features_of(path: Path) -> dict[str, dict[str, object]]:
    return json.loads(pq.read_schema(path).metadata[b"huggingface"])["info"]["features"]


def test_a_hugging_face_folder_of_pictures(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    mf.export_for(run, tmp_path / "hub", "huggingface")
    train, test = (pq.read_table(tmp_path / "hub" / "data" / f"{split}.parquet") for split in ("train", "test"))
    assert (train.num_rows, test.num_rows) == (600, 1197)
    assert train["label"].to_pylist() == run.label_codes[0].tolist()
    pd.testing.assert_series_equal(
        train["memorization"].to_pandas(), run.memorization()["memorization"].reset_index(drop=True)
    )
    correct = unpack(run.trials.test_correct, 1197).mean(axis=0)
    assert test["accuracy"].to_pylist() == correct.tolist()
    picture = np.asarray(Image.open(io.BytesIO(train["image"][7].as_py()["bytes"])))
    assert np.array_equal(picture, mf.datasets.to_images(run.dataset().x_train, (0, 16))[7])
    features = features_of(tmp_path / "hub" / "data" / "train.parquet")
    assert features["image"] == {"_type": "Image"}
    assert features["label"] == {"names": [str(k) for k in range(10)], "_type": "ClassLabel"}
    assert set(features) == set(train.column_names)
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "path: data/train.parquet" in card
    assert "12 models" in card
    mf.export_for(run, tmp_path / "hub", "huggingface")  # again: the same
    assert (tmp_path / "hub" / "README.md").read_text() == card
    assert not list((tmp_path / "hub" / "data").glob(".*"))


def test_a_hugging_face_folder_of_a_table_and_of_texts(tmp_path: Path) -> None:
    rows = "".join(f"{k},t{k},{'ab'[k % 2]}\n" for k in range(30))
    (tmp_path / "t.csv").write_text("memorization,words,label\n" + rows)
    table = small_run(tmp_path / "table", f"csv:{tmp_path}/t.csv?columns=memorization", learner=LogisticRegression())
    mf.export_for(table, tmp_path / "one", "huggingface")
    found = pq.read_table(tmp_path / "one" / "data" / "train.parquet")
    assert found["input_memorization"].to_pylist() == table.dataset().x_train["memorization"].tolist()
    assert found["id"].to_pylist() == table.dataset().train_ids
    words = make_pipeline(CountVectorizer(), MultinomialNB())
    texts = small_run(tmp_path / "texts", f"csv:{tmp_path}/t.csv?text=words", learner=words)
    mf.export_for(texts, tmp_path / "two", "huggingface")
    found = pq.read_table(tmp_path / "two" / "data" / "test.parquet")
    assert found["text"].to_pylist() == texts.dataset().x_test


def test_a_hugging_face_folder_is_about_one_keep_fraction(tmp_path: Path) -> None:
    run = small_run(tmp_path, keep=[0.1, 0.9])
    right = unpack(run.trials.test_correct, run.info.n_test)
    found = []
    for kind, keep in enumerate((0.1, 0.9)):
        mf.export_for(run, tmp_path / f"{keep}", "huggingface", keep=keep)
        found.append(np.array(pq.read_table(tmp_path / f"{keep}" / "data" / "test.parquet")["accuracy"]))
        of_keep = run.trials.kinds == kind
        assert (found[kind] == right[of_keep].mean(axis=0)).all()
        assert f"from {of_keep.sum()} models" in (tmp_path / f"{keep}" / "README.md").read_text()
    assert (found[0] != found[1]).any()


READ = """
import sys
try:
    from datasets import load_dataset
except ImportError:
    sys.exit(77)
found = load_dataset(sys.argv[1], cache_dir=sys.argv[2])
train = found["train"]
assert train[7]["image"].size == (8, 8)
assert train.features["label"].names == [str(k) for k in range(10)]
print(*train["label"])
"""


def test_the_library_itself_reads_the_folder(tmp_path: Path) -> None:
    """In a process of its own: here `datasets` is a folder of tests."""
    run = small_run(tmp_path)
    mf.export_for(run, tmp_path / "hub", "huggingface")
    command = [sys.executable, "-c", READ, str(tmp_path / "hub"), str(tmp_path / "cache")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip("Hugging Face datasets is not installed")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [str(code) for code in run.label_codes[0]]


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    with pytest.raises(InputError, match="no format 'excel'; choose one of cleanlab, fiftyone, huggingface"):
        mf.export_for(run, tmp_path / "x", "excel")
    with pytest.raises(InputError, match=r"must end in \.json"):
        mf.export_for(run, tmp_path / "x.csv", "fiftyone")
    with pytest.raises(InputError, match=r"must end in \.csv or \.parquet"):
        mf.export_for(run, tmp_path / "x.npz", "cleanlab")
    with pytest.raises(InputError, match="is no such folder"):
        mf.export_for(run, tmp_path / "run", "huggingface")
