"""Files that other tools read: cleanlab's predicted probabilities, samples for FiftyOne, a Hugging Face folder.

Plain files; none of these tools is needed to write them.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.errors import InputError
from memfluence.exchange.huggingface import export_huggingface
from memfluence.runs import Run, Table
from memfluence.runs.values import memorization_table
from memfluence.store import write_whole

__all__ = ["TOOLS", "export_for"]


def export_for(run: Run, path: str | Path, tool: str, *, dataset: str | None = None, keep: float | None = None) -> None:
    """Write what `tool` reads: "cleanlab" (.csv or .parquet), "fiftyone" (.json) or "huggingface" (a folder).

    `dataset` says where the data are if the run does not. "cleanlab" needs a run with recorded predictions.
    """
    if tool not in TOOLS:
        raise InputError(f"There is no format {tool!r}; choose one of {', '.join(TOOLS)}.")
    TOOLS[tool](run, Path(path), dataset, keep)


def _cleanlab(run: Run, path: Path, dataset: str | None, keep: float | None) -> None:
    """Out-of-sample probabilities: of the models that left an example out, the share that predicts each class.

    `label` is the class as it was written, `given_label` its number 0..K-1, `pred_prob_K` the share for class number K,
    `predicted_label` the class with the most votes (ties: the lower number), and `label_quality` the share for the
    given label, which cleanlab calls self-confidence. Where no model left the example out they are NaN and -1.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"{path} must end in .csv or .parquet, which says the format.")
    n_classes, codes = len(run.classes), run.label_codes[0]
    run.memory.check(32 * run.info.n_train * n_classes, "probabilities of all classes", "a machine that has it")
    votes = run.held_out_votes(keep)  # (n_train, n_classes)
    with np.errstate(invalid="ignore"):  # 0 / 0: never left out
        shares = votes / votes.sum(axis=1, keepdims=True)
    ids = run.ids
    columns = {
        "index": np.arange(len(codes)),
        "label": run.classes[codes],
        "given_label": codes,
        "predicted_label": np.where(np.isnan(shares[:, 0]), -1, votes.argmax(axis=1)),
        "label_quality": shares[np.arange(len(codes)), codes],
        **{f"pred_prob_{k}": shares[:, k] for k in range(n_classes)},
        **({} if ids is None else {"id": ids[0]}),
    }
    Table(columns).write(path)


def _fiftyone(run: Run, path: Path, dataset: str | None, keep: float | None) -> None:
    """`{"samples": [...]}`: one per training example, in the words of a `fiftyone.Sample`.

    `filepath` is there where the data are files that exist; `ground_truth` is the class, all else are fields.
    """
    if path.suffix != ".json":
        raise InputError(f"{path} must end in .json, the format of samples.")
    ids = run.ids
    columns = dict(memorization_table(run, keep).columns) | ({} if ids is None else {"id": ids[0]})
    if "train_prediction" in run.info.columns:
        found = run.find_mislabels(keep)
        said, place = found.agreement, np.argsort(found.index)  # back to the order of the examples
        if said is not None:
            columns |= {"suggestion": run.classes[said.suggestion[place]], "agreement": said.share[place]}
    samples: list[dict[str, Any]] = []
    names = dict(zip(run.classes.tolist(), run.info.dataset["class_names"]))
    root = Path(str(dataset or run.info.dataset["name"]).partition("?")[0].partition(":")[2]).expanduser()
    for row in Table(columns).rows():
        label, name = row.pop("label"), str(row.get("id", ""))
        sample: dict[str, Any] = {"filepath": str(root / name)} if name and (root / name).is_file() else {}
        if "suggestion" in row:
            row["suggestion"] = str(names[row["suggestion"]])
        own = {"example_id": row.pop("id")} if "id" in row else {}
        samples.append({**sample, "tags": ["train"], "ground_truth": {"label": str(names[label])}, **own, **row})
    write_whole(path, json.dumps({"samples": samples}, ensure_ascii=False, indent=1).encode())


TOOLS: dict[str, Callable[[Run, Path, str | None, float | None], None]] = {
    "cleanlab": _cleanlab,
    "fiftyone": _fiftyone,
    "huggingface": export_huggingface,
}
