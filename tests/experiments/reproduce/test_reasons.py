"""Reasons follow from facts; the table has the paper's number, ours, its spread and its n."""

from dataclasses import replace

import pandas as pd
import pytest

from memfluence import paper
from memfluence.experiments import Result
from memfluence.experiments.reproduce._report import (
    RULES,
    Facts,
    as_markdown,
    difference,
    in_words,
    reasons,
    rows_of,
    sides_in_words,
    thresholds_of_ours,
)
from memfluence.experiments.reproduce._subjects import subject_of
from memfluence.paper import Reported

FACTS = Facts(
    subject_of("cifar100"), "cifar100", 50_000, "resnet9@fast", 0.7, 250, 0.728,
    pairs=6514, chance=4722.0, trials_each=125, chance_jaccard=0.01, linear_models=1000, linear_chance=3.0,
)  # fmt: skip


def number(value: float, **given: object) -> Reported:
    return Reported("histogram.pairs", value, "pairs selected", "Sec. 3.3", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "found", "expected"),
    [
        (number(100), {"mean": 104}, "same"),
        (number(100), {"mean": 106}, "higher"),
        (number(100, spread=3.0), {"mean": 104, "sd": 4.0}, "same"),  # within hypot(3, 4)
        (number(100, spread=3.0), {"mean": 94, "sd": 4.0}, "lower"),
        (number(100), {"mean": 109, "stderr": 10.0}, "same"),
        (number(100), {"mean": 121, "sd": 99.0, "stderr": 10.0, "n": 98}, "higher"),  # two standard errors
        (number(100, spread=30.0, runs=9), {"mean": 121, "stderr": 10.0}, "same"),  # hypot(10, 30 / 3)
        (number(2.38, spread=0.17, runs=100), {"mean": 2.18, "sd": 0.18, "stderr": 0.04, "n": 20}, "lower"),
        (replace(number(0.7), name="consistency.x"), {"mean": 0.75, "sd": 0.06, "stderr": 0.01, "n": 5}, "same"),
        (number(0.7, bound="at least"), {"mean": 0.9}, "same"),
        (number(0.7, bound="at least"), {"mean": 0.5}, "lower"),
        (number(0.015, bound="less than"), {"mean": 0.01}, "same"),
        (number(0.015, bound="less than"), {"mean": 0.02}, "higher"),
        (number(0.8, bound="more than"), {"mean": 0.81, "sd": 0.001}, "same"),
        (number(0.82, bound="about"), {"mean": 0.80, "sd": 0.001}, "same"),
        (number(100, spread=float("nan")), {"mean": 104, "sd": None}, "same"),
    ],
)
def test_what_counts_as_a_difference(one: Reported, found: dict[str, float], expected: str) -> None:
    assert difference(one, found) == expected


def test_reasons_are_the_facts_that_hold() -> None:
    pairs = paper.reported("cifar100")["histogram.pairs"]
    assert reasons(pairs, {"mean": 6514}, FACTS) == {
        "network": "ours is resnet9@fast, with a test accuracy of 72.8% on 70%, not ResNet-50 with 72.3%",
        "trials": "250 trials, not 4,000: estimates have standard errors of up to 0.069",
        "chance": "permuted masks alone give 4,722 pairs where ours give 6,514",
    }
    assert reasons(pairs, {"mean": 1015}, FACTS) == {}
    many = replace(FACTS, trials=4000, chance=3.0)
    assert list(reasons(pairs, {"mean": 6514}, many)) == ["network"]
    digits = replace(many, subject=subject_of("digits"), n_train=600)
    assert reasons(pairs, {"mean": 50}, digits)["data"] == "ours are digits, with 600 training examples, not CIFAR-100"
    strict = reasons(pairs, {"mean": 50}, replace(many, infl=0.3))["thresholds"]
    assert strict == "pairs with a memorization >= 0.25 and an influence >= 0.3, not 0.25 and 0.15"
    halves = paper.reported("cifar100")["consistency.lines.0.same_class.0.jaccard"]
    why = reasons(halves, {"mean": 0.1}, FACTS)["halves"]
    assert why == "halves of 125 trials, not 2,000, and permuted masks give a Jaccard index of 0.01"
    linear = paper.reported("cifar100")["last-layer.linear.memorized"]
    why = reasons(linear, {"mean": 900}, FACTS)["linear"]
    assert why == "1,000 linear models, not 4,000, of whose pairs 3 are chance"


