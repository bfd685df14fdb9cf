"""Values of training examples, influence profiles, datamodels, and a judge of attribution methods, each of a `Run`.

Most functions are methods of `Run`, too, and those whose name ends in `table` give the same as columns, without pandas.
The estimators, with their definitions and errors, are in `estimators/`.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from memfluence.errors import InputError, MemfluenceWarning, StoreError
from memfluence.estimators import (
    Datamodels,
    Difference,
    Influence,
    Judgement,
    Memorization,
    Memory,
    RealInfluence,
    TopK,
    TopTests,
    adjusted_memorization,
    arms,
    banzhaf_values,
    chosen_tests,
    influence,
    judge_scores,
    mean_utility,
    memorization,
    real_influence,
    real_memorization,
    shapley_values,
    with_ties_by,
)
from memfluence.estimators import c_scores as estimate_c_scores
from memfluence.estimators import datamodels as fit_datamodels
from memfluence.findings import group_trials
from memfluence.npzfiles import is_npy, open_npz, read_npy
from memfluence.records import Trials
from memfluence.runs.table import Table
from memfluence.seeding import generator
from memfluence.store import unpack

if TYPE_CHECKING:
    import pandas as pd

    from memfluence.runs.run import Run

ESTIMATORS = ("plain", "adjusted")
Outcome = str | np.ndarray  # "correct", "score", "margin", "logit", or an array (trials, n)


def memorization_of(run: "Run", keep: float | None, outcome: Outcome | None = None) -> Memorization:
    """Memorization measured by the outcome, the run's own unless another is named."""
    recorded = outcomes(run, "train", outcome)
    if recorded is None:
        return memorization(run.trials, run.info.kinds, keep)
    return real_memorization(run.trials, run.info.kinds, recorded, keep)


def memorization_table(
    run: "Run", keep: float | None = None, *, outcome: Outcome | None = None, estimator: str = "plain"
) -> Table:
    """The table of `Run.memorization`."""
    check_estimator(run, estimator)
    of, recorded = (run.trials, run.info.kinds), outcomes(run, "train", outcome)
    if estimator == "adjusted":
        found = adjusted_memorization(*of, run.label_codes[0], keep, outcome=recorded, memory=run.memory)
    else:
        found = memorization_of(run, keep, outcome)
    arms = ("accuracy_in", "accuracy_out") if recorded is None else ("mean_in", "mean_out")
    names = ("stderr", "lower", "upper", *arms, "trials_in", "trials_out")
    own = {"memorization": found.value, **{name: getattr(found, name) for name in names}}
    return Table.of_examples({**_who(run), **own}, run.ids)


def influence_of(
    run: "Run", keep: float | None, outcome: Outcome | None, memory: Memory, device: str = "cpu"
) -> Influence | RealInfluence:
    """The estimator of influence on the outcome, the run's own unless another is named."""
    recorded, of = outcomes(run, "test", outcome, memory), (run.trials, run.info.kinds)
    if recorded is None:
        return influence(*of, keep, memory=memory, device=device)
    return real_influence(*of, recorded, keep, memory=memory)


def scores_of(run: "Run") -> tuple[np.ndarray, np.ndarray] | None:
    """The learner's own scores, (trials, n_train) and (trials, n_test); None where it is right or wrong."""
    return None if run.outcome == "correct" else (run.recorded("train_score"), run.recorded("test_score"))


def check_bits(run: "Run") -> None:
    """Refuse a run whose learner has scores of its own, for what is about right and wrong."""
    if run.outcome == "score":
        raise InputError(
            f"{run.path} has scores of its learner's own, and this is about right and wrong; `scores`, `pairs`,"
            " `mislabels`, `values`, `profile`, `datamodels`, `judge` and `report` know scores."
        )


