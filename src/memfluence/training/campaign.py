"""`Campaign`: from options to trials on disk, resumable. Whatever trains the trials of a run goes this way:

    campaign = prepare(RunOptions("digits", learner="mlp", trials=2000))
    store = campaign.run()

A run that is there already goes on with what it misses.
"""

import importlib.util
import json
import math
import re
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memfluence import designs, engines, learners
from memfluence.datasets import Dataset, as_dataset, portable_name, with_class_names
from memfluence.engines.progress import Progress, ProgressListener, Silent
from memfluence.errors import (
    DeadlineReached,
    DesignError,
    InputError,
    Interrupted,
    MemfluenceWarning,
    TrialsFailedError,
    checked_integer,
    needs_torch,
)
from memfluence.records import EXTRA_COLUMNS, GIVEN, canonical_json
from memfluence.store import Location, RunInfo, TrialStore, locate, remember_data, segment_columns
from memfluence.training.options import RunOptions, parse_shard

DEFAULT_TRIALS = 2000  # the paper's number for ImageNet; standard errors of about 0.025 at worst with keep 0.7
DEFAULT_KEEP = 0.7  # the paper's
MOST_TRIALS = 10_000_000  # far beyond anyone's patience; a slip of the finger should not fill the memory
_ACCURACIES = 5  # trials whose mean accuracies are looked at: one learner's differ little
_FAILURES = 20  # trials that fail alike
LARGEST_MARGINS = 2**28  # bytes of all margins of a run, which are recorded unless somebody chooses: 268 MB
# Models fit little of what they keep below this accuracy, or with less than this share of what one class leaves wrong.
_LEAST_KEPT, _LEAST_SHARE = 0.6, 0.25


@dataclass(frozen=True, eq=False)
class Campaign:
    """Trials that can be run: all that can be checked without training is checked, and nothing is written yet."""

    options: RunOptions
    dataset: Dataset
    learner: learners.Learner
    design: designs.Design
    info: RunInfo
    out: Location
    engine: str
    device: str
    shard: tuple[int, int] | None = None
    groups: designs.Groups | None = None
    goes_on: bool = False  # with more trials, so that what a run says when it begins was said

    def run(self) -> TrialStore:
        """Run what is missing into the run's directory, which may hold part of it already."""
        for note in () if self.goes_on else self.dataset.notes:
            _note(note)
        store, options = self._store(), self.options
        pending, done = _pending(store, self.info.trials, self.shard, options.retry_failed)
        there, every = store.info, float(options.checkpoint_every)
        record = there.record if there.says_record else usual_record(there)
        if pending and not (there.says_record or record) and self.dataset.task == "classes":
            _note(
                f"Margins, which are recorded where the learner gives scores, would take {margin_bytes(there):,} bytes,"
                f" more than {LARGEST_MARGINS:,}, so they are not; `record=['margin']` records them all the same."
            )
        # The whole path: a learner may change the directory.
        of = self.dataset, self.learner, self.design, store.path.absolute()
        work = engines.Work(*of, there.identity, there.group_size, record, self.device, every)
        listener, to_run = listener_of(options.progress), sum(len(group.wanted) for group in pending)
        listener.start(total=done + to_run, done=done)
        first = listener.event
        if not self.goes_on:
            first = FirstTrials(self.dataset, to_run, listener.event, options.keep_going).event
        try:
            engines.execute(
                self.engine,
                work,
                pending,
                first,
                workers=options.workers,
                address=options.address,
                gpus_per_worker=options.gpus_per_worker,
                deadline=options.deadline,
                trial_timeout=options.trial_timeout,
            )
        except (KeyboardInterrupt, DeadlineReached) as end:
            with engines.uninterrupted():
                listener.stop()
                saved = f"{self._saved(store)}; run the same command to go on."
            if isinstance(end, DeadlineReached):
                raise DeadlineReached(f"The time is over: {saved}") from None
            raise Interrupted(f"Stopped: {saved}") from None
        finally:
            listener.stop()
        _check_accounted(store, {trial for group in pending for trial in group.wanted})
        return TrialStore.open(store.path, there.identity)  # the first segment may have said what is recorded

    def _store(self) -> TrialStore:
        """The run's store, new or there already. What differs from it and does not matter to results is said."""
        data = self.dataset
        groups = None if self.groups is None else (self.groups.codes, self.groups.names)
        examples = data.y_train, data.y_test, data.train_ids, data.test_ids
        up_to_date = learners.up_to_date(self.learner)
        store = TrialStore.create(self.out, self.info, *examples, groups, up_to_date, data.targets)
        if data.name != portable_name(data.name):
            remember_data(data.fingerprint, data.name)
        store.clean()
        if self.goes_on:
            return store
        if isinstance(data.train_ids, list):
            known = store.examples.ids()
            if known is None or known[0].tolist() != data.train_ids:
                begun = "without ids" if known is None else f"with other ids ({known[0][0]!s:.60}, ...)"
                _note(
                    f"The run was begun {begun} of its examples and keeps that; another directory (`out`) takes those"
                    f" of these data ({data.train_ids[0]!s:.60}, ...)."
                )
        there, here = store.info.versions, self.info.versions
        shared = sorted(set(there) & set(here) - {"memfluence"})
        if changed := [f"{name} {there[name]}" for name in shared if there[name] != here[name]]:
            _note(f"The run was made with {', '.join(changed)}; trials made now may differ from it in rounding.")
        if store.info.group_size != self.info.group_size:  # how many are trained at once changes rounding
            _note(
                f"The run was begun with groups of {store.info.group_size} trial(s) trained at once and keeps them;"
                f" groups of {self.info.group_size} need another directory (`out`)."
            )
        return store

    def _saved(self, store: TrialStore) -> str:
        saved = store.scan().numbers.tolist()
        part_way = store.checkpoints().part_way(saved)
        kept = "".join(f", trial {one.trial} is kept at {one.fraction:.0%}" for one in part_way)
        return f"{len(saved)} of {self.info.trials} trials are stored in {store.path}{kept}"


