"""`run.json`: what a run is. Written when the run is created; afterwards only its number of trials may grow.

Where nobody said what to record, the first segment does, and the writer of it adds that: `record` and `columns`.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NoReturn

from memfluence.errors import InputError, MemfluenceError, RunMismatchError, StoreError, shortened
from memfluence.records import EXTRA_COLUMNS, Kind, digest
from memfluence.store.places import PARTIAL_PREFIX, Location, Place, file_errors, place_of

MOST = 2**31  # what is counted stays below: far more than anybody trains, and little enough to count up to
_DEEPEST = 100


def plain_json(content: bytes | str) -> Any:
    """The value of a JSON text; ValueError if it is too deep, a number is not finite, or a text is not Unicode."""
    try:
        value = json.loads(content, parse_constant=_refused)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check(value, _DEEPEST)
    return value


def _refused(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}, which is no number")


def _check(value: Any, levels: int) -> None:
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{shortened(value)} is no text") from None
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it holds a number beyond all floats")
    elif isinstance(value, dict | list):
        if not levels:
            raise ValueError("it is nested too deeply")
        for part in [*value, *value.values()] if isinstance(value, dict) else value:
            _check(part, levels - 1)


_NEEDED = {"dataset", "learner", "plan", "kinds", "trials", "record", "columns"}
_EXAMPLES = re.compile(r"examples-[0-9a-f]{32}\.parquet")
_ARMS = ("both", "in", "out", "neither")


def check_run(raw: Any) -> None:
    """Raise ValueError, with what is wrong, unless this is the JSON of a run."""
    _require(isinstance(raw, dict), "", "hold an object", raw)
    if missing := sorted(_NEEDED - raw.keys()):
        raise ValueError(f"it has no {missing[0]!r}")
    if unknown := sorted(raw.keys() - {one.name for one in fields(RunInfo)}):
        raise ValueError(f"it has an entry {shortened(unknown[0])} that is not known")
    _check_dataset(raw["dataset"])
    learner = raw["learner"]
    _require(learner is None or isinstance(learner, dict), "learner", "be an object or null", learner)
    name = (learner or {}).get("name", "")
    _require(isinstance(name, str), "learner's name", "be a text", name)
    text = raw.get("learner_text", "")
    _require(isinstance(text, str), "learner_text", "be a text", text)
    if raw["plan"] is not None:
        _check_plan(raw["plan"], raw["dataset"]["n_train"])
    kinds = raw["kinds"]
    _require(isinstance(kinds, list) and bool(kinds), "kinds", "be a list of kinds of trial", kinds)
    for kind in kinds:
        _check_kind(kind, raw["dataset"]["n_train"])
    for name, least in (("trials", 0), ("group_size", 1), ("repeats", 1)):
        _check_count(name, raw.get(name, 1), least)
    record = raw["record"]
    known = _is_texts(record) and set(record) <= EXTRA_COLUMNS.keys() and len(set(record)) == len(record)
    _require(known, "record", f"be a list of some of {', '.join(EXTRA_COLUMNS)}", record)
    _require(_is_texts(raw["columns"]), "columns", "be a list of texts", raw["columns"])
    versions = raw.get("versions", {})
    _require(isinstance(versions, dict) and _is_texts([*versions.values()]), "versions", "be texts by name", versions)


def _check_dataset(data: Any) -> None:
    _require(isinstance(data, dict), "dataset", "be an object", data)
    if missing := sorted({"name", "fingerprint", "n_train", "n_test", "classes", "class_names"} - data.keys()):
        raise ValueError(f"its dataset has no {missing[0]!r}")
    for name in ("name", "fingerprint"):
        _require(isinstance(data[name], str), f"dataset's {name}", "be a text", data[name])
    for name in ("n_train", "n_test"):
        _check_count(name, data[name], 1)
    classes, shown = data["classes"], data["class_names"]
    one_kind = isinstance(classes, list) and (_is_texts(classes) or all(map(_is_integer, classes)))
    _require(one_kind and bool(classes), "classes", "be a list of integers or of texts", classes)
    fits = _is_texts(shown) and len(shown) == len(classes)
    _require(fits, "class_names", f"be a list of {len(classes)} texts", shown)
    examples = data.get("examples")  # of a run; the JSON that travels with trials has none
    in_the_run = examples is None or (isinstance(examples, str) and _EXAMPLES.fullmatch(examples) is not None)
    _require(in_the_run, "examples", "be the name of a file in the run (examples-DIGEST.parquet)", examples)


def _check_plan(plan: Any, n_train: int) -> None:
    _require(isinstance(plan, dict), "plan", "be an object or null", plan)
    _require(isinstance(plan.get("digest"), str), "plan's digest", "be a text", plan.get("digest"))
    size = plan.get("n_train", n_train)
    _require(_is_integer(size) and size == n_train, "plan's n_train", f"be the dataset's {n_train}", size)
    options = plan.get("options", {})
    _require(isinstance(options, dict), "plan's options", "be an object", options)
    for name in ("block", "repeats", "smallest", "n_groups"):
        _check_count(f"plan's {name}", options.get(name, 1), 1)
    if "design" in plan:
        _check_design(plan, options)


def _check_design(plan: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    design, keep, seed = plan["design"], plan.get("keep", []), plan.get("seed")
    _require(isinstance(design, str) and len(design) <= 30, "plan's design", "be the name of one", design)
    needed = {"balanced": "block", "repeats": "repeats", "uniform": "smallest"}.get(design)
    _require(needed is None or needed in options, "plan's options", f"have {needed!r}", options)
    _require(isinstance(keep, list) and all(map(_is_share, keep)), "plan's keep", "be a list of fractions", keep)
    _require(seed is None or _is_integer(seed), "plan's seed", "be an integer", seed)


def _check_kind(kind: Any, n_train: int) -> None:
    entries = {"keep", "subset_size"}
    is_kind = isinstance(kind, dict) and entries <= kind.keys() <= entries | {"arm"}
    _require(is_kind, "kinds", "have 'keep' and 'subset_size' each, and perhaps 'arm'", kind)
    keep, size, arm = kind["keep"], kind["subset_size"], kind.get("arm", "both")
    _require(keep is None or _is_share(keep), "kinds' keep", "be a number from 0 to 1, or null", keep)
    is_size = size is None or (_is_integer(size) and 0 <= size <= n_train)
    _require(is_size, "kinds' subset_size", f"be an integer from 0 to {n_train}, or null", size)
    _require(arm in _ARMS, "kinds' arm", f"be one of {', '.join(_ARMS)}", arm)


def _check_count(name: str, value: Any, least: int) -> None:
    is_count = _is_integer(value) and least <= value <= MOST
    _require(is_count, name, f"be an integer from {least} to {MOST}", value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_share(value: Any) -> bool:
    return (_is_integer(value) or isinstance(value, float)) and 0 <= value <= 1


def _is_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _require(is_right: bool, name: str, what: str, value: Any) -> None:
    if not is_right:
        shown = f"an object of {len(value)}" if isinstance(value, Mapping) else shortened(value)
        raise ValueError(f"its {name} must {what}, not {shown}" if name else f"it must {what}, not {shown}")


FORMAT = 1
RUN_FILE = "run.json"
UpToDate = Callable[[Mapping[str, Any]], Mapping[str, Any]]  # an older description of a learner -> the same today
_SHOWN = 2000  # letters of a value that differs: all of it, unless it is no value that a person wrote
_LARGEST = 64 * 2**20  # bytes: room for a million names of classes


@dataclass(frozen=True)
class RunInfo:
    """The contents of run.json. `learner` and `plan` are None for trials that were made elsewhere."""

    # name, fingerprint, n_train, n_test, classes, class_names, examples (the labels' file); task, if not "classes"
    dataset: Mapping[str, Any]
    learner: Mapping[str, Any] | None
    plan: Mapping[str, Any] | None  # Plan.to_json() and its digest
    kinds: tuple[Kind, ...]
    trials: int  # how many were asked for
    group_size: int = 1
    repeats: int = 1
    record: tuple[str, ...] = ()  # optional outcomes: the keys of EXTRA_COLUMNS
    columns: tuple[str, ...] = ()  # of the segments; none until the first one says what the learner gives
    versions: Mapping[str, str] = field(default_factory=dict)  # of libraries, when the run was made; see also segments
    format: int = FORMAT
    learner_text: str = ""  # for people: an estimator with its parameters, of which `learner` may have a digest alone

    @property
    def n_train(self) -> int:
        return int(self.dataset["n_train"])

    @property
    def n_test(self) -> int:
        return int(self.dataset["n_test"])

    @property
    def outcome(self) -> str:
        """What is averaged over trials: "correct", right and wrong, or "score", the learner's own."""
        return "score" if "score" in self.record else "correct"

    @property
    def block(self) -> int:
        """How many consecutive trials were dealt together (`Trials.block`): 1 but for the balanced design."""
        options = (self.plan or {}).get("options") or {}
        return int(options.get("block", 1)) * (len(self.kinds) if "block" in options else 1)

    @property
    def keeps_groups(self) -> bool:
        """Whether the plan keeps whole groups of examples."""
        return "groups" in ((self.plan or {}).get("options") or {})

    @property
    def says_record(self) -> bool:
        """Whether it is known what is recorded: somebody chose it, or there is a segment."""
        return bool(self.columns)

    def recording(self, extras: Collection[str]) -> "RunInfo":
        """The same with segments that have these optional columns."""
        record = recorded(extras)
        return replace(self, record=record, columns=segment_columns(record))

    def with_names_of(self, other: "RunInfo") -> "RunInfo":
        """The same with the names of classes that the other has, if it calls them anything but their labels."""
        names = other.dataset["class_names"]
        own = names == list(map(str, other.dataset["classes"]))
        return self if own else replace(self, dataset={**self.dataset, "class_names": names})

    @cached_property
    def identity(self) -> dict[str, str]:
        """The run's identity: format, data, plan and learner. Every segment of the run has it in its metadata."""
        return {
            "memfluence.format": str(self.format),
            "memfluence.data": str(self.dataset["fingerprint"]),
            "memfluence.plan": str(self.plan["digest"]) if self.plan else "",
            "memfluence.learner": digest(self.learner) if self.learner else "",
        }


