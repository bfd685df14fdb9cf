"""The parts of a reproduction: the trials that all is made from, then each part as far as the time goes, and kept."""

import inspect
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.datasets import as_dataset
from memfluence.datasets.known import Data, data_of
from memfluence.engines.progress import duration
from memfluence.errors import DeadlineReached, InputError, Interrupted, MemfluenceError
from memfluence.estimators import memorization
from memfluence.experiments import named
from memfluence.experiments._result import BLOCKS, Result, check_trials, jackknife, spread
from memfluence.experiments.doing import Training, begun, experiment
from memfluence.experiments.reproduce._subjects import FEWEST, LEAST, MOST, TRAINED, Subject, base_trials, more_repeats
from memfluence.learners import resolve
from memfluence.paper import INFLUENCE, MEMORIZED
from memfluence.records import digest
from memfluence.runs import Run, about, open_run
from memfluence.store import RUN_FILE, is_run, unpack, write_whole

NO_TIME = "There was not enough time for it; the same command goes on."
UNFINISHED = "Not all of its models are trained yet; the same command goes on."
RESAMPLES = 10  # for the spread of the number of pairs


@dataclass(frozen=True, eq=False)
class Parts:
    """Parts that are made from one base run. `results` and `missing` (one sentence each) fill up as parts are done."""

    subject: Subject
    base: Run
    where: Path
    how: Training
    end: float  # of the call; training may have to end earlier
    seed: int
    second: Any  # learner
    second_run: Run | None = None  # trials of another network that are there already
    second_settings: Mapping[str, str] = field(default_factory=dict)
    mem: float = 0.25  # thresholds of pairs
    infl: float = 0.15
    results: dict[str, Result] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    @cached_property
    def overview(self) -> Result:
        """The base run in numbers."""
        return overview(self.base, mem=self.mem, infl=self.infl)

    @cached_property
    def data(self) -> Data:
        """The dataset of the base run: what it holds, if that is at hand or known by its fingerprint."""
        loaded = None if self.how.dataset is None else self.base.dataset()
        return data_of(self.base.info.dataset, self.base.label_codes, self.base.ids[1], loaded)

    @cached_property
    def at_paper_s(self) -> tuple[int, float] | None:
        """Pairs of the base run at the paper's thresholds, and those expected by chance, where ours are others."""
        if (self.mem, self.infl) == (MEMORIZED, INFLUENCE):
            return None
        pairs = self.base.find_pairs(MEMORIZED, INFLUENCE)
        return len(pairs), pairs.expected_by_chance

    def do(self, part: str, count: int | None) -> None:
        """Train what is missing while there is time, and summarize what is there."""
        kept = self._kept(part, count)
        if kept is not None:
            self.results[part] = kept
            return
        if part in TRAINED and not self.how.train and not self._begun(part):
            work = self._work(part, count)
            self.missing[part] = f"Its models are not trained yet{work and f': {work}'}; run it without `train=False`."
            return
        if part not in TRAINED and self.how.train and self.end <= time.monotonic():
            self.missing[part] = NO_TIME
            return
        try:
            result, complete = self._do(part, count)
        except Interrupted:
            raise
        except MemfluenceError as error:
            out_of_time = part in TRAINED and self.how.train and self.how.left <= 0
            self.missing[part] = NO_TIME if out_of_time else str(error)
        else:
            self.missing.pop(part, None)
            if self.how.train and not complete:
                self.missing[part] = UNFINISHED
            if result is not None:
                self.results[part] = result
            made_of = self._made_of(part, count) | {"complete": complete}
            _write_progress(self.where, done=_read_progress(self.where).get("done", {}) | {part: made_of})

    def recall(self, part: str) -> None:
        """The result of an earlier call for a part that was not asked for now, as far as it had come."""
        kept = self._kept(part, None, asked=False)
        if kept is not None:
            self.results[part] = kept

    def _do(self, part: str, count: int | None) -> tuple[Result | None, bool]:
        """The result, and whether all of its models are trained."""
        if part == "second":
            self._train_second(count)
            return None, self._all_trained(part)
        if part == "architectures":
            other = self.other
            if other is None:
                raise InputError(
                    f"There are no {FEWEST['second']} trials of another network to compare with (part second)."
                )
            found = self._experiment("consistency", self.base, other, part=part, any_class=False, **self._levels(part))
            return found, True
        if part not in TRAINED:
            resamples: dict[str, Any] = {"resamples": RESAMPLES} if part == "histogram" else {}
            return self._experiment(part, self.base, **resamples, **self._levels(part)), True
        options = self._options(part, count)
        runs = () if part == "long-tail" else (self.base,)
        complete = False
        if self.how.train and self.how.left > 0:
            with suppress(DeadlineReached):
                result = self._experiment(part, *runs, **options, **self._training(part))
                complete = self.how.shard is None or self._all_trained(part)
                if self.how.shard is None or not complete:
                    return result, complete
        # Of the shards, the last one done sees all models: others may have stored theirs since its own result was made.
        return self._experiment(part, *runs, **options, train=False, progress=False), complete

    def _experiment(self, name: str, *runs: Run, part: str | None = None, **options: Any) -> Result:
        self.how.note(f"{(part or name)}:")
        return experiment(name, *runs, out=self.where / (part or name), **options)

    def _training(self, part: str) -> dict[str, Any]:
        how = {one.name: getattr(self.how, one.name) for one in fields(Training)}
        return {**how, "dataset": None, "learner": None} if part == "long-tail" else how

    def _begun(self, part: str) -> bool:
        """True if some of its models are there."""
        given = part == "second" and self.second_run is not None
        return given or any((self.where / part).rglob(RUN_FILE))

    def _all_trained(self, part: str) -> bool:
        """Whether its models are there (or have failed): other calls train those of other shards."""
        return all(_unaccounted(open_run(file.parent)) == 0 for file in (self.where / part).rglob(RUN_FILE))

    def _options(self, part: str, count: int | None) -> dict[str, Any]:
        if part not in LEAST:
            return dict(self.subject.chosen.get(part, {}))
        amount = self._amount(part, count)
        if part == "removal":
            return {"thresholds": self.subject.thresholds, "repeats": amount, "seed": self.seed}
        name = "repeats" if part == "utility" else "trials"
        return {name: amount, "seed": self.seed, **self._levels(part)}

    def _levels(self, part: str) -> dict[str, Any]:
        """The thresholds of pairs, if the part's experiment takes them."""
        module = named("consistency" if part == "architectures" else part)
        steps = [getattr(module, step) for step in ("plan", "summarize") if hasattr(module, step)]
        takes = any("infl" in inspect.signature(step).parameters for step in steps)
        return {"mem": self.mem, "infl": self.infl} if takes else {}

    def _amount(self, part: str, count: int | None) -> int:
        """The number of repeats or models asked for; never fewer than are there."""
        if part == "second":
            return count or len(self.base.trials) // 2
        there = begun(self.where / part) if part in MOST else []
        return there[-1] if there and not self.how.train else max([count or LEAST[part], *there])

    def _train_second(self, count: int | None) -> None:
        """Trials of another network: half as many, since each half of the base is compared with them."""
        if self.second_run is not None or not self.how.train:
            return
        if self.how.left <= 0:
            raise InputError(NO_TIME)
        self.how.note("second:")
        learner = resolve(self.second, self.second_settings)
        self.how.run(
            self.where / "second", self.how.dataset, learner, trials=self._amount("second", count), seed=self.seed + 1
        )

    @property
    def other(self) -> Run | None:
        """The other network's run, if it says anything."""
        there = self.second_run
        if there is None and (self.where / "second" / RUN_FILE).is_file():
            there = open_run(self.where / "second")
        return there if there is not None and len(there.store.scan().numbers) >= FEWEST["second"] else None

    def trained_runs(self) -> list[Run]:
        """The base, the other network's run where it is compared, and the models of parts that have a result."""
        parts = [part for part in TRAINED if part != "second" and part in self.results]
        others = [open_run(file.parent) for part in parts for file in sorted((self.where / part).rglob(RUN_FILE))]
        other = self.other if "architectures" in self.results else None
        return [self.base, *([] if other is None else [other]), *others]

    def grow(self, parts: Sequence[str]) -> None:
        """Spend the time that is left on more repeats: half of it on removal, then what is left on utility."""
        if not self.subject.by_time or self.how.shard is not None:
            return
        for share, part in ((0.5, "removal"), (1.0, "utility")):
            result = self.results.get(part)
            if part not in parts or result is None or self.how.left <= 0:
                continue
            there = int(result.settings["repeats"])
            store = open_run(self.where / part / "trained")
            models = len(store.store.scan().numbers) / there  # of one repeat
            each = models * (store.status()["seconds_per_trial"] or 0) / (self.how.workers or 1)
            repeats = more_repeats(there, MOST[part], share * self.how.left, each)
            if repeats > there:
                self.how.note(f"{duration(self.how.left)} are left: {repeats} repeats of {part} in place of {there}")
                self.do(part, repeats)

    def plan(self, wanted: Mapping[str, int | None]) -> str:
        """A text that says what is to be done."""
        lines = [f"{len(self.base.trials):,} trials in {self.base.path}, {duration(self.how.left)} for the rest:"]
        for part, count in wanted.items():
            done = self._kept(part, count) is not None
            if work := "done" if done else self._work(part, count):
                lines.append(f"  {part}: {work}")
        reading = [part for part in wanted if part not in TRAINED and not self.is_done(part)]
        return "\n".join([*lines, *([f"  then read and drawn: {', '.join(reading)}"] if reading else [])])

    def _work(self, part: str, count: int | None) -> str:
        """The models that a part trains, and how long that takes at the pace of the base run; empty if it has none."""
        each = self.base.status()["seconds_per_trial"]
        amount = self._amount(part, count) if part in LEAST or part == "second" else 0
        if part in ("removal", "utility"):
            sides = 1 + 2 * len(self.subject.thresholds) if part == "removal" else 2
            whole = (each or 0) / (self.base.info.kinds[0].keep or 1.0) / (self.how.workers or 1)
            time_ = f", about {duration(amount * sides * whole)} at the pace of the run" if each else ""
            return f"{amount} repeats of {sides} models on all or most examples{time_}"
        if part == "last-layer":
            return f"a network on everything and {amount} linear models"
        if part == "second" and self.second_run is None:
            settings = "".join(f" {name}={value}" for name, value in self.second_settings.items())
            return f"{amount} trials of {self.second}{settings}, as far as the time goes"
        if part in ("long-tail", "loo"):
            what = "synthetic worlds" if part == "long-tail" else "models on all examples and on all but one"
            return f"{what}, {dict(self.subject.chosen[part])}"
        return ""

    def is_done(self, part: str) -> bool:
        """True if its result is there and made of the trials that are there."""
        return self._kept(part, None) is not None

    def _kept(self, part: str, count: int | None, asked: bool = True) -> Result | None:
        """An earlier result, if it is made of what is there and, where it is `asked` for, of all that is to be."""
        path = self.where / part / f"{'consistency' if part == 'architectures' else part}.json"
        made_of = _read_progress(self.where).get("done", {}).get(part, {})
        now = self._made_of(part, count) | {"complete": True}
        ignored = () if asked and self.how.train else ("complete", "wanted", "learner", "seed")  # as they are there
        same = all(made_of.get(name) == value for name, value in now.items() if name not in ignored)
        if not path.is_file() or not same:
            return None
        there = json.loads(path.read_bytes())
        return Result(there["experiment"], there["title"], there["numbers"], (), there["settings"])

    def _made_of(self, part: str, count: int | None) -> dict[str, Any]:
        """All that a part depends on: the trials of the run, its own models, and those that are wanted."""
        found: dict[str, Any] = {"base": _trials_of(self.base)}
        if part in LEAST:
            store = self.where / part / "trained"
            models = _trials_of(open_run(store)) if (store / RUN_FILE).is_file() else None
            learner = digest(self.how.learner.describe()) if self.how.train else None
            found |= {"models": models, "wanted": self._amount(part, count), "learner": learner, "seed": self.seed}
        if part != "second":
            found |= self._levels(part)
        if part == "architectures":
            other = self.other
            found["other"] = None if other is None else _trials_of(other)
        return found


