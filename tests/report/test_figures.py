"""Figures: the right suffix gives the right kind of file, the same run the same bytes, misuse one sentence."""

from pathlib import Path

import numpy as np
import pytest
from tiny_run import N_TEST, N_TRAIN, TRIALS, make_run

from exchange.trial_files import full_disk
from memfluence.datasets import Dataset, from_arrays
from memfluence.errors import InputError, StoreError
from memfluence.report import histogram_figure, pairs_figure
from memfluence.runs import Run

STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


def images_of(run: Run) -> Dataset:
    train, test = (run.classes[codes] for codes in run.label_codes)
    pixels = np.random.default_rng(0).integers(0, 256, (N_TRAIN, 8, 8), dtype=np.uint8)
    return from_arrays(pixels, train, pixels[:N_TEST], test)


@pytest.mark.parametrize("suffix", STARTS)
def test_both_figures(tmp_path: Path, suffix: str) -> None:
    run = make_run(tmp_path)
    data = images_of(run)
    for draw in (lambda path: pairs_figure(run, data, path), lambda path: histogram_figure(run, path)):
        first = draw(tmp_path / "new" / f"a{suffix}").read_bytes()
        assert first.startswith(STARTS[suffix])
        assert draw(tmp_path / f"b{suffix}").read_bytes() == first


def test_what_the_figures_say(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    pairs = pairs_figure(run, images_of(run), tmp_path / "pairs.svg", rows=2).read_text(encoding="utf-8")
    assert f"{N_TRAIN} training examples, {TRIALS} models" in pairs
    assert pairs.count("<image") == 2 * 5
    assert "cat, 0% → 100%" in pairs
    histogram = histogram_figure(run, tmp_path / "histogram.svg").read_text(encoding="utf-8")
    assert "4 at 0.25 or above" in histogram
    assert f"{N_TRAIN} training examples, {TRIALS} models" in histogram


def test_histogram_without_any_estimate(tmp_path: Path) -> None:
    run = make_run(tmp_path, mask=np.ones((TRIALS, N_TRAIN), bool))
    assert histogram_figure(run, tmp_path / "histogram.png").stat().st_size > 0


def test_a_full_disk_leaves_the_figure_that_was_there(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    figure = histogram_figure(run, tmp_path / "out" / "histogram.svg")
    before = figure.read_bytes()
    other = make_run(tmp_path / "b", mask=np.ones((TRIALS, N_TRAIN), bool))
    with full_disk(), pytest.raises(StoreError, match="disk is full"):
        histogram_figure(other, figure)
    assert figure.read_bytes() == before
    assert [entry.name for entry in figure.parent.iterdir()] == ["histogram.svg"]


def test_long_class_names_do_not_run_into_the_next_column(tmp_path: Path) -> None:
    run = make_run(tmp_path, classes=("c" * 5000, "dog"))
    text = pairs_figure(run, images_of(run), tmp_path / "pairs.svg").read_text(encoding="utf-8")
    assert f"{'c' * 15}…, 0%" in text
    assert "c" * 16 not in text


def test_misuse(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with pytest.raises(InputError, match=r"must end in one of \.png, \.svg, \.pdf"):
        histogram_figure(run, tmp_path / "histogram.gif")
    train, test = (run.classes[codes] for codes in run.label_codes)
    texts = from_arrays(["a"] * N_TRAIN, train, ["b"] * N_TEST, test)
    with pytest.raises(InputError, match="no images"):
        pairs_figure(run, texts, tmp_path / "pairs.png")
    quiet = make_run(tmp_path / "quiet", test_correct=np.ones((TRIALS, N_TEST), bool))
    with pytest.raises(InputError, match="No pair reaches"):
        pairs_figure(quiet, images_of(quiet), tmp_path / "pairs.png")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="check the disk and the path"):
        histogram_figure(run, tmp_path / "file" / "histogram.png")
