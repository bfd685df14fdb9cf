"""The trials that everything else is made from: those of a run that is there, or new ones, as the time allows."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from memfluence.datasets import as_dataset
from memfluence.errors import InputError, Interrupted
from memfluence.experiments._training import Training
from memfluence.experiments.reproduce._budget import Until, base_trials
from memfluence.experiments.reproduce._subjects import Subject
from memfluence.learners import resolve
from memfluence.progress import duration
from memfluence.runs import Run, open_run
from memfluence.store import is_run, write_whole

__all__ = ["base_of", "prepared", "read_progress", "write_progress"]


def prepared(how: Training, subject: Subject, spec: str | None, run: "str | Path | Run | None") -> Training:
    """With the data loaded and the learner made, once for all parts: what is wrong with them is said first."""
    there = None if run is None else run if isinstance(run, Run) else open_run(run)
    if not how.train:
        return replace(how, dataset=spec)
    if there is not None:
        how = replace(how, dataset=spec)
        return replace(how, dataset=how.data_of(there), learner=how.learner_of(there), settings=None)
    return replace(
        how, dataset=as_dataset(spec), learner=resolve(how.learner or subject.learner, how.settings), settings=None
    )


def base_of(
    subject: Subject,
    how: Training,
    where: Path,
    run: "str | Path | Run | None",
    clock: Until,
    budget: float,
    trials: int | None,
    seed: int,
) -> Run:
    """The run. If the time is over before it is complete, that ends the call: all else is made from it."""
    if run is not None:
        if trials is not None:
            raise InputError("The trials are those of --run; leave out --trials.")
        there = run if isinstance(run, Run) else open_run(run)
        return _with_data(there, how)
    if not how.train:
        if not is_run(where / "base"):
            raise InputError(f"{where} has no trials yet; run it without --no-train, and with a --budget.")
        return _with_data(open_run(where / "base"), how)
    clock.group = how.learner.group_size(how.dataset, how.device)
    wanted = read_progress(where).get("base_trials")
    try:
        if wanted is None:
            wanted = trials or _affordable(subject, how, where, clock, budget, seed)
            write_progress(where, base_trials=wanted)
        elif trials is not None and trials != wanted:
            raise InputError(
                f"{where} was begun with {wanted} trials, from which all its parts are made; leave out --trials, or"
                " choose another directory (--out)."
            )
        clock.note(f"{wanted:,} trials of {how.learner.name} to begin with")
        return how.run(where / "base", how.dataset, how.learner, trials=wanted, seed=seed)
    except Interrupted:
        if not clock.expired:
            raise
        done = len(open_run(where / "base").store.scan().numbers)
        raise Interrupted(
            f"The time was over after {done} of the {wanted or 'first'} trials that all else is made from; run the same"
            " command to go on."
        ) from None


def _affordable(subject: Subject, how: Training, where: Path, clock: Until, budget: float, seed: int) -> int:
    """How many trials a share of the time allows, from the pace of the first ones, which are kept."""
    group = clock.group
    alone = replace(how, workers=1)
    alone.run(where / "base", how.dataset, how.learner, trials=group, seed=seed)  # with what is compiled on the way
    count = 2 * group if group > 1 else 4
    before = time.monotonic()
    alone.run(where / "base", how.dataset, how.learner, trials=count, seed=seed)
    each = (time.monotonic() - before) / (count - group) / how.workers
    wanted = max(base_trials(budget, each, subject.trials), count)
    clock.note(f"a trial takes {duration(each)}; {duration(budget)} allow {wanted:,} of them to begin with")
    return wanted


def _with_data(run: Run, how: Training) -> Run:
    """The run with its data, if they were named."""
    if isinstance(how.dataset, str):
        run.dataset(how.dataset)
        return run
    return run if how.dataset is None else Run(run.store, how.dataset)


def read_progress(where: Path) -> dict[str, Any]:
    path = where / "progress.json"
    found: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return found


def write_progress(where: Path, **changes: Any) -> None:
    write_whole(where / "progress.json", (json.dumps(read_progress(where) | changes, indent=2) + "\n").encode())