def _trials_of(run: Run) -> dict[str, Any]:
    """The identity of a run (data, plan and learner; its place if it was imported), and its number of trials."""
    place = {} if run.info.plan else {"path": str(run.path.resolve())}
    return {**run.info.identity, **place, "trials": len(run.store.scan().numbers)}


def overview(run: Run, *, mem: float = 0.25, infl: float = 0.15) -> Result:
    """The run itself, as the paper describes its own: how many models, how accurate, how many examples they memorize.

    `infl` is only noted. The number of memorized examples has a jackknife's standard error over blocks of trials: how
    far it would move with other trials. Estimates from fewer trials are noisier, so a count at a threshold moves more
    between blocks than it would between runs: the error is rather too large (in 14 runs of a `longtail` world 1.8
    times). It does not say how far the count is off: noise lifts some examples over the threshold and takes others
    below it, and with few trials there are more of the first.
    """
    check_trials(run)
    trials, kinds = run.trials, run.info.kinds

    def memorized(which: np.ndarray) -> int:
        return int((memorization(trials.select(which), kinds).value >= mem).sum())

    blocks = trials.numbers // trials.cluster % BLOCKS
    numbers = {
        "mem": mem,
        "infl": infl,
        "keep": float(np.bitwise_count(trials.mask).sum() / (len(trials) * trials.n_train)),
        "trials": len(trials),
        "test_accuracy": spread(unpack(trials.test_correct, trials.n_test).mean(axis=1)),
        "memorized": memorized(blocks >= 0),
        "memorized_stderr": jackknife([memorized(blocks != block) for block in range(BLOCKS)]),
    }
    return Result("run", f"{about(run.info)}, {len(trials):,} models", numbers, (), {"mem": mem})


