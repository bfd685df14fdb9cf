"""`MLP`: the built-in learner for small data, which trains many multilayer perceptrons at once."""

import math
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError
from memfluence.learners.outcomes import NOTHING_KEPT, needs_scores, outcome_from
from memfluence.learners.protocol import Representation
from memfluence.learners.settings import is_integer, is_real, require
from memfluence.records import GIVEN, Failure, Outcome, Trial

if TYPE_CHECKING:  # torch is loaded when a model is trained, not before
    import torch

    from memfluence.learners.nets.batched_mlp import BatchedMLP, Features, Scaling


@dataclass(frozen=True)
class MLP:
    """Multilayer perceptrons with ReLU, trained by SGD with momentum on the cross-entropy, at a constant rate.

    Inputs are arrays of numbers of any shape, flattened. Where the dataset knows the range of its values they are
    mapped from it to [0, 1]; elsewhere each model standardises every feature by the mean and the standard deviation of
    its own kept examples (a feature that is constant there is only centred), so that no model sees anything of an
    example that it leaves out.

    With `clip` the gradient of the loss on each example is clipped, and with `noise` the sum over a batch gets noise,
    as in DP-SGD (Abadi et al. 2016); momentum and weight decay go on with what comes out. This limits what a model can
    memorize. It guarantees no privacy: no privacy budget is accounted for, batches are not drawn as that would need,
    and a model may scale its inputs by its own examples. With `prune` a trained model loses its smallest weights and
    is not trained any further.

    Each model draws its initialisation, its batch order and its noise from streams of its own trial. So it is the same
    model, up to rounding, whatever the other models of its group are; and with the same `models_at_once` it has the
    same bits.
    """

    name: ClassVar[str] = "mlp"

    hidden: tuple[int, ...] = (128,)  # widths of the hidden layers; one of 128 fits all digits; () is a linear model
    epochs: int = 30  # kept digits are fitted to 99.9%, the regime in which memorization shows
    batch: int = 64  # small enough for some hundred steps on a few hundred examples; an epoch's last is smaller
    rate: float = 0.1  # the usual rate of plain SGD on scaled inputs
    momentum: float = 0.9  # the paper's, for all its models
    models_at_once: int = 0  # 0: 32 on a CPU (fewer waste calls, more leave the cache), 250 on a GPU (fills it)
    # Of products; parameters are float32 always. On a CPU float32 always; "auto" on a GPU is bfloat16 where it has it.
    precision: str = "auto"
    clip: float = 0.0  # 0: off; the largest L2 norm of one example's gradient, over all parameters of a model
    noise: float = 0.0  # 0: off; on the sum of a batch's clipped gradients, with the standard deviation noise * clip
    weight_decay: float = 0.0  # 0: off; added to the gradient as weight_decay * parameter, as in torch.optim.SGD
    prune: float = 0.0  # 0: off; the share of all weights of a model, those nearest to 0, that becomes 0 in the end
    _captured: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        hidden: Any = self.hidden
        if isinstance(hidden, list):
            object.__setattr__(self, "hidden", tuple(hidden))
        widths = isinstance(hidden, tuple | list) and all(is_integer(width, 1) for width in hidden)
        require(self, "hidden", widths, "the widths of the hidden layers, integers of at least 1, like 256,128")
        for setting in ("epochs", "batch"):
            require(self, setting, is_integer(getattr(self, setting), 1), "an integer of at least 1")
        require(self, "models_at_once", is_integer(self.models_at_once, 0), "an integer >= 0")
        require(self, "precision", self.precision in ("auto", "float32", "bfloat16"), "auto, float32 or bfloat16")
        require(self, "rate", is_real(self.rate) and 0 < self.rate < math.inf, "a number above 0")
        require(self, "momentum", is_real(self.momentum) and 0 <= self.momentum < 1, "a number in [0, 1)")
        for setting in ("clip", "noise", "weight_decay"):
            value = getattr(self, setting)
            require(self, setting, is_real(value) and 0 <= value < math.inf, "a number of at least 0")
        require(self, "prune", is_real(self.prune) and 0 <= self.prune < 1, "a number in [0, 1)")
        require(self, "noise", not self.noise or self.clip > 0, "0 without clip, which it is a multiple of")

    def describe(self) -> dict[str, Any]:
        """The settings that change outcomes; `models_at_once` changes rounding alone, and the run fixes it.

        Settings added later (`clip` and what follows) are part of it only when they are on, so that older runs can be
        resumed.
        """
        later = ("clip", "noise", "weight_decay", "prune")
        left_out = {"models_at_once", *(name for name in later if not getattr(self, name))}
        settings = {one.name: getattr(self, one.name) for one in fields(self) if one.init and one.name not in left_out}
        return {"name": self.name, "settings": settings | {"hidden": list(self.hidden)}}

    @property
    def described_before(self) -> dict[str, Any]:
        return {"settings": {"precision": "float32"}}

    def __reduce__(self) -> tuple[Any, ...]:
        return MLP, tuple(getattr(self, one.name) for one in fields(self) if one.init)

    def group_size(self, dataset: Dataset, device: str) -> int:
        if self.models_at_once:
            return self.models_at_once
        if device == "auto":
            from memfluence.learners.nets.device import torch_device

            device = torch_device(device).type
        return 32 if device == "cpu" else 250

    def train(
        self, dataset: Dataset, trials: Sequence[Trial], *, record: Collection[str], device: str
    ) -> Iterator[Outcome | Failure]:
        """Train all trials at once, on a CPU with one thread; "auto" is a GPU if there is one."""
        import torch

        from memfluence.learners.nets.device import one_thread, torch_device

        chosen = torch_device(device)
        try:
            with one_thread(), torch.inference_mode():
                captured = self._can_be_captured(dataset, trials, chosen)
                train = self._captured_results if captured else self._results
                results = train(dataset, trials, record, chosen)
        except torch.OutOfMemoryError as error:
            raise LearnerError(
                f"the GPU's memory does not hold {len(trials)} models at once;"
                f" train fewer, for example with `settings={{'models_at_once': {max(1, len(trials) // 2)}}}`."
            ) from error
        yield from results

    def _can_be_captured(self, dataset: Dataset, trials: Sequence[Trial], device: "torch.device") -> bool:
        """Whether the group suits the GPU's fast path: bfloat16, one scale for all, one subset size, no limits."""
        import torch

        if device.type != "cuda" or dataset.value_range is None or self.precision == "float32":
            return False
        if self.clip or self.weight_decay or self.prune:
            return False
        sizes = {len(trial.kept) for trial in trials}
        return len(sizes) == 1 and 0 not in sizes and torch.cuda.is_bf16_supported()

    def _captured_results(
        self, dataset: Dataset, trials: Sequence[Trial], record: Collection[str], device: "torch.device"
    ) -> list[Outcome | Failure]:
        from memfluence.learners.nets.captured_mlp import CapturedTraining
        from memfluence.learners.nets.device import device_name

        started = time.perf_counter()
        key = (dataset.fingerprint, len(trials), len(trials[0].kept), str(device))
        if key not in self._captured:
            self._captured.clear()
            self._captured[key] = CapturedTraining(self, dataset, len(trials), len(trials[0].kept), device)
        training = self._captured[key]
        training.train(trials)
        finite = training.finite()
        splits = (training.train_inputs, dataset.y_train), (training.test_inputs, dataset.y_test)
        extras: dict[str, np.ndarray] = {}  # (models, n) each
        if needs_scores(record):
            of_train, of_test = (training.scores(inputs) for inputs, _ in splits)  # (models, n, n_classes) each
        elif GIVEN in record:
            found = [training.codes_and_margins(*split) for split in splits]
            of_train, of_test = (codes for codes, _ in found)  # (models, n) each
            extras = {"train_margin": found[0][1], "test_margin": found[1][1]}
        else:
            of_train, of_test = (training.codes(inputs) for inputs, _ in splits)
        seconds, name = (time.perf_counter() - started) / len(trials), device_name(device)
        return [
            outcome_from(
                trial,
                dataset,
                of_train[k],
                of_test[k],
                record=record,
                extras={column: values[k] for column, values in extras.items()},
                seconds=seconds,
                device=name,
            )
            if finite[k]
            else self._diverged(trial)
            for k, trial in enumerate(trials)
        ]

    def _diverged(self, trial: Trial) -> Failure:
        return Failure(
            trial.number,
            f"the model diverged: its weights or scores are not finite after training at the rate {self.rate:g};"
            f" lower it, for example with `settings={{'rate': {self.rate / 10:g}}}`.",
        )

    def _results(
        self, dataset: Dataset, trials: Sequence[Trial], record: Collection[str], device: "torch.device"
    ) -> list[Outcome | Failure]:
        from memfluence.learners.nets.batched_mlp import load_features
        from memfluence.learners.nets.device import device_name

        started = time.perf_counter()
        features = load_features(dataset, device)
        # The largest subset first, as `minibatches` wants them; those that keep nothing are left out.
        runnable = sorted((trial for trial in trials if len(trial.kept)), key=lambda trial: -len(trial.kept))
        results: dict[int, Outcome | Failure] = {}
        if runnable:
            scaling = features.scaling([trial.kept for trial in runnable])
            models = self._trained(dataset, runnable, features, scaling, device)
            trained_seconds = (time.perf_counter() - started) / len(runnable)
            finite, name = models.finite(), device_name(device)
        for k, trial in enumerate(runnable):
            started = time.perf_counter()
            train_scores = models.scores(k, features.blocks(features.train, k, scaling))  # (n_train, n_classes)
            test_scores = models.scores(k, features.blocks(features.test, k, scaling))  # (n_test, n_classes)
            if not (finite[k] and np.isfinite(train_scores).all() and np.isfinite(test_scores).all()):
                results[trial.number] = self._diverged(trial)
                continue
            seconds = trained_seconds + time.perf_counter() - started
            results[trial.number] = outcome_from(
                trial, dataset, train_scores, test_scores, record=record, seconds=seconds, device=name
            )
        return [results.get(trial.number) or Failure(trial.number, NOTHING_KEPT) for trial in trials]

    def represent(self, dataset: Dataset, trial: Trial, *, device: str) -> Representation:
        """The last hidden layer of the trial's model, trained on its own."""
        import torch

        from memfluence.learners.nets.batched_mlp import load_features
        from memfluence.learners.nets.device import device_name, one_thread, torch_device

        if not self.hidden:
            raise LearnerError(
                "an mlp without hidden layers has no representation; give it one, as `settings={'hidden': 128}`."
            )
        started, chosen = time.perf_counter(), torch_device(device)
        with one_thread(), torch.inference_mode():
            features = load_features(dataset, chosen)
            scaling = features.scaling([trial.kept])
            models = self._trained(dataset, [trial], features, scaling, chosen)
            splits = (features.train, features.test)
            scores = [models.scores(0, features.blocks(split, 0, scaling)) for split in splits]
            found = [models.representations(0, features.blocks(split, 0, scaling)) for split in splits]
        if not all(np.isfinite(values).all() for values in (*scores, *found)):
            raise LearnerError(self._diverged(trial).message)
        seconds, name = time.perf_counter() - started, device_name(chosen)
        outcome = outcome_from(trial, dataset, *scores, record=(), seconds=seconds, device=name)
        return Representation(outcome, *found)

    def _trained(
        self,
        dataset: Dataset,
        trials: Sequence[Trial],
        features: "Features",
        scaling: "Scaling | None",
        device: "torch.device",
    ) -> "BatchedMLP":
        from memfluence.learners.nets.batched_mlp import BatchedMLP, Clipping, minibatches

        noises = [trial.generator("learner") for trial in trials]
        clipping = Clipping(self.clip, self.noise, noises) if self.clip else None
        widths = [features.train.shape[1], *self.hidden, dataset.n_classes]
        models = BatchedMLP(widths, [trial.generator("init") for trial in trials], device, clipping)
        kept = [trial.kept for trial in trials]
        orders = [trial.generator("order") for trial in trials]
        batch = min(self.batch, len(kept[0]))  # the largest subset; no memory for examples that there are not
        steps = minibatches(kept, dataset.y_train, orders, batch=batch, epochs=self.epochs, device=device)
        for step in steps:
            inputs = features.batch(step.rows, step.active, scaling)  # (active, width, n_features)
            models.step(
                inputs, step.labels, step.share, rate=self.rate, momentum=self.momentum, weight_decay=self.weight_decay
            )
        if self.prune:
            models.prune(self.prune)
        return models
