"""What else a run says: values of training examples, datamodels, influence profiles; a judge of attribution methods.

Each function takes a `Run`; the estimators, with their definitions and errors, are in `estimators/`.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from memfluence.errors import InputError, MemfluenceWarning
from memfluence.estimators import (
    Datamodels,
    Difference,
    Influence,
    Judgement,
    RealInfluence,
    Values,
    arms,
    banzhaf_values,
    chosen_tests,
    judge_scores,
    mean_utility,
    real_influence,
    recorded_outcome,
    shapley_values,
)
from memfluence.estimators import c_scores as estimate_c_scores
from memfluence.estimators import datamodels as fit_datamodels
from memfluence.npzfiles import is_npy, open_npz, read_npy
from memfluence.records import Trials
from memfluence.runs.run import Run
from memfluence.seeding import generator
from memfluence.store import unpack

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["c_scores", "datamodels", "judge", "profile", "value_columns", "values"]

Outcome = str | np.ndarray | None  # "correct", "margin", "logit", an array (trials, n_test); None: the finest recorded


def values(
    run: Run,
    kind: Literal["banzhaf", "shapley"] = "banzhaf",
    *,
    test: Any = None,
    outcome: str | np.ndarray = "correct",
    empty: float | None = None,
) -> "pd.DataFrame":
    """One row per training example: its Banzhaf or Shapley value for a test set, with its error.

    Of a run with groups, one row per group: its trials draw groups, so groups are what has a value.

    The utility of a subset is the mean outcome, over the test examples chosen (all by default), of a model trained on
    it: the share that it gets right, a recorded "margin" or "logit", or an array (trials, n_test). Banzhaf values need
    a run with design="bernoulli" and keep=0.5, Shapley values one with design="uniform". `empty` is the utility of no
    training, which Shapley values need: that of a guess among the classes where the outcome is right and wrong; without
    it they start at the smallest subset. `attrs["target"]` of the table says what was estimated.
    """
    import pandas as pd

    columns, target = value_columns(run, kind, test=test, outcome=outcome, empty=empty)
    table = pd.DataFrame(columns)
    table.attrs = {"target": target}
    return table


def value_columns(
    run: Run, kind: str, *, test: Any = None, outcome: str | np.ndarray = "correct", empty: float | None = None
) -> tuple[dict[str, np.ndarray], str]:
    """The columns of `values`, and a sentence that says what they estimate."""
    if kind not in ("banzhaf", "shapley"):
        raise InputError(f"The 'kind' of value must be 'banzhaf' or 'shapley'. Got {kind!r} instead.")
    plan = run.info.plan or {}
    grouped = "groups" in (plan.get("options") or {})
    others, drawn = ("other groups", run.group_trials()) if grouped else ("others", run.trials)
    found: Values
    if kind == "banzhaf":
        if plan.get("design") != "bernoulli" or 0.5 not in plan.get("keep", ()):
            gives_shapley = plan.get("design") == "uniform"
            raise InputError(
                f"Banzhaf values need trials of the bernoulli design with keep 0.5, and {run.path} has {_design(run)};"
                f" {'ask for --kind shapley' if gives_shapley else 'make a run with --design bernoulli --keep 0.5'}."
            )
        if empty is not None:
            raise InputError("Banzhaf values have no use for 'empty'; leave it out.")
        trials = arms(drawn, run.info.kinds, 0.5).in_trials
        found = banzhaf_values(trials, _utility(run, trials, outcome, test))
        target = f"Banzhaf value: mean contribution to a subset of the {others}, all equally likely"
    else:
        if plan.get("design") != "uniform":
            raise InputError(
                f"Shapley values need trials of the uniform design, and {run.path} has {_design(run)};"
                " make a run with --design uniform."
            )
        trials, smallest = drawn, int(plan["options"]["smallest"])
        if empty is None and smallest == 1 and isinstance(outcome, str) and outcome == "correct":
            empty = 1 / len(run.classes)
        found = shapley_values(trials, _utility(run, trials, outcome, test), smallest=smallest, empty=empty)
        target = (
            f"Shapley value{' of groups' if grouped else ''}, where no training at all is worth {empty:g}"
            if empty is not None
            else f"mean contribution to subsets of at least {smallest} {others}, all sizes counted alike"
            " (a semivalue, Shapley's but for the smaller sizes)"
        )
    if failed := len(run.store.failures(run.trials.numbers.tolist())):
        warnings.warn(
            f"{failed} trials failed and are left out; where they failed because of their subsets (too few examples, or"
            " of one class), values are those of the subsets that can be trained on.",
            MemfluenceWarning,
            stacklevel=3,
        )
    return {**(_groups(run) if grouped else _who(run)), **_errors("value", found)}, target


def c_scores(run: Run) -> "pd.DataFrame":
    """One row per training example: held-out accuracy, its mean over the run's keep fractions, and each of them.

    With one fraction it is `accuracy_out` of `Run.memorization`, which is also known as Data-OOB.
    """
    import pandas as pd

    return pd.DataFrame(c_score_columns(run))


def c_score_columns(run: Run) -> dict[str, np.ndarray]:
    """The columns of `c_scores`."""
    found = estimate_c_scores(run.trials, run.info.kinds)
    names = ["" if keep is None else f"_{keep:g}" for keep in found.keep]
    return {
        **_who(run),
        "c_score": found.value,
        "stderr": found.stderr,
        **{f"accuracy_out{name}": row for name, row in zip(names, found.accuracy_out)},
        **{f"trials_out{name}": row for name, row in zip(names, found.trials_out)},
    }


def datamodels(run: Run, test: Any, *, outcome: Outcome = None, keep: float | None = None) -> Datamodels:
    """Sparse linear models from masks to the outcomes of chosen test examples, judged on trials held out.

    About a second for each test example with a thousand training examples and as many trials.
    """
    chosen = chosen_tests(run.info.n_test, test)
    trials = arms(run.trials, run.info.kinds, keep).in_trials
    return fit_datamodels(trials, _outcomes(run, trials, outcome, chosen), chosen, run.memory)


def profile(run: Run, test: int, *, outcome: str | np.ndarray = "correct", keep: float | None = None) -> "pd.DataFrame":
    """All influences on one test example, from the most helpful training example to the most harmful, with errors."""
    import pandas as pd

    return pd.DataFrame(profile_columns(run, test, outcome=outcome, keep=keep))


def profile_columns(
    run: Run, test: int, *, outcome: str | np.ndarray = "correct", keep: float | None = None
) -> dict[str, np.ndarray]:
    """The columns of `profile`."""
    found = _profile_estimates(run, outcome, keep).block_with_errors(test=chosen_tests(run.info.n_test, [test]))
    flat = Difference(*(part[:, 0] for part in (found.value, found.stderr, found.lower, found.upper)))
    order = np.argsort(-flat.value, kind="stable")  # NaN last
    return {name: column[order] for name, column in {**_who(run), **_errors("influence", flat)}.items()}


def clear_by_chance(
    run: Run,
    test: int,
    *,
    outcome: str | np.ndarray = "correct",
    keep: float | None = None,
    permutations: int = 20,
    seed: int = 0,
) -> dict[str, float]:
    """How many 95% intervals of a profile leave out 0 on either side by chance alone: the mean over permuted masks.

    Not a fortieth of them: where nearly all models are right, or wrong, intervals are wider than they would need to be.
    """
    one, estimates = chosen_tests(run.info.n_test, [test]), _profile_estimates(run, outcome, keep)
    helpful = harmful = 0
    for number in range(permutations):
        found = estimates.permuted(generator(seed, "permutation", number)).block_with_errors(test=one)
        helpful += int((found.lower > 0).sum())
        harmful += int((found.upper < 0).sum())
    return {"helpful": helpful / permutations, "harmful": harmful / permutations}


def _profile_estimates(run: Run, outcome: str | np.ndarray, keep: float | None) -> Influence | RealInfluence:
    if isinstance(outcome, str) and outcome == "correct":
        return run.influence_estimates(keep)
    recorded = recorded_outcome(run.store, run.trials, outcome, "test", run.memory)
    return real_influence(run.trials, run.info.kinds, recorded, keep, memory=run.memory)


def judge(
    run: Run,
    scores: "Mapping[str, np.ndarray | str | Path] | np.ndarray | str | Path",
    *,
    trials: tuple[int | None, int | None] | None = None,
    test: Any = None,
    outcome: Outcome = None,
    keep: float | None = None,
) -> Judgement:
    """Judge attribution scores (n_train, n_test), or several by name, by trials that they did not use.

    `trials=(1000, 2000)` takes those numbers, the end excluded, for scores that used the others. `test` chooses test
    examples. The outcome is the finest that the run records (margin, logit, right and wrong) unless one is named.
    A run with several models per mask (design="repeats:5") also says how well any score could do.
    """
    given = scores if isinstance(scores, Mapping) else {"scores": scores}
    chosen, shape = chosen_tests(run.info.n_test, test), (run.info.n_train, run.info.n_test)
    matrices = {}
    run.memory.check_matrix(len(given) * shape[0], shape[1], 8)
    for name, one in given.items():
        matrix = read_scores(Path(one)) if isinstance(one, str | Path) else np.asarray(one)
        if matrix.shape != shape:
            raise InputError(f"The scores {name} must have the shape (n_train, n_test) = {shape}. Got {matrix.shape}.")
        matrices[name] = matrix if test is None else matrix[:, chosen]
    judging = arms(run.trials, run.info.kinds, keep).in_trials
    if trials is not None:
        start, stop = (trials[0] or 0), (np.inf if trials[1] is None else trials[1])
        judging = judging.select((judging.numbers >= start) & (judging.numbers < stop))
    return judge_scores(judging, _outcomes(run, judging, outcome, chosen), matrices, memory=run.memory)


def read_scores(path: Path) -> np.ndarray:
    """A matrix from a .npy file, or from a .npz file: its only array, or the one called `scores`."""
    if not path.is_file():
        raise InputError(f"There is no file {path}; give scores of the shape (n_train, n_test) as .npy or .npz.")
    if is_npy(path):
        return read_npy(path, InputError)
    with open_npz(path, InputError) as file:
        name = file.names[0] if len(file.names) == 1 else "scores"
        if name not in file.names:
            raise InputError(f"{path} has no array 'scores'; it holds {file.listing}.")
        return file.read(name)


def chosen_outcome(run: Run, outcome: Outcome) -> str:
    """The name of an outcome; the finest that the run records where none is given."""
    if outcome is None:
        return next((name for name in ("margin", "logit") if name in run.info.record), "correct")
    return outcome if isinstance(outcome, str) else "given"


def _outcomes(run: Run, trials: Trials, outcome: Outcome, test: np.ndarray) -> np.ndarray:
    """Outcomes (trials, tests) of some of the run's trials and test examples."""
    run.memory.check(8 * len(trials) * len(test), "the outcomes of these test examples", "fewer of them (--test)")
    found = _recorded(run, trials, chosen_outcome(run, outcome) if outcome is None else outcome)
    return unpack(trials.test_correct, trials.n_test)[:, test] if found is None else found[:, test]


