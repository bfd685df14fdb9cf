"""Architectures against published parameter counts and arithmetic, and against the prototype they were taken from."""

import itertools
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from memfluence.errors import LearnerError
from memfluence.learners.nets.architectures import ARCHITECTURES, build

IMAGES = sorted(set(ARCHITECTURES) - {"linear"})


@pytest.fixture(autouse=True)
def _seeded_on_one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
    torch.set_num_threads(before)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def skeleton(name: str, in_channels: int, n_classes: int) -> nn.Module:
    """A model without memory: shapes alone."""
    with torch.device("meta"):
        return build(name, in_channels, n_classes).eval()


def traced(model: nn.Module, size: int, in_channels: int = 3) -> list[tuple[nn.Module, tuple[int, ...]]]:
    """(layer, shape of its output) of all convolutions and linear layers, in the order in which they are used."""
    found: list[tuple[nn.Module, tuple[int, ...]]] = []
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(lambda layer, _, output: found.append((layer, tuple(output.shape))))
    model(torch.empty(1, in_channels, size, size, device="meta"))
    return found


def multiplications(model: nn.Module, size: int) -> int:
    """Multiply-adds of convolutions and linear layers for one image of 3 channels."""
    total = 0
    for layer, shape in traced(model, size):
        assert isinstance(layer.weight, torch.Tensor)
        positions = shape[2] * shape[3] if len(shape) == 4 else 1
        total += layer.weight.numel() * positions
    return total


@pytest.mark.parametrize(
    ("name", "in_channels", "n_classes", "published"),
    [
        ("resnet18", 3, 10, 11_173_962),  # the usual PyTorch CIFAR variants
        ("resnet18", 3, 100, 11_220_132),
        ("resnet50", 3, 10, 23_520_842),
        ("resnet50", 3, 100, 23_705_252),
        ("resnet50_imagenet", 3, 1000, 25_557_032),  # torchvision's resnet50
        ("densenet100", 3, 10, 769_162),  # Huang et al.: 0.8M
        ("densenet100", 3, 100, 800_032),
        ("linear", 2048, 100, 2048 * 100 + 100),
    ],
)
def test_published_parameter_counts(name: str, in_channels: int, n_classes: int, published: int) -> None:
    assert parameters(skeleton(name, in_channels, n_classes)) == published


def test_inception_has_the_parameters_of_zhang_et_al() -> None:
    """Table 1 of Zhang et al. 2017: 1,649,402, counted without the normalization's scales, which they did not use."""
    model = skeleton("inception", 3, 10)
    scales = sum(layer.num_features for layer in model.modules() if isinstance(layer, nn.BatchNorm2d))
    assert parameters(model) - scales == 1_649_402
    assert parameters(skeleton("inception", 1, 10)) == parameters(model) - 2 * 96 * 9  # two channels less in the stem


@pytest.mark.parametrize("width", [8, 64])
def test_resnet9_has_the_parameters_of_its_eight_convolutions(width: int) -> None:
    widths = [3, width, 2 * width, 2 * width, 2 * width, 4 * width, 8 * width, 8 * width, 8 * width]
    convolutions = sum(9 * n_in * n_out for n_in, n_out in itertools.pairwise(widths))
    expected = convolutions + 2 * sum(widths[1:]) + 8 * width * 100
    assert parameters(build("resnet9", 3, 100, width=width)) == expected


@pytest.mark.parametrize(
    ("name", "n_classes", "size", "billions"),
    [
        ("resnet50_imagenet", 1000, 224, 4.09),  # torchvision's; with the stride in the first 1x1 it would be 3.8
        ("resnet50", 100, 32, 1.30),
        ("resnet18", 10, 32, 0.556),
    ],
)
def test_published_arithmetic(name: str, n_classes: int, size: int, billions: float) -> None:
    """Strides and pools are where they should be: they change the arithmetic but not the parameters."""
    assert multiplications(skeleton(name, 3, n_classes), size) / 1e9 == pytest.approx(billions, rel=5e-3)


