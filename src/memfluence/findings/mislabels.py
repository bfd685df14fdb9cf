"""Likely mislabels: training examples whose label models that did not see them reject.

Definition. A wrong label cannot be told from the other examples, so a model that left the example out gets it "wrong",
and one that kept it gets it right only by memorizing it: accuracy_out near 0, accuracy_in near 1. Where predictions
were recorded (`record="prediction"`), held-out models also say what they see instead. An example whose label is right
but which is rare or ambiguous is held-out wrong, too; what sets a mislabel apart is that held-out models agree on
*one* other label. That label is the `suggestion`, and `agreement` the share of held-out models that give it.

Ranking. By the lower end of a 95% interval (Wilson) for how far held-out models reject the label. Where margins were
recorded (`record="margin"`) that is the mean over held-out models of

    1 / (1 + exp(margin)),   margin = score of the label - largest other score,

which is 1/2 where a model cannot decide and the probability of the other class where there are two classes and scores
are log-probabilities. Otherwise models have one vote each, and it is a share of them: of those that agree on the
suggestion, or, without predictions, of those that are wrong. Votes tie where models agree on hundreds of examples, and
do not say how narrowly; margins do. The interval is Wilson's for a share, which is too long for graded answers: they
vary less. It takes every example to have been left out as
often as the median one, since by how many more trials than another one chance left it out says nothing about its label,
and among hundreds of shares of 100% would decide alone; only where it was less than half as often, its own number
counts, so that few held-out models cannot lead the list. Ties go to the lower accuracy_in, then to the lower index: of
two examples that held-out models reject alike, the one that even models that kept it do not accept lies among many that
contradict its label, while one that is learned by heart at once is like no other, rightly labeled or not. With margins
ties go to what the mean itself says, which tells 1e-9 from 1e-20 where 1 minus it does not.

How many are wrong. A label is `believed` to be wrong if held-out models reject it at least as firmly as they accept a
label on average. That bar is the mean over all examples of the share that accepts the label (or of 1 / (1 +
exp(-margin))), at least 1/2; an example that was seldom left out has to pass it by its own interval. So the believed
ones are the beginning of the list. Confident learning has such a bar for each class; one for all is as good here.
Where held-out models are no better than always giving the most common label, nothing is believed: they cannot say.
The number is an estimate that holds where classes can be told apart. Where they cannot, and held-out models are right
on two labels in three, say, most of the believed labels are ambiguous and not wrong (docs/findings.md has precision and
recall on planted flips).

Memorization itself is shown but does not rank: a learner that does not fit every example leaves many mislabels wrong
even when kept, so their memorization is low. `benchmarks/mislabels.py` plants label flips and gives the precision of
each rule, and of ties the other way (`docs/findings.md`).

Variance. Shares of `trials_out` independent models (masks, where several models share one): Wilson's interval, and
the standard error after one success and one failure are added. The suggestion is the most common of several labels,
so its agreement is biased upwards where held-out models scatter; near 1 the bias is gone. The end of a list is
selected among many, which no single interval knows.

Failure cases. An example that was never left out has no score (NaN) and comes last. A margin that is not a number (a
network whose training diverged) counts as 1/2. Margins of a learner that is always too sure (naive Bayes) are little
better than votes. Two classes that the learner
confuses systematically look like mislabels of each other: look at the pictures.

Real outcomes (`unlikely_targets`). Where learners have a score of their own, a target is unlikely if held-out models
score far below what is typical. Typical is the median, over all training examples, of the mean score of the models
that left them out. An example ranks by `score`, in the score's unit: the lower end of the 95% interval (Student's) for
typical minus its own held-out mean. Its target is `believed` to be wrong if that is at least 3.5 spreads (Iglewicz and
Hoaglin's bound), with spread = 1.4826 * (median - lower quartile) of the held-out means: the standard deviation where
they are normal, from the worse half alone, since scores such as minus an error have no other. An outlier of the inputs,
or a region where all models are poor, is unlikely in the same sense: look at the rows.

Paper: Sec. 3.1 finds mislabels among the memorized examples; confident learning (Northcutt et al. 2021) takes the
agreement of held-out models from cross-validation.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators import Arms, Memory, arms, held_out_means, memorization_of, real_memorization
from memfluence.estimators.counts import bits_at
from memfluence.estimators.intervals import wilson_interval
from memfluence.records import Kind, Trials

PREDICTIONS_AT_ONCE = 2**23  # held in a few arrays of 8 bytes each
SPREADS = 3.5  # below what is typical
NORMAL = 1.4826  # the standard deviation of a normal distribution, over the distance of its median and quartiles


@dataclass(frozen=True, eq=False)
class Agreement:
    """The label that held-out models give instead, and how many do; each array (n_train,) in the order of the list."""

    suggestion: np.ndarray  # int64 code of the most common other label; the label itself where no model gives another
    share: np.ndarray  # of the held-out models that give it
    stderr: np.ndarray
    lower: np.ndarray  # 95% interval
    upper: np.ndarray


@dataclass(frozen=True, eq=False)
class Mislabels:
    """All training examples, the likeliest mislabel first; each array (n_train,)."""

    index: np.ndarray  # int64
    label: np.ndarray  # int64 code
    score: np.ndarray  # what ranks: a lower end of the share of held-out models that reject the label (`Ranking`)
    memorization: np.ndarray
    stderr: np.ndarray  # of the memorization
    accuracy_in: np.ndarray
    accuracy_out: np.ndarray
    trials_out: np.ndarray  # int64
    believed: np.ndarray  # bool, whether the label is believed to be wrong: the beginning of the list
    agreement: Agreement | None  # None where predictions were not recorded
    has_scores: bool = False  # of a learner's own: then accuracies are mean scores

    def __len__(self) -> int:
        return len(self.index)

    def columns(self, classes: np.ndarray, labels: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Plain columns, labels as their owner wrote them: those of all examples, or else by their classes."""
        own = ("score", "believed", "memorization", "stderr", "accuracy_in", "accuracy_out", "trials_out")
        named = {name: name.replace("accuracy", "mean") if self.has_scores else name for name in own}
        label = classes[self.label] if labels is None else labels[self.index]
        found = {"index": self.index, "label": label, **{named[name]: getattr(self, name) for name in own}}
        if (said := self.agreement) is not None:
            found |= {"suggestion": classes[said.suggestion], "agreement": said.share}
            found |= {f"agreement_{name}": getattr(said, name) for name in ("stderr", "lower", "upper")}
        return found