def recorded(columns: Collection[str]) -> tuple[str, ...]:
    """The kinds of optional outcomes that have these columns, none of which is a part of another."""
    found = {kind: set(names) for kind, names in EXTRA_COLUMNS.items() if set(names) <= set(columns)}
    return tuple(sorted(kind for kind, names in found.items() if not any(names < other for other in found.values())))


def segment_columns(record: Collection[str]) -> tuple[str, ...]:
    """The columns of a run's segments, given the optional outcomes that it records."""
    extras = dict.fromkeys(name for kind in sorted(record) for name in EXTRA_COLUMNS[kind])
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
    document = {name: value for name, value in asdict(info).items() if name != "learner_text" or value}
    content = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
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


def check_is_ours(directory: Location) -> None:
    """Refuse a path that holds anything but a run, or what a process that is just creating one has written so far."""
    place = place_of(directory)
    with file_errors(f"looking into {directory}"):
        if place.is_file(directory):
            raise InputError(f"{directory} is a file; `out` must name a directory for the run, new or of the same run.")
        if place.is_file(directory / RUN_FILE):
            return
        strange = [name for name in place.names(directory) if not _is_of_a_new_run(place, directory, name)]
    if strange:
        raise InputError(
            f"{directory} holds other files ({', '.join(sorted(strange)[:3])}{', ...' if len(strange) > 3 else ''})"
            f" and no {RUN_FILE}; `out` must name a new or empty directory, or a run."
        )


