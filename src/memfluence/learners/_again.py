"""What is asked of a learner after a run: to be made again from `run.json`, and to show its representations."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError, shortened
from memfluence.learners.protocol import Checkpoints, Learner, Representation, Representing, Resumable
from memfluence.learners.resolve import SourcedLearner, built_in, resolve
from memfluence.records import PartWay, Trial, canonical_json

__all__ = ["described", "represent"]


def described(description: Mapping[str, Any] | None) -> Learner:
    """The built-in learner that describes itself so; others have to be given again by their owner.

    A description comes with a run, perhaps from someone else: a file or module that it names is not loaded.
    """
    if description is None:
        raise LearnerError("the trials were imported, and nobody knows their learner; name it with --learner.")
    name = str(description.get("name"))
    found = None
    if name in built_in():  # anything else could be code, which is run only where the user names it
        parts = (description.get(part, {}) for part in ("settings", "recipe", "options"))
        with suppress(LearnerError):
            settings = [one for part in parts if isinstance(part, Mapping) for one in part.items()]
            found = resolve(name, dict(settings))
    if found is None or canonical_json(found.describe()) != canonical_json(description):
        raise LearnerError(
            f"the learner {shortened(name)} is not built in, or has changed, so it cannot be made again from the run;"
            " give it again with --learner (learner=... in Python)."
        )
    return found


def represent(
    learner: Learner,
    dataset: Dataset,
    trial: Trial,
    *,
    device: str,
    checkpoints: Checkpoints | None = None,
    report: Callable[[PartWay], None] = lambda part: None,
) -> Representation:
    """What the last layer of the trial's model is given; only networks have one.

    Learners that can go on within a trial use the checkpoints and report how far they are.
    """
    inner = learner.learner if isinstance(learner, SourcedLearner) else learner
    if not isinstance(inner, Representing):
        raise LearnerError(
            f"{learner.name} has no last layer whose inputs could be taken; this needs a network: mlp, a built-in one,"
            " or a torch module with a recipe (file.py:Net@fast)."
        )
    going_on = inner.resuming(checkpoints, report) if isinstance(inner, Resumable) else inner
    assert isinstance(going_on, Representing)
    return going_on.represent(dataset, trial, device=device)
