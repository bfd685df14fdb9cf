"""Studies of the statistics against known truth; each returns rows (dicts) for a table.

`docs/make_tables.py` runs them in full and writes docs/statistics.md; tests run small versions.
"""

from dataclasses import replace

import numpy as np
from scipy.stats import hypergeom

from memfluence import designs
from memfluence.estimators import arms, difference, influence, lemma_bound, memorization_of
from memfluence.estimators.intervals import Z95, wilson_interval
from memfluence.estimators.significance import score_statistic
from memfluence.findings import cross_fitted_pairs, high_influence_pairs, pair_stability
from memfluence.findings._selection import select, tested_blocks
from memfluence.findings.prediction import fit_pairs
from memfluence.records import Trials
from simulated import ThresholdWorld, fixed_masks, packed, probit_world

ARMS = ((97, 41), (350, 150), (1400, 600))
PROPORTIONS = (0, 0.01, 0.1, 0.5, 0.9, 0.99, 1)


# ---- intervals of one pair


def ours(x, a, y, b):
    found = difference(x, np.asarray(a), y, np.asarray(b))
    return found.lower, found.upper


def newcombe(x, a, y, b):
    """Newcombe's (1998, Statistics in Medicine 17, 873-890, method 10)."""
    p, q = x / a, y / b
    (low_p, high_p), (low_q, high_q) = wilson_interval(p, np.asarray(a)), wilson_interval(q, np.asarray(b))
    return p - q - np.hypot(p - low_p, high_q - q), p - q + np.hypot(high_p - p, q - low_q)


def wald(x, a, y, b):
    p, q = x / a, y / b
    reach = Z95 * np.sqrt(p * (1 - p) / a + q * (1 - q) / b)
    return p - q - reach, p - q + reach


def miettinen_nurminen(x, a, y, b):
    """The score test turned into an interval, by bisection."""
    value = np.asarray(x / a - y / b)
    limits = []
    for end in (-1.0, 1.0):
        inside, outside = value.copy(), np.full(value.shape, end)
        for _ in range(30):
            middle = (inside + outside) / 2
            accepted = np.abs(score_statistic(x, a, y, b, middle)) <= Z95
            inside, outside = np.where(accepted, middle, inside), np.where(accepted, outside, middle)
        limits.append(outside)
    return tuple(limits)


INTERVALS = {
    "Agresti-Caffo (used)": ours,
    "Newcombe": newcombe,
    "Miettinen-Nurminen": miettinen_nurminen,
    "Wald": wald,
}


def coverage(name, *, worlds=10_000, sizes=ARMS, seed=0):
    """One row per cell: coverage exactly and in simulated worlds, and the mean width as a multiple of Newcombe's."""
    rng = np.random.default_rng(seed)
    rows = []
    for a, b in sizes:
        x, y = np.arange(a + 1)[:, None], np.arange(b + 1)[None, :]
        lower, upper = INTERVALS[name](x, a, y, b)  # (a + 1, b + 1)
        widths = [np.subtract(*limits[::-1]) for limits in ((lower, upper), newcombe(x, a, y, b))]
        for p in PROPORTIONS:
            for q in PROPORTIONS:
                holds = (lower <= p - q + 1e-12) & (p - q - 1e-12 <= upper)
                weight = np.outer(binomial(a, p), binomial(b, q))
                drawn = holds[rng.binomial(a, p, worlds), rng.binomial(b, q, worlds)]
                ratio = (weight * widths[0]).sum() / (weight * widths[1]).sum()
                rows.append(
                    {"a": a, "b": b, "p": p, "q": q, "exact": weight[holds].sum(), "simulated": drawn.mean()}
                    | {"width": ratio, "inner": min(p, q) >= 0.1 and max(p, q) <= 0.9}
                )
    return rows


def binomial(n, p):
    from scipy.stats import binom

    return binom.pmf(np.arange(n + 1), n, p)


# ---- trials that are not independent