@pytest.mark.parametrize(("name", "layers"), [("resnet50", 50), ("resnet18", 18), ("densenet100", 100), ("resnet9", 9)])
def test_as_many_layers_as_the_name_says(name: str, layers: int) -> None:
    """Shortcuts do not count; they are the 1x1 convolutions that change the width at the size of a block's end."""
    model = skeleton(name, 3, 10)
    shortcuts = {id(part) for key, part in model.named_modules() if ".shortcut." in key}
    assert sum(id(layer) not in shortcuts for layer, _ in traced(model, 32)) == layers


@pytest.mark.parametrize(
    ("name", "size", "first", "last"),
    [
        ("resnet50", 32, 32, 4),
        ("resnet18", 32, 32, 4),
        ("resnet50_imagenet", 224, 112, 7),
        ("inception", 28, 28, 7),  # so the mean over the image is Zhang et al.'s 7x7 pooling
        ("inception", 32, 32, 8),
        ("densenet100", 32, 32, 8),
        ("resnet9", 32, 32, 4),
    ],
)
def test_sizes_of_the_first_and_last_image(name: str, size: int, first: int, last: int) -> None:
    images = [shape for _, shape in traced(skeleton(name, 3, 10), size) if len(shape) == 4]
    assert images[0][2:] == (first, first)
    assert images[-1][2:] == (last, last)


@pytest.mark.parametrize("name", IMAGES)
def test_logits_of_one_and_three_channels(name: str) -> None:
    for in_channels, size, n_classes in ((1, 28, 10), (3, 32, 7)):
        model = skeleton(name, in_channels, n_classes)
        assert model(torch.empty(2, in_channels, size, size, device="meta")).shape == (2, n_classes)


@pytest.mark.parametrize("name", IMAGES)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    """The large ImageNet variant at 64x64, whose last images are then 2x2, the others at 16x16."""
    size = 64 if name == "resnet50_imagenet" else 16
    model = build(name, 3, 10).train()
    logits = model(torch.randn(4, 3, size, size))
    named = dict(model.named_parameters())
    gradients = torch.autograd.grad(F.cross_entropy(logits, torch.arange(4)), list(named.values()))
    for key, gradient in zip(named, gradients, strict=True):
        assert gradient.isfinite().all(), key
        assert gradient.abs().sum() > 0, key


def test_linear_takes_representations_with_or_without_further_axes() -> None:
    model = build("linear", 12, 5)
    vectors = torch.randn(3, 12)
    logits = model(vectors)
    assert logits.shape == (3, 5)
    torch.testing.assert_close(model(vectors.view(3, 12, 1, 1)), logits)
    torch.testing.assert_close(model(vectors.view(3, 3, 2, 2)), logits)
    gradients = torch.autograd.grad(F.cross_entropy(logits, torch.arange(3)), list(model.parameters()))
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


def prototype(width: int) -> nn.Sequential:
    """The network that the fast family starts from, written as it was first tried."""

    def cb(a: int, b: int, pool: bool = False) -> list[nn.Module]:
        layers: list[nn.Module] = [nn.Conv2d(a, b, 3, padding=1, bias=False)]
        if pool:
            layers.append(nn.MaxPool2d(2))
        return [*layers, nn.BatchNorm2d(b, momentum=0.4), nn.CELU(0.3)]

    class Res(nn.Module):
        def __init__(self, c: int) -> None:
            super().__init__()
            self.f = nn.Sequential(*cb(c, c), *cb(c, c))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = x + self.f(x)
            return y

    w = width
    features = [*cb(3, w), *cb(w, 2 * w, True), Res(2 * w), *cb(2 * w, 4 * w, True), *cb(4 * w, 8 * w, True)]
    return nn.Sequential(*features, Res(8 * w), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(8 * w, 100, bias=False))