def test_reasons_are_about_the_paper_s_own_data() -> None:
    cost = paper.reported("imagenet")["removal.memorized.cost"]
    digits = replace(FACTS, subject=subject_of("mnist"), of="imagenet", trials=2000)
    why = reasons(cost, {"mean": 0.5}, digits)
    assert "trials" not in why  # ImageNet had no more
    assert why["network"].endswith("not ResNet-50")
    assert reasons(cost, {"mean": 0.5}, replace(digits, trials=250))["trials"].startswith("250 trials, not 2,000")


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
        words = {"thresholds", "influence", "memorized"} & set(reasons(theirs[name], {"mean": 1e9}, facts))
        assert bool(words) == bool(at) or theirs[name].bound, name
    assert thresholds_of_ours(theirs["run.memorized"], replace(FACTS, mem=0.5)) == "memorization >= 0.5"
    both = replace(FACTS, mem=0.5, infl=0.3)
    assert thresholds_of_ours(theirs["histogram.pairs"], both) == "memorization >= 0.5, influence >= 0.3"


def test_a_share_below_the_own_threshold_is_left_out() -> None:
    results = {"histogram": Result("histogram", "", {"pairs": 90, "share_below_strong": 0.0}, pd.DataFrame(), {})}
    rows = {row["name"]: row for row in rows_of("cifar100", results, {}, replace(FACTS, infl=0.4))}
    assert rows["histogram.share_below_strong"]["ours"] is None
    assert rows["histogram.share_below_strong"]["reasons"] == {"missing": "All of ours were selected from 0.4 on."}
    assert sides_in_words(rows["histogram.pairs"]) == ("1,015", "90 (influence >= 0.4)")


def test_every_number_of_the_paper_has_rules() -> None:
    for dataset in paper.DATASETS:
        for name in paper.reported(dataset):
            assert any(name.startswith(prefix) for prefix, _ in RULES), name


def test_rows_have_numbers_or_one_sentence() -> None:
    numbers = {"pairs": 6514, "pairs_stderr": 90.0, "test_examples": 800, "test_share": 0.08}
    results = {"histogram": Result("histogram", "", numbers, pd.DataFrame(), {})}
    rows = {row["name"]: row for row in rows_of("cifar100", results, {"utility": "No pairs."}, FACTS)}
    assert rows["histogram.pairs"]["ours"] == {"mean": 6514, "stderr": 90.0, "n": 250}
    assert rows["histogram.pairs"]["difference"] == "higher"
    assert rows["histogram.single_test_examples"]["reasons"] == {"missing": "It could not be estimated."}
    assert rows["utility.test.accuracy"]["reasons"] == {"missing": "No pairs."}
    assert rows["last-layer.linear.memorized"]["reasons"] == {"missing": "It was not asked for."}
    assert rows["removal.memorized.share"]["of"] == "imagenet"  # the only data for which the paper says it
    assert "run.mem" not in rows  # chosen, not found
    lines = as_markdown(list(rows.values()), "cifar100")
    wanted = "| pairs selected | Sec. 3.3 | 1,015 | 6,514 ± 90 (se) | 250 | higher: network, trials, chance |"
    assert wanted in lines
    assert sum(line.startswith("| ") for line in lines) == 1 + 3  # rows without a number of ours stand elsewhere
    assert "- **chance**: permuted masks alone give 4,722 pairs where ours give 6,514." in lines


def test_numbers_in_words() -> None:
    assert in_words("utility.test.accuracy", 0.7606, 0.0028) == "76.06% ± 0.28"
    assert in_words("utility.test.difference", 0.0254) == "2.54%"
    assert in_words("histogram.pairs", 1015) == "1,015"
    assert in_words("consistency.lines.0.same_class.0.first", 1062.4, 12.1) == "1,062 ± 12"
    assert in_words("consistency.lines.0.any_class.1.difference", 0.015) == "0.015"
    assert in_words("consistency.lines.0.same_class.0.jaccard", 0.7, float("nan")) == "0.7"
