"""The loop of learners that train one model after another."""

import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from memfluence.errors import DatasetError, LearnerError
from memfluence.learners._predictions import UnusableReturnError
from memfluence.records import Failure, Outcome, Trial

__all__ = ["NOTHING_KEPT", "one_by_one", "private_copy"]

NOTHING_KEPT = "the trial keeps no example, so there is nothing to train on; raise --keep."
_EXITED = (
    "the learner's code ended the program, by sys.exit or by reading options that are not its own; raise an error."
)


def one_by_one(trials: Sequence[Trial], outcome_of: Callable[[Trial], Outcome]) -> Iterator[Outcome | Failure]:
    """Each trial's outcome; a trial that raises gives a `Failure` and the others go on. A warning is shown once.

    A `LearnerError` ends the group: the learner cannot do what is asked, whatever the subset. So do a `DatasetError`,
    such as that of a damaged image, and what is no `Exception` (an interrupt, an engine that stops its worker),
    except `SystemExit`: it would end the run unseen.
    """
    for trial in trials:
        result: Outcome | Failure
        if not len(trial.kept):
            result = Failure(trial.number, NOTHING_KEPT)
        else:
            try:
                with _warnings_once():
                    result = outcome_of(trial)
            except (LearnerError, DatasetError):
                raise
            except UnusableReturnError as error:
                result = Failure(trial.number, str(error), traceback.format_exc())
            except SystemExit as error:
                result = Failure(trial.number, f"SystemExit: {error}; {_EXITED}", traceback.format_exc())
            except Exception as error:
                result = Failure(trial.number, f"{type(error).__name__}: {error}", traceback.format_exc())
        yield result


_shown: set[tuple[type[Warning], str, int]] = set()


@contextmanager
def _warnings_once() -> Iterator[None]:
    """Each warning once in the life of the process: a solver that does not converge says so in every trial.

    Python's own "once" forgets whenever a library touches the filters, as scikit-learn does in every fit.
    """
    with warnings.catch_warnings(record=True) as caught:
        try:
            yield
        finally:
            new = {(warning.category, warning.filename, warning.lineno): warning for warning in caught}
    for place in new.keys() - _shown:
        _shown.add(place)
        warnings.warn_explicit(new[place].message, *place)


def private_copy(inputs: Any) -> Any:
    """Inputs that other people's code may write into without changing the dataset for the trials that follow."""
    for method in ("clone", "copy"):  # torch; NumPy, pandas, SciPy, list
        if hasattr(inputs, method):
            return getattr(inputs, method)()
    return inputs
