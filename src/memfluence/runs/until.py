"""Until sure: trials are added until a target is reached (`memfluence run DATASET --until jaccard=0.7`).

Targets.
- `stderr=0.03`: the largest standard error of memorization is at most that; `stderr=0.03:median` the median one.
- `jaccard=0.7`: two independent runs of so many trials share that much of the pairs at the paper's thresholds, by the
  fit of `findings/prediction.py`.
- `pairs=fdr:0.1,share:0.9`: selection at a false discovery rate of 0.1 finds that share of the memorized pairs that
  have an influence of at least 0.15, which more trials would confirm, by the same fit.

The run is looked at with numbers of trials that grow by a quarter, from 100 on (each rounded up to whole groups), and
with `trials`, the most. What is looked at, and so where it stops, depends on the outcomes of exactly these trials: no
trial is begun before the look before it, so the run is one of as many trials, to the byte, and a run that was killed
stops where it would have stopped. Every process looks by itself and sees the same. A shard waits at each look for the
trials of the others.

A run that is there already is looked at first with the trials that it was made for. So the same command with a stricter
target goes on from there.

Failure cases. Looking often and stopping at the first good sight stops a little early: `tests/runs/test_until.py` says
how little. Intervals of a run that stopped by itself are those of a fixed number of trials.
"""

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from memfluence.engines.progress import ProgressListener
from memfluence.errors import DeadlineReached, InputError, Interrupted
from memfluence.estimators import arms, memorization
from memfluence.findings import high_influence_pairs
from memfluence.findings._selection import tested_blocks
from memfluence.findings.prediction import fit_pairs
from memfluence.paper import INFLUENCE, MEMORIZED
from memfluence.records import Kind, Trials
from memfluence.store import RunInfo, TrialStore, is_run
from memfluence.training.campaign import Campaign, listener_of

FIRST = 100  # trials: with fewer, counts are far from normal
GROWTH = 1.25
_SECONDS_BETWEEN_POLLS = (0.5, 10.0)  # the first, and the longest, while other shards are waited for
_SECONDS_BETWEEN_NOTES = 60.0


@dataclass(frozen=True)
class Target:
    """What is to be reached; `fdr` is the rate of pairs."""

    name: str  # stderr, jaccard or pairs
    value: float
    of: str = "largest"
    fdr: float = 0.1

    @classmethod
    def of_text(cls, text: str) -> "Target":
        name, _, rest = str(text).replace(" ", "").partition("=")
        try:
            if name == "stderr":
                value, _, of = rest.partition(":")
                found = cls(name, float(value), {"": "largest", "worst": "largest", "median": "median"}[of])
            elif name == "jaccard":
                found = cls(name, float(rest))
            elif name == "pairs":
                parts = dict(part.split(":") for part in rest.split(","))
                found = cls(name, float(parts.pop("share")), fdr=float(parts.pop("fdr", 0.1)))
                if parts:
                    raise KeyError
            else:
                raise KeyError
        except (KeyError, ValueError):
            raise InputError(
                "The `until` parameter must be stderr=0.03, stderr=0.03:median, jaccard=0.7 or pairs=fdr:0.1,share:0.9."
                f" Got {text!r} instead."
            ) from None
        if not 0 < found.value < 1 or not 0 < found.fdr < 0.5:
            raise InputError(
                f"The target `until` must be above 0 and below 1, and its rate below 0.5. Got {text!r} instead."
            )
        return found

    def is_met(self, seen: float) -> bool:
        return seen <= self.value if self.name == "stderr" else seen >= self.value  # never by NaN

    def __str__(self) -> str:
        what = {"stderr": f"{self.of} standard error", "jaccard": "Jaccard index", "pairs": "share of pairs found"}
        return f"{what[self.name]} %s, target {self.value:g}"


@dataclass(frozen=True)
class Look:
    """What a number of trials shows."""

    trials: int
    memorized: int
    pairs: int
    by_chance: float
    seen: float  # of the target
    is_met: bool


def look(
    trials: Trials, kinds: tuple[Kind, ...], train_labels: np.ndarray, test_labels: np.ndarray, target: Target
) -> Look:
    """Look at trials: a function of them and the target alone."""
    of = trials, kinds, train_labels, test_labels
    scores, found = memorization(trials, kinds), high_influence_pairs(*of, mem=MEMORIZED, infl=INFLUENCE)
    if target.name == "stderr":  # an example that has no error yet is not known at all
        errors = np.where(np.isnan(scores.stderr), np.inf, scores.stderr)
        seen = float(errors.max() if target.of == "largest" else np.median(errors))
    else:
        chosen = arms(trials, kinds)
        blocks = list(tested_blocks(np.arange(trials.n_train), train_labels, test_labels, True))
        model = fit_pairs(chosen, blocks, mem=MEMORIZED, infl=INFLUENCE)
        if target.name == "jaccard":
            seen = model.predict(len(trials)).jaccard
        else:
            selected = high_influence_pairs(*of, mem=MEMORIZED, fdr=target.fdr, permutations=0)
            level = 0.0 if selected.p_value is None or not len(selected) else float(selected.p_value.max())
            seen = model.found_share(level)
    memorized = int((scores.value >= MEMORIZED).sum())
    return Look(len(trials), memorized, len(found), found.expected_by_chance, seen, target.is_met(seen))


