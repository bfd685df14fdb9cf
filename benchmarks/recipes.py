"""Recipes side by side: seconds a model, accuracy, and how much influence each gives published pairs.

    python benchmarks/recipes.py npz:cifar100.npz --published cifar100_high_infl_pairs_infl0.15_mem0.25.npz \
        "resnet9@fast" "resnet18@fast" "resnet18@fast epochs=14 muon_rate=0.12"

A recipe is the name of a learner with settings. All recipes train on the same random 70% subsets, one model after
another; the first model (or group) of each captures and compiles, so its time does not count, but its outcome does. The
last column is the mean over the published pairs of a model's influence estimate, with its standard error from a
bootstrap over the trials.

The outcomes are saved after every group. The same command trains only what is missing, so a search goes on where it was
stopped; `--seconds` stops it in time. With `--show`, nothing is trained.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from memfluence import designs
from memfluence.datasets import Dataset, load
from memfluence.learners import resolve
from memfluence.records import Outcome

BOOTSTRAP = 200  # draws: the standard error's own error is then 5%


class Found:
    """The outcomes of one recipe, in a file of their own."""

    def __init__(self, folder: Path, recipe: str, data: Dataset) -> None:
        name = "".join(c if c.isalnum() or c in ".@" else "-" for c in recipe)
        self.recipe, self._data, self._file = recipe, data, folder / f"{name}.npz"
        self._rows: list[tuple[int, float, np.ndarray, np.ndarray, np.ndarray]] = []
        if self._file.exists():
            with np.load(self._file) as saved:
                bits = [np.unpackbits(saved[key], axis=1).view(bool) for key in ("mask", "train", "test")]
                mask, train, test = bits[0][:, : data.n_train], bits[1][:, : data.n_train], bits[2][:, : data.n_test]
                self._rows = list(zip(saved["trial"].tolist(), saved["seconds"].tolist(), mask, train, test))

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, outcomes: list[Outcome], seconds: float) -> None:
        """Keep the outcomes of a group; `seconds` a model are NaN where the first one compiled."""
        self._rows += [(one.trial, seconds, one.mask, one.train_correct, one.test_correct) for one in outcomes]
        trial, spent, *bits = zip(*self._rows)
        mask, train, test = (np.packbits(np.array(one), axis=1) for one in bits)
        partial = self._file.with_suffix(".partial.npz")
        np.savez(partial, trial=trial, seconds=spent, mask=mask, train=train, test=test)
        partial.replace(self._file)

    def summary(self, pairs: tuple[np.ndarray, np.ndarray] | None) -> dict[str, Any]:
        _, seconds, *bits = zip(*self._rows)
        mask, train, test = (np.array(one) for one in bits)
        timed = np.array(seconds)[np.isfinite(seconds)]
        per_model = {"kept": _shares(train, mask), "held_out": _shares(train, ~mask), "test": test.mean(axis=1)}
        found: dict[str, Any] = {"recipe": self.recipe, "models": len(mask), "timed": len(timed)}
        found["seconds"] = float(np.median(timed)) if len(timed) else None
        for name, values in per_model.items():
            found[name] = float(values.mean())
            found[f"{name}_stderr"] = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
        if pairs is not None:
            found |= influence_of_pairs(mask[:, pairs[0]], test[:, pairs[1]])
        return found


def _shares(right: np.ndarray, of: np.ndarray) -> np.ndarray:
    """The share of right answers among some examples, for each model: (models,)."""
    return (right & of).sum(axis=1) / of.sum(axis=1)


def influence_of_pairs(kept: np.ndarray, right: np.ndarray) -> dict[str, float | None]:
    """Mean influence over pairs, from (trials, pairs) kept training examples and right test examples.

    A pair whose training example all trials keep, or none, has no estimate and does not count.
    """

    def mean(rows: np.ndarray) -> float:
        mask, outcome = kept[rows], right[rows]
        there, away = mask.sum(axis=0), (~mask).sum(axis=0)  # (pairs,)
        known = (there > 0) & (away > 0)
        with_it = (mask & outcome).sum(axis=0)[known] / there[known]
        without = (~mask & outcome).sum(axis=0)[known] / away[known]
        return float((with_it - without).mean()) if known.any() else float("nan")

    rng = np.random.default_rng(0)
    draws = [mean(rng.integers(0, len(kept), len(kept))) for _ in range(BOOTSTRAP)]
    value, error = mean(np.arange(len(kept))), float(np.nanstd(draws, ddof=1))
    return {"influence": value if np.isfinite(value) else None, "influence_stderr": error if len(kept) > 1 else None}


def train(found: Found, data: Dataset, trials: int, device: str, until: float, saved: Callable[[], None]) -> None:
    """Train what is missing of one recipe, until the time is over."""
    name, *settings = found.recipe.split()
    learner = resolve(name, dict(one.split("=", 1) for one in settings))
    size = learner.group_size(data, device)
    design = designs.make("fixed", n_train=data.n_train)
    first = True
    while len(found) < trials and time.monotonic() < until:
        group = [design.trial(len(found) + k) for k in range(size)]
        started = time.monotonic()
        outcomes = [one for one in learner.train(data, group, record=(), device=device) if isinstance(one, Outcome)]
        if len(outcomes) < size:
            print(f"{found.recipe}: a model failed", flush=True)
            return
        found.add(outcomes, float("nan") if first else (time.monotonic() - started) / size)
        first = False
        saved()


def table(rows: list[dict[str, Any]]) -> str:
    def shown(row: dict[str, Any], name: str, scale: float, digits: int) -> str:
        value, error = row.get(name), row.get(f"{name}_stderr")
        text = "-" if value is None else f"{value * scale:.{digits}f}"
        return text if error is None else f"{text} +- {error * scale:.{digits}f}"

    lines = [
        "| recipe | models | seconds | test % | kept % | influence on the published pairs |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['recipe']} | {row['models']} | {shown(row, 'seconds', 1, 2)} | {shown(row, 'test', 100, 2)}"
        f" | {shown(row, 'kept', 100, 2)} | {shown(row, 'influence', 1, 4)} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="as in `memfluence run`, such as npz:cifar100.npz")
    parser.add_argument("recipes", nargs="+", help='a learner, with settings: "resnet18@fast epochs=14"')
    parser.add_argument("--published", help=".npz with tr_idx and tt_idx, the published pairs")
    parser.add_argument("--trials", type=int, default=20, help="models of each recipe")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("runs/recipes"), help="where the outcomes are kept")
    parser.add_argument("--show", action="store_true", help="show what was trained before, and train nothing")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    data, until = load(options.dataset), time.monotonic() + options.seconds
    pairs = None
    if options.published:
        with np.load(options.published) as file:
            pairs = file["tr_idx"], file["tt_idx"]
    rows: dict[str, dict[str, Any]] = {}
    for recipe in options.recipes:
        found = Found(options.out, recipe, data)

        def save(found: Found = found) -> None:
            rows[found.recipe] = found.summary(pairs)
            (options.out / "recipes.json").write_text(json.dumps(list(rows.values()), indent=2) + "\n")

        if not options.show:
            train(found, data, options.trials, options.device, until, save)
        if len(found):
            save()
    print(table(list(rows.values())))


if __name__ == "__main__":
    main()
