"""The status of a run: how far it is, who did what, and how fast."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from memfluence.datasets import title_of
from memfluence.store import INDEXED, RunInfo, TrialStore, versions_in
from memfluence.wording import learner_name

LATE = 600.0  # seconds before the last trial that count as "of late"


def status_of(store: TrialStore) -> dict[str, Any]:
    """All that `Run.status` gives. Segments that have not changed since they were last verified are not read again."""
    info, scan = store.info, store.scan(INDEXED, indexed=True)
    done = scan.numbers.tolist()
    failures, part_way = store.failures(done), store.checkpoints().part_way(done)
    return {
        "run": str(store.path),
        "dataset": info.dataset["name"],
        "n_train": info.n_train,
        "n_test": info.n_test,
        "learner": (info.learner or {}).get("name"),
        "design": (info.plan or {}).get("design"),
        "outcome": info.outcome,
        "keep": [kind.keep for kind in info.kinds],
        "trials": len(scan.numbers),
        "trials_wanted": info.trials,
        "part_way": [asdict(one) for one in part_way],
        "trials_failed": len(failures),
        "failures": [{"trial": number, "message": one.summary} for number, one in list(failures.items())[:10]],
        "segments": scan.segments,
        "damaged": [{"path": str(damage.path), "reason": damage.reason} for damage in scan.damaged],
        **summary(scan.details, info.versions),
    }


def summary(details: Mapping[str, np.ndarray], versions: Mapping[str, str]) -> dict[str, Any]:
    """Means over all trials, how many each device and each process made, and the pace of late, from small columns.

    `details` (each (trials,)) are those of `store.INDEXED`; empty where there are no trials. What older versions did
    not record is None, and such trials count for no pace. `versions` of libraries are those of run.json.
    """
    finished = details.get("finished", np.empty(0))
    finished = np.sort(finished[np.isfinite(finished)])
    return {
        "accuracy_in": _mean(details, "accuracy_in"),
        "accuracy_out": _mean(details, "accuracy_out"),
        "test_accuracy": _mean(details, "test_accuracy"),
        "seconds_per_trial": _mean(details, "seconds"),
        "made_by": _made_by(details),
        "made_with": _made_with(details, versions),
        "processes": _processes(details),
        "last_finished": float(finished[-1]) if len(finished) else None,
        "trials_per_second": _pace(finished),
    }


def _mean(details: Mapping[str, np.ndarray], name: str) -> float | None:
    values = details.get(name, np.empty(0))
    values = values[np.isfinite(values)]
    with np.errstate(over="ignore"):  # what nobody measured may be of any size
        mean = float(values.mean()) if len(values) else math.nan
    return mean if math.isfinite(mean) else None


def _made_by(details: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Trials by host and device, in the order of the first."""
    hosts, devices = (details.get(name, np.empty(0)).tolist() for name in ("host", "device"))
    return dict(Counter(f"{host or 'unknown'} ({device or 'unknown'})" for host, device in zip(hosts, devices)))


def _made_with(details: Mapping[str, np.ndarray], versions: Mapping[str, str]) -> list[dict[str, Any]]:
    """Trials by versions of libraries, in the order of the first.

    Of trials whose segments do not say it (`assumed`), they are taken to be those of run.json.
    """
    found: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for text, count in Counter(details.get("versions", np.empty(0, str)).tolist()).items():
        said = versions_in(text) or dict(versions)
        one = found.setdefault(tuple(sorted(said.items())), {"versions": said, "trials": 0, "assumed": 0})
        one["trials"] += count
        one["assumed"] += 0 if text else count
    return list(found.values())


def _processes(details: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Trials by host and process, those that finished one last first; a process is None where it was not recorded."""
    if not len(details.get("host", ())):
        return []
    made: dict[tuple[str, int], list[float]] = {}
    columns = (details[name].tolist() for name in ("host", "process", "finished"))
    for host, process, when in zip(*columns):
        made.setdefault((host, process), []).append(when)
    found = []
    for (host, process), times in made.items():
        known = [when for when in times if math.isfinite(when)]
        found.append(
            {
                "host": host or None,
                "process": process if process >= 0 else None,
                "trials": len(times),
                "first_finished": min(known, default=None),
                "last_finished": max(known, default=None),
            }
        )
    return sorted(found, key=lambda one: -(one["last_finished"] or 0.0))


def _pace(finished: np.ndarray) -> float | None:
    """Trials per second within `LATE` of the last one: by the time between them, so that the first counts for none."""
    late = finished[finished >= finished[-1] - LATE] if len(finished) else finished
    span = float(late[-1] - late[0]) if len(late) else 0.0
    return (len(late) - 1) / span if span > 0 else None


def about(info: RunInfo) -> str:
    """'digits, MLP: 1,197 training examples', the beginning of a title."""
    learner = learner_name((info.learner or {}).get("name", ""))
    what = ", ".join(part for part in (title_of(info.dataset), learner) if part)
    return f"{what}{': ' if what else ''}{info.n_train:,} training examples"
