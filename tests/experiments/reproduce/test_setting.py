"""What is said of a difference: whether there is one, which settings differ, and which of them a run has tested."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from memfluence import paper
from memfluence.datasets.known import COMPARED, Data
from memfluence.experiments import Result
from memfluence.experiments.reproduce._report import difference_in_words, setting_as_markdown, thresholds_of_ours
from memfluence.experiments.reproduce._setting import (
    DEPENDS,
    Facts,
    depends,
    difference,
    interval,
    reasons,
    settings_beside,
    what_was_tested,
)
from memfluence.learners import resolve
from memfluence.paper import Reported

CIFAR100, MNIST = (Data(title, title, COMPARED) for title in ("CIFAR-100", "MNIST"))
FAST = resolve("resnet9@fast").describe()
FACTS = Facts(CIFAR100, 50_000, 10_000, FAST, 0.7, 250, pairs=6514, chance=4722.0, trials_each=125, linear_models=1000)
PAIRS = paper.reported("cifar100")["histogram.pairs"]


def number(value: float, name: str = "histogram.pairs", **given: Any) -> Reported:
    return Reported(name, value, "pairs selected", "Sec. 3.3", **given)


@pytest.mark.parametrize(
    ("one", "found", "expected"),
    [
        # Points of accuracy lost: the issue's own example. Two models, whose interval is 4.25 ± 14.2.
        (number(0.034, "removal.memorized.cost", bound="about"), (0.0425, 0.0224, 2), "undecided"),
        (number(0.034, "removal.memorized.cost", bound="about"), (0.0425, 0.0224, 200), "higher"),
        (number(0.034, "removal.memorized.cost", bound="about"), (0.0341, 0.001, 20), "same"),
        (number(0.0254, "utility.test.difference", spread=0.002, runs=100), (0.0167, 0.0034, 50), "lower"),
        (number(0.76, "run.accuracy_whole", bound="about"), (0.7634, 0.0024, 20), "same"),  # it may be 0.765
        (number(0.76, "run.accuracy_whole", bound="about"), (0.7734, 0.0024, 20), "higher"),
        (number(0.7606, "utility.test.accuracy", spread=0.0028, runs=100), (0.765, 0.004, 2), "undecided"),
        (number(0.7606, "utility.test.accuracy", spread=0.0028, runs=100), (0.762, 0.004, 20), "same"),
    ],
)
def test_means_of_models(one: Reported, found: tuple[float, float, int], expected: str) -> None:
    mean, sd, n = found
    assert difference(one, {"mean": mean, "sd": sd, "stderr": sd / n**0.5, "n": n}, n) == expected


@pytest.mark.parametrize(
    ("one", "found", "expected"),
    [
        (number(35), {"mean": 192, "stderr": 6.0}, "higher"),  # a jackknife over ten blocks of trials
        (number(1015), {"mean": 1050, "stderr": 20.0}, "same"),
        (number(1015), {"mean": 1050, "stderr": 90.0}, "undecided"),
        (number(18_099), {"mean": 16_915, "stderr": 44.0}, "lower"),
        # Without a spread, what is not equal within the paper's own digits differs; and that is said (below).
        (number(888), {"mean": 64}, "lower"),
        (number(0.0888, "histogram.test_share"), {"mean": 0.08884}, "same"),
        (number(0.759, "last-layer.representation.test_accuracy"), {"mean": 0.775}, "undecided"),  # one model
        # Draws of halves share their trials: their standard deviation is not divided by a root.
        (number(1095, "consistency.x.first"), {"mean": 1060, "sd": 30.0, "stderr": 13.4, "n": 5}, "same"),
        (number(1095, "consistency.x.first"), {"mean": 1060, "sd": 90.0, "stderr": 40.2, "n": 5}, "undecided"),
        (number(1095, "consistency.x.first"), {"mean": 468, "sd": 21.0, "stderr": 9.4, "n": 5}, "lower"),
        (number(0.7, "consistency.x.jaccard", bound="at least"), {"mean": 0.9, "sd": 0.02, "n": 5}, "same"),
        (number(0.7, "consistency.x.jaccard", bound="at least"), {"mean": 0.75, "sd": 0.06, "n": 5}, "undecided"),
        (number(0.7, "consistency.x.jaccard", bound="at least"), {"mean": 0.08, "sd": 0.003, "n": 5}, "lower"),
        (number(0.015, "consistency.x.difference", bound="less than"), {"mean": 0.01, "sd": 1e-4, "n": 5}, "same"),
        (number(0.015, "consistency.x.difference", bound="less than"), {"mean": 0.02, "sd": 1e-4, "n": 5}, "higher"),
        (number(0.8, "histogram.share_below_strong", bound="more than"), {"mean": 0.81}, "same"),
        (number(0.8, "histogram.share_below_strong", bound="more than"), {"mean": 0.68}, "lower"),
        # Numbers of models are counted.
        (number(4000, "run.trials"), {"mean": 3999}, "lower"),
        (number(100, "removal.accuracy.n"), {"mean": 100}, "same"),
    ],
)
def test_counts_shares_and_draws(one: Reported, found: dict[str, Any], expected: str) -> None:
    n = 1 if "representation" in one.name else 500
    assert difference(one, found, n) == expected


def test_the_interval_is_student_s() -> None:
    found = {"mean": 4.25, "sd": 2.24, "stderr": 2.24 / 2**0.5, "n": 2}
    assert interval(number(3.4), found) == pytest.approx(12.706 * 1.584, abs=0.01)
    assert interval(number(3.4, spread=3.0, runs=9), found | {"n": 10**6}) == pytest.approx(1.96 * 1.871, abs=0.01)
    assert interval(number(3.4), {"mean": 4.25}) is None


@pytest.mark.parametrize(
    ("verdict", "width", "mean", "said"),
    [
        ("same", 0.1, 3.3, "none seen"),
        ("lower", 0.1, 2.0, "lower"),
        ("lower", None, 2.0, "lower (no spread)"),
        ("undecided", 0.201, 4.25, "too few models to tell (± 20.10%)"),
        ("undecided", None, 4.25, "too few models to tell"),
    ],
)
def test_differences_in_words(verdict: str, width: float | None, mean: float, said: str) -> None:
    row = {
        "name": "removal.memorized.cost",
        "difference": verdict,
        "interval": width,
        "ours": {"mean": mean},
        "paper": {"value": 3.4},
        "reasons": {},
    }
    assert difference_in_words(row) == said


def test_settings_that_differ_are_stated_and_none_is_called_a_cause() -> None:
    assert reasons(PAIRS, "higher", "cifar100", FACTS) == {
        "network": "resnet9@fast, not ResNet-50 (not tested)",
        "recipe": "epochs 12, batch 1,024, rate 0.8, optimizer muon, crop padding 2, not epochs 160, batch 512, rate"
        " 0.4, optimizer sgd, crop padding 4 (not tested)",
        "trials": "250, not 4,000 (not tested)",
        "chance": "permuted masks alone give 4,722 pairs where ours give 6,514 (tested: part histogram)",
    }
    for verdict in ("same", "undecided"):
        assert reasons(PAIRS, verdict, "cifar100", FACTS) == {}
    jaccard = paper.reported("cifar100")["consistency.lines.0.same_class.0.jaccard"]
    halves = replace(FACTS, pairs_of_half=8027.0, chance_of_half=5748.3)
    assert reasons(jaccard, "lower", "cifar100", halves)["chance in halves"] == (
        "permuted masks alone give 5,748 pairs where half of our trials gives 8,027 (tested: part consistency)"
    )
    assert not {"chance", "chance in halves"} & reasons(jaccard, "lower", "cifar100", FACTS).keys()
    alike = replace(FACTS, learner=resolve("resnet50@paper").describe(), trials=4000, chance=0.0)
    assert reasons(PAIRS, "higher", "cifar100", alike) == {}


def test_192_pairs_instead_of_35_are_put_down_to_nothing() -> None:
    """Two networks, another number of trials: which of the two matters nobody has tested."""
    mine = replace(FACTS, data=MNIST, n_train=60_000, learner=resolve("mlp@mnist").describe(), trials=600)
    theirs = paper.reported("mnist")["histogram.pairs"]
    found = reasons(theirs, difference(theirs, {"mean": 192, "stderr": 8.0}), "mnist", replace(mine, chance=1.0))
    assert list(found) == ["network", "recipe", "trials"]
    assert all(said.endswith("(not tested)") for said in found.values())


def test_a_file_named_mnist_is_not_mnist() -> None:
    file = Data("mnist.npz", "a file of 1,500 images named mnist.npz", None)
    there = settings_beside("mnist", replace(FACTS, data=file, n_train=1200, n_test=300))
    assert there["data"].sentence == "a file of 1,500 images named mnist.npz, not MNIST (not tested)"
    assert there["size"].sentence == "1,200 to train on, 300 to test on, not 60,000 to train on, 10,000 to test on" + (
        " (not tested)"
    )
    called = replace(FACTS, data=Data("MNIST", "a file of 1,500 images named MNIST", None))
    assert settings_beside("mnist", called)["data"].differs
    real = settings_beside("mnist", replace(FACTS, data=MNIST, n_train=60_000))
    assert not real["data"].differs
    assert not real["size"].differs


def test_the_paper_s_own_network_and_recipe_are_known() -> None:
    for of, learner in (
        ("cifar100", "resnet50@paper"),
        ("imagenet", "resnet50@imagenet"),
        ("mnist", "inception@mnist"),
    ):
        same = settings_beside(of, replace(FACTS, learner=resolve(learner).describe()))
        assert not same["network"].differs
        assert not same["recipe"].differs
        weaker = settings_beside(of, replace(FACTS, learner=resolve(learner, {"weight_decay": "0.01"}).describe()))
        assert not weaker["recipe"].differs  # the paper does not say it
        shorter = settings_beside(of, replace(FACTS, learner=resolve(learner, {"epochs": "95"}).describe()))
        assert shorter["recipe"].ours == "epochs 95"
    mlp = settings_beside("mnist", replace(FACTS, learner=resolve("mlp@mnist").describe()))
    assert mlp["network"].ours == "mlp (hidden 512 256)"
    assert mlp["recipe"].ours == "epochs 10, batch 128, schedule constant, warmup 0"
    own = resolve("resnet50@paper").describe() | {"factory": {"kind": "class"}, "source_sha256": "0"}
    assert settings_beside("cifar100", replace(FACTS, learner=own))["network"].differs  # it is only called so
    nobody = settings_beside("cifar100", replace(FACTS, learner=None))
    assert nobody["network"].ours == "a learner that is not recorded"
    assert (nobody["recipe"].ours, nobody["recipe"].differs) == ("not recorded", True)
    assert settings_beside("imagenet", FACTS)["recipe"].paper.startswith("epochs 100, batch 896, rate 0.7")


def read_off(first: float, second: float) -> dict[str, Any]:
    return {"first": {"mean": first, "sd": 21.0}, "second": {"mean": second, "sd": 8.0}}


def line(run: str, mean: float, pairs: tuple[float, float], memorized: tuple[float, float]) -> dict[str, Any]:
    accuracy = {"mean": mean, "sd": 0.003}
    of_pairs, of_memorized = ([read_off(*two)] for two in (pairs, memorized))
    return {
        "run": run,
        "test_accuracy": accuracy,
        "same_class": of_pairs,
        "memorization": of_memorized,
    }


HALVES = line("/x/base", 0.733, (468, 460), (17_050, 17_010))
OTHER = line("/x/second", 0.706, (468, 549), (17_050, 19_400))
RESULTS = {
    "consistency": Result("consistency", "", {"trials_each": 69, "lines": [HALVES]}, pd.DataFrame(), {}),
    "architectures": Result("consistency", "", {"trials_each": 69, "lines": [HALVES, OTHER]}, pd.DataFrame(), {}),
    "histogram": Result("histogram", "", {"pairs": 95}, pd.DataFrame(), {}),
}


def test_what_a_run_exchanged_is_said_with_the_run() -> None:
    eighteen = FAST | {"name": "resnet18@fast", "architecture": "resnet18"}  # of the same recipe
    found = what_was_tested(RESULTS, FAST, eighteen, (22_784, 20_214.0))
    assert found["trials"] == (
        "half of ours (69) find 17,050 ± 21 and 17,010 ± 8 memorized and select 468 ± 21 and 460 ± 8 pairs, all of ours"
        " 95; part consistency"
    )
    assert found["network"] == (
        "resnet18@fast in second has a test accuracy of 70.6% beside 73.3% and, from 69 trials of each, 19,400 beside"
        " 17,050 memorized and 549 beside 468 pairs; part architectures"
    )
    assert "recipe" not in found  # it is the same
    assert found["influence"] == "the same trials have 22,784 pairs at 0.25 and 0.15, 20,214 of them by chance"
    there = settings_beside("cifar100", replace(FACTS, infl=0.4, tested=found))
    assert there["network"].sentence.startswith("resnet9@fast, not ResNet-50 (tested: resnet18@fast in second has")
    assert there["recipe"].sentence.endswith("(not tested)")
    table = "\n".join(setting_as_markdown(there, "cifar100", FACTS))
    assert "| influence (threshold of pairs) | 0.15 | 0.4 | **yes** | the same trials have 22,784 pairs" in table
    assert "| data | CIFAR-100 | CIFAR-100 | no |  |" in table
    assert "where it was not tested that is a guess" in table


def test_two_things_exchanged_at_once_are_said_together() -> None:
    slow = resolve("resnet18@paper").describe()
    found = what_was_tested(RESULTS, FAST, slow, None)
    assert "in second (of another recipe, too) has" in found["network"]
    assert found["recipe"] == "together with the network, see there"
    wider = resolve("mlp", {"hidden": "32"}).describe()
    assert set(what_was_tested(RESULTS, resolve("mlp").describe(), wider, None)) == {"network", "trials", "halves"}
    longer = resolve("mlp", {"epochs": "40"}).describe()
    assert set(what_was_tested(RESULTS, resolve("mlp").describe(), longer, None)) == {"recipe", "trials", "halves"}
    assert what_was_tested({}, FAST, None, None) == {}


def test_rows_of_imagenet_are_about_imagenet() -> None:
    cost = paper.reported("imagenet")["removal.memorized.cost"]
    found = reasons(cost, "higher", "imagenet", replace(FACTS, trials=2000))
    assert found["data"] == "CIFAR-100, not ImageNet (not tested)"
    assert "trials" not in found  # ImageNet had no more
    assert reasons(cost, "higher", "imagenet", FACTS)["trials"] == "250, not 2,000 (not tested)"


def test_other_thresholds_stand_beside_what_they_change_and_nothing_else() -> None:
    facts, theirs = replace(FACTS, infl=0.4), paper.reported("cifar100")
    for name, at in (
        ("histogram.pairs", "influence >= 0.4"),
        ("consistency.lines.0.same_class.0.jaccard", "influence >= 0.4"),
        ("consistency.lines.0.any_class.1.difference", ""),
        ("last-layer.linear.memorized", ""),
        ("last-layer.pairs.any.linear.pairs", "influence >= 0.4"),
        ("run.memorized", ""),
    ):
        assert thresholds_of_ours(theirs[name], facts) == at, name
        assert ("influence" in reasons(theirs[name], "lower", "cifar100", facts)) == bool(at), name
    assert thresholds_of_ours(theirs["run.memorized"], replace(FACTS, mem=0.5)) == "memorization >= 0.5"
    both = replace(FACTS, mem=0.5, infl=0.3)
    assert thresholds_of_ours(theirs["histogram.pairs"], both) == "memorization >= 0.5, influence >= 0.3"


def test_every_number_of_the_paper_has_settings_that_it_depends_on() -> None:
    for dataset in paper.DATASETS:
        for one in paper.reported(dataset).values():
            assert depends(one)
    used = {next(k for k, (prefix, _) in enumerate(DEPENDS) if name.startswith(prefix)) for name in every_name()}
    assert used == set(range(len(DEPENDS)))  # no prefix hides behind another


def every_name() -> set[str]:
    return {name for dataset in paper.DATASETS for name in paper.reported(dataset)}
