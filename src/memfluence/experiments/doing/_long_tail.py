"""`long-tail`: worlds with known subpopulations, each with stores of its own."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memfluence import experiments
from memfluence.datasets import as_dataset
from memfluence.errors import InputError, LearnerError, MemfluenceWarning
from memfluence.experiments import Result
from memfluence.experiments.doing._training import Training
from memfluence.learners import Learner, resolve
from memfluence.runs import Run

__all__ = ["do_long_tail"]


def do_long_tail(name: str, runs: list[Run], out: Path, training: Training, options: dict[str, Any]) -> Result:
    """The stores of every world: OUT/WORLD/estimate, removal; and for the first epochs-N, clip-C, clip-C-noise-S."""
    if runs or training.dataset is not None:
        raise InputError(f"The experiment {name} makes its own data; give no run and no dataset.")
    module, given = experiments.long_tail, training.learner or "mlp"
    campaign, settings = module.plan(**options), dict(training.settings or {})
    learner, found = resolve(given, settings), {}
    explicit: dict[str, Any] = {"design": "explicit", "seed": campaign.seed}
    for number, world in enumerate(campaign.worlds, start=1):
        training.note(f"world {number} of {len(campaign.worlds)}: {world.dataset}")
        data, where = as_dataset(world.dataset), out / world.name
        plan = module.retraining(data, campaign.repeats, campaign.seed)
        stores = {
            "estimate": training.run(where / "estimate", data, learner, trials=campaign.trials, seed=campaign.seed),
            "removal": training.run(where / "removal", data, learner, masks=plan.masks, **explicit),
        }
        if number == 1:
            everything = plan.masks[plan.rows(arm="all")]
            limited = _limited(given, settings, "Early stopping is", campaign.stopped)
            limited |= _limited(given, settings, "Clipping and noise are", campaign.clipped)
            for part, one in limited.items():
                stores[part] = training.run(where / part, data, one, masks=everything, **explicit)
        found[world.name] = stores
    return module.summarize(campaign, found)


def _limited(
    learner: Any, settings: Mapping[str, Any], what: str, limits: Mapping[str, Mapping[str, Any]]
) -> dict[str, Learner]:
    """The learner with settings that limit what it memorizes; none where it has no such settings."""
    try:
        return {part: resolve(learner, {**settings, **limit}) for part, limit in limits.items()}
    except LearnerError as error:
        warnings.warn(f"{what} left out: {error}", MemfluenceWarning, stacklevel=4)
        return {}
