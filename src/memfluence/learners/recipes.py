"""Recipes: how a network is trained, as data. And learners by name, an architecture with a recipe: `resnet50@paper`.

The recipes named after a dataset are those of the appendix of Feldman & Zhang (2020), "Details of the Experimental
Setup". What it leaves unsaid is marked "our choice" beside the number. `override` changes one.

The steps that follow from a recipe: their number and size, the learning rate of each, and which examples a trial sees
in it. Of T steps, step k (from 0) has the rate

    linear      rate * min(k / W, (T - k) / (T - W))
    steps       rate * min(k / W, 1) * decay ** (how many milestones are at or before step k)
    constant    rate * min(k / W, 1)

with W = warmup * T, the end of the warm-up (with W = 0 there is none, and k / W drops out of the minimum). A milestone
of m epochs is at step m * steps_per_epoch. So with a warm-up the first step has the rate 0, as the paper says ("grow
linearly from 0"), the highest rate is reached at W, and "linear" would be 0 again at step T, the first not taken.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from memfluence.learners.settings import is_integer, is_real, known_or_error, parse_settings, require
from memfluence.records import Trial

_CHOICES: dict[str, Collection[str]] = {
    "schedule": ("linear", "steps", "constant"),
    "padding_mode": ("zeros", "reflect"),
    "normalization": ("fixed", "subset", "dataset", "unit", "none"),
    "precision": ("bfloat16", "float32"),
    "optimizer": ("sgd", "muon"),
}


@dataclass(frozen=True)
class Recipe:
    """SGD with momentum on the cross-entropy, with its schedule and augmentation; checked when it is made."""

    name: ClassVar[str] = "the recipe"  # in messages about settings
    # Settings that came later, with the value that trains as before: the run of an older recipe can go on with it.
    before: ClassVar[Mapping[str, Any]] = {"alternate_flips": False, "pictures": True}

    epochs: int  # passes over the kept examples
    batch: int  # examples in a step
    rate: float  # the highest learning rate: the paper's "base learning rate"

    momentum: float = 0.9  # the paper's, for all its models
    nesterov: bool = False  # our choice: the paper says momentum and no more
    # Added to the gradient as weight_decay * parameter, for all parameters (normalization and biases too), as torch's
    # SGD does. 0 unless a recipe says otherwise: our choice.
    weight_decay: float = 0.0

    # "sgd", or "muon" for convolutions and sgd for the rest: `nets.optimizers`. The rate of muon falls linearly to 0.
    optimizer: str = "sgd"  # the paper's
    muon_rate: float = 0.12  # for "muon" alone
    muon_momentum: float = 0.6  # for "muon" alone; Jordan's for short trainings

    # What the rate does after the warm-up, which grows linearly from 0; `rates` has the exact values.
    # "linear" falls linearly to 0, "steps" is multiplied by `decay` at each of the `milestones`, "constant" stays.
    schedule: str = "linear"  # the paper's for CIFAR-100 and MNIST
    warmup: float = 0.15  # the warm-up's part of all steps: the paper's 15%, and its 15 of ImageNet's 100 epochs
    milestones: tuple[int, ...] = ()  # for "steps" alone: epochs, in ascending order, below `epochs`
    decay: float = 0.1  # for "steps" alone: the paper's 10x

    crop_padding: int = 0  # pixels added on each side, before a random crop of the old size; 0 for no crops
    # What is added: "zeros" is black, the raw value 0; "reflect" mirrors the image without repeating its edge.
    padding_mode: str = "zeros"  # our choice: He et al.'s, whose augmentation the paper's resembles
    flip: bool = False  # left-right, of a random half of the images
    # Whether an image that is flipped in one epoch is not flipped in the next (Jordan 2024), rather than by chance.
    alternate_flips: bool = False  # for `flip` alone
    # How raw values are scaled. "fixed": from their known range to [-1, 1], (x / 255 - 0.5) / 0.5 for 8-bit images.
    # "unit": from their range to [0, 1]. "subset": by each channel's mean and standard deviation over the examples that
    # the model keeps. "none": as they are. "dataset": by each channel's mean and standard deviation over all training
    # examples, which is what the usual constants of CIFAR and ImageNet are: it LEAKS held-out examples into the model.
    normalization: str = "fixed"  # our choice: nothing is fitted, so nothing leaks

    label_smoothing: float = 0.0  # the paper mentions none
    # Whether an epoch ends with a smaller batch of what is left over. Without, each epoch drops other examples, fewer
    # than a batch, at random. A subset smaller than a batch is a batch of its own either way.
    partial_batches: bool = False  # our choice: all steps have one shape, so that a GPU replays one captured step
    # Of activations and products; parameters and their updates are float32 always. "bfloat16" needs a device that
    # computes in it, and is float32 elsewhere.
    precision: str = "bfloat16"  # our choice: several times faster; the paper's P100s had float32
    # Whether a GPU may only use kernels that give the same bits every time.
    deterministic: bool = True
    # Whether inputs are pictures. If not, modules of your own are given examples in the shape that the data have, such
    # as (batch, length); each value of an example is scaled by itself, and there is nothing to crop or flip.
    pictures: bool = True

    def __post_init__(self) -> None:
        milestones: Any = self.milestones
        if isinstance(milestones, list):  # as JSON has it
            object.__setattr__(self, "milestones", tuple(milestones))
        for setting in ("epochs", "batch"):
            require(self, setting, is_integer(getattr(self, setting), 1), "an integer of at least 1")
        padding = self.crop_padding
        require(self, "crop_padding", is_integer(padding, 0) and padding < 128, "an integer from 0 to 127")
        require(self, "rate", is_real(self.rate) and 0 < self.rate < math.inf, "a number above 0")
        require(
            self,
            "weight_decay",
            is_real(self.weight_decay) and 0 <= self.weight_decay < math.inf,
            "a number of at least 0",
        )
        require(self, "muon_rate", is_real(self.muon_rate) and 0 < self.muon_rate < math.inf, "a number above 0")
        for setting in ("momentum", "muon_momentum", "warmup", "label_smoothing"):
            value = getattr(self, setting)
            require(self, setting, is_real(value) and 0 <= value < 1, "a number in [0, 1)")
        require(self, "decay", is_real(self.decay) and 0 < self.decay <= 1, "a number in (0, 1]")
        for setting in ("nesterov", "flip", "alternate_flips", "partial_batches", "deterministic", "pictures"):
            require(self, setting, isinstance(getattr(self, setting), bool), "true or false")
        require(self, "flip", self.pictures or not self.flip, "false where pictures is false")
        require(self, "crop_padding", self.pictures or not padding, "0 where pictures is false")
        for setting, choices in _CHOICES.items():
            require(self, setting, getattr(self, setting) in choices, f"one of {', '.join(choices)}")
        require(self, "nesterov", not self.nesterov or self.momentum > 0, "false where momentum is 0")
        self._check_milestones()
        for number in (one.name for one in fields(self) if one.type is float):
            object.__setattr__(self, number, float(getattr(self, number)))  # 1 and 1.0 are the same recipe in JSON too

    def _check_milestones(self) -> None:
        if self.schedule != "steps":
            require(self, "milestones", self.milestones == (), f"empty for the schedule {self.schedule!r}")
            return
        given: Any = self.milestones
        whole = isinstance(given, tuple) and all(is_integer(epoch, 1) for epoch in given)
        ascending = whole and list(given) == sorted(set(given)) and max(given, default=0) < self.epochs
        thirds = ",".join(str(epoch) for epoch in (self.epochs // 3, 2 * self.epochs // 3) if epoch)
        expected = (
            f"ascending epochs, like `settings={{'milestones': '{thirds}'}}`, from 1 to below epochs ({self.epochs})"
        )
        require(self, "milestones", ascending, expected)

    def describe(self) -> dict[str, Any]:
        """All settings, as JSON has them; `Recipe(**recipe.describe())` is the recipe again."""
        return asdict(self) | {"milestones": list(self.milestones)}


def override(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """The recipe with some settings changed; text (`{"epochs": "30"}`) is read by the setting's type."""
    return replace(recipe, **parse_settings(Recipe, settings))


