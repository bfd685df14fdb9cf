"""The arithmetic and the simulation of docs/scaling.md: python docs/simulate_cluster.py [--write]

Prints two tables: what 2000 ResNet-50 trials on ImageNet take on 64 GPUs, and how node failures and checkpoints change
that. Everything assumed is an option; --write puts the tables of the defaults into the page.

The simulation is of events. Trials are handed out in order, one to a GPU. Nodes fail, each at a constant rate while it
is up, and come back later; the trials on a failed node go back to the front of the queue and go on, on whichever GPU is
free first, from their last checkpoint. A checkpoint is written after every so many hours of training and takes a while
itself; a trial that starts or goes on needs a while, too, before it trains.
"""

import argparse
import heapq
import math
import statistics
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

PAGE = Path(__file__).resolve().parent / "scaling.md"
MASK_TRIALS = 4  # of the segment whose size is measured


@dataclass(frozen=True)
class Assumed:
    """What the plan starts from. None of it is measured here: put in your own numbers."""

    n_train: int = 1_281_167
    n_test: int = 50_000
    classes: int = 1000
    trials: int = 2000
    keep: float = 0.7
    epochs: int = 100  # the paper's recipe, resnet50@imagenet
    images_per_second: float = 2500.0  # one GPU trains so many 224 x 224 pictures a second in bfloat16
    nodes: int = 8
    gpus_per_node: int = 8
    price: float = 2.5  # dollars per GPU hour
    file_kilobytes: float = 110.0  # of a JPEG, on average
    cores_per_image: float = 1 / 150  # seconds of a core to decode one
    megabytes_of_state: float = 205.0  # of a checkpoint: 25.6 million float32 weights and their momentum
    checkpoint_minutes: float = 10.0
    checkpoint_seconds: float = 2.0  # to write one
    restart_minutes: float = 3.0  # to notice, start a worker, load data and the checkpoint
    node_days_between_failures: float = 60.0
    repair_hours: float = 1.0  # until a failed node or its replacement is back

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def trial_hours(self) -> float:
        return self.epochs * round(self.keep * self.n_train) / self.images_per_second / 3600


@dataclass(frozen=True)
class Cluster:
    """What is simulated, in hours."""

    trials: int
    nodes: int
    gpus_per_node: int
    trial: float  # of training in a trial
    every: float = math.inf  # training between checkpoints
    writing: float = 0.0  # a checkpoint
    starting: float = 0.0  # a trial, or going on with one
    between_failures: float = math.inf  # of a node, on average
    repair: float = 0.0


@dataclass(frozen=True)
class Course:
    """How it went."""

    hours: float
    failures: int
    lost: float  # GPU hours trained and not kept
    busy: float  # share of the GPU hours, up or down, that trained what was kept


@dataclass
class _Node:
    up: bool = True
    running: dict[int, tuple[int, float]] = field(default_factory=dict)  # GPU -> (trial, since when)


def saved(cluster: Cluster, before: float, elapsed: float) -> float:
    """Hours of a trial's training in its checkpoint, so long after it was started with `before` of them."""
    trained = max(0.0, elapsed - cluster.starting)
    if math.isinf(cluster.every):
        return 0.0
    return before + cluster.every * math.floor(trained / (cluster.every + cluster.writing) + 1e-12)


def needed(cluster: Cluster, before: float) -> float:
    """Hours until a trial ends that starts with so much of its training done; nothing is written at its end."""
    left = cluster.trial - before
    checkpoints = 0 if math.isinf(cluster.every) else math.ceil(left / cluster.every - 1e-12) - 1
    return cluster.starting + left + checkpoints * cluster.writing


