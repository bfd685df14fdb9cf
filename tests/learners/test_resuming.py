"""Within a trial: what was saved at a step and restored elsewhere ends in the bits of an undisturbed training."""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from learner_worlds import EVERYTHING, clouds, outcomes, pictures, random_trials, same_bits

from memfluence.learners import Checkpoints, Learner, Resumable, resolve
from memfluence.learners.nets import watch as watch_module
from memfluence.learners.nets.trainer import Trainer
from memfluence.learners.nets.watch import HeldInterrupts, Watch
from memfluence.learners.network import Network
from memfluence.learners.recipes import Recipe
from memfluence.learners.resolve import SourcedLearner
from memfluence.records import Outcome, PartWay, Trial

RECIPE = Recipe(epochs=5, batch=9, rate=0.05, weight_decay=1e-3, crop_padding=2, flip=True)
STEPS = 10  # 20 kept pictures make 2 batches of 9 an epoch
SETTINGS: dict[str, dict[str, Any]] = {
    "momentum": {},
    "nesterov": {"nesterov": True},
    "muon": {"optimizer": "muon"},
    "smaller batches at the end": {"partial_batches": True, "epochs": 4},
    "scaled by its own examples": {"normalization": "subset"},
}


class Memory:
    """Checkpoints in memory; holds all that was ever saved."""

    def __init__(self, every: float = 0.0) -> None:
        self.every = every
        self.saved: list[tuple[int, float, bytes]] = []
        self.there: dict[int, tuple[Mapping[str, str], bytes]] = {}

    def load(self, trial: int, made_with: Mapping[str, str]) -> bytes | None:
        with_, content = self.there.get(trial, (made_with, None))
        assert with_ == made_with
        return content

    def save(self, trial: int, made_with: Mapping[str, str], content: bytes, fraction: float) -> None:
        self.there[trial] = dict(made_with), content
        self.saved.append((trial, fraction, content))

    def fractions(self) -> list[float]:
        return [fraction for _, fraction, _ in self.saved]


class Stopping(KeyboardInterrupt):
    """As engines stop their workers."""


def small(**settings: Any) -> Network:
    return Network("small", "resnet9", replace(RECIPE, **settings), {"width": 4})


@pytest.fixture
def trial() -> Trial:
    return random_trials([20], n_train=30)[0]


