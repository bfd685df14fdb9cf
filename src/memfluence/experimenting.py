"""`experiment`: plan, run with any engine into a store of its own (resumable), summarize, draw, save.

OUT/NAME.json, .parquet, .png, .svg   the result
OUT/plan.json                         which models were trained, and what each is for
OUT/trained/                          their trials: a run like any other
"""

import io
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from memfluence import experiments
from memfluence.datasets import Dataset, as_dataset
from memfluence.errors import (
    InputError,
    LearnerError,
    MemfluenceWarning,
    RunMismatchError,
    StoreError,
    TrialsFailedError,
)
from memfluence.experiments import Result, Retraining
from memfluence.learners import Learner, described, represent, resolve
from memfluence.npzfiles import open_npz
from memfluence.progress import Progress, ProgressListener
from memfluence.records import Trial, canonical_json
from memfluence.report.experiments import save_figures
from memfluence.running import DEFAULT_CHECKPOINT_EVERY, prepare, run_trials
from memfluence.runs import Run, open_run
from memfluence.store import TrialStore, write_whole

__all__ = ["Training", "directory_of", "experiment", "save"]

_LINEAR_AT_ONCE = 50  # linear models; on 50,000 x 512 features their scores take 1 GB


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
        campaign = prepare(dataset, learner=learner, out=out, device=self.device, **design)
        listener = Progress() if self.progress is True else None if self.progress is False else self.progress
        store = run_trials(
            campaign,
            engine=self.engine,
            workers=self.workers,
            retry_failed=self.retry_failed,
            checkpoint_every=self.checkpoint_every,
            progress=listener,
        )
        _note_failures(store)
        return Run(store, campaign.dataset)

    def note(self, message: str) -> None:
        if self.progress is True:
            Progress().note(message)

    def retrain(self, plan: Retraining, run: Run, out: Path) -> Run:
        """Train the models of a plan as those of `run` were trained."""
        dataset, learner = self.data_of(run), self.learner_of(run)
        _keep_plan(plan, out)
        return self.run(out / "trained", dataset, learner, design="explicit", masks=plan.masks, seed=plan.seed)


def experiment(name: str, *runs: str | Path | Run, out: str | Path | None = None, **options: Any) -> Result:
    """Do one of the paper's experiments and save what it gives: numbers, a table and figures, in `out`.

        mf.experiment("removal", "runs/digits-mlp", thresholds=[0.1, 0.3, 0.5], repeats=20)

    `options` are those of the experiment's `plan` and `summarize` (`memfluence.experiments.NAME`) and, where models are
    trained, of `Training`: dataset, learner, settings, engine, workers, device, ... `out` is RUN/experiments/NAME if
    left out. Stopped and called again, it trains only what is missing.
    """
    module = experiments.named(name)
    title = name.replace("_", "-")
    opened = [run if isinstance(run, Run) else open_run(run) for run in runs]
    where = directory_of(title, opened, out)
    if title in _RETRAINING:
        how = {one.name: options.pop(one.name) for one in fields(Training) if one.name in options}
        result = _RETRAINING[title](title, opened, where, Training(**how), options)
    else:
        result = module.summarize(*opened, **options)
    save(result, where)
    return result


def directory_of(name: str, runs: list[Run], out: str | Path | None) -> Path:
    """Where the result of an experiment goes."""
    if out is not None:
        return Path(out)
    return runs[0].path / "experiments" / name if runs else Path("runs") / name