def looks(most: int, there: int = 0, multiple: int = 1) -> list[int]:
    """The numbers of trials that are looked at, ascending; `there` are the trials that a run is made for already."""
    numbers = [min(most, math.ceil(FIRST / multiple) * multiple)]
    while numbers[-1] < most:
        numbers.append(min(most, math.ceil(GROWTH * numbers[-1] / multiple) * multiple))
    return [there, *(number for number in numbers if number > there)] if there else numbers


def trained(campaign: Campaign) -> TrialStore:
    """Run a campaign: all its trials, or with `until` as many as its target takes."""
    options = campaign.options
    if options.until is None:
        return campaign.run()
    target = Target.of_text(options.until)
    _check_kinds(campaign.info.kinds)
    if options.retry_failed:
        raise InputError("`retry_failed` trains no other trials; run with it first, and then with `until`.")
    listener = listener_of(options.progress)
    known = TrialStore.open(campaign.out).info if is_run(campaign.out) else campaign.info
    there = known.trials if is_run(campaign.out) else 0
    _check_outcome(known, campaign.dataset.task)
    numbers = looks(campaign.info.trials, there, known.group_size)
    for number in numbers:
        info, chosen = replace(campaign.info, trials=number), replace(options, progress=listener)
        campaign = replace(campaign, info=info, options=chosen, goes_on=number != numbers[0])
        store = campaign.run()
        _check_outcome(store.info)  # a function may have a score of its own for classes, too
        if campaign.shard is not None:
            _wait(store, number, options.deadline, listener)
        trials, _ = store.read()
        trials = trials.select(trials.numbers < number)
        if not len(trials):
            break  # all have failed, which whoever called says
        seen = look(trials, store.info.kinds, *store.examples.labels(), target)
        said = str(target) % ("not known" if math.isnan(seen.seen) else f"{seen.seen:.3g}")
        end = ": reached" if seen.is_met else "" if number < numbers[-1] else ": not reached with the most trials"
        listener.note(
            f"{seen.trials} trials: {seen.memorized} memorized, {seen.pairs} pairs ({seen.by_chance:.1f} by chance),"
            f" {said}{end}"
        )
        if seen.is_met:
            break
    return store


def _check_kinds(kinds: tuple[Kind, ...]) -> None:
    if len({kind.keep for kind in kinds}) > 1 or any(kind.arm == "neither" for kind in kinds):
        raise InputError(
            "`until` looks at trials of one fraction that can be compared by whether they kept an example; give one"
            " `keep` and another `design`, or leave out `until`."
        )


def _check_outcome(info: RunInfo, task: str = "classes") -> None:
    if task != "classes" or info.outcome == "score":
        raise InputError(
            "`until` looks at right and wrong, and this learner has scores of its own; leave out `until` and give the"
            " number of `trials`."
        )


def _wait(store: TrialStore, number: int, deadline: float | None, listener: ProgressListener) -> None:
    """Wait until all of the first trials are stored or have failed, whoever runs them."""
    told = -math.inf
    try:
        for pause in _pauses():
            there = set(store.scan(indexed=True).numbers.tolist())
            missing = number - len([trial for trial in {*there, *store.failures(there)} if trial < number])
            if not missing:
                return
            if time.monotonic() - told > _SECONDS_BETWEEN_NOTES:
                told = time.monotonic()
                listener.note(f"waiting for {missing} of {number} trials, which are other shards' to run")
            if deadline is not None and time.monotonic() + pause > deadline:
                raise DeadlineReached(
                    f"The time is over: {missing} of {number} trials are other shards' to run and not there yet; run"
                    " the same command to go on."
                )
            time.sleep(pause)
    except KeyboardInterrupt:
        raise Interrupted(
            f"Stopped while waiting for the trials of other shards in {store.path}; run the same command to go on."
        ) from None


def _pauses() -> Iterator[float]:
    first, longest = _SECONDS_BETWEEN_POLLS
    return (min(longest, first * GROWTH**count) for count in itertools.count())
