"""Files that other tools read: cleanlab's predicted probabilities, samples for FiftyOne, a Hugging Face folder.

They are plain files, and none of these tools is needed to write them. Hugging Face's `datasets.load_dataset` reads a
folder of the data with a score for every training example: `README.md` names the splits, `data/train.parquet` and
`data/test.parquet` hold them. Pictures are PNG in the form of an `Image` feature, labels a `ClassLabel`; both stand in
the schema's metadata, so the library gives them as such, and any other Parquet reader finds plain columns.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from memfluence import findings
from memfluence.datasets import Dataset, short_name, to_images
from memfluence.errors import InputError
from memfluence.estimators.counts import column_counts
from memfluence.runs import Run, Table
from memfluence.runs.values import check_bits, memorization_table
from memfluence.store import known_data, refuse_uri, write_whole

ROWS_AT_ONCE = 1000
_CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train.parquet
  - split: test
    path: data/test.parquet
---

# {title}

Memorization of {n_train:,} training examples, estimated from {trials:,} models on random subsets with memfluence.
`memorization` is how much more often models are right on an example that they saw (`accuracy_in`) than on one that they
did not (`accuracy_out`); `stderr` and the 95% interval from `lower` to `upper` say how sure that is; null is what the
trials cannot say. `accuracy` is the share of models that are right on a test example.
"""


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
    `predicted_label` the class with the most votes (ties: the lower number), and `label_quality` what `mislabels` ranks
    by: the mean of 1 / (1 + exp(-margin)) over these models where margins were recorded, otherwise the share for the
    given label, which cleanlab calls self-confidence. Where no model left the example out they are NaN and -1.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"{path} must end in .csv or .parquet, which says the format.")
    n_classes, codes = len(run.classes), run.label_codes[0]
    run.memory.check(32 * run.info.n_train * n_classes, "probabilities of all classes", "a machine that has it")
    votes = run.held_out_votes(keep)  # (n_train, n_classes)
    with np.errstate(invalid="ignore"):  # 0 / 0: never left out
        shares = votes / votes.sum(axis=1, keepdims=True)
    quality = shares[np.arange(len(codes)), codes]
    if "train_margin" in run.info.columns:
        quality = findings.held_out_acceptance(run.trials, run.info.kinds, run.recorded("train_margin"), keep)
    columns = {
        "index": np.arange(len(codes)),
        "label": run.classes[codes],
        "given_label": codes,
        "predicted_label": np.where(np.isnan(shares[:, 0]), -1, votes.argmax(axis=1)),
        "label_quality": quality,
        **{f"pred_prob_{k}": shares[:, k] for k in range(n_classes)},
        "id": run.ids[0],
    }
    Table(columns).write(path)


def _fiftyone(run: Run, path: Path, dataset: str | None, keep: float | None) -> None:
    """`{"samples": [...]}`: one per training example, in the words of a `fiftyone.Sample`.

    `filepath` is there where the data are files that exist; `ground_truth` is the class, or the target where that is
    another, all else are fields.
    """
    if path.suffix != ".json":
        raise InputError(f"{path} must end in .json, the format of samples.")
    columns = dict(memorization_table(run, keep).columns)
    if "train_prediction" in run.info.columns:
        found = run.find_mislabels(keep)
        said, place = found.agreement, np.argsort(found.index)  # back to the order of the examples
        if said is not None:
            columns |= {"suggestion": run.classes[said.suggestion[place]], "agreement": said.share[place]}
    samples: list[dict[str, Any]] = []
    names = dict(zip(run.classes.tolist(), run.info.dataset["class_names"]))
    name = dataset or known_data(str(run.info.dataset["fingerprint"])) or str(run.info.dataset["name"])
    root = Path(name.partition("?")[0].partition(":")[2]).expanduser()
    for row in Table(columns).rows():
        label, name = row.pop("label"), str(row["id"])
        sample: dict[str, Any] = {"filepath": str(root / name)} if (root / name).is_file() else {}
        if "suggestion" in row:
            row["suggestion"] = str(names[row["suggestion"]])
        truth = {"value": label} if isinstance(label, float) else {"label": str(names.get(label, label))}
        own = {"ground_truth": truth, "example_id": row.pop("id")}
        samples.append({**sample, "tags": ["train"], **own, **row})
    write_whole(path, json.dumps({"samples": samples}, ensure_ascii=False, indent=1).encode())


