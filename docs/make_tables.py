"""Make the tables of docs/statistics.md: python docs/make_tables.py [NAME ...]

Each table stands between two comments that name it, and only those asked for are made anew (all by default, some ten
minutes on two cores). The studies are those of tests/studies.py, in full; the numbers depend on their seeds alone.

    python docs/make_tables.py cifar100 --trials TRIALS.npz --published PAIRS.npz

writes docs/results/cifar100-pairs.md instead: pairs with error control from real trials, and how many published ones
they contain.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "tests"))
import studies  # noqa: E402

Row = Mapping[str, Any]


def markdown(rows: Iterable[Row], digits: int = 3) -> str:
    """A table; names that differ by blanks at their end alone are told apart by their place."""
    rows = list(rows)
    lines = ["| " + " | ".join(name.strip() for name in rows[0]) + " |", "|" + "---|" * len(rows[0])]
    return "\n".join(
        [*lines, *("| " + " | ".join(cell(value, digits) for value in row.values()) + " |" for row in rows)]
    )


def cell(value: Any, digits: int) -> str:
    if isinstance(value, str):
        return value
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:.{digits}f}" if abs(value) < 10 else f"{value:.1f}"


def coverage(**sizes: Any) -> str:
    cells = {name: studies.coverage(name, **sizes) for name in studies.INTERVALS}

    def summary(name: str) -> Row:
        rows = cells[name]
        worst = min(rows, key=lambda row: float(row["exact"]))
        return {
            "interval": name,
            "lowest cell": percent(worst["exact"]),
            "where": f"{worst['a']} and {worst['b']}, p = {worst['p']}, q = {worst['q']}",
            "lowest, simulated": percent(min(row["simulated"] for row in rows)),
            "mean, 0.1 <= p, q <= 0.9": percent(np.mean([row["exact"] for row in rows if row["inner"]])),
            "simulated": percent(np.mean([row["simulated"] for row in rows if row["inner"]])),
            "width / Newcombe's: mean": np.mean([row["width"] for row in rows]),
            "largest": max(row["width"] for row in rows),
        }

    parts = [markdown(summary(name) for name in cells)]
    used = cells["Agresti-Caffo (used)"]
    for a, b in sizes.get("sizes", studies.ARMS):
        rows = []
        for p in studies.PROPORTIONS:
            of_row = [row for row in used if (row["a"], row["p"]) == (a, p)]
            rows.append(
                {f"p \\ q ({a} and {b})": f"{p:g}"} | {f"{row['q']:g}": percent(row["simulated"]) for row in of_row}
            )
        parts.append(markdown(rows))
    return "\n\n".join(parts)


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def false_discoveries(**sizes: Any) -> str:
    parts = []
    for title, options in (
        ("Benjamini-Hochberg", {}),
        ("Benjamini-Hochberg, strong common cause", {"shared": 2.0}),
        ("Benjamini-Hochberg, masks of fixed size", {"fixed": True}),
        ("Benjamini-Yekutieli", {"any_dependence": True}),
        ("Benjamini-Hochberg, null: influence <= 0.05", {"null": 0.05}),
    ):
        parts += [{"procedure": title} | row for row in studies.false_discoveries(**sizes, **options)]
    return markdown(parts)


TABLES: dict[str, Callable[..., str]] = {
    "coverage": coverage,
    "clusters": lambda **sizes: markdown(studies.cluster_coverage(**sizes)),
    "false-discoveries": false_discoveries,
    "by-chance": lambda **sizes: markdown(studies.by_chance(**sizes) + studies.by_chance(shared=2.0, **sizes), 2),
    "selection-bias": lambda **sizes: markdown(studies.selection_bias(**sizes)),
    "run-to-run": lambda **sizes: markdown(studies.run_to_run(**sizes), 4),
    "predictions": lambda **sizes: markdown(studies.predictions(**sizes), 2),
    "lemma": lambda **sizes: markdown(studies.lemma_errors(**sizes), 5),
}
TINY: dict[str, dict[str, Any]] = {  # sizes of the studies that take seconds in all
    "coverage": {"worlds": 10, "sizes": studies.ARMS[:1]},
    "clusters": {"runs": 2, "trials": 60},
    "false-discoveries": {"counts": (100,), "worlds": 2},
    "by-chance": {"counts": (100,), "worlds": 2},
    "selection-bias": {"counts": (100,), "worlds": 2},
    "run-to-run": {"counts": (100,), "runs": 4, "repeats": 1},
    "predictions": {"counts": (100,), "worlds": 1, "runs": 2},
    "lemma": {"counts": (50,), "shares": (0.5,), "work": 1000},
}


def put(page: Path, name: str, table: str) -> None:
    begin, end = f"<!-- table {name} -->", f"<!-- end {name} -->"
    before, _, rest = page.read_text().partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"{page} has no place for the table {name}; it needs '{begin}' and '{end}'.")
    page.write_text(f"{before}{begin}\n{table}\n{end}{after}")


def cifar100(trials: Path, published: Path, docs: Path) -> None:
    """Pairs with error control from real trials, by the command line, and how many published ones they contain."""
    with np.load(published) as file:
        theirs = set(zip(file["tr_idx"].tolist(), file["tt_idx"].tolist()))
    with tempfile.TemporaryDirectory() as directory:
        run = str(Path(directory) / "run")
        memfluence("import", str(trials), "--out", run)
        rows = []
        for options in (
            ["--infl", "0.15"],
            ["--fdr", "0.1"],
            ["--fdr", "0.2"],
            ["--fdr", "0.1", "--by"],
            ["--fdr", "0.2", "--by"],
            ["--fdr", "0.1", "--null", "0.15"],
        ):
            found = memfluence("pairs", run, *options, "--permutations", "20")
            ours = {(row["train_index"], row["test_index"]) for row in found["pairs"]}
            summary = found["summary"]
            chance = f"{summary['expected_by_chance']:.1f} ± {summary['expected_by_chance_sd']:.1f}"
            rows.append(
                {"memfluence pairs RUN ...": " ".join(options), "pairs": summary["pairs"], "by chance": chance}
                | {"of the published": len(ours & theirs), "share published": len(ours & theirs) / max(1, len(ours))}
            )
        spread = memfluence("pairs", run, "--stability")["summary"]
        corrected = memfluence("pairs", run, "--cross-fit")["summary"]
        plan = memfluence("plan", "--run", run, "--stderr", "0.02", "--jaccard", "0.7", "--fdr", "0.1")
    text = PAGE.format(
        commit=commit(),
        trials=plan["trials"],
        published=len(theirs),
        tested=found["summary"]["tested"],
        table=markdown(rows),
        pairs=spread["pairs"],
        pairs_stderr=spread["pairs_stderr"],
        jaccard=spread["expected_jaccard"],
        rows=corrected["pairs"],
        raw=corrected["mean_influence_selecting"],
        corrected=corrected["mean_influence"],
        needed="\n".join(f"- {needed(name, target)}" for name, target in plan["targets"].items()),
        predictions=markdown(plan["predictions"], 2),
    )
    (docs / "results" / "cifar100-pairs.md").write_text(text)


def needed(name: str, target: Row) -> str:
    trials = target.get("lemma_design_trials")
    lemma = "" if trials is None else f" (the Lemma, for the design `lemma`: {trials:,})"
    return f"{name} {target['target']:g}: {target['trials']:,} trials{lemma}"


def commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=DOCS, stdout=subprocess.PIPE, text=True)
    return found.stdout.strip()


def memfluence(*arguments: str) -> Any:
    command = [sys.executable, "-m", "memfluence", *arguments, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


PAGE = """# CIFAR-100: what error control leaves of a list of pairs

