"""Messages: one line that a terminal shows as it is."""

import pickle

import pytest

from memfluence.errors import MemfluenceError, StoreError, one_line, shortened


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("plain, é and \U0001f600", "plain, é and \U0001f600"),
        ("two\nlines\tand  more", "two lines and more"),
        ("\x1b[2Jgone", "\N{REPLACEMENT CHARACTER}[2Jgone"),
        ("half \ud800 a letter", "half \N{REPLACEMENT CHARACTER} a letter"),
        ("from right \u202eto left", "from right \N{REPLACEMENT CHARACTER}to left"),
    ],
)
def test_a_message_is_one_printable_line(said: str, shown: str) -> None:
    assert one_line(said) == shown
    assert str(MemfluenceError(said)) == shown
    assert shown.isprintable()


def test_errors_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(StoreError("a\nb")))
    assert (type(error), str(error), error.exit_code) == (StoreError, "a b", 1)


def test_quoted_values_are_short() -> None:
    assert shortened("x" * 5000) == "'" + "x" * 56 + "..."
    assert shortened([1, 2]) == "[1, 2]"
