"""`last-layer`: one network on everything, its representations in a file, and linear models on those."""

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from memfluence import experiments
from memfluence.datasets import Dataset
from memfluence.errors import InputError, Interrupted, RunMismatchError, StoreError
from memfluence.experiments import Result
from memfluence.experiments.doing._training import Training, only
from memfluence.learners import Learner, Representation, represent, resolve
from memfluence.npzfiles import open_npz
from memfluence.records import Trial, canonical_json, digest
from memfluence.runs import Run, open_run
from memfluence.store import CheckpointFiles, write_whole

__all__ = ["do_last_layer", "linear_at_once"]

NETWORK_FILE = "representations.json"
CHECKPOINTS = "checkpoints"  # of the network, until its representations are there
AT_ONCE = 50  # linear models; on 50,000 x 512 features their scores take 1 GB
FEW = 10_000  # training examples, up to which a CPU spends its time on calls rather than on products


def do_last_layer(name: str, runs: list[Run], out: Path, training: Training, options: dict[str, Any]) -> Result:
    """Linear models on what the last layer of one network, trained on everything, is given."""
    run, module = only(runs, name), experiments.last_layer
    given = {one: options.pop(one) for one in ("trials", "seed") if one in options}
    design = module.plan(run, keep=options.get("keep"), **given)
    at_once = {"group": linear_at_once(run.info.n_train, training.device)}
    linear = resolve("linear@paper", at_once | (options.pop("linear", None) or {}))
    if not training.train:
        network = _made_with(out)
        return module.summarize(run, open_run(out / "trained"), network, **options)
    dataset, network = _represented(training.learner_of(run), training.data_of(run), design["seed"], training, out)
    return module.summarize(run, training.run(out / "trained", dataset, linear, **design), network, **options)


def linear_at_once(n_train: int, device: str) -> int:
    """How many linear models are trained at once: on a CPU, an epoch of 50,000 x 512 features takes one alone 0.083 s,
    ten at once 0.112 s each.
    """
    from memfluence.learners.nets.device import torch_device

    return AT_ONCE if n_train <= FEW or torch_device(device).type == "cuda" else 1


def _made_with(out: Path) -> dict[str, Any]:
    """What the representations of a last-layer experiment were made with."""
    if not (out / NETWORK_FILE).is_file():
        raise InputError(f"{out} has no {NETWORK_FILE}: its network was not trained yet; run it without --no-train.")
    found: dict[str, Any] = json.loads((out / NETWORK_FILE).read_bytes())
    return found


def _represented(
    learner: Learner, dataset: Dataset, seed: int, training: Training, out: Path
) -> tuple[Dataset, dict[str, Any]]:
    """The dataset with representations for inputs, and what made them; kept in files, so that they are made once."""
    arrays, notes = out / "representations.npz", out / NETWORK_FILE
    made_by = {"learner": learner.describe(), "data": dataset.fingerprint, "seed": seed}
    if arrays.is_file() and notes.is_file():
        network = _made_with(out)
        if canonical_json(network["made_by"]) != canonical_json(made_by):
            raise RunMismatchError(
                f"{arrays} holds what another network was made of (another learner, seed or data); choose another"
                " directory (--out)."
            )
    else:
        outcome, train, test = _trained(learner, dataset, seed, training, out, digest(made_by))
        network = {
            "made_by": made_by,
            "learner": learner.name,
            "features": train.shape[1],
            "test_accuracy": float(outcome.test_correct.mean()),
            "train_accuracy": float(outcome.train_correct.mean()),
            "seconds": outcome.seconds,
        }
        content = io.BytesIO()
        labels = {f"y_{split}": dataset.labels(split) for split in ("train", "test")}
        np.savez(content, x_train=train, x_test=test, **labels)  # type: ignore[arg-type]
        write_whole(arrays, content.getvalue())
        write_whole(notes, (json.dumps(network, indent=2) + "\n").encode())
        shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    with open_npz(arrays, StoreError) as file:
        train, test = file.read("x_train"), file.read("x_test")
    name = f"npz:{arrays.resolve()}"
    return replace(dataset, name=name, x_train=train, x_test=test, value_range=None, attributes={}), network


def _trained(
    learner: Learner, dataset: Dataset, seed: int, training: Training, out: Path, made_by: str
) -> Representation:
    """The network on everything. Stopped, it goes on from where it was."""
    everything = Trial(0, 0, np.ones(dataset.n_train, dtype=bool), seed)
    listener, every = training.listener, training.checkpoint_every
    kept = CheckpointFiles(out / CHECKPOINTS, {"made_by": made_by}, every, listener.note) if every else None
    listener.note(f"{learner.name} on all {dataset.n_train:,} training examples, whose representations are taken:")
    listener.start(total=1, done=0)
    try:
        return represent(learner, dataset, everything, device=training.device, checkpoints=kept, report=listener.event)
    except KeyboardInterrupt:
        part_way = kept.part_way(()) if kept else []
        where = f"is kept at {part_way[0].fraction:.0%} in {out}" if part_way else "is not kept"
        raise Interrupted(f"Stopped: the network on all examples {where}; run the same command to go on.") from None
    finally:
        listener.stop()