def prepared(how: Training, subject: Subject, spec: str | None, run: "str | Path | Run | None") -> Training:
    """With the data loaded and the learner made, once for all parts: what is wrong with them is said first."""
    there = None if run is None else run if isinstance(run, Run) else open_run(run)
    if not how.train:
        return replace(how, dataset=spec)
    if there is not None:
        how = replace(how, dataset=spec)
        return replace(how, dataset=how.data_of(there), learner=how.learner_of(there), settings=None)
    return replace(
        how, dataset=as_dataset(spec), learner=resolve(how.learner or subject.learner, how.settings), settings=None
    )


def base_of(
    subject: Subject,
    how: Training,
    where: Path,
    run: "str | Path | Run | None",
    budget: float,
    trials: int | None,
    seed: int,
) -> Run:
    """The run. If the time is over before it is complete, that ends the call: all else is made from it."""
    if run is not None:
        if trials is not None:
            raise InputError("The trials are those of `run`; leave out `trials`.")
        there = run if isinstance(run, Run) else open_run(run)
        return _with_data(there, how)
    if not how.train:
        if not is_run(where / "base"):
            raise InputError(f"{where} has no trials yet; run it without `train=False`, and with a `budget`.")
        return _with_data(open_run(where / "base"), how)
    wanted = _read_progress(where).get("base_trials")
    try:
        if wanted is None:
            known = trials or (None if subject.by_time else subject.trials)
            wanted = known or _affordable(subject, how, where, budget, seed)
            _write_progress(where, base_trials=wanted)
        elif trials is not None and trials != wanted:
            raise InputError(
                f"{where} was begun with {wanted} trials, from which all its parts are made; leave out `trials`, or"
                " choose another directory (`out`)."
            )
        how.note(f"{wanted:,} trials of {how.learner.name} to begin with")
        there = how.run(where / "base", how.dataset, how.learner, trials=wanted, seed=seed)
        if left := _unaccounted(there):
            raise Interrupted(
                f"The part {how.shard} is done. {left} of the {wanted} trials that all else is made from are missing in"
                f" {there.path}; when the other parts are done, run the same command to go on."
            )
        return there
    except DeadlineReached:
        done = len(open_run(where / "base").store.scan().numbers)
        raise Interrupted(
            f"The time was over after {done} of the {wanted or 'first'} trials that all else is made from; run the same"
            " command to go on."
        ) from None


