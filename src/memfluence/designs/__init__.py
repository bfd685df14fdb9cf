"""Designs: which examples each trial keeps.

`make("fixed", n_train=600)` is the paper's; the others are `balanced`, `bernoulli`, `lemma`, `repeats`, `uniform`
and `explicit`. On the command line a design's own option follows a colon: `balanced:20` (block), `repeats:5` (models
per mask), `uniform:20` (smallest subset), `explicit:masks.npy`. With `groups` any of them keeps or leaves out whole
groups of examples.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.designs.balanced import DEFAULT_BLOCK, Balanced
from memfluence.designs.bernoulli import Bernoulli
from memfluence.designs.explicit import Explicit, checked_masks, read_masks
from memfluence.designs.fixed import Design, Fixed
from memfluence.designs.grouped import Grouped, Groups, groups_from
from memfluence.designs.lemma import Lemma
from memfluence.designs.repeats import Repeats
from memfluence.designs.uniform import Uniform
from memfluence.errors import DesignError, shortened
from memfluence.records import Plan

__all__ = ["NAMES", "Design", "Groups", "groups_from", "make", "planned", "usual"]

_DRAWN: dict[str, Callable[[Plan], Design]] = {
    "fixed": Fixed,
    "balanced": Balanced,
    "bernoulli": Bernoulli,
    "lemma": Lemma,
    "repeats": Repeats,
    "uniform": Uniform,
}
_OPTIONS = {"balanced": ("block", DEFAULT_BLOCK), "repeats": ("repeats", 2), "uniform": ("smallest", 1)}
NAMES = (*_DRAWN, "explicit")


def usual(groups: Groups | None, keep: float | Iterable[float]) -> str:
    """The design where none is named: `fixed`, the paper's, or `lemma` for groups if there are enough of them.

    Where every trial keeps as many groups, another one stands in for each that is left out. Among thousands of
    examples that is nothing; among ten groups it is the effect itself, and what groups add would sum to 0.
    """
    if groups is None or min(round(one * len(groups.names)) for one in _checked_keep(keep)) < 2:
        return "fixed"
    return "lemma"


def make(
    spec: str = "fixed",
    *,
    n_train: int,
    keep: float | Iterable[float] = 0.7,
    seed: int = 0,
    masks: Any = None,
    known_by: int | None = None,
    groups: Groups | None = None,
) -> Design:
    """The design that `spec` names, checked against the size of the data.

    `masks` (trials, n_train) gives the explicit design its masks from memory; `explicit:FILE` reads them. It is told
    from others by all of them, or by the first `known_by`, so that more may follow. With `groups` the design is drawn
    over the groups, and masks are (trials, groups).
    """
    if groups is not None:
        return Grouped(make(spec, n_train=len(groups.names), keep=keep, seed=seed, masks=masks), groups)
    name, _, option = spec.partition(":")
    if name not in NAMES:
        raise DesignError(f"There is no design {shortened(name)}; choose one of {', '.join(NAMES)}.")
    if option and name not in (*_OPTIONS, "explicit"):
        raise DesignError(f"The design {name!r} takes no option. Got {shortened(spec)} instead.")
    if masks is not None and name != "explicit":
        raise DesignError(f"Masks belong to the explicit design. Got the design {name!r} instead.")
    fractions, root = _checked_keep(keep), _checked_seed(seed)
    design: Design
    if name == "explicit":
        if masks is None and not option:
            raise DesignError("The explicit design needs masks: 'explicit:FILE.npy' or masks=... from Python.")
        rows = checked_masks(masks if masks is not None else read_masks(Path(option)), n_train)
        design = Explicit(Plan(n_train, name, (), root, {"masks": _mask_digest(rows[:known_by])}), rows)
    else:
        options = {}
        if name in _OPTIONS:
            key, default = _OPTIONS[name]
            options[key] = _integer(spec, option) if option else default
        design = _DRAWN[name](Plan(n_train, name, () if name == "uniform" else fractions, root, options))
    _ = design.kinds  # refuses an impossible subset size now rather than in the first trial
    return design


def planned(stored: Mapping[str, Any], groups: Groups | None = None) -> Design | None:
    """The design of a plan as run.json keeps it, `Plan.to_json` and its digest; `groups` where it kept whole groups.

    None for the explicit design, whose masks are not in the plan. Refuses a plan that has been altered since.
    """
    name, options = str(stored["design"]), stored["options"]
    if name == "explicit":
        return None
    option = f":{options[_OPTIONS[name][0]]}" if name in _OPTIONS else ""
    design = make(
        name + option,
        n_train=stored["n_train"],
        keep=stored["keep"] or 0.5,  # none where sizes are drawn
        seed=stored["seed"],
        groups=groups,
    )
    if design.plan.digest != stored["digest"]:
        raise DesignError(f"The plan of the design {shortened(name)} is not the one that its digest was made of.")
    return design


def _integer(spec: str, option: str) -> int:
    try:
        return int(option)
    except ValueError:
        raise DesignError(f"The number after the colon in the design {shortened(spec)} must be an integer.") from None


def _checked_keep(keep: float | Iterable[float]) -> tuple[float, ...]:
    """One or several distinct fractions in (0, 1)."""
    given: list[Any] = [keep] if isinstance(keep, Real) else list(keep) if isinstance(keep, Iterable) else []
    for value in given:
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
            raise DesignError(f"The `keep` parameter must be a float in (0, 1). Got {shortened(value)} instead.")
    if not given or len(set(given)) != len(given):
        raise DesignError(
            f"The `keep` parameter must hold distinct fractions, at least one. Got {shortened(given)} instead."
        )
    return tuple(float(value) for value in given)


def _checked_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise DesignError(f"The `seed` parameter must be an integer in [0, 2**63). Got {shortened(seed)} instead.")
    return seed


def _mask_digest(masks: np.ndarray) -> str:
    content = f"{masks.shape}".encode() + np.packbits(masks, axis=1).tobytes()
    return hashlib.blake2b(content, digest_size=16).hexdigest()
