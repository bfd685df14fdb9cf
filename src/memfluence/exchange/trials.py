"""Trials in and out: `import_trials` joins work done in several places, `export_trials` packs a run into one file."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from memfluence.datasets import load
from memfluence.errors import InputError
from memfluence.exchange.importing import Imported, Labels
from memfluence.exchange.importing import import_trials as _import
from memfluence.exchange.trials_file import TrialsFile, write_trials_file
from memfluence.runs import Run
from memfluence.store import Location, locate, unpack

__all__ = ["export_trials", "import_trials"]


def import_trials(paths: Iterable[str | Path], out: str | Location, *, dataset: str | None = None) -> Imported:
    """Make a run of trials files (or folders of the authors' release), or join them to the run at `out`.

    `dataset` names the data they are about: needed where a file has no labels, and it lets a report show the examples.
    """
    labels = None
    if dataset is not None:
        data = load(dataset)
        labels = Labels(data.labels("train"), data.labels("test"), data.name, data.fingerprint, data.class_names)
    return _import([Path(path) for path in paths], locate(out), labels)


def export_trials(run: Run, path: str | Path) -> None:
    """Write all trials of a run in the format that `import_trials` reads, with the run's own description."""
    target = Path(path)
    if target.suffix != ".npz":
        raise InputError(f"{target} must end in .npz, the format of trials files.")
    trials, info = run.trials, run.info
    extras = {}
    cells = len(trials) * (2 * info.n_train + info.n_test)
    run.memory.check((2 + 6 * len(info.record)) * cells, "all trials, unpacked", "a machine that has it")
    for name in info.columns:
        if name.partition("_")[0] in ("train", "test") and name.partition("_")[2] in info.record:
            extras[name] = run.store.read_extra(name)[1]
    file = TrialsFile(
        source=target,
        mask=unpack(trials.mask, info.n_train),
        train_correct=unpack(trials.train_correct, info.n_train),
        test_correct=unpack(trials.test_correct, info.n_test),
        train_labels=run.classes[run.label_codes[0]],
        test_labels=run.classes[run.label_codes[1]],
        trial=trials.numbers,
        kind=trials.kinds,
        plan=str(info.plan["digest"]) if info.plan else None,
        run=asdict(info),
        extras=extras,
        groups=run.store.groups() if run.store.has_groups else None,
    )
    write_trials_file(target, file)
