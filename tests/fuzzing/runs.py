"""Runs in the real format: several designs, learners and optional columns, and what a reader asks of a run."""

import io
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

import memfluence as mf
from memfluence.cli._terminal import as_json
from memfluence.designs import Groups, make
from memfluence.errors import MemfluenceError
from memfluence.records import Failure, Outcome
from memfluence.store import RunInfo, TrialStore, segment_columns

N_TRAIN, N_TEST, TRIALS = 21, 13, 12
_LEARNERS: tuple[Mapping[str, Any] | None, ...] = (
    {
        "name": "mlp",
        "settings": {"hidden": [128], "epochs": 30, "batch": 64, "rate": 0.1, "momentum": 0.9, "precision": "auto"},
    },
    {"name": "learner.py:learn", "source": "d41d8cd98f00b204e9800998ecf8427e", "kind": "function"},
    {"name": "LogisticRegression", "parameters": {"C": 1.0, "max_iter": 100, "penalty": None}, "kind": "estimator"},
    {"name": "resnet9", "recipe": {"name": "fast", "epochs": 20, "schedule": [[0, 0.0], [5, 1.0]]}},
)
# design, keep, recorded outcomes, in groups
_DESIGNS: tuple[tuple[str, Any, tuple[str, ...], bool], ...] = (
    ("fixed", 0.7, (), False),
    ("fixed", (0.5, 0.75), ("prediction",), False),
    ("balanced:4", 0.5, (), False),
    ("repeats:3", 0.6, ("logit", "margin"), False),
    ("lemma", 0.7, ("logit", "margin", "prediction"), False),
    ("bernoulli", 0.5, (), True),
    ("uniform:2", 0.5, (), False),
)


