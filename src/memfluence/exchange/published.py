"""The layout in which the authors published their results, written and read.

Scores and influence: `tr_mem` (n_train,), `tr_labels`, `tt_labels`, and for each class K `tr_classidx_K`,
`tt_classidx_K` (indices) and `infl_matrix_classK` (train, test). Pairs: `tr_idx`, `tt_idx`, `infl`, `mem`, one entry
per pair.
"""

import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from memfluence.errors import InputError, StoreError
from memfluence.runs import Run

__all__ = ["Published", "export_published", "read_published"]


@dataclass(frozen=True, eq=False)
class Published:
    """What a published file holds: pairs, or scores with class-wise influence."""

    path: Path
    train_index: np.ndarray | None = None  # (pairs,)
    test_index: np.ndarray | None = None
    influence: np.ndarray | None = None
    memorization_of_pairs: np.ndarray | None = None
    memorization: np.ndarray | None = None  # (n_train,)
    train_labels: np.ndarray | None = None
    test_labels: np.ndarray | None = None
    blocks: tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...] = field(default=())  # (train, test, influence)

    def summary(self) -> dict[str, int] | None:
        """The paper's four counts, where the file holds pairs."""
        if self.train_index is None or self.test_index is None:
            return None
        _, pairs_of_test = np.unique(self.test_index, return_counts=True)
        return {
            "pairs": len(self.train_index),
            "train_examples": len(np.unique(self.train_index)),
            "test_examples": len(pairs_of_test),
            "single_test_examples": int((pairs_of_test == 1).sum()),
        }


def read_published(path: Path) -> Published:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise InputError(f"There is no run or file {path}; give a run's directory or a published .npz.") from None
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is neither a run nor a readable .npz file ({error}).") from None
    if {"tr_idx", "tt_idx", "infl"} <= set(arrays):
        lengths = {len(arrays[name]) for name in ("tr_idx", "tt_idx", "infl", "mem") if name in arrays}
        if len(lengths) != 1:
            raise InputError(f"{path}: tr_idx, tt_idx, infl and mem must be equally long.")
        return Published(
            path,
            train_index=arrays["tr_idx"],
            test_index=arrays["tt_idx"],
            influence=arrays["infl"],
            memorization_of_pairs=arrays.get("mem"),
        )
    if "tr_mem" in arrays:
        classes = sorted(name.removeprefix("infl_matrix_class") for name in arrays if name.startswith("infl_matrix_"))
        try:
            blocks = tuple(
                (arrays[f"tr_classidx_{k}"], arrays[f"tt_classidx_{k}"], arrays[f"infl_matrix_class{k}"])
                for k in classes
            )
        except KeyError as error:
            raise InputError(f"{path} has an influence matrix without its {error}.") from None
        return Published(
            path,
            memorization=arrays["tr_mem"],
            train_labels=arrays.get("tr_labels"),
            test_labels=arrays.get("tt_labels"),
            blocks=blocks,
        )
    raise InputError(
        f"{path} holds {', '.join(sorted(arrays)[:6])}; a published file has tr_idx, tt_idx and infl, or tr_mem."
    )


def export_published(
    run: Run, path: Path | str, *, pairs: bool = False, mem: float = 0.25, infl: float = 0.15, keep: float | None = None
) -> None:
    """Write scores and class-wise influence, or the high-influence pairs, in the authors' layout."""
    target = Path(path)
    if target.suffix != ".npz":
        raise InputError(f"{target} must end in .npz, the format of the published files.")
    if pairs:
        found = run.find_pairs(mem, infl, keep=keep, permutations=0)
        arrays = {
            "tr_idx": found.train_index,
            "tt_idx": found.test_index,
            "infl": found.influence,
            "mem": found.memorization,
        }
    else:
        codes = run.label_codes
        arrays = {
            "tr_mem": run.estimate_memorization(keep).value,
            "tr_labels": run.classes[codes[0]],
            "tt_labels": run.classes[codes[1]],
        }
        for block in run.influence_estimates(keep).class_blocks(*codes):
            arrays[f"tr_classidx_{block.label}"] = block.train
            arrays[f"tt_classidx_{block.label}"] = block.test
            arrays[f"infl_matrix_class{block.label}"] = block.values.astype(np.float32)  # as published
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as stream:
            np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise StoreError(f"Failed writing {target}: {error.strerror}; choose another place.") from error
