"""Examples as a notebook shows them: who they are, what is said about them, who carries whom."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from test_figures import images_of
from tiny_run import N_TEST, N_TRAIN, TRIALS, make_run, trials

import memfluence as mf
from memfluence.datasets import from_arrays
from memfluence.errors import InputError
from memfluence.report import Shown
from memfluence.runs import Run

HOSTILE = "win <b>now</b> & here"


def words(shown: Shown) -> str:
    """The text of the HTML, which is well-formed and fetches nothing."""
    page = shown._repr_html_()
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    return " ".join(" ".join(ET.fromstring(page).itertext()).split())


def with_data(run: Run, x_train: Any, x_test: Any) -> Run:
    """The run, which knows these inputs."""
    train, test = (run.classes[codes] for codes in run.label_codes)
    return Run(run.store, from_arrays(x_train, train, x_test, test))


def test_pairs_stand_beside_who_carries_them(tmp_path: Path) -> None:
    shown = make_run(tmp_path).show_pairs(permutations=0)
    beside = [(row.first.id, [card.id for card in row.others]) for row in shown.rows]
    assert beside == [("0", ["0"]), ("1", ["1"]), ("2", ["4", "6"])]
    assert [line for line in repr(shown).splitlines() if "example 2 " in line or "example 6 " in line] == [
        "training example 2 (cat): memorization 1.00 ± 0.02, right 0% → 100%",
        "  carries test example 6 (cat): influence 1.00 ± 0.02, right 0% → 100%",
    ]
    text = words(shown)
    assert text.startswith("4 pairs of 3 training and 4 test examples. Right: models that are right without → with")
    assert "carries → influence 1.00 ± 0.02 cat right 0% → 100% test 4" in text
    assert "Only numbers are shown, no inputs." in text


def test_as_many_pairs_as_asked_for(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    shown = run.show_pairs(1)
    assert len(shown.rows) == 1
    assert "about 0.4 by chance" in shown.heading
    assert shown.notes[0] == "2 more training examples are in pairs."
    nobody = make_run(tmp_path / "other", test_correct=np.ones((TRIALS, N_TEST), bool))
    assert words(nobody.show_pairs()).startswith("There are no pairs to show.")


def test_more_than_fit_beside_it_are_counted(tmp_path: Path) -> None:
    right = np.ones((TRIALS, N_TEST), bool)
    right[:, 0:14:2] = trials()["mask"][:, :1]  # seven tests of its class hang on example 0
    (row,) = make_run(tmp_path, test_correct=right).show_pairs(permutations=0).rows
    assert (len(row.others), row.more) == (4, 3)
    assert str(row).endswith("\n  and 3 more")
    assert "and 3 more" in row.as_html()


def test_examples_are_shown_by_the_ids_of_tables(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    x_train = pd.DataFrame({"size": np.arange(N_TRAIN) / 4, "colour": HOSTILE}, index=[f"a{k}" for k in range(N_TRAIN)])
    x_test = pd.DataFrame({"size": np.arange(N_TEST) / 4, "colour": "red"}, index=[f"b{k}" for k in range(N_TEST)])
    known = with_data(run, x_train, x_test)
    known.__dict__["ids"] = x_train.index.to_numpy(), x_test.index.to_numpy()
    first, second = known.show(pd.Index(["a1", "a5"])).rows
    assert (first.first.id, [card.id for card in first.others]) == ("a1", ["b1"])
    assert (second.first.id, second.then, second.others) == ("a5", "carries no test example", [])
    assert f"size 0.25 colour {HOSTILE} memorization" in words(known.show("a1"))
    (row,) = known.show("b6", split="test").rows
    assert (row.first.measure, row.then, [card.id for card in row.others]) == ("right", "is carried by", ["a2"])
    (row,) = known.show(index=7, split="test").rows
    assert (row.first.id, row.first.number, row.then) == ("b7", "100%", "hangs on no training example")
    with pytest.raises(InputError, match=r"no training example 'b1' \(split='test' has one\); ids are like 'a0'"):
        known.show("b1")
    with pytest.raises(InputError, match=r"positions from 0 to 39\. Got 40 instead"):
        known.show(index=40)
    with pytest.raises(InputError, match="must be positions"):
        known.show(index=[[0, 1]])
    with pytest.raises(InputError, match="ids are like 0, and"):
        run.show("a1")
    for top in (0, 2.5):
        with pytest.raises(InputError, match="`top` parameter must be an integer >= 1"):
            known.show_pairs(top)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Say which example to show"):
        known.show()
    with pytest.raises(InputError, match="'train' or 'test'"):
        known.show("a1", split="tset")  # type: ignore[arg-type]
    known.__dict__["ids"] = np.full(N_TRAIN, "same"), known.ids[1]
    with pytest.raises(InputError, match="Several are called 'same'"):
        known.show("same")


def test_influence_that_may_be_chance_is_not_shown_and_small_is_dotted(tmp_path: Path) -> None:
    rng, kept = np.random.default_rng(0), trials()["mask"][:, :1]
    right = np.ones((TRIALS, N_TEST), bool)
    right[:, [0]] = kept | (rng.random((TRIALS, 1)) < 0.92)  # an influence of about 0.08
    right[:, 2] = rng.random(TRIALS) < 0.5  # chance
    shown = make_run(tmp_path, test_correct=right).show(0)
    (row,) = shown.rows
    assert [(card.id, card.faint) for card in row.others] == [("0", True)]
    assert shown.heading.endswith("Dotted: influence below 0.15.")
    assert "3px dotted" in row.as_html()


def test_pictures_are_within_the_page(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    shown = Run(run.store, images_of(run)).show_pairs(permutations=0)
    page = shown._repr_html_()
    assert page.count('src="data:image/png;base64,') == 3 + 4
    words(shown)
    large = np.random.default_rng(0).integers(0, 255, (N_TRAIN, 300, 200, 3), np.uint8)
    page = with_data(run, large, large[:N_TEST]).show(0)._repr_html_()
    assert page.count('src="data:image/webp;base64,') == 2
    assert len(page) < 60_000  # small ones, whatever the size of the data


def test_texts_are_cut_and_escaped(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    text = words(with_data(run, [HOSTILE] * N_TRAIN, ["long\n\nstory " * 200] * N_TEST).show(0))
    assert f"{HOSTILE} memorization" in text
    assert re.search(r"carries → long story .{250,330}… influence", text)


def test_what_held_out_models_say_instead(tmp_path: Path) -> None:
    data = mf.datasets.load("longtail?n_train=60&n_test=80&n_classes=3&subpopulations=30&seed=1")
    settings = {"settings": {"epochs": 8}, "trials": 64, "progress": False}
    run = mf.run(data, record=("prediction",), out=tmp_path / "run", **settings)
    first = run.mislabels().iloc[0]
    (row,) = run.show(run.mislabels().index[0]).rows
    said = f"held-out models say class {first.suggestion}: {first.agreement:.0%}"
    assert row.first.more.endswith(said)
    assert said in repr(row.first)
    votes = run.held_out_votes()
    agreed = np.flatnonzero((votes.max(axis=1) == votes.sum(axis=1)) & (votes.argmax(axis=1) == run.label_codes[0]))
    assert "held-out models say" not in repr(run.show(index=agreed[0]))  # nobody says anything else


def test_the_histogram_is_a_figure_that_notebooks_show(tmp_path: Path) -> None:
    figure = make_run(tmp_path).plot()
    png, size = figure._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert size == {"width": 550}  # the height follows: the caption is below
    figure.axes[0].set_title("changed")
    assert figure._repr_png_()[0] != png


def test_scores_of_a_regressor_are_shown_with_their_targets(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"size": rng.normal(size=90)}, index=range(100, 190))
    y = x["size"] * 3 + rng.normal(0, 0.1, 90)
    y.loc[107] = 50.0
    data = (x[:60], y[:60], x[60:], y[60:])
    run = mf.run(data, learner=LinearRegression(), trials=60, out=tmp_path / "run", progress=False)
    shown = run.show(107)
    assert shown.heading == "Mean scores are those of models without → with the training example."
    card = shown.rows[0].first
    assert (card.id, card.label) == ("107", "target 50.0")
    scores = run.memorization().loc[107]
    assert card.more == f"mean score −{-scores.mean_out:.2f} → −{-scores.mean_in:.2f}"
    assert f"size {x['size'][107]:.4g}".replace("-", "−") in words(shown)
    (row,) = run.show(170, split="test").rows
    assert row.first.measure == "mean score"
    assert row.first.number == f"{run.recorded('test_score')[:, 10].mean():.2f}".replace("-", "−")
    assert not any(card.faint for card in row.others)
    assert "mean score" in words(run.show_pairs(2))
    figure = run.plot()
    assert figure.axes[0].get_xlabel() == "memorization, in the unit of the score"
    assert figure._repr_png_()[0].startswith(b"\x89PNG")


def test_small_scores_show_their_digits(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = 1e-4 * (x[:, 0] + rng.normal(size=60))
    run = mf.run((x[:40], y[:40], x[40:], y[40:]), learner=LinearRegression(), trials=30, out=tmp_path, progress=False)
    card = run.show(index=0).rows[0].first
    scores = run.estimate_memorization()
    before, after = re.findall(r"0\.0*\d\d", card.more)
    assert float(before) == pytest.approx(-scores.mean_out[0], rel=0.1)
    assert float(after) == pytest.approx(-scores.mean_in[0], rel=0.1)
