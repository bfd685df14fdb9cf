"""`Network`: an architecture with a recipe (`resnet9@fast`, `resnet50@paper`), trained one model after another.

Meant for a GPU, where one captured step serves all trials of a run. It runs on a CPU as well, slowly, which is how it
is tested.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError
from memfluence.learners._loading_images import ImageLoading
from memfluence.learners._one_by_one import one_by_one
from memfluence.learners._outcomes import needs_scores, outcome_from_codes, outcome_from_scores
from memfluence.learners._settings import parse_settings
from memfluence.learners.mlp import MLP
from memfluence.learners.protocol import Checkpoints, Learner
from memfluence.learners.recipes import LearnerPreset, Recipe, learner_preset, override, preset_name
from memfluence.learners.schedules import step_shape
from memfluence.records import Failure, Outcome, PartWay, Trial

if TYPE_CHECKING:
    import torch

    from memfluence.learners._torch.trainer import Trainer
    from memfluence.learners._torch.watch import Watch

__all__ = ["Network", "from_preset"]


def from_preset(name: str, settings: Mapping[str, Any]) -> "Network | MLP":
    """The learner that `recipes.LEARNER_PRESETS` has under this name, with some numbers of its recipe changed."""
    preset = learner_preset(name)
    if preset.architecture == "mlp":
        return _mlp(preset, settings)
    own = {one.name for one in fields(ImageLoading)}
    loading = ImageLoading(**parse_settings(ImageLoading, {key: settings[key] for key in settings if key in own}))
    recipe = override(preset.recipe, {key: settings[key] for key in settings if key not in own})
    return Network(preset_name(name), preset.architecture, recipe, dict(preset.options), loading)


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
    architecture: str
    recipe: Recipe
    options: dict[str, Any] = field(default_factory=dict)
    loading: ImageLoading = field(default_factory=ImageLoading)  # no part of `describe`: the bits are the same
    # Trainers, not handed on by `dataclasses.replace`: one of another recipe must not be found here.
    _trainers: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Network, (self.name, self.architecture, self.recipe, self.options, self.loading)

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "architecture": self.architecture,
            "options": self.options,
            "recipe": self.recipe.describe(),
        }

    def group_size(self, dataset: Dataset, device: str) -> int:
        return 1

    def train(
        self, dataset: Dataset, trials: Sequence[Trial], *, record: Collection[str], device: str
    ) -> Iterator[Outcome | Failure]:
        return self._train(dataset, trials, record, device)

    def resuming(self, checkpoints: Checkpoints | None, report: Callable[[PartWay], None]) -> Learner:
        return _ResumingNetwork(self, checkpoints, report)

    def _train(
        self,
        dataset: Dataset,
        trials: Sequence[Trial],
        record: Collection[str],
        device: str,
        checkpoints: Checkpoints | None = None,
        report: Callable[[PartWay], None] | None = None,
    ) -> Iterator[Outcome | Failure]:
        """`train`, which goes on from checkpoints and says how far it is."""
        from memfluence.learners._torch.device import one_thread, torch_device
        from memfluence.learners._torch.trainer import kernels
        from memfluence.learners._torch.watch import Watch

        chosen = torch_device(device)

        def outcome(trial: Trial) -> Outcome:
            return self._outcome(dataset, trial, record, chosen, Watch(trial.number, checkpoints, report))

        with one_thread(), kernels(self.recipe.deterministic):
            yield from one_by_one(trials, outcome)

    def _outcome(
        self, dataset: Dataset, trial: Trial, record: Collection[str], device: "torch.device", watch: "Watch"
    ) -> Outcome:
        import torch

        from memfluence.learners._torch.device import device_name

        started = time.perf_counter()
        try:
            trainer = self._trainer(dataset, len(trial.kept), device)
            trainer.train(trial, watch)
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
            seconds = watch.seconds_before + time.perf_counter() - started
            return outcome_from_scores(trial, dataset, *scores, record=record, seconds=seconds, device=name)
        codes = train_scores.argmax(1).cpu().numpy(), test_scores.argmax(1).cpu().numpy()
        seconds = watch.seconds_before + time.perf_counter() - started
        return outcome_from_codes(trial, dataset, *codes, record=record, seconds=seconds, device=name)

    def _trainer(self, dataset: Dataset, subset_size: int, device: "torch.device") -> "Trainer":
        """The trainer of these data and this shape of steps: made once, because capturing a step costs many steps."""
        from memfluence.learners._torch.streaming import image_source
        from memfluence.learners._torch.trainer import Trainer

        shape = step_shape(self.recipe, subset_size)
        key = (dataset.fingerprint, shape, str(device))
        if key not in self._trainers:
            self._trainers.clear()  # one model on the device at a time
            flat = self.architecture == "linear"
            data = image_source(dataset, self.recipe, device, batch=shape.batch, flat=flat, loading=self.loading)
            self._trainers[key] = Trainer(
                self.architecture, self.options, self.recipe, data, dataset.n_classes, shape, device
            )
        trainer: Trainer = self._trainers[key]
        return trainer


@dataclass(frozen=True)
class _ResumingNetwork:
    """A network, with its trainers, that uses checkpoints; made where it trains, and never sent anywhere."""

    network: Network
    checkpoints: Checkpoints | None
    report: Callable[[PartWay], None]

    @property
    def name(self) -> str:
        return self.network.name

    def describe(self) -> dict[str, Any]:
        return self.network.describe()

    def group_size(self, dataset: Dataset, device: str) -> int:
        return self.network.group_size(dataset, device)

    def train(
        self, dataset: Dataset, trials: Sequence[Trial], *, record: Collection[str], device: str
    ) -> Iterator[Outcome | Failure]:
        return self.network._train(dataset, trials, record, device, self.checkpoints, self.report)
