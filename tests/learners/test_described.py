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


@pytest.mark.parametrize("name", ["{file}:learn", "{file}", "{file}:learn@fast", "elsewhere_evil:learn"])
def test_code_that_only_a_run_names_is_not_loaded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run may come from someone else, with a file beside it."""
    trace, file = tmp_path / "trace", tmp_path / "elsewhere_evil.py"
    file.write_text(f"open({str(trace)!r}, 'w').close()\ndef learn(x, y, seed): ...\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LearnerError, match="is not built in"):
        described({"name": name.format(file=file), "kind": "function", "attribute": "learn"})
    assert not trace.exists()
