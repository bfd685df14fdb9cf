"""Leave-one-out: does subsampled influence say what leaving out one example says?

Definition. For some training examples i, chosen over the whole range of memorization, models are trained on all
training examples S and on S without i. The difference of their outcomes is leave-one-out memorization (on i) and
influence (on test examples), which the run estimates from random subsets instead. The paper calls its estimates
"essentially as accurate as true leave-one-out" (Sec. 4) and trains no such models.

Estimator. Model k of each side has the same seeds (initialisation, and the stream that orders the examples), so
differences are of pairs. Of R pairs, b are right with i alone and c without it alone: the value is (b - c) / R. Its
standard error is that of Agresti and Min (2005), with half a pair added to each cell, so that it is not 0 where all
pairs agree.

What is compared. The correlation of the two is limited by the noise of both: `ceiling` is the highest that their
standard errors allow, if the true values were equal. The slope of leave-one-out on subsampled values is corrected for
the noise of the latter (Fuller 1987, Sec. 1.2): its denominator is the variance of the subsampled values less the mean
of their squared errors. Errors of slopes and means are from a bootstrap over the chosen examples.

Failure cases. The two need not be equal: with 70% of the data kept, an example has fewer others that could stand in
for it, so it is memorized more. `keeping` is by how much. Chosen examples are spread over the range and are no random
sample, so numbers are about them and not about all examples. Influence is mostly near 0, where both are noise alone.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from memfluence.drawing import BLUE, GREY, INK, ORANGE, PAGE, legend, panels
from memfluence.errors import InputError, checked_integer
from memfluence.experiments._result import (
    Result,
    Said,
    check_repeats,
    check_trials,
    decimal,
    models,
    of_keep,
)
from memfluence.experiments.doing import Training, only
from memfluence.records import Trials
from memfluence.runs import Run, about, open_run
from memfluence.seeding import generator
from memfluence.store import is_run, unpack, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADING = "Leaving one out beside random subsets (Sec. 4)"

BOOTSTRAP = 1000
PLAN_FILE = "plan.json"


def conduct(
    name: str,
    runs: list[Run],
    out: Path,
    training: Training,
    *,
    examples: Annotated[int, "How many training examples are left out, one at a time."] = 20,
    repeats: int = 500,
    seed: int = 0,
    keep: float | None = None,
) -> Result:
    """Train into OUT/all and OUT/without-I; a directory keeps the examples that it was begun with."""
    run = only(runs, name)
    check_trials(run)
    check_repeats(repeats)
    chosen = _planned(run, out, {"examples": examples, "seed": seed, "keep": keep}, training.train)
    arms = {"all": np.ones(run.info.n_train, dtype=bool)}
    for example in chosen:
        arms[f"without-{example}"] = np.arange(run.info.n_train) != example
    if not training.train:
        there = {arm: open_run(out / arm).trials for arm in arms if is_run(out / arm)}
        return summarize(run, there, chosen, keep=keep, seed=seed)
    data, learner = training.data_of(run), training.learner_of(run)
    trials: dict[str, Trials] = {}
    for number, (arm, mask) in enumerate(arms.items(), start=1):
        training.note(f"{number} of {len(arms)}: {arm.replace('-', ' example ')}")
        masks = np.broadcast_to(mask, (repeats, len(mask)))
        # All masks are alike, so the first tells the design: more repeats can be added later.
        trained = training.run(out / arm, data, learner, known_by=1, design="explicit", masks=masks, seed=seed)
        trials[arm] = trained.bits
    return summarize(run, trials, chosen, keep=keep, seed=seed)


def plan(run: Run, examples: int = 20, *, keep: float | None = None) -> list[int]:
    """Training examples whose memorization is spread evenly from 0 to the largest; ties go to the lower index."""
    checked_integer("examples", examples, 2, run.info.n_train)
    value = run.estimate_memorization(keep).value.copy()  # (n_train,)
    if np.isfinite(value).sum() < examples:
        raise InputError(f"{run.path} estimates the memorization of fewer than {examples} examples; run more trials.")
    chosen: list[int] = []
    for wanted in np.linspace(0, np.nanmax(value), examples):
        chosen.append(int(np.nanargmin(np.abs(value - wanted))))
        value[chosen[-1]] = np.nan
    return chosen


def _planned(run: Run, out: Path, asked: Mapping[str, Any], train: bool) -> list[int]:
    """The examples that a directory was begun with, or else those of `plan`: the run may have more trials by now."""
    file = out / PLAN_FILE
    if file.is_file():
        there = json.loads(file.read_bytes())
        if there["asked"] != asked:
            differs = next(one for one in asked if there["asked"].get(one) != asked[one])
            raise InputError(
                f"{out} was begun with {differs}={there['asked'].get(differs)!r}, not {asked[differs]!r}; use another"
                " directory (out), or the same value."
            )
        return list(there["chosen"])
    if not train:
        raise InputError(f"{out} has no models yet; run it without `train=False`.")
    chosen = plan(run, asked["examples"], keep=asked["keep"])
    write_whole(file, json.dumps({"asked": asked, "chosen": chosen}, indent=2).encode())
    return chosen


def left_out(whole: Trials, without: Trials, example: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Leave-one-out values and errors, (1 + n_test,): of the example itself and of all test examples; and the pairs."""
    shared, one, other = np.intersect1d(whole.numbers, without.numbers, return_indices=True)

    def right(trials: Trials, rows: np.ndarray) -> np.ndarray:  # (pairs, 1 + n_test)
        own = unpack(trials.train_correct[rows], trials.n_train)[:, [example]]
        return np.hstack([own, unpack(trials.test_correct[rows], trials.n_test)]).astype(bool)

    with_it, without_it = right(whole, one), right(without, other)
    gained, lost = (with_it & ~without_it).sum(axis=0), (~with_it & without_it).sum(axis=0)
    return (gained - lost) / max(len(shared), 1), paired_error(gained, lost, len(shared)), len(shared)


