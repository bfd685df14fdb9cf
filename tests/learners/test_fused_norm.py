"""Pooling, normalization and CELU in Triton against the same in torch.

On a GPU where there is one; otherwise through Triton's interpreter, on a CPU, with TRITON_INTERPRET=1; otherwise only
what needs no kernel.
"""

import importlib.util
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from memfluence.learners.nets.kernels import fused_norm
from memfluence.learners.nets.kernels.fused_norm import available, in_torch, norm_relu, pooled_norm_celu

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
HAS_TRITON = importlib.util.find_spec("triton") is not None
HAS_GPU = torch.cuda.is_available() and not INTERPRETED
needs_kernels = pytest.mark.skipif(
    not (HAS_TRITON and (HAS_GPU or INTERPRETED)), reason="needs Triton with a GPU or with TRITON_INTERPRET=1"
)
needs_gpu = pytest.mark.skipif(not (HAS_TRITON and HAS_GPU), reason="needs a GPU with Triton")
DEVICE = torch.device("cuda" if HAS_GPU else "cpu")
# Triton's interpreter has no bfloat16.
TYPES = [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=needs_gpu)]
MOMENTUM, EPS, ALPHA = 0.4, 1e-5, 0.3

# Maps and gradients are of the order of 1 (up to about 5). Float32: sums of up to some thousand terms in another order.
# Half precision: the kernels round each result once and torch rounds between operations, so they are compared with
# torch in float32 on the same rounded inputs: half a unit in the last place, 2**-11 or 2**-8 of 1, twice that allowed.
TOLERANCE = {
    torch.float32: {"rtol": 2e-5, "atol": 2e-5},
    torch.float16: {"rtol": 2**-10, "atol": 2**-10},
    torch.bfloat16: {"rtol": 2**-7, "atol": 2**-7},
}
# Sums over all positions are float32 whatever the maps are, and of the order of the square root of their number.
SUMS = {"rtol": 1e-4, "atol": 1e-3}


