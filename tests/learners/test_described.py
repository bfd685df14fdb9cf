"""A built-in learner is made again from what run.json says of it; anything else has to be given again."""

import json
from pathlib import Path
from typing import Any

import pytest
from sklearn.linear_model import LogisticRegression

from memfluence.errors import LearnerError
from memfluence.learners import described, resolve


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mlp", {}),
        ("mlp", {"hidden": "64,32", "rate": "0.05"}),
        ("mlp", {"clip": "1.5", "noise": "0.5"}),
        ("mlp", {"weight_decay": "0.01", "prune": "0.5"}),
        ("mlp@mnist", {"epochs": "2"}),
        ("resnet9@fast", {"width": "16", "epochs": "3"}),
        ("resnet50@imagenet", {"milestones": "10,20"}),
        ("linear@paper", {"rate": "0.1"}),
        ("inception@mnist-fast", {}),
    ],
)
def test_built_in_learners_are_made_again(name: str, settings: dict[str, str]) -> None:
    description = json.loads(json.dumps(resolve(name, settings).describe()))
    assert json.loads(json.dumps(described(description).describe())) == description


def function(x: Any, y: Any, seed: int) -> Any:
    return lambda z: y[:1].repeat(len(z))


def test_others_are_not() -> None:
    for learner in (LogisticRegression(), function):
        with pytest.raises(LearnerError, match="is not built in, or has changed"):
            described(resolve(learner).describe())
    changed = resolve("mlp").describe() | {"novelty": 3}
    with pytest.raises(LearnerError, match="has changed"):
        described(changed)
    with pytest.raises(LearnerError, match="nobody knows their learner"):
        described(None)


@pytest.mark.parametrize("name", ["learner.py:learn", "learner.py", "./learner.py:learn@fast", "learner:learn", 3])
def test_a_run_cannot_name_code_to_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: object) -> None:
    (tmp_path / "learner.py").write_text("open('canary', 'w').close()\n\ndef learn(x, y, seed): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LearnerError, match="not built in"):
        described({"name": name, "attribute": "learn", "settings": ["x"]})
    assert not (tmp_path / "canary").exists()