_CIFAR100 = Recipe(
    epochs=160,
    batch=512,
    rate=0.4,
    crop_padding=4,
    flip=True,
    # Our choice. ResNet-50 on everything: 76.8% with it, 80.6% with the usual 5e-4, 74.9% with none; the paper 76.1%.
    weight_decay=5e-5,
)

PRESETS: dict[str, Recipe] = {
    "cifar100": _CIFAR100,
    "cifar100-densenet": replace(_CIFAR100, batch=256, rate=0.2),  # half of both, for its memory
    # On given representations: there is no image to crop or flip, and scaling would change what is to be judged.
    "cifar100-linear": replace(
        _CIFAR100,
        epochs=40,
        crop_padding=0,
        flip=False,
        normalization="none",
        weight_decay=5e-4,  # our choice: the usual one
    ),
    # On 224 x 224 pixels; how images are scaled to them is unsaid, and our choice in `imagenet:DIR`.
    "imagenet": Recipe(
        epochs=100,
        batch=896,
        rate=0.7,
        schedule="steps",
        warmup=0.15,  # 15 epochs
        milestones=(30, 60, 90),
        decay=0.1,
        crop_padding=32,
        flip=True,
        weight_decay=1e-4,  # our choice: He et al.'s for ImageNet
    ),
    # The appendix names crops and flips for CIFAR-100 and ImageNet alone.
    "mnist": Recipe(
        epochs=30,
        batch=256,
        rate=0.1,
        weight_decay=0.0,  # our choice: none, as in the authors' own MNIST example below
    ),
    # Ours, an eleventh of the paper's time (docs/results/mnist.md).
    "mnist-fast": Recipe(
        epochs=3,  # with muon; sgd at rate 0.4 had 99.0% on test examples after 3 and 99.5% after 6
        batch=1024,
        rate=0.4,
        optimizer="muon",
        muon_rate=0.05,  # 0.1 fits kept examples a little less well and generalizes as well
    ),
    # The example that the authors published with their scores.
    "mnist-mlp": Recipe(
        epochs=10,
        batch=128,
        rate=0.1,
        schedule="constant",
        warmup=0.0,
        normalization="unit",
        partial_batches=True,
    ),
    # Ours, for whatever is no picture: tables, time series, spectra.
    "plain": Recipe(
        epochs=30,
        batch=32,
        rate=0.05,
        partial_batches=True,  # few examples are not to be left out
        normalization="subset",
        precision="float32",
        pictures=False,
    ),
    # Ours, for models per hour at the paper's accuracy on CIFAR-100: 70% subsets on an H200 take 2.3 s a model and give
    # 73.2% on test and 98.9% on kept examples (n = 2; docs/results/cifar100.md has the search).
    "fast": Recipe(
        epochs=12,  # with muon; sgd needed 22 for the same accuracies
        batch=1024,  # 512 was a sixth slower a model: muon's own work comes once a step
        rate=0.8,  # of sgd, for the head and the normalization; 0.4 fitted kept examples less well
        nesterov=True,  # usual in speed runs
        weight_decay=4e-4,
        optimizer="muon",
        muon_rate=0.16,  # less fits kept examples better and generalizes worse
        crop_padding=2,  # 4 needs more epochs; 1 needs 10, but what it memorizes is less like what others memorize
        padding_mode="reflect",  # no black borders to learn in few epochs
        flip=True,
        alternate_flips=True,  # half a point on both test and kept examples
    ),
}
# ResNet-9 scales its logits down for the rate that "fast" has for the head and the normalization; ResNet-18 does not.
# 72.1% on test, 99.2% on kept examples (n = 481; docs/results/cifar100.md has the search).
PRESETS["resnet18-fast"] = replace(PRESETS["fast"], rate=0.05)


