"""`Network`: an architecture, or a module factory, with a recipe (`resnet9@fast`, `net.py:make@fast`).

Made by name (`from_preset`) or from a factory of the user's (`network`, `from_factory`). Meant for a GPU, where one
captured step serves all trials of a run. It runs on a CPU as well, slowly, which is how it is tested.
"""

import inspect
import itertools
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from memfluence.datasets import Dataset
from memfluence.errors import DatasetError, LearnerError
from memfluence.learners.factory import ModuleFactory
from memfluence.learners.mlp import MLP
from memfluence.learners.outcomes import NOTHING_KEPT, needs_scores, one_by_one, outcome_from
from memfluence.learners.protocol import Checkpoints, Learner, Representation
from memfluence.learners.recipes import LEARNER_PRESETS, Recipe, StepShape, named_recipe, override, step_shape
from memfluence.learners.settings import is_integer, parse_options, parse_settings, require
from memfluence.records import GIVEN, Failure, Outcome, PartWay, Trial

if TYPE_CHECKING:
    import torch

    from memfluence.learners.nets.images import ImageSource
    from memfluence.learners.nets.trainer import Trainer

_TORCH_SAYS = "Expected more than 1 value per channel"  # within what compilers say around it

_WAYS = ("auto", "table", "stream")


@dataclass(frozen=True)
class ImageLoading:
    """Settings that change how long a model takes and what memory it needs, and not one bit of it."""

    name: ClassVar[str] = "a network"  # in messages about settings

    # Processes that decode images while the model trains; -1 for one on every core that this process may use, 0 to
    # decode in the training process itself.
    decode_workers: int = -1
    # "table": all images are decoded once and stay on the device. "stream": each batch is decoded as it is needed.
    # "auto": a table where it takes no more than half of the device's free memory.
    images: str = "auto"

    def __post_init__(self) -> None:
        require(self, "decode_workers", is_integer(self.decode_workers, -1), "an integer of at least -1")
        require(self, "images", self.images in _WAYS, f"one of {', '.join(_WAYS)}")


