"""The paper's selection of pairs for its figures, against its own Python lines and by hand."""

from pathlib import Path

import numpy as np
import pytest
from small_runs import CARRIED, N_TEST, N_TRAIN, make_run

from memfluence.datasets import from_arrays
from memfluence.errors import InputError
from memfluence.experiments import pairs
from memfluence.experiments.doing import draw
from memfluence.experiments.pairs import positions, strongest_first
from memfluence.runs import Run


def papers_lines(idx_train_selected, max_infl_of_train_selected):  # type: ignore[no-untyped-def]
    """Appendix C as printed, but for `int` in place of `np.int`, a stable sort, and a list in place of a figure."""
    n_copies = 3
    n_egs = 5
    idx_sort_selected = np.argsort(-max_infl_of_train_selected, kind="stable")

    base_idxs = np.linspace(0, len(idx_train_selected) - n_copies, n_egs).astype(int)
    depicted = []
    for i_copy in range(n_copies):
        idxs_to_depict = [idx_train_selected[idx_sort_selected[x + i_copy]] for x in base_idxs]
        depicted.append(idxs_to_depict)
    return depicted


def test_seventeen_examples_by_hand() -> None:
    """linspace(0, 14, 5) = 0, 3.5, 7, 10.5, 14, cut to integers."""
    assert positions(17) == [[0, 3, 7, 10, 14], [1, 4, 8, 11, 15], [2, 5, 9, 12, 16]]


def test_the_strongest_come_first_and_ties_go_to_the_lower_index() -> None:
    train = np.array([9, 4, 4, 2, 7])
    influence = np.array([0.3, 0.2, 0.5, 0.3, 0.15])
    assert strongest_first(train, influence).tolist() == [4, 2, 9, 7]


@pytest.mark.parametrize("examples", range(15, 60))
def test_the_papers_own_lines(examples: int) -> None:
    rng = np.random.default_rng(examples)
    train = np.sort(rng.permutation(500)[:examples])
    highest = rng.integers(3, 12, examples) / 20  # many ties
    order = strongest_first(np.repeat(train, 2), np.stack([highest, highest - 0.01], 1).ravel())
    found = [[int(order[place]) for place in places] for places in positions(examples)]
    assert found == papers_lines(train, highest)


@pytest.mark.parametrize("examples", range(3, 15))
def test_below_fifteen_the_same_examples_are_shown_once(examples: int) -> None:
    theirs = papers_lines(np.arange(examples), -np.arange(examples))
    ours = positions(examples)
    shown = [place for places in ours for place in places]
    assert len(set(shown)) == len(shown)
    assert set(shown) == {place for places in theirs for place in places}
    assert [set(places) <= set(others) for places, others in zip(ours, theirs)] == [True] * 3


@pytest.mark.parametrize(("examples", "expected"), [(0, [[], [], []]), (1, [[0], [], []]), (2, [[0], [1], []])])
def test_below_three_where_the_papers_lines_fail(examples: int, expected: list[list[int]]) -> None:
    assert positions(examples) == expected


def pictured(directory: Path, **changes: np.ndarray) -> Run:
    run = make_run(directory, **changes)
    pixels = np.random.default_rng(0).integers(0, 256, (N_TRAIN, 8, 8), dtype=np.uint8)
    return Run(run.store, from_arrays(pixels, run.label_codes[0], pixels[:N_TEST], run.label_codes[1]))


@pytest.mark.parametrize("same_class", [True, False])
def test_a_run_whose_pairs_are_known(tmp_path: Path, same_class: bool) -> None:
    run = pictured(tmp_path)
    result = pairs.summarize(run, same_class=same_class)
    table, matrix = result.table, run.influence_estimates().block()
    assert table["train_index"].drop_duplicates().tolist() == [0, 1, 2]  # influence 1 each: ties to the lower index
    assert table["set"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    for train, own in table.groupby("train_index"):
        among = np.flatnonzero(run.label_codes[1] == run.label_codes[0][train]) if same_class else np.arange(N_TEST)
        best = sorted(among, key=lambda test: (-matrix[train, test], test))[:4]
        assert own["test_index"].tolist() == best
        assert own["influence"].tolist() == [matrix[train, test] for test in best]
        assert set(own[own["selected"]]["test_index"]) == {j for j, i in CARRIED.items() if i == train}
    assert result.numbers["pairs"] == 4
    assert result.numbers["shown_train_examples"] == 3
    assert len(draw(result).axes) == 3 * 5


def test_words_where_there_are_no_pictures(tmp_path: Path) -> None:
    made = make_run(tmp_path)
    texts = [f"text {k}" for k in range(N_TRAIN)]
    data = from_arrays(texts, made.label_codes[0], texts[:N_TEST], made.label_codes[1])
    result = pairs.summarize(Run(made.store, data))
    assert result.table["train_input"][0] == "text 0"
    assert {"text 0", "text 1", "text 2"} <= {text.get_text() for text in draw(result).texts}


def test_misuse(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There are no pairs to show\. No pair reaches"):
        pairs.summarize(pictured(tmp_path, test_correct=np.ones((200, N_TEST), bool)))
    with pytest.raises(InputError, match="does not say where its data are"):
        pairs.summarize(make_run(tmp_path / "b"))
