"""`run`: the whole way from a dataset and a learner to a `Run`, in one call."""

import warnings
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from memfluence.errors import MemfluenceWarning
from memfluence.progress import Progress, ProgressListener
from memfluence.runs import Run
from memfluence.training.campaign import DEFAULT_CHECKPOINT_EVERY, prepare, run_trials
from memfluence.training.sharding import parse_shard

__all__ = ["run"]


def run(
    dataset: Any,
    *,
    learner: Any = "mlp",
    settings: Mapping[str, str] | None = None,
    trials: int | None = None,
    keep: float | Iterable[float] | None = None,
    design: str | None = None,
    masks: Any = None,
    groups: Any = None,
    seed: int = 0,
    out: str | Path | None = None,
    engine: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    gpus_per_worker: float | None = None,
    device: str = "auto",
    shard: str | tuple[int, int] | None = None,
    record: Collection[str] = (),
    retry_failed: bool = False,
    checkpoint_every: float = DEFAULT_CHECKPOINT_EVERY,
    progress: bool | ProgressListener = True,
) -> Run:
    """Train `trials` models (2000) on random subsets (70% of the examples) and store what each of them gets right.

    `dataset` is a name ("digits", "npz:FILE", ...), a `Dataset`, or arrays (x_train, y_train, x_test, y_test).
    `learner` is a built-in name, "file.py:attribute", a scikit-learn estimator, a function train(x, y, seed) ->
    predict, or what `memfluence.network` makes of a torch module. `out` is the run's directory (runs/NAME if left out)
    or a URI (s3://bucket/run); an equal run that is there is resumed, a different one is refused.

    `groups` keeps or leaves out whole groups: an array of one value per training example, a .npy file of one, "class",
    or the name of an attribute of the data; `keep` is then the fraction of the groups. `design` is "fixed" unless one
    is named, with groups "lemma" (if `keep` leaves two or more).

    Networks that take long to train are checkpointed within the trial every `checkpoint_every` seconds and at Ctrl-C,
    and go on from there with the same result; 0 turns that off.

    `engine` is "local", "processes" (`workers` of this machine) or "ray": the cluster at `address` (of which this
    machine is a node if it is left out), with `gpus_per_worker`, such as 0.5, for each of at most `workers` tasks at a
    time; `out` must then be on storage that all nodes see. `shard` is "i/N", a part of the run, or "auto".

    Trials that fail are reported by a warning and do not stop the others. With `workers` > 1 the calling script needs
    the usual `if __name__ == "__main__":` guard.
    """
    campaign = prepare(
        dataset,
        learner=learner,
        settings=settings,
        trials=trials,
        keep=keep,
        design=design,
        masks=masks,
        groups=groups,
        seed=seed,
        out=out,
        device=device,
        record=record,
        engine=engine,
        gpus_per_worker=gpus_per_worker,
    )
    for note in campaign.dataset.notes:
        warnings.warn(note, MemfluenceWarning, stacklevel=2)
    listener = Progress() if progress is True else None if progress is False else progress
    store = run_trials(
        campaign,
        engine=engine,
        workers=workers,
        address=address,
        gpus_per_worker=gpus_per_worker,
        shard=parse_shard(shard),
        retry_failed=retry_failed,
        checkpoint_every=checkpoint_every,
        progress=listener,
    )
    failures = store.failures(store.scan().numbers.tolist())
    if failures:
        number, failure = next(iter(failures.items()))
        warnings.warn(
            f"{len(failures)} trial(s) failed (trial {number}: {failure.summary}); run again with retry_failed=True"
            " to retry just those.",
            MemfluenceWarning,
            stacklevel=2,
        )
    return Run(store, campaign.dataset)
