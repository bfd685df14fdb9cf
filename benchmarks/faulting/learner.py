"""The learner of the fault campaign: the label of the next training example along a random direction.

Every process that trains imports this file, so it is also where faults within such a process begin. The environment
variable FAULTS says which, as JSON: `pause` seconds in each trial, `interval` seconds between segments, `clock` (the
seed of a wall clock that jumps), `sync` seconds that a sync of a file takes, `chdir` to a directory, `journal` (a file
that gets a line when a trial begins), `is_random` (the seed is ignored), and `deeds`: trial -> what it does.
"""

import ctypes
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.learners import FunctionLearner
from memfluence.seeding import integer_seed
from memfluence.store import writer

TRIALS = 40
GROUP = 8
OPTIONS: dict[str, Any] = json.loads(os.environ.get("FAULTS", "{}"))
NUMBERS = {integer_seed(0, "learner", trial): trial for trial in range(TRIALS)}


class Odd(BaseException):
    """What no learner should raise."""


def learn(x: np.ndarray, y: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    trial = NUMBERS[seed]
    if "journal" in OPTIONS:
        with Path(OPTIONS["journal"]).open("a") as file:
            file.write(f"{os.getpid()} {trial}\n")
    if "chdir" in OPTIONS:
        os.chdir(OPTIONS["chdir"])
    time.sleep(OPTIONS.get("pause", 0.0))
    if deed := OPTIONS.get("deeds", {}).get(str(trial)):
        DEEDS[deed]()
    rng = np.random.default_rng(None if OPTIONS.get("is_random") else seed)
    direction = rng.normal(size=64)
    seen = x.reshape(len(x), 64) @ direction
    order = seen.argsort()

    def predict(z: np.ndarray) -> np.ndarray:
        place = np.searchsorted(seen[order], z.reshape(len(z), 64) @ direction)
        return y[order[place.clip(max=len(y) - 1)]]

    return predict


class Groups:
    """The same learner with groups of trials, as those have that train several models at once."""

    name = "groups"

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}

    def group_size(self, dataset: Any, device: str) -> int:
        return GROUP

    def train(self, dataset: Any, trials: Any, **options: Any) -> Iterator[Any]:
        yield from FunctionLearner(learn).train(dataset, trials, **options)


def fail(error: BaseException) -> None:
    raise error


def fork() -> None:
    """The child goes on as the program."""
    if child := os.fork():
        os.waitpid(child, 0)


DEEDS: dict[str, Callable[[], Any]] = {
    "long": lambda: time.sleep(3600),
    "stuck": lambda: ctypes.PyDLL(None).sleep(3600),  # in C, with the interpreter's lock
    "segmentation fault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "exit": lambda: os._exit(0),
    "surrogate": lambda: fail(ValueError(f"cannot read {os.fsdecode(bytes([99, 233]))}.png \x1b[2J")),
    "megabytes": lambda: fail(ValueError("no " * 1_700_000)),
    "odd": lambda: fail(Odd("no")),
    "fork": fork,
    "close": lambda: os.closerange(3, 1000),
}


def jumping(clock: Callable[[], float], seed: str) -> Callable[[], float]:
    chance = random.Random(f"{seed} {os.getpid()}")
    offset = [chance.uniform(-3e8, 3e8)]

    def now() -> float:
        if chance.random() < 0.1:
            offset[0] = chance.uniform(-3e8, 3e8)
        return clock() + offset[0]

    return now


def slow(sync: Callable[[int], None], seconds: float) -> Callable[[int], None]:
    def slowly(descriptor: int) -> None:
        time.sleep(seconds)
        sync(descriptor)

    return slowly


if "interval" in OPTIONS:
    writer._SHORTEST = OPTIONS["interval"]
if "clock" in OPTIONS:
    time.time = jumping(time.time, OPTIONS["clock"])
if "sync" in OPTIONS:
    os.fsync = slow(os.fsync, OPTIONS["sync"])