@dataclass(frozen=True)
class Network:
    """A network on images (n, height, width[, channels]); each trial's own streams draw its start, order and crops.

    With the recipe's `deterministic` the same trial has the same bits on the same model of GPU with the same
    versions. Nothing is fitted on examples that a trial leaves out, unless the recipe's normalization is "dataset",
    which says so.
    """

    name: str
    architecture: str | ModuleFactory
    recipe: Recipe
    options: dict[str, Any] = field(default_factory=dict)
    loading: ImageLoading = field(default_factory=ImageLoading)  # no part of `describe`: the bits are the same
    # Models trained at once: for those so small that calls take the time, not arithmetic. By sgd, in float32, without
    # dropout, not compiled. Fixed in a run; it changes rounding alone, so it is no part of the identity.
    group: int = 1
    # Trainers, not handed on by `dataclasses.replace`: one of another recipe must not be found here.
    _trainers: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _watched: tuple[Any, Any] = field(default=(None, None), init=False, repr=False, compare=False)  # see `resuming`

    def __post_init__(self) -> None:
        require(self, "group", is_integer(self.group, 1), "an integer of at least 1")

    def __reduce__(self) -> tuple[Any, ...]:
        return Network, (self.name, self.architecture, self.recipe, self.options, self.loading, self.group)

    def describe(self) -> dict[str, Any]:
        own = None if isinstance(self.architecture, str) else self.architecture
        return {
            "name": self.name,
            "architecture": own.name if own else self.architecture,
            "options": self.options,
            "recipe": self.recipe.describe(),
        } | (own.describe(self.options) if own else {})

    @property
    def described_before(self) -> dict[str, Any]:
        return {"recipe": Recipe.before}

    def group_size(self, dataset: Dataset, device: str) -> int:
        return self.group

    def train(
        self, dataset: Dataset, trials: Sequence[Trial], *, record: Collection[str], device: str
    ) -> Iterator[Outcome | Failure]:
        from memfluence.learners.nets.device import kernels, one_thread, torch_device

        chosen = torch_device(device)
        with one_thread(), kernels(self.recipe.deterministic):
            if self.group > 1 and len(trials) > 1:  # small models, which have no need of checkpoints
                yield from self._group_results(dataset, trials, record, chosen)
            else:
                yield from one_by_one(trials, lambda trial: self._outcome(dataset, trial, record, chosen))

    def resuming(self, checkpoints: Checkpoints | None, report: Callable[[PartWay], None]) -> Learner:
        """The same network, with the same trainers; sent to another process it is the plain network again."""
        found = replace(self)
        object.__setattr__(found, "_trainers", self._trainers)
        object.__setattr__(found, "_watched", (checkpoints, report))
        return found

    def _group_results(
        self, dataset: Dataset, trials: Sequence[Trial], record: Collection[str], device: "torch.device"
    ) -> list[Outcome | Failure]:
        """All trials at once whose steps have one shape; mostly that is all of them."""
        shapes: dict[Any, list[Trial]] = {}
        for trial in trials:
            if len(trial.kept):
                shapes.setdefault(step_shape(self.recipe, len(trial.kept)), []).append(trial)
        found: dict[int, Outcome | Failure] = {}
        for shape, members in shapes.items():
            found |= self._trained_at_once(dataset, members, shape, record, device)
        return [found.get(trial.number) or Failure(trial.number, NOTHING_KEPT) for trial in trials]

    def _trained_at_once(
        self,
        dataset: Dataset,
        trials: Sequence[Trial],
        shape: StepShape,
        record: Collection[str],
        device: "torch.device",
    ) -> dict[int, Outcome | Failure]:
        import torch

        from memfluence.learners.nets.device import device_name
        from memfluence.learners.nets.group_trainer import GroupTrainer

        started, key = time.perf_counter(), (dataset.fingerprint, shape, str(device), len(trials))
        try:
            if key not in self._trainers:
                self._trainers.clear()
                data = self._images(dataset, len(trials) * shape.batch, device)
                self._trainers[key] = GroupTrainer(
                    len(trials),
                    self._architecture(dataset),
                    self.options,
                    self.recipe,
                    data,
                    dataset.n_classes,
                    shape,
                    device,
                )
            trainer: GroupTrainer = self._trainers[key]
            with lone_examples_explained(self.recipe, len(trials[0].kept)):
                trainer.train(trials)
            scores = [of_split.cpu().numpy() for of_split in trainer.scores()]  # (models, n, n_classes) each
        except torch.OutOfMemoryError as error:
            raise LearnerError(
                f"the GPU's memory does not hold {len(trials)} models of {self.name} at once;"
                f" train fewer, for example with `settings={{'group': {max(1, len(trials) // 2)}}}`."
            ) from error
        except (LearnerError, DatasetError):
            raise
        except Exception as error:
            message, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
            return {trial.number: Failure(trial.number, message, trace) for trial in trials}
        seconds, name = (time.perf_counter() - started) / len(trials), device_name(device)
        results: dict[int, Outcome | Failure] = {}
        for k, (trial, finite) in enumerate(zip(trials, trainer.finite())):
            train, test = (of_split[k] for of_split in scores)
            if finite and np.isfinite(train).all() and np.isfinite(test).all():
                results[trial.number] = outcome_from(
                    trial, dataset, train, test, record=record, seconds=seconds, device=name
                )
            else:
                results[trial.number] = Failure(trial.number, f"FloatingPointError: {self._diverged()}")
        return results

    def _diverged(self) -> str:
        rate = self.recipe.rate
        return (
            f"the model diverged at the rate {rate:g}; lower it, for example with `settings={{'rate': {rate / 4:g}}}`"
        )

    def _outcome(self, dataset: Dataset, trial: Trial, record: Collection[str], device: "torch.device") -> Outcome:
        import torch

        from memfluence.learners.nets.device import device_name
        from memfluence.learners.nets.margins import margins
        from memfluence.learners.nets.watch import Watch

        started, watch = time.perf_counter(), Watch(trial.number, *self._watched)
        try:
            trainer = self._trainer(dataset, len(trial.kept), device)
            generators = [device] if device.type == "cuda" else []
            with torch.random.fork_rng(devices=generators), watch.until_evaluated():
                with lone_examples_explained(self.recipe, len(trial.kept)):
                    trainer.train(trial, watch)
                train, test = trainer.scores()  # (n, n_classes) each
                finite = trainer.is_finite() and bool(train.isfinite().all() & test.isfinite().all())
        except torch.OutOfMemoryError as error:  # here, because `one_by_one` would take it for the trial's own failure
            raise LearnerError(
                f"the GPU's memory does not hold {self.name} with batches of {self.recipe.batch};"
                f" train smaller ones, for example with `settings={{'batch': {max(1, self.recipe.batch // 2)}}}`."
            ) from error
        if not finite:
            raise FloatingPointError(self._diverged())
        extras = {}
        if GIVEN in record:
            extras["train_margin"] = margins(train, dataset.y_train)
            extras["test_margin"] = margins(test, dataset.y_test)
        if not needs_scores(record):  # codes are less to copy
            train, test = train.argmax(1), test.argmax(1)
        predicted = train.cpu().numpy(), test.cpu().numpy()
        seconds, name = watch.seconds_before + time.perf_counter() - started, device_name(device)
        return outcome_from(trial, dataset, *predicted, record=record, extras=extras, seconds=seconds, device=name)

    def represent(self, dataset: Dataset, trial: Trial, *, device: str) -> Representation:
        """The inputs of the last linear layer of the trial's network, without augmentation."""
        from memfluence.learners.nets.device import all_threads, kernels, torch_device

        chosen = torch_device(device)
        with all_threads(), kernels(self.recipe.deterministic):
            try:
                outcome = self._outcome(dataset, trial, (), chosen)
            except FloatingPointError as error:
                raise LearnerError(f"{error}.") from error
            train, test = self._trainer(dataset, len(trial.kept), chosen).representations()
        return Representation(outcome, train.cpu().numpy(), test.cpu().numpy())

    def _trainer(self, dataset: Dataset, subset_size: int, device: "torch.device") -> "Trainer":
        """The trainer of these data and this width of steps: made once, because capturing a step costs many steps."""
        from memfluence.learners.nets.trainer import Trainer

        batch = step_shape(self.recipe, subset_size).batch
        key = (dataset.fingerprint, batch, str(device))
        if key not in self._trainers:
            self._trainers.clear()  # one model on the device at a time
            data = self._images(dataset, batch, device)
            self._trainers[key] = Trainer(
                self._architecture(dataset), self.options, self.recipe, data, dataset.n_classes, batch, device
            )
        trainer: Trainer = self._trainers[key]
        return trainer

    def _architecture(self, dataset: Dataset) -> str | ModuleFactory:
        """The architecture, which is told of the shape of examples that are no pictures."""
        if self.recipe.pictures:
            return self.architecture
        if isinstance(self.architecture, str):
            raise LearnerError(f"{self.name} is made for pictures; give a module of your own, or `pictures=True`.")
        shape = tuple(getattr(dataset.x_train, "shape", ())[1:])
        return replace(self.architecture, shape=shape or None)

    def _images(self, dataset: Dataset, batch: int, device: "torch.device") -> "ImageSource":
        from memfluence.learners.nets.images import image_source

        flat = self.architecture == "linear" or not self.recipe.pictures
        return image_source(dataset, self.recipe, device, batch=batch, flat=flat, loading=self.loading)