def likely_mislabels(
    trials: Trials,
    kinds: Sequence[Kind],
    labels: np.ndarray,  # (n_train,) codes
    n_classes: int,
    predictions: np.ndarray | None = None,  # (trials, n_train) codes; n_classes means 'none of them'
    keep: float | None = None,
    *,
    margins: np.ndarray | None = None,  # (trials, n_train)
    memory: str | int | Memory | None = None,
) -> Mislabels:
    """Every training example, ranked by how surely held-out models reject its label."""
    for name, given in (("predictions", predictions), ("margins", margins)):
        if given is not None and given.shape != (len(trials), trials.n_train):
            raise InputError(
                f"The {name} must have the shape (trials, n_train) = {(len(trials), trials.n_train)};"
                f" got {given.shape}."
            )
        if given is not None:
            needed = given.nbytes + 8 * 4 * min(PREDICTIONS_AT_ONCE, given.size)
            Memory.of(memory).check(needed, f"counting the {name}", "a run without them")
    chosen = arms(trials, kinds, keep)
    found = memorization_of(chosen)
    rows = np.searchsorted(trials.numbers, chosen.out_trials.numbers)
    said, accepted, ties = None, found.accuracy_out, found.accuracy_in
    rejected = 1 - accepted  # (n_train,)
    if predictions is not None:
        said = _agreement(chosen, labels, n_classes, predictions[rows])
        rejected = said.share
    if margins is not None:
        accepted = ties = _accepted(chosen, margins, rows)
        rejected = 1 - accepted
    score = wilson_interval(rejected, _as_often(chosen.sample_out))[0]  # (n_train,)
    believed = score >= _least_believed(accepted, found.accuracy_out, labels, chosen.sample_out)
    order = np.lexsort((ties, -score))  # stable, and NaN last
    return Mislabels(
        index=order,
        label=labels[order],
        score=score[order],
        memorization=found.value[order],
        stderr=found.stderr[order],
        accuracy_in=found.accuracy_in[order],
        accuracy_out=found.accuracy_out[order],
        trials_out=found.trials_out[order],
        believed=believed[order],
        agreement=said and Agreement(**{name: values[order] for name, values in vars(said).items()}),
    )


def unlikely_targets(
    trials: Trials,
    kinds: Sequence[Kind],
    labels: np.ndarray,  # (n_train,) codes
    outcome: np.ndarray,  # (trials, n_train) scores of the learner's own
    keep: float | None = None,
) -> Mislabels:
    """Every training example, ranked by how far held-out models score below what is typical."""
    found, held_out = real_memorization(trials, kinds, outcome, keep), held_out_means(trials, kinds, outcome, keep)
    known = held_out.value[~np.isnan(held_out.value)]
    lower, typical = np.quantile(known, [0.25, 0.5]) if len(known) else (np.nan, np.nan)
    score, spread = typical - held_out.upper, NORMAL * (typical - lower)
    order = np.argsort(-score, kind="stable")  # NaN last
    return Mislabels(
        index=order,
        label=labels[order],
        score=score[order],
        memorization=found.value[order],
        stderr=found.stderr[order],
        accuracy_in=found.mean_in[order],
        accuracy_out=found.mean_out[order],
        trials_out=found.trials_out[order],
        believed=(score >= SPREADS * spread)[order] & bool(spread > 0),
        agreement=None,
        has_scores=True,
    )


