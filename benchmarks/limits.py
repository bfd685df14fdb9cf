"""How near a training step comes to what the GPU can do, and where the rest goes.

    python benchmarks/limits.py --out benchmarks/results/limits.json

Measures this GPU's bandwidth (a large copy, bytes read and written) and its rate of bfloat16 products (8192 cubed),
then replays the captured steps of `mlp@mnist` (250 models at once, batches of 128) and `resnet9@fast` (batches of 1024)
on random data of the size of MNIST and CIFAR-100, and sorts the time of their kernels. The limit of the MLP's step is
the memory that must move: the parameters (26 bytes each: value and velocity are read and written in float32, the
bfloat16 gradient is written and read, the bfloat16 copy is written, and read forward and backward), and the inputs and
activations (each written once and read twice). The limit of the network's step is the arithmetic of its convolutions at
the measured rate.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from memfluence import designs
from memfluence.datasets import Dataset, from_arrays
from memfluence.learners import resolve
from memfluence.learners.nets.captured_mlp import CapturedTraining
from memfluence.learners.nets.device import kernels

KINDS = {
    "products and convolutions": ("gemm", "xmma", "nvjet", "cutlass", "convolve", "dgrad", "wgrad", "splitk"),
    "normalization, activation, pooling": (
        *("batch_norm", "celu", "pool", "relu"),
        *("_sum", "_added", "_finish_", "_normalize", "_differentiate"),  # our own
    ),
    "update of parameters": ("_update", "multi_tensor", "vector_norm", "foreach"),
    "gather of inputs": ("index",),
}


def milliseconds(work: Callable[[], Any], repeats: int = 50) -> float:
    for _ in range(5):
        work()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(repeats):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / repeats * 1e3


def by_kind(work: Callable[[], Any], repeats: int = 5) -> dict[str, float]:
    """Milliseconds of the kernels of each kind in one call."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(repeats):
            work()
        torch.cuda.synchronize()
    found: dict[str, float] = dict.fromkeys([*KINDS, "the rest"], 0.0)
    for event in profiler.key_averages():
        name = event.key.lower()
        kind = next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), "the rest")
        found[kind] += event.device_time_total / 1e3 / repeats
    return found


def hardware() -> tuple[float, float]:
    """Bytes and floating-point operations a second, measured."""
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    bandwidth = 2 * source.numel() / (milliseconds(lambda: target.copy_(source)) / 1e3)
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    rate = 2 * 8192**3 / (milliseconds(lambda: torch.mm(a, b, out=out)) / 1e3)
    return bandwidth, rate


def random_images(n_train: int, shape: tuple[int, ...], n_classes: int) -> Dataset:
    draw = np.random.default_rng(0)
    images = (draw.integers(0, 256, (n, *shape), dtype=np.uint8) for n in (n_train, 10_000))
    labels = (draw.integers(0, n_classes, n) for n in (n_train, 10_000))
    train, test = zip(images, labels)
    return from_arrays(*train, *test)


def mlp(bandwidth: float, rate: float) -> dict[str, Any]:
    data, learner = random_images(60_000, (28, 28), 10), resolve("mlp@mnist")
    models, batch, subset = learner.group_size(data, "cuda"), learner.batch, 42_000  # type: ignore[attr-defined]
    training = CapturedTraining(learner, data, models, subset, torch.device("cuda"))  # type: ignore[arg-type]
    training.train([designs.make("fixed", n_train=60_000).trial(k) for k in range(models)])
    graph = training._graph
    assert graph is not None

    def step() -> None:
        training._position.zero_()
        graph.replay()

    parameters = training._mlp._values.numel()
    values = models * batch * sum(training._mlp._widths[:-1])  # inputs and activations
    limits = {
        "memory_ms": (26 * parameters + 6 * values) / bandwidth * 1e3,
        "arithmetic_ms": 6 * batch * parameters / rate * 1e3,
    }
    found = report("mlp@mnist", step, limits)
    found["models"] = models
    found["milliseconds_per_model"] = found["step_ms"] * (subset / batch) * learner.epochs / models  # type: ignore[attr-defined]
    return found


def network(bandwidth: float, rate: float) -> dict[str, Any]:
    data, learner = random_images(50_000, (32, 32, 3), 100), resolve("resnet9@fast", {"epochs": 1})
    with kernels(True):
        trainer = learner._trainer(data, 35_000, torch.device("cuda"))  # type: ignore[attr-defined]
        trainer.train(designs.make("fixed", n_train=50_000).trial(0))

    def step() -> None:
        trainer._position.zero_()
        trainer._graph.replay()

    images = torch.zeros(trainer._batch, 3, 32, 32, device="cuda")
    # 2 operations for each product forward, twice that backward, except where no gradient goes to the input.
    total = sum(
        2 * layer.weight[0].numel() * output * (2 if first else 3)
        for first, layer, output in convolution_outputs(trainer._model, images)
    )
    return report("resnet9@fast", step, {"arithmetic_ms": total / rate * 1e3})


def convolution_outputs(model: nn.Module, images: torch.Tensor) -> list[tuple[bool, nn.Conv2d, int]]:
    """(whether it is the first, convolution, numbers that it gives) for these images."""
    found: list[tuple[bool, nn.Conv2d, int]] = []
    hooks = [
        layer.register_forward_hook(lambda layer, _, output: found.append((not found, layer, output.numel())))
        for layer in model.modules()
        if isinstance(layer, nn.Conv2d)
    ]
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        model(images)
    for hook in hooks:
        hook.remove()
    return found


def report(name: str, step: Callable[[], None], limits: dict[str, float]) -> dict[str, Any]:
    measured, kinds = milliseconds(step), by_kind(step)
    limit = max(limits.values())
    print(f"{name}: {measured:.3f} ms a step, limit {limit:.3f} ms, {limit / measured:.0%} of the limit's speed")
    for kind, spent in sorted(kinds.items(), key=lambda item: -item[1]):
        print(f"    {spent:7.3f} ms  {kind}")
    return {"step_ms": measured, "limits": limits, "fraction_of_limit": limit / measured, "kernels_ms": kinds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="benchmarks/results/limits.json")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this benchmark needs a CUDA device")
    bandwidth, rate = hardware()
    print(f"{torch.cuda.get_device_name()}: {bandwidth / 1e12:.2f} TB/s, {rate / 1e12:.0f} TFLOP/s in bfloat16")
    results = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "bytes_per_second": bandwidth,
        "operations_per_second": rate,
        "mlp@mnist": mlp(bandwidth, rate),
        "resnet9@fast": network(bandwidth, rate),
    }
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
