"""The parts of the Ray engine that need no cluster: who has room, what a node checks, how blocks are cut."""

import http.server
import pickle
import socketserver
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import memfluence as mf
from memfluence.engines import Event, Note
from memfluence.engines._ray_cluster import _check_reachable, gpus_and_device, places
from memfluence.engines._ray_worker import Mailbox, Parcel, _check_run
from memfluence.errors import EngineError, InputError
from memfluence.runs.scanning import tiles


def cluster(*nodes: dict[str, float], dead: int = 0) -> Any:
    """What is asked of the ray module, with these resources; the first nodes are dead."""
    listed = [{"Alive": number >= dead, "Resources": resources} for number, resources in enumerate(nodes)]
    return SimpleNamespace(nodes=lambda: listed)


@pytest.mark.parametrize(
    ("gpus", "expected"), [(0, 12), (1, 4), (2, 2), (4, 1), (8, 0), (0.5, 8), (0.25, 8), (0.3, 8), (1 / 3, 8)]
)
def test_room_for_workers(gpus: float, expected: int) -> None:
    """Four GPUs and eight CPUs on one node, four CPUs on another; a third one is dead."""
    nodes = {"CPU": 64.0, "GPU": 8.0}, {"CPU": 8.0, "GPU": 4.0}, {"CPU": 4.0}
    assert places(cluster(*nodes, dead=1), gpus) == expected


def test_parts_of_gpus_do_not_add_up_across_gpus() -> None:
    assert places(cluster({"CPU": 64.0, "GPU": 2.0}), 0.4) == 4  # two to each, not five
    assert places(cluster({"CPU": 64.0, "GPU": 3.0}), 2) == 1


@pytest.mark.parametrize(
    ("device", "given", "expected"),
    [
        ("auto", None, (0, "cpu")),
        ("auto", 0.5, (0.5, "cuda")),
        ("cpu", None, (0, "cpu")),
        ("cuda", None, (1, "cuda")),
        ("cuda", 2, (2, "cuda")),
    ],
)
def test_devices_of_workers(device: str, given: float | None, expected: tuple[float, str]) -> None:
    assert gpus_and_device(device, given) == expected


@pytest.mark.parametrize(
    ("device", "given"), [("cuda", 0), ("cpu", 1), ("auto", -1), ("auto", 1.5), ("auto", float("nan")), ("auto", True)]
)
def test_devices_that_make_no_sense(device: str, given: Any) -> None:
    with pytest.raises(InputError):
        gpus_and_device(device, given)


def test_a_server_that_is_not_ray_is_told_from_one() -> None:
    """Ray's answer is seen by every test with a cluster; here is one of a web server's."""
    with socketserver.TCPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(EngineError, match=r"There is no Ray cluster at .*something else"):
            _check_reachable(f"127.0.0.1:{server.server_address[1]}")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> mf.Run:
    return mf.run("digits", trials=1, out=tmp_path_factory.mktemp("seen") / "run", progress=False)


def parcel(run: mf.Run) -> Parcel:
    return Parcel("key", None, pickle.dumps(None), ".", str(run.path), run.info.identity)


def checked(given: Parcel) -> list[Event]:
    said: list[Event] = []
    _check_run(given, said.append)  # type: ignore[arg-type]
    return said


def test_a_node_that_sees_the_run_says_nothing(run: mf.Run) -> None:
    assert checked(parcel(run)) == []


def test_a_node_that_does_not_see_the_run_says_so(run: mf.Run, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"does not see the run in .*storage that all nodes share"):
        checked(replace(parcel(run), run=str(tmp_path / "elsewhere")))


def test_a_node_that_sees_another_run_says_so(run: mf.Run) -> None:
    with pytest.raises(EngineError, match="sees another run"):
        checked(replace(parcel(run), identity={**run.info.identity, "memfluence.data": "other"}))


def test_a_node_with_other_versions_is_noted(run: mf.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from memfluence.engines import _ray_worker

    monkeypatch.setattr(_ray_worker, "installed_versions", lambda: {**run.info.versions, "numpy": "0.1"})
    (note,) = checked(parcel(run))
    assert isinstance(note, Note)
    assert "numpy 0.1" in note.message


def test_mail_is_collected_once() -> None:
    mailbox = Mailbox()
    mailbox.post(1, (Note("a"),))
    mailbox.post(2, (Note("b"), Note("c")))
    assert mailbox.collect() == [(1, (Note("a"),)), (2, (Note("b"), Note("c")))]
    assert mailbox.collect() == []


@pytest.mark.parametrize("pairs", [1, 7, 60, 10**9])
def test_tiles_hold_every_pair_once(pairs: int) -> None:
    sizes = [(5, 11), (0, 4), (3, 0), (1, 30), (12, 2)]
    blocks = [(100 * k + np.arange(rows), np.arange(columns)) for k, (rows, columns) in enumerate(sizes)]
    cut = list(tiles(blocks, pairs))
    found = [(i, j) for tile in cut for train, test in tile for i in train.tolist() for j in test.tolist()]
    assert len(found) == len(set(found)) == sum(rows * columns for rows, columns in sizes)
    assert set(found) == {(i, j) for train, test in blocks for i in train.tolist() for j in test.tolist()}
    for tile in cut:
        one_column = max(len(train) for train, _ in tile)
        assert sum(len(train) * len(test) for train, test in tile) <= max(pairs, one_column)
