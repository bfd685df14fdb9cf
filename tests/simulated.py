"""Simulated worlds with shared trials and known truth, and the studies that are made on them.

Small versions of the studies are tests; `python docs/make_tables.py` makes the tables of docs/statistics.md from the
full ones.

A world is probit: model t is right on test example j if

    base[j] + sum over i of effect[i, j] * mask[t, i] + shared * u[t] + noise[t, j] > 0

with u and noise standard normal. u is what models have in common on all examples (a lucky initialisation): it makes the
outcomes of a trial depend on each other, and so all pairs. At most a few effects of a test example are not 0, so that
the truth is a sum over their subsets. Masks are Bernoulli or of fixed size; pairs without an effect have influence 0 in
the former and, since others are then a little more likely to be kept, 0 or a little less in the latter.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import ndtr

from memfluence import designs
from memfluence.records import Kind, Trials
from memfluence.seeding import random_subset

KEEP = 0.7


def packed(bits):
    return np.packbits(bits, axis=1, bitorder="little")


@dataclass(frozen=True, eq=False)
class ProbitWorld:
    base: np.ndarray  # (n_test,)
    effect: np.ndarray  # (n_train, n_test), mostly 0
    memorization: np.ndarray  # (n_train,) true values
    train_labels: np.ndarray
    test_labels: np.ndarray
    shared: float

    @property
    def kinds(self):
        return (Kind(KEEP, None),)

    @property
    def labelled(self):
        """What findings take after the trials."""
        return self.kinds, self.train_labels, self.test_labels

    def influence(self):
        """True values under independent masks, (n_train, n_test)."""
        truth = np.zeros_like(self.effect)
        scale = np.sqrt(1 + self.shared**2)
        for i, j in zip(*np.nonzero(self.effect)):
            others = [k for k in np.flatnonzero(self.effect[:, j]) if k != i]
            for kept in product((0, 1), repeat=len(others)):
                weight = np.prod([KEEP if one else 1 - KEEP for one in kept])
                rest = self.base[j] + sum(self.effect[k, j] for k, one in zip(others, kept) if one)
                truth[i, j] += weight * (ndtr((rest + self.effect[i, j]) / scale) - ndtr(rest / scale))
        return truth

    def trials(self, count, rng, *, masks=None):
        """`count` trials, with masks of the caller's or independent ones."""
        n_train, n_test = self.effect.shape
        mask = rng.random((count, n_train)) < KEEP if masks is None else masks  # (count, n_train)
        u = rng.standard_normal((count, 1))
        latent = self.base + mask @ self.effect + self.shared * u  # (count, n_test)
        test = latent + rng.standard_normal((count, n_test)) > 0
        # held-out models are right with probability 0.98 - memorization, and luck helps there too
        chance = np.where(mask, 0.98, 0.98 - self.memorization)  # (count, n_train)
        both = (self.shared * u + rng.standard_normal((count, n_train))) / np.sqrt(1 + self.shared**2)
        train = ndtr(-both) < chance
        return Trials(
            np.arange(count), np.zeros(count, np.int16), packed(mask), packed(train), packed(test), n_train, n_test
        )


def probit_world(rng, *, n_train=300, n_test=200, n_classes=10, carried=0.4, strength=1.0, shared=0.5):
    """A share `carried` of the test examples hangs on one or two memorized training examples of its class."""
    train_labels, test_labels = np.arange(n_train) % n_classes, np.arange(n_test) % n_classes
    memorization = np.where(rng.random(n_train) < 0.4, rng.uniform(0.2, 0.95, n_train), rng.uniform(0, 0.2, n_train))
    effect = np.zeros((n_train, n_test))
    for j in np.flatnonzero(rng.random(n_test) < carried):
        able = np.flatnonzero((train_labels == test_labels[j]) & (memorization > 0.3))
        for i in rng.choice(able, min(len(able), 1 + int(rng.random() < 0.3)), replace=False):
            effect[i, j] = strength * rng.gamma(2.0, 0.5)
    base = rng.normal(0.7, 0.9, n_test)
    return ProbitWorld(base, effect, memorization, train_labels, test_labels, shared)


def fixed_masks(rng, count, n_train):
    return np.array([random_subset(rng, n_train, round(KEEP * n_train)) for _ in range(count)])


@dataclass(frozen=True, eq=False)
class ThresholdWorld:
    """Outcomes that depend on the mask above all: right where sum over i of effect[i, j] * mask[i] + noise > bar[j].

    Every example matters a little, so models on one mask agree often, and masks that are dealt together matter.
    """

    effect: np.ndarray  # (n_train, n_test)
    bar: np.ndarray  # (n_test,)
    noise: float

    kinds = (Kind(KEEP, None),)

    @classmethod
    def make(cls, rng, n_train=30, n_test=20, noise=0.7):
        effect = rng.standard_normal((n_train, n_test))
        effect[:3] *= 3  # some examples matter more
        spread = np.sqrt((effect**2).sum(axis=0) * KEEP * (1 - KEEP))  # (n_test,)
        return cls(effect / spread, KEEP * (effect / spread).sum(axis=0) + rng.uniform(-1, 1, n_test), noise)

    def right(self, masks, rng):
        latent = masks @ self.effect + self.noise * rng.standard_normal((len(masks), len(self.bar)))
        return latent > self.bar  # (models, n_test)

    def truth(self, rng, batches=100, models=4000):
        """P[right | kept] - P[right | left out] under masks of fixed size, from many models; (n_train, n_test)."""
        n_train = len(self.effect)
        kept_right, right, kept = np.zeros_like(self.effect), np.zeros(len(self.bar)), np.zeros(n_train)
        for _ in range(batches):
            order = rng.random((models, n_train)).argsort(axis=1).argsort(axis=1)
            masks = order < round(KEEP * n_train)
            outcome = self.right(masks, rng)
            kept_right += masks.T.astype(float) @ outcome
            right, kept = right + outcome.sum(axis=0), kept + masks.sum(axis=0)
        total = batches * models
        return kept_right / kept[:, None] - (right - kept_right) / (total - kept)[:, None]

    def run(self, spec, count, seed):
        """Trials of a design."""
        n_train = len(self.effect)
        design = designs.make(spec, n_train=n_train, keep=KEEP, seed=seed)
        masks = np.array([design.trial(number).mask for number in range(count)])
        outcome = self.right(masks, np.random.default_rng([seed, 1]))
        block = design.plan.options.get("block", 1)
        mask = packed(masks)
        zeros = np.zeros_like(mask)
        kinds = np.zeros(count, np.int16)
        return Trials(
            np.arange(count), kinds, mask, zeros, packed(outcome), n_train, len(self.bar), design.repeats, block
        )