def _utility(run: Run, trials: Trials, outcome: str | np.ndarray, test: Any) -> np.ndarray:
    return mean_utility(trials, _recorded(run, trials, outcome), test)


def _recorded(run: Run, trials: Trials, outcome: str | np.ndarray) -> np.ndarray | None:
    """Real-valued outcomes (trials, n_test) of some of the run's trials; None for right and wrong."""
    if isinstance(outcome, str) and outcome == "correct":
        return None
    found = recorded_outcome(run.store, run.trials, outcome, "test", run.memory)
    if found.shape != (len(run.trials), run.info.n_test):
        shape = len(run.trials), run.info.n_test
        raise InputError(f"The outcomes must have the shape (trials, n_test) = {shape}. Got {found.shape}.")
    return np.asarray(found[np.searchsorted(run.trials.numbers, trials.numbers)])


def _who(run: Run) -> dict[str, np.ndarray]:
    return {"index": np.arange(run.info.n_train), "label": run.classes[run.label_codes[0]]}


def _groups(run: Run) -> dict[str, np.ndarray]:
    codes, names = run.store.groups()
    return {"group": np.array(names), "size": np.bincount(codes, minlength=len(names))}


def _errors(name: str, found: Values | Difference) -> dict[str, np.ndarray]:
    return {name: found.value, "stderr": found.stderr, "lower": found.lower, "upper": found.upper}


def _design(run: Run) -> str:
    plan = run.info.plan
    if plan is None or "design" not in plan:
        return "trials made elsewhere"
    keep = f" with keep {', '.join(f'{one:g}' for one in plan['keep'])}" if plan.get("keep") else ""
    return f"the design {plan['design']}{keep}"
