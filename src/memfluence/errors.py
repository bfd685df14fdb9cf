"""Everything memfluence raises on purpose: what is wrong, what was expected, what it got, what to do next.

A message is one sentence (or two short ones) that a person can act on without a traceback.
`exit_code` is what the command line ends with: 2 for misuse, 1 for a failure on the way.
"""

import difflib
from collections.abc import Iterable
from typing import Any


def one_line(text: str) -> str:
    """A text as one line that a terminal shows and nothing else: messages quote what strange files say."""
    if text.isprintable():
        return text
    letters = (letter if letter.isprintable() or letter.isspace() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return " ".join("".join(letters).split())


def shortened(value: object, longest: int = 60) -> str:
    """A value as messages quote it."""
    text = repr(value)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def nearest(given: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The name that was probably meant: of those most alike one with the same letters, `test` for `tset`."""
    close = difflib.get_close_matches(given, list(known), n=5, cutoff=cutoff)
    return next((name for name in close if sorted(name) == sorted(given)), close[0] if close else None)


class MemfluenceError(Exception):
    """Base of all errors raised on purpose. Its message is one line, whatever it quotes."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))


class InputError(MemfluenceError):
    """The caller gave something that cannot be used: an option out of range, an unknown name, a missing file."""

    exit_code = 2


def checked_integer(name: str, value: Any, least: int, most: int | None = None, why: str = "") -> int:
    """A parameter's value as an int, which True is not; an error names the parameter."""
    number = None if isinstance(value, bool) or not hasattr(value, "__index__") else int(value)
    if number is None or number < least or (most is not None and number > most):
        bounds = f">= {least}" if most is None else f"in [{least}, {most}]"
        raise InputError(f"The `{name}` parameter must be an integer {bounds}{why}. Got {value!r} instead.")
    return number


class DatasetError(InputError):
    """The data are missing, damaged or contradict themselves."""


class DesignError(InputError):
    """The design of the trials is impossible, or has no such trial."""


class LearnerError(InputError):
    """The learner is unknown, cannot be loaded, or cannot do what is asked of it."""


class RunMismatchError(InputError):
    """The directory holds a run of other data, another learner or another plan."""


class StoreError(MemfluenceError):
    """The run's directory cannot be read or written, or its records contradict each other."""


class UnreachableError(StoreError):
    """The storage of a run does not answer; it may again later."""


class EngineError(MemfluenceError):
    """Workers were lost or could not be started."""


class TrialsFailedError(MemfluenceError):
    """Some trials raised; the others are stored."""


class Interrupted(MemfluenceError):
    """The user stopped the run; every completed trial is stored."""

    exit_code = 130


class DeadlineReached(MemfluenceError):
    """The time for training is over before the trials are; every completed trial is stored."""


class MemfluenceWarning(UserWarning):
    """Something that the reader of a result should know."""


def needs_torch(what: str) -> LearnerError:
    """For where torch is not installed: it is an extra, as large as all else."""
    return LearnerError(
        f"{what} needs torch, which is not installed: pip install 'memfluence[torch]' (docs/start.md has the small"
        " build for CPUs). Learners of scikit-learn do not: `learner='sklearn.linear_model:LogisticRegression'`."
    )
