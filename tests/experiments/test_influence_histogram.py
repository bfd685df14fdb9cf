"""The histogram of selected pairs, and the one that permuted masks give."""

from pathlib import Path

import numpy as np
import pytest
from small_runs import make_run
from world_runs import N_TEST, world_run

from memfluence.errors import InputError
from memfluence.experiments import histogram
from memfluence.experiments.doing import draw
from memfluence.experiments.histogram import binned


def test_bins_hold_their_lower_edge_and_the_last_one_also_1() -> None:
    edges = np.array([0.15, 0.4, 0.7, 1.0])
    assert binned(np.array([0.15, 0.2, 0.4, 0.69, 0.7, 1.0]), edges).tolist() == [2, 2, 2]
    assert binned(np.empty(0), edges).tolist() == [0, 0, 0]


def test_counts_are_those_of_the_pairs_and_chance_those_of_the_permutations(tmp_path: Path) -> None:
    run = world_run(tmp_path, 100)
    result = histogram.summarize(run, infl=0.16, permutations=4)
    pairs = run.find_pairs(0.25, 0.16, permutations=4)
    assert {name: result.numbers[name] for name in pairs.summary} == pairs.summary
    assert result.table["pairs"].sum() == len(pairs)
    low, high = result.table["from"].to_numpy(), result.table["to"].to_numpy()
    for k in range(len(low) - 1):
        assert result.table["pairs"][k] == ((pairs.influence >= low[k]) & (pairs.influence < high[k])).sum()
    by_chance = result.numbers["by_chance"]
    assert pairs.permuted_counts.min() > 0  # so few trials select noise, too
    assert (by_chance["mean"], by_chance["n"]) == (pairs.permuted_counts.mean(), 4)
    assert by_chance["sd"] == pytest.approx(pairs.permuted_counts.std(ddof=1))
    assert result.table["by_chance"].sum() == pytest.approx(pairs.permuted_counts.mean())
    assert result.numbers["share_below_strong"] == (pairs.influence < 0.4).mean()
    assert result.numbers["test_share"] == pairs.summary["test_examples"] / N_TEST
    assert draw(result).axes


def test_the_first_bin_begins_where_pairs_are_selected(tmp_path: Path) -> None:
    run = make_run(tmp_path)  # with pairs of influence 1
    for infl, edges in ((0.15, [0.15, 0.175]), (0.16, [0.16, 0.175]), (0.975, [0.975, 1.0]), (1.0, [0.975, 1.0])):
        table = histogram.summarize(run, infl=infl, permutations=2).table
        assert [table["from"][0], table["to"][0]] == edges
        assert table["pairs"].sum() == 4
        assert table["pairs"].iloc[-1] == 4


@pytest.mark.parametrize("permutations", [0, 1])
def test_few_permutations_have_no_spread(tmp_path: Path, permutations: int) -> None:
    result = histogram.summarize(world_run(tmp_path, 100), permutations=permutations)
    assert np.isnan(result.numbers["by_chance"]["sd"])
    assert result.table["by_chance_sd"].isna().all()
    assert draw(result).axes


def test_misuse(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no histogram to draw\. No pair reaches memorization 0\.25"):
        histogram.summarize(make_run(tmp_path, test_correct=np.ones((200, 30), bool)))
    with pytest.raises(InputError, match="too few"):
        histogram.summarize(make_run(tmp_path / "b", 10))