@pytest.fixture
def at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses after each step, reports at each pause, and no checkpoint is too dear."""
    monkeypatch.setattr(watch_module, "_SECONDS_BETWEEN_PAUSES", 0.0)
    monkeypatch.setattr(watch_module, "_SECONDS_BETWEEN_REPORTS", 0.0)
    monkeypatch.setattr(watch_module, "_LARGEST_SHARE", float("inf"))


def trained(learner: Learner, trial: Trial, steps: list[int] | None = None) -> Outcome:
    """The outcome of one trial; `steps` is given the widths of the steps that were made for it."""
    made: list[int] = [] if steps is None else steps
    step = Trainer._step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_step", lambda trainer, width: (made.append(width), step(trainer, width))[1])
        (found,) = outcomes(learner, pictures(), [trial])
    return found


def stop_at(fraction: float) -> Callable[[PartWay], None]:
    def report(part: PartWay) -> None:
        if part.fraction >= fraction:
            raise Stopping

    return report


def nothing(part: PartWay) -> None:
    pass


@pytest.mark.usefixtures("at_every_step")
@pytest.mark.parametrize("name", SETTINGS)
def test_from_every_step_on_the_result_is_the_same(name: str, trial: Trial) -> None:
    learner, checkpoints = small(**SETTINGS[name]), Memory()
    all_steps: list[int] = []
    expected = trained(learner, trial, all_steps)
    assert same_bits(trained(learner.resuming(checkpoints, nothing), trial), expected)
    assert checkpoints.fractions() == [(step + 1) / len(all_steps) for step in range(len(all_steps))]
    saved = [content for _, _, content in checkpoints.saved]
    for done, content in enumerate(saved, start=1):
        made_with, _ = checkpoints.there[0]
        again = Memory(every=1e9)
        again.save(0, made_with, content, done / len(all_steps))
        fresh, steps = small(**SETTINGS[name]).resuming(again, nothing), list[int]()
        assert same_bits(trained(fresh, trial, steps), expected)
        assert steps == all_steps[done:]


@pytest.mark.usefixtures("at_every_step")
def test_a_used_trainer_takes_a_checkpoint_in_place(trial: Trial) -> None:
    """As a captured step needs it: the tensors stay the same ones."""
    learner, checkpoints = small(), Memory(every=1e9)
    expected = trained(learner, trial)
    with pytest.raises(Stopping):
        trained(learner.resuming(checkpoints, stop_at(0.6)), trial)
    trained(learner, replace(trial, number=7))  # another model in its place
    (trainer,) = learner._trainers.values()
    before = [tensor.data_ptr() for tensor in trainer._state()]
    assert same_bits(trained(learner.resuming(checkpoints, nothing), trial), expected)
    assert [tensor.data_ptr() for tensor in trainer._state()] == before
    assert [one is trainer for one in learner._trainers.values()] == [True]


def test_the_state_is_all_that_a_step_changes(trial: Trial) -> None:
    """Every tensor that the trainer holds is in the state, or is as it was before the step."""
    for settings in SETTINGS.values():
        learner = small(**settings)
        trained(learner, trial)
        (trainer,) = learner._trainers.values()
        known = {tensor.data_ptr() for tensor in trainer._state()}
        holders = (trainer, trainer._model, trainer._optimizer, trainer._data)
        held = [value for holder in holders for value in vars(holder).values()]
        held += list(trainer._model.state_dict().values())
        flat = [one for value in held for one in (value if isinstance(value, list) else [value])]
        tensors = [one for one in flat if isinstance(one, torch.Tensor)]
        trainer._position.zero_()
        trainer._model.train()
        before = [tensor.clone() for tensor in tensors]
        trainer._step(9)
        changed = [tensor for tensor, old in zip(tensors, before) if not torch.equal(tensor, old)]
        assert len(changed) > 20
        assert {tensor.data_ptr() for tensor in changed} <= known


@pytest.mark.usefixtures("at_every_step")
def test_an_engine_that_stops_and_one_that_never_saved(trial: Trial) -> None:
    expected = trained(small(), trial)
    checkpoints, steps = Memory(every=1e9), list[int]()
    with pytest.raises(Stopping):
        trained(small().resuming(checkpoints, stop_at(0.4)), trial)
    assert checkpoints.fractions() == [0.4]
    assert same_bits(trained(small().resuming(checkpoints, nothing), trial, steps), expected)
    assert len(steps) == STEPS - 4
    with pytest.raises(Stopping):
        trained(small().resuming(None, stop_at(0.4)), trial)


def interrupt_in_step(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A Ctrl-C that comes in the middle of an update, when half of the state is of the next step."""
    decay, calls = torch._foreach_mul_, iter(range(1, 1000))

    def interrupted(tensors: Any, factor: Any) -> None:
        decay(tensors, factor)
        if next(calls) == 2 * number - 1:  # of a step's two uses the first: the momenta are decayed, nothing else
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)  # impatiently

    monkeypatch.setattr(torch, "_foreach_mul_", interrupted)