@contextmanager
def lone_examples_explained(recipe: Recipe, subset_size: int) -> Iterator[None]:
    """The block trains on so many examples; torch's error about a single value is raised with advice instead."""
    try:
        yield
    except Exception as error:
        if _TORCH_SAYS not in str(error) or step_shape(recipe, subset_size).last > 1:
            raise
        raise ValueError(_advice(recipe, subset_size)) from error


def _advice(recipe: Recipe, subset_size: int) -> str:
    problem = "batch normalization of 1 x 1 maps cannot be trained on a single example"
    if subset_size == 1:
        return f"{problem}, and the trial keeps no more; raise `keep`"
    other = next(
        batch
        for batch in itertools.count(recipe.batch + 1)
        if step_shape(replace(recipe, batch=batch), subset_size).last > 1
    )
    return (
        f"{problem}, which is what {subset_size} examples in batches of {recipe.batch} end with;"
        f" use another batch size, for example with `settings={{'batch': {other}}}`"
    )


def from_preset(name: str, settings: Mapping[str, Any]) -> Network | MLP:
    """The learner that `recipes.LEARNER_PRESETS` has under this full name, with some of its settings changed."""
    preset, recipe = LEARNER_PRESETS[name], LEARNER_PRESETS[name].recipe
    if preset.architecture == "mlp":  # the numbers of the recipe that it has
        numbers = {setting: getattr(recipe, setting) for setting in ("epochs", "batch", "rate", "momentum")}
        return replace(MLP(**numbers, **preset.options), **parse_settings(MLP, settings))

    def options() -> Mapping[str, inspect.Parameter]:
        from memfluence.learners.nets.architectures import options_of

        return options_of(preset.architecture)

    plain = Network(name, preset.architecture, recipe, dict(preset.options))
    return _with_settings(plain, settings, options)


