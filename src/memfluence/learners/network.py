"""`Network`: an architecture, or a module factory, with a recipe (`resnet9@fast`, `net.py:make@fast`).

Meant for a GPU, where one captured step serves all trials of a run. It runs on a CPU as well, slowly, which is how it
is tested.
"""

import inspect
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError
from memfluence.learners._factory import ModuleFactory
from memfluence.learners._one_by_one import one_by_one
from memfluence.learners._outcomes import needs_scores, outcome_from_codes, outcome_from_scores
from memfluence.learners._settings import parse_options, parse_settings
from memfluence.learners.mlp import MLP
from memfluence.learners.recipes import LearnerPreset, Recipe, learner_preset, named_recipe, preset_name
from memfluence.learners.schedules import step_shape
from memfluence.records import Failure, Outcome, Trial

if TYPE_CHECKING:
    import torch

    from memfluence.learners._torch.trainer import Trainer

__all__ = ["Network", "from_factory", "from_preset", "network"]


def from_preset(name: str, settings: Mapping[str, Any]) -> "Network | MLP":
    """The learner that `recipes.LEARNER_PRESETS` has under this name, with some of its settings changed."""
    preset = learner_preset(name)
    if preset.architecture == "mlp":
        return _mlp(preset, settings)

    def options() -> Mapping[str, inspect.Parameter]:
        from memfluence.learners._torch.architectures import options_of

        return options_of(preset.architecture)

    plain = Network(preset_name(name), preset.architecture, preset.recipe, dict(preset.options))
    return _with_settings(plain, settings, options)


def network(factory: Callable[..., Any], recipe: str | Recipe = "fast", **settings: Any) -> "Network":
    """A learner that trains modules of your own by one of our recipes, compiled and captured where there is a GPU.

        run = mf.run("cifar100:DIR", learner=mf.network(Net, recipe="fast", epochs=20, width=32), trials=500)

    `factory` is a module class or a function that makes modules from images (batch, channels, height, width) to logits
    (batch, n_classes); features (n, d) are images of 1 x 1 pixels with d channels, which `nn.Flatten` undoes. It is
    called with `in_channels` and `n_classes` (or `num_classes`) where it has parameters of these names. `recipe` is a
    name of `recipes.PRESETS` ("fast", "cifar100", "mnist", "imagenet"), "paper", or a `Recipe`. `settings` change
    numbers of the recipe or, where the recipe has none of that name, are other parameters of the factory.

    A trial's model is made with torch's generator seeded by the trial, and what it draws in training (dropout) too.
    What is random about a model must lie in its parameters and buffers: those are what a new trial draws anew.
    """
    made = ModuleFactory(factory)
    if isinstance(recipe, Recipe):
        return _of_factory(made, made.name, recipe, settings)
    return _of_factory(made, f"{made.name}@{recipe}", named_recipe(recipe), settings)


def from_factory(found: Any, recipe: str, settings: Mapping[str, Any], covered: str | None) -> "Network":
    """As `network`, for code from a file or module."""
    made = ModuleFactory(found, covered)
    return _of_factory(made, f"{made.name}@{recipe}", named_recipe(recipe), settings)


def _of_factory(factory: ModuleFactory, name: str, recipe: Recipe, settings: Mapping[str, Any]) -> "Network":
    found = _with_settings(Network(name, factory, recipe), settings, lambda: factory.options)
    missing = [
        option
        for option, parameter in factory.options.items()
        if parameter.default is parameter.empty and option not in found.options
    ]
    if missing:
        raise LearnerError(
            f"{factory.name} needs {', '.join(missing)}; a factory is given in_channels and n_classes by these names,"
            f" and what else it needs by --set {missing[0]}=VALUE or a default."
        )
    return found