def _is_of_a_new_run(place: Place, directory: Location, name: str) -> bool:
    if name in ("trials", "failures") and not place.is_file(directory / name):
        # Of a run that was created just now, it may have files.
        return not place.names(directory / name) or place.is_file(directory / RUN_FILE)
    return name.startswith(("examples-", PARTIAL_PREFIX, RUN_FILE))


def check_is_still_ours(directory: Location, info: RunInfo, written: Location) -> None:
    """Take back what was written and raise, if the directory holds another run by now.

    A remote run.json cannot be created exclusively, and one of this machine may be replaced while it has no trials. Of
    two processes that ask for different runs the last one's run.json stays; the other notices here, at its next
    segment.
    """
    try:
        there = read_run_file(directory)
    except MemfluenceError:
        return  # no reason to lose trials
    if there.identity != info.identity:
        place_of(directory).remove(written)
        raise another_run(directory)
    if not there.says_record:  # another process began the run anew, since it saw no segment yet
        write_run_file(directory, replace(there, record=info.record, columns=info.columns), replace_existing=True)


def say_record(directory: Location, info: RunInfo, extras: Collection[str]) -> RunInfo:
    """Say in run.json that segments have these optional columns, unless it says what they have; the run from then on.

    Writers that do this at once find the same, since they train the same learner.
    """
    if info.says_record:
        return info
    there = read_run_file(directory)
    if there.identity != info.identity:
        raise another_run(directory)
    if not there.says_record:
        there = there.recording(extras)
        write_run_file(directory, there, replace_existing=True)
        return there
    needed = {name for kind in there.record for name in EXTRA_COLUMNS[kind]}
    if lacking := needed - {*extras, *EXTRA_COLUMNS["margin"]}:  # margins that an outcome lacks are NaN
        raise RunMismatchError(
            f"{directory} records {', '.join(there.record)}, which another process chose while this one had stored no"
            f" trial, and there is no {min(lacking)} here; run the same command again to go on with that."
        )
    return there


