"""Runs that somebody else made, to do harm or by mistake: every file is refused in one sentence, or taken.

Each test is of something that the fuzzing (docs/fuzzing.md) found or was made to look for. Digests are always right.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import memfluence as mf
from memfluence.errors import InputError, MemfluenceError, StoreError
from memfluence.records import Failure
from memfluence.store import INDEXED, TrialStore
from memfluence.store.parquet import ParquetContent, content_digest, most_bytes
from small_world import SmallWorld


@pytest.fixture
def store(world: SmallWorld, tmp_path: Path) -> TrialStore:
    store = world.create(tmp_path / "run")
    store.write([world.outcome(number) for number in range(8)])
    return store


def change(store: TrialStore, *keys: Any, to: Any) -> None:
    """Replace one value of run.json."""
    path = store.path / "run.json"
    whole = inside = json.loads(path.read_text())
    for key in keys[:-1]:
        inside = inside[key]
    inside[keys[-1]] = to
    path.write_text(json.dumps(whole))


def rewrite(store: TrialStore, harm: Callable[[pa.Table], pa.Table], **how: Any) -> None:
    """The segment written anew by another hand, under the name that its bytes ask for."""
    (path,) = store.path.glob("trials/*.parquet")
    table = harm(pq.read_table(path))
    path.unlink()
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **how)
    place(store, path.name, sink.getvalue().to_pybytes())


def place(store: TrialStore, name: str, content: bytes) -> None:
    (store.path / "trials" / f"{name.rpartition('-')[0]}-{content_digest(content)}.parquet").write_bytes(content)


def column(table: pa.Table, name: str, values: Any, metadata: Any = None) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, pa.field(name, values.type, metadata=metadata), values)


def reasons(store: TrialStore) -> str:
    """What all who read the segment say against it: scores, `status` (which reads the small columns) and `verify`."""
    opened = TrialStore.open(store.path)
    damaged = [*opened.read()[1], *opened.scan().damaged, *opened.scan(INDEXED, indexed=True).damaged]
    problems = [problem.message for problem in mf.verify(store.path).problems]
    for text in (*problems, *(damage.reason for damage in damaged)):
        assert text.isprintable()
        assert len(text) < 400 + len(str(store.path))
    assert problems
    return "; ".join(damage.reason for damage in damaged)


@pytest.mark.parametrize(
    ("keys", "value", "says"),
    [
        (("trials",), 10**18, "trials must be an integer from 0 to 2147483648"),
        (("trials",), True, "trials must"),
        (("group_size",), 0, "group_size must"),
        (("repeats",), "2", "repeats must"),
        (("kinds",), [], "kinds must"),
        (("kinds", 0, "arm"), "neither nor", "arm must be one of both, in, out, neither"),
        (("kinds", 0, "keep"), "0.7", "keep must be a number"),
        (("kinds", 0, "subset_size"), 22, "from 0 to 21"),
        (("kinds", 0, "more"), 1, "'keep' and 'subset_size'"),
        (("dataset",), [], "dataset must be an object"),
        (("dataset", "n_train"), 10**18, "n_train must be an integer"),
        (("dataset", "n_test"), -1, "n_test must"),
        (("dataset", "classes"), [0, [1], 2], "classes must"),
        (("dataset", "class_names"), ["a", "b"], "list of 3 texts"),
        (("dataset", "name"), {"a": 1}, "name must be a text"),
        (("dataset", "examples"), "../other/examples.parquet", "a file in the run"),
        (("dataset", "examples"), "/etc/passwd", "a file in the run"),
        (("dataset", "examples"), None, "the file of its examples"),
        (("learner",), "mlp", "learner must be an object"),
        (("learner", "name"), ["mlp"], "learner's name must be a text"),
        (("plan",), "fixed", "plan must be an object"),
        (("plan", "digest"), 3, "plan's digest must be a text"),
        (("plan", "n_train"), 20, "plan's n_train must be the dataset's 21"),
        (("plan", "options"), [], "plan's options must be an object"),
        (("plan", "options"), {"block": 2**40}, "plan's block must"),
        (("plan", "design"), "uniform", "must have 'smallest'"),
        (("plan", "keep"), "0.7", "plan's keep must be a list"),
        (("record",), ["everything"], "prediction, margin, logit"),
        (("columns",), {"a": 1}, "columns must be a list"),
        (("versions",), {"numpy": 2}, "versions must be texts"),
        (("x" * 5000,), 1, "not known"),
        (("format",), True, "does not name its format"),
        (("format",), 2, "reads format 1"),
    ],
)
def test_run_json_is_checked(store: TrialStore, keys: tuple[Any, ...], value: Any, says: str) -> None:
    change(store, *keys, to=value)
    with pytest.raises(StoreError, match=says) as caught:
        mf.open(store.path)
    assert len(str(caught.value)) < 400 + len(str(store.path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"format": 1, "a": ' + "[" * 200 + "]" * 200 + "}", "nested too deeply"),
        ('{"format": 1, "trials": NaN}', "NaN"),
        ('{"format": 1, "trials": 1e999}', "beyond all floats"),
        ('{"format": 1, "name": "\\ud800"}', "is no text"),
        ('{"format": 1, "trials": ' + "1" * 5000 + "}", "digits"),
        ("[]", "must hold an object"),
        ("null", "must hold an object"),
        ("{}", "has no"),
    ],
)
def test_texts_that_are_no_run_json(store: TrialStore, text: str, says: str) -> None:
    (store.path / "run.json").write_text(text)
    with pytest.raises(StoreError, match=says):
        mf.open(store.path)


def test_the_labels_of_another_run_are_out_of_reach(store: TrialStore) -> None:
    name = store.info.dataset["examples"]
    shutil.copy(store.path / name, store.path.parent / name)
    change(store, "dataset", "examples", to=f"../{name}")
    with pytest.raises(StoreError, match="a file in the run"):
        mf.open(store.path)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda table: column(table, "trial", pa.array(range(8), pa.int32())), "rows of int32 as trial"),
        (lambda table: column(table, "trial", pa.array([*range(7), -1])), "numbers no run has"),
        (lambda table: column(table, "trial", pa.array([*range(7), 2**40])), "numbers no run has"),
        (lambda table: column(table, "trial", pa.array([*range(7), None], pa.int64())), "missing"),
        (lambda table: column(table, "trial", pa.array([0] * 8)), "a trial twice"),
        (lambda table: column(table, "kind", pa.array([-1] * 8, pa.int16())), "numbers no run has"),
        (lambda table: column(table, "mask", pa.array([b"\xff" * 3] * 8, pa.binary(3))), "beyond the last of 21"),
        (lambda table: column(table, "mask", pa.array([b"\xff" * 2] * 8, pa.binary(2))), "as mask, not of"),
        (lambda table: column(table, "mask", pa.array([b"123"] * 8, pa.binary())), "'mask' holds binary"),
        (lambda table: column(table, "host", pa.array([b"\xff\xfe"] * 8, pa.binary()).view(pa.string())), "UTF8"),
        (lambda table: column(table, "seconds", pa.array(["x"] * 8)), "rows of string as seconds"),
        (lambda table: table.slice(0, 0), "it has no trials"),
        (lambda table: table.remove_column(2), "no column 'mask'"),
        (lambda table: table.append_column("trial", table["trial"]), "two columns of one name"),
        (lambda table: table.append_column("more", pa.array([[1]] * 8)), "'more' holds list"),
        (lambda table: table.replace_schema_metadata({b"memfluence.plan": b"\xff"}), "belongs to another run"),
    ],
)
def test_segments_that_hold_something_else(store: TrialStore, harm: Callable[[pa.Table], pa.Table], says: str) -> None:
    rewrite(store, harm)
    assert says in reasons(store)


def test_few_bytes_that_claim_gigabytes(store: TrialStore) -> None:
    """One long text that all rows share, in a dictionary: an array would have room for it in each of them."""
    long = pa.array(["x" * 10_000_000] * 8)
    rewrite(store, lambda table: column(table, "host", long), compression="zstd", use_dictionary=["host"])
    (path,) = store.path.glob("trials/*.parquet")
    assert path.stat().st_size < 100_000
    assert "take more than" in reasons(store)


def test_many_rows_in_few_bytes(tmp_path: Path) -> None:
    """A column of one value, said once for a hundred million rows: refused by what the footer claims."""
    rows = 3_000_000
    values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([bytes(100)], pa.binary(100)))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"mask": values.cast(pa.binary(100))}), sink, use_dictionary=True)
    assert sink.getvalue().size < 100_000
    with pytest.raises(pa.ArrowInvalid, match="claims more than"):
        ParquetContent(sink.getvalue())


@pytest.mark.parametrize("size", [2**28, 2**31 - 1])
def test_a_page_that_claims_a_gigabyte(store: TrialStore, size: int) -> None:
    (path,) = store.path.glob("trials/*.parquet")
    content = path.read_bytes()
    path.unlink()
    assert content[4:7] == b"\x15\x00\x15"  # a page of data, and its uncompressed size
    number, end = size * 2, 7
    while content[end] >= 128:
        end += 1
    claim = b""
    while number >= 128:
        claim, number = claim + bytes((number % 128 + 128,)), number >> 7
    claim += bytes((number,))
    place(store, path.name, content[:7] + claim + content[end + 1 :])
    assert "cannot be read as Parquet" in reasons(store)


def test_what_honest_files_may_claim() -> None:
    assert most_bytes(1000) == 128 * 2**20
    assert most_bytes(10**7) == 10**9


def test_a_kind_that_the_run_does_not_have(store: TrialStore) -> None:
    rewrite(store, lambda table: column(table, "kind", pa.array([7] * 8, pa.int16())))
    with pytest.raises(StoreError, match=r"trials of kind 7.*memfluence repair"):
        mf.open(store.path).memorization()
    assert sum("is of kind 7" in problem.message for problem in mf.verify(store.path).problems) == 8


@pytest.mark.parametrize(
    ("change_labels", "says"),
    [
        (lambda table: table.slice(1), "labels of 20 training examples, and run.json says 21"),
        (lambda table: column(table, "label", pa.array([-1] * 34, pa.int32())), "none of the run's 3 classes"),
        (lambda table: column(table, "label", pa.array([3] * 34, pa.int32())), "none of the run's 3 classes"),
        (lambda table: column(table, "label", pa.array(["a"] * 34)), "string as label"),
        (lambda table: table.select(["split"]), "no column 'label'"),
    ],
)
def test_labels_that_are_not_of_the_run(
    store: TrialStore, change_labels: Callable[[pa.Table], pa.Table], says: str
) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(change_labels(pq.read_table(store.path / store.info.dataset["examples"])), sink)
    name = f"examples-{content_digest(sink.getvalue())}.parquet"
    (store.path / name).write_bytes(sink.getvalue().to_pybytes())
    change(store, "dataset", "examples", to=name)
    with pytest.raises(StoreError, match=says):
        mf.open(store.path).memorization()
    assert any(says in problem.message for problem in mf.verify(store.path).problems)


@pytest.mark.parametrize(
    "note",
    [
        "[" * 100_000,
        '{"trial": "3", "message": "x"}',
        '{"trial": 3, "message": ["x"]}',
        '{"trial": -3, "message": "x"}',
        '{"trial": 3}',
        "[]",
        '{"trial": 3, "message": "x", "more": 1}',
    ],
)
def test_notes_of_failures_that_are_none(store: TrialStore, note: str) -> None:
    store.write_failure(Failure(9, "ValueError: no"))
    (store.path / "failures" / "000000003-0.json").write_text(note)
    assert mf.open(store.path).status()["trials_failed"] == 1
    assert any("note of a trial that failed" in problem.message for problem in mf.verify(store.path).problems)


def test_checkpoints_and_condemned_files_that_are_none(store: TrialStore) -> None:
    for name, content in (("²", "x"), ("000000009", "[" * 10_000), ("000000010", '{"made_with": 3}')):
        (store.path / "checkpoints").mkdir(exist_ok=True)
        (store.path / "checkpoints" / f"{name}.checkpoint").write_text(content)
    (store.path / "damaged").mkdir()
    (store.path / "damaged" / "condemned.json").write_text('[3, {"a": 1}, ' + "[" * 200 + "]" * 200 + "]")
    status = mf.open(store.path).status()
    assert (status["trials"], status["part_way"]) == (8, [])
    assert sum("cannot be gone on from" in problem.message for problem in mf.verify(store.path).problems) == 2


def test_an_index_that_lies_about_its_rows_is_passed_over(store: TrialStore) -> None:
    for segments in ([["x", 1, 2, 10**9]], [["x", "1", 2, 0]], 3, [3], {}):
        metadata = {"version": 1, "run": store.info.identity, "segments": segments, "texts": {"host": [["a"]]}}
        sink = pa.BufferOutputStream()
        table = pa.table({"trial": pa.array([1, 2])}).replace_schema_metadata({"index": json.dumps(metadata)})
        pq.write_table(table, sink)
        content = sink.getvalue().to_pybytes()
        (store.path / ".index").write_bytes(content_digest(content).encode() + content)
        assert mf.open(store.path).status()["trials"] == 8


def test_an_optional_column_of_no_type(world: SmallWorld, tmp_path: Path) -> None:
    store = world.create(tmp_path / "run")
    store.write([world.outcome(number) for number in range(8)])
    change(store, "columns", to=["train_logit"])
    bits = pa.array([bytes(42)] * 8, pa.binary(42))
    for dtype, says in ((b"O", "of what type"), (b"V100000000", "of what type"), (b"float64", "not 21 of float64")):
        rewrite(store, lambda table, dtype=dtype: extended(table, bits, dtype))  # type: ignore[misc]
        with pytest.raises(StoreError, match=says):
            TrialStore.open(store.path).read_extra("train_logit")


def extended(table: pa.Table, bits: pa.Array, dtype: bytes) -> pa.Table:
    without = table.drop_columns(["train_logit"]) if "train_logit" in table.column_names else table
    return without.append_column(pa.field("train_logit", bits.type, metadata={"dtype": dtype}), bits)


def test_values_of_trials_whose_plan_is_a_digest_alone(store: TrialStore) -> None:
    change(store, "plan", to={"digest": "p" * 32})
    with pytest.raises(InputError, match="trials made elsewhere"):
        mf.values(mf.open(store.path), "shapley")


def test_a_block_that_would_take_all_memory_to_deal() -> None:
    from memfluence.designs import make

    with pytest.raises(MemfluenceError, match="too large to be dealt"):
        make("balanced:2000000000", n_train=100)
