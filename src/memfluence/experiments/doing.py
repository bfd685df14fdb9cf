"""`experiment`: plan (`Retraining`), train with any engine into a store of its own (`Training`), summarize, draw, save.

OUT/NAME.json, .parquet, .png, .svg   the result
OUT/plan.json                         which models were trained, and what each is for
OUT/trained/                          their trials: a run like any other
"""

import base64
import json
import math
import operator
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from memfluence.datasets import Dataset, as_dataset
from memfluence.drawing import encoded, style
from memfluence.engines.progress import ProgressListener
from memfluence.errors import InputError, MemfluenceWarning, RunMismatchError
from memfluence.experiments import named
from memfluence.experiments._result import Result, of_keep, plain
from memfluence.learners import Learner, described, resolve
from memfluence.records import Trials
from memfluence.runs import Run, about, open_run
from memfluence.store import refuse_uri, unpack, write_whole
from memfluence.training.campaign import check_failures, listener_of, prepare
from memfluence.training.options import EngineOptions, TrialOptions, option, run_options, same_as

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Retraining:
    """Models to be trained: what each keeps and is for. Model k is trial k of an explicit design with this seed."""

    experiment: str
    masks: np.ndarray  # (trials, n_train) bool
    purposes: tuple[Mapping[str, Any], ...]  # of each trial: {"arm": "random", "threshold": 0.3, "repeat": 2}
    settings: Mapping[str, Any]  # what it was made from and with
    seed: int = 0
    known_by: int | None = None  # the first trials, of the repeats that it was begun with; None: all

    @classmethod
    def of(
        cls,
        experiment: str,
        run: Run,
        models: Callable[[range], Iterable[tuple[np.ndarray, dict[str, Any]]]],
        *,
        repeats: int,
        begun: Sequence[int],
        keep: float | None,
        seed: int,
        **settings: Any,
    ) -> "Retraining":
        """From `models`, which gives the masks and purposes of some repeats.

        Repeats come in the order in which they were asked for: those that a directory was begun with, then what was
        added. `begun` holds how many there were each time; they are never fewer than before.
        """
        ends = sorted({*begun, max(repeats, *begun, 0)})
        parts = [list(models(range(start, end))) for start, end in zip([0, *ends], ends)]
        masks, purposes = zip(*(one for part in parts for one in part))
        whole = {"about": about(run.info), "repeats": ends[-1], "begun": ends, "keep": keep, **settings}
        whole |= {"n_train": run.info.n_train, "n_test": run.info.n_test}
        return cls(experiment, np.stack(masks), purposes, whole, seed, len(parts[0]))

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


def correct_by_trial(plan: Retraining, trials: Trials) -> dict[int, np.ndarray]:
    """The test examples that each trained model got right, by its number, (n_test,) bool each."""
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
            raise InputError("Settings (`settings`) belong to a learner; name it as well (`learner`).")
        return described(run.info.learner) if self.learner is None else resolve(self.learner, self.settings)

    def run(self, out: Path, dataset: Any, learner: Any, known_by: int | None = None, **design: Any) -> Run:
        """Run what is missing of a campaign into `out`. Trials that failed are left out, with a warning."""
        if not self.train:
            return open_run(out)
        bits = {"record": (), **design}  # more only where the experiment asks for it
        chosen = run_options(self, dataset=dataset, learner=learner, settings=None, out=out, **bits)
        campaign = prepare(chosen, known_by=known_by)
        store = campaign.run()
        check_failures(store, stacklevel=4)
        return Run(store, campaign.dataset)

    @property
    def listener(self) -> ProgressListener:
        """The listener that is told of the progress."""
        return listener_of(self.progress)

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return math.inf if self.deadline is None else self.deadline - time.monotonic()

    def note(self, message: str) -> None:
        self.listener.note(message)

    def retrain(self, plan: Retraining, run: Run, out: Path) -> Run:
        """Train the models of a plan as those of `run` were trained."""
        if not self.train:
            return open_run(out / "trained")
        dataset, learner = self.data_of(run), self.learner_of(run)
        _keep_plan(plan, out)
        explicit: dict[str, Any] = {"design": "explicit", "masks": plan.masks, "seed": plan.seed}
        return self.run(out / "trained", dataset, learner, plan.known_by, **explicit)


Out = Annotated[str | Path | None, "Where results go.  [default: RUN/experiments/NAME]"]


