"""Training of an experiment's models: what is to be trained (`Retraining`), with what and where (`Training`)."""

import base64
import json
import operator
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.datasets import Dataset, as_dataset
from memfluence.engines.progress import Progress, ProgressListener
from memfluence.errors import InputError, MemfluenceWarning, RunMismatchError
from memfluence.experiments._result import plain
from memfluence.experiments._splits import of_keep
from memfluence.learners import Learner, described, resolve
from memfluence.records import Trials
from memfluence.runs import Run, open_run
from memfluence.store import unpack, write_whole
from memfluence.training.campaign import failed_trials, listener_of, prepare
from memfluence.training.options import EngineOptions, TrialOptions, option, run_options, same_as


@dataclass(frozen=True, eq=False)
class Retraining:
    """Which examples each model keeps, and what it is for. Model k is trial k of an explicit design with this seed."""

    experiment: str
    masks: np.ndarray  # (trials, n_train) bool
    purposes: tuple[Mapping[str, Any], ...]  # of each trial: {"arm": "random", "threshold": 0.3, "repeat": 2}
    settings: Mapping[str, Any]  # what it was made from and with
    seed: int = 0
    known_by: int | None = None  # the first trials, of the repeats that it was begun with; None: all

    def rows(self, **purpose: Any) -> list[int]:
        """The trials that are for this."""
        return [
            number
            for number, one in enumerate(self.purposes)
            if all(one.get(name) == value for name, value in purpose.items())
        ]

    def to_json(self) -> dict[str, Any]:
        """Masks are bits in little order, row after row, in base64."""
        packed = np.packbits(self.masks, axis=1, bitorder="little")
        found: dict[str, Any] = plain(
            {
                "experiment": self.experiment,
                "settings": self.settings,
                "seed": self.seed,
                "known_by": self.known_by,
                "purposes": self.purposes,
                "n_train": self.masks.shape[1],
                "masks": [base64.b64encode(row.tobytes()).decode() for row in packed],
            }
        )
        return found

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Retraining":
        """The inverse of `to_json`."""
        rows = [np.frombuffer(base64.b64decode(row), np.uint8) for row in document["masks"]]
        masks = np.unpackbits(np.stack(rows), axis=1, count=document["n_train"], bitorder="little").astype(bool)
        return cls(
            document["experiment"],
            masks,
            tuple(document["purposes"]),
            document["settings"],
            int(document["seed"]),
            document["known_by"],
        )


def blocks(repeats: int, begun: Sequence[int]) -> list[range]:
    """Repeats in the order in which they were asked for: those that a directory was begun with, then what was added.

    `begun` holds how many there were each time; repeats are never fewer than before.
    """
    ends = sorted({*begun, max(repeats, *begun, 0)})
    return [range(start, end) for start, end in zip([0, *ends], ends)]


def correct_by_trial(plan: Retraining, trials: Trials) -> dict[int, np.ndarray]:
    """What each model that is there got right, by its number, (n_test,) bool each."""
    correct = unpack(trials.test_correct, trials.n_test)  # (trials, n_test)
    return {int(number): row for number, row in zip(trials.numbers, correct) if number < len(plan.purposes)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Training(EngineOptions):
    """With what and where the models of an experiment are trained; by default as those of the run were."""

    dataset: Any = option(None, "Where the data are, if the run does not say.", flag="--data --dataset")
    learner: Any = option(None, "Another learner.", shown="the run's")
    settings: Mapping[str, str] | None = same_as(TrialOptions, "settings", None)
    train: bool = option(
        True,
        "Summarize the models that are there; needs neither data nor learner.",
        text=bool,
        read=operator.not_,
        flag="--no-train",
    )

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

    def run(self, out: Path, dataset: Any, learner: Any, known_by: int | None = None, **design: Any) -> Run:
        """Run what is missing of a campaign into `out`. Trials that failed are left out, with a warning."""
        if not self.train:
            return open_run(out)
        chosen = run_options(self, dataset=dataset, learner=learner, settings=None, out=out, **design)
        campaign = prepare(chosen, known_by=known_by)
        store = campaign.run()
        if failed := failed_trials(store):
            if not len(store.scan().numbers):
                raise failed
            warnings.warn(str(failed), MemfluenceWarning, stacklevel=4)
        return Run(store, campaign.dataset)

    @property
    def listener(self) -> ProgressListener:
        """Who is told how far it is."""
        return listener_of(self.progress)

    def note(self, message: str) -> None:
        if self.progress is True:
            Progress().note(message)

    def retrain(self, plan: Retraining, run: Run, out: Path) -> Run:
        """Train the models of a plan as those of `run` were trained."""
        if not self.train:
            return open_run(out / "trained")
        dataset, learner = self.data_of(run), self.learner_of(run)
        _keep_plan(plan, out)
        explicit: dict[str, Any] = {"design": "explicit", "masks": plan.masks, "seed": plan.seed}
        return self.run(out / "trained", dataset, learner, plan.known_by, **explicit)


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
