"""What recording margins costs: seconds and bytes of a trial with them (the default) and without (`record="none"`).

    python benchmarks/recording.py

Runs on digits, each learner with and without in turn. Seconds are those of the processor, in one process. Printed are
medians over the rounds of what a trial takes, writing it included, and of its bytes on the disk.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import memfluence as mf

LEARNERS: dict[str, Callable[[], Any]] = {
    "mlp": lambda: "mlp",
    "logistic regression": lambda: LogisticRegression(max_iter=200),
    "random forest, 50 trees": lambda: RandomForestClassifier(50),
}


def cost(learner: Any, trials: int, **record: str) -> tuple[float, float]:
    """Seconds and bytes of a trial."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        run = mf.run("digits", learner=learner, trials=trials, out=folder, progress=False, **record)
        seconds = time.process_time() - started
        assert run.info.record == (() if record else ("margin",))
        size = sum(path.stat().st_size for path in Path(folder, "trials").iterdir())
    return seconds / trials, size / trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    print("| learner | s per trial | with margins | ratio | bytes per trial | with margins |")
    print("|---|---|---|---|---|---|")
    for name, learner in LEARNERS.items():
        cost(learner(), 32)  # imports and compiles
        found = np.median(
            [
                [cost(learner(), chosen.trials, record="none"), cost(learner(), chosen.trials)]
                for _ in range(chosen.rounds)
            ],
            axis=0,
        )  # without and with, seconds and bytes
        (seconds, size), (slower, larger) = found.tolist()
        print(f"| {name} | {seconds:.4f} | {slower:.4f} | {slower / seconds:.2f} | {size:,.0f} | {larger:,.0f} |")


if __name__ == "__main__":
    main()
