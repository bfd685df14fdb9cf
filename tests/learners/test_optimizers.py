"""Updates against torch.optim.SGD and against the definition of Muon."""

from typing import Any

import pytest
import torch

from memfluence.learners.nets.architectures import build
from memfluence.learners.nets.optimizers import Optimizer, _orthogonal
from memfluence.learners.recipes import Recipe

SHAPES = [(8, 3, 3, 3), (8, 8, 3, 3), (8,), (5, 8), ()]
CONVOLUTION = 1  # the only one of these that Muon takes: 8 input channels
# What the quintic polynomial leaves of singular values that are not tiny; it aims at about 1, not at 1.
LOWEST, HIGHEST = 0.65, 1.25


def recipe(**settings: Any) -> Recipe:
    return Recipe(epochs=1, batch=4, rate=0.1, **settings)


def drawn(seed: int, shapes: Any = SHAPES) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def updated(optimizer: Optimizer, steps: range, *, rate: float = 0.1, matrix_rate: float = 0.05) -> None:
    for step in steps:
        optimizer.update(drawn(step), torch.tensor(rate / (step + 1)), torch.tensor(matrix_rate / (step + 1)))


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd_is_torchs(momentum: float, nesterov: bool, weight_decay: float) -> None:
    settings = recipe(momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    ours, theirs = drawn(99), [torch.nn.Parameter(value) for value in drawn(99)]
    optimizer = Optimizer(ours, settings)
    torchs = torch.optim.SGD(theirs, lr=1.0, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    for step in range(10):
        rate = 0.3 / (step + 1)
        gradients = drawn(step)
        optimizer.update(gradients, torch.tensor(rate), torch.tensor(7.0))
        torchs.param_groups[0]["lr"] = rate
        for parameter, gradient in zip(theirs, gradients):
            parameter.grad = gradient.clone()
        torchs.step()
        for mine, other in zip(ours, theirs):
            torch.testing.assert_close(mine, other.detach(), rtol=1e-6, atol=1e-6)


def test_gradients_are_left_as_they_are() -> None:
    for settings in (recipe(weight_decay=0.1, nesterov=True), recipe(optimizer="muon", weight_decay=0.1)):
        gradients, optimizer = drawn(0), Optimizer(drawn(99), settings)
        for _ in range(2):
            optimizer.update(gradients, torch.tensor(0.1), torch.tensor(0.1))
        assert all(torch.equal(found, given) for found, given in zip(gradients, drawn(0)))


def test_gradients_in_bfloat16_are_taken_as_float32() -> None:
    rounded = [gradient.bfloat16() for gradient in drawn(0)]
    for name in ("sgd", "muon"):
        ours, reference = drawn(99), drawn(99)
        for parameters, gradients in ((ours, rounded), (reference, [one.float() for one in rounded])):
            Optimizer(parameters, recipe(optimizer=name)).update(gradients, torch.tensor(0.1), torch.tensor(0.1))
        assert all(torch.equal(found, expected) for found, expected in zip(ours, reference))
        assert ours[0].dtype == torch.float32


@pytest.mark.parametrize("shape", [(16, 64), (64, 16), (8, 72), (72, 8), (128, 72), (24, 48)])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_orthogonal_has_singular_values_near_one(shape: tuple[int, int], scale: float) -> None:
    matrix = scale * drawn(3, [shape])[0]
    found = _orthogonal([matrix])[0].float()
    assert found.shape == shape
    values = torch.linalg.svdvals(found)
    assert values.min() > LOWEST
    assert values.max() < HIGHEST
    # And the directions are the matrix's own: U' X V is about diagonal.
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    turned = left.mT @ found @ right.mT
    assert (turned - turned.diag().diag()).abs().max() < 0.05


def test_orthogonal_of_nothing_is_nothing() -> None:
    assert not _orthogonal([torch.zeros(8, 16)])[0].any()


def test_matrices_that_share_a_side_are_orthogonal_as_if_alone() -> None:
    """Zeros that fill up a shorter one add nothing to any product; bfloat16 is rounded in three steps."""
    matrices = drawn(5, [(16, 64), (16, 200), (40, 16), (16, 16)])
    for found, alone in zip(_orthogonal(matrices), [_orthogonal([one])[0] for one in matrices]):
        torch.testing.assert_close(found.float(), alone.float(), rtol=0, atol=3 * 2**-8)


def test_all_matrices_are_updated_as_if_alone() -> None:
    """Sides of 8, 16 and 32 in turn, so that groups are not neighbours; the norms of weights are each one's own."""
    shapes = [(8, 8, 3, 3), (16, 8, 1, 1), (32, 32, 3, 3), (8, 16, 3, 3), (32, 64, 1, 1), (16, 16, 3, 3)]
    together, alone = ([one.to(memory_format=torch.channels_last) for one in drawn(99, shapes)] for _ in range(2))
    settings, rates = recipe(optimizer="muon"), [torch.tensor(rate) for rate in (0.3, 0.2, 0.1)]
    optimizer, own = Optimizer(together, settings), [Optimizer([one], settings) for one in alone]
    for step, rate in enumerate(rates):
        gradients = drawn(step, shapes)
        optimizer.update(gradients, rate, rate)
        for one, gradient in zip(own, gradients):
            one.update([gradient], rate, rate)
    for found, expected in zip(together, alone):
        torch.testing.assert_close(found, expected, rtol=0, atol=3 * 2**-8 * 0.6)


def test_gradients_may_lie_in_memory_in_another_order() -> None:
    for name in ("sgd", "muon"):
        found, expected = drawn(99), drawn(99)
        for parameters, order in ((found, torch.channels_last), (expected, torch.contiguous_format)):
            gradients = [one.to(memory_format=order) if one.ndim == 4 else one for one in drawn(0)]
            Optimizer(parameters, recipe(optimizer=name)).update(gradients, torch.tensor(0.1), torch.tensor(0.1))
        assert all(torch.equal(one, other) for one, other in zip(found, expected))


def naive_muon(
    weight: torch.Tensor, gradients: list[torch.Tensor], rates: list[float], momentum: float
) -> torch.Tensor:
    """The definition, with the nearest orthogonal matrix from a singular value decomposition."""
    weight, buffer = weight.double(), torch.zeros_like(weight, dtype=torch.float64)
    for gradient, rate in zip(gradients, rates):
        buffer = momentum * buffer + gradient
        ahead = gradient + momentum * buffer
        left, _, right = torch.linalg.svd(ahead.flatten(1), full_matrices=False)
        weight = weight * len(weight) ** 0.5 / weight.norm() - rate * (left @ right).view(weight.shape)
    return weight


@pytest.mark.parametrize("shape", [(8, 16, 3, 3), (64, 8, 1, 1), (8, 64, 1, 1)])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_muon_is_about_its_definition(shape: tuple[int, ...], memory_format: torch.memory_format) -> None:
    weight = drawn(99, [shape, (3,)])
    others = [one.clone() for one in weight]
    weight[0] = weight[0].to(memory_format=memory_format)
    rates = [0.3, 0.2, 0.1]
    gradients = [drawn(step, [shape])[0] for step in range(3)]
    optimizer = Optimizer(weight, recipe(optimizer="muon", muon_momentum=0.6))
    for gradient, rate in zip(gradients, rates):
        optimizer.update(
            [gradient.to(memory_format=memory_format), torch.zeros(3)], torch.tensor(9.0), torch.tensor(rate)
        )
    expected = naive_muon(others[0], gradients, rates, 0.6)
    # Singular values of 0.65 to 1.25 instead of 1 in each of the steps, of which the rates are the sizes.
    off = torch.linalg.matrix_norm((weight[0] - expected).flatten(1), ord=2)
    assert off < 0.4 * sum(rates)
    assert torch.equal(weight[1], others[1])


def test_only_convolutions_with_more_than_four_input_channels_are_orthogonal() -> None:
    """A step of muon's rate 0 leaves its weights at the norm sqrt(n_out); a step of sgd's rate 0 leaves the others."""
    parameters, before = drawn(99), drawn(99)
    Optimizer(parameters, recipe(optimizer="muon")).update(drawn(0), torch.tensor(0.0), torch.tensor(0.0))
    changed = [not torch.equal(found, given) for found, given in zip(parameters, before)]
    assert [index for index, one in enumerate(changed) if one] == [CONVOLUTION]
    weight, given = parameters[CONVOLUTION], before[CONVOLUTION]
    torch.testing.assert_close(weight, given * (8**0.5 / given.norm()))

    parameters = [torch.zeros(6, n_in, 1, 1) for n_in in (1, 3, 4, 5)]
    assert Optimizer(parameters, recipe(optimizer="muon"))._is_matrix == [False, False, False, True]
    assert Optimizer(parameters, recipe())._is_matrix == [False] * 4


def test_resnet9_has_every_convolution_but_the_first_among_them() -> None:
    model = build("resnet9", 3, 10, width=8)
    chosen = Optimizer(list(model.parameters()), recipe(optimizer="muon"))._is_matrix
    names = [name for (name, _), one in zip(model.named_parameters(), chosen) if one]
    convolutions = [name for name, one in model.named_parameters() if one.ndim == 4]
    assert names == convolutions[1:]


def test_the_norm_of_muons_weights_does_not_drift() -> None:
    parameters = drawn(99)
    optimizer = Optimizer(parameters, recipe(optimizer="muon"))
    rate = 0.05
    for step in range(30):
        optimizer.update(drawn(step), torch.tensor(0.1), torch.tensor(rate))
        # sqrt(n_out) before the step, which itself has at most this norm.
        assert abs(parameters[CONVOLUTION].norm() - 8**0.5) < rate * HIGHEST * 8**0.5


def test_beside_muon_everything_else_is_sgd() -> None:
    mixed, plain = drawn(99), drawn(99)
    settings = {"weight_decay": 0.01, "nesterov": True}
    updated(Optimizer(mixed, recipe(optimizer="muon", **settings)), range(5))
    updated(Optimizer(plain, recipe(**settings)), range(5))
    same = [torch.equal(found, expected) for found, expected in zip(mixed, plain)]
    assert same == [index != CONVOLUTION for index in range(len(SHAPES))]


@pytest.mark.parametrize("name", ["sgd", "muon"])
def test_reset_forgets_every_momentum(name: str) -> None:
    used, fresh = drawn(99), drawn(99)
    optimizer = Optimizer(used, recipe(optimizer=name))
    updated(optimizer, range(3))
    optimizer.update([torch.full(shape, torch.nan) for shape in SHAPES], torch.tensor(0.1), torch.tensor(0.1))
    optimizer.reset()
    for parameter, value in zip(used, drawn(99)):
        parameter.copy_(value)
    updated(optimizer, range(4))
    updated(Optimizer(fresh, recipe(optimizer=name)), range(4))
    assert all(torch.equal(found, expected) for found, expected in zip(used, fresh))
    assert all(found.isfinite().all() for found in used)