def test_ctrl_c_within_a_step_saves_after_it(monkeypatch: pytest.MonkeyPatch, trial: Trial) -> None:
    expected = trained(small(), trial)
    checkpoints, steps = Memory(every=1e9), list[int]()
    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        interrupt_in_step(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            list(small().resuming(checkpoints, nothing).train(pictures(), [trial], record=(), device="cpu"))
    assert checkpoints.fractions() == [4 / STEPS]
    assert signal.getsignal(signal.SIGINT) is before
    assert same_bits(trained(small().resuming(checkpoints, nothing), trial, steps), expected)
    assert len(steps) == STEPS - 4


def test_ctrl_c_in_the_last_step_leaves_nothing_to_train(monkeypatch: pytest.MonkeyPatch, trial: Trial) -> None:
    checkpoints, steps = Memory(every=1e9), list[int]()
    with monkeypatch.context() as patch:
        interrupt_in_step(patch, STEPS)
        with pytest.raises(KeyboardInterrupt):
            list(small().resuming(checkpoints, nothing).train(pictures(), [trial], record=(), device="cpu"))
    assert checkpoints.fractions() == [1.0]
    assert same_bits(trained(small().resuming(checkpoints, nothing), trial, steps), trained(small(), trial))
    assert steps == []


def test_ctrl_c_while_it_is_evaluated_keeps_the_training(monkeypatch: pytest.MonkeyPatch, trial: Trial) -> None:
    checkpoints, steps = Memory(every=1e9), list[int]()

    def interrupted(trainer: Trainer) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    for kept in (checkpoints, None):
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "scores", interrupted)
            with pytest.raises(KeyboardInterrupt):
                list(small().resuming(kept, nothing).train(pictures(), [trial], record=(), device="cpu"))
    assert checkpoints.fractions() == [1.0]
    assert signal.getsignal(signal.SIGINT) is before
    assert same_bits(trained(small().resuming(checkpoints, nothing), trial, steps), trained(small(), trial))
    assert steps == []


@pytest.mark.parametrize(("seconds", "fractions"), [(59.0, []), (61.0, [1.0])])
def test_a_long_training_is_kept_before_it_is_evaluated(
    monkeypatch: pytest.MonkeyPatch, seconds: float, fractions: list[float]
) -> None:
    now = 0.0
    monkeypatch.setattr(watch_module.time, "monotonic", lambda: now)
    checkpoints = Memory(every=60.0)
    with Watch(0, checkpoints).over([torch.zeros(3)], 10, torch.device("cpu")):
        now += seconds
    assert checkpoints.fractions() == fractions


def test_quick_trials_write_nothing_and_say_nothing(trial: Trial) -> None:
    checkpoints, said = Memory(every=60), list[PartWay]()
    trained(small().resuming(checkpoints, said.append), trial)
    assert (checkpoints.saved, said) == ([], [])


@pytest.mark.usefixtures("at_every_step")
def test_it_says_how_far_it_is_and_where_it_began(trial: Trial) -> None:
    checkpoints, said = Memory(every=1e9), list[PartWay]()
    with pytest.raises(Stopping):
        trained(small().resuming(checkpoints, stop_at(0.7)), trial)
    trained(small().resuming(checkpoints, said.append), trial)
    assert said == [PartWay(0, fraction, 0.7) for fraction in (0.7, 0.8, 0.9, 1.0)]


def test_seconds_are_those_of_both_parts(monkeypatch: pytest.MonkeyPatch, trial: Trial) -> None:
    clock = iter(np.arange(0.0, 1e6, 100.0))
    monkeypatch.setattr(watch_module.time, "monotonic", lambda: float(next(clock)))
    checkpoints = Memory(every=1e9)
    with pytest.raises(Stopping):
        trained(small().resuming(checkpoints, stop_at(0.4)), trial)
    monkeypatch.undo()
    assert trained(small().resuming(checkpoints, nothing), trial).seconds > 100


@pytest.mark.parametrize("pace", [0.001, 0.1, 3.0])
def test_pauses_come_by_the_clock(monkeypatch: pytest.MonkeyPatch, pace: float) -> None:
    """Steps of `pace` seconds: pauses are half a second apart once they are measured, one step if that is longer."""
    now = 0.0
    monkeypatch.setattr(watch_module.time, "monotonic", lambda: now)
    checkpoints, said = Memory(every=60.0), list[PartWay]()
    watch, paused, steps = Watch(0, checkpoints, said.append), list[int](), int(600 / pace)
    pause = watch._pause
    monkeypatch.setattr(watch, "_pause", lambda step: (paused.append(step), pause(step))[1])
    with watch.over([torch.zeros(3)], steps, torch.device("cpu")) as first:
        for step in range(first, steps):
            now += pace
            watch.after(step + 1)
    gaps = np.diff(paused)[10:]
    expected = max(1, round(0.5 / pace))
    assert set(gaps.tolist()) <= {expected - 1, expected, expected + 1}
    assert 9 <= len(checkpoints.saved) <= 10
    assert 95 <= len(said) <= 120


