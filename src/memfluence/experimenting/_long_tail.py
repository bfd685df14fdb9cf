"""`long-tail`: worlds with known subpopulations, each with stores of its own."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from memfluence import experiments
from memfluence.datasets import as_dataset
from memfluence.errors import InputError, LearnerError, MemfluenceWarning
from memfluence.experimenting._training import Training
from memfluence.experiments import Result
from memfluence.learners import Learner, resolve
from memfluence.runs import Run

__all__ = ["do_long_tail"]


def do_long_tail(name: str, runs: list[Run], out: Path, training: Training, options: dict[str, Any]) -> Result:
    """The stores of every world: OUT/WORLD/estimate, removal, and for the first one epochs-N."""
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
            for part, stopped in _stopped_early(given, settings, campaign.epochs).items():
                stores[part] = training.run(where / part, data, stopped, masks=everything, **explicit)
        found[world.name] = stores
    return module.summarize(campaign, found)


def _stopped_early(learner: Any, settings: dict[str, Any], epochs: Iterable[int]) -> dict[str, Learner]:
    """The learner with fewer epochs; none where it has no such setting."""
    try:
        return {f"epochs-{count}": resolve(learner, {**settings, "epochs": count}) for count in epochs}
    except LearnerError as error:
        warnings.warn(f"Early stopping is left out: {error}", MemfluenceWarning, stacklevel=4)
        return {}
