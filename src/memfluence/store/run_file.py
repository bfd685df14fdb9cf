"""`run.json`: what a run is. Written when the run is created; afterwards only its number of trials may grow."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from memfluence.errors import InputError, StoreError, shortened
from memfluence.records import EXTRA_COLUMNS, Kind, digest
from memfluence.store._files import file_errors
from memfluence.store._places import place_of
from memfluence.store._plain_json import plain_json
from memfluence.store._run_checks import check_run
from memfluence.store.locations import Location

__all__ = [
    "FORMAT",
    "RUN_FILE",
    "RunInfo",
    "UpToDate",
    "differences",
    "info_from_json",
    "is_run",
    "read_run_file",
    "segment_columns",
    "write_run_file",
]

FORMAT = 1
RUN_FILE = "run.json"
UpToDate = Callable[[Mapping[str, Any]], Mapping[str, Any]]  # an older description of a learner -> the same today
_LARGEST = 64 * 2**20  # bytes: room for a million names of classes


@dataclass(frozen=True)
class RunInfo:
    """The contents of run.json. `learner` and `plan` are None for trials that were made elsewhere."""

    dataset: Mapping[str, Any]  # name, fingerprint, n_train, n_test, classes, class_names, examples (the labels' file)
    learner: Mapping[str, Any] | None
    plan: Mapping[str, Any] | None  # Plan.to_json() and its digest
    kinds: tuple[Kind, ...]
    trials: int  # how many were asked for
    group_size: int = 1
    repeats: int = 1
    record: tuple[str, ...] = ()  # optional outcomes: prediction, margin, logit
    columns: tuple[str, ...] = ()  # of the segments
    versions: Mapping[str, str] = field(default_factory=dict)  # of libraries, when the run was made; see also segments
    format: int = FORMAT

    @property
    def n_train(self) -> int:
        return int(self.dataset["n_train"])

    @property
    def n_test(self) -> int:
        return int(self.dataset["n_test"])

    @property
    def block(self) -> int:
        """How many consecutive trials were dealt together (`Trials.block`): 1 but for the balanced design."""
        options = (self.plan or {}).get("options") or {}
        return int(options.get("block", 1)) * (len(self.kinds) if "block" in options else 1)

    @property
    def identity(self) -> dict[str, str]:
        """What every segment of this run carries in its metadata."""
        return {
            "memfluence.format": str(self.format),
            "memfluence.data": str(self.dataset["fingerprint"]),
            "memfluence.plan": str(self.plan["digest"]) if self.plan else "",
            "memfluence.learner": digest(self.learner) if self.learner else "",
        }


def segment_columns(record: Collection[str]) -> tuple[str, ...]:
    """The columns of a run's segments, given the optional outcomes that it records."""
    extras = tuple(name for kind in sorted(record) for name in EXTRA_COLUMNS[kind])
    details = ("accuracy_in", "accuracy_out", "test_accuracy", "seconds")
    makers = ("host", "device", "process", "finished", "versions")
    return ("trial", "kind", "mask", "train_correct", "test_correct", *extras, *details, *makers)


def info_from_json(raw: Mapping[str, Any]) -> RunInfo:
    """The inverse of `asdict`; raises ValueError, with what is wrong, for anything else."""
    check_run(raw)
    return replace(
        RunInfo(**raw),
        kinds=tuple(Kind(**kind) for kind in raw["kinds"]),
        record=tuple(raw["record"]),
        columns=tuple(raw["columns"]),
    )


def write_run_file(directory: Location, info: RunInfo, *, replace_existing: bool) -> bool:
    """Publish run.json; False if another process created it first."""
    content = json.dumps(asdict(info), indent=2, ensure_ascii=False) + "\n"
    return place_of(directory).publish(directory / RUN_FILE, content.encode(), replace=replace_existing)


def is_run(directory: Location) -> bool:
    """Whether there is a run, of whatever format or state."""
    return place_of(directory).is_file(directory / RUN_FILE)


def read_run_file(directory: Location) -> RunInfo:
    path, place = directory / RUN_FILE, place_of(directory)
    with file_errors(f"reading {path}"):
        try:
            content = place.read(path, _LARGEST + 1)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            place.check(directory)
            raise InputError(
                f"There is no run at {directory}: it has no {RUN_FILE}. Make one with 'memfluence run'."
            ) from None
    try:
        if content.size > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST} bytes")
        raw = plain_json(content.to_pybytes())
        there = raw.get("format") if isinstance(raw, dict) else None
        if type(there) is int and there != FORMAT:
            raise StoreError(
                f"{path} has the format {shortened(there)}, but this memfluence reads format {FORMAT};"
                " upgrade memfluence."
            )
        info = info_from_json(raw)
        if type(there) is not int or info.dataset.get("examples") is None:
            raise ValueError("it does not name its format, or the file of its examples")
        return info
    except ValueError as error:
        raise StoreError(
            f"{path} is damaged ({error!s:.200}); restore it from a copy, the trials beside it are not touched."
        ) from error


def differences(stored: RunInfo, asked: RunInfo, up_to_date: UpToDate | None = None) -> list[str]:
    """What distinguishes a run from what is asked of it, in words; empty if the run can go on.

    `up_to_date` gives an older description of the learner as this version writes it.
    """
    found = []
    if stored.learner is not None and up_to_date:
        stored = replace(stored, learner=up_to_date(stored.learner))
    if stored.dataset["fingerprint"] != asked.dataset["fingerprint"]:
        found.append(
            f"the data ({stored.dataset['name']}, fingerprint {stored.dataset['fingerprint'][:8]}, there;"
            f" {asked.dataset['name']}, {asked.dataset['fingerprint'][:8]}, asked)"
        )
    for title, there, now in (
        ("learner", stored.learner, asked.learner),
        ("plan", stored.plan, asked.plan),
    ):
        if there is None or now is None:
            if there is not now:
                found.append(f"the {title} ({'imported trials' if there is None else 'known'} there)")
            continue
        leaves = _leaves(there, now)
        found += [f"the {title}'s {name} ({old} there, {new} asked)" for name, old, new in leaves[:3]]
        if len(leaves) > 3:
            found.append(f"{len(leaves) - 3} more of the {title}")
    if stored.record != asked.record:
        found.append(f"what is recorded ({list(stored.record)} there, {list(asked.record)} asked)")
    return found


def _leaves(there: Any, now: Any, path: str = "") -> list[tuple[str, str, str]]:
    """Where two JSON values differ: the path, and a short text of each side."""
    if isinstance(there, Mapping) and isinstance(now, Mapping):
        names = sorted({*there, *now} - ({"digest"} if not path else set()))
        return [one for name in names for one in _leaves(there.get(name), now.get(name), f"{path}.{name}".lstrip("."))]
    if there == now:
        return []
    return [(path, shortened(there), shortened(now))]


def other_inputs(first: RunInfo, second: RunInfo, paths: Sequence[Location]) -> str | None:
    """A sentence about two runs with the same labels and other inputs; None where those are the same or not known.

    It is no error: the same pictures may be stored in two forms. Of imported trials only the labels may be known.
    """
    if any(str(info.dataset["name"]).startswith("labels of ") for info in (first, second)):
        return None
    if first.dataset["fingerprint"] == second.dataset["fingerprint"]:
        return None
    return (
        f"{paths[0]} and {paths[1]} have the same labels but other inputs; unless these are the same examples in"
        " another form, the comparison says nothing."
    )
