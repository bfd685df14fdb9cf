"""`run`: from a dataset and a learner to trials on disk, resumable."""

import json
import math
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memfluence import designs, learners
from memfluence.datasets import Dataset, as_dataset, portable_name
from memfluence.designs import Design
from memfluence.engines import (
    Group,
    Work,
    choose,
    execute,
    gpus_and_device,
    groups_of,
    installed_versions,
    uninterrupted,
)
from memfluence.errors import DesignError, InputError, Interrupted, MemfluenceWarning, TrialsFailedError
from memfluence.learners import Learner
from memfluence.progress import ProgressListener, Silent
from memfluence.records import EXTRA_COLUMNS, canonical_json
from memfluence.store import Location, RunInfo, TrialStore, locate, remember_data, segment_columns

__all__ = [
    "DEFAULT_CHECKPOINT_EVERY",
    "DEFAULT_KEEP",
    "DEFAULT_TRIALS",
    "Campaign",
    "checked_integer",
    "prepare",
    "run_trials",
]

DEFAULT_TRIALS = 2000  # the paper's number for ImageNet; standard errors of about 0.025 at worst with keep 0.7
DEFAULT_KEEP = 0.7  # the paper's
DEFAULT_CHECKPOINT_EVERY = 60.0  # seconds: what a kill may cost of a long trial; short ones never write one
MOST_TRIALS = 10_000_000  # far beyond anyone's patience; a slip of the finger should not fill the memory


@dataclass(frozen=True, eq=False)
class Campaign:
    """What is to be run, checked, before anything is written."""

    dataset: Dataset
    learner: Learner
    design: Design
    info: RunInfo
    out: Location
    device: str
    groups: designs.Groups | None = None


def prepare(
    dataset: Any,
    *,
    learner: Any = "mlp",
    settings: Mapping[str, str] | None = None,
    trials: int | None = None,
    keep: float | Iterable[float] | None = None,
    design: str | None = None,
    masks: Any = None,
    known_by: int | None = None,
    groups: Any = None,
    seed: int = 0,
    out: str | Location | None = None,
    device: str = "auto",
    record: Collection[str] = (),
    engine: str | None = None,
    gpus_per_worker: float | None = None,
) -> Campaign:
    """Check everything that can be checked without training. `known_by`: see `designs.make`."""
    wanted = None if trials is None else checked_integer("trials", trials, 1, MOST_TRIALS)
    if keep is not None and (name := (design or "").partition(":")[0]) in ("explicit", "uniform"):
        has = "masks" if name == "explicit" else "sizes of subsets"
        raise DesignError(f"The {name} design has its {has} already; leave out keep.")
    data = as_dataset(dataset)
    trained = learners.resolve(learner, settings)
    grouped = None
    if groups is not None:
        grouped = designs.groups_from(groups, data.n_train, data.attributes, data.labels("train"))
    keep = DEFAULT_KEEP if keep is None else keep
    made = designs.make(
        design or designs.usual(grouped, keep),
        n_train=data.n_train,
        keep=keep,
        seed=checked_integer("seed", seed, 0, 2**63 - 1),
        masks=masks,
        known_by=known_by,
        groups=grouped,
    )
    if made.limit is not None and wanted is not None and wanted > made.limit:
        raise DesignError(f"The explicit design has {made.limit} masks. Got trials={wanted} instead.")
    record = (record,) if isinstance(record, str) else tuple(record)
    unknown = sorted(set(record) - set(EXTRA_COLUMNS))
    if unknown:
        raise InputError(f"There is nothing called {unknown[0]!r} to record; choose from {', '.join(EXTRA_COLUMNS)}.")
    chosen = tuple(sorted(set(record)))
    device = _checked_device(device, engine, gpus_per_worker)
    info = RunInfo(
        dataset={
            "name": portable_name(data.name),
            "fingerprint": data.fingerprint,
            "n_train": data.n_train,
            "n_test": data.n_test,
            "classes": list(data.classes),
            "class_names": list(data.class_names),
        },
        learner=json.loads(canonical_json(trained.describe())),
        plan={**made.plan.to_json(), "digest": made.plan.digest},
        kinds=made.kinds,
        trials=wanted or made.limit or DEFAULT_TRIALS,
        group_size=trained.group_size(data, device),
        repeats=made.repeats,
        record=chosen,
        columns=segment_columns(chosen),
        versions=installed_versions(),
    )
    return Campaign(data, trained, made, info, _run_directory(out, data, trained), device, grouped)


