"""Mean squared error relative to Algorithm 1 at equal numbers of trials, of estimators and designs.

    memfluence run digits --trials 24000 --record margin --out runs/digits-24000
    memfluence run digits --trials 6000 --record margin --design balanced --seed 1 --out runs/digits-balanced
    for epochs in 26 27 28 29; do
        memfluence run digits --trials 3000 --record margin --set epochs=$epochs --out runs/digits-$epochs; done
    python benchmarks/variance.py --digits runs/digits-24000 --balanced runs/digits-balanced \
        --earlier runs/digits-26 --earlier runs/digits-27 --earlier runs/digits-28 --earlier runs/digits-29 \
        --cifar100 138=trials.npz --cifar100 247=results/cifar100-resnet9-10-epochs \
        --out benchmarks/results/variance.json --docs docs/variance.md

Three worlds. `longtail`: 300 training and 300 test examples; a model is the nearest kept neighbour (no training noise),
or that in one of 40 fixed random projections from 8 to 3 dimensions, drawn anew for each trial (much noise); both have
an exact truth (`exact_truth`). digits: trials of the first 4000 judged by the 20,000 others of the run. CIFAR-100: half
of the trials judged by the rest. A judge's own variance is subtracted. Influence is within classes. "strong" are pairs
whose true influence is at least 0.05 in size (not for CIFAR-100, where the judges do not know), "slope" is that of the
estimate on the truth over strong pairs: 1 without shrinkage. "checkpoints": the mean outcome after each of the last
epochs of one training, which a run with fewer epochs and the same seed gives. "coverage": how often the truth is within
1.96 standard errors of the estimate (a judge's own variance added), whatever interval the package prints.

The results that are kept also have estimators that were removed since ("shrunk", "smoothed"), as measured then.
"""

import argparse
import json
import subprocess
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import gammaln, ndtr

import memfluence as mf
from memfluence import designs
from memfluence.datasets import load
from memfluence.estimators import (
    adjusted_influence,
    adjusted_memorization,
    class_members,
    influence,
    memorization,
    real_influence,
    real_memorization,
)
from memfluence.records import Kind, Trials

STRONG = 0.05
Sizes = tuple[tuple[int, int], ...]
SIZES: Sizes = ((250, 6), (1000, 3))  # trials, samples of so many
TINY: dict[str, Any] = {"examples": 100, "sizes": ((60, 2),)}
Estimate = tuple[np.ndarray, np.ndarray]  # value and standard error


@dataclass
class Sample:
    """Trials with their margins, if there are any."""

    trials: Trials
    kinds: tuple[Kind, ...]
    labels: tuple[np.ndarray, np.ndarray]
    margins: tuple[np.ndarray, np.ndarray] | None = None  # (trials, n_train), (trials, n_test)
    earlier: tuple["Sample", ...] = ()  # the same trials after fewer epochs

    def rows(self, rows: np.ndarray) -> "Sample":
        margins = None if self.margins is None else (self.margins[0][rows], self.margins[1][rows])
        earlier = tuple(one.rows(rows) for one in self.earlier)
        return Sample(self.trials.select(rows), self.kinds, self.labels, margins, earlier)

    def bits(self, name: str, n: int) -> np.ndarray:
        return np.unpackbits(getattr(self.trials, name), axis=1, count=n, bitorder="little").astype(bool)


@dataclass
class Truth:
    memorization: np.ndarray  # (n_train,)
    influence: np.ndarray  # (pairs,) within classes, class by class
    variance: tuple[Any, Any] = (0.0, 0.0)  # of the two, where they are estimates themselves


def within_classes(estimates: Any, labels: tuple[np.ndarray, np.ndarray]) -> Estimate:
    """Values and errors of the pairs within classes, in the order of `Truth.influence`."""
    found = [estimates.block_with_errors(train, test) for _, train, test in class_members(*labels) if len(test)]
    return np.concatenate([f.value.ravel() for f in found]), np.concatenate([f.stderr.ravel() for f in found])


def of_memorization(found: Any) -> Estimate:
    return found.value, found.stderr


