"""Datamodels: a sparse linear model that predicts a test example's outcome from which examples were kept.

Definition. Ilyas et al. (2022), Datamodels, arXiv 2202.00622: for test example j,

    f_j(S) ~ intercept_j + sum over i in S of weight_ij,

with weights that minimise mean squared error + 2 * alpha_j * sum |weight_ij| over trials. Influence looks at one
training example at a time; a datamodel fits all of them together, and most of them to exactly 0.

Estimator. The lasso by coordinate descent (scikit-learn). One trial in five is held out throughout. On the others
alpha_j is chosen among a hundredth to the whole of the least alpha that gives no weights, by five-fold
cross-validation of the squared error; then the model is fitted to all of them. Test examples share the masks, and so
their products.

How good it is. The correlation of prediction and outcome over the held-out trials, which took part in nothing. Its
error is 1 / sqrt(trials - 1) for a model that predicts nothing, less for a good one.

Failure cases. The correlation is NaN where outcomes or predictions do not vary over the held-out trials (an example
that every model gets right has no datamodel). The lasso shrinks: weights are smaller than influences, and their errors
are not known; take influence for those. Right and wrong is a poor outcome to fit a line to; margins (`record="margin"`)
are a good one. Trials that share a mask go to the same side of every split.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators._arms import distinct_masks
from memfluence.estimators._values import kept_examples
from memfluence.estimators.memory import Memory
from memfluence.records import Trials

HELD_OUT = 5  # one mask in so many
FOLDS = 5
ALPHAS = 20  # from the least that gives no weights down to a hundredth of it


@dataclass(frozen=True, eq=False)
class Datamodels:
    """One model per test example asked for: column j of `weights` is that of `test[j]`."""

    test: np.ndarray  # (models,) int64
    weights: np.ndarray  # (n_train, models)
    intercept: np.ndarray  # (models,)
    alpha: np.ndarray  # (models,)
    correlation: np.ndarray  # (models,) of prediction and outcome over the held-out trials
    trials: int  # that were fitted
    trials_held_out: int

    def predict(self, mask: Any) -> np.ndarray:
        """Outcomes (trials, models) of models trained on subsets, mask (trials, n_train)."""
        return np.asarray(np.asarray(mask, dtype=float) @ self.weights + self.intercept)


def datamodels(
    trials: Trials,
    outcome: np.ndarray,  # (trials, models)
    test: np.ndarray,  # (models,)
    memory: str | int | Memory | None = None,
) -> Datamodels:
    """Datamodels of some test examples from trials of one kind and what each gave these test examples."""
    if outcome.shape != (len(trials), len(test)) or not np.isfinite(outcome).all():
        raise InputError(f"Datamodels need finite outcomes of the shape {(len(trials), len(test))}.")
    first, unit = distinct_masks(trials)  # (masks,), (trials,)
    fitted = unit % HELD_OUT != HELD_OUT - 1  # (trials,)
    if (masks := len(first)) < HELD_OUT * FOLDS:
        raise InputError(f"Datamodels need at least {HELD_OUT * FOLDS} masks, and there are {masks}; run more trials.")
    import sklearn.linear_model  # noqa: F401  before memory is asked about

    n, paths = trials.n_train, 3 * ALPHAS * trials.n_train * len(test)
    needed = 8 * (8 * len(trials) * n + paths + (2 * n * n if len(trials) > n else 0))
    Memory.of(memory).check(needed, "masks and the paths of the weights", "fewer test examples or trials")
    mask = kept_examples(trials)  # (trials, n_train)
    values = outcome.astype(np.float64)
    fold = np.where(fitted, unit // HELD_OUT % FOLDS, -1)  # (trials,)
    centred = [part[fitted] - part[fitted].mean(axis=0) for part in (mask, values)]
    largest = np.abs(centred[0].T @ centred[1]).max(axis=0) / len(centred[0])  # (models,) no weights from here on
    share = np.geomspace(1.0, 0.01, ALPHAS)
    errors = np.zeros((ALPHAS, len(test)))
    for one in range(FOLDS):
        learn, check = fitted & (fold != one), fold == one
        path, centres = _paths(mask[learn], values[learn], largest * share[:, None])
        predicted = (mask[check] - centres[0]) @ path + centres[1]  # (alphas, trials, models)
        errors += ((predicted - values[check]) ** 2).sum(axis=1)
    best = errors.argmin(axis=0)  # (models,) ties to the larger alpha
    path, centres = _paths(mask[fitted], values[fitted], largest * share[:, None], until=best)
    weights = path[best, :, np.arange(len(test))].T  # (n_train, models)
    intercept = centres[1] - centres[0] @ weights
    predicted = mask[~fitted] @ weights + intercept
    return Datamodels(
        test,
        weights,
        intercept,
        largest * share[best],
        _correlations(predicted, values[~fitted]),
        int(fitted.sum()),
        int((~fitted).sum()),
    )


def _paths(
    mask: np.ndarray, values: np.ndarray, alphas: np.ndarray, until: np.ndarray | None = None
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Weights (alphas, n_train, models) along descending alphas (alphas, models), each path down to `until`.

    Also the means that were subtracted from masks and outcomes.
    """
    from sklearn.linear_model import lasso_path

    of_mask, of_values = mask.mean(axis=0), values.mean(axis=0)
    centred = np.asfortranarray(mask - of_mask)
    gram = centred.T @ centred if len(mask) > mask.shape[1] else False  # shared by all models where it saves work
    found = np.zeros((len(alphas), mask.shape[1], values.shape[1]))
    for model in range(values.shape[1]):
        last = len(alphas) if until is None else int(until[model]) + 1
        if alphas[0, model] == 0:
            continue  # the outcome does not vary, or no example has to do with it
        _, path, _ = lasso_path(
            centred,
            values[:, model] - of_values[model],
            alphas=alphas[:last, model],
            precompute=gram,
            check_input=False,
            max_iter=5000,
        )
        found[:last, :, model] = path.T
    return found, (of_mask, of_values)


def _correlations(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Pearson's correlation of each pair of columns, (models,); NaN where one does not vary."""
    first, second = first - first.mean(axis=0), second - second.mean(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        norms = np.sqrt((first**2).sum(axis=0) * (second**2).sum(axis=0))
        return np.asarray(np.where(norms > 1e-12, (first * second).sum(axis=0) / norms, np.nan))