def held_out_votes(
    trials: Trials, kinds: Sequence[Kind], n_classes: int, predictions: np.ndarray, keep: float | None = None
) -> np.ndarray:
    """Counts (n_train, n_classes): of the models that left a training example out, those that predict each class."""
    chosen = arms(trials, kinds, keep)
    held_out = predictions[np.searchsorted(trials.numbers, chosen.out_trials.numbers)]
    return np.concatenate([counts[:, :n_classes] for _, counts in votes(held_out, n_classes, chosen.out_trials.mask)])


def held_out_acceptance(
    trials: Trials, kinds: Sequence[Kind], margins: np.ndarray, keep: float | None = None
) -> np.ndarray:
    """How far models that left a training example out accept its label: the mean of 1 / (1 + exp(-margin))."""
    chosen = arms(trials, kinds, keep)
    return _accepted(chosen, margins, np.searchsorted(trials.numbers, chosen.out_trials.numbers))


def votes(
    predictions: np.ndarray, n_classes: int, left_out: np.ndarray | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Some examples at a time, and their votes (some, n_classes + 1); the last class is 'none of them'.

    Of all predictions (trials, n), or of the models that left the example out of their packed masks (trials, ...).
    """
    n_codes, n = n_classes + 1, predictions.shape[1]
    at_once = max(1, PREDICTIONS_AT_ONCE // max(len(predictions), n_codes))
    for start in range(0, n, at_once):
        some = np.arange(start, min(n, start + at_once))
        cells = predictions[:, some].astype(np.int64) + n_codes * np.arange(len(some))  # (trials, some)
        cells = cells.ravel() if left_out is None else cells[bits_at(left_out, some) == 0]
        yield some, np.bincount(cells, minlength=n_codes * len(some)).reshape(len(some), n_codes)


def _as_often(held_out: np.ndarray) -> np.ndarray:
    """The number of held-out models that each share is ranked with: the median, or its own if less than half of it."""
    typical = np.median(held_out)
    return np.where(2 * held_out < typical, held_out, typical)


def _least_believed(
    accepted: np.ndarray, accuracy: np.ndarray, labels: np.ndarray, held_out: np.ndarray
) -> np.ndarray | float:
    """The least score of a label that is believed to be wrong; infinite where held-out models cannot say."""
    known = ~np.isnan(accepted)
    if not known.any() or accuracy[known].mean() <= np.bincount(labels[known]).max() / known.sum():
        return np.inf
    bar = max(0.5, float(accepted[known].mean()))
    return wilson_interval(np.array(bar), np.median(held_out))[0]


def _accepted(chosen: Arms, margins: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The mean of 1 / (1 + exp(-margin)) over the models, in these rows, that left each example out: (n_train,)."""
    from scipy.special import expit

    mean = np.empty(chosen.n_train)
    at_once = max(1, PREDICTIONS_AT_ONCE // max(1, len(rows)))
    for start in range(0, chosen.n_train, at_once):
        some = np.arange(start, min(chosen.n_train, start + at_once))
        values = expit(margins[rows, start : start + at_once].astype(float))  # (trials, some)
        values[np.isnan(values)] = 0.5
        left_out = bits_at(chosen.out_trials.mask, some) == 0
        with np.errstate(invalid="ignore"):  # 0 / 0: never left out
            mean[some] = values.sum(axis=0, where=left_out) / left_out.sum(axis=0)
    return mean


def _agreement(chosen: Arms, labels: np.ndarray, n_classes: int, predictions: np.ndarray) -> Agreement:
    """The most common other label among the predictions of the models that left each example out."""
    suggestion, most = labels.copy(), np.zeros(len(labels), dtype=np.int64)
    for some, counts in votes(predictions, n_classes, chosen.out_trials.mask):
        counts[np.arange(len(some)), labels[some]] = counts[:, n_classes] = 0
        most[some] = counts.max(axis=1)
        suggestion[some] = np.where(most[some] > 0, counts.argmax(axis=1), labels[some])  # ties: the lower class
    n = chosen.sample_out
    with np.errstate(invalid="ignore"):  # 0 / 0: never left out
        share = most / chosen.trials_out
    lower, upper = wilson_interval(share, n)
    shrunk = (share * n + 1) / (n + 2)
    return Agreement(suggestion, share, np.sqrt(shrunk * (1 - shrunk) / (n + 2)), lower, upper)
