"""Maximum pooling, batch normalization, CELU and a residual: torch.compile of the plain operations against the kernels.

    python benchmarks/norm.py

The maps of resnet9 at a batch of 1024, bfloat16 and channels last. The forward pass, and both together, are captured
in CUDA graphs and replayed after other memory was written, so that nothing waits in the cache at the start; backward
is the difference. GB/s are of the bytes that must move at least: forward reads x and the residual and writes the
pooled map with its winners and y; backward reads the pooled map, its winners and dy and writes dx. A second reading
is not counted.

Prints milliseconds and saves them as JSON.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from memfluence.learners.nets.kernels.fused_norm import available, in_torch, pooled_norm_celu


class Layer(NamedTuple):
    """A layer of resnet9: its map before pooling."""

    channels: int
    side: int
    pool: bool = False
    residual: bool = False

    def __str__(self) -> str:
        return f"{self.channels} x {self.side}x{self.side}" + " pool" * self.pool + " residual" * self.residual


LAYERS = [
    Layer(64, 32),
    Layer(128, 32, pool=True),
    Layer(128, 16),
    Layer(128, 16, residual=True),
    Layer(256, 16, pool=True),
    Layer(512, 8, pool=True),
    Layer(512, 4),
]
REPEATS = 50


def captured(work: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # compiles
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def milliseconds(graph: torch.cuda.CUDAGraph, other: Tensor) -> float:
    """The median time of a replay, with a cold cache."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(REPEATS)]  # type: ignore[no-untyped-call]
    for start, end in events:
        other.zero_()
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    return float(torch.tensor([start.elapsed_time(end) for start, end in events]).median())


def measure(operation: Callable[..., Tensor], layer: Layer, batch: int, other: Tensor) -> tuple[float, float]:
    """Milliseconds forward and backward."""
    device, last = torch.device("cuda"), torch.channels_last
    side = layer.side // 2 if layer.pool else layer.side
    out = (batch, layer.channels, side, side)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, dtype=torch.bfloat16).contiguous(memory_format=last)

    x = draw(batch, layer.channels, layer.side, layer.side).requires_grad_()
    weight, var = (torch.ones(layer.channels, device=device) for _ in range(2))
    bias, mean = (torch.zeros(layer.channels, device=device) for _ in range(2))
    residual = draw(*out).requires_grad_() if layer.residual else None
    dy = draw(*out)
    inputs = [one for one in (x, weight.requires_grad_(), bias.requires_grad_(), residual) if one is not None]

    def forward() -> Tensor:
        return operation(x, weight, bias, mean, var, 0.4, 1e-5, 0.3, layer.pool, residual)

    ahead = captured(forward)
    both = captured(lambda: torch.autograd.grad(forward(), inputs, dy))
    of_forward, of_both = milliseconds(ahead, other), milliseconds(both, other)
    return of_forward, of_both - of_forward


def least_bytes(layer: Layer, batch: int) -> tuple[int, int]:
    """That must move forward and backward."""
    x = 2 * batch * layer.channels * layer.side**2
    if layer.pool:
        pooled, winner = x // 4, x // 8
        return x + pooled + winner + pooled, pooled + winner + pooled + x
    return x * (3 if layer.residual else 2), 3 * x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--out", default="benchmarks/results/norm.json")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this benchmark needs a CUDA device")
    if not available(torch.zeros(1, 8, 2, 2, device="cuda").contiguous(memory_format=torch.channels_last)):
        parser.error("this benchmark needs Triton; install it")
    torch.manual_seed(0)
    other = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    found = []
    print(f"{'':20s}{'':>10s}{'compiled':>20s}{'kernels':>20s}{'ratio':>8s}")
    for layer in LAYERS:
        torch._dynamo.reset()
        plain = measure(torch.compile(in_torch, fullgraph=True), layer, options.batch, other)
        ours = measure(pooled_norm_celu, layer, options.batch, other)
        for way, a, b, size in zip(("forward", "backward"), plain, ours, least_bytes(layer, options.batch)):
            rates = [size / time / 1e6 for time in (a, b)]
            columns = "".join(f"{time:8.3f} ms {rate:4.0f} GB/s" for time, rate in zip((a, b), rates))
            print(f"{layer!s:20s}{way:>10s}{columns}{a / b:8.2f}", flush=True)
            found.append(
                {"layer": str(layer), "pass": way, "bytes": size, "compiled_ms": a, "kernels_ms": b, "ratio": a / b}
            )
        torch.cuda.empty_cache()
    total = [sum(one[name] for one in found) for name in ("compiled_ms", "kernels_ms")]
    print(f"all layers: {total[0]:.3f} ms compiled, {total[1]:.3f} ms kernels, ratio {total[0] / total[1]:.2f}")
    results = {
        "batch": options.batch,
        "layers": found,
        "compiled_ms": total[0],
        "kernels_ms": total[1],
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