def prepare(options: RunOptions, *, known_by: int | None = None) -> Campaign:
    """Check everything that can be checked without training. `known_by`: see `designs.make`."""
    wanted = None if options.trials is None else checked_integer("trials", options.trials, 1, MOST_TRIALS)
    if options.keep is not None and (name := (options.design or "").partition(":")[0]) in ("explicit", "uniform"):
        has = "masks" if name == "explicit" else "sizes of subsets"
        raise DesignError(f"The {name} design has its {has} already; leave out `keep`.")
    if options.workers is not None:
        checked_integer("workers", options.workers, 1)
    _check_seconds("checkpoint_every", options.checkpoint_every)
    if options.trial_timeout is not None:
        _check_seconds("trial_timeout", options.trial_timeout, least=0.001)
    engine = engines.choose(
        options.engine,
        options.workers,
        address=options.address,
        gpus=options.gpus_per_worker,
        trial_timeout=options.trial_timeout,
    )
    shard = None if options.shard is None else parse_shard(options.shard)
    data = as_dataset(options.dataset)
    if options.class_names is not None:
        data = with_class_names(data, options.class_names)
    learner = learners.resolve(options.learner, options.settings)
    data = learners.data_for(learner, data)
    if data.sample_weight is not None and not getattr(learner, "takes_weights", False):
        _note(f"{learner.name} takes no sample_weight, so the weights of {data.name} are not used.")
    groups = None
    if options.groups is not None:
        groups = designs.groups_from(options.groups, data.n_train, data.attributes, data.labels("train"))
    keep = DEFAULT_KEEP if options.keep is None else options.keep
    design = designs.make(
        options.design or designs.usual(groups, keep),
        n_train=data.n_train,
        keep=keep,
        seed=checked_integer("seed", options.seed, 0, 2**63 - 1),
        masks=options.masks,
        known_by=known_by,
        groups=groups,
    )
    if design.limit is not None and wanted is not None and wanted > design.limit:
        raise DesignError(f"The explicit design has {design.limit} masks. Got trials={wanted} instead.")
    record = _chosen_record(options.record)
    device = _checked_device(options.device, engine, options.gpus_per_worker)
    info = RunInfo(
        dataset={
            "name": portable_name(data.name),
            "fingerprint": data.fingerprint,
            "n_train": data.n_train,
            "n_test": data.n_test,
            "classes": list(data.classes),
            "class_names": list(data.class_names),
            **({} if data.task == "classes" else {"task": data.task}),
        },
        learner=json.loads(canonical_json(learner.describe())),
        plan={**design.plan.to_json(), "digest": design.plan.digest},
        kinds=design.kinds,
        trials=wanted or design.limit or DEFAULT_TRIALS,
        group_size=learner.group_size(data, device),
        repeats=design.repeats,
        record=record or (),
        columns=() if record is None else segment_columns(record),
        versions=engines.installed_versions(),
        learner_text=str(getattr(learner, "text", "")),
    )
    out = _run_directory(options.out, data, learner)
    return Campaign(options, data, learner, design, info, out, engine, device, shard, groups)