def values(
    run: "Run",
    kind: Literal["banzhaf", "shapley"] = "banzhaf",
    *,
    test: Any = None,
    outcome: Outcome | None = None,
    empty: float | None = None,
) -> "pd.DataFrame":
    """One row per training example: its Banzhaf or Shapley value for a test set, with its error.

    Of a run with groups, one row per group: its trials draw groups, so groups are what has a value.

    The utility of a subset is the mean outcome, over the test examples chosen (all by default), of a model trained on
    it: the share that it gets right, the learner's own "score", a recorded "margin" or "logit", or an array (trials,
    n_test). Banzhaf values need
    a run with design="bernoulli" and keep=0.5, Shapley values one with design="uniform". `empty` is the utility of no
    training, which Shapley values need: that of a guess among the classes where the outcome is right and wrong; without
    it they start at the smallest subset. `attrs["target"]` of the table says what was estimated.
    """
    return value_table(run, kind, test=test, outcome=outcome, empty=empty).frame()


def value_table(
    run: "Run", kind: str, *, test: Any = None, outcome: Outcome | None = None, empty: float | None = None
) -> Table:
    """The table of `values`; its note `target` says what they estimate."""
    if kind not in ("banzhaf", "shapley"):
        raise InputError(f"The `kind` of value must be 'banzhaf' or 'shapley'. Got {kind!r} instead.")
    plan = run.info.plan or {}
    grouped = "groups" in (plan.get("options") or {})
    drawn, others, who = run.trials, "others", _who(run)
    if grouped:
        codes, names = run.store.examples.groups()
        drawn, others = group_trials(drawn, codes, run.memory), "other groups"
        who = {"group": np.array(names), "size": np.bincount(codes, minlength=len(names))}
    if kind == "banzhaf":
        if plan.get("design") != "bernoulli" or 0.5 not in plan.get("keep", ()):
            instead = "make a run with `design='bernoulli'` and `keep=0.5`"
            if plan.get("design") == "uniform":
                instead = "ask for `kind='shapley'`"
            raise InputError(
                "Banzhaf values need trials of the bernoulli design with keep 0.5, and"
                f" {run.path} has {_design(run)}; {instead}."
            )
        if empty is not None:
            raise InputError("Banzhaf values have no use for `empty`; leave it out.")
        trials = arms(drawn, run.info.kinds, 0.5).in_trials
        found = banzhaf_values(trials, mean_utility(trials, _outcomes(run, trials, outcome), test))
        target = f"Banzhaf value: mean contribution to a subset of the {others}, all equally likely"
    else:
        if plan.get("design") != "uniform":
            raise InputError(
                f"Shapley values need trials of the uniform design, and {run.path} has {_design(run)};"
                " make a run with `design='uniform'`."
            )
        trials, smallest = drawn, int(plan["options"]["smallest"])
        if empty is None and smallest == 1 and _is_right_or_wrong(run, outcome):
            empty = 1 / len(run.classes)
        utility = mean_utility(trials, _outcomes(run, trials, outcome), test)
        found = shapley_values(trials, utility, smallest=smallest, empty=empty)
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
    columns, notes = {**who, **_errors("value", found)}, {"target": target}
    return Table(columns, notes, "group") if grouped else Table.of_examples(columns, run.ids, notes)


def c_scores(run: "Run") -> "pd.DataFrame":
    """One row per training example: held-out accuracy, its mean over the run's keep fractions, and each of them.

    With one fraction it is `accuracy_out` of `Run.memorization`, which is also known as Data-OOB.
    """
    return c_score_table(run).frame()


def c_score_table(run: "Run") -> Table:
    """The table of `c_scores`."""
    found = estimate_c_scores(run.bits, run.info.kinds)
    names = ["" if keep is None else f"_{keep:g}" for keep in found.keep]
    columns = {
        **_who(run),
        "c_score": found.value,
        "stderr": found.stderr,
        **{f"accuracy_out{name}": row for name, row in zip(names, found.accuracy_out)},
        **{f"trials_out{name}": row for name, row in zip(names, found.trials_out)},
    }
    return Table.of_examples(columns, run.ids)


