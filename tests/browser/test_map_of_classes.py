"""The map of the long tail in a browser: the first thing on the page, from typical to memorized, and where it leads."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_runs import run_of, with_data
from sklearn.tree import DecisionTreeRegressor

import memfluence as mf
from memfluence.findings import tail_map
from memfluence.findings.tail_map import column_of

Visit = Callable[..., Any]


def until(page: Any, condition: str) -> None:
    end = time.monotonic() + 15
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(20)


@pytest.fixture(params=["file", "server"])
def url(request: pytest.FixtureRequest, digits: Any) -> str:
    return str(digits.url(request.param))


def names(page: Any) -> list[str]:
    return list(page.locator(".map-name b").all_inner_texts())


def test_rows_are_classes_with_their_share(visit: Visit, url: str, digits: Any) -> None:
    page = visit(url)
    page.wait_for_selector(".map-row")
    scores = digits.run.memorization()
    shares = scores.groupby("label")["memorization"].apply(lambda one: float((one >= 0.25).mean()))
    order = sorted(range(10), key=lambda code: (-shares[code], code))
    assert names(page) == [f"class {code}" for code in order]
    for code, row in zip(order, page.locator(".map-row").all()):
        assert row.locator(".map-share b").inner_text() == f"{100 * shares[code]:.0f}%"
    assert page.locator("main section").first.get_attribute("class") == "card tail"


def test_a_cell_leads_to_its_examples(visit: Visit, url: str, digits: Any) -> None:
    run, page = digits.run, visit(url)
    page.wait_for_selector(".map-cell")
    across = 8  # digits are few, so columns are joined
    scores = run.estimate_memorization()
    column = column_of(scores, across)
    links = page.locator(".map-row [data-cell]").evaluate_all(
        "all => all.map(a => [a.dataset.cell, a.ariaLabel, a.hash])"
    )
    codes = [int(name.split()[-1]) for name in names(page)]
    seen = 0
    for cell, said, hash in links:
        row, at = map(int, cell.split())
        members = np.flatnonzero((run.label_codes[0] == codes[row]) & (column == at))
        seen += len(members)
        assert f": {len(members)} training example" in said
        if len(members) == 1:
            assert hash == f"#/train/{members[0]}"
    assert seen == run.info.n_train
    several = next(k for k, (_, said, _) in enumerate(links) if ": 1 training" not in said and not k)
    count = int(links[several][1].split(": ")[1].split()[0])
    page.locator(".map-row [data-cell]").nth(several).click()
    page.wait_for_selector(".virtual .cell")
    until(page, f"document.querySelector('.found').innerText.startsWith('{count} of')")
    page.go_back()
    page.wait_for_selector(".map-cell")


def test_the_picture_in_a_cell_is_that_of_its_example(visit: Visit, digits: Any) -> None:
    """The map has thumbnails of its own; they show what the galleries show."""
    page = visit(digits.url("server"))
    page.wait_for_selector(".map-cell .picture")
    found = tail_map(digits.run.estimate_memorization(), digits.run.label_codes[0])
    label = page.locator(".map-cell").first.get_attribute("aria-label")
    index = int(label.split("Number ")[1].split()[0])
    place = found.index.tolist().index(index)
    style = page.locator(".map-cell .picture").first.get_attribute("style")
    assert f"map-{place // 16}.webp" in style


def test_choosing_sorting_and_filtering_classes(visit: Visit, url: str) -> None:
    page = visit(url)
    page.wait_for_selector(".map-row")
    page.select_option("#tail-sort", "name")
    until(page, "location.hash.includes('sort=name')")
    assert names(page) == [f"class {code}" for code in range(10)]
    page.locator("#search").fill("class 3, 7")
    until(page, "document.querySelectorAll('.map-row').length === 2")
    assert names(page) == ["class 3", "class 7"]
    assert "2 of 10 classes." in page.locator(".tail-foot").inner_text()
    page.locator("#search").fill("nobody")
    page.get_by_text("No class is called that.").wait_for()
    page.locator("#search").fill("")
    until(page, "document.querySelectorAll('.map-row').length === 10")
    page.locator(".map-name").nth(4).click()
    page.wait_for_selector("#class")
    assert page.locator("#class").input_value() == "4"


def test_keys_walk_through_the_map(visit: Visit, url: str) -> None:
    page = visit(url)
    page.wait_for_selector(".map-cell")
    page.keyboard.press("ArrowDown")  # into the map
    until(page, "document.activeElement.closest('.map') !== null")
    place = "document.activeElement.dataset.place"
    assert page.evaluate(place) == "0 0"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(place) == "0 -1"
    page.keyboard.press("ArrowRight")
    assert page.locator(".near").count() == 1
    assert "memorization" in page.locator(".near").inner_text()
    page.keyboard.press("Escape")
    until(page, "!document.querySelector('.near')")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(place) == "1 0"
    page.keyboard.press("End")
    last = page.evaluate(place)
    assert last.startswith("1 ")
    assert page.locator(f'[data-place="{last}"]').get_attribute("tabindex") == "0"
    assert page.locator('.map [tabindex="0"]').count() == 1
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_selector("#class")


def test_the_map_is_there_before_the_columns_of_all_examples(browser: Any, digits: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    held: list[Any] = []
    page.route("**/train.js", lambda route: held.append(route))
    page.goto(digits.url("server"), wait_until="commit")
    page.wait_for_selector(".map-cell .picture")
    assert page.locator(".stat strong").count() == 4
    assert page.locator(".strip a").count() == 0
    page.goto(f"{digits.url('server')}#/gallery", wait_until="commit")
    page.get_by_text("Loading").wait_for()
    held[0].continue_()
    page.wait_for_selector(".virtual .cell")
    page.keyboard.press("1")
    page.wait_for_selector(".strip a")
    context.close()


def test_the_page_without_its_program(browser: Any, digits: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.route("**/explorer.js", lambda route: route.abort())
    page.goto(digits.url("server"))
    assert page.locator("h1").inner_text() == "What MLP memorizes in digits"
    assert "96 models" in page.locator(".lead").inner_text()
    context.close()


def test_of_many_classes_some_evenly_spread(visit: Visit, make_site: Any, tmp_path: Path) -> None:
    classes = [f"number {k}" for k in range(60)]
    run, *codes = run_of(tmp_path / "a", 300, 60, classes)
    page = visit(
        make_site(with_data(run, (codes[0], codes[1]), classes, np.zeros((300, 2)), np.zeros((60, 2)))).url("file")
    )
    page.wait_for_selector(".map-row")
    page.select_option("#tail-sort", "name")
    until(page, "document.querySelector('.map-name b').innerText === 'number 0'")
    assert len(names(page)) == 10
    assert names(page)[-1] == "number 59"
    assert "10 classes of 60, evenly spread" in page.locator(".tail-foot").inner_text()
    page.get_by_role("button", name="Show all 60").click()
    until(page, "document.querySelectorAll('.map-row').length === 60")
    page.get_by_role("button", name="Show fewer").click()
    until(page, "document.querySelectorAll('.map-row').length === 10")


def test_one_class_is_one_row(visit: Visit, make_site: Any, tmp_path: Path) -> None:
    run, *codes = run_of(tmp_path / "a", 30, 20, ["only"])
    texts = [f"text number {k}" for k in range(30)]
    page = visit(make_site(with_data(run, (codes[0], codes[1]), ["only"], texts, texts[:20])).url("file"))
    page.wait_for_selector(".map-row")
    assert names(page) == ["all examples"]
    assert page.locator(".tail-filter").count() == 0
    assert page.locator(".map-cell .telling").count() == 2  # typical ones, and memorized ones


def test_what_is_not_learned_stands_apart(visit: Visit, make_site: Any, tmp_path: Path) -> None:
    run, *_ = run_of(tmp_path / "a", 40, 20, ["cat", "dog"], wrong=(11, 13, 15))
    page = visit(make_site(run).url("file"))
    page.wait_for_selector(".map-cell.unlearned")
    assert page.locator("a.map-cell.unlearned").count() == 1
    page.locator("a.map-cell.unlearned").click()
    page.wait_for_selector(".virtual .cell")
    until(page, "document.querySelector('.found').innerText.startsWith('3 of 40')")
    page.get_by_role("button", name="Show those that are learned").click()
    until(page, "document.querySelector('.found').innerText.startsWith('20 of 40')")
    page.go_back()
    page.locator('.map-name[data-class="1"]').wait_for()
    first = page.locator('.map-row:has([data-class="1"]) a.map-cell').first
    assert "learned=yes" in first.get_attribute("href")
    first.click()
    page.wait_for_selector(".virtual .cell")
    until(page, "document.querySelector('.found').innerText.startsWith('15 of 40')")


def test_scores_of_a_learners_own(visit: Visit, make_site: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y = 100 * x[:, 0] + rng.normal(size=60)
    data = x[:40], y[:40], x[40:], y[40:]
    run = mf.run(data, learner=DecisionTreeRegressor(), trials=24, out=tmp_path / "run", progress=False)
    page = visit(make_site(run).url("file"))
    page.wait_for_selector(".map-row")
    assert names(page) == ["all examples"]
    assert page.locator(".map-share").count() == 0  # there is no threshold in the unit of a score
    unit = float(page.locator(".map-tick").last.inner_text())
    assert unit >= run.estimate_memorization().value.max()
    stat = page.locator(".stat").nth(2)
    assert "score on test examples" in stat.inner_text()
    assert float(stat.locator("strong").inner_text().replace("−", "-")) == pytest.approx(
        run.recorded("test_score").mean(), abs=0.06
    )
    assert "in those that did" in page.locator(".map-cell").first.get_attribute("aria-label")


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_nothing_of_the_map_overlaps_or_leaves_it(visit: Visit, digits: Any, width: int) -> None:
    page = visit(digits.url("file"))
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_timeout(200)
    boxes = page.locator(".map-row").evaluate_all(
        """all => all.map(row => [row, ...row.querySelectorAll("a, .map-end")].map(
            one => one.getBoundingClientRect().toJSON()))"""
    )
    for row, *inside in boxes:
        for one in inside:
            assert row["left"] - 1 <= one["left"]
            assert one["right"] <= row["right"] + 1
        ordered = sorted(
            (one for one in inside if abs(one["top"] - inside[-1]["top"]) < 30), key=lambda one: one["left"]
        )
        if width > 640:
            assert all(a["right"] <= b["left"] + 1 for a, b in itertools.pairwise(ordered))


def test_pixels_as_squares_where_the_reader_says_so(visit: Visit, url: str) -> None:
    page = visit(url, "gallery")
    page.wait_for_selector(".picture")
    how = "getComputedStyle(document.querySelector('.picture')).imageRendering"
    assert page.evaluate(how) == "auto"
    page.get_by_role("button", name="show pixels as squares").click()
    until(page, f"{how} === 'pixelated'")
    page.reload()
    page.wait_for_selector(".picture")
    assert page.evaluate(how) == "pixelated"  # stays
    page.get_by_role("button", name="show pixels as squares").click()
    until(page, f"{how} === 'auto'")
