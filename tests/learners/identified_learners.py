"""Functions that reach for things in every way; `test_identity` compares what they are called in two processes."""

import argparse
import collections
import enum
import functools
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

EPOCHS = 3
WORDS = {"alpha", "beta", "gamma", "delta"}
WEIGHTS = np.arange(5.0)
OPTIONS = argparse.Namespace(rate=0.1, names=frozenset(WORDS), where=Path("a/b"))
BY_PAIR = {("a", 1): {1.5, 2.5}, (2,): None}
FITTED = LogisticRegression().fit(np.eye(4), [0, 1, 0, 1])
TENSOR = torch.arange(3, dtype=torch.bfloat16)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


FUNCTIONS_AND_MORE = {Colour.RED, Colour.BLUE, "red", 4, frozenset({"x", "y"})}


@dataclass
class Settings:
    rate: float = 0.1
    layers: list[int] = field(default_factory=list)


class Base:
    scale = 2

    def helper(self) -> int:
        return EPOCHS * self.scale


class Trainer(Base):
    kinds = WORDS

    def __init__(self, rate: float, lock: Any = None) -> None:
        self.rate = rate
        self.lock = lock
        self.me = self

    def helper(self) -> int:
        return super().helper() + self.doubled

    @property
    def doubled(self) -> int:
        return 2 * EPOCHS

    @functools.cached_property
    def third(self) -> int:
        return 3

    @staticmethod
    def fixed() -> int:
        return 5

    @classmethod
    def made(cls) -> "Trainer":
        return cls(1.0)

    def __call__(self, x: Any, y: Any, seed: int) -> Any:
        return self.helper()

    def train(self, x: Any, y: Any, seed: int) -> Any:
        return self.helper()


def make(closed: Any, default: Any = None) -> Any:
    def train(x: Any, y: Any, seed: int, extra: Any = default, *, more: Any = default) -> Any:
        def predict(inputs: Any) -> Any:
            return closed

        return predict

    return train


def recursive(x: Any, y: Any, seed: int) -> Any:
    return other(x, y, seed)


def other(x: Any, y: Any, seed: int) -> Any:
    return recursive(x, y, seed) if EPOCHS in (1, 2) or seed in {"one", "two", "three"} else None


def uses_globals(x: Any, y: Any, seed: int) -> Any:
    np.linalg.norm(WEIGHTS)

    class Inner:
        words = tuple(word for word in WORDS if word in OPTIONS.names)

    return lambda inputs: (BY_PAIR, Inner, Colour.RED, FUNCTIONS_AND_MORE, Settings(EPOCHS))


@functools.lru_cache
def cached(n: int) -> int:
    return n + EPOCHS


@torch.no_grad()
def decorated(x: Any, y: Any, seed: int) -> Any:
    return cached(seed)


def scaled(scale: float, x: Any, y: Any, seed: int, shift: float = 0) -> Any:
    return None


LEARNERS: dict[str, Any] = {
    "a number": make(1),
    "another": make(25),
    "a float": make(1.0),
    "a text": make("1.0x"),
    "text in a list": make(["a"]),
    "words": make(WORDS),
    "an array": make(WEIGHTS),
    "the array in short": make(WEIGHTS.astype(np.float32)),
    "objects": make(np.array(["a", None, {"b"}], dtype=object)),
    "a tensor": make(TENSOR),
    "bytes": make(b"abc"),
    "a function": make(make),
    "functions": make({make, other}),
    "nested": make(make(make(7))),
    "nested deeper": make(make(make(8))),
    "default": make(1, default=2),
    "an estimator": make(LogisticRegression(C=3.0)),
    "a fitted estimator": make(FITTED),
    "a pipeline": make(make_pipeline(StandardScaler(), LogisticRegression())),
    "an object": make(Settings(0.5, [1])),
    "a module": make(np),
    "a counter": make(collections.Counter("abca")),
    "recursive": recursive,
    "globals": uses_globals,
    "decorated": decorated,
    "compiled": torch.compile(decorated),
    "partial": functools.partial(scaled, 0.5),
    "partial by name": functools.partial(scaled, 0.5, shift=1.0),
    "bound": Trainer(0.1).train,
    "bound otherwise": Trainer(0.2).train,
    "callable": Trainer(0.1),
    "callable with a lock": Trainer(0.1, threading.Lock()),
    "one lambda": lambda x, y, seed: 1, "two lambdas": lambda x, y, seed: 2,  # on one line
}  # fmt: skip


def main() -> None:
    import json

    from memfluence.learners import FunctionLearner

    print(json.dumps({name: FunctionLearner(function).describe() for name, function in LEARNERS.items()}))


if __name__ == "__main__":
    import identified_learners  # under the name that it has elsewhere

    identified_learners.main()
