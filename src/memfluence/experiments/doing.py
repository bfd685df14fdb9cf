"""`experiment`: plan, run with any engine into a store of its own (resumable), summarize, draw, save.

OUT/NAME.json, .parquet, .png, .svg   the result
OUT/plan.json                         which models were trained, and what each is for
OUT/trained/                          their trials: a run like any other
"""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from memfluence.drawing import encoded, style
from memfluence.errors import InputError
from memfluence.experiments import named
from memfluence.experiments._result import Result
from memfluence.experiments._training import Training, begun, only, saved_plan
from memfluence.runs import Run, open_run
from memfluence.store import refuse_uri, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    """Where the result of an experiment goes."""
    if out is not None:
        return refuse_uri(Path(out))
    return runs[0].folder / "experiments" / name if runs else Path("runs") / name


def draw(result: Result) -> "Figure":
    """The figure of a result."""
    with style():
        figure: Figure = named(result.name).draw(result)
    return figure


def save(result: Result, directory: Path) -> None:
    """Write NAME.json, .parquet, .png and .svg."""
    document = json.dumps(result.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(directory / f"{result.name}.json", document.encode())
    write_whole(directory / f"{result.name}.parquet", result.table.to_parquet(index=False))
    figure = draw(result)
    with style():
        for suffix in (".png", ".svg"):
            write_whole(directory / f"{result.name}{suffix}", encoded(figure, suffix))


def _conduct(name: str, runs: list[Run], out: Path, training: Training, **options: Any) -> Result:
    """An experiment whose plan is made from one run, trained as that run was; without training, as it was planned."""
    run, module = only(runs, name), named(name)
    there = None if training.train else saved_plan(out, run, options)
    if there is None and not training.train:
        raise InputError(f"{out} has no models yet; run it without --no-train.")
    plan = module.plan(run, begun=begun(out), **options) if there is None else there
    trained = training.retrain(plan, run, out)
    result: Result = module.summarize(plan, trained.trials)
    learner = (trained.info.learner or {}).get("name")
    other = f"; trained with {learner}" if learner != (run.info.learner or {}).get("name") else ""
    return replace(result, title=result.title + other, settings={**result.settings, "learner": learner})
