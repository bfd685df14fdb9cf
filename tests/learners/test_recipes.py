"""Recipes against the appendix's numbers, and what `settings` may change."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learner_worlds import pictures
from torch import nn

import memfluence as mf
from memfluence.errors import LearnerError, RunMismatchError
from memfluence.learners import MLP, resolve
from memfluence.learners.nets.architectures import ARCHITECTURES
from memfluence.learners.recipes import LEARNER_PRESETS, PRESETS, Recipe, override, preset_names

PLAIN = Recipe(epochs=10, batch=32, rate=0.1)


def linear(in_channels: int, n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * in_channels, n_classes))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("resnet50@imagenet", {"epochs": 100, "batch": 896, "rate": 0.7, "crop_padding": 32, "flip": True}),
        ("resnet50@imagenet", {"milestones": (30, 60, 90), "decay": 0.1, "schedule": "steps", "warmup": 0.15}),
        ("resnet50@paper", {"epochs": 160, "batch": 512, "rate": 0.4, "crop_padding": 4, "flip": True}),
        ("resnet50@paper", {"schedule": "linear", "warmup": 0.15}),
        ("densenet100@paper", {"epochs": 160, "batch": 256, "rate": 0.2, "crop_padding": 4, "flip": True}),
        ("linear@paper", {"epochs": 40, "batch": 512, "rate": 0.4, "schedule": "linear", "warmup": 0.15}),
        ("inception@mnist", {"epochs": 30, "batch": 256, "rate": 0.1, "schedule": "linear", "warmup": 0.15}),
        ("inception@mnist", {"crop_padding": 0, "flip": False}),
        ("mlp@mnist", {"epochs": 10, "batch": 128, "rate": 0.1, "schedule": "constant", "warmup": 0.0}),
    ],
)
def test_what_the_paper_says(name: str, said: dict[str, Any]) -> None:
    recipe = LEARNER_PRESETS[name].recipe
    assert {setting: getattr(recipe, setting) for setting in said} == said
    assert recipe.momentum == 0.9


def test_resnet18_and_inception_are_trained_exactly_as_resnet50() -> None:
    recipes = [LEARNER_PRESETS[f"{name}@paper"].recipe for name in ("resnet50", "resnet18", "inception")]
    assert recipes == [PRESETS["cifar100"]] * 3


def test_no_preset_leaks_held_out_examples() -> None:
    assert all(recipe.normalization != "dataset" for recipe in PRESETS.values())


def test_every_preset_names_an_architecture_and_a_recipe_of_the_list() -> None:
    for preset in LEARNER_PRESETS.values():
        assert preset.architecture in {*ARCHITECTURES, "mlp"}
        assert preset.recipe in PRESETS.values()
    mlp = LEARNER_PRESETS["mlp@mnist"]
    settings = {key: getattr(mlp.recipe, key) for key in ("epochs", "batch", "rate", "momentum")}
    assert MLP(**mlp.options, **settings).hidden == (512, 256)


def test_learners_by_name() -> None:
    assert preset_names()["inception@mnist"] == "inception@mnist"
    assert preset_names()["resnet50"] == "resnet50@paper"
    assert preset_names()["inception"] == "inception@paper"
    assert preset_names()["resnet9"] == "resnet9@fast"
    with pytest.raises(LearnerError, match=r"no built-in learner 'resnet50@papr'; did you mean 'resnet50@paper'\?"):
        resolve("resnet50@papr")
    with pytest.raises(LearnerError, match="no built-in learner '@'"):
        resolve("@")


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_recipe_survives_json(name: str) -> None:
    recipe = PRESETS[name]
    stored = json.loads(json.dumps(recipe.describe()))
    assert stored == recipe.describe()
    assert Recipe(**stored) == recipe


def test_override_reads_text_by_the_type_of_the_setting() -> None:
    settings = {
        "epochs": "30",
        "batch": "64",
        "rate": "1e-2",
        "nesterov": "true",
        "schedule": "steps",
        "milestones": "10,20",
        "padding_mode": "reflect",
        "normalization": "dataset",
        "precision": "float32",
    }
    changed = override(PRESETS["cifar100"], settings)
    expected = dataclasses.replace(
        PRESETS["cifar100"],
        epochs=30,
        batch=64,
        rate=0.01,
        nesterov=True,
        schedule="steps",
        milestones=(10, 20),
        padding_mode="reflect",
        normalization="dataset",
        precision="float32",
    )
    assert changed == expected
    assert override(changed, {}) == changed
    assert override(changed, {"milestones": ""}).milestones == ()


def test_a_whole_number_is_the_same_recipe() -> None:
    whole = Recipe(epochs=10, batch=32, rate=1, weight_decay=0)
    assert json.dumps(whole.describe()) == json.dumps(
        override(whole, {"rate": "1.0", "weight_decay": "0.0"}).describe()
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"epoch": "3"},
            r"no setting 'epoch'; did you mean 'epochs'\? Its settings are alternate_flips, batch, crop_",
        ),
        ({"name": "x"}, "has no setting 'name'"),
        ({"epochs": "many"}, "'epochs' of the recipe must be an integer; got 'many'."),
        ({"epochs": "0"}, "'epochs' of the recipe must be an integer of at least 1; got 0."),
        ({"epochs": 2.5}, "'epochs' of the recipe must be an integer of at least 1; got 2.5."),
        ({"batch": True}, "'batch' of the recipe must be an integer of at least 1; got True."),
        ({"crop_padding": "-1"}, "an integer from 0 to 127; got -1"),
        ({"rate": "0"}, "a number above 0; got 0.0"),
        ({"rate": "nan"}, "a number above 0; got nan"),
        ({"rate": "inf"}, "a number above 0; got inf"),
        ({"rate": "fast"}, "a number; got 'fast'"),
        ({"weight_decay": "-1e-4"}, "a number of at least 0; got -0.0001"),
        ({"momentum": "1"}, r"'momentum' of the recipe must be a number in \[0, 1\); got 1.0"),
        ({"warmup": "15"}, r"'warmup' of the recipe must be a number in \[0, 1\); got 15.0"),
        ({"label_smoothing": "1"}, r"a number in \[0, 1\); got 1.0"),
        ({"decay": "0"}, r"a number in \(0, 1\]; got 0.0"),
        ({"flip": "yes"}, "true or false; got 'yes'"),
        ({"flip": 1}, "true or false; got 1"),
        ({"schedule": "cosine"}, "one of linear, steps, constant; got 'cosine'"),
        ({"padding_mode": "edge"}, "one of zeros, reflect; got 'edge'"),
        ({"normalization": "imagenet"}, "one of fixed, subset, dataset, unit, none; got 'imagenet'"),
        ({"precision": "half"}, "one of bfloat16, float32; got 'half'"),
        ({"nesterov": "true", "momentum": "0"}, "false where momentum is 0; got True"),
        ({"milestones": "3"}, r"'milestones' of the recipe must be empty for the schedule 'linear'; got \(3,\)"),
        (
            {"schedule": "steps", "milestones": "5,3"},
            r"ascending epochs, .* below epochs \(10\); got \(5, 3",
        ),
        ({"schedule": "steps", "milestones": "3,3"}, "ascending epochs"),
        ({"schedule": "steps", "milestones": "3,10"}, "ascending epochs"),
        ({"schedule": "steps", "milestones": "0"}, "ascending epochs"),
        ({"schedule": "steps", "milestones": "a"}, "integers, like"),
        ({"schedule": "steps", "milestones": 3}, "ascending epochs"),
        ({"schedule": ["linear"]}, "one of linear"),
    ],
)
def test_what_a_recipe_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(LearnerError, match=message):
        override(PLAIN, settings)


def test_fewer_epochs_than_milestones_say_so() -> None:
    with pytest.raises(LearnerError, match=r"'milestones' .* below epochs \(20\); got \(30, 60, 90\)"):
        override(PRESETS["imagenet"], {"epochs": "20"})


def test_recipes_do_not_need_torch() -> None:
    code = "import sys; import memfluence.learners.recipes; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def without(description: dict[str, Any], setting: str) -> dict[str, Any]:
    return {name: value for name, value in description.items() if name != setting}


def test_the_run_of_an_older_recipe_goes_on_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the value that trains as before the setting existed, and no other; the same outcomes as in one go."""

    def run(trials: int, out: Path = tmp_path / "run", **settings: Any) -> mf.Run:
        recipe = Recipe(epochs=1, batch=10, rate=0.05, precision="float32", **settings)
        learner = mf.network(linear, recipe=recipe)
        return mf.run(pictures(), learner=learner, trials=trials, out=out, progress=False)

    with monkeypatch.context() as older:
        describe = Recipe.describe
        older.setattr(Recipe, "describe", lambda recipe: without(describe(recipe), "alternate_flips"))
        older.setattr(Recipe, "before", {})
        run(2)
    stored = (tmp_path / "run" / "run.json").read_text()
    assert "alternate_flips" not in stored
    with pytest.raises(RunMismatchError, match=r"the learner's recipe.alternate_flips \(False there, True asked\)"):
        run(4, flip=False, alternate_flips=True)
    with pytest.raises(RunMismatchError, match=r"the learner.s recipe.flip"):
        run(4, flip=True)
    found, expected = run(4).trials, run(4, tmp_path / "one go").trials
    assert (tmp_path / "run" / "run.json").read_text() == stored.replace('"trials": 2', '"trials": 4')
    for name in ("numbers", "mask", "train_correct", "test_correct"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))


def test_the_run_of_an_older_mlp_goes_on_in_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(trials: int, **settings: Any) -> mf.Run:
        return mf.run(pictures(), learner=MLP(epochs=1, **settings), trials=trials, out=tmp_path, progress=False)

    with monkeypatch.context() as older:
        describe = MLP.describe

        def described(learner: MLP) -> dict[str, Any]:
            found = describe(learner)
            return found | {"settings": without(found["settings"], "precision")}

        older.setattr(MLP, "describe", described)
        older.setattr(MLP, "described_before", {})
        run(2)
    with pytest.raises(RunMismatchError, match=r"settings.precision \('float32' there, 'auto' asked\)"):
        run(4)
    assert len(run(4, precision="float32").trials) == 4


def test_what_was_meant_before_is_said_of_settings_that_there_are() -> None:
    assert set(Recipe.before) <= set(PLAIN.describe())
    assert {name: getattr(PLAIN, name) for name in Recipe.before} == Recipe.before  # and is their default still
    (part,) = MLP().described_before.values()
    assert set(part) <= set(MLP().describe()["settings"])