@pytest.fixture(autouse=True)
def interpreter_of_any_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of loops, for which Triton 3.6 calls int() on arrays of one element: numpy 2.4 refuses."""
    if not (INTERPRETED and HAS_TRITON):
        return
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patched)


class World(NamedTuple):
    """What goes in; `dy` is the gradient of the result."""

    x: Tensor
    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor
    residual: Tensor | None
    dy: Tensor

    def to(self, dtype: torch.dtype) -> "World":
        """The same values with other maps."""
        residual = None if self.residual is None else self.residual.to(dtype)
        return self._replace(x=self.x.to(dtype), residual=residual, dy=self.dy.to(dtype))


def doubled(given: World) -> World:
    """All of it in float64."""
    return World(*(None if one is None else one.double() for one in given))  # type: ignore[arg-type]


def last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def world(
    dtype: torch.dtype, n: int, c: int, h: int, w: int, *, pool: bool, residual: bool, mean: float = 0.5
) -> World:
    generator = torch.Generator().manual_seed(n + 10 * c + 100 * h + 1000 * w)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    out = (n, c, h // 2, w // 2) if pool else (n, c, h, w)
    found = World(
        last(2 * draw(n, c, h, w) + mean),
        1 + 0.3 * draw(c),
        0.3 * draw(c),
        draw(c),
        draw(c).abs() + 0.5,
        last(draw(*out)) if residual else None,
        last(draw(*out)),
    )
    on_device = World(*(None if one is None else one.to(DEVICE) for one in found))  # type: ignore[arg-type]
    return on_device.to(dtype)


def results(operation: Callable[..., Tensor], given: World, *, pool: bool, alpha: float = ALPHA) -> dict[str, Tensor]:
    """The result, all gradients and the statistics after it."""
    x, weight, bias = (one.clone().requires_grad_() for one in (given.x, given.weight, given.bias))
    residual = None if given.residual is None else given.residual.clone().requires_grad_()
    mean, var = given.running_mean.clone(), given.running_var.clone()
    y = operation(x, weight, bias, mean, var, MOMENTUM, EPS, alpha, pool, residual)
    y.backward(given.dy)
    found = {"y": y.detach(), "dx": x.grad, "dweight": weight.grad, "dbias": bias.grad, "mean": mean, "var": var}
    if residual is not None:
        found["dresidual"] = residual.grad
    return {name: one for name, one in found.items() if one is not None}


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], dtype: torch.dtype) -> None:
    assert found.keys() == expected.keys()
    for name, value in found.items():
        is_map = name in {"y", "dx", "dresidual"}
        assert value.dtype == (dtype if is_map else torch.float32), name
        tolerance = TOLERANCE[dtype] if is_map else SUMS if name in {"dweight", "dbias"} else TOLERANCE[torch.float32]
        torch.testing.assert_close(
            value.float(), expected[name].float(), **tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


SHAPES = [(3, 16, 6, 8), (3, 24, 5, 7), (2, 136, 4, 5), (1, 8, 4, 6)]  # odd sides, and channels that fill no block


@needs_kernels
@pytest.mark.parametrize("residual", [False, True], ids=["alone", "residual"])
@pytest.mark.parametrize("pool", [False, True], ids=["whole", "pooled"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_kernels_compute_what_torch_does(
    dtype: torch.dtype, shape: tuple[int, int, int, int], pool: bool, residual: bool
) -> None:
    given = world(dtype, *shape, pool=pool, residual=residual)
    assert available(given.x)
    found = results(pooled_norm_celu, given, pool=pool)
    assert_close(found, results(in_torch, given.to(torch.float32), pool=pool), dtype)
    assert found["y"].is_contiguous(memory_format=torch.channels_last)
    assert found["dx"].is_contiguous(memory_format=torch.channels_last)


@needs_kernels
@pytest.mark.parametrize("residual", [False, True], ids=["alone", "residual"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_an_alpha_of_zero_is_relu_of_the_sum(
    dtype: torch.dtype, shape: tuple[int, int, int, int], residual: bool
) -> None:
    given = world(dtype, *shape, pool=False, residual=residual)
    found = results(pooled_norm_celu, given, pool=False, alpha=0.0)
    assert_close(found, results(in_torch, given.to(torch.float32), pool=False, alpha=0.0), dtype)
    if residual:  # of what is 0 torch gives no gradient, and neither do the kernels
        torch.testing.assert_close(found["dresidual"], torch.where(found["y"] > 0, given.dy, 0), rtol=0, atol=0)


def test_norm_relu_is_what_torch_does() -> None:
    given = world(torch.float32, *SHAPES[0], pool=False, residual=True)
    fused, plain = (nn.BatchNorm2d(given.x.shape[1], EPS, MOMENTUM).to(DEVICE) for _ in range(2))
    for norm in (fused, plain):
        norm.load_state_dict({"weight": given.weight, "bias": given.bias}, strict=False)
    assert given.residual is not None
    found = norm_relu(given.x, fused, given.residual)
    torch.testing.assert_close(found, (plain(given.x) + given.residual).relu(), rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(fused.running_var, plain.running_var)


@needs_kernels
@pytest.mark.parametrize("pool", [False, True], ids=["whole", "pooled"])
def test_every_program_takes_its_rows_more_than_once(pool: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few programs each strides over the rows, as it does on the large maps of a real training."""
    from memfluence.learners.nets.kernels import norm_kernels

    for kernel in ("POOLING", "SUMMING", "SUMMING_GRADIENTS", "NORMALIZING", "DIFFERENTIATING"):
        monkeypatch.setattr(norm_kernels, f"_{kernel}", 3)
    monkeypatch.setattr(norm_kernels, "_BLOCK", 256)  # 16 rows of 280 or 1190
    monkeypatch.setattr(norm_kernels, "_BLOCK_TO_MAP", 512)
    given = world(torch.float32, 5, 16, 17, 14, pool=pool, residual=True)
    assert_close(results(pooled_norm_celu, given, pool=pool), results(in_torch, given, pool=pool), torch.float32)


