"""Networks by name (`resnet9@fast`) and from factories of the user's: `from_preset`, `network`, `from_factory`."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from memfluence.errors import LearnerError
from memfluence.learners.factory import ModuleFactory
from memfluence.learners.mlp import MLP
from memfluence.learners.network import ImageLoading, Network
from memfluence.learners.recipes import LearnerPreset, Recipe, learner_preset, named_recipe, override, preset_name
from memfluence.learners.settings import parse_options, parse_settings

__all__ = ["from_factory", "from_preset", "network"]


def from_preset(name: str, settings: Mapping[str, Any]) -> Network | MLP:
    """The learner that `recipes.LEARNER_PRESETS` has under this name, with some of its settings changed."""
    preset = learner_preset(name)
    if preset.architecture == "mlp":
        return _mlp(preset, settings)

    def options() -> Mapping[str, inspect.Parameter]:
        from memfluence.learners.nets.architectures import options_of

        return options_of(preset.architecture)

    plain = Network(preset_name(name), preset.architecture, preset.recipe, dict(preset.options))
    return _with_settings(plain, settings, options)


def network(factory: Callable[..., Any], recipe: str | Recipe = "fast", **settings: Any) -> Network:
    """A learner that trains modules of your own by one of our recipes, compiled and captured where there is a GPU.

        run = mf.run("cifar100:DIR", learner=mf.network(Net, recipe="fast", epochs=20, width=32), trials=500)

    `factory` is a module class or a function that makes modules from images (batch, channels, height, width) to logits
    (batch, n_classes); features (n, d) are images of 1 x 1 pixels with d channels, which `nn.Flatten` undoes. It is
    called with `in_channels` and `n_classes` (or `num_classes`) where it has parameters of these names. `recipe` is a
    name of `recipes.PRESETS` ("fast", "cifar100", "mnist", "imagenet"), "paper", or a `Recipe`. `settings` change
    numbers of the recipe or, where the recipe has none of that name, are other parameters of the factory. `group=K`
    trains K small models at once, where they have no dropout: see `Network`. `images` and `decode_workers` are about
    images that stay in their files: see `ImageLoading`.

    A trial's model is made with torch's generator seeded by the trial, and what it draws in training (dropout) too.
    What is random about a model must lie in its parameters and buffers: those are what a new trial draws anew.
    """
    made = ModuleFactory(factory)
    if isinstance(recipe, Recipe):
        return _of_factory(made, made.name, recipe, settings)
    return _of_factory(made, f"{made.name}@{recipe}", named_recipe(recipe), settings)


def from_factory(found: Any, recipe: str, settings: Mapping[str, Any], covered: str | None) -> Network:
    """As `network`, for code from a file or module."""
    made = ModuleFactory(found, covered)
    return _of_factory(made, f"{made.name}@{recipe}", named_recipe(recipe), settings)


def _of_factory(factory: ModuleFactory, name: str, recipe: Recipe, settings: Mapping[str, Any]) -> Network:
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


def _mlp(preset: LearnerPreset, settings: Mapping[str, Any]) -> MLP:
    """The numbers of a recipe that a batched MLP has, with its own settings over them."""
    recipe = preset.recipe
    plain = MLP(epochs=recipe.epochs, batch=recipe.batch, rate=recipe.rate, momentum=recipe.momentum, **preset.options)
    return replace(plain, **parse_settings(MLP, settings))