@dataclass(frozen=True)
class LearnerPreset:
    """An architecture, its options and the recipe that trains it."""

    architecture: str  # a name that `nets.architectures.build` knows, or "mlp", which has a learner of its own
    recipe: Recipe
    options: Mapping[str, Any] = field(default_factory=dict)


# `@paper` is the paper's recipe for CIFAR-100, on which it compares architectures; MNIST and ImageNet say their name.
LEARNER_PRESETS: dict[str, LearnerPreset] = {
    "resnet9@fast": LearnerPreset("resnet9", PRESETS["fast"], {"whiten": True}),
    "resnet50@paper": LearnerPreset("resnet50", PRESETS["cifar100"]),
    "resnet50@imagenet": LearnerPreset("resnet50_imagenet", PRESETS["imagenet"]),
    "resnet18@paper": LearnerPreset("resnet18", PRESETS["cifar100"]),
    "resnet18@fast": LearnerPreset("resnet18", PRESETS["resnet18-fast"]),
    "inception@paper": LearnerPreset("inception", PRESETS["cifar100"]),
    "inception@mnist": LearnerPreset("inception", PRESETS["mnist"]),
    "inception@mnist-fast": LearnerPreset("inception", PRESETS["mnist-fast"]),
    "densenet100@paper": LearnerPreset("densenet100", PRESETS["cifar100-densenet"]),
    "linear@paper": LearnerPreset("linear", PRESETS["cifar100-linear"]),
    "mlp@mnist": LearnerPreset("mlp", PRESETS["mnist-mlp"], {"hidden": (512, 256)}),
}