@needs_kernels
def test_many_partial_sums_are_all_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from memfluence.learners.nets.kernels import norm_kernels

    monkeypatch.setattr(norm_kernels, "_BLOCK", 64)  # 4 rows of 450, so 29 or 57 partial sums
    monkeypatch.setattr(norm_kernels, "_PARTS_TO_ADD", 2)
    given = world(torch.float32, 5, 16, 9, 10, pool=False, residual=False)
    assert_close(results(pooled_norm_celu, given, pool=False), results(in_torch, given, pool=False), torch.float32)


@needs_kernels
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_first_of_equal_values_wins_as_in_torch(dtype: torch.dtype) -> None:
    given = world(dtype, 3, 16, 6, 6, pool=True, residual=False)
    given = given._replace(x=last(given.x.round()))  # some ten values: ties in many windows
    assert_close(
        results(pooled_norm_celu, given, pool=True), results(in_torch, given.to(torch.float32), pool=True), dtype
    )


@needs_kernels
def test_a_mean_far_from_zero_costs_no_precision() -> None:
    """Mean 1000 and deviation 2: squares in float32 would leave nothing of the variance's last three digits."""
    given = world(torch.float32, 3, 16, 8, 8, pool=False, residual=False, mean=1000.0)
    exact = results(in_torch, doubled(given), pool=False)
    found = results(pooled_norm_celu, given, pool=False)
    torch.testing.assert_close(found["y"].double(), exact["y"], rtol=1e-4, atol=1e-4)  # x - mean has 1e-4 left
    torch.testing.assert_close(found["var"].double(), exact["var"], rtol=1e-5, atol=0)


@needs_kernels
def test_a_constant_channel_has_no_variance() -> None:
    """Float32 rounding of a variance would count beside eps, so torch in float64 is the twin."""
    given = world(torch.float32, 3, 16, 6, 6, pool=True, residual=False)
    given.x[:, 5] = 0.7
    found, exact = results(pooled_norm_celu, given, pool=True), results(in_torch, doubled(given), pool=True)
    torch.testing.assert_close(found["y"].double(), exact["y"], rtol=1e-5, atol=1e-5)
    scale = EPS**-0.5  # of the gradient there
    torch.testing.assert_close(found["dx"].double(), exact["dx"], rtol=1e-5, atol=1e-5 * scale)
    torch.testing.assert_close(found["var"][5], (1 - MOMENTUM) * given.running_var[5])


@needs_kernels
@pytest.mark.parametrize("pool", [False, True], ids=["whole", "pooled"])
def test_same_input_same_bits(pool: bool) -> None:
    given = world(torch.float16, 3, 24, 6, 8, pool=pool, residual=True)
    first, again = (results(pooled_norm_celu, given, pool=pool) for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)


@needs_kernels
def test_a_gradient_and_a_residual_of_another_layout_are_taken() -> None:
    given = world(torch.float32, 3, 16, 6, 8, pool=True, residual=True)
    assert given.residual is not None
    other = given._replace(residual=given.residual.contiguous(), dy=given.dy.contiguous())
    first, second = (results(pooled_norm_celu, one, pool=True) for one in (given, other))
    assert all(torch.equal(first[name], second[name]) for name in first)


@needs_kernels
@pytest.mark.parametrize(
    ("pool", "alpha"), [(False, ALPHA), (True, ALPHA), (False, 0.0)], ids=["whole", "pooled", "relu"]
)
def test_torch_finds_the_operators_well_formed(pool: bool, alpha: float) -> None:
    """Schemas, shapes without values, and gradients under tracing, as `torch.library.opcheck` tries them."""
    given = world(torch.float32, 2, 8, 5, 4, pool=pool, residual=True)
    measured = (given.x, given.running_mean, given.running_var, MOMENTUM, EPS, pool)
    torch.library.opcheck(fused_norm._measure, measured)
    pooled, winner, moments = fused_norm._measure(*measured)
    x, weight, bias = (one.clone().requires_grad_() for one in (given.x, given.weight, given.bias))
    torch.library.opcheck(
        fused_norm._normalize, (x, weight, bias, pooled, winner, moments, given.residual, alpha, pool)
    )
    values, y = pooled if pool else given.x, None if alpha else given.dy.relu()
    torch.library.opcheck(
        fused_norm._differentiate,
        (given.dy, values, winner, moments, given.weight, given.bias, y, alpha, 5, 4, pool),
    )


