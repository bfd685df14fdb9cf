"""Models per hour on a GPU: a competent plain PyTorch loop against memfluence, in one run.

    python benchmarks/train.py --mnist mnist.npz --cifar100 cifar100.npz --device cuda

Plain loops train one model after another, as people do. MNIST: the data already on the GPU, bfloat16 autocast, fused
SGD, batches by a permutation, compiled or not, whichever is faster; no DataLoader, which would be far slower for such
small examples.
CIFAR-100: a DataLoader with workers that crop and flip on the CPU, pinned memory, bfloat16 autocast, channels last, a
compiled ResNet-9 for 22 epochs of SGD (the fewest that gave the accuracy of the fast recipe with it). Both end with
predictions for all training and test examples, and the first model, which compiles, is not counted. memfluence is
`Learner.train` on the same 70% subsets: mlp@mnist in groups, resnet9@fast one by one, after a first group or model
that captures.

Prints the ratio of models per hour and both accuracies, and saves them as JSON.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from torch import nn

from memfluence import designs
from memfluence.datasets import Dataset, load
from memfluence.learners import resolve
from memfluence.learners.nets.architectures import build
from memfluence.records import Outcome, Trial

Accuracies = tuple[float, float]  # on kept and on test examples


def plain_mnist(data: Dataset, device: torch.device, *, compiled: bool) -> Callable[[Trial], Accuracies]:
    train = torch.tensor(data.x_train, device=device).flatten(1).float().div(255)
    test = torch.tensor(data.x_test, device=device).flatten(1).float().div(255)
    labels = torch.tensor(data.y_train, device=device)
    model = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, data.n_classes)
    ).to(device)
    called = torch.compile(model, mode="reduce-overhead") if compiled else model  # "reduce-overhead": CUDA graphs

    def one(trial: Trial) -> Accuracies:
        torch.manual_seed(trial.seed)
        _reset(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
        kept = torch.tensor(trial.kept, device=device)
        for _ in range(10):
            for rows in kept[torch.randperm(len(kept), device=device)].split(128):
                if len(rows) < 128:
                    continue  # one shape for the compiled model, to its advantage
                with torch.autocast("cuda", torch.bfloat16):
                    loss = functional.cross_entropy(called(train[rows]), labels[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        with torch.no_grad():
            return _accuracies(data, trial, model(train).argmax(1), model(test).argmax(1))

    return one


class _Pictures(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Kept pictures with a random crop after 4 pixels of padding and a random flip, as usual on the CPU."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self._padded = np.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)), mode="reflect")
        self._labels = labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        top, left, flip = (int(n) for n in torch.randint(0, 9, (3,)))
        crop = self._padded[index, top : top + 32, left : left + 32]
        crop = crop[:, ::-1] if flip % 2 else crop
        return torch.from_numpy(np.ascontiguousarray(crop.transpose(2, 0, 1))), int(self._labels[index])


def plain_cifar100(data: Dataset, device: torch.device) -> Callable[[Trial], Accuracies]:
    model = build("resnet9", 3, data.n_classes).to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    compiled = torch.compile(model)
    epochs, batch, rate = 22, 512, 0.6

    def scaled(images: torch.Tensor) -> torch.Tensor:
        return (
            images.to(device, non_blocking=True).float().div(127.5).sub(1).contiguous(memory_format=torch.channels_last)
        )

    def one(trial: Trial) -> Accuracies:
        torch.manual_seed(trial.seed)
        _reset(model)
        model.train()
        loader = torch.utils.data.DataLoader(
            _Pictures(data.x_train[trial.kept], data.y_train[trial.kept]),
            batch_size=batch,
            shuffle=True,
            drop_last=True,
            num_workers=14,
            pin_memory=True,
            persistent_workers=True,
        )
        optimizer = torch.optim.SGD(
            model.parameters(), lr=rate, momentum=0.9, nesterov=True, weight_decay=4e-4, fused=True
        )
        steps = epochs * len(loader)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda k: min(k / (0.15 * steps), (steps - k) / (0.85 * steps))
        )
        for _ in range(epochs):
            for images, labels in loader:
                with torch.autocast("cuda", torch.bfloat16):
                    loss = functional.cross_entropy(compiled(scaled(images)), labels.to(device, non_blocking=True))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        model.eval()
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            found = [
                torch.cat(
                    [
                        model(scaled(torch.from_numpy(images[at : at + 2500].transpose(0, 3, 1, 2)))).argmax(1)
                        for at in range(0, len(images), 2500)
                    ]
                )
                for images in (data.x_train, data.x_test)
            ]
        return _accuracies(data, trial, *found)

    return one


def _reset(model: nn.Module) -> None:
    for layer in model.modules():
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()


def _accuracies(data: Dataset, trial: Trial, train: torch.Tensor, test: torch.Tensor) -> Accuracies:
    right = train.cpu().numpy() == data.y_train
    return float(right[trial.mask].mean()), float((test.cpu().numpy() == data.y_test).mean())


def measure_plain(one: Callable[[Trial], Accuracies], trials: list[Trial]) -> dict[str, Any]:
    one(trials[0])  # compiles
    torch.cuda.synchronize()
    started = time.perf_counter()
    found = [one(trial) for trial in trials]
    return _summary(time.perf_counter() - started, found)


def measure_memfluence(name: str, data: Dataset, trials: list[Trial], device: str) -> dict[str, Any]:
    learner = resolve(name)
    size = learner.group_size(data, device)
    groups = [trials[at : at + size] for at in range(0, len(trials), size)]
    list(learner.train(data, groups[0], record=(), device=device))  # captures
    torch.cuda.synchronize()
    started = time.perf_counter()
    outcomes = [one for group in groups for one in learner.train(data, group, record=(), device=device)]
    seconds = time.perf_counter() - started
    found = [
        (float(one.train_correct[one.mask].mean()), float(one.test_correct.mean()))
        for one in outcomes
        if isinstance(one, Outcome)
    ]
    return _summary(seconds, found)


def _summary(seconds: float, found: list[Accuracies]) -> dict[str, Any]:
    kept, test = (np.array(values) for values in zip(*found))
    return {
        "models": len(found),
        "seconds_per_model": seconds / len(found),
        "models_per_hour": 3600 * len(found) / seconds,
        "kept_accuracy": float(kept.mean()),
        "test_accuracy": float(test.mean()),
        "test_accuracy_stderr": float(test.std(ddof=1) / np.sqrt(len(test))) if len(test) > 1 else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", help="MNIST as .npz (x_train, y_train, x_test, y_test)")
    parser.add_argument("--cifar100", help="CIFAR-100 as .npz")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", default="benchmarks/results/train.json")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this benchmark needs a CUDA device")
    device, results = torch.device(options.device), {}
    mnist = [partial(plain_mnist, compiled=compiled) for compiled in (False, True)]
    for task, path, plain, learner, plain_models, our_models in (
        ("mnist", options.mnist, mnist, "mlp@mnist", 3, 500),
        ("cifar100", options.cifar100, [plain_cifar100], "resnet9@fast", 2, 8),
    ):
        if path is None:
            continue
        data = load(f"npz:{path}")
        design = designs.make("fixed", n_train=data.n_train)
        measured = []
        for make in plain:
            measured.append(measure_plain(make(data, device), [design.trial(k) for k in range(plain_models)]))
            torch._dynamo.reset()
            torch.cuda.empty_cache()
        baseline = min(measured, key=lambda one: one["seconds_per_model"])
        ours = measure_memfluence(learner, data, [design.trial(k) for k in range(our_models)], options.device)
        ratio = ours["models_per_hour"] / baseline["models_per_hour"]
        results[task] = {
            "plain": baseline,
            "all_plain": measured,
            "memfluence": ours,
            "learner": learner,
            "ratio": ratio,
        }
        for name, one in (("plain loop", baseline), (learner, ours)):
            print(
                f"{task:9s} {name:13s} {one['seconds_per_model']:8.3f} s a model"
                f" {one['models_per_hour']:10,.0f} an hour"
                f"  kept {one['kept_accuracy']:.2%}  test {one['test_accuracy']:.2%}  (n = {one['models']})"
            )
        print(f"{task:9s} ratio {ratio:.1f}", flush=True)
    results["device"] = torch.cuda.get_device_name(device)
    results["torch"] = torch.__version__
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
