"""`Training`: with what the models of an experiment are trained, and how they get into stores."""

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.datasets import Dataset, as_dataset
from memfluence.errors import InputError, MemfluenceWarning, RunMismatchError, TrialsFailedError
from memfluence.experiments import Retraining, of_keep
from memfluence.learners import Learner, described, resolve
from memfluence.progress import Progress, ProgressListener, Silent
from memfluence.runs import Run, open_run
from memfluence.store import TrialStore, write_whole
from memfluence.training.campaign import DEFAULT_CHECKPOINT_EVERY, prepare, run_trials

__all__ = ["Training", "begun", "only", "saved_plan"]


@dataclass(frozen=True)
class Training:
    """With what and where the models of an experiment are trained; by default as those of the run were."""

    dataset: Any = None  # where the data are, if the run does not say
    learner: Any = None  # another one, or that of a run whose learner is not built in
    settings: Mapping[str, str] | None = None  # of `learner`
    engine: str | None = None
    workers: int = 1
    device: str = "auto"
    retry_failed: bool = False
    checkpoint_every: float = DEFAULT_CHECKPOINT_EVERY
    progress: bool | ProgressListener = True
    train: bool = True  # False: summarize the models that are there, without data and learner

    def data_of(self, run: Run) -> Dataset:
        """The run's data, loaded again and checked."""
        if self.dataset is None or isinstance(self.dataset, str):
            return run.dataset(self.dataset)
        found, codes = as_dataset(self.dataset), run.label_codes
        if not (np.array_equal(found.y_train, codes[0]) and np.array_equal(found.y_test, codes[1])):
            raise RunMismatchError(f"{found.name} is not what {run.path} was made from: its labels differ.")
        return found

    def learner_of(self, run: Run) -> Learner:
        """The run's learner, made again, or the one that was given."""
        if self.learner is None and self.settings:
            raise InputError("Settings (--set) belong to a learner; name it as well (--learner).")
        return described(run.info.learner) if self.learner is None else resolve(self.learner, self.settings)

    def run(self, out: Path, dataset: Any, learner: Any, **design: Any) -> Run:
        """Run what is missing of a campaign into `out`. Trials that failed are left out, with a warning."""
        if not self.train:
            return open_run(out)
        campaign = prepare(dataset, learner=learner, out=out, device=self.device, **design)
        store = run_trials(
            campaign,
            engine=self.engine,
            workers=self.workers,
            retry_failed=self.retry_failed,
            checkpoint_every=self.checkpoint_every,
            progress=self.listener,
        )
        _note_failures(store)
        return Run(store, campaign.dataset)

    @property
    def listener(self) -> ProgressListener:
        """Who is told how far it is."""
        return Progress() if self.progress is True else Silent() if self.progress is False else self.progress

    def note(self, message: str) -> None:
        if self.progress is True:
            Progress().note(message)

    def retrain(self, plan: Retraining, run: Run, out: Path) -> Run:
        """Train the models of a plan as those of `run` were trained."""
        if not self.train:
            return open_run(out / "trained")
        dataset, learner = self.data_of(run), self.learner_of(run)
        _keep_plan(plan, out)
        explicit = {"design": "explicit", "masks": plan.masks, "known_by": plan.known_by, "seed": plan.seed}
        return self.run(out / "trained", dataset, learner, **explicit)


def only(runs: list[Run], name: str) -> Run:
    """The one run that an experiment is about."""
    if len(runs) != 1:
        raise InputError(f"The experiment {name} is about one run. Got {len(runs)}.")
    return runs[0]


def begun(out: Path) -> list[int]:
    """How many repeats the models in a directory were planned with, each time that it was asked for more."""
    there = _planned(out)
    return [] if there is None else list(there["settings"]["begun"])


def saved_plan(out: Path, run: Run, asked: Mapping[str, Any]) -> Retraining | None:
    """The plan of the models that a directory holds, if it is the one `asked` for; None where it holds none.

    The run may have more trials by now, from which another plan would follow: the models belong to the old one.
    """
    there = _planned(out)
    if there is None:
        return None
    settings = {**there["settings"], "seed": there["seed"]}
    wanted = {
        name: value for name, value in asked.items() if name in settings and name not in ("repeats", "thresholds")
    }
    wanted |= {"n_train": run.info.n_train, "n_test": run.info.n_test}
    differ = [name for name, value in wanted.items() if settings[name] != value]
    if "thresholds" in asked:
        planned = {*settings["thresholds"], *settings["without_examples"]}
        differ += ["thresholds"] * ({*asked["thresholds"], settings["mem"]} != planned)
    if differ:
        raise _another_plan(out, sorted(differ))
    made_of = next(value for name, value in settings.items() if name.endswith("_from_trials"))
    if made_of != (now := len(of_keep(run, settings["keep"]))):
        warnings.warn(
            f"The models in {out} were planned from {made_of:,} trials of {run.path}, which has {now:,} by now; what"
            " they give is about the examples that were chosen then.",
            MemfluenceWarning,
            stacklevel=4,
        )
    return Retraining.from_json(there)


def _another_plan(out: Path, differ: list[str]) -> RunMismatchError:
    return RunMismatchError(
        f"{out} holds models of another plan, which differs in {', '.join(differ)}; choose another directory (--out),"
        " or ask for what is there."
    )


def _planned(out: Path) -> dict[str, Any] | None:
    """The plan of the models that a directory holds; None where it holds none yet."""
    path = out / "plan.json"
    if not path.is_file() or not any((out / "trained" / "trials").glob("*.parquet")):
        return None
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def _keep_plan(plan: Retraining, out: Path) -> None:
    """Write the plan, or refuse a directory that holds models of another one. More repeats are no other plan."""
    document, there = plan.to_json(), _planned(out)
    if there is not None:
        names = sorted({*there["settings"], *document["settings"]} - {"repeats", "begun"})
        differ = [name for name in names if there["settings"].get(name) != document["settings"].get(name)]
        if not differ and there["masks"] != document["masks"][: len(there["masks"])]:
            differ = ["masks"]
        if grown := [name for name in differ if name.endswith("_from_trials")]:
            before, now = (one["settings"].get(grown[0]) for one in (there, document))
            raise RunMismatchError(
                f"The models in {out} were planned from {before:,} trials of the run, which has {now:,} by now; read"
                " them with --no-train, or train others in another directory (--out)."
            )
        if differ:
            raise _another_plan(out, differ)
    content = (json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n").encode()
    if not (out / "plan.json").is_file() or (out / "plan.json").read_bytes() != content:
        write_whole(out / "plan.json", content)


def _note_failures(store: TrialStore) -> None:
    done = store.scan().numbers.tolist()
    if not (failures := store.failures(done)):
        return
    number, failure = next(iter(failures.items()))
    if not done:
        raise TrialsFailedError(f"All {len(failures)} trial(s) failed (trial {number}: {failure.summary}).")
    warnings.warn(
        f"{len(failures)} trial(s) failed (trial {number}: {failure.summary}) and are left out; retry_failed"
        " (--retry-failed) runs just those again.",
        MemfluenceWarning,
        stacklevel=4,
    )
