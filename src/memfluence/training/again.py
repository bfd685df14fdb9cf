"""Again: the data of a run loaded again, and a sample of its trials trained again and compared with what is stored.

A learner gives the same bits with the same number of models at once, on the same device model, with the same versions
and one thread per worker. Where these are the same, any difference is a problem; where they are not, it is said how
many outcomes differ. A trial that differs is trained once more: a learner that gives two answers here is not
deterministic, and then the difference says nothing about what is stored.
"""

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from memfluence.datasets import Dataset, as_dataset, as_numbers, load
from memfluence.designs import Design
from memfluence.engines import groups_of, installed_versions, one_thread, trials_of
from memfluence.errors import DatasetError, InputError, RunMismatchError, checked_integer
from memfluence.learners import Learner, described, resolve, up_to_date
from memfluence.records import Failure, Outcome, canonical_json
from memfluence.store import TrialStore, differences, known_data, pack, unpack, versions_in

_BITS = ("mask", "train_correct", "test_correct")
_UNEXPLAINED = ", and twice now it is the same: find out what is different here ('repair' trains nothing again)."

Result = Outcome | Failure


@dataclass(frozen=True)
class Again:
    """One trial that was trained again."""

    trial: int
    differ: int  # bits and optional values that are not those stored; -1 if the trial failed
    of: int
    is_wrong: bool  # whether that may not be
    message: str
    deterministic: bool | None = None  # whether the learner gives the same twice; None where that was not asked


def load_again(store: TrialStore, spec: Any = None) -> Dataset:
    """The data of a run, from where they were on this machine (or from `spec`), checked to be the same.

    `spec` is a name, a `Dataset`, or arrays (x_train, y_train, x_test, y_test).
    """
    found = _load_known(store) if spec is None else as_dataset(spec)
    if store.info.dataset.get("task") == "numbers":
        found = as_numbers(found)
    codes = store.examples.labels()
    same_labels = np.array_equal(found.y_train, codes[0]) and np.array_equal(found.y_test, codes[1])
    if not same_labels or (spec is None and found.fingerprint != store.info.dataset["fingerprint"]):
        raise RunMismatchError(f"{found.name} is not what {store.path} was made from: its content differs.")
    return found


def _load_known(store: TrialStore) -> Dataset:
    """The data by the name that this machine remembers, or by that of run.json, which has no directories."""
    name = str(store.info.dataset["name"])
    if name == "arrays" or name.startswith("labels of "):
        raise InputError(f"{store.path} does not say where its data are; name them with `dataset` (such as npz:FILE).")
    if remembered := known_data(str(store.info.dataset["fingerprint"])):
        with suppress(DatasetError):  # moved since
            return load(remembered)
    try:
        return load(name)
    except DatasetError as error:
        raise InputError(
            f"The data of {store.path} ({name}) are not where they were; name them with `dataset`. {error}"
        ) from error


def run_again(
    store: TrialStore,
    design: Design | None,
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
    checked_integer("sample", sample, 0)
    if design is None:
        raise InputError(
            f"No trial of {store.path} can be run again, because its plan does not say how masks are drawn;"
            " leave out `sample`."
        )
    info = store.info
    if learner is None and settings:
        raise InputError("Settings (`settings`) belong to a learner; name it as well (`learner`).")
    trained: Learner = described(info.learner) if learner is None else resolve(learner, settings)
    data = load_again(store, dataset)
    asked = replace(
        info,
        dataset={**info.dataset, "name": data.name, "fingerprint": data.fingerprint},
        learner=json.loads(canonical_json(trained.describe())),
    )
    if found := differences(info, asked, up_to_date(trained)):
        raise RunMismatchError(f"{store.path} cannot be checked with these: it differs in {'; '.join(found)}.")
    chosen = sorted(random.Random(seed).sample(list(trials), min(sample, len(trials))))
    stored = _stored(store, set(chosen))
    here = installed_versions()

    def changed(trial: int) -> list[str]:
        """Libraries that the trial was made with, in another version than here."""
        made_with = versions_in(stored[trial].get("versions") or "") or info.versions
        others = (one for one in made_with.items() if one[0] != "memfluence" and here.get(one[0]) != one[1])
        return sorted(f"{name} {version}" for name, version in others)

    compared = []
    with one_thread():
        for group in groups_of(chosen, info.group_size):
            batch = trials_of(design, group, info.group_size)
            first, second = list(trained.train(data, batch, record=info.record, device=device)), {}
            first = [result for result in first if result.trial in group.wanted]
            if any(_differing(result, stored[result.trial])[0] > 0 for result in first):
                results = trained.train(data, batch, record=info.record, device=device)
                second = {result.trial: result for result in results}
            compared += [_compared(one, stored[one.trial], second.get(one.trial), changed(one.trial)) for one in first]
    return tuple(compared)


def _stored(store: TrialStore, wanted: set[int]) -> dict[int, dict[str, Any]]:
    """The stored rows of some trials, columns by name."""
    found: dict[int, dict[str, Any]] = {}

    for _, rows in store.each_segment([]):
        chosen = rows.take(np.flatnonzero(np.isin(rows.numbers, list(wanted))))
        found.update({row["trial"]: row for row in chosen.table.to_pylist()})
    return found


def _differing(result: Result, there: Mapping[str, Any]) -> tuple[int, int]:
    """The number of bits and optional values that differ from a stored row (-1: the trial failed), and of all."""
    if isinstance(result, Failure):
        return -1, 0
    differ = of = 0
    for name, values in _packed(result).items():
        length = len(getattr(result, name)) if name in _BITS else len(result.extras[name])
        unequal = np.frombuffer(there[name], np.uint8) ^ values
        each = unpack(unequal, length) if name in _BITS else unequal.reshape(length, -1).any(axis=1)
        differ, of = differ + int(each.sum()), of + length
    return differ, of


def _packed(result: Outcome) -> dict[str, np.ndarray]:
    """The columns of a result as a segment has them, as bytes. Compared as bytes, NaN is NaN."""
    extras = {
        name: np.ascontiguousarray(values, values.dtype.newbyteorder("<")).view(np.uint8).ravel()
        for name, values in result.extras.items()
    }
    return {name: pack(getattr(result, name)) for name in _BITS} | extras


def _compared(result: Result, stored: Mapping[str, Any], second: Result | None, changed: Sequence[str]) -> Again:
    """`second` is the same trial trained once more, where the first time gave another result than what is stored."""
    trial, (differ, of) = result.trial, _differing(result, stored)
    if isinstance(result, Failure):
        return Again(trial, differ, of, True, f"Trial {trial}, run again, failed: {result.summary}")
    if second is None or not differ:
        return Again(trial, differ, of, False, f"Trial {trial}, run again, is what is stored.")
    if _differing(second, _packed(result))[0]:
        message = (
            f"Trial {trial}, trained twice now, gives two answers: the learner is not deterministic, so nothing can be"
            " held against what is stored, and there is nothing to repair."
        )
        return Again(trial, differ, of, True, message, deterministic=False)
    elsewhere = [] if result.device == stored["device"] else [f"the device {stored['device']} (here {result.device})"]
    reasons = [*changed, *elsewhere]
    message = f"Trial {trial}, run again, differs in {differ} of {of} values from what is stored"
    why = f"; it was made with {', '.join(reasons)}, which may change rounding." if reasons else _UNEXPLAINED
    return Again(trial, differ, of, not reasons, message + why, deterministic=True)