def simulate(cluster: Cluster, rng: np.random.Generator) -> Course:
    """One course of events, until the last trial has ended."""
    waiting = deque(range(cluster.trials))
    kept = dict.fromkeys(waiting, 0.0)  # hours of training in the checkpoint
    nodes = [_Node() for _ in range(cluster.nodes)]
    events: list[tuple[float, int, str, Any]] = []  # time, order, kind, whom
    failures, lost, done, now, count = 0, 0.0, 0, 0.0, 0

    def at(time: float, kind: str, whom: Any) -> None:
        nonlocal count
        count += 1
        heapq.heappush(events, (time, count, kind, whom))

    def next_failure(node: int) -> None:
        if math.isfinite(cluster.between_failures):
            at(now + rng.exponential(cluster.between_failures), "fail", node)

    def hand_out() -> None:
        for number, node in enumerate(nodes):
            for gpu in range(cluster.gpus_per_node):
                if waiting and node.up and gpu not in node.running:
                    trial = waiting.popleft()
                    node.running[gpu] = trial, now
                    at(now + needed(cluster, kept[trial]), "end", (number, gpu, trial, now))

    for number in range(cluster.nodes):
        next_failure(number)
    hand_out()
    while done < cluster.trials:
        now, _, kind, whom = heapq.heappop(events)
        if kind == "end":
            number, gpu, trial, since = whom
            if nodes[number].running.get(gpu) != (trial, since):
                continue  # it was lost before
            del nodes[number].running[gpu]
            done += 1
        elif kind == "fail":
            failures += 1
            node = nodes[whom]
            for trial, since in reversed(node.running.values()):
                before = kept[trial]
                kept[trial] = max(before, saved(cluster, before, now - since))
                lost += now - since - (kept[trial] - before)
                waiting.appendleft(trial)
            node.running, node.up = {}, False
            at(now + cluster.repair, "back", whom)
        else:
            nodes[whom].up = True
            next_failure(whom)
        hand_out()
    useful = cluster.trials * cluster.trial
    return Course(now, failures, lost, useful / (now * cluster.nodes * cluster.gpus_per_node))


def cluster_of(assumed: Assumed) -> Cluster:
    return Cluster(
        trials=assumed.trials,
        nodes=assumed.nodes,
        gpus_per_node=assumed.gpus_per_node,
        trial=assumed.trial_hours,
        every=assumed.checkpoint_minutes / 60,
        writing=assumed.checkpoint_seconds / 3600,
        starting=assumed.restart_minutes / 60,
        between_failures=24 * assumed.node_days_between_failures,
        repair=assumed.repair_hours,
    )


def scenarios(assumed: Assumed) -> dict[str, Cluster]:
    usual = cluster_of(assumed)
    spot = replace(usual, between_failures=24.0)
    days = f"{assumed.node_days_between_failures:g} days"
    often = f"every {assumed.checkpoint_minutes:g} min"
    return {
        f"no failures | {often}": replace(usual, between_failures=math.inf),
        f"{days} | {often}": usual,
        f"{days} | every hour": replace(usual, every=1.0),
        f"{days} | never": replace(usual, every=math.inf),
        f"1 day (spot) | {often}": spot,
        "1 day (spot) | every hour": replace(spot, every=1.0),
        "1 day (spot) | never": replace(spot, every=math.inf),
    }