def paired_error(gained: np.ndarray, lost: np.ndarray, pairs: int) -> np.ndarray:
    """Agresti and Min's standard error of (gained - lost) / pairs: half a pair is added to each of the four cells."""
    total = pairs + 2
    error: np.ndarray = np.sqrt((gained + lost + 1) - (gained - lost) ** 2 / total) / total
    return error


def summarize(
    run: Run, trials: Mapping[str, Trials], chosen: Sequence[int], *, keep: float | None = None, seed: int = 0
) -> Result:
    """Both estimates of memorization and influence side by side; `trials` are those of "all" and of "without-I".

    Examples whose models are not there yet are left out.
    """
    chosen = [example for example in chosen if f"without-{example}" in trials]
    if "all" not in trials or len(chosen) < 2:
        raise InputError("Too few of the models of this experiment are trained; the same command goes on.")
    n_test, memorization = run.info.n_test, run.estimate_memorization(keep)
    train = np.repeat(chosen, n_test)
    subsampled = run.influence_estimates(keep).at(train, np.tile(np.arange(n_test), len(chosen)))
    x = np.column_stack([memorization.value[chosen], subsampled.value.reshape(len(chosen), n_test)])
    x_error = np.column_stack([memorization.stderr[chosen], subsampled.stderr.reshape(len(chosen), n_test)])
    found = [left_out(trials["all"], trials[f"without-{example}"], example) for example in chosen]
    y, y_error = (np.stack([one[part] for one in found]) for part in (0, 1))  # (examples, 1 + n_test)
    pairs = [one[2] for one in found]
    used = len(of_keep(run, keep))
    numbers = {
        "memorization": compared(x[:, :1], x_error[:, :1], y[:, :1], y_error[:, :1], seed),
        "influence": compared(x[:, 1:], x_error[:, 1:], y[:, 1:], y_error[:, 1:], seed),
        "examples": [
            {
                "train_index": example,
                "subsampled": x[k, 0],
                "subsampled_stderr": x_error[k, 0],
                "leave_one_out": y[k, 0],
                "leave_one_out_stderr": y_error[k, 0],
                "pairs": pairs[k],
            }
            for k, example in enumerate(chosen)
        ],
        "cost": _cost(run.info.n_train, used, min(pairs), x_error[:, 0], y_error[:, 0]),
    }
    columns = {"train_index": np.repeat(chosen, 1 + n_test), "test_index": np.tile(np.arange(-1, n_test), len(chosen))}
    values = {"subsampled": x, "subsampled_stderr": x_error, "leave_one_out": y, "leave_one_out_stderr": y_error}
    rows = columns | {name: one.ravel() for name, one in values.items()}
    kept = run.info.kinds[0].keep if keep is None else keep
    settings = {"examples": chosen, "repeats": max(pairs), "keep": kept, "trials": used, "seed": seed}
    title = f"{about(run.info)}; {used:,} models on subsets, {models(pairs)} on all and on all but one"
    return Result("loo", title, numbers, rows, settings)