def _chosen_record(given: Collection[str] | None) -> tuple[str, ...] | None:
    """What to record beside right and wrong; None where nobody chose."""
    if given is None:
        return None
    chosen = {given} if isinstance(given, str) else set(given)
    if chosen == {"none"}:
        return ()
    if unknown := sorted(chosen - set(EXTRA_COLUMNS)):
        known = ", ".join([*EXTRA_COLUMNS, "none"])
        raise InputError(f"There is nothing called {unknown[0]!r} to record; choose from {known}.")
    return tuple(sorted(chosen))


def margin_bytes(info: RunInfo) -> int:
    """The bytes that the margins of all trials take, before compression."""
    return 2 * (info.n_train + info.n_test) * info.trials


def usual_record(info: RunInfo) -> tuple[str, ...]:
    """What learners are asked to record where nobody chose."""
    return (GIVEN,) if margin_bytes(info) <= LARGEST_MARGINS else ()


class FirstTrials:
    """Passes events on and looks at the first outcomes among them: what is wrong is said before hours of training.

    Models that are no better than always saying one class, or do not fit the examples that they keep, are told of
    once; not those with a score of their own, of which nobody knows what is good. Where the first trials all fail alike
    the campaign ends. `pending` trials are to be run.
    """

    def __init__(self, dataset: Dataset, pending: int, emit: engines.Emit, keep_going: bool) -> None:
        self._dataset, self._pending, self._emit, self._keep_going = dataset, pending, emit, keep_going
        self._done: list[engines.TrialDone] = []
        self._failed: list[engines.TrialFailed] = []

    def event(self, event: engines.Event) -> None:
        """Pass an event on. Raises at the last of the first trials that fail alike, and not again."""
        self._emit(event)
        if isinstance(event, engines.TrialDone) and len(self._done) < _ACCURACIES:
            self._done.append(event)
            enough = len(self._done) == min(_ACCURACIES, self._pending) and not event.has_scores
            if enough and (found := self._weakness()):
                self._emit(engines.Note(found))
        elif isinstance(event, engines.TrialFailed) and len(self._failed) < _FAILURES:
            self._failed.append(event)
            if len(self._failed) == _FAILURES and not self._keep_going:
                self._check_failures()

    def _check_failures(self) -> None:
        alike = len({_kind(one.message) for one in self._failed}) == 1
        if alike and not self._done and self._pending > _FAILURES:
            first = self._failed[0]
            raise TrialsFailedError(
                f"The first {_FAILURES} trials failed alike (trial {first.trial}: {first.message}), so the others were"
                " not begun; mend the learner or the data (docs/your-own-model.md), then run again with"
                " `retry_failed=True`, or with `keep_going=True` to go on all the same."
            )

    def _weakness(self) -> str:
        """What the first models are bad at, in one sentence; empty where nothing is wrong."""
        counts = np.bincount(self._dataset.y_test)
        common, n_test = int(counts.argmax()), len(self._dataset.y_test)
        share = float(counts[common]) / n_test
        chance = share + math.sqrt(share * (1 - share) / n_test)  # one standard error: a guess varies
        test = float(np.mean([one.test_accuracy for one in self._done]))
        kept = float(np.mean([one.kept_accuracy for one in self._done]))
        fits = not kept < max(_LEAST_KEPT, share + _LEAST_SHARE * (1 - share))  # it does where kept is NaN
        after = f"after {len(self._done)} trial(s) models are right on"
        if test <= chance and share < 1:
            always = f"{after} {test:.1%} of the test examples, no better than always saying"
            always += f" {self._dataset.class_names[common]!r} ({share:.1%})"
            if fits:
                return f"{always}, although on {kept:.1%} of those that they keep: do the labels belong to the inputs?"
            return f"{always}: more epochs, another learner?"
        if not fits:
            return (
                f"{after} only {kept:.1%} of the examples that they keep; what models do not fit they cannot memorize,"
                " so scores will say little: more epochs, a larger model, another learner?"
            )
        return ""


def _kind(message: str) -> str:
    """What failures have in common that are alike: the type of the error, or a worker's end, whatever its number."""
    return re.sub("[0-9]+", "", message.partition(":")[0])


