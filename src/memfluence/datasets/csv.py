"""`csv:FILE`: a table with a column of labels or numbers; one file that is split, or one file for each split."""

import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.datasets.dataset import WEIGHT, Dataset, from_arrays
from memfluence.datasets.folder import require_file, subject
from memfluence.errors import DatasetError, nearest

_MISSING = ["", "NA", "N/A", "NaN", "nan", "null"]


def load_csv(
    path: Path,
    name: str,
    *,
    label: str = "label",  # the column of labels
    test: str = "0.25",  # another file, or the fraction of the rows that are test examples
    text: str | None = None,  # the column of texts, where the inputs are texts
    columns: str | None = None,  # the columns of inputs, joined by commas, where they are not all others
    id: str | None = None,  # a column of ids; not an input
    weight: str | None = None,  # a column of weights of training examples; not an input
    task: str | None = None,  # "classes" or "numbers"; left out, labels that are no whole numbers are numbers
    seed: int = 0,  # of the split by a fraction
    missing: str = "refuse",  # or "keep": inputs may be missing
    sep: str = ",",  # what stands between two cells: one character, or "tab"
    quote: str = '"',  # what stands around a cell that holds a separator or a line break
    header: bool = True,  # False: the first line is a row, and columns are called 0, 1, 2, ...
) -> Dataset:
    """Inputs are a DataFrame of all columns but `label`, `id` and `weight` (or of `columns`), or a list of `text`.

    `test` is a file with the same columns, found from the folder of `path`, or the fraction of the rows of `path` that
    become test examples: rows drawn by `seed`, each split in the order of the file. Ids are the column `id`, or the
    rows as pandas counts them: 575 is `pandas.read_csv(path).iloc[575]`. With `missing="keep"` cells of inputs may be
    empty. A label column of numbers that are not all whole is a regression, and any column of numbers with
    `task="numbers"`.
    """
    if task not in (None, "classes", "numbers"):
        raise DatasetError(f"{name}: the option 'task' must be 'classes' or 'numbers'; got {task!r:.80}.")
    if missing not in ("refuse", "keep"):
        raise DatasetError(f"{name}: the option 'missing' must be 'refuse' or 'keep'; got {missing!r:.80}.")
    if text is not None and columns is not None:
        raise DatasetError(f"{name}: give one of text= and columns=; a text is the whole input.")
    wanted = [text] if text is not None else [part for part in (columns or "").split(",") if part]
    as_written = [column for column in (label, text, id) if column is not None]
    layout = _layout(sep, quote, header, name)
    tables = [_read(path, name, as_written, layout)]
    fraction = _fraction(test)
    if fraction is None:
        tables.append(_read(path.parent / Path(test).expanduser(), name, as_written, layout))
    inputs = wanted or [column for column in tables[0].columns if column not in (label, id, weight)]
    if label in inputs or not inputs:
        raise DatasetError(f"{name}: the labels {label!r} cannot be the input, too; name other columns.")
    used = [label, *(column for column in (id, weight) if column is not None), *inputs]
    for table, file in zip(tables, ("the table", test)):
        _check(table, used, inputs if missing == "keep" and text is None else [], name, file, header)
    if fraction is not None:
        if not 0 < fraction < 1:
            raise DatasetError(f"{name}: the option 'test' must be a file or a fraction between 0 and 1; got {test}.")
        order = np.random.default_rng(seed).permutation(len(tables[0]))
        n_test = min(max(round(fraction * len(order)), 1), len(order) - 1)
        rows = np.sort(order[n_test:]), np.sort(order[:n_test])
        tables = [tables[0].iloc[some] for some in rows]
    ids = [table.index for table in tables] if id is None else _as_written([table[id].tolist() for table in tables])
    x: list[Any] = [
        table[text].tolist() if text is not None else table[inputs].reset_index(drop=True) for table in tables
    ]
    written = [table[label].tolist() for table in tables]
    numbers = None if task == "classes" else _as_numbers(written, asked=task == "numbers", name=name)
    train, test_labels = _as_written(written) if numbers is None else numbers
    weights = None if weight is None else _as_numbers([tables[0][weight].tolist()], asked=True, name=name)
    return from_arrays(
        x[0],
        train,
        x[1],
        test_labels,
        name=name,
        train_ids=ids[0],
        test_ids=ids[1],
        missing=missing == "keep",
        task="classes" if numbers is None else "numbers",
        attributes=None if weights is None else {f"train_{WEIGHT}": weights[0]},
    )


