"""How much masks explain, and so what no estimator can beat: the table and the figure on top of docs/variance.md.

    memfluence run digits --trials 2000 --design repeats:10 --out runs/digits-repeats
    python benchmarks/explained.py --digits runs/digits-repeats

The worlds of `benchmarks/variance.py`, with 10 models for each of 200 masks where they can be trained: both long tails
and digits. CIFAR-100 has no such run: there two learners on the same masks give a lower bound of what masks explain,
from the runs in results/. What `adjusted` reaches is taken from `benchmarks/results/variance.json`.
"""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import memfluence as mf
from memfluence.estimators import arms
from memfluence.findings.limit import Explained, explained_by_both, explained_of_memorization, explained_of_test
from memfluence.store import TrialStore
from variance import Neighbours

HERE = Path(__file__).resolve().parent
MODELS = 10  # for each mask
BEGIN, END = "<!-- limit -->\n", "<!-- end of limit -->"
MEASURED = {  # in variance.json: world, design and trials
    "longtail, noiseless": ("longtail, noiseless", "fixed, 1000"),
    "longtail, noisy": ("longtail, noisy", "fixed, 1000"),
    "digits": ("digits", "fixed, 1000"),
    "CIFAR-100": ("CIFAR-100 (247)", "fixed, 123"),
}


def neighbours(noisy: bool, masks: int) -> dict[str, Any]:
    made = Neighbours(noisy).sample(f"repeats:{MODELS}", MODELS * masks, seed=0)
    return _explained(arms(replace(made.trials, repeats=MODELS), made.kinds))


def digits(path: str) -> dict[str, Any]:
    return _explained(mf.open(path).influence_estimates().arms)


def _explained(chosen: Any) -> dict[str, Any]:
    found = {"influence": explained_of_test(chosen), "memorization": explained_of_memorization(chosen)}
    return {name: asdict(one) for name, one in found.items() if one is not None}


def cifar100(one: str, other: str) -> dict[str, Any]:
    first, second = (TrialStore.open(path).read()[0] for path in (one, other))
    found: Explained = explained_by_both(first, second)
    return {"at least": asdict(found), "runs": [Path(one).name, Path(other).name]}


def rows_of(found: dict[str, Any], measured: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for name, one in found.items():
        world, size = MEASURED[name]
        adjusted = measured.get(world, {}).get(size, {}).get("estimators", {}).get("adjusted", {})
        for what, key in (("influence", "influence mse relative"), ("memorization", "memorization mse relative")):
            limit = one.get(what) or (one.get("at least") if what == "influence" else None)
            rows.append(
                {
                    "world": name,
                    "what": what,
                    "trials": size.split()[-1],
                    "adjusted": adjusted.get(key),
                    "explained": limit,
                    "is_bound": what in one,
                }
            )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| world | error of | masks explain | no estimator below | `adjusted` reaches | with trials |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        limit = row["explained"]
        share = f"{limit['share']:.1%} ± {limit['stderr']:.1%}" if limit else "not known"
        if limit and not row["is_bound"]:
            share = f"at least {share}"
        below = f"{1 - min(1.0, max(0.0, limit['share'])):.2f}" if row["is_bound"] else "not known"
        reached = "" if row["adjusted"] is None else f"{row['adjusted']:.2f}"
        lines.append(f"| {row['world']} | {row['what']} | {share} | {below} | {reached} | {row['trials']} |")
    return "\n".join(lines) + "\n"


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    influence = [row for row in rows if row["what"] == "influence"]
    figure, axes = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    for place, row in enumerate(influence):
        limit = row["explained"]
        bound = 1 - min(1.0, max(0.0, limit["share"]))
        bars = [(1.0, "#c8c8c8", "Algorithm 1"), (row["adjusted"], "#4a7fb5", "adjusted")]
        for offset, (height, color, label) in zip((-0.26, 0.0), bars):
            axes.bar(place + offset, height or 0.0, 0.24, color=color, label=label if not place else None)
        if row["is_bound"]:
            axes.bar(place + 0.26, bound, 0.24, color="#d98032", label="no estimator below" if not place else None)
            axes.text(place + 0.26, bound + 0.01, f"{bound:.2f}", ha="center", fontsize=8, color="#a05a1c")
        else:
            axes.annotate(
                f"at most {bound:.2f},\nhow far below\nis not known",
                (place + 0.16, bound),
                (place + 0.16, 0.42),
                fontsize=7.5,
                color="#a05a1c",
                arrowprops={"arrowstyle": "-", "color": "#d98032"},
            )
    axes.set_xticks(range(len(influence)), [f"{row['world']}\n{row['trials']} trials" for row in influence], fontsize=9)
    axes.set_ylabel("squared error of influence,\nAlgorithm 1 = 1")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="upper center", ncols=3, bbox_to_anchor=(0.5, 1.16))
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--digits", help="a run of digits with a repeats design")
    parser.add_argument("--masks", type=int, default=200, help="of the long tails")
    results = HERE.parent / "results"
    runs = [str(results / name) for name in ("cifar100-resnet9-fast", "cifar100-resnet9-10-epochs")]
    parser.add_argument("--cifar100", nargs="*", default=runs, help="two runs on the same masks; none: leave it out")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "explained.json")
    parser.add_argument("--docs", type=Path, default=HERE.parent / "docs" / "variance.md")
    parser.add_argument("--image", type=Path, default=HERE.parent / "docs" / "images" / "limit.png")
    options = parser.parse_args()
    found = json.loads(options.out.read_text()) if options.out.is_file() else {}
    found["longtail, noiseless"] = neighbours(False, options.masks)
    found["longtail, noisy"] = neighbours(True, options.masks)
    if options.digits:
        found["digits"] = digits(options.digits)
    if options.cifar100:
        found["CIFAR-100"] = cifar100(*options.cifar100)
    found = {name: found[name] for name in MEASURED if name in found}
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    rows = rows_of(found, json.loads((HERE / "results" / "variance.json").read_text()))
    draw(rows, options.image)
    page = options.docs.read_text()
    before, _, rest = page.partition(BEGIN)
    options.docs.write_text(before + BEGIN + table(rows) + END + rest.partition(END)[2])
    print(table(rows))


if __name__ == "__main__":
    main()
