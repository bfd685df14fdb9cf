"""Pairs to look at (the paper's Figs. 4 to 6): memorized training examples and the test examples they carry.

Selection (App. C), so that nothing is cherry-picked. The training examples in high-influence pairs are sorted by the
highest influence that they have on a test example, and 3 consecutive sets of 5 are taken with positions spread evenly
over that order. The paper's lines, where `idx_train_selected` is ascending:

    idx_sort_selected = np.argsort(-max_infl_of_train_selected)
    base_idxs = np.linspace(0, len(idx_train_selected) - n_copies, n_egs).astype(np.int)
    for i_copy in range(n_copies):
      idxs_to_depict = [idx_train_selected[idx_sort_selected[x + i_copy]] for x in base_idxs]

Ours differ in three things: the sort is stable, so that equal influences go to the lower index on every machine;
positions stay in range below 3 examples, where the lines above fail; and below 15, where they repeat examples, each is
shown once, the first time. Of each training example the 4 test examples of its class that it influences most are shown
(of any class, if pairs are selected so), also where the last of them are below the threshold.

Failure cases. No pair reaches the thresholds: an error that says so.
"""

from typing import Any

import numpy as np

from memfluence.errors import InputError
from memfluence.experiments._checks import check_trials
from memfluence.experiments._looking import in_words, pictures
from memfluence.experiments._result import Result, about
from memfluence.runs import Run

__all__ = ["positions", "strongest_first", "summarize"]

SETS, EACH, TESTS = 3, 5, 4  # n_copies, n_egs and n_test_egs of the paper


def summarize(
    run: Run,
    *,
    mem: float = 0.25,
    infl: float = 0.15,
    same_class: bool = True,
    dataset: str | None = None,
    keep: float | None = None,
    memory: str | int | None = None,
) -> Result:
    """The paper's selection of training examples, each with its four most influenced test examples."""
    import pandas as pd

    check_trials(run)
    pairs = run.find_pairs(mem, infl, same_class=same_class, keep=keep, permutations=0, memory=memory)
    if not len(pairs):
        raise InputError(f"There are no pairs to show. {pairs.warning}")
    data = run.dataset(dataset)
    order = strongest_first(pairs.train_index, pairs.influence)
    estimates, memorization = run.influence_estimates(keep, memory=memory), run.estimate_memorization(keep)
    codes = run.label_codes
    rows: list[dict[str, Any]] = []
    for number, places in enumerate(positions(len(order))):
        for place in places:
            train = int(order[place])
            candidates = np.flatnonzero(codes[1] == codes[0][train]) if same_class else np.arange(run.info.n_test)
            values = estimates.block([train], candidates)[0]  # (candidates,)
            best = candidates[np.argsort(-values, kind="stable")[:TESTS]]
            found = estimates.at(np.full(len(best), train), best)
            rows += [
                {
                    "set": number,
                    "position": place,
                    "train_index": train,
                    "class": data.class_names[codes[0][train]],
                    "memorization": float(memorization.value[train]),
                    "memorization_stderr": float(memorization.stderr[train]),
                    "test_index": test,
                    "test_class": data.class_names[codes[1][test]],
                    "influence": float(found.value[k]),
                    "stderr": float(found.stderr[k]),
                    "selected": bool(found.value[k] >= infl),
                }
                for k, test in enumerate(best.tolist())
            ]
    images = pictures(data, "train", (row["train_index"] for row in rows))
    images |= pictures(data, "test", (row["test_index"] for row in rows))
    if not images:
        for row in rows:
            row["train_input"] = in_words(data, "train", row["train_index"])
            row["test_input"] = in_words(data, "test", row["test_index"])
    numbers = {**pairs.summary, "shown_train_examples": len({row["train_index"] for row in rows})}
    settings = {"mem": mem, "infl": infl, "same_class": same_class, "keep": keep}
    title = (
        f"{about(run.info)}, {len(run.trials):,} models; {len(pairs):,} pairs (memorization >= {mem:g}, influence >="
        f" {infl:g})"
    )
    return Result("pairs", title, numbers, pd.DataFrame(rows), settings, images)


def strongest_first(train_index: np.ndarray, influence: np.ndarray) -> np.ndarray:
    """The training examples of pairs by their highest influence, ties to the lower index."""
    train, which = np.unique(train_index, return_inverse=True)  # ascending
    highest = np.full(len(train), -np.inf)
    np.maximum.at(highest, which, influence)
    return np.asarray(train[np.argsort(-highest, kind="stable")])


def positions(examples: int, sets: int = SETS, each: int = EACH) -> list[list[int]]:
    """Positions in the sorted order that each set shows; every position at most once."""
    base = np.linspace(0, max(0, examples - sets), each).astype(int)  # (each,)
    shown: set[int] = set()
    found = []
    for copy in range(sets):
        places = [place for place in dict.fromkeys((base + copy).tolist()) if place < examples and place not in shown]
        shown.update(places)
        found.append(places)
    return found