def another_run(directory: Location) -> RunMismatchError:
    """The error of a process that finds another run than the one that it works on."""
    return RunMismatchError(
        f"{directory} has become a different run, which another process asked for while this one had stored no trial;"
        " choose another `out` for one of the two."
    )


def differences(stored: RunInfo, asked: RunInfo, up_to_date: UpToDate | None = None) -> list[str]:
    """The differences between a stored run and the run that is asked for, in words; empty if the run can go on.

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
        hidden = len(leaves) > 3 or any(name.endswith(".digest") for name, _, _ in leaves)
        texts = [stored.learner_text, asked.learner_text]
        if title == "learner" and hidden and not all(texts):
            texts = [str(one.get("name", "")) for one in (there, now)]
        if title == "learner" and hidden and texts[0] != texts[1]:
            found.append(f"the learner ({texts[0]} there, {texts[1]} asked)")
            continue
        found += [f"the {title}'s {name} ({old} there, {new} asked)" for name, old, new in leaves]
    if stored.says_record and asked.says_record and stored.record != asked.record:
        found.append(f"what is recorded ({list(stored.record)} there, {list(asked.record)} asked)")
    return found


def _leaves(there: Any, now: Any, path: str = "") -> list[tuple[str, str, str]]:
    """The places where two JSON values differ: the path, and a short text of each side."""
    if isinstance(there, Mapping) and isinstance(now, Mapping):
        names = sorted({*there, *now} - ({"digest"} if not path else set()))
        return [one for name in names for one in _leaves(there.get(name), now.get(name), f"{path}.{name}".lstrip("."))]
    if there == now:
        return []
    return [(path, shortened(there, _SHOWN), shortened(now, _SHOWN))]


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
