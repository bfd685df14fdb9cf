"""`experiment`: plan, run with any engine into a store of its own (resumable), summarize, draw, save.

OUT/NAME.json, .parquet, .png, .svg   the result
OUT/plan.json                         which models were trained, and what each is for
OUT/trained/                          their trials: a run like any other
"""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from memfluence import experiments
from memfluence.errors import InputError
from memfluence.experiments import Result
from memfluence.experiments.doing._last_layer import do_last_layer, linear_at_once
from memfluence.experiments.doing._long_tail import do_long_tail
from memfluence.experiments.doing._training import Training, begun, only, saved_plan
from memfluence.experiments.figures import save_figures
from memfluence.runs import Run, open_run
from memfluence.store import refuse_uri, write_whole

__all__ = ["Training", "begun", "directory_of", "experiment", "linear_at_once", "save"]


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
        return refuse_uri(Path(out))
    return runs[0].folder / "experiments" / name if runs else Path("runs") / name


def save(result: Result, directory: Path) -> list[Path]:
    """Write NAME.json, .parquet, .png and .svg; gives their paths."""
    document = json.dumps(result.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    paths = [directory / f"{result.name}{suffix}" for suffix in (".json", ".parquet")]
    write_whole(paths[0], document.encode())
    write_whole(paths[1], result.table.to_parquet(index=False))
    return paths + save_figures(result, directory)


def _retrained(name: str, runs: list[Run], out: Path, training: Training, options: dict[str, Any]) -> Result:
    """An experiment whose plan is made from one run, trained as that run was; without training, as it was planned."""
    run, module = only(runs, name), experiments.named(name)
    there = None if training.train else saved_plan(out, run, options)
    if there is None and not training.train:
        raise InputError(f"{out} has no models yet; run it without --no-train.")
    plan = module.plan(run, begun=begun(out), **options) if there is None else there
    trained = training.retrain(plan, run, out)
    result: Result = module.summarize(plan, trained.trials)
    learner = (trained.info.learner or {}).get("name")
    other = f"; trained with {learner}" if learner != (run.info.learner or {}).get("name") else ""
    return replace(result, title=result.title + other, settings={**result.settings, "learner": learner})


_RETRAINING: dict[str, Callable[[str, list[Run], Path, Training, dict[str, Any]], Result]] = {
    "removal": _retrained,
    "utility": _retrained,
    "last-layer": do_last_layer,
    "long-tail": do_long_tail,
}