def estimates(sample: Sample) -> dict[str, tuple[Estimate | None, Estimate | None]]:
    """(memorization, influence) of every estimator that the sample allows."""
    trials, kinds, labels = sample.trials, sample.kinds, sample.labels
    found: dict[str, tuple[Estimate | None, Estimate | None]] = {}
    found["plain"] = (
        of_memorization(memorization(trials, kinds)),
        within_classes(influence(trials, kinds), labels),
    )
    found["adjusted"] = (
        of_memorization(adjusted_memorization(trials, kinds, labels[0])),
        within_classes(adjusted_influence(trials, kinds, *labels), labels),
    )
    found["memorization shrunk (own counts)"] = (nonparametric(trials), np.empty(0)), None
    if sample.earlier:
        found |= of_checkpoints(sample)
    if sample.margins is not None:
        kept = sample.bits("mask", trials.n_train)
        found["normal margins"] = (normal_memorization(sample.margins[0].astype(float), kept), np.empty(0)), None
    return found


def of_checkpoints(sample: Sample) -> dict[str, tuple[Estimate, Estimate]]:
    """Right and wrong, averaged over the checkpoints of each training."""
    trials, kinds, labels = sample.trials, sample.kinds, sample.labels
    every = (sample, *sample.earlier)
    train, test = (
        np.mean([one.bits(name, n) for one in every], axis=0, dtype=np.float32)
        for name, n in (("train_correct", trials.n_train), ("test_correct", trials.n_test))
    )
    return {
        f"{len(every)} checkpoints": (
            of_memorization(real_memorization(trials, kinds, train)),
            within_classes(real_influence(trials, kinds, test), labels),
        ),
        f"{len(every)} checkpoints, adjusted": (
            of_memorization(adjusted_memorization(trials, kinds, labels[0], outcome=train)),
            within_classes(adjusted_influence(trials, kinds, *labels, outcome=test), labels),
        ),
    }