def cluster_coverage(
    *, runs=100, trials=300, designs_tried=("fixed", "balanced:10", "balanced:4", "repeats:3"), seed=0
):
    """Coverage of the intervals at single pairs by design, beside those that take trials for independent."""
    world = ThresholdWorld.make(np.random.default_rng(seed))
    truth = world.truth(np.random.default_rng(seed + 1))
    train, test = (index.ravel() for index in np.indices(truth.shape))
    rows = []
    for spec in designs_tried:
        held, naive, width, ratio, squares = [], [], [], [], []
        for run in range(runs):
            made = world.run(spec, trials, seed=1000 * seed + run)
            found = influence(made, world.kinds).at(train, test)
            plain = influence(replace(made, repeats=1, block=1), world.kinds).at(train, test)
            held.append(np.mean((found.lower <= truth.ravel()) & (truth.ravel() <= found.upper)))
            naive.append(np.mean((plain.lower <= truth.ravel()) & (truth.ravel() <= plain.upper)))
            squares.append(np.mean((found.value - truth.ravel()) ** 2))
            ratio.append(squares[-1] / np.mean(found.stderr**2))
            width.append(np.mean(found.stderr) / np.mean(plain.stderr))
        rows.append(
            {"design": spec, "root mean squared error": np.sqrt(np.mean(squares)), "coverage": np.mean(held)}
            | {"coverage as if independent": np.mean(naive), "squared error / stderr^2": np.mean(ratio)}
            | {"stderr / as if independent": np.mean(width)}
        )
    return rows


# ---- error control


def permute_test_outcomes(trials, rng):
    """Masks dealt out anew for the test examples, while memorization stays what it is."""
    order = rng.permutation(len(trials))
    return replace(trials, test_correct=trials.test_correct[order])


def false_discoveries(*, counts=(100, 400, 1500), worlds=100, rate=0.1, fixed=False, shared=0.5, seed=0, **options):
    """Realised false discovery rate in worlds with shared trials, and under permuted masks."""
    rows = []
    null = options.get("null", 0.0)
    for count in counts:
        rng = np.random.default_rng([seed, count])
        share, found_counts, power, any_permuted = [], [], [], []
        for _ in range(worlds):
            world = probit_world(rng, shared=shared)
            truth = world.influence()
            masks = fixed_masks(rng, count, len(truth)) if fixed else None
            trials = world.trials(count, rng, masks=masks)
            selection = {"fdr": rate, "permutations": 0, **options}
            found = high_influence_pairs(trials, *world.labelled, **selection)
            wrong = truth[found.train_index, found.test_index] <= null
            share.append(wrong.mean() if len(found) else 0.0)
            found_counts.append(len(found))
            real = (truth > max(null, 0.15)) & (world.memorization >= 0.25)[:, None]
            power.append(real[found.train_index, found.test_index].sum() / max(1, real.sum()))
            permuted = high_influence_pairs(permute_test_outcomes(trials, rng), *world.labelled, **selection)
            any_permuted.append(len(permuted) > 0)
        rows.append(
            {"trials": count, "found": np.mean(found_counts), "of those above 0.15 found": np.mean(power)}
            | {"realised rate": np.mean(share), "its error": np.std(share) / np.sqrt(worlds)}
            | {"permuted masks: worlds with any": np.mean(any_permuted), "nominal": rate}
        )
    return rows


def by_chance(*, counts=(100, 400, 1500), worlds=40, shared=0.5, seed=0):
    """Pairs without influence that the thresholds select, and `expected_by_chance` from permuted masks."""
    rows = []
    for count in counts:
        rng = np.random.default_rng([seed, count])
        found, false, expected, spread = [], [], [], []
        for _ in range(worlds):
            world = probit_world(rng, shared=shared)
            trials = world.trials(count, rng)
            pairs = high_influence_pairs(trials, *world.labelled, permutations=10)
            found.append(len(pairs))
            false.append((world.influence()[pairs.train_index, pairs.test_index] <= 0).sum())
            expected.append(pairs.expected_by_chance)
            spread.append(pairs.by_chance_spread)
        rows.append(
            {
                "common cause": shared,
                "trials": count,
                "pairs": np.mean(found),
                "of them with influence 0": np.mean(false),
            }
            | {"their spread": np.std(np.subtract(false, expected))}
            | {"expected by chance": np.mean(expected), "spread over permutations": np.mean(spread)}
        )
    return rows