def network(factory: Callable[..., Any], recipe: str | Recipe = "fast", **settings: Any) -> Network:
    """A learner that trains modules of your own by one of our recipes, compiled and captured where there is a GPU.

        run = mf.run("cifar100:DIR", learner=mf.network(Net, recipe="fast", epochs=20, width=32), trials=500)

    `factory` is a module class or a function that makes modules from images (batch, channels, height, width) to logits
    (batch, n_classes); features (n, d) are images of 1 x 1 pixels with d channels, which `nn.Flatten` undoes. With
    recipe="plain", or another with pictures=False, modules are given examples as they are, of any shape: (batch,
    length) for time series (n, length). It is called with `in_channels` and `n_classes` (or `num_classes`) where it has
    parameters of these names. `recipe` is a name of `recipes.PRESETS` ("fast", "plain", "cifar100", "mnist",
    "imagenet"), "paper", or a `Recipe`. `settings` change numbers of the recipe or, where the recipe has none of that
    name, are other parameters of the factory. `group=K` trains K small models at once, where they have no dropout: see
    `Network`. `images` and `decode_workers` are about images that stay in their files: see `ImageLoading`.

    A trial's model is made with torch's generator seeded by the trial, and what it draws in training (dropout) too.
    What is random about a model must lie in its parameters and buffers: those are what a new trial draws anew.
    """
    return from_factory(ModuleFactory(factory), recipe, settings)


def from_factory(factory: ModuleFactory, recipe: str | Recipe, settings: Mapping[str, Any]) -> Network:
    """As `network`, for a factory whose source may be identified elsewhere."""
    if isinstance(recipe, Recipe):
        plain = Network(factory.name, factory, recipe)
    else:
        plain = Network(f"{factory.name}@{recipe}", factory, named_recipe(recipe))
    found = _with_settings(plain, settings, lambda: factory.options)
    needed = (option for option, one in factory.options.items() if one.default is one.empty)
    if missing := [option for option in needed if option not in found.options]:
        raise LearnerError(
            f"{factory.name} needs {', '.join(missing)}; a factory is given in_channels and n_classes by these names,"
            f" and what else it needs by `settings={{'{missing[0]}': 'VALUE'}}` or a default."
        )
    return found


def _with_settings(
    plain: Network, settings: Mapping[str, Any], options: Callable[[], Mapping[str, inspect.Parameter]]
) -> Network:
    """Settings that recipes or all networks have are these; the others are options of the architecture."""
    of_recipe, of_loading = ({one.name for one in fields(kind)} for kind in (Recipe, ImageLoading))

    def chosen(names: set[str]) -> dict[str, Any]:
        return {name: value for name, value in settings.items() if name in names}

    changed = replace(
        plain,
        recipe=override(plain.recipe, chosen(of_recipe)),
        loading=replace(plain.loading, **parse_settings(ImageLoading, chosen(of_loading))),
        **parse_settings(Network, chosen({"group"})),
    )
    others = chosen(set(settings) - of_recipe - of_loading - {"group"})
    if not others:  # the options of our architectures are not looked up, which would import torch
        return changed
    parsed = parse_options(plain.name, options(), others, recipe=of_recipe, general={*of_loading, "group"})
    return replace(changed, options=plain.options | parsed)
