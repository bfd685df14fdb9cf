"""Influence of selected pairs (the paper's Fig. 3): how strong are they, how many are there, how many are chance?

Definition (Sec. 3.3). The histogram of the influence of all high-influence pairs (`findings/pairs.py`), with the
paper's counts: pairs, their training and test examples, and test examples that are in one pair only. In Sec. 3.4 the
paper adds that more than 80% of the influences are below 0.4, and that those above almost always belong to
near-duplicates.

By chance. The same histogram from masks that are dealt out anew, mean and standard deviation over permutations. What
stands above it is more than noise. Below it is the noise that any such selection holds: values near the threshold are
biased upwards, and many of them may be no pairs at all.

Failure cases. No pair reaches the thresholds: an error that says so.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.drawing import BLUE, GREY, INK, legend, panels
from memfluence.errors import InputError
from memfluence.experiments._result import Result, Said, check_trials, decimal, spread
from memfluence.findings import influences_by_chance
from memfluence.runs import Run, about
from memfluence.wording import approximate, count, percent, value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADING = "How strong pairs are, and chance (Fig. 3)"

BINS_PER_UNIT = 40  # so that 0.15 and 0.4 are edges
STRONG = 0.4  # from here on the paper sees near-duplicates


def summarize(
    run: Run,
    *,
    mem: float = 0.25,
    infl: float = 0.15,
    same_class: bool = True,
    permutations: int = 5,
    resamples: int = 0,
    keep: float | None = None,
    seed: int = 0,
    memory: str | int | None = None,
) -> Result:
    """The histogram in bins of 0.025, with what chance gives in each.

    With `resamples` also how far the number of pairs varies from run to run (`findings/stability.py`).
    """
    check_trials(run)
    selection: dict[str, Any] = {"same_class": same_class, "keep": keep, "memory": memory}
    pairs = run.find_pairs(mem, infl, permutations=0, **selection)
    if not len(pairs):
        raise InputError(f"There is no histogram to draw. {pairs.warning}")
    chance = influences_by_chance(
        run.trials,
        run.info.kinds,
        *run.label_codes,
        mem=mem,
        infl=infl,
        permutations=permutations,
        seed=seed,
        **selection,
    )
    first = min(np.floor(infl * BINS_PER_UNIT + 1e-9), BINS_PER_UNIT - 1)
    edges = np.arange(first, BINS_PER_UNIT + 1) / BINS_PER_UNIT  # (bins + 1,)
    if edges[0] < infl < edges[1]:
        edges[0] = infl  # no bin holds what was not selected
    by_chance = np.array([binned(values, edges) for values in chance]).reshape(len(chance), len(edges) - 1)
    columns = {
        "from": edges[:-1],
        "to": edges[1:],
        "pairs": binned(pairs.influence, edges),
        "by_chance": by_chance.mean(axis=0) if len(chance) else np.nan,
        "by_chance_sd": by_chance.std(axis=0, ddof=1) if len(chance) > 1 else np.nan,
    }
    numbers = {
        **pairs.summary,
        "test_share": pairs.summary["test_examples"] / run.info.n_test,
        "share_below_strong": float((pairs.influence < STRONG).mean()),
        "mean_influence": float(pairs.influence.mean()),
        "by_chance": spread([len(values) for values in chance]),
        "by_chance_strong": spread([int((values >= STRONG).sum()) for values in chance]),
    }
    if resamples:
        stability = run.pair_stability(mem, infl, same_class=same_class, keep=keep, resamples=resamples, seed=seed)
        numbers["pairs_stderr"] = stability.pairs_stderr
    settings = {"mem": mem, "infl": infl, "permutations": permutations, "seed": seed, **selection}
    title = f"{about(run.info)}, {len(run.trials):,} models; memorization ≥ {mem:g}, influence ≥ {infl:g}"
    return Result("histogram", title, numbers, columns, settings)


def binned(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The number of values in each bin, (bins,) int64. A bin holds its lower edge; the last one both of its edges."""
    return np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]


def draw(result: Result) -> "Figure":
    """The numbers of selected pairs by influence, and those that permuted masks would give."""
    table, by_chance = result.table, result.numbers["by_chance"]
    figure, (panel,) = panels(_caption(result), 4.6, 2.8, ["Pairs by influence"])
    left, width = table["from"].to_numpy(), (table["to"] - table["from"]).to_numpy()
    panel.bar(left, table["pairs"], width, align="edge", color=BLUE, edgecolor="white", linewidth=0.5, label="pairs")
    if by_chance["n"]:
        mean, sd = table["by_chance"].to_numpy(), np.nan_to_num(table["by_chance_sd"].to_numpy())
        edges = np.append(left, left[-1] + width[-1])
        panel.stairs(mean, edges, color=INK, linewidth=1.1, label="by chance")
        low, high = np.repeat(np.maximum(mean - sd, 0), 2), np.repeat(mean + sd, 2)
        panel.fill_between(np.repeat(edges, 2)[1:-1], low, high, color=GREY, alpha=0.5, linewidth=0)
    panel.set_yscale("symlog", linthresh=1, linscale=0.3)  # one pair among thousands can still be seen
    panel.set_ylim(0)
    last = np.flatnonzero(table["pairs"].to_numpy())[-1]
    panel.set_xlim(left[0], min(1.0, left[last] + 3 * width[0]))
    panel.set_xlabel("influence")
    panel.set_ylabel("pairs (log scale)")
    panel.yaxis.set_major_formatter(lambda value, _: count(value))
    legend(panel, 2)
    return figure


def _caption(result: Result) -> str:
    numbers, by_chance = result.numbers, result.numbers["by_chance"]
    said = (
        f"{result.title}. {count(numbers['pairs'])} pairs of {count(numbers['train_examples'])} training and"
        f" {count(numbers['test_examples'])} test examples ({percent(numbers['test_share'], 1)} of the test set),"
        f" {count(numbers['single_test_examples'])} of them in one pair only."
    )
    if result.settings["infl"] < STRONG:
        said += f" {percent(numbers['share_below_strong'], 1)} of the influences are below {value(STRONG, 1)}."
    if by_chance["n"]:
        said += (
            f" By chance: {approximate(by_chance['mean'])} pairs, the mean of {by_chance['n']} permutations of the"
            " masks (grey: ± one standard deviation)."
        )
    return said


def say(result: Result) -> Said:
    found, table = result.numbers, result.table
    shown = table[(table["pairs"] > 0) | (table["by_chance"] > 0)]
    rows = (
        (f"{low:.3f}-{high:.3f}", pairs, f"{decimal(mean, 1)} ± {decimal(sd, 1)}")
        for low, high, pairs, mean, sd in shown.itertuples(index=False)
    )
    chance = found["by_chance"]
    lines = (
        f"{found['pairs']} pairs of {found['train_examples']} training and {found['test_examples']} test examples"
        f" ({found['test_share']:.2%} of the test set); {found['single_test_examples']} test examples are in one pair"
        f" only. {found['share_below_strong']:.1%} of the influences are below {STRONG:g}.",
        f"By chance alone (permuted masks): {decimal(chance['mean'], 1)} ± {decimal(chance['sd'], 1)} pairs.",
    )
    return Said(("influence", "pairs", "by chance"), rows, lines)


def report(result: Result, of: str) -> list[str]:
    found, chance = result.numbers, result.numbers["by_chance"]
    return [
        f"{found['pairs']:,} pairs of {found['train_examples']:,} training and {found['test_examples']:,} test"
        f" examples; permuted masks give {chance['mean']:,.0f} ± {chance['sd']:,.1f} (n = {chance['n']}).",
    ]
