"""Time: read and split."""

import pytest

from memfluence.errors import InputError
from memfluence.experiments.reproduce._subjects import base_trials, more_repeats, reserve, seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("90", 90), ("90s", 90), ("1.5h", 5400), (" 2 m ", 120), ("0", 0)]
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-3m", "3d", "1h30m", "nan"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="a time such as 30m"):
        seconds_of(text)


def test_the_first_trials_get_a_share_of_the_time() -> None:
    assert base_trials(1000, 1, 4000) == 400
    assert base_trials(1000, 0.01, 4000) == 4000  # no more than are wanted
    assert base_trials(10, 1, 4000) == 40  # no fewer than say anything
    assert base_trials(10, 0, 2000) == 2000


def test_repeats_grow_by_what_is_left() -> None:
    assert more_repeats(5, 20, left=30, seconds_each=10) == 8
    assert more_repeats(5, 20, left=3000, seconds_each=10) == 20
    assert more_repeats(5, 20, left=9, seconds_each=10) == 5
    assert more_repeats(5, 20, left=-1, seconds_each=10) == 5
    assert more_repeats(25, 20, left=100, seconds_each=10) == 25  # what is there stays
    assert more_repeats(5, 20, left=100, seconds_each=0) == 5  # nobody knows what one costs


def test_reading_never_takes_most_of_the_time() -> None:
    assert reserve(50_000, 10_000, 6, budget=60) == 15
    assert reserve(600, 1197, 2, budget=840) == pytest.approx(10, abs=0.2)
    assert reserve(600, 1197, 0, budget=840) == 0
