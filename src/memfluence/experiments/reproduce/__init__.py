"""`reproduce`: all of the paper's experiments on one dataset in the time given, and one report beside the paper.

OUT/base/, OUT/second/     the trials that memorization and influence are estimated from, and those of another network
OUT/NAME/                  an experiment, as `memfluence experiment NAME` leaves it
OUT/reproduction.md, .json the report, with its figures in OUT/reproduction/
OUT/progress.json          how many trials to begin with, and what each part was made of: nothing is done twice

The command line reads the signature here, so all else is imported when the work begins.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from memfluence.errors import InputError

if TYPE_CHECKING:
    from memfluence.runs import Run

__all__ = ["reproduce"]


def reproduce(
    name: Annotated[str, "digits, mnist, cifar100 or imagenet."],
    data: Annotated[str | None, "Directory of the dataset's files, or FILE.npz."] = None,
    *,
    budget: Annotated[
        str | None, "Time of this call: 90s, 30m, 2h; 0: no training.  [default: 30m; imagenet 24h]"
    ] = None,
    out: Annotated[str | Path | None, "Where everything goes.  [default: runs/reproduce-DATASET]"] = None,
    run: Annotated["str | Path | Run | None", "Trials that are there already."] = None,
    second_run: Annotated["str | Path | Run | None", "The same of another network."] = None,
    only: Annotated[
        str | None,
        "Parts, with numbers of models if you like, as removal,utility=30: experiments, second (trials of another"
        " network) and architectures (consistency with it); the numbers are repeats of removal and utility, linear"
        " models of last-layer, trials of second.",
    ] = None,
    trials: Annotated[int | None, "How many to begin with.  [default: by the time; imagenet 2000]"] = None,
    mem: float = 0.25,
    infl: float = 0.15,
    learner: Annotated[Any, "Another one than the usual."] = None,
    settings: Annotated[
        Mapping[str, str] | None,
        "Setting of a built-in learner or recipe, option of a network, or parameter of an estimator; repeatable.",
    ] = None,
    second: Annotated[Any, "Another network to compare with."] = None,
    device: Annotated[str, "auto, cpu or cuda."] = "auto",
    workers: Annotated[int, "Worker processes, on one GPU each where there are several."] = 1,
    shard: Annotated[
        str | None, "Train only this part of the models, i/N, or auto: as the job array's variables say."
    ] = None,
    seed: int = 0,
    train: Annotated[bool, "Read what is there."] = True,
    report: Annotated[
        str | Path | None,
        "Where the report goes; figures in a directory beside it.  [default: DIR/reproduction.md]",
    ] = None,
    progress: Annotated[bool | Any, "No progress."] = True,
) -> dict[str, Any]:
    """Redo the paper's experiments on "digits", "mnist", "cifar100" or "imagenet" and write a report; gives what it
    says.

        mf.reproduce("digits")
        mf.reproduce("cifar100", "cifar100.npz", budget="9m", device="cuda", out="c100")   # as often as you like

    `data` may also be any name of a dataset. Called again with the same `out`, it goes on. `mem` and `infl` are the
    thresholds of pairs; with few trials a higher `infl` leaves out what is chance. `train=False`, or a budget of "0",
    reads what is there. With `shard` several machines share the models: each call trains its part of what can be
    trained by then, first of the trials that all else is made from.
    """
    from memfluence.experiments.doing import Training
    from memfluence.experiments.reproduce._parts import Parts, base_of, prepared
    from memfluence.experiments.reproduce._report import write_report
    from memfluence.experiments.reproduce._subjects import (
        TRAINED,
        chosen_parts,
        data_of,
        reserve,
        seconds_of,
        subject_of,
    )
    from memfluence.runs import Run, open_run
    from memfluence.store import refuse_uri

    if shard is not None and trials is None and run is None and subject_of(name).by_time:
        raise InputError("The parts of a run need one number of trials; give `trials` with `shard`.")
    if trials is not None and trials < 1:
        raise InputError(f"The `trials` parameter must be an integer >= 1. Got {trials!r} instead.")
    subject, given = subject_of(name), seconds_of(budget or subject_of(name).budget)
    train = train and given > 0
    wanted = chosen_parts(subject, only)
    where = refuse_uri(Path(out)) if out is not None else Path("runs") / f"reproduce-{name}"
    needless = run is not None or not train  # the run may say where its data are; without training they may be missing
    spec = None if data is None and needless and name != "digits" else data_of(subject, data)
    end = time.monotonic() + given
    how = Training(
        learner=learner,
        settings=settings,
        device=device,
        workers=workers,
        shard=shard,
        progress=progress,
        deadline=end,
        train=train,
    )
    how = prepared(how, subject, spec, run)
    base = base_of(subject, how, where, run, given, trials, seed)
    other = None if second_run is None else second_run if isinstance(second_run, Run) else open_run(second_run)
    network = second or subject.second
    of_network = subject.second_settings if second is None else {}
    parts = Parts(subject, base, where, how, end, seed, network, other, of_network, mem, infl)
    if train:
        readings = [part for part in wanted if part not in TRAINED and not parts.is_done(part)]
        until = end - reserve(base.info.n_train, base.info.n_test, len(readings), given)
        parts = replace(parts, how=replace(how, deadline=until))
        how.note(parts.plan(wanted))
    path = where / "reproduction.md" if report is None else Path(report)
    for part in chosen_parts(subject, None):
        if part not in wanted:
            parts.recall(part)
    for part in (part for part in wanted if part in TRAINED):
        parts.do(part, wanted[part])
        write_report(subject, parts, path)
    if train:
        parts.grow([part for part, count in wanted.items() if count is None])
    for part in (part for part in wanted if part not in TRAINED):
        parts.do(part, None)
        write_report(subject, parts, path)
    return write_report(subject, parts, path)