def compared(x: np.ndarray, x_error: np.ndarray, y: np.ndarray, y_error: np.ndarray, seed: int) -> dict[str, Any]:
    """Leave-one-out values y on subsampled values x, (examples, values): slope, correlation, mean difference."""

    def slope(rows: np.ndarray) -> float:
        a, b = x[rows].ravel(), y[rows].ravel()
        signal = a.var() - (x_error[rows] ** 2).mean()  # of the true values
        return float(((a - a.mean()) * (b - b.mean())).mean() / signal) if signal > 0 else float("nan")

    rng = generator(seed, "resample", 0)
    draws = [rng.integers(0, len(x), len(x)) for _ in range(BOOTSTRAP)]
    slopes = [found for rows in draws if np.isfinite(found := slope(rows))]
    keeping = (x - y).mean(axis=1)  # (examples,)
    reliable = [
        1 - (error**2).mean() / max(value.var(), float(np.finfo(float).tiny))
        for value, error in ((x, x_error), (y, y_error))
    ]
    varies = x.std() > 0 and y.std() > 0
    return {
        "values": x.size,
        "correlation": float(np.corrcoef(x.ravel(), y.ravel())[0, 1]) if varies else float("nan"),
        "ceiling": float(np.sqrt(max(reliable[0], 0) * max(reliable[1], 0))),
        "slope": slope(np.arange(len(x))),
        "slope_stderr": float(np.std(slopes, ddof=1)) if len(slopes) > 1 else float("nan"),
        "keeping": float(keeping.mean()),
        "keeping_stderr": float(np.std([keeping[rows].mean() for rows in draws], ddof=1)),
        "subsampled_stderr": float(np.sqrt((x_error**2).mean())),
        "leave_one_out_stderr": float(np.sqrt((y_error**2).mean())),
    }


def _cost(n_train: int, trials: int, pairs: int, sub: np.ndarray, loo: np.ndarray) -> dict[str, float]:
    """Models that leave-one-out would take for all examples with the mean squared error that the run's trials have."""
    repeats = pairs * float((loo**2).mean() / (sub**2).mean())
    return {"subsampled": trials, "leave_one_out": repeats * (n_train + 1), "ratio": repeats * (n_train + 1) / trials}


def draw(result: Result) -> "Figure":
    """Leave-one-out over subsampled values: memorization with errors, and influence on all test examples."""
    caption = (
        f"{result.title}. a: {len(result.numbers['examples'])} training examples, spread over the range of"
        " memorization, with standard errors. b: their influence on each test example. Slopes are corrected for noise."
    )
    figure, (left, right) = panels(caption, PAGE, 3.2, ("Memorization", "Influence"))
    own, others = (result.table[(result.table["test_index"] < 0) == which] for which in (True, False))
    left.errorbar(
        own["subsampled"],
        own["leave_one_out"],
        xerr=own["subsampled_stderr"],
        yerr=own["leave_one_out_stderr"],
        fmt="o",
        color=ORANGE,
        linewidth=0.8,
    )
    right.plot(others["subsampled"], others["leave_one_out"], ".", color=BLUE, markersize=2, alpha=0.4, rasterized=True)
    for panel, name in ((left, "memorization"), (right, "influence")):
        found = result.numbers[name]
        ends = np.array(panel.get_xlim())
        panel.plot(ends, ends, color=GREY, linewidth=0.8, linestyle=":", label="equal")
        if np.isfinite(found["slope"]):
            middle = [(own if panel is left else others)[side].mean() for side in ("subsampled", "leave_one_out")]
            line = middle[1] + found["slope"] * (ends - middle[0])
            panel.plot(ends, line, color=INK, linewidth=0.8, label=f"slope {_with_error(found, 'slope')}")
        panel.set_xlabel("from random subsets")
        panel.set_ylabel("from leaving one out")
        legend(panel, 2)
    return figure


def _with_error(found: Mapping[str, Any], name: str) -> str:
    return f"{decimal(found[name], 2)} ± {decimal(found[f'{name}_stderr'], 2)}"


def say(result: Result) -> Said:
    rows = [
        (
            name,
            f"{found['values']:,}",
            decimal(found["correlation"]),
            decimal(found["ceiling"]),
            _with_error(found, "slope"),
            f"{decimal(found['keeping'])} ± {decimal(found['keeping_stderr'])}",
        )
        for name in ("memorization", "influence")
        if (found := result.numbers[name])
    ]
    header = ("of", "values", "correlation", "at most", "slope", "subsets minus leave-one-out")
    return Said(header, rows, _lines(result))


def _lines(result: Result) -> list[str]:
    cost, keep = result.numbers["cost"], result.settings["keep"]
    kept = "random subsets" if keep is None else f"subsets of {keep:.0%}"
    return [
        f"'At most' is the correlation that the noise of both would allow if the true values were equal. On {kept} an"
        " example has fewer others that could stand in for it: the last column says what that adds.",
        f"For all examples with the same error, leave-one-out would take about {cost['leave_one_out']:,.0f} models,"
        f" {cost['ratio']:,.0f} times the {cost['subsampled']:,} of the run.",
    ]


def report(result: Result, of: str) -> list[str]:
    said = say(result)
    lines = [f"| {' | '.join(map(str, row))} |" for row in (said.header, ["---"] * len(said.header), *said.rows)]
    return [*lines, "", *said.lines]
