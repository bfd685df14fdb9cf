"""A run small enough to count by hand: who is memorized and who carries whom is written into its trials."""

from pathlib import Path

import numpy as np

from memfluence.exchange.importing import Labels, import_trials
from memfluence.runs import Run

N_TRAIN, N_TEST, TRIALS = 40, 30, 200
MEMORIZED = (0, 1, 2, 3)  # right exactly when kept; the other training examples are always right
CARRIED = {0: 0, 1: 1, 4: 2, 6: 2}  # test example: the training example that it hangs on; the others are always right


def trials() -> dict[str, np.ndarray]:
    """Trials in which memorization and influence are 0 or 1 but for chance; train i has the class i % 2."""
    rng = np.random.default_rng(5)
    mask = rng.random((TRIALS, N_TRAIN)) < 0.7
    train_correct = np.ones((TRIALS, N_TRAIN), bool)
    train_correct[:, MEMORIZED] = mask[:, MEMORIZED]
    test_correct = np.ones((TRIALS, N_TEST), bool)
    for test, train in CARRIED.items():
        test_correct[:, test] = mask[:, train]
    return {"mask": mask, "train_correct": train_correct, "test_correct": test_correct}


def make_run(
    directory: Path,
    *,
    classes: tuple[str, str] = ("cat", "dog"),
    name: str | None = None,
    fingerprint: str | None = None,
    **changes: np.ndarray,
) -> Run:
    """The run of `trials` with some arrays changed; `name` says where its data are."""
    arrays = trials() | changes
    train, test = (np.array(classes)[np.arange(arrays[key].shape[1]) % 2] for key in ("mask", "test_correct"))
    file = directory / "trials.npz"
    directory.mkdir(parents=True, exist_ok=True)
    np.savez(file, **arrays, train_labels=train, test_labels=test)
    labels = None if name is None else Labels(train, test, name, fingerprint)
    return Run(import_trials([file], directory / "run", labels=labels).store)
