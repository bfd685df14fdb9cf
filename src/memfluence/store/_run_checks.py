"""What run.json must be like before anything in it is believed: types, ranges, and names that stay in the run."""

import re
from collections.abc import Mapping
from typing import Any

from memfluence.errors import shortened
from memfluence.records import EXTRA_COLUMNS
from memfluence.store._plain_json import MOST

__all__ = ["check_run"]

_NEEDED = {"dataset", "learner", "plan", "kinds", "trials", "record", "columns"}
_KNOWN = _NEEDED | {"group_size", "repeats", "versions", "format"}
_EXAMPLES = re.compile(r"examples-[0-9a-f]{32}\.parquet")
_ARMS = ("both", "in", "out", "neither")


def check_run(raw: Any) -> None:
    """Raise ValueError, with what is wrong, unless this is the JSON of a run."""
    _require(isinstance(raw, dict), "", "hold an object", raw)
    if missing := sorted(_NEEDED - raw.keys()):
        raise ValueError(f"it has no {missing[0]!r}")
    if unknown := sorted(raw.keys() - _KNOWN):
        raise ValueError(f"it has an entry {shortened(unknown[0])} that is not known")
    _check_dataset(raw["dataset"])
    learner = raw["learner"]
    _require(learner is None or isinstance(learner, dict), "learner", "be an object or null", learner)
    name = (learner or {}).get("name", "")
    _require(isinstance(name, str), "learner's name", "be a text", name)
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
