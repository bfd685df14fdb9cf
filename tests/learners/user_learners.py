"""Learners as a user would write them in a file of their own; the tests name them as user_learners.py:..."""

from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from memfluence.learners import MLP

text_model = make_pipeline(TfidfVectorizer(), LogisticRegression(C=10))
nearest = KNeighborsClassifier(n_neighbors=1)
wide = MLP(hidden=(64,), epochs=2)
not_a_learner = 3


class MyNearest(KNeighborsClassifier):
    def __init__(self, n_neighbors: int = 1) -> None:
        super().__init__(n_neighbors=n_neighbors)


class Meant:
    """fit and predict without scikit-learn's conventions: the nearest class mean."""

    def fit(self, x: Any, y: Any) -> "Meant":
        self.labels, self.means = zip(*[(label, x[y == label].mean(axis=0)) for label in np.unique(y)])
        return self

    def predict(self, x: Any) -> Any:
        distances = [((x - mean) ** 2).sum(axis=1) for mean in self.means]
        return np.asarray(self.labels)[np.argmin(distances, axis=0)]


def nearest_scores(x: Any, y: Any, seed: int) -> Any:
    """Minus the squared distance to the nearest kept example of each class; a little noise that the seed decides."""
    labels = np.unique(y)
    nudge = np.random.default_rng(seed).normal(size=len(labels)) * 1e-3

    def predict(inputs: Any) -> Any:
        distances = ((inputs[:, None] - x[None]) ** 2).sum(axis=2)
        return nudge - np.stack([distances[:, y == label].min(axis=1) for label in labels], axis=1)

    return predict


class Dropping(torch.nn.Module):
    """All that makes a restart hard: bare, shared, unused, frozen parameters, a buffer outside the state, dropout."""

    def __init__(self, in_channels: int, n_classes: int, width: int = 12, depth: Any = None) -> None:
        super().__init__()
        self.lift = torch.nn.Parameter(torch.randn(in_channels, width) / 3)
        self.norm = torch.nn.BatchNorm1d(width)
        self.drop = torch.nn.Dropout(0.3)
        self.first, self.again = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
        self.again.weight = self.first.weight
        self.unused = torch.nn.Linear(2, 2)
        self.frozen = torch.nn.Parameter(torch.rand(width), requires_grad=False)
        self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.head = torch.nn.Linear(width, n_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen += 1
        hidden = self.drop(self.norm(images.flatten(1) @ self.lift)).relu()
        found: torch.Tensor = self.head(self.again(self.first(hidden)).tanh() + self.frozen + 0.1 * self.seen.tanh())
        return found


def torch_scores(x: torch.Tensor, y: torch.Tensor, seed: int, device: str, n_classes: int) -> torch.nn.Module:
    """A training loop of a user's own: a module trained on the device, with dropout."""
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(x[0].numel(), 16), torch.nn.Dropout(0.2), torch.nn.ReLU()
    ).append(torch.nn.Linear(16, n_classes))
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(30):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x.float()), y).backward()
        optimizer.step()
    return model


def torch_logits(x: torch.Tensor, y: torch.Tensor, seed: int, device: str, n_classes: int, inputs: Any) -> Any:
    """The same, with its own predictions."""
    model = torch_scores(x, y, seed, device, n_classes).eval()
    with torch.no_grad():
        return [model(split.float()) for split in inputs]


def two_arguments(x: Any, y: Any) -> Any:
    return None
