"""A sample of a run's trials, trained again and compared with what is stored.

A learner gives the same bits with the same number of models at once, on the same device model, with the same versions
and one thread per worker. Where these are the same, any difference is a problem; where they are not, it is said how
many outcomes differ.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from memfluence.engines import groups_of, installed_versions, one_thread, trials_of
from memfluence.errors import InputError, RunMismatchError
from memfluence.learners import Learner, described, described_before, resolve
from memfluence.records import Failure, Outcome, canonical_json
from memfluence.runs import Run
from memfluence.store import Location, TrialStore, differences
from memfluence.upkeep._survey import design_of

__all__ = ["Again", "run_again"]


@dataclass(frozen=True)
class Again:
    """One trial that was trained again."""

    trial: int
    differ: int  # bits and optional values that are not those stored; -1 if the trial failed
    of: int
    is_wrong: bool  # whether that may not be
    message: str


def run_again(
    store: TrialStore,
    trials: Sequence[int],
    sample: int,
    seed: int | None = None,
    *,
    dataset: str | None = None,
    learner: Any = None,
    settings: Mapping[str, str] | None = None,
    device: str = "auto",
) -> tuple[Again, ...]:
    """Train `sample` of these trials again (all of them, if there are fewer) and compare. Nothing is written."""
    if sample < 0:
        raise InputError(f"The 'sample' parameter must be an integer >= 0. Got {sample} instead.")
    design = design_of(store)
    if design is None:
        raise InputError(
            f"No trial of {store.path} can be run again, because its plan does not say how masks are drawn;"
            " leave out --sample."
        )
    info = store.info
    if learner is None and settings:
        raise InputError("Settings (--set) belong to a learner; name it as well (--learner).")
    trained: Learner = described(info.learner) if learner is None else resolve(learner, settings)
    data = Run(store).dataset(dataset)
    asked = replace(
        info,
        dataset={**info.dataset, "name": data.name, "fingerprint": data.fingerprint},
        learner=json.loads(canonical_json(trained.describe())),
    )
    if found := differences(info, asked, described_before(trained)):
        raise RunMismatchError(f"{store.path} cannot be checked with these: it differs in {'; '.join(found)}.")
    chosen = sorted(random.Random(seed).sample(list(trials), min(sample, len(trials))))
    stored = _stored(store, set(chosen))
    here = installed_versions()
    changed = sorted(
        f"{name} {info.versions[name]}"
        for name in {*here, *info.versions} - {"memfluence"}
        if name in info.versions and info.versions[name] != here.get(name)
    )
    compared = []
    with one_thread():
        for group in groups_of(chosen, info.group_size):
            batch = trials_of(design, group, info.group_size)
            for result in trained.train(data, batch, record=info.record, device=device):
                if result.trial in group.wanted:
                    compared.append(_compared(result, stored[result.trial], changed))
    return tuple(compared)


def _stored(store: TrialStore, wanted: set[int]) -> dict[int, dict[str, Any]]:
    """The stored rows of some trials, columns by name."""
    found: dict[int, dict[str, Any]] = {}

    def look(path: Location, read: Callable[[], pa.Buffer]) -> None:
        rows = store.read_rows(path.name, read())
        chosen = rows.take(np.flatnonzero(np.isin(rows.numbers, list(wanted))))
        found.update({row["trial"]: row for row in chosen.table.to_pylist()})

    store.read_each(look)
    return found


def _compared(result: Outcome | Failure, stored: Mapping[str, Any], changed: Sequence[str]) -> Again:
    trial = result.trial
    if isinstance(result, Failure):
        return Again(trial, -1, 0, True, f"Trial {trial}, run again, failed: {result.summary}")
    differ = of = 0
    for name in ("mask", "train_correct", "test_correct"):
        bits = getattr(result, name)
        there = np.unpackbits(np.frombuffer(stored[name], np.uint8), count=len(bits), bitorder="little")
        differ, of = differ + int((there != bits).sum()), of + len(bits)
    for name, values in result.extras.items():
        bytes_here = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).view(np.uint8)
        there = np.frombuffer(stored[name], np.uint8) != bytes_here  # bit for bit: NaN is NaN
        differ, of = differ + int(there.reshape(len(values), -1).any(axis=1).sum()), of + len(values)
    elsewhere = [] if result.device == stored["device"] else [f"the device {stored['device']} (here {result.device})"]
    reasons = [*changed, *elsewhere]
    message = f"Trial {trial}, run again, differs in {differ} of {of} values from what is stored"
    why = f"; it was made with {', '.join(reasons)}, which may change rounding." if reasons else "."
    return Again(trial, differ, of, differ > 0 and not reasons, message + why)
