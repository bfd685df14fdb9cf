"""The explorer in a browser, from the disk and from the server: what people do with it."""

import csv
import itertools
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_runs import run_of
from sklearn.neighbors import KNeighborsRegressor

import memfluence as mf

Visit = Callable[..., Any]


@pytest.fixture(params=["file", "server"])
def url(request: pytest.FixtureRequest, digits: Any) -> str:
    return str(digits.url(request.param))


@pytest.fixture
def scores(digits: Any) -> Any:
    return digits.run.memorization().set_index("index")


def shown(page: Any) -> list[str]:
    """The examples that are on the screen or about to be, in order."""
    cells = page.locator(".virtual .cell")
    found = cells.evaluate_all(
        "all => all.map(c => [+c.dataset.position, c.querySelector('[data-example]').dataset.example])"
    )
    return [name for _, name in sorted(found)]


def until(page: Any, condition: str) -> None:
    """Wait for an expression to be true; Playwright's own waiting needs eval, which the page forbids."""
    end = time.monotonic() + 15
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(20)


def status(page: Any) -> str:
    return str(page.locator(".found").inner_text())


def gallery_order(digits: Any, scores: Any) -> np.ndarray:
    """Most memorized first; ties to what is surer, then to the highest influence on a test example of the class."""
    influence = digits.run.influence()
    same = digits.run.label_codes[0][:, None] == digits.run.label_codes[1]
    strongest = np.where(same, influence, -1).max(axis=1)
    strongest = np.where(strongest > 0, np.floor(strongest * 10_000 + 1e-6), -32768)
    keys = (scores[name].to_numpy() * 10_000 for name in ("memorization", "stderr"))
    memorization, stderr = (np.floor(one + 1e-6) for one in keys)
    return np.lexsort((np.arange(len(scores)), -strongest, stderr, -memorization))


def test_overview(visit: Visit, url: str, digits: Any, scores: Any) -> None:
    page = visit(url)
    assert page.locator("h1").inner_text() == "What MLP memorizes in digits"
    memorized = int((scores["memorization"] >= 0.25).sum())
    assert page.locator(".stat strong").first.inner_text() == str(memorized)
    assert f"{memorized} memorized" in page.locator(".histogram svg").text_content()
    page.wait_for_selector(".strip a")
    assert page.locator(".strip a").count() == 32
    for strip in page.locator(".strip").all():  # one of each class before a second one
        names = strip.locator(".name").all_inner_texts()
        assert len(set(names[:10])) == 10
    believed = digits.run.find_pairs(fdr=0.1)
    assert page.locator(".stat strong").nth(1).inner_text() == str(believed.summary["test_examples"])
    assert f"See all {len(believed)} pairs" in page.locator("main").inner_text()
    loaded = page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name.split('/').pop())")
    assert not any(name.startswith(("train-0.js", "test-0.js", "mislabels")) for name in loaded)  # only what is shown


def test_bar_of_the_histogram_leads_to_its_examples(visit: Visit, url: str) -> None:
    page = visit(url)
    bar = page.locator(".histogram a").last
    count = int(bar.get_attribute("aria-label").split(": ")[1].split()[0])
    bar.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".virtual .cell")
    assert status(page) == f"{count} of 600"


def test_gallery_filters_and_sorts(visit: Visit, url: str, digits: Any, scores: Any) -> None:
    page = visit(url, "gallery")
    page.wait_for_selector(".virtual .cell")
    order = gallery_order(digits, scores)
    expected = [f"train-{index}" for index in order]
    assert shown(page) == expected[: len(shown(page))]
    page.select_option("#class", label="class 3")
    threes = np.flatnonzero(scores["label"] == 3)
    until(page, f"document.querySelector('.found').innerText.startsWith('{len(threes)} ')")
    assert shown(page)[0] == f"train-{next(index for index in order if index in threes)}"
    page.select_option("#sort", "uncertain")
    first = threes[np.argmax(np.floor(scores["stderr"][threes] * 10_000))]
    until(page, f"document.querySelector('[data-position=\"0\"] a').dataset.example === 'train-{first}'")
    page.locator("#min").fill("0.5")
    several = int((scores["memorization"][threes] >= 0.5).sum())
    until(page, f"document.querySelector('.found').innerText.startsWith('{several} ')")
    until(page, "location.hash === '#/gallery?class=3&sort=uncertain&min=0.5'")
    page.locator("#search").fill("#17")
    until(page, "document.querySelector('.found').innerText.startsWith('0 ')")
    page.select_option("#class", "")
    page.locator("#min").fill("-1")
    until(page, "document.querySelector('.found').innerText.startsWith('1 ')")
    assert shown(page) == ["train-17"]
    page.locator("#search").fill("class 8")
    eights = int((scores["label"] == 8).sum())
    until(page, f"document.querySelector('.found').innerText.startsWith('{eights} ')")