def _affordable(subject: Subject, how: Training, where: Path, budget: float, seed: int) -> int:
    """The number of trials that a share of the time allows, from the pace of the first ones, which are kept."""
    group = how.learner.group_size(how.dataset, how.device)
    alone = replace(how, workers=1)
    alone.run(where / "base", how.dataset, how.learner, trials=group, seed=seed)  # with what is compiled on the way
    count = 2 * group if group > 1 else 4
    before = time.monotonic()
    alone.run(where / "base", how.dataset, how.learner, trials=count, seed=seed)
    each = (time.monotonic() - before) / (count - group) / (how.workers or 1)
    wanted = max(base_trials(budget, each, subject.trials), count)
    how.note(f"a trial takes {duration(each)}; {duration(budget)} allow {wanted:,} of them to begin with")
    return wanted


def _unaccounted(run: Run) -> int:
    """The number of trials that were asked for and are neither stored nor failed."""
    stored = run.store.scan().numbers.tolist()
    return run.info.trials - len(stored) - len(run.store.failures(stored))


def _with_data(run: Run, how: Training) -> Run:
    """The run with its data, if they were named."""
    if isinstance(how.dataset, str):
        run.dataset(how.dataset)
        return run
    return run if how.dataset is None else Run(run.store, how.dataset)


def _read_progress(where: Path) -> dict[str, Any]:
    path = where / "progress.json"
    found: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return found


def _write_progress(where: Path, **changes: Any) -> None:
    write_whole(where / "progress.json", (json.dumps(_read_progress(where) | changes, indent=2) + "\n").encode())