def _with_settings(
    plain: "Network", settings: Mapping[str, Any], options: Callable[[], Mapping[str, inspect.Parameter]]
) -> "Network":
    """Settings that the recipe has change it; the others are options of the architecture, if it has them."""
    known = {one.name for one in fields(Recipe)}
    of_recipe = {name: value for name, value in settings.items() if name in known}
    others = {name: value for name, value in settings.items() if name not in known}
    changed = replace(plain.recipe, **parse_settings(Recipe, of_recipe))
    if not others:  # the options of our architectures are not looked up, which would import torch
        return replace(plain, recipe=changed)
    return replace(plain, recipe=changed, options=plain.options | parse_options(plain.name, options(), others, known))


def _mlp(preset: LearnerPreset, settings: Mapping[str, Any]) -> MLP:
    """The numbers of a recipe that a batched MLP has, with its own settings over them."""
    recipe = preset.recipe
    plain = MLP(epochs=recipe.epochs, batch=recipe.batch, rate=recipe.rate, momentum=recipe.momentum, **preset.options)
    return replace(plain, **parse_settings(MLP, settings))


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
    # Trainers, not handed on by `dataclasses.replace`: one of another recipe must not be found here.
    _trainers: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Network, (self.name, self.architecture, self.recipe, self.options)

    def describe(self) -> dict[str, Any]:
        own = None if isinstance(self.architecture, str) else self.architecture
        return {
            "name": self.name,
            "architecture": own.name if own else self.architecture,
            "options": self.options,
            "recipe": self.recipe.describe(),
        } | (own.describe() if own else {})

    def group_size(self, dataset: Dataset, device: str) -> int:
        return 1

    def train(
        self, dataset: Dataset, trials: Sequence[Trial], *, record: Collection[str], device: str
    ) -> Iterator[Outcome | Failure]:
        from memfluence.learners._torch.device import one_thread, torch_device
        from memfluence.learners._torch.trainer import kernels

        chosen = torch_device(device)
        with one_thread(), kernels(self.recipe.deterministic):
            yield from one_by_one(trials, lambda trial: self._outcome(dataset, trial, record, chosen))

    def _outcome(self, dataset: Dataset, trial: Trial, record: Collection[str], device: "torch.device") -> Outcome:
        import torch

        from memfluence.learners._torch.device import device_name

        started = time.perf_counter()
        try:
            trainer = self._trainer(dataset, len(trial.kept), device)
            with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
                trainer.train(trial)
                train_scores, test_scores = trainer.scores()  # (n, n_classes) each
        except torch.OutOfMemoryError as error:  # here, because `one_by_one` would take it for the trial's own failure
            raise LearnerError(
                f"the GPU's memory does not hold {self.name} with batches of {self.recipe.batch};"
                f" train smaller ones, for example with --set batch={max(1, self.recipe.batch // 2)}."
            ) from error
        if not (trainer.is_finite() and train_scores.isfinite().all() and test_scores.isfinite().all()):
            raise FloatingPointError(
                f"the model diverged at the rate {self.recipe.rate:g}; lower it, for example with"
                f" --set rate={self.recipe.rate / 4:g}"
            )
        name = device_name(device)
        if needs_scores(record):
            scores = train_scores.cpu().numpy(), test_scores.cpu().numpy()
            seconds = time.perf_counter() - started
            return outcome_from_scores(trial, dataset, *scores, record=record, seconds=seconds, device=name)
        codes = train_scores.argmax(1).cpu().numpy(), test_scores.argmax(1).cpu().numpy()
        seconds = time.perf_counter() - started
        return outcome_from_codes(trial, dataset, *codes, record=record, seconds=seconds, device=name)

    def _trainer(self, dataset: Dataset, subset_size: int, device: "torch.device") -> "Trainer":
        """The trainer of these data and this shape of steps: made once, because capturing a step costs many steps."""
        from memfluence.learners._torch.images import load_images
        from memfluence.learners._torch.trainer import Trainer

        shape = step_shape(self.recipe, subset_size)
        key = (dataset.fingerprint, shape, str(device))
        if key not in self._trainers:
            self._trainers.clear()  # one model on the device at a time
            data = load_images(dataset, self.recipe, device, flat=self.architecture == "linear")
            self._trainers[key] = Trainer(
                self.architecture, self.options, self.recipe, data, dataset.n_classes, shape, device
            )
        trainer: Trainer = self._trainers[key]
        return trainer