def test_gallery_of_test_examples(visit: Visit, url: str, digits: Any) -> None:
    page = visit(url, "gallery")
    page.get_by_role("button", name="Test").click()
    page.select_option("#sort", "hard")
    page.wait_for_selector("[data-example^=test]")
    right = np.array([digits.run.trials.test_correct[:, k >> 3] >> (k & 7) & 1 for k in range(1197)]).mean(axis=1)
    assert shown(page)[0] == f"test-{np.argmin(np.floor(right * 10_000))}"
    assert status(page) == "1,197 of 1,197"


def test_the_end_of_a_long_gallery(visit: Visit, url: str, digits: Any, scores: Any) -> None:
    page = visit(url, "gallery")
    page.wait_for_selector(".virtual .cell")
    assert page.locator(".cell").count() < 200
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    page.wait_for_selector('[data-position="599"]')
    order = gallery_order(digits, scores)
    assert shown(page)[-1] == f"train-{order[-1]}"
    assert page.locator(".cell").count() < 200


def test_example_with_its_scores_and_back_to_the_same_place(visit: Visit, url: str, digits: Any, scores: Any) -> None:
    page = visit(url, "gallery?sort=index")
    page.wait_for_selector(".virtual .cell")
    page.evaluate("window.scrollTo(0, 1500)")
    page.wait_for_selector('[data-example="train-120"]')
    page.locator('[data-example="train-120"]').click()
    page.wait_for_selector(".portrait")
    row = scores.iloc[120]
    assert page.locator(".kicker").inner_text() == "training example 120"
    assert page.locator("h1").inner_text() == f"class {int(row['label'])}"
    page.wait_for_selector(".influences")
    text = page.locator(".facts").inner_text()
    assert f"{np.floor(row['memorization'] * 1e4) / 1e4 + 0.0:.2f}" in text
    assert f"{int(row['trials_out'])} models" in text
    assert "What models say that never saw it" in text
    assert page.locator(".reading").inner_text().startswith("Models ")
    ticks = page.locator(".score + .interval small").all_inner_texts()
    assert ticks == ["0", "0.25", "1"]
    best = digits.run.influence(train=120)[0]
    same = np.flatnonzero(digits.run.label_codes[1] == digits.run.label_codes[0][120])
    strongest = same[np.argsort(-best[same], kind="stable")[:8]]
    first = page.locator(".influences").first.locator("[data-example]")
    assert first.evaluate_all("all => all.map(a => a.dataset.example)") == [f"test-{index}" for index in strongest]
    page.go_back()
    page.wait_for_selector('[data-example="train-120"]')
    until(page, "window.scrollY > 1400")


def test_tabs_are_told_apart_by_class_and_id(visit: Visit, url: str, digits: Any) -> None:
    page = visit(url, "train/17")
    label, name = int(digits.run.label_codes[0][17]), digits.run.ids[0][17]
    until(page, f"document.title.startsWith('class {label}, train {name} – ')")
    page.goto(f"{url}#/test/3")
    label, name = int(digits.run.label_codes[1][3]), digits.run.ids[1][3]
    until(page, f"document.title.startsWith('class {label}, test {name} – ')")
    page.keyboard.press("2")
    until(page, "document.title.startsWith('Examples – ')")


def test_a_low_window_keeps_its_room(visit: Visit, url: str) -> None:
    """Such as one at 200% zoom: bars that stay would cover most of it."""
    page = visit(url, "gallery")
    page.set_viewport_size({"width": 720, "height": 450})
    page.wait_for_selector(".virtual .cell")
    page.evaluate("window.scrollTo(0, 900)")
    until(page, "document.querySelector('.filters').getBoundingClientRect().bottom < 0")
    assert page.evaluate("document.querySelector('.topbar').getBoundingClientRect().bottom") < 0