def _huggingface(run: Run, path: Path, dataset: str | None, keep: float | None) -> None:
    """Write the folder; the data are loaded from where the run says, or from `dataset`."""
    import pyarrow as pa

    if refuse_uri(path).is_file() or (
        path.is_dir() and any(path.iterdir()) and not (path / "data" / "train.parquet").is_file()
    ):
        raise InputError(f"{path} is there already and is no such folder; give another name.")
    check_bits(run)  # its columns and its card are about accuracies
    data = run.dataset(dataset)
    scores = memorization_table(run, keep).columns
    train = {name: _array(values) for name, values in scores.items() if name not in ("index", "id", "label")}
    parts = run.influence_estimates(keep).arms.parts
    trials = sum(map(len, parts))
    right = sum(column_counts(part.test_correct, part.n_test) for part in parts)
    test = {"accuracy": _array(right / trials if trials else np.full(run.info.n_test, np.nan))}
    (path / "data").mkdir(parents=True, exist_ok=True)
    for split, x, y, ids, own in (
        ("train", data.x_train, data.y_train, run.ids[0], train),
        ("test", data.x_test, data.y_test, run.ids[1], test),
    ):
        columns = {"label": _array(y), "id": _array(ids)}
        for name, values in (train | test).items():  # the library wants the same columns in all splits
            columns[name] = own[name] if name in own else pa.nulls(len(y), values.type)
        _write(path / "data" / f"{split}.parquet", x, columns, data)
    title = short_name(data.name) or "Data"
    card = _CARD.format(title=" ".join(title.split()), n_train=data.n_train, trials=trials)
    write_whole(path / "README.md", card.encode())


def _array(values: Any) -> Any:
    import pyarrow as pa

    return pa.array(values, from_pandas=True)  # NaN -> null


def _write(path: Path, inputs: Any, columns: Mapping[str, Any], data: Dataset) -> None:
    """Some rows at a time, so that data larger than memory can be written; whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    partial, writer = path.with_name(f".{path.name}.part"), None
    try:
        for start in range(0, len(columns["label"]), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            arrays = dict(_inputs(inputs, rows, data, taken=columns))
            arrays |= {name: values[rows] for name, values in columns.items()}
            table = pa.table(arrays)
            if writer is None:
                features = {field.name: _feature(field, data) for field in table.schema}
                described = {"huggingface": json.dumps({"info": {"features": features}})}
                schema = table.schema.with_metadata(described)
                writer = pq.ParquetWriter(partial, schema, compression="zstd")
            writer.write_table(table.cast(schema))
        if writer is not None:
            writer.close()
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _inputs(inputs: Any, rows: slice, data: Dataset, taken: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Columns of some inputs: pictures, texts, the columns of a table, or `features` (lists of numbers)."""
    import pyarrow as pa

    if hasattr(inputs, "columns"):
        for column in inputs.columns:
            name = f"input_{column}" if column in taken else str(column)
            yield name, _array(inputs[column].iloc[rows])
        return
    some = inputs.iloc[rows].tolist() if hasattr(inputs, "iloc") else inputs[rows]  # a Series of texts, or anything
    if (pictures := to_images(some, data.value_range)) is not None:
        found = [{"bytes": _png(picture), "path": None} for picture in pictures]
        yield "image", pa.array(found, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    elif isinstance(some, list | tuple) and all(isinstance(one, str) for one in some):
        yield "text", pa.array(some, pa.string())
    else:
        dense = np.asarray(some.toarray() if hasattr(some, "toarray") else some)
        yield "features", pa.array(list(dense.reshape(len(dense), -1)))


def _png(picture: np.ndarray) -> bytes:
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(picture).save(content, "png")
    return content.getvalue()


def _feature(field: Any, data: Dataset) -> dict[str, Any]:
    """A column in the words of `datasets.Features`."""
    import pyarrow as pa

    if field.name == "label":
        return {"names": list(data.class_names), "_type": "ClassLabel"}
    if pa.types.is_struct(field.type):
        return {"_type": "Image"}
    if pa.types.is_list(field.type):
        one = {"dtype": _dtype(field.type.value_type), "_type": "Value"}
        return {"feature": one, "_type": "Sequence"}  # all versions of the library know it
    return {"dtype": _dtype(field.type), "_type": "Value"}


def _dtype(kind: Any) -> str:
    return {"double": "float64", "float": "float32", "halffloat": "float16"}.get(str(kind), str(kind))


TOOLS: dict[str, Callable[[Run, Path, str | None, float | None], None]] = {
    "cleanlab": _cleanlab,
    "fiftyone": _fiftyone,
    "huggingface": _huggingface,
}