class Network(nn.Module):
    """A pooled layer and a residual one around a convolution, as in resnet9."""

    def __init__(self, operation: Callable[..., Tensor]) -> None:
        super().__init__()
        self.operation = operation
        self.first, self.second = (nn.Conv2d(n_in, 16, 3, padding=1, bias=False) for n_in in (3, 16))
        self.norms = nn.ModuleList(nn.BatchNorm2d(16, momentum=MOMENTUM) for _ in range(2))

    def norm(self, number: int, x: Tensor, pool: bool, residual: Tensor | None) -> Tensor:
        norm = self.norms[number]
        assert isinstance(norm, nn.BatchNorm2d)
        return self.operation(
            x, norm.weight, norm.bias, norm.running_mean, norm.running_var, MOMENTUM, norm.eps, ALPHA, pool, residual
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(0, self.first(x), True, None)
        return self.norm(1, self.second(x), False, x).amax(dim=(2, 3))


def network(operation: Callable[..., Tensor]) -> Network:
    torch.manual_seed(0)
    return Network(operation).to(device=DEVICE, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def images() -> Tensor:
    return last(torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))).to(DEVICE)


def gradients_of(step: Callable[[Tensor], Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Gradients and buffers of the model after two steps on the same images."""
    for _ in range(2):
        model.zero_grad()
        step(images()).square().sum().backward()
    found = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    return {**found, **dict(model.named_buffers())}


@needs_kernels
def test_a_compiled_network_is_the_plain_one() -> None:
    """In one graph, without a break; the gradients have passed a convolution, so they are of the order of 10."""
    torch._dynamo.reset()
    plain, ours = network(in_torch), network(pooled_norm_celu)
    compiled = torch.compile(ours, fullgraph=True, backend="inductor" if HAS_GPU else "aot_eager")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        expected, found = gradients_of(plain, plain), gradients_of(compiled, ours)
    assert len(found) == 2 + 4 + 6
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-3, msg=lambda m, n=name: f"{n}: {m}")


@needs_gpu
def test_a_captured_network_under_autocast_has_the_bits_of_the_eager_one() -> None:
    def step() -> None:
        model.zero_grad(set_to_none=False)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(batch).square().sum()
        loss.backward()

    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        batch, model = images(), network(pooled_norm_celu)
        start = {name: one.clone() for name, one in model.state_dict().items()}
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()

        def after(once: Callable[[], None]) -> dict[str, Tensor]:
            model.load_state_dict(start)
            once()
            gradients = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
            return {**gradients, **{name: one.clone() for name, one in model.named_buffers()}}

        eager, replayed = after(step), after(graph.replay)
    assert all(torch.equal(eager[name], replayed[name]) for name in eager)


@pytest.mark.parametrize(
    "x",
    [
        last(torch.randn(3, 12, 4, 4)),  # no multiple of 8
        torch.randn(3, 16, 4, 4),  # channels first
        last(torch.randn(3, 16, 4, 4).double()),
        torch.randn(3, 16, 4),
    ],
    ids=["channels", "layout", "type", "dimensions"],
)
def test_what_the_kernels_cannot_take_is_not_available(x: Tensor) -> None:
    assert not available(x.to(DEVICE))


def test_where_there_are_no_kernels_it_is_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_norm, "_HAS_TRITON", False)
    given = world(torch.float32, 3, 16, 6, 8, pool=True, residual=True)
    assert not available(given.x)
    found, expected = (results(operation, given, pool=True) for operation in (pooled_norm_celu, in_torch))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("side", [2, 3])
def test_one_value_a_channel_is_refused_as_by_torch(side: int) -> None:
    x = last(torch.ones(1, 16, side, side))
    one, zero = (torch.full((16,), value, device=DEVICE) for value in (1.0, 0.0))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        pooled_norm_celu(x.to(DEVICE), one, zero, zero.clone(), one.clone(), MOMENTUM, EPS, ALPHA, True)