def seed_runs() -> list[dict[str, bytes]]:
    """The files of each run, by their paths within it."""
    found = []
    with tempfile.TemporaryDirectory(prefix="memfluence-fuzz-") as place:
        for number, (spec, keep, record, grouped) in enumerate(_DESIGNS):
            path = Path(place) / str(number)
            _write_run(path, spec, keep, record, grouped, _LEARNERS[number % len(_LEARNERS)])
            found.append({str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*.*"))})
    return found


def _write_run(
    path: Path, spec: str, keep: Any, record: tuple[str, ...], grouped: bool, learner: Mapping[str, Any] | None
) -> None:
    groups = Groups(np.arange(N_TRAIN) % 7, tuple(f"group {k}" for k in range(7))) if grouped else None
    design = make(spec, n_train=N_TRAIN, keep=keep, seed=3, groups=groups)
    names = ["ant", "bee", "fly"]
    info = RunInfo(
        dataset={
            "name": "npz:/data/insects.npz",
            "fingerprint": "0123456789abcdef" * 2,
            "n_train": N_TRAIN,
            "n_test": N_TEST,
            "classes": names if record else [0, 1, 2],
            "class_names": names,
        },
        learner=learner,
        plan={**design.plan.to_json(), "digest": design.plan.digest},
        kinds=design.kinds,
        trials=TRIALS,
        group_size=4,
        repeats=design.repeats,
        record=record,
        columns=segment_columns(record),
        versions={"memfluence": "0.1.0", "numpy": "2.4.6"},
    )
    ids = ([f"train {k}" for k in range(N_TRAIN)], [f"test {k}" for k in range(N_TEST)]) if record else (None, None)
    of = None if groups is None else (groups.codes, groups.names)
    store = TrialStore.create(path, info, np.arange(N_TRAIN) % 3, np.arange(N_TEST) % 3, *ids, groups=of)
    for first, last in ((0, 7), (7, TRIALS)):
        store.write([_outcome(design.trial(number), record) for number in range(first, last)])
    if grouped:
        store.write_failure(Failure(3, "ValueError: no", "Traceback"))
        store.checkpoints(every=1.0).save(2, {"torch": "2.13.0"}, b"state", 0.5)
    store.path.joinpath(".index").unlink(missing_ok=True)
    if record:
        TrialStore.open(path).scan(indexed=True)


def _outcome(trial: Any, record: Sequence[str]) -> Outcome:
    rng = np.random.default_rng([7, trial.number])
    sizes = {"train": N_TRAIN, "test": N_TEST}
    extras: dict[str, np.ndarray] = {}
    for split, n in sizes.items():
        for kind in record:
            values = rng.integers(0, 4, n).astype(np.uint8) if kind == "prediction" else rng.normal(size=n)
            extras[f"{split}_{kind}"] = values if kind == "prediction" else values.astype(np.float16)
    return Outcome(
        trial=trial.number,
        kind=trial.kind,
        mask=trial.mask,
        train_correct=trial.mask | (rng.random(N_TRAIN) < 0.4),
        test_correct=rng.random(N_TEST) < 0.6,
        extras=extras,
        seconds=0.5,
        host="here",
        device="cpu",
        process=17,
        finished=1.7e9 + trial.number,
    )


def ask(path: Path) -> list[str]:
    """Everything that is asked of a run, and what is said against it. An answer that cannot be is an AssertionError."""
    said: list[str] = []

    def question(asked: Callable[[], Any]) -> Any:
        try:
            return asked()
        except MemfluenceError as error:
            refuse_hidden(error)
            said.append(str(error))
            return None

    def printed(document: Any) -> None:
        with redirect_stdout(io.StringIO()) as output:
            as_json(document)
        output.getvalue().encode()

    run = question(lambda: mf.open(path))
    if run is None:
        return said
    repr(run)
    status = question(run.status)
    if status is not None:
        printed(status)
        said += [one["reason"] for one in status["damaged"]]
        assert status["trials"] >= 0
    found = question(lambda: mf.verify(path))
    if found is not None:
        printed(found.to_json())
        said += [problem.message for problem in found.problems]
    kinds = run.info.kinds
    if any(kind.arm == "neither" for kind in kinds):
        question(lambda: _check_values(mf.values(run, "shapley")))
        return said
    keep = kinds[0].keep if len({kind.keep for kind in kinds}) > 1 else None
    scores = question(lambda: run.memorization(keep))
    if scores is not None:
        _check_scores(scores, run)
    pairs = question(lambda: run.pairs(keep=keep))
    if pairs is not None:
        assert pairs["influence"].abs().le(1).all()
        assert pairs["train_index"].lt(run.info.n_train).all()
    question(lambda: run.ids)
    if run.store.examples.has_groups if question(lambda: run.store.examples.has_groups) else False:
        question(run.store.examples.groups)
    for name in ("train_prediction", "test_margin"):
        if name in run.info.columns:
            question(lambda name=name: run.store.read_extra(name))  # type: ignore[misc]
    return said


def refuse_hidden(error: BaseException) -> None:
    """Running out of memory is no answer, whatever sentence it is put in."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            raise MemoryError(f"behind the sentence: {error}") from error
        cause = cause.__cause__ or cause.__context__


def _check_scores(scores: Any, run: Any) -> None:
    assert len(scores) == run.info.n_train
    kept, left = scores["trials_in"].to_numpy(), scores["trials_out"].to_numpy()
    assert (kept >= 0).all()
    assert (left >= 0).all()
    assert ((kept + left) <= len(run.trials)).all() or len(run.info.kinds) > 1
    values = scores["memorization"].to_numpy()
    assert (np.isnan(values) | (np.abs(values) <= 1)).all()
    assert (np.isnan(values) == ((kept == 0) | (left == 0))).all()
    for name in ("accuracy_in", "accuracy_out"):
        shares = scores[name].to_numpy()
        assert (np.isnan(shares) | ((shares >= 0) & (shares <= 1))).all()


def _check_values(values: Any) -> None:
    assert not any(math.isinf(value) for value in np.asarray(values["value"], float))