def test_following_a_pair_from_train_to_test_and_back(visit: Visit, url: str, digits: Any) -> None:
    pairs = digits.run.find_pairs(fdr=0.1)
    page = visit(url, "pairs")
    page.wait_for_selector(".group")
    assert status(page).startswith(f"{len(pairs)} pairs")
    train, test = int(pairs.train_index[0]), int(pairs.test_index[0])
    group = page.locator(".group").first
    assert group.locator("[data-example]").first.get_attribute("data-example") == f"train-{train}"
    group.locator(f'[data-example="test-{test}"]').click()
    page.wait_for_selector(".portrait")
    assert page.url.endswith(f"#/test/{test}")
    assert page.locator(".kicker").inner_text() == f"test example {test}"
    page.locator(f'.influences [data-example="train-{train}"]').click()
    until(page, f"location.hash === '#/train/{train}'")
    until(page, f"document.querySelector('.kicker').innerText === 'training example {train}'")


def test_pairs_above_a_higher_influence(visit: Visit, url: str, digits: Any) -> None:
    page = visit(url, "pairs")
    page.locator("input[type=range]").fill("0.5")
    count = int((digits.run.find_pairs(fdr=0.1).influence >= 0.5).sum())
    until(page, f"document.querySelector('.found').innerText.startsWith('{count} pair')")
    until(page, "location.hash.includes('min=0.5')")


def test_found_against_chance(visit: Visit, url: str, digits: Any) -> None:
    pairs, believed = digits.run.find_pairs(), digits.run.find_pairs(fdr=0.1)
    page = visit(url, "pairs?show=all")
    page.wait_for_selector(".group")
    assert status(page).startswith(f"{len(pairs)} pairs")
    assert page.locator("input[type=range]").get_attribute("min") == "0.15"
    chart = page.locator(".against svg").bounding_box()

    def at(threshold: float) -> float:
        return float(chart["x"] + 52 + threshold * (chart["width"] - 72))

    middle = chart["y"] + 100
    page.mouse.move(at(0.15), middle)
    page.mouse.down()
    page.mouse.move(at(0.25), middle, steps=4)
    page.mouse.move(at(0.3), middle, steps=4)
    page.mouse.up()
    until(page, "location.hash.includes('min=0.3')")
    found, sure = (int((one.influence >= 0.3).sum()) for one in (pairs, believed))
    until(page, f"document.querySelector('.found').innerText.startsWith('{found} pair')")
    said = page.locator("main .hint").inner_text()
    assert said.startswith(f"Influence 0.30 or above: {found} found, about ")
    assert said.endswith(f"by chance, {sure} believed.")
    assert said in page.locator(".against svg").get_attribute("aria-label")
    page.mouse.click(at(0.6), middle)
    until(page, "location.hash.includes('min=0.6')")
    page.get_by_role("button", name="believed").click()
    until(page, f"document.querySelector('.found').innerText.startsWith('{len(believed)} pair')")
    assert page.locator("input[type=range]").input_value() == "0"