def group_influence_table(run: "Run", keep: float | None = None) -> Table:
    """The influence of every group on every test example."""
    names, n_test = np.array(run.store.examples.groups()[1]), run.info.n_test
    run.memory.check_matrix(len(names), n_test, 12 * 8 + names.itemsize)
    found = run.group_influence(keep).block_with_errors()  # (groups, n_test) each
    columns = {
        "group": np.repeat(names, n_test),
        "test_index": np.tile(np.arange(n_test), len(names)),
        "influence": found.value.ravel(),
        "stderr": found.stderr.ravel(),
        "lower": found.lower.ravel(),
        "upper": found.upper.ravel(),
    }
    return Table.of_examples(columns, run.ids)


def datamodels(run: "Run", test: Any, *, outcome: Outcome | None = None, keep: float | None = None) -> Datamodels:
    """Sparse linear models from masks to the outcomes of chosen test examples, judged on trials held out.

    About a second for each test example with a thousand training examples and as many trials.
    """
    chosen = chosen_tests(run.info.n_test, test)
    trials = arms(run.trials, run.info.kinds, keep).in_trials
    return fit_datamodels(trials, _finest_outcomes(run, trials, outcome, chosen), chosen, run.memory)


def profile(run: "Run", test: int, *, outcome: Outcome | None = None, keep: float | None = None) -> "pd.DataFrame":
    """All influences on one test example, from the most helpful training example to the most harmful, with errors."""
    return profile_table(run, test, outcome=outcome, keep=keep).frame()


def profile_table(run: "Run", test: int, *, outcome: Outcome | None = None, keep: float | None = None) -> Table:
    """The table of `profile`."""
    one = chosen_tests(run.info.n_test, [test])
    found = _profile_estimates(run, outcome, keep).block_with_errors(test=one)
    flat = Difference(*(part[:, 0] for part in (found.value, found.stderr, found.lower, found.upper)))
    order = np.argsort(-flat.value, kind="stable")  # NaN last
    return Table.of_examples({**_who(run), **_errors("influence", flat)}, run.ids).take(order)


def clear_by_chance(
    run: "Run",
    test: int,
    *,
    outcome: Outcome | None = None,
    keep: float | None = None,
    permutations: int = 20,
    seed: int = 0,
) -> dict[str, float]:
    """The 95% intervals of a profile that leave out 0 by chance alone, on either side: means over permuted masks.

    It is less than a fortieth of them where nearly all models are right, or wrong: intervals are then too wide.
    """
    one, estimates = chosen_tests(run.info.n_test, [test]), _profile_estimates(run, outcome, keep)
    helpful = harmful = 0
    for number in range(permutations):
        found = estimates.permuted(generator(seed, "permutation", number)).block_with_errors(test=one)
        helpful += int((found.lower > 0).sum())
        harmful += int((found.upper < 0).sum())
    return {"helpful": helpful / permutations, "harmful": harmful / permutations}


def _profile_estimates(run: "Run", outcome: Outcome | None, keep: float | None) -> Influence | RealInfluence:
    if outcome is None or (isinstance(outcome, str) and outcome == run.outcome):
        return run.influence_estimates(keep)
    return influence_of(run, keep, outcome, run.memory)


def judge(
    run: "Run",
    scores: "Mapping[str, np.ndarray | str | Path] | np.ndarray | str | Path",
    *,
    trials: tuple[int | None, int | None] | None = None,
    test: Any = None,
    outcome: Outcome | None = None,
    keep: float | None = None,
) -> Judgement:
    """Judge attribution scores (n_train, n_test), or several by name, by trials that they did not use.

    `trials=(1000, 2000)` takes those numbers, the end excluded, for scores that used the others. `test` chooses test
    examples. The outcome is the finest that the run records (score, margin, logit, correct) unless one is named.
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
    return judge_scores(judging, _finest_outcomes(run, judging, outcome, chosen), matrices, memory=run.memory)


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


def finest_outcome(run: "Run") -> str:
    """The name of the finest outcome that the run records."""
    return next((name for name in ("score", "margin", "logit") if f"test_{name}" in run.info.columns), "correct")


def _finest_outcomes(run: "Run", trials: Trials, outcome: Outcome | None, test: np.ndarray) -> np.ndarray:
    """Outcomes (trials, tests) of some of the run's trials and test examples, the finest where none is named."""
    run.memory.check(8 * len(trials) * len(test), "the outcomes of these test examples", "fewer of them (`test`)")
    found = _outcomes(run, trials, finest_outcome(run) if outcome is None else outcome)
    return unpack(trials.test_correct, trials.n_test)[:, test] if found is None else found[:, test]


