"""`plan`: how long, how much disk and memory, and how sure the scores will be, before the trials are run.

Sizes follow from the data; time comes from a pilot, one group of trials that is timed and thrown away. The pilot of a
network that takes hours may be stopped early: how far it came between its first report and its last is reckoned on.
"""

import math
import statistics
import time
from dataclasses import replace
from typing import Any

from memfluence.datasets import LazyImages
from memfluence.engines import groups_of, one_thread
from memfluence.errors import InputError, LearnerError
from memfluence.learners import Resumable
from memfluence.records import EXTRA_COLUMNS, Failure, PartWay
from memfluence.store import RunInfo
from memfluence.store.parquet import packed_width
from memfluence.training.campaign import Campaign, prepare, usual_record
from memfluence.training.options import PlanOptions, run_options, taking

_BASE_BYTES = 120_000_000  # Python, NumPy, Arrow, and the blocks in which pairs are counted
_BYTES = {"prediction": 1, "margin": 2, "logit": 2, "score": 4}
_PILOT_SECONDS = 5.0  # one-by-one learners are timed over a few trials


@taking(PlanOptions)
def plan(options: PlanOptions) -> dict[str, Any]:
    """What a run with these options will take, as a JSON-able dict. Nothing is written."""
    campaign = prepare(run_options(options))
    for name in ("price", "pilot_seconds"):
        if (value := getattr(options, name)) is not None and not 0 <= value < math.inf:
            raise InputError(f"The `{name}` parameter must be a number >= 0. Got {value!r} instead.")
    workers = options.workers or 1
    info = campaign.info
    bits = 2 * packed_width(info.n_train) + packed_width(info.n_test)
    has_classes = campaign.dataset.task == "classes"
    record = info.record if info.says_record else ["margin"] * len(usual_record(info))  # if the learner gives scores
    record = record if has_classes else ["score"]
    extras = sum(_bytes(column, info) for column in {name for kind in record for name in EXTRA_COLUMNS[kind]})
    seconds = _reckoned(campaign, options.pilot_seconds) if options.pilot else None
    hours = None if seconds is None else seconds * info.trials / 3600
    in_files = [x for x in (campaign.dataset.x_train, campaign.dataset.x_test) if isinstance(x, LazyImages)]
    return {
        "dataset": info.dataset["name"],
        "n_train": info.n_train,
        "n_test": info.n_test,
        "learner": campaign.learner.name,
        "trials": info.trials,
        "group_size": info.group_size,
        "workers": workers,
        "seconds_per_trial": seconds,
        "seconds": None if seconds is None else seconds * info.trials / workers,
        "worker_hours": hours,
        "cost": None if hours is None or options.price is None else hours * options.price,
        "disk_bytes": info.trials * (bits + extras),  # before compression
        "memory_bytes_to_estimate": _BASE_BYTES + 3 * info.trials * bits,  # packed trials, and their transposes
        "memory_bytes_full_matrix": 8 * info.n_train * info.n_test,
        "decoded_bytes": sum(images.nbytes for images in in_files) if in_files else None,  # of images in files
        "largest_stderr": max(
            (_largest_stderr(info, kind.keep) for kind in info.kinds if kind.arm != "neither" and has_classes),
            default=None,
        ),  # None where the design gives values and no scores, or outcomes are in a unit of their own
    }


def _bytes(column: str, info: RunInfo) -> int:
    """Of an optional outcome of one trial."""
    split, _, what = column.partition("_")
    return _BYTES[what] * (info.n_train if split == "train" else info.n_test)


def _largest_stderr(info: RunInfo, keep: float | None) -> float:
    """About the largest standard error of a score at this fraction: both proportions at 1/2, counts as expected."""
    fraction = 0.5 if keep is None else keep
    per_kind = info.trials / len(info.kinds) / info.repeats  # models that share a mask count once
    return math.sqrt(0.25 / (fraction * per_kind) + 0.25 / ((1 - fraction) * per_kind))


class _Enough(KeyboardInterrupt):
    """Stops a pilot that has trained long enough: as engines stop learners."""


def _reckoned(campaign: Campaign, enough: float | None) -> float:
    """Seconds per trial; of a pilot that is stopped after `enough` seconds of training, what all of it would take.

    What comes before the first report (compiling, reading pictures into memory) and the evaluation at the end, which is
    another pass over the examples, are left out. A learner that does not report goes on to its end.
    """
    marks: list[tuple[float, float]] = []  # time, and how far the trial is

    def report(part: PartWay) -> None:
        marks.append((time.monotonic(), part.fraction))
        if enough is not None and len(marks) > 1 and marks[-1][0] - marks[0][0] >= enough:
            raise _Enough

    if enough is None or not isinstance(campaign.learner, Resumable):
        return _pilot(campaign)
    try:
        return _pilot(replace(campaign, learner=campaign.learner.resuming(None, report)))
    except _Enough:
        (began, first), (ended, last) = marks[0], marks[-1]
        return (ended - began) / (last - first)


def _pilot(campaign: Campaign) -> float:
    """Seconds per trial: the median over up to five groups, as many as a few seconds allow, trained and thrown away."""
    size = campaign.info.group_size
    spent: list[float] = []
    started = time.monotonic()
    limit = campaign.design.limit
    record = campaign.info.record if campaign.info.says_record else usual_record(campaign.info)
    while len(spent) < 5 and (len(spent) < 1 or time.monotonic() - started < _PILOT_SECONDS):
        group = groups_of([len(spent) * size], size)[0]
        numbers = range(group.number * size, (group.number + 1) * size)
        batch = [campaign.design.trial(number if limit is None else number % limit) for number in numbers]
        before = time.monotonic()
        with one_thread():  # as engines do
            for result in campaign.learner.train(campaign.dataset, batch, record=record, device=campaign.device):
                if isinstance(result, Failure):
                    raise LearnerError(f"The pilot failed at trial {result.trial}: {result.message}.")
        spent.append((time.monotonic() - before) / size)
    return statistics.median(spent)