def normal_memorization(margin: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """As if margins were normal: P[right] from their mean and variance in each arm."""
    sides = []
    for used in (kept, ~kept):
        mean = (margin * used).sum(0) / used.sum(0)
        sides.append(ndtr(mean / np.sqrt((((margin - mean) ** 2) * used).sum(0) / used.sum(0) + 1e-12)))
    return sides[0] - sides[1]


def nonparametric(trials: Trials, points: int = 21, steps: int = 60) -> np.ndarray:
    """Memorization by empirical Bayes: any joint distribution of the two accuracies on a grid, the likeliest one."""
    plain = memorization(trials, (Kind(0.5, None),))
    grid = np.clip(np.sin(np.linspace(0, np.pi / 2, points)) ** 2, 0.002, 0.998)
    sides = []
    for accuracy, count in ((plain.accuracy_in, plain.trials_in), (plain.accuracy_out, plain.trials_out)):
        right = np.round(accuracy * count)[:, None]
        log = right * np.log(grid) + (count[:, None] - right) * np.log1p(-grid)
        sides.append(np.exp(log - log.max(1, keepdims=True)))  # (n_train, points)
    weights = np.full((points, points), points**-2.0)
    for _ in range(steps):
        total = ((sides[0] @ weights) * sides[1]).sum(1)
        weights = weights * ((sides[0] / total[:, None]).T @ sides[1]) / len(total)
    total = ((sides[0] @ weights) * sides[1]).sum(1)
    first, second = (((sides[0] * grid) @ weights) * sides[1]).sum(1), ((sides[0] @ weights) * (sides[1] * grid)).sum(1)
    return (first - second) / total


def judged_by(sample: Sample) -> Truth:
    """The plain estimates of other trials, with their unbiased variances."""
    trials, kinds, labels = sample.trials, sample.kinds, sample.labels
    found = memorization(trials, kinds)
    variance = _variance(found.accuracy_in, found.trials_in) + _variance(found.accuracy_out, found.trials_out)
    whole = influence(trials, kinds)
    accuracy = sample.bits("test_correct", trials.n_test).mean(0)
    parts, variances = [], []
    for _, train, test in class_members(*labels):
        value = whole.block(train, test)
        n_in, n_out = found.trials_in[train][:, None], found.trials_out[train][:, None]
        right_in = accuracy[test] + value * n_out / len(trials)
        parts.append(value.ravel())
        variances.append((_variance(right_in, n_in) + _variance(right_in - value, n_out)).ravel())
    return Truth(found.value, np.concatenate(parts), (variance, np.concatenate(variances)))


def _variance(accuracy: np.ndarray, count: np.ndarray) -> np.ndarray:
    return accuracy * (1 - accuracy) / (count - 1)


def score(found: Estimate, truth: np.ndarray, variance: Any) -> dict[str, float]:
    value, stderr = found
    squared = (value - truth) ** 2 - variance
    known = np.isfinite(squared)
    scores = {"mse": float(squared[known].mean())}
    if stderr.size:
        inside = np.abs(value - truth) <= 1.96 * np.sqrt(stderr**2 + variance) + 1e-12
        scores["coverage"] = float(inside[known].mean())
    strong = known & (np.abs(truth) >= STRONG) & bool(np.sqrt(np.mean(variance)) < STRONG / 4)
    if strong.any():
        scores["mse_strong"] = float(squared[strong].mean())
        scores["slope"] = float((value * truth)[strong].sum() / (truth**2)[strong].sum())
        if stderr.size:
            scores["coverage_strong"] = float(inside[strong].mean())
    return scores


def compare(samples: list[tuple[Sample, Truth]], reference: dict[str, Any] | None = None) -> dict[str, Any]:
    """Scores of every estimator, means over samples; errors relative to the plain ones of the reference."""
    gathered: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample, truth in samples:
        for name, (mem, infl) in estimates(sample).items():
            for what, found, value, variance in (
                ("memorization", mem, truth.memorization, truth.variance[0]),
                ("influence", infl, truth.influence, truth.variance[1]),
            ):
                if found is not None:
                    for key, number in score(found, value, variance).items():
                        gathered[name][f"{what} {key}"].append(number)
    table: dict[str, Any] = {}
    plain = reference or {key: float(np.mean(numbers)) for key, numbers in gathered["plain"].items()}
    for name, columns in gathered.items():
        table[name] = {}
        for key, numbers in columns.items():
            mean = float(np.mean(numbers))
            table[name][key] = mean
            if "mse" in key and key in plain:
                ratios = np.array(numbers) / plain[key]
                table[name][f"{key} relative"] = float(ratios.mean())
                if len(ratios) > 1:
                    table[name][f"{key} relative stderr"] = float(ratios.std(ddof=1) / len(ratios) ** 0.5)
    return {"samples": len(samples), "trials": len(samples[0][0].trials), "estimators": table}


class Neighbours:
    """longtail, and the nearest kept neighbour in one of some fixed projections."""

    def __init__(self, noisy: bool, examples: int = 300, projections: int = 40) -> None:
        self.data = load(
            f"longtail?n_train={examples}&n_test={examples}&n_classes=5&subpopulations=100"
            "&dimension=8&spread=0.5&flip=0.1"
        )
        drawn = np.random.default_rng(0).standard_normal((projections, 8, 3)) if noisy else np.eye(8)[None]
        train, test = (
            np.einsum("nd,pdk->pnk", x, drawn)
            for x in (self.data.x_train.astype(float), self.data.x_test.astype(float))
        )
        both = np.concatenate([train, test], axis=1)  # (projections, examples, 3)
        self.labels = np.asarray(self.data.y_train), np.asarray(self.data.y_test)
        self.y = np.concatenate(self.labels)
        self.distance = np.sqrt(((both[:, :, None] - train[:, None]) ** 2).sum(-1))  # (projections, both, n_train)
        self.order = self.distance.argsort(axis=2, kind="stable")

    def sample(self, name: str, trials: int, seed: int) -> Sample:
        n = len(self.labels[0])
        design = designs.make(name, n_train=n, seed=seed)
        masks = np.array([design.trial(number).mask for number in range(trials)])
        rng = np.random.default_rng(seed + 10**6)
        margins = np.empty((trials, 2 * n), dtype=np.float32)
        same = self.y[:, None] == self.labels[0]
        for t, mask in enumerate(masks):
            distance = np.where(mask, self.distance[rng.integers(len(self.distance))], np.inf)  # (both, n_train)
            margins[t] = np.where(same, np.inf, distance).min(1) - np.where(same, distance, np.inf).min(1)
        right = margins > 0
        packed = [np.packbits(part, axis=1, bitorder="little") for part in (masks, right[:, :n], right[:, n:])]
        made = Trials(np.arange(trials), np.zeros(trials, np.int16), *packed, n, n)
        return Sample(made, design.kinds, self.labels, (margins[:, :n], margins[:, n:]))

    def exact_truth(self, subset_size: int) -> Truth:
        """Who the nearest kept neighbour is, with what probability, if an example is kept or left out."""
        n = len(self.labels[0])
        total = np.zeros((2 * n, n))  # (both, n_train)
        others = _first_kept(n - 1, subset_size - 1), _first_kept(n - 1, subset_size)
        for order in self.order:
            right = (self.labels[0][order] == self.y[:, None]).astype(float)  # (both, rank)
            before = [np.concatenate([np.zeros((2 * n, 1)), np.cumsum(right[:, :-1] * p, axis=1)], 1) for p in others]
            after = np.cumsum((right[:, 1:] * others[1])[:, ::-1], axis=1)[:, ::-1]  # (both, n - 1)
            none = 1 - np.concatenate([[0.0], np.cumsum(others[0])])  # (rank,) that no earlier one is kept
            kept = before[0] + none * right
            left_out = before[1] + np.concatenate([after, np.zeros((2 * n, 1))], 1)
            np.put_along_axis(total, order, np.take_along_axis(total, order, 1) + kept - left_out, 1)
        total /= len(self.order)
        pairs = [total[n + test][:, train].T.ravel() for _, train, test in class_members(*self.labels)]
        return Truth(np.diagonal(total[:n]).copy(), np.concatenate(pairs))


def _first_kept(n: int, kept: int) -> np.ndarray:
    """The probability (n,) that the first kept of n in a row is at each place, with so many kept."""

    def choose(a: np.ndarray, b: int) -> np.ndarray:
        return np.where(a >= b, gammaln(a + 1) - gammaln(b + 1) - gammaln(np.maximum(a - b, 0) + 1), -np.inf)

    return np.exp(choose(n - 1.0 - np.arange(n), kept - 1) - choose(np.array(float(n)), kept))


def covariates(sample: Sample, every: int = 7) -> dict[str, float]:
    """The share of variance of held-out outcomes (accuracy 10% to 90%) that accuracies of the same model leave."""
    trials, (train_labels, test_labels) = sample.trials, sample.labels
    kept, right = sample.bits("mask", trials.n_train), sample.bits("train_correct", trials.n_train).astype(float)
    test = sample.bits("test_correct", trials.n_test).astype(float)
    left: dict[str, list[float]] = defaultdict(list)
    for i in range(0, trials.n_train, every):
        out = ~kept[:, i]
        y = right[out, i]
        if 0.1 <= y.mean() <= 0.9:
            own = test[out][:, test_labels == train_labels[i]].mean(1)
            for name, x in (("accuracy on test", [test[out].mean(1)]), ("and on the class", [test[out].mean(1), own])):
                design = np.column_stack([np.ones(len(y)), *x])
                error = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
                left[name].append((error**2).sum() / (len(y) - design.shape[1]) / y.var(ddof=1))
    return {name: float(np.mean(values)) for name, values in left.items()} | {"n": float(len(left["and on the class"]))}


def controls(sample: Sample, count: int = 600) -> dict[str, float]:
    """The share of a test outcome's variance (accuracy 10% to 90%) that a ridge regression on others leaves.

    On trials left out, with the best of six penalties for all test examples: generous to the regression.
    """
    trials, (train_labels, test_labels) = sample.trials, sample.labels
    kept = sample.bits("mask", trials.n_train).astype(np.float32)
    right = sample.bits("test_correct", trials.n_test).astype(np.float32)
    accuracy = right.mean(0)
    kept, centred = kept - kept.mean(0), right - accuracy
    unsure = np.flatnonzero((accuracy > 0.1) & (accuracy < 0.9))
    some = np.random.default_rng(0).choice(unsure, min(count, len(unsure)), replace=False)
    of_all = centred @ centred.T  # (trials, trials)
    left: dict[str, np.ndarray] = {}
    for j in some:
        others = np.flatnonzero((test_labels == test_labels[j]) & (np.arange(trials.n_test) != j))
        own = train_labels == test_labels[j]
        kernels = {
            "all other test outcomes": of_all - np.outer(centred[:, j], centred[:, j]),
            "those of the class": centred[:, others] @ centred[:, others].T,
            "the masks of the class": kept[:, own] @ kept[:, own].T,
        }
        for name, kernel in kernels.items():
            errors = np.array([_left_out(kernel, right[:, j], penalty) for penalty in (0.3, 1, 3, 10, 30, 100)])
            left[name] = left.get(name, 0) + errors / len(some)
    return {name: float(errors.min()) for name, errors in left.items()} | {"n": float(len(some))}


def _left_out(kernel: np.ndarray, y: np.ndarray, penalty: float) -> float:
    """The mean squared error on trials left out in turn, over that of the mean of the others."""
    n = len(y)
    weight = kernel + penalty * np.trace(kernel) / n * np.eye(n)
    hat = kernel @ np.linalg.inv(weight) + 1 / n  # columns of the kernel are centred
    return float(np.mean(((y - hat @ y) / (1 - np.diag(hat))) ** 2) / np.mean(((y - y.mean()) * n / (n - 1)) ** 2))


def of_run(path: str) -> Sample:
    run = mf.open(path)
    margins = None
    if "train_margin" in run.info.columns:
        margins = run.store.read_extra("train_margin")[1], run.store.read_extra("test_margin")[1]
    return Sample(run.trials, run.info.kinds, run.label_codes, margins)


def of_file(path: str) -> Sample:
    """Trials in the format that `memfluence import` reads, all of one subset size."""
    with np.load(path) as file:
        mask, train, test = (file[name] for name in ("mask", "train_correct", "test_correct"))
        labels = file["train_labels"], file["test_labels"]
    size = int(mask[0].sum())
    assert (mask.sum(1) == size).all()
    packed = [np.packbits(part, axis=1, bitorder="little") for part in (mask, train, test)]
    trials = Trials(np.arange(len(mask)), np.zeros(len(mask), np.int16), *packed, mask.shape[1], test.shape[1])
    return Sample(trials, (Kind(size / mask.shape[1], size),), labels)


def longtail(noisy: bool, examples: int = 300, sizes: Sizes = SIZES) -> dict[str, Any]:
    world = Neighbours(noisy, examples)
    truth = world.exact_truth(round(0.7 * examples))
    found: dict[str, Any] = {}
    for number, samples in sizes:
        reference = None
        for design in ("fixed", "balanced"):
            some = [(world.sample(design, number, seed), truth) for seed in range(samples)]
            found[f"{design}, {number}"] = compare(some, reference)
            reference = reference or {
                key: value
                for key, value in found[f"fixed, {number}"]["estimators"]["plain"].items()
                if key.endswith(("mse", "mse_strong"))
            }
    return found


def digits(path: str, balanced: str | None, earlier: list[str]) -> dict[str, Any]:
    every = of_run(path)
    judge = judged_by(every.rows(np.arange(4000, len(every.trials))))
    every.earlier = tuple(map(of_run, earlier))
    assert all((one.trials.mask == every.trials.mask[: len(one.trials)]).all() for one in every.earlier)
    found: dict[str, Any] = {"judge": len(every.trials) - 4000}
    for number, samples in SIZES:
        some = [(every.rows(np.arange(k * number, (k + 1) * number)), judge) for k in range(samples)]
        found[f"fixed, {number}"] = compare(some)
        if balanced is not None:
            plain = found[f"fixed, {number}"]["estimators"]["plain"]
            other = of_run(balanced)
            some = [(other.rows(np.arange(k * number, (k + 1) * number)), judge) for k in range(samples)]
            reference = {key: value for key, value in plain.items() if key.endswith(("mse", "mse_strong"))}
            found[f"balanced, {number}"] = compare(some, reference)
    return found


def cifar100(path: str, draws: int = 2) -> dict[str, Any]:
    every = of_file(path) if path.endswith(".npz") else of_run(path)
    half = len(every.trials) // 2
    some = []
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(len(every.trials))
        some.append((every.rows(np.sort(order[:half])), judged_by(every.rows(np.sort(order[half:])))))
    unexplained = {"unexplained by accuracies": covariates(every), "unexplained by others": controls(every)}
    return {f"fixed, {half}": compare(some), **unexplained}


def shown(cell: str, found: dict[str, Any]) -> list[str]:
    """Rows of the table in docs/variance.md."""
    rows = []
    for name, columns in found["estimators"].items():

        def entry(key: str, columns: dict[str, float] = columns) -> str:
            if f"{key} relative" not in columns:
                return ""
            error = columns.get(f"{key} relative stderr")
            return f"{columns[f'{key} relative']:.2f}" + (f" ± {error:.2f}" if error is not None else "")

        def plain(key: str, columns: dict[str, float] = columns) -> str:
            return f"{columns[key]:.3f}" if key in columns else ""

        entries = (entry("memorization mse"), plain("memorization coverage"), entry("influence mse"))
        strong = (entry("influence mse_strong"), plain("influence slope"), plain("influence coverage_strong"))
        rows.append(f"| {cell} | {name} | " + " | ".join((*entries, plain("influence coverage"), *strong)) + " |")
    return rows


def tables(results: dict[str, Any]) -> str:
    """All results as the tables of docs/variance.md."""
    lines = []
    for world, found in results.items():
        cells = {cell: one for cell, one in found.items() if isinstance(one, dict) and "estimators" in one}
        samples = ", ".join(f"{one['samples']} samples of {cell}" for cell, one in cells.items())
        judge = f", judged by {found['judge']} others" if "judge" in found else ""
        lines += [f"**{world}** (commit {found['commit']}; {samples} trials{judge}).", "", *HEAD]
        lines += [row for cell, one in cells.items() for row in shown(cell, one)]
        if "unexplained by accuracies" in found:
            left = found["unexplained by accuracies"]
            lines += ["", "Share of a held-out outcome's variance that is left by the model's "]
            lines[-1] += ", ".join(f"{name}: {share:.4f}" for name, share in left.items() if name != "n")
            lines[-1] += f" ({left['n']:.0f} training examples whose held-out accuracy is 10% to 90%)."
        if "unexplained by others" in found:
            left = found["unexplained by others"]
            lines += [
                "",
                "Share of a test outcome's variance, on trials left out, that is left by a ridge regression on ",
            ]
            lines[-1] += ", ".join(f"{name}: {share:.4f}" for name, share in left.items() if name != "n")
            lines[-1] += f" ({left['n']:.0f} test examples whose accuracy is 10% to 90%)."
        lines.append("")
    return "\n".join(lines)


START, END = "<!-- tables -->", "<!-- end of tables -->"
HEAD = (
    "| design, trials | estimator | memorization | coverage | influence | coverage | strong pairs | slope | coverage |",
    "|---|---|---|---|---|---|---|---|---|",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--digits", help="a run of digits with margins, 24,000 trials")
    parser.add_argument("--balanced", help="another with the balanced design, 4000 trials or more")
    parser.add_argument("--earlier", action="append", default=[], help="like --digits, after fewer epochs; repeatable")
    parser.add_argument("--cifar100", action="append", default=[], metavar="NAME=RUN|FILE.npz")
    parser.add_argument("--no-longtail", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="a longtail of seconds, to try the script")
    parser.add_argument("--docs", type=Path, help="write all results into the tables of docs/variance.md")
    parser.add_argument("--out", type=Path, help="JSON; what is there already is kept")
    options = parser.parse_args()
    work: dict[str, Callable[[], dict[str, Any]]] = {}
    if not options.no_longtail:
        sizes = TINY if options.tiny else {}
        work["longtail, noiseless"] = lambda: longtail(False, **sizes)
        work["longtail, noisy"] = lambda: longtail(True, **sizes)
    if options.digits:
        work["digits"] = lambda: digits(options.digits, options.balanced, options.earlier)
    for given in options.cifar100:
        name, _, path = given.partition("=")
        work[f"CIFAR-100 ({name})"] = lambda path=path: cifar100(path)  # type: ignore[misc]
    results = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    for name, measure in work.items():
        results[name] = measure() | {"commit": commit}
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(results, indent=1) + "\n")
        print(tables({name: results[name]}), flush=True)
    if options.docs:
        before, _, rest = options.docs.read_text().partition(START)
        options.docs.write_text(before + START + "\n" + tables(results) + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
