"""Scans on a GPU: the largest estimates and those at a threshold, from int8 matrix products in tiles.

Bits become int8, `torch._int_mm` adds up their products in int32, so counts are exact. Of 64 billion counts only a
few matter: a float32 estimate, with a bound of its rounding, throws out in four passes over a tile whatever cannot
reach what is asked (the threshold, or the smallest of the k largest so far). The rest gets its estimate from the same
two float64 divisions as on a CPU, so that values, ties and thresholds agree to the last bit.

Everything runs on CPU tensors too, slowly, which is how it is tested.
"""

import importlib.util
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.errors import InputError, needs_torch
from memfluence.estimators._arms import Arms
from memfluence.estimators._estimates import Block
from memfluence.estimators.counts import column_counts
from memfluence.records import Trials

if TYPE_CHECKING:
    import torch

TRAIN_AT_ONCE, TEST_AT_ONCE = 2**14, 2**13  # a tile: 512 MB of counts, and twice that again
FIRST_TRAIN = 2**10  # training examples of the first tile, when nothing can be thrown out yet; later ones double


class DeviceScan:
    """Scans of some trials, which are sent to the device once."""

    def __init__(self, arms: Arms, device: str) -> None:
        place = _device(device)
        self._arms = arms
        self._sides = [
            _Side(trials, place) for trials in ([arms.in_trials] if arms.shared else [arms.in_trials, arms.out_trials])
        ]
        self._right_out = column_counts(arms.out_trials.test_correct, arms.n_test)  # (n_test,)

    def scan(
        self, train: np.ndarray, test: np.ndarray, *, k: int | None = None, threshold: float | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """One pass over all chosen pairs; `train` must ascend.

        Gives (index, value), each (test, k), of the k most helpful training examples of each test example as `TopK`
        has them, and (train, test) of the pairs whose estimate is at least the threshold; what is not asked for is
        empty.
        """
        trials_in, trials_out = self._arms.trials_in[train], self._arms.trials_out[train]
        largest: list[Block] = []
        pairs: list[Block] = []
        for start in range(0, len(test), TEST_AT_ONCE):
            columns = test[start : start + TEST_AT_ONCE]
            found = _Search(self._sides, train, columns, trials_in, trials_out, self._right_out[columns], k, threshold)
            for first, last in _tile_bounds(len(train)):
                found.look(first, last)
            largest.append((found.index.cpu().numpy(), found.value.cpu().numpy()))
            pairs.extend((train[rows.cpu().numpy()], columns[tests.cpu().numpy()]) for rows, tests in found.pairs)
        empty = np.empty(0, dtype=np.int64)
        index, value = (
            np.concatenate([np.empty((0, k or 0), dtype), *(part[side] for part in largest)])
            for side, dtype in ((0, np.int64), (1, np.float64))
        )
        rows, tests = (np.concatenate([empty, *(part[side] for part in pairs)]) for side in (0, 1))
        order = np.lexsort((tests, rows))
        return index, value, rows[order], tests[order]


def _device(name: str) -> "torch.device":
    if importlib.util.find_spec("torch") is None:
        raise needs_torch("A search on a GPU")
    import torch

    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"The device must be cpu, cuda or cuda:N; got {name!r}.") from None
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        raise InputError(f"torch sees {count} GPU(s) here, so the device {name!r} cannot be used; use cpu.")
    return device


def _tile_bounds(n: int) -> list[tuple[int, int]]:
    """Tiles of training examples, ascending."""
    bounds, first, size = [], 0, min(FIRST_TRAIN, TRAIN_AT_ONCE)
    while first < n:
        bounds.append((first, min(n, first + size)))
        first, size = first + size, min(2 * size, TRAIN_AT_ONCE)
    return bounds


class _Side:
    """The trials of one arm on the device."""

    def __init__(self, trials: Trials, device: "torch.device") -> None:
        import torch

        self.device = device
        self.mask, self.outcome = (
            torch.from_numpy(np.array(bits)).to(device) for bits in (trials.mask, trials.test_correct)
        )  # (trials, bytes) uint8

    def kept(self, train: "torch.Tensor") -> "torch.Tensor":
        return _int8(self.mask, train)

    def right(self, test: "torch.Tensor") -> "torch.Tensor":
        return _int8(self.outcome, test)