# ---- selection bias


def selection_bias(*, counts=(100, 200, 400, 1000), worlds=40, seed=0):
    """Bias and root mean squared error on selected pairs: raw values of all trials and of the half, and corrected."""
    rows = []
    for count in counts:
        rng = np.random.default_rng([seed, count])
        errors = {"all trials, raw": [], "half, raw": [], "half, corrected": []}
        for _ in range(worlds):
            world = probit_world(rng)
            truth, trials = world.influence(), world.trials(count, rng)
            pairs = high_influence_pairs(trials, *world.labelled, permutations=0)
            fitted = cross_fitted_pairs(trials, *world.labelled)
            of_rows = truth[fitted.train_index, fitted.test_index]
            errors["all trials, raw"].append(pairs.influence - truth[pairs.train_index, pairs.test_index])
            errors["half, raw"].append(fitted.influence_selecting - of_rows)
            errors["half, corrected"].append(fitted.influence - of_rows)
        for name, parts in errors.items():
            together = np.concatenate(parts)
            together = together[np.isfinite(together)]
            rows.append(
                {"trials": count, "values": name, "pairs": len(together) / worlds, "bias": together.mean()}
                | {"root mean squared error": np.sqrt((together**2).mean())}
            )
    return rows


# ---- from run to run, and more trials


def run_to_run(*, counts=(100, 400, 1500), runs=60, repeats=10, seed=1):
    """Standard deviations over independent runs, and what `pair_stability` says from one run (root mean square)."""
    rows = []
    for count in counts:
        rng = np.random.default_rng([seed, count])
        world = probit_world(rng)
        sets, means = zip(*(selected(world, count, rng) for _ in range(runs)))
        index = [jaccard(one, other) for one, other in zip(sets[::2], sets[1::2])]
        said = [pair_stability(world.trials(count, rng), *world.labelled) for _ in range(repeats)]

        def typical(name, said=said):
            return np.sqrt(np.mean([getattr(one, name) ** 2 for one in said]))

        rows.append(
            {"trials": count, "pairs": np.mean([len(one) for one in sets])}
            | {"sd of pairs": np.std([len(one) for one in sets]), "said": typical("pairs_stderr")}
            | {"sd of mean influence": np.std(means), "said ": typical("mean_influence_stderr")}
            | {"Jaccard": np.mean(index), "said  ": typical("expected_jaccard")}
            | {"sd of Jaccard": np.std(index), "said   ": typical("expected_jaccard_stderr")}
        )
    return rows


def predictions(*, counts=(100, 200, 400, 1000), worlds=12, runs=6, times=4, seed=0):
    """What `times` as many trials are expected to give, and what they give; means over worlds, and the largest miss."""
    rows = []
    for count in counts:
        rng = np.random.default_rng([seed, count])
        expected, realised = [], []
        for _ in range(worlds):
            world = probit_world(rng, n_train=600, n_test=400)
            model = model_of(world, world.trials(count, rng))
            told = model.predict(times * count)
            sets = [selected(world, times * count, rng)[0] for _ in range(runs)]
            by_chance = pairs_by_chance(world, world.trials(times * count, rng))
            index = np.mean([jaccard(one, other) for one, other in zip(sets[::2], sets[1::2])])
            expected.append((told.pairs, told.jaccard, told.by_chance))
            realised.append((np.mean([len(one) for one in sets]), index, by_chance))
        told, real = np.array(expected), np.array(realised)  # (worlds, 3)
        rows.append(
            {"from": count, "to": times * count, "pairs": real[:, 0].mean(), "predicted": told[:, 0].mean()}
            | {"largest relative miss": np.abs(told[:, 0] / real[:, 0] - 1).max()}
            | {"Jaccard": real[:, 1].mean(), "predicted ": told[:, 1].mean()}
            | {"largest miss": np.abs(told[:, 1] - real[:, 1]).max()}
            | {"by chance": real[:, 2].mean(), "predicted  ": told[:, 2].mean()}
        )
    return rows