def simulation(assumed: Assumed, repeats: int, seed: int) -> str:
    lines = [
        "| node fails every | checkpoint | days | failures | GPU hours lost | busy | dollars |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, (name, cluster) in enumerate(scenarios(assumed).items()):
        courses = [simulate(cluster, np.random.default_rng([seed, number, one])) for one in range(repeats)]

        def mean(what: str, courses: list[Course] = courses) -> float:
            return statistics.mean(getattr(course, what) for course in courses)

        dollars = mean("hours") * assumed.gpus * assumed.price
        lines.append(
            f"| {name} | {mean('hours') / 24:.1f} | {mean('failures'):.0f} | {mean('lost'):,.0f} | {mean('busy'):.0%} |"
            f" {dollars:,.0f} |"
        )
    return "\n".join(lines)


def bytes_per_trial(assumed: Assumed, *, prediction: bool = False) -> int:
    """Of a real segment, compressed, whose models are right on 99% of what they saw and on 75% of the rest."""
    from memfluence.records import Kind, Outcome
    from memfluence.store import RunInfo, segment_columns
    from memfluence.store.segments import encode

    rng = np.random.default_rng(0)
    outcomes = []
    for trial in range(MASK_TRIALS):
        mask = np.zeros(assumed.n_train, bool)
        mask[rng.permutation(assumed.n_train)[: round(assumed.keep * assumed.n_train)]] = True
        right = rng.random(assumed.n_train) < np.where(mask, 0.99, 0.75)
        extras = {}
        if prediction:
            sizes = {"train_prediction": assumed.n_train, "test_prediction": assumed.n_test}
            extras = {name: rng.integers(assumed.classes, size=n, dtype=np.int16) for name, n in sizes.items()}
        outcomes.append(Outcome(trial, 0, mask, right, rng.random(assumed.n_test) < 0.75, extras))
    record = ("prediction",) if prediction else ()
    data = {"fingerprint": "", "n_train": assumed.n_train, "n_test": assumed.n_test}
    kinds = (Kind(assumed.keep, round(assumed.keep * assumed.n_train)),)
    info = RunInfo(data, None, None, kinds, MASK_TRIALS, record=record, columns=segment_columns(record))
    return len(encode(outcomes, info)) // MASK_TRIALS


def arithmetic(assumed: Assumed) -> str:
    """The plan without failures, each line with its sum."""
    a = assumed
    subset = round(a.keep * a.n_train)
    packed = 2 * -(-a.n_train // 8) + -(-a.n_test // 8)
    stored, predicted = bytes_per_trial(a), bytes_per_trial(a, prediction=True)
    rounds = math.ceil(a.trials / a.gpus)
    reading = a.images_per_second * a.file_kilobytes / 1e3  # MB/s of a GPU
    writing = a.gpus * a.megabytes_of_state / (60 * a.checkpoint_minutes)
    hours = rounds * a.trial_hours
    files = (a.n_train + a.n_test) * a.file_kilobytes / 1e6  # GB
    rows = {
        "one trial": (
            f"{a.epochs} epochs x {subset:,} images / {a.images_per_second:,.0f} a second",
            f"{a.trial_hours:.2f} h",
        ),
        "GPU hours": (f"{a.trials} x {a.trial_hours:.2f} h", f"{a.trials * a.trial_hours:,.0f}"),
        "time, without failures": (f"ceil({a.trials} / {a.gpus}) = {rounds} rounds", f"{hours / 24:.1f} days"),
        "cost": (
            f"{hours:.0f} h x {a.gpus} GPUs x ${a.price:g}",
            f"${hours * a.gpus * a.price:,.0f}",
        ),
        "bits of a trial": (f"2 x {a.n_train:,} + {a.n_test:,} bits", f"{packed / 1e3:.1f} kB packed"),
        "a trial on disk": ("a segment of the real format, compressed", f"{stored / 1e3:.1f} kB"),
        "the store": (f"{a.trials} x {stored / 1e3:.1f} kB", f"{a.trials * stored / 1e9:.2f} GB"),
        "with predicted classes": (
            f"{a.trials} x {predicted / 1e6:.2f} MB (random classes; real ones compress better)",
            f"{a.trials * predicted / 1e9:.1f} GB",
        ),
        "writing trials": (
            f"{a.trials * stored / 1e9:.2f} GB over {hours / 24:.1f} days",
            f"{a.trials * stored / (3600 * hours) / 1e3:.2f} kB/s",
        ),
        "writing checkpoints": (
            f"{a.gpus} x {a.megabytes_of_state:g} MB every {a.checkpoint_minutes:g} min",
            f"{writing:.0f} MB/s",
        ),
        "data to each node, once": (f"{(a.n_train + a.n_test):,} files x {a.file_kilobytes:g} kB", f"{files:.0f} GB"),
        "reading pictures, a node": (
            f"{a.gpus_per_node} x {a.images_per_second:,.0f} x {a.file_kilobytes:g} kB a second",
            f"{a.gpus_per_node * reading / 1e3:.1f} GB/s",
        ),
        "decoding pictures, a node": (
            f"{a.gpus_per_node} x {a.images_per_second:,.0f} / {1 / a.cores_per_image:.0f} a second and core",
            f"{a.gpus_per_node * a.images_per_second * a.cores_per_image:.0f} cores",
        ),
        "node failures": (
            f"{a.nodes} nodes x {hours / 24:.1f} days / {a.node_days_between_failures:g} days",
            f"{a.nodes * hours / 24 / a.node_days_between_failures:.1f}",
        ),
    }
    lines = ["| what | arithmetic | |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {how} | {much} |" for name, (how, much) in rows.items())])


def replaced(text: str, tables: dict[str, str]) -> str:
    """The page with its tables, each between two comments that name it, made anew."""
    for name, table in tables.items():
        before, start, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        if not start or not end:
            raise SystemExit(f"{PAGE} has no place for the table {name!r}")
        text = f"{before}{start}\n{table}\n\n{end}{after}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in vars(Assumed()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/scaling.md")
    options = vars(parser.parse_args())
    write, repeats, seed = (options.pop(name) for name in ("write", "repeats", "seed"))
    assumed = Assumed(**options)
    tables = {"arithmetic": arithmetic(assumed), "simulation": simulation(assumed, repeats, seed)}
    print("\n\n".join(tables.values()))
    if write:
        PAGE.write_text(replaced(PAGE.read_text(), tables))


if __name__ == "__main__":
    main()