Made by `python docs/make_tables.py cifar100 --trials TRIALS.npz --published PAIRS.npz` (commit {commit}), from {trials}
trials of a ResNet-9 (30 epochs, 70% subsets) and the {published:,} pairs that the paper's authors published (ResNet-50,
4000 trials).

{tested:,} pairs are tested: memorized training examples (0.25 or more) with all test examples of their class. "By
chance" is the number from permuted masks, memorized set held fixed, with its standard deviation over 20 permutations:
with the same thresholds, or at the p-value at which the procedure cut.

{table}

From run to run the {pairs:,} pairs above both thresholds would vary by {pairs_stderr:.0f} (standard deviation), and two
runs would share pairs with a Jaccard index of {jaccard:.2f}.

Selected on one half of the trials and estimated on the other, both ways ({rows:,} rows): mean influence {raw:.3f} in
the selecting half, {corrected:.3f} in the other. Nearly all of it is selection.

What it would take, predicted from these trials (`memfluence plan --run RUN --stderr 0.02 --jaccard 0.7 --fdr 0.1`):

{needed}

{predictions}
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(TABLES)}, or cifar100")
    parser.add_argument("--trials", type=Path)
    parser.add_argument("--published", type=Path)
    parser.add_argument("--tiny", action="store_true", help="studies of seconds, to try the script")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the pages")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - {*TABLES, "cifar100"}:
        parser.error(f"There is no table {sorted(unknown)[0]}; choose from {', '.join(TABLES)}, cifar100.")
    for name in options.names or TABLES:
        started = time.monotonic()
        if name == "cifar100":
            if not options.trials or not options.published:
                parser.error("cifar100 needs --trials and --published.")
            cifar100(options.trials, options.published, options.docs)
        else:
            note = f"`python docs/make_tables.py {name}`, commit {commit()}."
            sizes = TINY[name] if options.tiny else {}
            put(options.docs / "statistics.md", name, f"{TABLES[name](**sizes)}\n\n{note}")
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
