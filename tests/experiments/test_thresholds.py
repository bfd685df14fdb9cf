"""The choice of thresholds: on agreements made by hand, and on a world."""

from pathlib import Path

import numpy as np
import pytest
from small_runs import make_run
from world_runs import world_run

from memfluence.errors import InputError
from memfluence.experiments import thresholds
from memfluence.experiments.doing import draw
from memfluence.experiments.thresholds import propose
from memfluence.findings.agreement import Agreement

LEVELS = np.array([0.05, 0.1, 0.15, 0.2])


def agreed(shared: list[int], each: list[int]) -> Agreement:
    return Agreement(LEVELS, np.array(each), np.array(each), np.array(shared), np.zeros(4))


def test_the_lowest_threshold_that_agrees() -> None:
    # Jaccard = shared / (2 each - shared): 0.25, 0.6, 0.75, 0.6
    one = agreed([40, 75, 60, 30], [100, 100, 70, 40])
    assert one.jaccard == pytest.approx([0.25, 0.6, 0.75, 0.6])
    assert propose([one], 0.7) == 0.15
    assert propose([one], 0.6) == 0.1
    assert propose([one], 0.6, at_least=0.12) == 0.15
    assert propose([one], 0.8) is None


def test_the_mean_over_splits_decides() -> None:
    low, high = agreed([40, 60, 60, 30], [100, 100, 70, 40]), agreed([40, 90, 60, 30], [100, 100, 70, 40])
    assert propose([high], 0.7) == 0.1
    assert propose([low, high], 0.7) == 0.15  # (0.43 + 0.82) / 2 < 0.7


def test_small_sets_do_not_count() -> None:
    assert propose([agreed([19, 0, 0, 0], [19, 0, 0, 0])], 0.7) is None
    assert propose([agreed([20, 0, 0, 0], [20, 0, 0, 0])], 0.7) == 0.05


def test_a_world_gets_thresholds_at_which_its_halves_agree(tmp_path: Path) -> None:
    result = thresholds.summarize(world_run(tmp_path, 2000), splits=3)
    found = result.numbers
    assert found["mem"] >= 0.25
    assert found["note"] is None
    at = found["at"]["influence"]
    assert at["jaccard"] >= 0.7
    table = result.table
    own = table[(table["quantity"] == "influence") & (table["compared"] == "two halves")]
    below = own[(own["threshold"] < found["infl"]) & (own[["first", "second"]].min(axis=1) >= thresholds.FEWEST)]
    assert (below["jaccard"] < 0.7).all()
    assert draw(result).axes


def test_no_threshold_will_do(tmp_path: Path) -> None:
    result = thresholds.summarize(make_run(tmp_path, test_correct=np.ones((200, 30), bool)), splits=2)
    assert result.numbers["infl"] is None
    assert not result.numbers["infl_could_be_lower"]
    assert "at no threshold on" in result.numbers["note"]
    assert draw(result).axes


def test_misuse(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`jaccard` index"):
        thresholds.summarize(make_run(tmp_path), jaccard=0)
    with pytest.raises(InputError, match="too few for two independent halves"):
        thresholds.summarize(make_run(tmp_path / "b", 30))