def experiment(name: str, *runs: str | Path | Run, out: Out = None, **options: Any) -> Result:
    """Do one of the paper's experiments and save what it gives: numbers, a table and figures, in `out`.

        mf.experiment("removal", "runs/digits-mlp", thresholds=[0.1, 0.3, 0.5], repeats=20)

    `options` are those of the experiment's `plan` and `summarize` (`memfluence.experiments.NAME`) and, where models are
    trained, of `Training`: dataset, learner, settings, engine, workers, device, ... `out` is RUN/experiments/NAME if
    left out. Stopped and called again, it trains only what is missing.
    """
    module, title = named(name), name.replace("_", "-")
    opened = [run if isinstance(run, Run) else open_run(run) for run in runs]
    where = directory_of(title, opened, out)
    if hasattr(module, "plan"):
        how = Training(**{one.name: options.pop(one.name) for one in fields(Training) if one.name in options})
        conduct = getattr(module, "conduct", _conduct)
        result: Result = conduct(title, opened, where, how, **options)
    else:
        result = module.summarize(*opened, **options)
    save(result, where)
    return replace(result, runs=tuple(str(run.path) for run in opened))


def directory_of(name: str, runs: list[Run], out: str | Path | None) -> Path:
    """The directory of an experiment's result."""
    if out is not None:
        return refuse_uri(Path(out))
    return runs[0].folder / "experiments" / name if runs else Path("runs") / name


def draw(result: Result) -> "Figure":
    """The figure of a result."""
    with style():
        figure: Figure = named(result.name).draw(result)
    return figure


def save(result: Result, directory: Path) -> None:
    """Write NAME.json, .parquet, .png and .svg; and further figures, where there are any."""
    document = json.dumps(result.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(directory / f"{result.name}.json", document.encode())
    write_whole(directory / f"{result.name}.parquet", result.table.to_parquet(index=False))
    module, figures = named(result.name), {result.name: draw(result)}
    with style():
        if hasattr(module, "draw_more"):
            figures |= {f"{result.name}-{name}": figure for name, figure in module.draw_more(result).items()}
        for name, figure in figures.items():
            for suffix in (".png", ".svg"):
                write_whole(directory / f"{name}{suffix}", encoded(figure, suffix))


def _conduct(name: str, runs: list[Run], out: Path, training: Training, **options: Any) -> Result:
    """An experiment whose plan is made from one run, trained as that run was; without training, as it was planned."""
    run, module = only(runs, name), named(name)
    there = None if training.train else saved_plan(out, run, options)
    if there is None and not training.train:
        raise InputError(f"{out} has no models yet; run it without `train=False`.")
    plan = module.plan(run, begun=begun(out), **options) if there is None else there
    trained = training.retrain(plan, run, out)
    result: Result = module.summarize(plan, trained.bits)
    learner = (trained.info.learner or {}).get("name")
    other = f"; trained with {learner}" if learner != (run.info.learner or {}).get("name") else ""
    return replace(result, title=result.title + other, settings={**result.settings, "learner": learner})


def only(runs: list[Run], name: str) -> Run:
    """The one run that an experiment is about."""
    if len(runs) != 1:
        raise InputError(f"The experiment {name} is about one run. Got {len(runs)}.")
    return runs[0]


def begun(out: Path) -> list[int]:
    """The numbers of repeats that a directory was planned with: one for each time that more were asked for."""
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
    made_of = next((value for name, value in settings.items() if name.endswith("_from_trials")), None)
    if made_of is not None and made_of != (now := len(of_keep(run, settings["keep"]))):
        warnings.warn(
            f"The models in {out} were planned from {made_of:,} trials of {run.path}, which has {now:,} by now; what"
            " they give is about the examples that were chosen then.",
            MemfluenceWarning,
            stacklevel=4,
        )
    return Retraining.from_json(there)


def _another_plan(out: Path, differ: list[str]) -> RunMismatchError:
    return RunMismatchError(
        f"{out} holds models of another plan, which differs in {', '.join(differ)}; choose another directory (`out`),"
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
                " them with `train=False`, or train others in another directory (`out`)."
            )
        if differ:
            raise _another_plan(out, differ)
    content = (json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n").encode()
    if not (out / "plan.json").is_file() or (out / "plan.json").read_bytes() != content:
        write_whole(out / "plan.json", content)