def test_where_nothing_is_believed_that_is_said(visit: Visit, make_site: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    right = rng.random((60, 40)) < 0.6
    run, *_ = run_of(tmp_path / "a", 40, 40, ["cat", "dog"], test_correct=right)
    assert len(run.find_pairs()) > 0
    page = visit(make_site(run).url("file"))
    page.get_by_text("No pair can be told from chance yet").wait_for()
    assert page.locator(".stat strong").nth(1).inner_text() == "0"
    page.keyboard.press("3")
    page.get_by_text("can be told from chance at a false discovery rate of 10%").wait_for()
    page.get_by_role("button", name="all found").click()
    page.wait_for_selector(".group")
    assert status(page).startswith(f"{len(run.find_pairs())} pair")


def test_a_regression(visit: Visit, make_site: Any, tmp_path: Path) -> None:
    """Mean scores in place of accuracies, pairs that are believed, and unlikely targets."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(160, 2))
    y = 100 * x[:, 0] + rng.normal(size=160)
    y[[4, 9, 70]] += 300
    data, out = (x[:110], y[:110], x[110:], y[110:]), tmp_path / "run"
    run = mf.run(data, learner=KNeighborsRegressor(3), trials=60, out=out, progress=False)
    url = make_site(run).url("file")
    page = visit(url)
    assert "a score of its own for each example" in page.locator(".notice").first.inner_text()
    assert page.get_by_text("score on test examples").count() == 1
    assert page.get_by_text("test accuracy").count() == 0
    said = page.locator("main").inner_text()
    assert "NaN" not in said
    assert re.search(r"A pair is a memorized training example and a test example; there are [\d,]+\. \d+ pairs", said)
    assert "E[score of i" in said
    page = visit(url, "mislabels")
    page.wait_for_selector(".virtual .cell")
    assert {"train-4", "train-9", "train-70"} <= set(shown(page))
    page = visit(url, "pairs")
    page.wait_for_selector(".group")
    assert status(page).startswith(f"{len(run.find_pairs())} pair")
    page.get_by_role("button", name="all found").click()
    assert "NaN" not in page.locator("main").inner_text()
    page = visit(url, "train/4")
    page.get_by_text("−").first.wait_for()


def test_lists_call_examples_by_their_ids(visit: Visit, url: str, digits: Any) -> None:
    train, test = (ids.tolist() for ids in digits.run.ids)  # rows of scikit-learn's table, not positions
    first = digits.run.mislabels()["index"].iloc[0]
    assert train[first] != first
    page = visit(url, "mislabels")
    until(page, f"document.querySelector('.verdict .soft bdi').innerText === '{train[first]}'")
    page = visit(url, "pairs")
    pair = digits.run.find_pairs(fdr=0.1)
    until(page, f"document.querySelector('main bdi').innerText === '{train[pair.train_index[0]]}'")
    assert str(test[pair.test_index[0]]) in page.locator("main bdi").all_inner_texts()
    page = visit(url, f"train/{first}")
    until(page, f"document.querySelector('.id').innerText === 'id {train[first]}'")


def test_marking_mislabels_and_the_files_of_the_decisions(visit: Visit, url: str, digits: Any, tmp_path: Path) -> None:
    page = visit(url, "mislabels")
    page.wait_for_selector(".verdict")
    found = digits.run.find_mislabels()
    cards = page.locator(".verdict")
    assert cards.first.get_attribute("data-key") == str(found.index[0])
    assert page.get_by_role("button", name="Download CSV").is_disabled()
    cards.nth(0).get_by_role("button", name="wrong").click()
    cards.nth(1).get_by_role("button", name="fine").click()
    cards.nth(2).get_by_role("button", name="wrong").focus()
    page.keyboard.press("y")
    until(page, "document.querySelector('.found').innerText.startsWith('3 of')")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download CSV").click()
    waiting.value.save_as(tmp_path / "decisions.csv")
    rows = list(csv.DictReader((tmp_path / "decisions.csv").open(newline="")))
    assert [(int(row["index"]), row["decision"]) for row in rows] == [
        (int(index), decision) for index, decision in zip(found.index, ("wrong", "fine", "wrong"))
    ]
    classes = digits.run.classes
    assert [row["label"] for row in rows] == [str(classes[code]) for code in found.label[:3]]
    assert [row["suggestion"] for row in rows] == [str(classes[code]) for code in found.agreement.suggestion[:3]]
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download JSON").click()
    waiting.value.save_as(tmp_path / "decisions.json")
    listed = json.loads((tmp_path / "decisions.json").read_text())
    assert [row["index"] for row in listed] == [int(index) for index in found.index[:3]]
    assert listed[0]["accuracy_out"] == pytest.approx(float(found.accuracy_out[0]), abs=1e-4)
    page.reload()  # decisions stay
    until(page, "document.querySelector('.found')?.innerText.startsWith('3 of')")
    page.get_by_role("button", name="undecided").click()
    until(page, f"document.querySelector('.verdict').dataset.key === '{found.index[3]}'")


def test_decisions_faster_than_the_page_is_drawn(visit: Visit, url: str) -> None:
    page = visit(url, "mislabels")
    page.wait_for_selector(".verdict")
    page.evaluate(
        """() => {
            const cards = [...document.querySelectorAll(".verdict")].slice(0, 3);
            for (const card of cards) card.querySelector("button").click();
        }"""
    )
    until(page, "document.querySelector('.found').innerText.startsWith('3 of')")


def test_two_tabs_decide_together(visit: Visit, url: str) -> None:
    page = visit(url, "mislabels")
    page.locator(".verdict button").first.click()
    until(page, "document.querySelector('.found').innerText.startsWith('1 of')")
    other = page.context.new_page()
    other.goto(f"{url}#/mislabels")
    until(other, "document.querySelector('.found')?.innerText.startsWith('1 of')")
    page.locator(".verdict").nth(1).get_by_role("button", name="fine").click()
    until(other, "document.querySelector('.found').innerText.startsWith('2 of')")
    other.locator(".verdict").nth(2).get_by_role("button", name="fine").click()
    until(page, "document.querySelector('.found').innerText.startsWith('3 of')")


def test_y_and_n_are_about_the_entry_that_has_the_focus(visit: Visit, url: str) -> None:
    page = visit(url, "mislabels?show=open")
    page.wait_for_selector(".verdict")
    page.keyboard.press("n")  # none has it
    page.keyboard.press("y")
    assert status(page).startswith("0 of")
    keys = page.locator(".verdict").evaluate_all("all => all.map(card => card.dataset.key)")
    page.locator(".verdict button").nth(2).focus()  # of the second entry
    for key in keys[1:4]:  # decided ones leave the list, and the next one takes their place and the focus
        until(page, f"document.activeElement.closest('.verdict')?.dataset.key === '{key}'")
        page.keyboard.press("y")
    until(page, "document.querySelector('.found').innerText.startsWith('3 of')")


def test_duplicates_to_look_through(visit: Visit, url: str, digits: Any) -> None:
    found = digits.run.find_duplicates()
    assert len(found) > 0
    page = visit(url, "duplicates")
    page.wait_for_selector(".verdict")
    first = page.locator(".verdict").first
    assert first.get_attribute("data-key") == f"{found.train_index[0]}-{found.test_index[0]}"
    first.get_by_role("button", name="duplicate").click()
    until(page, "document.querySelector('.found').innerText.startsWith('1 of')")


def test_table_of_classes(visit: Visit, url: str, scores: Any) -> None:
    page = visit(url, "classes")
    page.wait_for_selector(".class-row[data-class]")
    means = scores.groupby("label")["memorization"].mean()
    rows = page.locator("a.class-row")
    assert rows.count() == 10
    for row in rows.all():
        code = int(row.get_attribute("data-class"))
        value = float(row.locator(".memorization").get_attribute("data-value"))
        assert value == pytest.approx(means[code], abs=1e-4)
    assert int(rows.first.get_attribute("data-class")) == means.idxmax()
    page.get_by_role("button", name="Sort by mean memorization").click()
    until(page, f"document.querySelector('a.class-row').dataset.class === '{means.idxmin()}'")
    rows.first.click()
    page.wait_for_selector("#class")
    assert page.locator("#class").input_value() == str(means.idxmin())


@pytest.mark.parametrize(
    ("view", "heading"),
    [
        ("", "What MLP memorizes in digits"),
        ("gallery?class=3&min=0.25&sort=influence", "Examples"),
        ("train/17", "class"),
        ("test/1196", "class"),
        ("train/600", "No such example"),
        ("train/x", "No such example"),
        ("pairs?class=3", "Pairs"),
        ("mislabels", "Likely mislabels"),
        ("duplicates?show=open", "Near-duplicates"),
        ("classes?sort=pairs&order=up", "Classes"),
        ("%E0%A4%A", "What MLP memorizes in digits"),
    ],
)
def test_every_view_has_a_link(visit: Visit, url: str, view: str, heading: str) -> None:
    page = visit(url, view)
    until(page, f"document.querySelector('h1').innerText.startsWith({json.dumps(heading)})")
    if view.startswith("gallery"):
        assert page.locator("#class").input_value() == "3"
        assert page.locator("#sort").input_value() == "influence"


def test_keyboard(visit: Visit, url: str) -> None:
    page = visit(url)
    page.keyboard.press("2")
    page.wait_for_selector(".virtual .cell")
    names = shown(page)
    page.keyboard.press("ArrowDown")  # into the gallery
    until(page, "document.activeElement.dataset.example !== undefined")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    until(page, f"document.activeElement.dataset.example === '{names[2]}'")
    page.keyboard.press("End")
    until(page, "document.activeElement.closest('[data-position]')?.dataset.position === '599'")
    page.keyboard.press("Home")
    until(page, f"document.activeElement.dataset.example === '{names[0]}'")
    page.keyboard.press("Enter")
    page.wait_for_selector(".portrait")
    page.keyboard.press("j")
    until(page, f"location.hash === '#/{names[1].replace('-', '/')}'")
    page.keyboard.press("k")
    until(page, f"location.hash === '#/{names[0].replace('-', '/')}'")
    page.keyboard.press("Escape")
    page.wait_for_selector("#search")
    page.keyboard.press("/")
    until(page, "document.activeElement.id === 'search'")
    page.keyboard.type("3t?")  # letters are text here, not keys
    assert page.locator("#search").input_value() == "3t?"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    page.keyboard.press("6")
    page.wait_for_selector(".classes")


def test_letters_are_no_shortcuts_where_the_reader_says_so(visit: Visit, url: str) -> None:
    page = visit(url, "train/17")
    page.wait_for_selector(".portrait")
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("are shortcuts").uncheck()
    page.get_by_role("button", name="Close").click()
    for key in ("2", "t", "?", "j", "/"):
        page.keyboard.press(key)
    assert page.evaluate("location.hash") == "#/train/17"
    assert page.locator("dialog[open]").count() == 0
    page.reload()
    page.wait_for_selector(".portrait")
    page.keyboard.press("2")
    page.keyboard.press("ArrowRight")  # is no letter
    until(page, "location.hash.startsWith('#/train/') && location.hash !== '#/train/17'")
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("are shortcuts").check()
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    page.keyboard.press("2")
    page.wait_for_selector("#search")


def test_keys_faster_than_the_browser_tells_of_links(visit: Visit, url: str) -> None:
    page = visit(url, "train/17")
    page.wait_for_selector(".portrait")
    reached = page.evaluate(
        """() => [..."jjkj"].map(key => {
            document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
            return location.hash;
        })"""
    )
    assert reached[0] == reached[2] != "#/train/17"
    assert reached[1] == reached[3] != reached[0]


def test_dark_and_light(visit: Visit, url: str) -> None:
    background = "getComputedStyle(document.documentElement).backgroundColor"
    light, dark = (visit(url, color_scheme=scheme) for scheme in ("light", "dark"))
    until(light, f"{background} !== '{dark.evaluate(background)}'")
    wanted = dark.evaluate(background)
    light.keyboard.press("t")
    until(light, f"{background} === '{wanted}'")
    light.reload()
    light.wait_for_selector("main h1")
    until(light, f"{background} === '{wanted}'")  # stays


def test_phone_needs_no_sideways_scrolling(visit: Visit, url: str) -> None:
    page = visit(url)
    page.set_viewport_size({"width": 360, "height": 740})
    for view in ("", "gallery", "pairs", "mislabels", "duplicates", "classes", "train/3", "test/3"):
        page.goto(f"{url}#/{view}")
        page.reload()
        page.wait_for_selector("main h1")
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view


def test_words_of_the_histogram_are_as_large_on_a_phone(visit: Visit, url: str) -> None:
    page = visit(url)
    height = "document.querySelector('.histogram .cut-label').getBoundingClientRect().height"
    wide = page.evaluate(height)
    page.set_viewport_size({"width": 390, "height": 740})
    until(page, "document.querySelector('.histogram svg').getBoundingClientRect().width < 390")
    until(page, f"{height} === {wide}")
    ends = "[...document.querySelectorAll('.histogram text')].map(text => text.getBoundingClientRect().right)"
    chart = page.evaluate("document.querySelector('.histogram').getBoundingClientRect().right")
    assert max(page.evaluate(ends)) <= chart
    assert wide >= 12


@pytest.mark.parametrize("width", [340, 390, 560, 760, 1200])
def test_a_card_of_pairs_holds_what_is_on_it(visit: Visit, digits: Any, width: int) -> None:
    url = digits.url("file")
    page = visit(url)
    page.set_viewport_size({"width": width, "height": 2000})
    page.goto(f"{url}#/pairs")
    page.wait_for_selector(".group")
    page.wait_for_timeout(150)
    rooms = page.locator(".group").evaluate_all(
        """all => all.map(card => {
            const inside = [...card.querySelectorAll("*")].map(one => one.getBoundingClientRect());
            const box = card.getBoundingClientRect();
            return [box.bottom - Math.max(...inside.map(one => one.bottom)),
                    box.right - Math.max(...inside.map(one => one.right))];
        })"""
    )
    below, beside = np.array(rooms).T
    assert below.min() > 0
    assert beside.min() > 0
    if width < 720:  # one card in a row, and none has room for another row of pictures
        assert below.max() < 88
    assert page.locator(".group .more").count() > 0


@pytest.mark.parametrize("width", [360, 1200])
def test_other_cards_hold_what_is_on_them(visit: Visit, digits: Any, width: int) -> None:
    """Their heights stand in the style sheet, and the places of cards that are not drawn are reckoned from them."""
    page = visit(digits.url("file"))
    page.set_viewport_size({"width": width, "height": 900})
    for view, card in (
        ("gallery", ".tile"),
        ("mislabels", ".verdict"),
        ("duplicates", ".verdict"),
        ("classes", ".class-row"),
    ):
        page.goto(f"{digits.url('file')}#/{view}")
        page.wait_for_selector(f".cell {card}")
        page.wait_for_timeout(150)
        rooms = page.locator(".cell").evaluate_all(
            """all => all.map(cell => {
                const inside = [...cell.querySelectorAll("*:not(.sr)")].map(one => one.getBoundingClientRect());
                const box = cell.getBoundingClientRect();
                return [box.bottom - Math.max(...inside.map(one => one.bottom)),
                        box.right - Math.max(...inside.map(one => one.right))];
            })"""
        )
        assert np.array(rooms).min() > -0.5, view
    bar = page.locator(".filters > *").evaluate_all("all => all.map(one => one.getBoundingClientRect().toJSON())")
    for one, two in itertools.combinations(bar, 2):
        assert not _overlap(one, two)


def _overlap(one: dict[str, float], two: dict[str, float]) -> bool:
    apart = (
        one["right"] <= two["left"]
        or two["right"] <= one["left"]
        or one["bottom"] <= two["top"]
        or two["bottom"] <= one["top"]
    )
    return not apart


@pytest.mark.parametrize("width", [320, 390, 720, 820, 1280])
def test_the_picture_of_an_example_is_whole(visit: Visit, digits: Any, width: int) -> None:
    page = visit(digits.url("file"))
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{digits.url('file')}#/train/3")
    page.wait_for_selector(".portrait")
    frame, picture = (page.locator(name).first.bounding_box() for name in (".frame.large", ".frame.large .picture"))
    assert picture["width"] <= frame["width"]
    assert picture["height"] <= frame["height"]


@pytest.mark.parametrize("width", [720, 768, 960, 1280])
def test_headings_of_the_classes_stand_apart(visit: Visit, digits: Any, width: int) -> None:
    page = visit(digits.url("file"), "classes")
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_timeout(150)
    words = page.locator(".headings button").evaluate_all(
        """all => all.map(one => {
            const range = document.createRange();
            range.selectNodeContents(one);
            return range.getBoundingClientRect().toJSON();
        })"""
    )
    assert all(one["right"] + 4 < two["left"] for one, two in itertools.pairwise(words))


def test_print_has_what_is_drawn_and_no_more(visit: Visit, digits: Any) -> None:
    page = visit(digits.url("file"), "gallery", color_scheme="dark")
    page.wait_for_selector(".virtual .cell")
    page.emulate_media(media="print")
    high = "document.querySelector('.virtual').getBoundingClientRect()"
    until(page, f"{high}.height < 150 * document.querySelectorAll('.cell').length")
    last = "[...document.querySelectorAll('.cell')].at(-1).getBoundingClientRect()"
    assert page.evaluate(f"{last}.bottom <= {high}.bottom + 1")
    assert page.evaluate("getComputedStyle(document.querySelector('.picture')).printColorAdjust") == "exact"
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"


def test_a_dragged_slider_does_not_wear_out_the_address(visit: Visit, digits: Any) -> None:
    """Browsers allow about a hundred changes in half a minute; the list follows every one, the address now and then."""
    page = visit(digits.url("file"), "gallery")
    page.evaluate(
        """() => {
            window.changes = 0;
            const replace = history.replaceState.bind(history);
            history.replaceState = (...all) => { window.changes++; replace(...all); };
            for (let k = 1; k <= 300; k++) {
                const slider = document.querySelector("#min");
                slider.value = (k % 60) / 100;
                slider.dispatchEvent(new Event("input", { bubbles: true }));
            }
            document.querySelector("#search").value = "3";
            document.querySelector("#search").dispatchEvent(new Event("input", { bubbles: true }));
        }"""
    )
    until(page, "document.querySelector('#search').value === '3' && location.hash.includes('q=3')")
    assert page.evaluate("window.changes") < 5
    page.locator("#min").fill("0.3")
    page.locator("#min").fill("0.31")
    page.locator(".cell a").first.click()  # before its time, what is shown goes to the history
    page.wait_for_selector("article.page")
    page.go_back()
    until(page, "location.hash.includes('min=0.31')")
    assert page.locator("#min").input_value() == "0.31"


def test_back_and_forth_through_examples_and_pairs(visit: Visit, url: str) -> None:
    page = visit(url, "pairs")
    page.locator(".carrier a").first.click()
    page.wait_for_selector("article.page")
    train = page.evaluate("location.hash")
    page.locator(".influences a").first.click()
    until(page, "location.hash.startsWith('#/test/')")
    test = page.evaluate("location.hash")
    page.goto(f"{url}#/gallery?class=3&min=0.1")
    for _ in range(3):
        page.go_back()
    until(page, "document.querySelector('h1').innerText === 'Pairs'")
    for place in (train, test, "#/gallery?class=3&min=0.1"):
        page.go_forward()
        until(page, f"location.hash === '{place}'")
    until(page, "document.querySelector('#class')?.value === '3'")
    assert page.locator("#min").input_value() == "0.1"


def test_nonsense_in_a_link_is_no_filter(visit: Visit, url: str) -> None:
    page = visit(url, "gallery?class=nope&min=x&max=&sort=zzz&split=valid&q=")
    assert status(page) == "600 of 600"
    for code in ("-1", "10", "1.5", "1e0", "NaN"):
        page.goto(f"{url}#/gallery?class={code}")
        until(page, "document.querySelector('.found').innerText === '600 of 600'")
        assert page.locator("#class").input_value() == ""
    page.goto(f"{url}#/gallery?min=-7&max=9")
    until(page, "document.querySelector('.found').innerText === '600 of 600'")
    page.goto(f"{url}#/pairs?min=many&class=99")
    until(page, "document.querySelector('.filters output')?.innerText === '0.00'")
    assert not status(page).startswith("0 ")


def test_a_number_that_is_none(visit: Visit, url: str) -> None:
    page = visit(url)
    for view in ("train/", "train/x", "train/1e1", "test/-1", "test/9999"):
        page.goto(f"{url}#/{view}")
        until(page, "document.querySelector('main h1').innerText === 'No such example'")
        assert "undefined" not in page.title()


def test_a_file_without_its_content_is_said(browser: Any, digits: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.route("**/train-0.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
    page.goto(f"{digits.url('server')}#/train/3")
    page.wait_for_selector(".notice")
    assert "train-0.js of this report does not hold what it should" in page.locator(".notice").inner_text()
    context.close()


def test_who_helps_nobody_is_said(visit: Visit, make_site: Any, tmp_path: Path) -> None:
    run, *_ = run_of(tmp_path / "a", 24, 16, ["cat", "dog"])
    page = visit(make_site(run).url("file"), "test/9")  # always right
    page.get_by_text("No training example helps it.").wait_for()
    assert page.locator(".influences").count() == 0


def test_a_missing_file_is_said_and_the_rest_goes_on(visit: Visit, browser: Any, digits: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.route("**/train-0.js", lambda route: route.abort())
    page.goto(f"{digits.url('server')}#/train/3")
    page.wait_for_selector(".notice")
    assert "train-0.js of this report could not be loaded" in page.locator(".notice").inner_text()
    assert page.locator(".kicker").inner_text() == "training example 3"
    context.close()