def test_dear_checkpoints_are_written_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(watch_module.time, "monotonic", lambda: now)
    checkpoints = Memory(every=1.0)
    save = checkpoints.save

    def dear(*arguments: Any) -> None:
        nonlocal now
        now += 4.0
        save(*arguments)

    monkeypatch.setattr(checkpoints, "save", dear)
    watch = Watch(0, checkpoints)
    with watch.over([torch.zeros(3)], 1000, torch.device("cpu")):
        for step in range(1000):
            now += 1.0
            watch.after(step + 1)
    assert len(checkpoints.saved) == 5  # each takes 4 seconds: 2% of 200


def test_held_interrupts_act_once_the_block_is_left() -> None:
    came: list[bool] = []

    def block() -> None:
        with HeldInterrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGINT)
            came.append(interrupts.came)

    with pytest.raises(KeyboardInterrupt):
        block()
    assert came == [True]


def test_a_handler_that_puts_another_in_its_place_is_left_alone() -> None:
    """As a worker's does, which hears its first SIGTERM alone."""

    def once(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Stopping

    def block() -> None:
        with HeldInterrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGTERM)
            interrupts.act()

    before = signal.signal(signal.SIGTERM, once)
    try:
        with pytest.raises(Stopping):
            block()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_who_can_resume() -> None:
    checkpoints: Checkpoints = Memory()
    network = small()
    assert isinstance(network, Resumable)
    assert not isinstance(resolve("mlp"), Resumable)
    resuming = network.resuming(checkpoints, nothing)
    assert isinstance(resuming, Learner)
    assert (resuming.name, resuming.describe()) == (network.name, network.describe())
    assert resuming.group_size(pictures(), "cpu") == 1


@pytest.mark.usefixtures("at_every_step")
def test_a_learner_from_a_file_resumes_as_what_it_is(trial: Trial) -> None:
    checkpoints = Memory(every=1e9)
    sourced = SourcedLearner(small(), "a.py", "network", {}, "0" * 64)
    with pytest.raises(Stopping):
        trained(sourced.resuming(checkpoints, stop_at(0.5)), trial)
    resuming, steps = sourced.resuming(checkpoints, nothing), list[int]()
    assert resuming.describe() == sourced.describe()
    assert same_bits(trained(resuming, trial, steps), trained(small(), trial))
    assert len(steps) == STEPS // 2
    other = SourcedLearner(resolve("mlp", {"epochs": "1"}), "a.py", "mlp", {}, "0" * 64)
    assert other.resuming(checkpoints, nothing) is other
    assert outcomes(other, clouds(), random_trials([28]), EVERYTHING)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.usefixtures("at_every_step")
@pytest.mark.parametrize("name", SETTINGS)
def test_a_gpu_goes_on_with_the_same_bits(name: str, trial: Trial) -> None:
    """In a process that has captured its steps anew, and in one that has trained another model since."""

    def on_gpu(learner: Learner, trial: Trial) -> Any:
        (found,) = learner.train(pictures(), [trial], record=EVERYTHING, device="cuda")
        return found

    learner, checkpoints = small(**SETTINGS[name]), Memory(every=1e9)
    expected = on_gpu(learner, trial)
    with pytest.raises(Stopping):
        on_gpu(learner.resuming(checkpoints, stop_at(0.5)), trial)
    on_gpu(learner, replace(trial, number=7))
    assert same_bits(on_gpu(learner.resuming(checkpoints, nothing), trial), expected)
    assert same_bits(on_gpu(small(**SETTINGS[name]).resuming(checkpoints, nothing), trial), expected)