def _as_numbers(splits: list[list[Any]], *, asked: bool, name: str) -> list[np.ndarray] | None:
    """Cells as numbers; None where they are not, or are all whole: then they are classes, unless numbers are asked."""
    try:
        found = [np.array([float(cell) for cell in cells]) for cells in splits]
    except ValueError:
        if asked:
            raise DatasetError(f"{name}: a column of numbers holds a cell that is none.") from None
        return None
    are_numbers = asked or (
        all(np.isfinite(part).all() for part in found) and any((part != np.round(part)).any() for part in found)
    )
    return found if are_numbers else None


def _as_written(splits: list[list[str]]) -> list[Any]:
    """Labels or ids as they are written; whole numbers where that is the same, for all: 007 and 7 are two words."""
    try:
        numbers = [np.array([int(word) for word in words], np.int64) for words in splits]
    except (ValueError, OverflowError):
        numbers = []
    same = numbers and all(list(map(str, some.tolist())) == words for some, words in zip(numbers, splits))
    return numbers if same else splits


def _fraction(test: str) -> float | None:
    try:
        return float(test)
    except ValueError:
        return None


def _layout(sep: str, quote: str, header: bool, name: str) -> dict[str, Any]:
    """How the file is written, in the words of pandas."""
    sep = "\t" if sep == "tab" else sep
    for option, given, such in (("sep", sep, "';' or 'tab'"), ("quote", quote, '"\'"')):
        if len(given) != 1:
            raise DatasetError(
                f"{name}: the option {option!r} must be one character, such as {such}; got {given!r:.40}."
            )
    return {"sep": sep, "quotechar": quote, "header": 0 if header else None}


def _read(path: Path, name: str, as_written: list[str], layout: dict[str, Any]) -> Any:
    """The table; `as_written` are columns in which "NA" is a word like any other."""
    import pandas as pd

    require_file(path, name)
    how: dict[str, Any] = {"encoding": "utf-8-sig", "index_col": False, "keep_default_na": False, **layout}
    try:
        first = pd.read_csv(path, nrows=1, dtype=str, **how | {"header": None}).iloc[0].tolist()
        if layout["header"] is None:
            how["names"] = [str(column) for column in range(len(first))]
        else:
            _check_header(first, subject(path, name), layout["sep"])
        named = pd.read_csv(path, nrows=0, **how).columns
        missing = {column: [""] if column in as_written else _MISSING for column in named}
        texts = dict.fromkeys(as_written, str)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # more cells than the header has would be lost
            return pd.read_csv(path, na_values=missing, dtype=texts, **how)
    except (ValueError, OSError, pd.errors.ParserWarning) as error:  # pandas' other errors are ValueErrors
        detail = " ".join(str(error).split())
        which = f"{subject(path, name)} cannot be read as a UTF-8 CSV{' with a header' * (layout['header'] == 0)}"
        raise DatasetError(f"{which} ({detail:.200}).") from error


def _check_header(header: list[str], which: str, sep: str) -> None:
    """Pandas would call the second of two columns `label` `label.1`, and the label would be an input."""
    if len(header) == 1 and (found := re.search("[,;\t|]", header[0])) and found[0] != sep:
        given = "tab" if found[0] == "\t" else found[0]
        raise DatasetError(
            f"{which} separates its cells by {found[0]!r}; save it with commas, or add sep={given} to the dataset's"
            " name."
        )
    for column, times in Counter(column.strip() for column in header if column.strip()).items():
        if times > 1:
            raise DatasetError(
                f"{which} has {times} columns {column!r}; rename or drop all but one{_no_header(header)}."
            )


def _no_header(first: list[str]) -> str:
    """A hint where the first line is no header by the look of it: headers hold no numbers."""
    if not any(_fraction(str(cell)) is not None for cell in first):
        return ""
    return " (its first line looks like a row: without a header, add header=false, and columns are 0, 1, 2, ...)"


def _check(table: Any, used: list[str], may_lack: list[str], name: str, file: str, header: bool) -> None:
    columns = list(map(str, table.columns))
    for column in used:
        if column not in columns:
            close, hint = nearest(column, columns), _no_header(columns) if header else ""
            meant = f" (did you mean {close!r}?)" if close else hint
            raise DatasetError(
                f"{name}: {file} has no column {column!r}{meant}; name one with label=, text=, columns= or id=, of:"
                f" {', '.join(columns)}."
            )
    for column in used:
        if column not in may_lack and (gaps := np.flatnonzero(table[column].isna().to_numpy())).size:
            raise DatasetError(
                f"{name}: row {gaps[0] + 1} of {file} (iloc[{gaps[0]}]) has no value in the column {column!r}; fill or"
                " drop such rows, or add missing=keep to the dataset's name if the model fills in its inputs by itself."
            )
    if len(table) < 2:
        raise DatasetError(f"{name}: {file} has {len(table)} row(s) below its header; give it more.")