def _int8(bits: "torch.Tensor", examples: "torch.Tensor") -> "torch.Tensor":
    """Bits of chosen examples as int8 (examples, trials), padded with 0 to sizes that the matrix product takes."""
    import torch

    padded = torch.zeros(
        (max(32, -(-len(examples) // 8) * 8), max(16, -(-len(bits) // 16) * 16)), dtype=torch.int8, device=bits.device
    )
    chosen = bits.index_select(1, examples >> 3) >> (examples & 7).to(torch.uint8)  # (trials, examples)
    padded[: len(examples), : len(bits)] = chosen.bitwise_and_(1).t()
    return padded


class _Search:
    """What is asked for of some test examples, found tile by tile of training examples, ascending."""

    def __init__(
        self,
        sides: list[_Side],
        train: np.ndarray,
        test: np.ndarray,
        trials_in: np.ndarray,  # (train,)
        trials_out: np.ndarray,  # (train,)
        right_out: np.ndarray,  # (test,)
        k: int | None,
        threshold: float | None,
    ) -> None:
        import torch

        device = sides[0].device

        def tensor(values: Any) -> "torch.Tensor":
            return torch.from_numpy(np.array(values)).to(device)

        self._sides, self._k, self._threshold = sides, k, threshold
        self._train = tensor(train)
        self._right = [side.right(tensor(test)) for side in sides]  # (test, trials) int8
        self._in, self._out = tensor(trials_in.astype(float)), tensor(trials_out.astype(float))  # (train,) float64
        self._right_out = tensor(right_out.astype(float))  # (test,) float64
        # Each term of the float32 estimate is at most trials / trials_in or trials / trials_out, and is rounded a few
        # times by at most 2**-24 of itself.
        trials = max(len(side.mask) for side in sides)
        self._slack = ((trials / self._in + trials / self._out + 2) * 2.0**-20).float()  # (train,)
        self.value = torch.full((len(test), k or 0), float("nan"), dtype=torch.float64, device=device)
        self.index = torch.full((len(test), k or 0), -1, dtype=torch.int64, device=device)
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []  # positions in train and test

    def look(self, first: int, last: int) -> None:
        """Look at the training examples first to last."""
        import torch

        tests, rows = len(self._right_out), last - first
        counts = [
            torch._int_mm(right, side.kept(self._train[first:last]).t())[:tests, :rows]
            for side, right in zip(self._sides, self._right)
        ]  # (test, train) int32 each
        in_share, out_share = (1 / part[first:last].float() for part in (self._in, self._out))  # (train,)
        if len(counts) == 1:
            rough = counts[0] * (in_share + out_share)  # (test, train) float32
        else:
            rough = (counts[0] * in_share).addcmul_(counts[1].float(), out_share)
        rough.addcmul_(self._right_out.float()[:, None], out_share, value=-1).add_(self._slack[first:last])
        test, train = (rough >= self._floor()[:, None]).nonzero(as_tuple=True)  # NaN is never at least anything
        del rough
        n_in, n_out = (found[test, train].double() for found in (counts[0], counts[-1]))
        train = train + first
        value = n_in / self._in[train] - (self._right_out[test] - n_out) / self._out[train]  # (found,) float64
        if self._threshold is not None:
            hit = value >= self._threshold
            self.pairs.append((train[hit], test[hit]))
        if self._k is not None:
            self._merge(test, train, value)

    def _floor(self) -> "torch.Tensor":
        """What an estimate of each test example must reach to matter, rounded down to float32, (test,)."""
        import torch

        floor = torch.full_like(self._right_out, float("inf") if self._threshold is None else self._threshold)
        if self._k is not None:
            smallest = self.value[:, -1].nan_to_num(nan=-float("inf"))
            floor = torch.minimum(floor, smallest)
        rounded = floor.float()
        return torch.where(
            rounded.double() > floor, torch.nextafter(rounded, torch.full_like(rounded, -float("inf"))), rounded
        )

    def _merge(self, test: "torch.Tensor", train: "torch.Tensor", value: "torch.Tensor") -> None:
        """Put found values where they belong among the k largest; they come ascending by (test, train)."""
        import torch

        smallest = self.value[test, -1]
        better = (value > smallest) | smallest.isnan() & ~value.isnan()
        test, train, value = test[better], train[better], value[better]
        known = ~self.value.isnan()
        rows = torch.cat([known.nonzero()[:, 0], test])
        values = torch.cat([self.value[known], value])
        indices = torch.cat([self.index[known], self._train[train]])
        # Both sorts are stable: among equal values the earlier, lower training index stays first.
        order = torch.argsort(values, descending=True, stable=True)
        order = order[torch.argsort(rows[order], stable=True)]
        rows = rows[order]
        rank = torch.arange(len(rows), device=rows.device) - torch.searchsorted(rows, rows)
        chosen = rank < self.value.shape[1]
        at = (rows[chosen], rank[chosen])
        self.value[at], self.index[at] = values[order][chosen], indices[order][chosen]
