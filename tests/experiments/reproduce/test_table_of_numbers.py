"""Rows of the table: the paper's number, ours, its spread and its n, and one sentence where ours is missing."""

from dataclasses import replace

import pandas as pd

from experiments.reproduce.test_setting import FACTS
from memfluence.experiments import Result
from memfluence.experiments.reproduce._report import as_markdown, in_words, rows_of, sides_in_words


def test_a_share_below_the_own_threshold_is_left_out() -> None:
    results = {"histogram": Result("histogram", "", {"pairs": 90, "share_below_strong": 0.0}, pd.DataFrame(), {})}
    rows = {row["name"]: row for row in rows_of("cifar100", results, {}, replace(FACTS, infl=0.4))}
    assert rows["histogram.share_below_strong"]["ours"] is None
    assert rows["histogram.share_below_strong"]["reasons"] == {"missing": "All of ours were selected from 0.4 on."}
    assert sides_in_words(rows["histogram.pairs"]) == ("1,015", "90 (influence >= 0.4)")


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
    assert "run.mem" not in rows  # a setting
    lines = as_markdown(list(rows.values()), "cifar100", FACTS)
    settings = "network, recipe, trials, chance"
    assert f"| pairs selected | Sec. 3.3 | 1,015 | 6,514 ± 90 (se) | 250 | higher | {settings} |" in lines
    assert f"| test examples in these pairs | Sec. 3.3 | 888 | 800 | 250 | lower (no spread) | {settings} |" in lines
    assert sum(line.startswith("| ") for line in lines) == 1 + 3  # rows without a number of ours stand elsewhere
    assert (
        "- **chance**: permuted masks alone give 4,722 pairs where ours give 6,514 (tested: part histogram)." in lines
    )


def test_rows_of_imagenet_alone_say_what_differs_from_it() -> None:
    memorized = {"share": 0.316, "cost": {"mean": 0.0546, "sd": 0.0025, "stderr": 0.0011, "n": 5}}
    results = {"removal": Result("removal", "", {"memorized": memorized}, pd.DataFrame(), {})}
    rows = rows_of("cifar100", results, {}, FACTS)
    lines = as_markdown(rows, "cifar100", FACTS)
    assert any(line.startswith("| test accuracy lost by removing them | Sec. 1.1 | about 3.40% (Im") for line in lines)
    assert "differs from ours in data (CIFAR-100, not ImageNet); size (50,000 to train on" in lines[-1]
    assert {row["of"] for row in rows_of("imagenet", results, {}, FACTS)} == {"imagenet"}
    assert len(rows_of("imagenet", results, {}, FACTS)) == 14 - 3  # each once; the other three are settings


def test_numbers_in_words() -> None:
    assert in_words("utility.test.accuracy", 0.7606, 0.0028) == "76.06% ± 0.28"
    assert in_words("utility.test.difference", 0.0254) == "2.54%"
    assert in_words("histogram.pairs", 1015) == "1,015"
    assert in_words("consistency.lines.0.same_class.0.first", 1062.4, 12.1) == "1,062 ± 12"
    assert in_words("consistency.lines.0.any_class.1.difference", 0.015) == "0.015"
    assert in_words("consistency.lines.0.same_class.0.jaccard", 0.7, float("nan")) == "0.7"