def test_resnet9_equals_the_prototype() -> None:
    model, reference = build("resnet9", 3, 100, width=8).train(), prototype(8).train()
    reference.load_state_dict(dict(zip(reference.state_dict(), model.state_dict().values(), strict=True)))
    for _ in range(3):  # the running statistics move
        images = torch.randn(8, 3, 32, 32)
        torch.testing.assert_close(model(images), reference(images) * 0.125)
    torch.testing.assert_close(model.eval()(images), reference.eval()(images) * 0.125)


def whitening(in_channels: int, images: torch.Tensor) -> nn.Module:
    first = next(build("resnet9", in_channels, 10, width=4, whiten=True).children())
    first.fit_to_images(images)
    return first


@pytest.mark.parametrize("in_channels", [1, 3])
def test_whitened_patches_of_the_fitted_images_are_uncorrelated_with_variance_one(in_channels: int) -> None:
    mixed = torch.randn(in_channels, in_channels)
    images = torch.einsum("nchw,dc->ndhw", torch.randn(50, in_channels, 9, 9), mixed)
    images = images + images.roll(1, 3)  # neighbours resemble each other
    first = whitening(in_channels, images)
    values = 4 * in_channels
    # The convolution that the layer stands for, with its filters as (channels, height, width) and the edge repeated.
    kernels = first.filters[:values].T.reshape(-1, 2, 2, in_channels).permute(0, 3, 1, 2)
    convolved = F.conv2d(F.pad(images, (0, 1, 0, 1), mode="replicate"), kernels)
    torch.testing.assert_close(first(images), F.celu(convolved, 0.3), rtol=1e-4, atol=1e-5)
    components = convolved[:, :values].transpose(0, 1).flatten(1)  # (values, pixels)
    moments = components @ components.T / components.shape[1]
    # 5e-4 is added to variances of about 0.1 and more: within 1% of the unit matrix
    torch.testing.assert_close(moments, torch.eye(values), rtol=0, atol=1e-2)
    torch.testing.assert_close(convolved[:, values:], -convolved[:, :values])


def test_whitening_constant_images_is_finite() -> None:
    assert whitening(3, torch.zeros(4, 3, 8, 8)).filters.isfinite().all()


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_every_parameter_can_be_drawn_anew(name: str) -> None:
    """What the trainer relies on: `reset_parameters` of the layers reaches all parameters and running statistics."""
    with torch.device("meta"):
        model = build(name, 3, 10)
    reached = {
        id(value)
        for layer in model.modules()
        if hasattr(layer, "reset_parameters")
        for value in [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
    }
    assert {id(value) for value in [*model.parameters(), *model.buffers()]} == reached


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("resnet5", 3, 10), {}, r"no architecture 'resnet5'; did you mean 'resnet50'\? There are densenet100, incep"),
        (("vgg", 3, 10), {}, "no architecture 'vgg'. There are densenet100"),
        (("resnet9", 3, 10), {"widht": 3}, r"resnet9 has no option 'widht'; did you mean 'width'\?"),
        (("resnet18", 3, 10), {"width": 3}, "resnet18 has no option 'width'. Its options are none"),
        (("resnet9", 3, 10), {"width": 0}, "'width' of resnet9 must be an integer of at least 1; got 0"),
        (("resnet9", 3, 10), {"whiten": 1}, "'whiten' of resnet9 must be true or false; got 1"),
        (("resnet9", 0, 10), {}, "in_channels of at least 1; got 0"),
        (("resnet9", 3, 0), {}, "n_classes of at least 1; got 0"),
    ],
)
def test_what_cannot_be_built(arguments: tuple[str, int, int], options: dict[str, Any], message: str) -> None:
    with pytest.raises(LearnerError, match=message):
        build(*arguments, **options)


def test_the_list_of_architectures_does_not_need_torch() -> None:
    code = "import sys; import memfluence.learners.nets.architectures; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