def _outcomes(run: "Run", trials: Trials, outcome: Outcome | None) -> np.ndarray | None:
    """Real-valued outcomes (trials, n_test) of some of the run's trials; None for right and wrong."""
    found = outcomes(run, "test", outcome)
    return None if found is None else found[np.searchsorted(run.trials.numbers, trials.numbers)]


def outcomes(run: "Run", split: str, outcome: Outcome | None, memory: Memory | None = None) -> np.ndarray | None:
    """Real-valued outcomes (trials, n) of all the run's trials; None for right and wrong, which are counted as bits."""
    outcome = run.outcome if outcome is None else outcome
    if isinstance(outcome, str):
        if outcome == "correct":
            check_bits(run)
            return None
        if outcome == "smoothed":
            raise InputError(
                "The outcome 'smoothed' was removed, since its bias can be many times the error of 'correct';"
                " choose 'margin', or 'correct' with the estimator 'adjusted'."
            )
        if outcome not in ("score", "margin", "logit"):
            raise InputError(
                f"The `outcome` parameter must be correct, score, margin, logit or an array. Got {outcome!r} instead."
            )
        return run.recorded(f"{split}_{outcome}", memory=memory)
    found, shape = np.asarray(outcome), (len(run.trials), run.info.n_train if split == "train" else run.info.n_test)
    if found.shape != shape:
        raise InputError(f"The outcomes must have the shape (trials, n_{split}) = {shape}. Got {found.shape}.")
    return found


def _is_right_or_wrong(run: "Run", outcome: Outcome | None) -> bool:
    outcome = run.outcome if outcome is None else outcome
    return isinstance(outcome, str) and outcome == "correct"


def margins_for_ties(run: "Run", memory: Memory) -> np.ndarray | None:
    """Margins of the test examples; None where they were not recorded, are damaged or do not fit the memory."""
    if "test_margin" not in run.info.columns:
        return None
    try:
        return run.recorded("test_margin", memory=memory)
    except (InputError, StoreError):  # an order of ties is no reason to refuse
        return None


def with_ties(run: "Run", found: TopK | TopTests, keep: float | None, memory: Memory) -> TopK | TopTests:
    """The largest influences, ties to the larger influence on the margin where margins were recorded."""
    if (margins := margins_for_ties(run, memory)) is None:
        return found
    return with_ties_by(found, real_influence(run.trials, run.info.kinds, margins, keep, memory=memory))


def check_estimator(run: "Run", estimator: str) -> None:
    if estimator == "shrunk":
        raise InputError(
            "The estimator 'shrunk' was removed, since its error on strong pairs is up to four times that of 'plain';"
            " choose 'adjusted'."
        )
    if estimator not in ESTIMATORS:
        raise InputError(
            f"The `estimator` parameter must be one of {', '.join(ESTIMATORS)}. Got {estimator!r} instead."
        )
    if estimator == "adjusted" and "groups" in (run.info.plan or {}).get("options", {}):
        raise InputError(
            "The adjusted estimator needs examples that are kept independently of each other, but this run's are in"
            " groups; leave out the estimator."
        )


def _who(run: "Run") -> dict[str, np.ndarray]:
    return {"index": np.arange(run.info.n_train), "label": run.labels[0]}


def _errors(name: str, found: Difference) -> dict[str, np.ndarray]:
    return {name: found.value, "stderr": found.stderr, "lower": found.lower, "upper": found.upper}


def _design(run: "Run") -> str:
    plan = run.info.plan
    if plan is None or "design" not in plan:
        return "trials made elsewhere"
    keep = f" with keep {', '.join(f'{one:g}' for one in plan['keep'])}" if plan.get("keep") else ""
    return f"the design {plan['design']}{keep}"