def pairs_by_chance(world, trials, mem=0.25, infl=0.15):
    """What permuted masks select on average, exactly: for each pair the tail of a hypergeometric distribution."""
    kinds, train_labels, test_labels = world.labelled
    chosen, count = arms(trials, kinds), len(trials)
    right = np.unpackbits(trials.test_correct, axis=1, count=trials.n_test, bitorder="little").sum(axis=0, dtype=int)
    total = 0.0
    for i in np.flatnonzero(memorization_of(chosen).value >= mem):
        a, of_class = int(chosen.trials_in[i]), right[test_labels == train_labels[i]]
        least = np.ceil((a * (count - a) * infl + a * of_class) / count - 1e-9)  # x/a - (right - x)/b >= infl
        total += hypergeom.sf(least - 1, count, of_class, a).sum()
    return total


def model_of(world, trials):
    kinds, train_labels, test_labels = world.labelled
    blocks = list(tested_blocks(np.arange(len(train_labels)), train_labels, test_labels, True))
    return fit_pairs(arms(trials, kinds), blocks, mem=0.25, infl=0.15)


def selected(world, count, rng):
    kinds, *labels = world.labelled
    estimates, train, test = select(arms(world.trials(count, rng), kinds), *labels, 0.25, 0.15, True)
    mean = estimates.at(train, test).value.mean() if len(train) else np.nan
    return set(zip(train.tolist(), test.tolist())), mean


def jaccard(one, other):
    return len(one & other) / len(one | other) if one | other else np.nan


# ---- the Lemma


def lemma_estimate(trials, kinds):
    """mu as the Lemma has it, (n_train, n_test), from trials of the design `lemma`; an undefined term is 1/2."""
    x, a, y, b = influence(trials, kinds).counts()
    return np.where(a > 0, x / np.maximum(a, 1), 0.5) - np.where(b > 0, y / np.maximum(b, 1), 0.5)


def lemma_errors(*, counts=(50, 500, 4000), shares=(0.1, 0.5, 0.7, 0.9), n_train=40, columns=60, work=400_000, seed=0):
    """Simulated mean squared error of the Lemma's estimate and its bounds.

    A test example is right with probability c + sum over kept k of a_k, which makes infl_m(k) exactly a_k. A third of
    the columns is a fair coin (a = 0, c = 1/2: the largest variance), a third always right (only the filled-in 1/2 can
    be wrong), a third has effects of both signs.
    """
    rows = []
    for share in shares:
        size = round(share * n_train)
        rng = np.random.default_rng([seed, size])
        effect = np.zeros((n_train, columns))
        effect[:, 2::3] = rng.uniform(-0.5, 0.5, effect[:, 2::3].shape) / n_train
        constant = np.where(np.arange(columns) % 3 == 1, 1.0, 0.5)
        for count in counts:
            squares, repetitions = [], max(10, work // (count * 20))
            for repetition in range(repetitions):
                made = designs.make("lemma", n_train=n_train, keep=share, seed=repetition)
                drawn = [made.trial(number) for number in range(count)]
                mask = np.array([trial.mask for trial in drawn])
                right = rng.random((count, columns)) < constant + mask @ effect
                trials = Trials(
                    np.arange(count), np.array([trial.kind for trial in drawn], np.int16), packed(mask),
                    np.zeros_like(packed(mask)), packed(right), n_train, columns,
                )  # fmt: skip
                squares.append(((lemma_estimate(trials, made.kinds) - effect) ** 2).mean(axis=0))
            error = np.mean(squares, axis=0)  # (columns,)
            rows.append(
                {"m/n": share, "t": count, "coin": error[0::3].mean(), "always right": error[1::3].mean()}
                | {"effects": error[2::3].mean(), "bound in the proof": lemma_bound(n_train, size, count)}
                | {"bound as stated": lemma_bound(n_train, size, count, simple=True)}
            )
    return rows