def preset_names() -> dict[str, str]:
    """Name -> full name: `resnet50` is `resnet50@paper`, the first one listed for it."""
    first = {listed.partition("@")[0]: listed for listed in reversed(LEARNER_PRESETS)}
    return first | {listed: listed for listed in LEARNER_PRESETS}


def named_recipe(name: str) -> Recipe:
    """The recipe `fast`, `mnist`, ..., or the one that built-in networks have after the @: `paper` is CIFAR-100's."""
    suffixes = {listed.partition("@")[2]: one.recipe for listed, one in reversed(LEARNER_PRESETS.items())}
    recipes = suffixes | PRESETS
    known_or_error(name, recipes, "there is no recipe", "There are")
    return recipes[name]


class StepShape(NamedTuple):
    """All that the steps of a training know of its subset's size."""

    batch: int  # examples of a step
    per_epoch: int  # steps of an epoch
    last: int  # examples of an epoch's last step


def step_shape(recipe: Recipe, subset_size: int) -> StepShape:
    """Subsets of all sizes share its width, if they fill one batch, and with it a captured step."""
    batch, per_epoch = min(recipe.batch, subset_size), steps_per_epoch(recipe, subset_size)
    return StepShape(batch, per_epoch, min(batch, subset_size - (per_epoch - 1) * batch))


def steps_per_epoch(recipe: Recipe, subset_size: int) -> int:
    """Batches in an epoch over `subset_size` examples: whole ones, and with `partial_batches` what is left over.

    At least 1: a subset smaller than a batch is a batch of its own.
    """
    whole, left_over = divmod(subset_size, recipe.batch)
    return max(1, whole + (1 if recipe.partial_batches and left_over else 0))


def rates(recipe: Recipe, steps_per_epoch: int) -> np.ndarray:
    """The learning rate at each of the epochs * steps_per_epoch steps: (steps,) float64."""
    steps = recipe.epochs * steps_per_epoch
    step = np.arange(steps, dtype=np.float64)  # (steps,)
    warm = recipe.warmup * steps  # where the warm-up ends, not always a whole step; below `steps`
    factor = np.minimum(step / warm, 1) if warm else np.ones(steps)  # (steps,)
    if recipe.schedule == "linear":
        factor = np.minimum(factor, (steps - step) / (steps - warm))
    for milestone in recipe.milestones:  # none but in "steps"
        factor[step >= milestone * steps_per_epoch] *= recipe.decay
    return np.asarray(recipe.rate * factor)


def step_tables(trial: Trial, recipe: Recipe, shape: StepShape) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the training data (steps, batch) int32; top, left and flip of each (steps, 3, batch) uint8."""
    steps = recipe.epochs * shape.per_epoch
    order_stream, augment_stream = trial.generator("order"), trial.generator("augment")
    order = np.zeros((recipe.epochs, shape.per_epoch * shape.batch), dtype=np.int32)
    used = min(order.shape[1], len(trial.kept))  # what does not fill a batch is left out of the epoch
    for epoch in range(recipe.epochs):
        order[epoch, :used] = order_stream.permutation(trial.kept)[:used]
    crops = np.zeros((steps, 3, shape.batch), dtype=np.uint8)
    if recipe.crop_padding:
        crops[:, :2] = augment_stream.integers(0, 2 * recipe.crop_padding + 1, (steps, 2, shape.batch), np.uint8)
    order = order.reshape(steps, shape.batch)
    if recipe.flip and recipe.alternate_flips:
        in_first = augment_stream.integers(0, 2, len(trial.mask), np.uint8)  # (n_train,)
        crops[:, 2] = (in_first[order] + np.arange(steps)[:, None] // shape.per_epoch) % 2
    elif recipe.flip:
        crops[:, 2] = augment_stream.integers(0, 2, (steps, shape.batch), np.uint8)
    return order, crops


def step_rows(order: np.ndarray, shape: StepShape, first: int = 0) -> Iterator[np.ndarray]:
    """The examples of each step of `order` (steps, ..., batch) from the first one asked for on, without its filling."""
    for step in range(first, len(order)):
        is_last = step % shape.per_epoch == shape.per_epoch - 1
        yield order[step][..., : shape.last if is_last else shape.batch].reshape(-1)