def save(result: Result, directory: Path) -> list[Path]:
    """Write NAME.json, .parquet, .png and .svg; gives their paths."""
    document = json.dumps(result.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    paths = [directory / f"{result.name}{suffix}" for suffix in (".json", ".parquet")]
    write_whole(paths[0], document.encode())
    write_whole(paths[1], result.table.to_parquet(index=False))
    return paths + save_figures(result, directory)


def _retrained(name: str, runs: list[Run], out: Path, training: Training, options: dict[str, Any]) -> Result:
    """An experiment whose plan is made from one run, trained as that run was."""
    run, module = _only(runs, name), experiments.named(name)
    plan = module.plan(run, **options)
    trained = training.retrain(plan, run, out)
    result: Result = module.summarize(plan, trained.trials)
    learner = (trained.info.learner or {}).get("name")
    other = f"; trained with {learner}" if learner != (run.info.learner or {}).get("name") else ""
    return replace(result, title=result.title + other, settings={**result.settings, "learner": learner})


def _last_layer(name: str, runs: list[Run], out: Path, training: Training, options: dict[str, Any]) -> Result:
    """Linear models on what the last layer of one network, trained on everything, is given."""
    run, module = _only(runs, name), experiments.last_layer
    given = {one: options.pop(one) for one in ("trials", "seed") if one in options}
    design = module.plan(run, keep=options.get("keep"), **given)
    linear = resolve("linear@paper", {"group": _LINEAR_AT_ONCE, **(options.pop("linear", None) or {})})
    dataset, network = _represented(training.learner_of(run), training.data_of(run), design["seed"], training, out)
    return module.summarize(run, training.run(out / "trained", dataset, linear, **design), network, **options)


def _represented(
    learner: Learner, dataset: Dataset, seed: int, training: Training, out: Path
) -> tuple[Dataset, dict[str, Any]]:
    """The dataset with representations for inputs, and what made them; kept in files, so that they are made once."""
    arrays, notes = out / "representations.npz", out / "representations.json"
    made_by = {"learner": learner.describe(), "data": dataset.fingerprint, "seed": seed}
    if arrays.is_file() and notes.is_file():
        network = json.loads(notes.read_bytes())
        if canonical_json(network["made_by"]) != canonical_json(made_by):
            raise RunMismatchError(
                f"{arrays} holds what another network was made of (another learner, seed or data); choose another"
                " directory (--out)."
            )
    else:
        everything = Trial(0, 0, np.ones(dataset.n_train, dtype=bool), seed)
        outcome, train, test = represent(learner, dataset, everything, device=training.device)
        network = {
            "made_by": made_by,
            "learner": learner.name,
            "features": train.shape[1],
            "test_accuracy": float(outcome.test_correct.mean()),
            "train_accuracy": float(outcome.train_correct.mean()),
            "seconds": outcome.seconds,
        }
        content = io.BytesIO()
        labels = {f"y_{split}": dataset.labels(split) for split in ("train", "test")}
        np.savez(content, x_train=train, x_test=test, **labels)  # type: ignore[arg-type]
        write_whole(arrays, content.getvalue())
        write_whole(notes, (json.dumps(network, indent=2) + "\n").encode())
    with open_npz(arrays, StoreError) as file:
        train, test = file.read("x_train"), file.read("x_test")
    name = f"npz:{arrays.resolve()}"
    return replace(dataset, name=name, x_train=train, x_test=test, value_range=None, attributes={}), network


def _long_tail(name: str, runs: list[Run], out: Path, training: Training, options: dict[str, Any]) -> Result:
    """Worlds with known subpopulations, each with stores of its own."""
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


_RETRAINING: dict[str, Callable[[str, list[Run], Path, Training, dict[str, Any]], Result]] = {
    "removal": _retrained,
    "utility": _retrained,
    "last-layer": _last_layer,
    "long-tail": _long_tail,
}


def _only(runs: list[Run], name: str) -> Run:
    if len(runs) != 1:
        raise InputError(f"The experiment {name} is about one run. Got {len(runs)}.")
    return runs[0]


def _keep_plan(plan: Retraining, out: Path) -> None:
    """Write the plan, or refuse a directory that holds models of another one."""
    path, document = out / "plan.json", plan.to_json()
    if path.is_file() and any((out / "trained" / "trials").glob("*.parquet")):
        there = json.loads(path.read_bytes())
        if there == document:
            return
        names = sorted({*there["settings"], *document["settings"]})
        differ = [name for name in names if there["settings"].get(name) != document["settings"].get(name)] or ["masks"]
        raise RunMismatchError(
            f"{out} holds models of another plan, which differs in {', '.join(differ)}; choose another directory"
            " (--out), or ask for what is there."
        )
    write_whole(path, (json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n").encode())


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
