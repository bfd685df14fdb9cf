"""Grids of pictures: as many as asked for, with the words of the list; one sentence where there is nothing to draw."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from test_figures import images_of
from tiny_run import N_TEST, TRIALS, make_run

from memfluence.datasets import from_arrays
from memfluence.drawing import write
from memfluence.errors import InputError
from memfluence.findings import likely_mislabels
from memfluence.report import duplicates_figure, mislabels_figure
from memfluence.report.figures import GAP, PICTURE


def test_duplicates_stand_side_by_side(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    found = run.find_duplicates()
    assert len(found) == 4
    text = duplicates_figure(run, images_of(run), found, tmp_path / "grid.svg", top=3).read_text(encoding="utf-8")
    assert text.count("<image") == 2 * 3
    first = f"train {found.train_index[0]}, test {found.test_index[0]}"
    assert first in text
    assert f"influence 1.00, at least {found.lower[0]:.2f}" in text
    other = make_run(tmp_path / "other", test_correct=np.ones((TRIALS, N_TEST), bool))
    with pytest.raises(InputError, match="no pairs to draw"):
        duplicates_figure(other, images_of(other), other.find_duplicates(), tmp_path / "none.svg")


def test_mislabels_with_and_without_suggestions(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    found = run.find_mislabels()
    text = mislabels_figure(run, images_of(run), found, tmp_path / "grid.svg", top=4).read_text(encoding="utf-8")
    assert text.count("<image") == 4
    assert "0% → 100%" in text
    assert "train 0" in text  # memorized, so held-out wrong
    assert "cat" in text
    assert "?" not in text.partition("<svg")[2]
    labels = run.label_codes[0]
    said = np.tile(1 - labels, (len(run.trials), 1))
    with_said = likely_mislabels(run.trials, run.info.kinds, labels, 2, said)
    text = mislabels_figure(run, images_of(run), with_said, tmp_path / "b.svg", top=1).read_text(encoding="utf-8")
    assert "dog? 100%" in text or "cat? 100%" in text
    text = mislabels_figure(run, images_of(run), found, tmp_path / "c.svg", top=9).read_text(encoding="utf-8")
    assert text.count("<image") == 4  # those believed to be wrong, and no others
    accepted = make_run(tmp_path / "right", train_correct=np.ones((len(run.trials), 40), bool))
    with pytest.raises(InputError, match="No label is believed to be wrong"):
        mislabels_figure(accepted, images_of(accepted), accepted.find_mislabels(), tmp_path / "none.svg")


def test_data_without_pictures_are_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    train, test = (run.classes[codes] for codes in run.label_codes)
    table = from_arrays(np.zeros((len(train), 3)), train, np.zeros((len(test), 3)), test)
    with pytest.raises(InputError, match="no images to draw"):
        mislabels_figure(run, table, run.find_mislabels(), tmp_path / "grid.png")


@pytest.mark.parametrize("dpi", [100, 200])
def test_words_do_not_leave_their_cell(dpi: int) -> None:
    """Widths at the resolution of the file differ by some percent from those measured, for which there is a gap."""
    figure = Figure(figsize=(4, 2))
    for text in ("maple tree? 100%", "sweet pepper? 100%", "an extraordinarily long name? 100%", "bee"):
        write(figure, 0.1, 1.0, text, "black", True, size=7.5, room=PICTURE)
    figure.set_dpi(dpi)
    widths = [written.get_window_extent().width / dpi for written in figure.texts]
    assert max(widths) < PICTURE + GAP
    assert min(widths) < PICTURE / 2  # short ones keep their size
    assert figure.texts[-1].get_fontsize() == 7.5
