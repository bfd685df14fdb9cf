"""Looking for pairs on a Ray cluster, for data that one machine should not scan.

The trials, bit-packed, go once to each node through the object store; tasks look at tiles, some training examples with
some test examples, and give back the pairs that they find. Every estimate comes from the same integers as on one
machine, so the pairs are the same.
"""

import math
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from memfluence.engines import THREAD_VARIABLES, connected, gpus_and_device, no_room, places, told_on_stderr
from memfluence.errors import EngineError, InputError
from memfluence.estimators import Arms, Block, Influence, Scan

_LEAST_PAIRS = 2**24  # of a task: a fraction of a second, against some milliseconds to hand it out
_TASKS_PER_WORKER = 4  # so that workers finish together
_TRIES = 3  # of a task whose worker or node is lost
_held: dict[str, Influence] = {}  # of a worker process: the trials that it looks at, ready to be counted


@contextmanager
def scan_on_ray(
    address: str | None = None, *, workers: int | None = None, device: str = "cpu", gpus_per_worker: float | None = None
) -> Iterator[Scan]:
    """Look for pairs on the Ray cluster at `address` (by default the one that this machine belongs to).

        with mf.scan_on_ray("10.0.0.1:6379") as scan:
            pairs = run.pairs(scan=scan)

    At most `workers` tasks run at a time (by default what the nodes have room for), each with one CPU, or with
    `device="cuda"` a GPU or a part of one. The pairs are those that one machine would find.
    """
    gpus, chosen = gpus_and_device(device, gpus_per_worker)
    with connected(address) as ray:
        yield told_on_stderr()(partial(_scan, ray, workers, gpus, chosen))


def tiles(blocks: Sequence[Block], pairs: int) -> Iterator[list[Block]]:
    """The blocks, cut along test examples and put together to about so many pairs each."""
    gathered: list[Block] = []
    size = 0
    for train, test in blocks:
        columns = max(1, pairs // max(1, len(train)))
        for first in range(0, len(test), columns):
            part = train, test[first : first + columns]
            if gathered and size + len(train) * len(part[1]) > pairs:
                yield gathered
                gathered, size = [], 0
            gathered.append(part)
            size += len(train) * len(part[1])
    if gathered:
        yield gathered


def _scan(
    ray: Any, workers: int | None, gpus: float, device: str, arms: Arms, blocks: Sequence[Block], threshold: float
) -> list[Block]:
    room = places(ray, gpus)
    if not room:
        raise InputError(no_room(gpus))
    look = ray.remote(_look).options(
        num_cpus=1,
        num_gpus=gpus,
        max_retries=_TRIES,
        runtime_env={"env_vars": dict.fromkeys((*THREAD_VARIABLES, "NUMBA_NUM_THREADS"), "1")},
    )
    total = sum(len(train) * len(test) for train, test in blocks)
    parcel = uuid.uuid4().hex, [ray.put(arms)]  # in a list, so that a task need not fetch what its process has
    waiting = tiles(blocks, max(_LEAST_PAIRS, math.ceil(total / (_TASKS_PER_WORKER * room))))
    running: list[Any] = []
    found: list[Block] = []
    try:
        while True:
            while len(running) < (workers or 2 * room) and (tile := next(waiting, None)) is not None:
                running.append(look.remote(*parcel, device, tile, threshold))
            if not running:
                return found
            ready, running = ray.wait(running)
            found += ray.get(ready)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) or error
        raise EngineError(f"A scan failed on the cluster ({type(cause).__name__}: {cause}); try again.") from error
    # At Ctrl-C the tiles that run, of seconds each, end by themselves: a cancelled one that just ends aborts Ray.


def _look(key: str, arms: Sequence[Any], device: str, blocks: Sequence[Block], threshold: float) -> Block:
    """The task: pairs of some blocks at the threshold."""
    if key not in _held:
        _held.clear()
        _held[key] = Influence(import_module("ray").get(arms[0]), device=device)
    return _held[key].at_least(threshold, blocks)