def failed_trials(store: TrialStore) -> TrialsFailedError | None:
    """An error about the trials that failed, to be raised or shown; None where there are none."""
    stored = store.scan().numbers.tolist()
    if not (failures := store.failures(stored)):
        return None
    number, failure = next(iter(failures.items()))
    what = f"{len(failures)} trial(s) failed (trial {number}: {failure.summary})"
    if stored:
        return TrialsFailedError(
            f"{what} and are left out; `retry_failed=True` runs just those again (a learner that was mended is another"
            " one and needs another `out`)."
        )
    return TrialsFailedError(
        f"{what}, and none succeeded; mend the learner or the data (docs/your-own-model.md), then run them again with"
        " `retry_failed=True`."
    )


def check_failures(store: TrialStore, stacklevel: int) -> None:
    """Raise if no trial succeeded; warn of trials that failed."""
    if failed := failed_trials(store):
        if not len(store.scan().numbers):
            raise failed
        warnings.warn(str(failed), MemfluenceWarning, stacklevel=stacklevel + 1)


def listener_of(progress: bool | ProgressListener) -> ProgressListener:
    """Who is told how far it is."""
    return Progress() if progress is True else Silent() if progress is False else progress


def _check_accounted(store: TrialStore, wanted: set[int]) -> None:
    """Each trial that was to be run is stored or has a note of its failure, whatever the engine believes."""
    unstored = wanted - set(store.scan(indexed=True).numbers.tolist()) if wanted else wanted
    if missing := sorted(unstored - set(store.failures())):
        shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise TrialsFailedError(
            f"{len(missing)} trial(s) ({shown}) are missing from {store.path} and nothing there says why; run the same"
            " command to train them."
        )


def _note(message: str) -> None:
    warnings.warn(message, MemfluenceWarning, stacklevel=4)


def _pending(
    store: TrialStore, trials: int, shard: tuple[int, int] | None, retry_failed: bool
) -> tuple[list[engines.Group], int]:
    """Groups still to run (of this shard) and how many of its trials are done; damaged segments are set aside."""
    scan = store.scan()
    for damage in scan.damaged:
        _note(f"{damage.reason} It is set aside in {store.path / 'damaged'} and its trials run again.")
    store.set_aside(scan.damaged)
    done = set(scan.numbers.tolist())
    store.checkpoints().remove(done)  # of a process that was killed just after it had stored them
    failed, missing = set(store.failures(done)), set(range(trials)) - done
    # Nothing is stored where all have failed: then those are missing, too, that were never begun.
    wanted = missing - failed if not retry_failed else failed if done else missing
    if retry_failed and missing and not wanted:
        _note(f"No trial has failed; leave out `retry_failed` to train the {len(missing)} that are missing.")
    part, parts = shard or (0, 1)
    pending, finished = (
        [one for one in engines.groups_of(some, store.info.group_size) if one.number % parts == part]
        for some in ((trial for trial in wanted if trial < trials), (trial for trial in done if trial < trials))
    )
    return pending, sum(len(group.wanted) for group in finished)


def _check_seconds(name: str, value: Any, least: float = 0) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= least):
        raise InputError(f"The `{name}` parameter must be a number of seconds >= {least:g}. Got {value!r} instead.")


def _checked_device(device: str, engine: str, gpus_per_worker: float | None) -> str:
    if device not in ("auto", "cpu", "cuda"):
        raise InputError(f"The `device` parameter must be 'auto', 'cpu' or 'cuda'. Got {device!r} instead.")
    if engine == "ray":  # this machine need not have the device
        return engines.gpus_and_device(device, gpus_per_worker)[1]
    if device == "cuda":
        if importlib.util.find_spec("torch") is None:
            raise needs_torch("A CUDA device")
        import torch

        if not torch.cuda.is_available():
            raise InputError("No CUDA device was found; use `device='cpu'`, or check the driver and the torch build.")
    return device


def _run_directory(out: str | Path | None, dataset: Dataset, learner: learners.Learner) -> Location:
    if out is not None:
        return locate(out)
    short = "".join(c if c.isalnum() else "-" for c in dataset.name.partition("?")[0]).strip("-")
    source, _, path = dataset.name.partition(":")
    if path:
        short = f"{source}-{Path(path.partition('?')[0]).stem}"
    if dataset.name == "arrays":
        short = f"arrays-{dataset.fingerprint[:8]}"
    return Path("runs") / f"{short}-{learner.name}"
