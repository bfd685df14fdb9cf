"""A learner from what `run.json` says of it."""

from collections.abc import Mapping
from typing import Any

from memfluence.errors import LearnerError
from memfluence.learners._source import resolve
from memfluence.learners.protocol import Learner
from memfluence.records import canonical_json

__all__ = ["described"]


def described(description: Mapping[str, Any] | None) -> Learner:
    """The built-in learner that describes itself so; others have to be given again by their owner."""
    if description is None:
        raise LearnerError("the trials were imported, and nobody knows their learner; name it with --learner.")
    settings = {
        **description.get("settings", {}),
        **description.get("recipe", {}),
        **description.get("options", {}),
    }
    name = str(description.get("name"))
    try:
        found = resolve(name, settings)
    except LearnerError:
        found = None
    if found is None or canonical_json(found.describe()) != canonical_json(description):
        raise LearnerError(
            f"the learner {name!r} is not built in, or has changed, so it cannot be made again from the run; give it"
            " again with --learner (learner=... in Python)."
        )
    return found