def run_trials(
    campaign: Campaign,
    *,
    engine: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    gpus_per_worker: float | None = None,
    shard: tuple[int, int] | None = None,
    retry_failed: bool = False,
    checkpoint_every: float = DEFAULT_CHECKPOINT_EVERY,
    progress: ProgressListener | None = None,
) -> TrialStore:
    """Run what is missing of the campaign into its directory, which may hold part of it already."""
    listener = progress or Silent()
    if workers is not None:
        workers = checked_integer("workers", workers, 1)
    _check_seconds("checkpoint_every", checkpoint_every)
    chosen = choose(engine, workers, address=address, gpus=gpus_per_worker)
    data = campaign.dataset
    groups = None if campaign.groups is None else (campaign.groups.codes, campaign.groups.names)
    store = TrialStore.create(
        campaign.out,
        campaign.info,
        data.y_train,
        data.y_test,
        data.train_ids,
        data.test_ids,
        groups,
        learners.up_to_date(campaign.learner),
    )
    if data.name != portable_name(data.name):
        remember_data(data.fingerprint, data.name)
    store.clean()
    _note_other_versions(store.info.versions, campaign.info.versions)
    _note_other_groups(store.info.group_size, campaign.info.group_size)
    pending, done = _pending(store, campaign.info.trials, shard, retry_failed)
    work = Work(
        data,
        campaign.learner,
        campaign.design,
        store.path,
        store.info.identity,
        store.info.group_size,
        store.info.record,
        campaign.device,
        float(checkpoint_every),
    )
    listener.start(total=done + sum(len(group.wanted) for group in pending), done=done)
    try:
        execute(
            chosen,
            work,
            pending,
            listener.event,
            workers=workers,
            address=address,
            gpus_per_worker=gpus_per_worker,
        )
    except KeyboardInterrupt:
        with uninterrupted():
            listener.stop()
            saved = store.scan().numbers.tolist()
            part_way = store.checkpoints().part_way(saved)
        kept = "".join(f", trial {one.trial} is kept at {one.fraction:.0%}" for one in part_way)
        raise Interrupted(
            f"Stopped: {len(saved)} of {campaign.info.trials} trials are stored in {store.path}{kept};"
            " run the same command to go on."
        ) from None
    finally:
        listener.stop()
    _check_accounted(store, {trial for group in pending for trial in group.wanted})
    return store


def _check_accounted(store: TrialStore, wanted: set[int]) -> None:
    """Each trial that was to be run is stored or has a note of its failure, whatever the engine believes."""
    unstored = wanted - set(store.scan(indexed=True).numbers.tolist()) if wanted else wanted
    if missing := sorted(unstored - set(store.failures())):
        shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise TrialsFailedError(
            f"{len(missing)} trial(s) ({shown}) are missing from {store.path} and nothing there says why; run the same"
            " command to train them."
        )


def _note_other_versions(there: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Trials made with other versions may differ in rounding: allowed, and said."""
    shared = sorted(set(there) & set(here) - {"memfluence"})
    if changed := [f"{name} {there[name]}" for name in shared if there[name] != here[name]]:
        warnings.warn(
            f"The run was made with {', '.join(changed)}; trials made now may differ from it in rounding.",
            MemfluenceWarning,
            stacklevel=3,
        )


def _note_other_groups(there: int, here: int) -> None:
    """How many trials are trained at once is fixed in a run, because it changes rounding."""
    if there != here:
        warnings.warn(
            f"The run was begun with groups of {there} trial(s) trained at once and keeps them; groups of {here} need"
            " another directory (--out).",
            MemfluenceWarning,
            stacklevel=3,
        )


def _pending(
    store: TrialStore, trials: int, shard: tuple[int, int] | None, retry_failed: bool
) -> tuple[list[Group], int]:
    """Groups still to run (of this shard) and how many of its trials are done; damaged segments are set aside."""
    scan = store.scan()
    for damage in scan.damaged:
        aside = store.path / "damaged"
        warnings.warn(
            f"{damage.reason} It is set aside in {aside} and its trials run again.", MemfluenceWarning, stacklevel=3
        )
    store.set_aside(scan.damaged)
    done = set(scan.numbers.tolist())
    store.checkpoints().remove(done)  # of a process that was killed just after it had stored them
    failed = set(store.failures(done))
    wanted = (failed if retry_failed else set(range(trials)) - failed) - done
    groups = groups_of((trial for trial in wanted if trial < trials), store.info.group_size)
    finished = groups_of((trial for trial in done if trial < trials), store.info.group_size)
    if shard is not None:
        part, parts = shard
        groups = [group for group in groups if group.number % parts == part]
        finished = [group for group in finished if group.number % parts == part]
    return groups, sum(len(group.wanted) for group in finished)


def checked_integer(name: str, value: Any, least: int, most: int | None = None) -> int:
    """The value as an int, or an error that names the parameter."""
    bounds = f">= {least}" if most is None else f"in [{least}, {most}]"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InputError(f"The {name!r} parameter must be an integer {bounds}. Got {value!r} instead.")
    number = int(value)
    if number < least or (most is not None and number > most):
        raise InputError(f"The {name!r} parameter must be an integer {bounds}. Got {number} instead.")
    return number


def _check_seconds(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise InputError(f"The {name!r} parameter must be a number of seconds >= 0. Got {value!r} instead.")


def _checked_device(device: str, engine: str | None, gpus_per_worker: float | None) -> str:
    if device not in ("auto", "cpu", "cuda"):
        raise InputError(f"The 'device' parameter must be 'auto', 'cpu' or 'cuda'. Got {device!r} instead.")
    if engine == "ray":  # this machine need not have the device
        return gpus_and_device(device, gpus_per_worker)[1]
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise InputError("No CUDA device was found; use --device cpu, or check the driver and the torch build.")
    return device


def _run_directory(out: str | Location | None, dataset: Dataset, learner: Learner) -> Location:
    if out is not None:
        return locate(out)
    short = "".join(c if c.isalnum() else "-" for c in dataset.name.partition("?")[0]).strip("-")
    source, _, path = dataset.name.partition(":")
    if path:
        short = f"{source}-{Path(path.partition('?')[0]).stem}"
    if dataset.name == "arrays":
        short = f"arrays-{dataset.fingerprint[:8]}"
    return Path("runs") / f"{short}-{learner.name}"
