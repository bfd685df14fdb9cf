"""Which trials of some files a run lacks, and the numbers that they get."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from memfluence.errors import StoreError
from memfluence.exchange.trials_file import TrialsFile
from memfluence.records import Outcome
from memfluence.store.bits import pack
from memfluence.store.store import TrialStore

__all__ = ["number_trials"]


def number_trials(given: Sequence[Sequence[TrialsFile]], existing: TrialStore | None) -> tuple[list[Outcome], int]:
    """Outcomes that the run lacks, each with its number, and how many were there already.

    Trials without a number are told apart by their content. Those that were given together (one file, or all folders
    of a release) are all different trials, so equal ones are kept: of each content, only as many are there already as
    the run has.
    """
    records = {} if existing is None else dict(_records_of(existing))
    copies = Counter(records.values())
    outcomes: list[Outcome] = []
    already_there = 0
    for together in given:
        unmatched = Counter(copies)  # of what was there before these files
        for file in together:
            for row, content in enumerate(_contents(file.kinds, file.mask, file.train_correct, file.test_correct)):
                number = len(records) if file.trial is None else int(file.trial[row])
                if file.trial is None:
                    is_there = unmatched[content] > 0
                    unmatched[content] -= is_there
                    while number in records:
                        number += 1
                else:
                    is_there = records.get(number) == content
                if is_there:
                    already_there += 1
                    continue
                if number in records:
                    raise StoreError(
                        f"{file.source} has another record of trial {number} than the run;"
                        " find out which one is right before joining them. Nothing was written."
                    )
                records[number] = content
                copies[content] += 1
                outcomes.append(_outcome(file, row, number))
    return outcomes, already_there


def _records_of(store: TrialStore) -> Iterator[tuple[int, bytes]]:
    trials, _ = store.read()
    for row, number in enumerate(trials.numbers.tolist()):
        columns = (trials.kinds, trials.mask, trials.train_correct, trials.test_correct)
        yield number, b"".join(column[row].tobytes() for column in columns)


def _contents(kinds: np.ndarray, *bits: np.ndarray) -> Iterator[bytes]:
    """What distinguishes the rows of a file, as `_records_of` gives it."""
    columns = [kinds, *map(pack, bits)]
    for row in range(len(kinds)):
        yield b"".join(column[row].tobytes() for column in columns)


def _outcome(file: TrialsFile, row: int, number: int) -> Outcome:
    return Outcome(
        trial=number,
        kind=int(file.kinds[row]),
        mask=file.mask[row],
        train_correct=file.train_correct[row],
        test_correct=file.test_correct[row],
        extras={name: values[row] for name, values in file.extras.items()},
        device="imported",
    )
