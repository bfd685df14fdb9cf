"""Whole rows that move from segment to segment, and readers that meet a segment on its way out."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from memfluence.errors import StoreError
from memfluence.store import Rows, TrialStore, join_rows, places, segments
from small_world import SmallWorld


def with_margins(world: SmallWorld, path: Path) -> TrialStore:
    info = dataclasses.replace(world.info, record=("margin",), columns=(*world.info.columns, *MARGINS))
    return TrialStore.create(path, info, world.y_train, world.y_test)


MARGINS = {"train_margin": np.linspace(-2, 2, 21).astype(np.float16), "test_margin": np.ones(13, np.float16)}


def test_rows_written_anew_are_the_same_rows_under_a_new_name(tmp_path: Path, world: SmallWorld) -> None:
    store = with_margins(world, tmp_path / "run")
    made = [dataclasses.replace(world.outcome(k), extras=MARGINS, process=k, finished=k + 0.5) for k in range(6)]
    store.write(made[3:])
    store.write(made[:3])
    before, extra = store.read()[0], store.read_extra("test_margin")
    rows = join_rows([store.read_rows(name) for name in store.segment_names()])
    old = store.segment_names()
    first, again = store.write_rows(rows), store.write_rows(rows)
    assert len({first, again, *old}) == 4
    store.remove_segments([*old, again])
    store.remove_segments(old)  # another process may have been quicker
    assert store.segment_names() == [first]
    after = store.read()[0]
    for name in ("numbers", "kinds", "mask", "train_correct", "test_correct"):
        assert (getattr(before, name) == getattr(after, name)).all()
    assert all((one == other).all() for one, other in zip(extra, store.read_extra("test_margin")))
    assert store.scan(["process", "finished"]).details["process"].tolist() == list(range(6))
    assert pq.read_table(tmp_path / "run" / "trials" / first).num_rows == 6


def test_a_record_is_the_result_and_not_where_it_was_made(tmp_path: Path, world: SmallWorld) -> None:
    store = with_margins(world, tmp_path / "run")
    one = dataclasses.replace(world.outcome(0), extras=MARGINS)
    changed: list[dict[str, object]] = [
        {"host": "elsewhere", "seconds": 9.0, "process": 7},
        {"mask": ~one.mask},
        {"train_correct": ~one.train_correct},
        {"test_correct": ~one.test_correct},
        {"extras": {**MARGINS, "test_margin": MARGINS["test_margin"] * 2}},
        {"kind": 1},
    ]
    names = [store.write([dataclasses.replace(one, **change)]).name for change in ({}, *changed)]  # type: ignore[arg-type]
    first, same, *others = [store.read_rows(name).records[0] for name in names]
    assert first == same
    assert len({first, *others}) == 6


def test_segments_of_older_versions_have_neither_process_nor_time(tmp_path: Path, world: SmallWorld) -> None:
    store = world.create(tmp_path / "run")
    rows = store.read_rows(store.write([world.outcome(0)]).name)
    store.remove_segments(store.segment_names())
    store.write_rows(Rows(rows.table.drop_columns(["process", "finished"])))
    scan = store.scan(["process", "finished", "host"])
    assert scan.details["process"].tolist() == [-1]
    assert np.isnan(scan.details["finished"]).all()
    assert scan.details["host"].tolist() == ["here"]


def test_a_segment_without_a_column_is_damaged(tmp_path: Path, world: SmallWorld) -> None:
    store = world.create(tmp_path / "run")
    rows = store.read_rows(store.write([world.outcome(0)]).name)
    content = segments.encode_table(rows.table.drop_columns(["mask"]), store.info.identity)
    (tmp_path / "run" / "trials" / segments.segment_name([0], content)).write_bytes(content)
    assert "no column 'mask'" in store.scan().damaged[0].reason


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.scan().numbers,
        lambda store: store.read()[0].numbers,
        lambda store: store.read_extra("train_margin")[0],
    ],
    ids=["scan", "read", "read_extra"],
)
def test_a_reader_finds_what_was_compacted_under_its_hands(
    tmp_path: Path, world: SmallWorld, monkeypatch: pytest.MonkeyPatch, read: Callable[[TrialStore], np.ndarray]
) -> None:
    """The first file that is opened vanishes after the list was made; its rows are in a segment that was not listed."""
    store = with_margins(world, tmp_path / "run")
    for number in range(3):
        store.write([dataclasses.replace(world.outcome(number), extras=MARGINS)])
    real, compacted = places.read_bytes, []

    def read_bytes(path: Path) -> object:
        if path.suffix == ".parquet" and not compacted:
            compacted.append(path)
            rows = store.read_rows(path.name)
            store.write_rows(rows)
            store.remove_segments([path.name])
        return real(path)

    monkeypatch.setattr(places, "read_bytes", read_bytes)
    assert read(store).tolist() == [0, 1, 2]
    assert len(compacted) == 1


def test_a_damaged_segment_is_no_reason_to_give_another_trials_margins(tmp_path: Path, world: SmallWorld) -> None:
    store = with_margins(world, tmp_path / "run")
    path = store.write([dataclasses.replace(world.outcome(0), extras=MARGINS)])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreError, match="memfluence repair"):
        store.read_extra("train_margin")


def test_names_tell_which_segments_may_share_trials() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        firsts = rng.integers(0, 30, 8)
        spans = [(int(first), int(first + rng.integers(0, 6))) for first in firsts]
        names = [f"{a:09d}-{b:09d}-1-{number:032x}.parquet" for number, (a, b) in enumerate(spans)]
        share = [
            any(
                one != other and spans[one][0] <= spans[other][1] and spans[other][0] <= spans[one][1]
                for other in range(8)
            )
            for one in range(8)
        ]
        assert segments.overlapping(names) == [name for name, does in zip(names, share) if does]
    assert segments.overlapping(["a.parquet", names[0]]) == ["a.parquet", names[0]]  # a name that says nothing
