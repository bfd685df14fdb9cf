"""The paper's setting beside ours, and what can be said of a difference between a number of the paper and ours.

A setting that differs is a possible reason for another number, and no more. It is called tested where one of our runs
exchanged it and the numbers of both are there; then what that did is said. Everything else is called not tested.
Nothing here says that a setting is the cause.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from memfluence import paper
from memfluence.datasets.known import Data
from memfluence.experiments._result import BLOCKS, Result
from memfluence.experiments.reproduce._subjects import TITLES
from memfluence.learners.recipes import PRESETS
from memfluence.paper import INFLUENCE, MEMORIZED, Reported

NETWORKS = {  # the paper's: in words, and as built in
    "mnist": ("small Inception", "inception"),
    "cifar100": ("ResNet-50", "resnet50"),
    "imagenet": ("ResNet-50", "resnet50_imagenet"),
}
SIZES = {"mnist": (60_000, 10_000), "cifar100": (50_000, 10_000), "imagenet": (1_281_167, 50_000)}
# Of a recipe, what the appendix says; the rest (weight decay, normalization, ...) it leaves open.
STATED = (
    *("epochs", "batch", "rate", "optimizer", "momentum"),
    *("schedule", "warmup", "milestones", "decay", "crop_padding", "flip"),
)
MLP = {"optimizer": "sgd", "schedule": "constant", "warmup": 0, "crop_padding": 0, "flip": False}  # what `mlp` does
TELLING = 0.1  # of the paper's number (of a share also of what it lacks to 1): a wider interval decides nothing
NOTABLE = 0.05  # of the pairs: chance that is worth a word

SETTINGS = {  # words, and what they stand for where they do not say it
    "data": "",
    "size": "training and test examples",
    "network": "",
    "recipe": "as far as the paper says it",
    "keep": "share of the training examples that a model is given",
    "trials": "",
    "halves": "trials on each side, where halves are compared",
    "linear models": "",
    "memorization": "threshold of pairs and of who counts as memorized",
    "influence": "threshold of pairs",
}
_TRAINED = ("data", "size", "network", "recipe")
_ESTIMATED = (*_TRAINED, "keep", "trials")
_PAIRS = (*_ESTIMATED, "memorization", "influence", "chance")
_HALVES = (*_TRAINED, "keep", "halves", "memorization", "influence", "chance in halves")
# What a number depends on: settings, and "chance", "chance in halves" and "emptied" (`reasons`); "asked" is a number of
# models, which is chosen. The first prefix of a name that fits.
DEPENDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("run.trials", ("asked",)),
    ("run.memorized", (*_ESTIMATED, "memorization")),
    ("run.accuracy_whole", _TRAINED),
    ("run.", (*_TRAINED, "keep")),
    ("histogram.", _PAIRS),
    ("removal.accuracy.n", ("asked",)),
    ("removal.", _ESTIMATED),
    ("utility.test.accuracy_without", (*_PAIRS, "emptied")),
    ("utility.test.accuracy", _TRAINED),
    ("utility.", (*_PAIRS, "emptied")),
    ("consistency.trials_each", ("asked",)),
    ("consistency.lines.0.any_class.1", (*_TRAINED, "keep", "halves", "memorization")),  # at 0.1, whatever ours is
    ("consistency.", _HALVES),
    ("thresholds.", (*_TRAINED, "keep", "halves")),
    ("last-layer.linear.trials", ("asked",)),
    ("last-layer.network.memorized", (*_ESTIMATED, "memorization")),
    ("last-layer.linear.memorized", (*_TRAINED, "keep", "linear models", "memorization")),
    ("last-layer.pairs.any", (*_TRAINED, "keep", "linear models", "influence")),
    ("last-layer.", _TRAINED),
)


def depends(one: Reported) -> tuple[str, ...]:
    """The words of `SETTINGS` (and "chance", "emptied", "asked", ...) that a number of the paper depends on."""
    return next(words for prefix, words in DEPENDS if one.name.startswith(prefix))


@dataclass(frozen=True)
class Facts:
    """Facts about our side."""

    data: Data
    n_train: int
    n_test: int
    learner: Mapping[str, Any] | None  # as run.json describes it
    keep: float
    trials: int
    mem: float = MEMORIZED
    infl: float = INFLUENCE
    pairs: int | None = None
    chance: float | None = None  # pairs that permuted masks give
    trials_each: int | None = None  # of each half
    pairs_of_half: float | None = None
    chance_of_half: float | None = None
    linear_models: int | None = None
    emptied: int = 0  # classes without a training example when those in pairs are left out
    tested: Mapping[str, str] = field(default_factory=dict)  # word of a setting: what exchanging it did, and which run


@dataclass(frozen=True)
class Setting:
    """One setting of the paper's, and ours."""

    paper: str
    ours: str
    differs: bool
    tested: str | None = None  # what exchanging it did

    @property
    def sentence(self) -> str:
        return f"{self.ours}, not {self.paper} ({f'tested: {self.tested}' if self.tested else 'not tested'})"


def settings_beside(of: str, facts: Facts) -> dict[str, Setting]:
    """The setting of the paper's experiments on a dataset beside ours, by the words of `SETTINGS`."""
    trials = int(paper.reported(of)["run.trials"].value)
    counts = SIZES[of], (facts.n_train, facts.n_test)
    sizes = [f"{train:,} to train on, {test:,} to test on" for train, test in counts]
    recipe, network = _recipes(of, facts.learner), name_of(facts.learner)
    found: dict[str, tuple[str, str, bool]] = {
        "data": (TITLES[of], facts.data.phrase, not facts.data.is_known_as(TITLES[of])),
        "size": (sizes[0], sizes[1], counts[0] != counts[1]),
        "network": (NETWORKS[of][0], network, not is_network_of(of, facts.learner)),
        "recipe": (*recipe, recipe[0] != recipe[1]),
        "keep": ("70%", f"{facts.keep:.0%}", abs(facts.keep - 0.7) * facts.n_train >= 1),
        "trials": (f"{trials:,}", f"{facts.trials:,}", facts.trials != trials),
        "memorization": (f"{MEMORIZED:g}", f"{facts.mem:g}", facts.mem != MEMORIZED),
        "influence": (f"{INFLUENCE:g}", f"{facts.infl:g}", facts.infl != INFLUENCE),
    }
    if of == "cifar100":  # the only data on which the paper does these
        for word, count, theirs in (
            ("halves", facts.trials_each, trials // 2),
            ("linear models", facts.linear_models, trials),
        ):
            if count is not None:
                found[word] = (f"{theirs:,}", f"{count:,}", count != theirs)
    return {word: Setting(*found[word], facts.tested.get(word)) for word in SETTINGS if word in found}


def reasons(one: Reported, verdict: str, of: str, facts: Facts) -> dict[str, str]:
    """Settings that this number depends on and that differ, by their words, and whether a run has tested them.

    And what else is known about it: chance, classes that were emptied. None where no difference is seen.
    """
    if verdict not in ("higher", "lower"):
        return {}
    there, by_chance, found = settings_beside(of, facts), _by_chance(facts), {}
    for word in depends(one):
        if word in there and there[word].differs:
            found[word] = there[word].sentence
        elif word == "asked":
            found[word] = "as many as were asked for, or as the time allowed"
        elif word == "emptied" and facts.emptied:
            found[word] = f"{facts.emptied} class(es) lose all their training examples"
        elif word in by_chance:
            found[word] = by_chance[word]
    return found


def _by_chance(facts: Facts) -> dict[str, str]:
    """What permuted masks give, where that is a notable part of our pairs."""
    sides = (
        ("chance", facts.pairs, facts.chance, "ours give", "histogram"),
        ("chance in halves", facts.pairs_of_half, facts.chance_of_half, "half of our trials gives", "consistency"),
    )
    return {
        word: f"permuted masks alone give {chance:,.0f} pairs where {whose} {pairs:,.0f} (tested: part {part})"
        for word, pairs, chance, whose, part in sides
        if pairs and chance is not None and chance > NOTABLE * pairs
    }


def name_of(learner: Mapping[str, Any] | None) -> str:
    """'resnet9@fast', 'mlp (hidden 128)'."""
    name, hidden = (learner or {}).get("name"), ((learner or {}).get("settings") or {}).get("hidden")
    return f"{name or 'a learner that is not recorded'}" + (f" (hidden {_as_text(hidden)})" if hidden else "")


def is_network_of(of: str, learner: Mapping[str, Any] | None) -> bool:
    """Whether it is the built-in network of the paper's kind for this dataset, without options."""
    learner = learner or {}
    is_own = not learner.keys() <= {"name", "architecture", "options", "recipe"}  # the user's, which may be called so
    return learner.get("architecture") == NETWORKS[of][1] and not learner.get("options") and not is_own


def recipe_of(learner: Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings that it trains with; none for what has no recipe of ours."""
    of_mlp = (learner or {}).get("settings") or {}
    found = (learner or {}).get("recipe") or (MLP | of_mlp if of_mlp else {})
    return {name: value for name, value in found.items() if name != "hidden"}  # of `mlp`, the network itself


def _recipes(of: str, learner: Mapping[str, Any] | None) -> tuple[str, str]:
    """What the paper says of its recipe where ours has something else: 'epochs 160' and 'epochs 12'; or all of it."""
    theirs, ours = PRESETS[of].describe(), recipe_of(learner)
    differing = [name for name in STATED if name in ours and ours[name] != theirs[name]]
    if not ours or not differing:
        without = {"milestones", "decay"} if theirs["schedule"] != "steps" else set()
        known = _listed(theirs, [name for name in STATED if theirs[name] and name not in without])
        return known, known if ours else "not recorded"
    return _listed(theirs, differing), _listed(ours, differing)


def _listed(recipe: Mapping[str, Any], names: list[str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_as_text(recipe[name])}" for name in names)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return str(value) if isinstance(value, str) else f"{value:,}"


# ---- what our runs have tested


def what_was_tested(
    results: Mapping[str, Result],
    learner: Mapping[str, Any] | None,
    other: Mapping[str, Any] | None,  # the learner of the run that the part architectures compares
    at_paper_s: tuple[int, float] | None,  # our pairs at the paper's thresholds, and those by chance
) -> dict[str, str]:
    """What our runs have exchanged, by the word of the setting: a sentence with what that did, and where."""
    found = {}
    if at_paper_s is not None:
        pairs, chance = at_paper_s
        found["memorization"] = found["influence"] = (
            f"the same trials have {pairs:,} pairs at {MEMORIZED:g} and {INFLUENCE:g}, {chance:,.0f} of them by chance"
        )
    if "consistency" in results:
        halves = results["consistency"].numbers
        memorized, pairs_ = (_both(halves["lines"][0], kind) for kind in ("memorization", "same_class"))
        each = f"half of ours ({halves['trials_each']:,}) find {memorized} memorized and select {pairs_} pairs"
        if "histogram" in results:
            each += f", all of ours {results['histogram'].numbers['pairs']:,}"
        found |= {"trials": f"{each}; part consistency", "halves": "see trials"}
    if "architectures" in results and other is not None:
        ours, line = results["architectures"].numbers["lines"]
        words = [
            word
            for word, differs in (
                ("network", _network(learner) != _network(other)),
                ("recipe", recipe_of(learner) != recipe_of(other)),
            )
            if differs
        ]
        together = " (of another recipe, too)" if len(words) > 1 else ""
        accuracies = " beside ".join(f"{one['test_accuracy']['mean']:.1%}" for one in (line, ours))
        memorized, pairs_ = (
            " beside ".join(f"{line[kind][0][side]['mean']:,.0f}" for side in ("second", "first"))
            for kind in ("memorization", "same_class")
        )
        did = (
            f"{name_of(other)} in {Path(line['run']).name}{together} has a test accuracy of {accuracies} and, from"
            f" {results['architectures'].numbers['trials_each']:,} trials of each, {memorized} memorized and {pairs_}"
            " pairs; part architectures"
        )
        found |= dict(zip(words, (did, "together with the network, see there")))
    return found


def _network(learner: Mapping[str, Any] | None) -> Any:
    learner = learner or {}
    of_mlp = (learner.get("settings") or {}).get("hidden")
    return learner.get("architecture", learner.get("name")), learner.get("options") or of_mlp


def _both(line: Mapping[str, Any], kind: str) -> str:
    """'468 ± 21 and 460 ± 8': what the two halves select."""
    sides = (line[kind][0][side] for side in ("first", "second"))
    return " and ".join(f"{one['mean']:,.0f} ± {one['sd']:,.0f}" for one in sides)


# ---- whether there is a difference

Verdict = Literal["same", "higher", "lower", "undecided"]
IS_SHARE = {"accuracy", "accuracy_without", "accuracy_whole", "test_accuracy", "contribution", "share", "test_share"}
IS_SHARE |= {"share_below_strong", "cost", "cost_random", "found_again"}


def is_count_of_models(one: Reported) -> bool:
    return one.name.endswith((".trials", ".trials_each", ".accuracy.n"))


def interval(one: Reported, found: Mapping[str, Any]) -> float | None:
    """Half the width of the 95% interval of our number minus the paper's; None where no spread is known.

    Student's t of the models behind ours; the paper's ± is taken for that of one of its runs. Draws of halves share
    their trials, so the interval of a consistency is that of one draw.
    """
    from scipy.special import stdtrit

    sd, error = known(found.get("sd")), known(found.get("stderr"))
    ours = sd if one.name.startswith("consistency.") else error
    if ours is None:
        return None
    n = found.get("n") if sd is not None else BLOCKS
    theirs = (one.spread or 0.0) / math.sqrt(one.runs or 1)
    return float(stdtrit(max((n or BLOCKS) - 1, 1), 0.975)) * math.hypot(ours, theirs)


def difference(one: Reported, found: Mapping[str, Any], n: int | None = None) -> Verdict:
    """Our number against the paper's; "undecided" where the models are too few to tell.

    A difference is more than the interval and what the paper may have rounded off. No difference is one within an
    interval that is narrow: no wider than `TELLING` of the paper's number. Without any spread what is beyond the
    rounding counts as a difference, unless it is of one model.
    """
    gap = found["mean"] - one.value
    beyond: Verdict = "higher" if gap > 0 else "lower"
    if is_count_of_models(one):
        return beyond if gap else "same"
    width = interval(one, found)
    if width is None and (found.get("n") or n) == 1:
        return "undecided"
    is_met = {"at least": gap >= 0, "more than": gap >= 0, "less than": gap < 0}.get(one.bound or "")
    if abs(gap) > (width or 0.0) + (_rounded_off(one.value) if is_met is None else 0.0):
        return "same" if is_met else beyond
    is_share = one.name.rpartition(".")[2] in IS_SHARE
    telling = TELLING * (min(abs(one.value), abs(1 - one.value)) if is_share else abs(one.value))
    return "same" if width is None or width <= telling else "undecided"


def _rounded_off(value: float) -> float:
    """Half a unit of the last digit that the paper gives: 0.005 of 0.76."""
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    return 0.5 * 10.0 ** min(int(exponent), 0)


def known(value: float | None) -> float | None:
    """The value, or None for NaN."""
    return value if value is not None and math.isfinite(value) else None
