"""Data that want to break out of the page, or just break it: shown as what they are, and nothing runs."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_runs import run_of, with_data
from PIL import Image

EVIL = [
    '<img src=x onerror="window.ran=1">',
    "</script><script>window.ran=1</script>",
    "javascript:window.ran=1",
    '"><svg onload=window.ran=1>',
    "{{constructor.constructor('window.ran=1')()}}",
    '=HYPERLINK("http://evil.invalid","x")',
    "\u2028\u2029\u202e desrever \u0000 \ud800",
    "   ",
    "__proto__",
    "x" * 3000,
]


VIEWS = ("", "gallery", "gallery?split=test", "train/0", "test/0", "pairs", "mislabels", "duplicates", "classes")


def see_everything(visit: Callable[..., Any], site: Any) -> Any:
    """Every view, on the server, whose policy is the strictest; gives the page at the last one."""
    page = visit(site.url("server"))
    for view in VIEWS:
        page.goto(f"{site.url('server')}#/{view}")
        page.wait_for_selector("main h1")
        page.wait_for_timeout(120)
        assert page.evaluate("window.ran") is None
        assert page.locator("main img, main iframe, main object, main script, main svg[onload]").count() == 0
        assert page.evaluate("document.body.innerText.includes('undefined')") is False, view
        assert page.evaluate("document.body.innerText.includes('NaN')") is False, view
    return page


def test_names_texts_and_ids_are_text(visit: Any, make_site: Any, tmp_path: Path) -> None:
    run, *codes = run_of(tmp_path / "a", 40, 30, EVIL)
    texts = [EVIL[k % len(EVIL)] + f" {k}" for k in range(40)]
    ids = [f"{EVIL[k % 4]}/{k}.png" for k in range(40)]
    site = make_site(with_data(run, tuple(codes), EVIL, texts, texts[:30], train_ids=ids))
    page = see_everything(visit, site)
    page.goto(f"{site.url('server')}#/train/0")
    page.wait_for_selector(".id")
    assert page.locator("h1").inner_text() == EVIL[0]
    assert page.locator(".portrait .written").inner_text() == EVIL[0] + " 0"
    assert page.locator(".id").inner_text() == f"id {ids[0]}"
    page.goto(f"{site.url('server')}#/gallery?q=onload")
    page.wait_for_selector(".cell")
    page.wait_for_timeout(200)
    assert page.locator(".found").inner_text().startswith("12 of 40")  # 4 by their class and text, 10 by their id
    page.goto(f"{site.url('server')}#/gallery?class=<script>&sort=__proto__&min=x&q=%3Cimg%3E")
    page.wait_for_selector("main h1")
    assert page.evaluate("window.ran") is None


def test_texts_in_any_writing(visit: Any, make_site: Any, tmp_path: Path) -> None:
    texts = ["   \n ", "שלום עולם זה סרט", "👩‍👩‍👧‍👦 film", "bell \x07 \x1b[31m", "W" * 6000, "plain"]
    run, *codes = run_of(tmp_path / "a", 6, 6, ["a", "b"])
    site = make_site(with_data(run, tuple(codes), ["a", "b"], texts, texts))
    page = see_everything(visit, site)
    page.goto(f"{site.url('server')}#/gallery?sort=index")
    page.wait_for_selector(".cell .written")
    cards = page.locator(".cell .written")
    assert cards.nth(0).inner_text() == "(blank text)"
    directions = cards.evaluate_all("all => all.map(one => getComputedStyle(one).direction)")
    assert directions == ["ltr", "rtl", "ltr", "ltr", "ltr", "ltr"]
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 1280
    page.goto(f"{site.url('server')}#/train/4")
    page.wait_for_selector(".written.full")
    assert page.locator(".written.full").inner_text() == "W" * 4999 + "…"


def test_no_line_of_features_is_cut(visit: Any, make_site: Any, tmp_path: Path) -> None:
    run, *codes = run_of(tmp_path / "a", 24, 16, ["a", "b"])
    table = np.arange(24 * 300).reshape(24, 300) / 7
    site = make_site(with_data(run, tuple(codes), ["a", "b"], table, table[:16]))
    page = visit(site.url("file"))
    for view in ("", "gallery", "train/0", "pairs", "mislabels"):
        page.goto(f"{site.url('file')}#/{view}")
        page.wait_for_selector(".written.features span")
        page.wait_for_timeout(150)
        cut = page.locator(".written.features").evaluate_all(
            "all => all.map(one => one.scrollHeight - one.clientHeight)"
        )
        assert max(cut) <= 1, view


def test_a_file_of_decisions_runs_nothing_either(visit: Any, make_site: Any, tmp_path: Path) -> None:
    names = ["=1+1", 'a "quoted", one', "line\nbreak"]
    run, *codes = run_of(tmp_path / "a", 12, 9, names)
    ids = {"train_ids": [f"@file{k}" for k in range(12)], "test_ids": [f"<b>{k}" for k in range(9)]}
    site = make_site(with_data(run, tuple(codes), names, ["t"] * 12, ["t"] * 9, **ids))
    meta = site.page.parent / next(site.page.parent.glob("data-*")) / "meta.js"
    meta.write_text(meta.read_text().replace('"labels":["0","1","2"]', '"labels":null'))  # names as labels
    page = visit(site.url("file"), "mislabels")
    page.wait_for_selector(".verdict")
    for card in page.locator(".verdict").all()[:3]:
        card.get_by_role("button", name="wrong").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download CSV").click()
    waiting.value.save_as(tmp_path / "decisions.csv")
    rows = list(csv.DictReader((tmp_path / "decisions.csv").open(newline="")))
    assert {row["label"] for row in rows} <= {"'=1+1", 'a "quoted", one', "line break"}
    assert "'=1+1" in {row["label"] for row in rows}
    assert [row["id"] for row in rows] == [f"'@file{row['index']}" for row in rows]
    page = visit(site.url("file"), "duplicates")
    page.locator(".verdict").first.get_by_role("button", name="duplicate").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download JSON").click()
    waiting.value.save_as(tmp_path / "decisions.json")
    (row,) = json.loads((tmp_path / "decisions.json").read_text())
    assert (row["train_id"], row["test_id"]) == (f"@file{row['train_index']}", f"<b>{row['test_index']}")


def test_ten_thousand_classes(visit: Any, make_site: Any, tmp_path: Path) -> None:
    names = [f"<b>class</b> number {k}" for k in range(10_000)]
    run, *codes = run_of(tmp_path / "a", 10_000, 10_000, names, trials=12)
    site = make_site(with_data(run, tuple(codes), names, np.zeros((10_000, 2)), np.zeros((10_000, 2))))
    page = see_everything(visit, site)
    page.goto(f"{site.url('server')}#/classes?q=number 9999")
    page.wait_for_selector('[data-class="9999"]')
    page.goto(f"{site.url('server')}#/gallery?class=9999")
    page.wait_for_selector('[data-example="train-9999"]')
    assert page.locator("#class").input_value() == "9999"


@pytest.mark.parametrize("inputs", ["none", "image", "text"])
def test_one_example(visit: Any, make_site: Any, tmp_path: Path, inputs: str) -> None:
    run, *codes = run_of(tmp_path / "a", 1, 1, ["only"])
    if inputs != "none":
        one = np.zeros((1, 9, 5), np.uint8) if inputs == "image" else ["a text"]
        run = with_data(run, tuple(codes), ["only"], one, one, value_range=(0.0, 255.0))
    page = see_everything(visit, make_site(run))
    assert page.locator("a.class-row").count() == 1


def test_pictures_of_odd_sizes_and_modes(visit: Any, make_site: Any, tmp_path: Path) -> None:
    modes = ["1", "L", "P", "LA", "RGB", "RGBA", "CMYK", "I;16", "F", "HSV"]
    odd: list[Any] = [Image.new(mode, (1 + 37 * k % 90, 1 + 23 * k % 70)) for k, mode in enumerate(modes)]
    odd += [np.zeros((4, 4, 4), np.uint8), np.zeros((900, 1, 3), np.uint8), np.zeros((0, 3), np.uint8), "text", None]
    run, *codes = run_of(tmp_path / "a", len(odd), len(odd), ["a", "b"])
    site = make_site(with_data(run, tuple(codes), ["a", "b"], odd, odd))
    page = see_everything(visit, site)
    page.goto(f"{site.url('server')}#/gallery")
    page.wait_for_selector(".picture")
    assert page.locator(".picture").count() == len(odd)


def test_examples_without_any_estimate(visit: Any, make_site: Any, tmp_path: Path) -> None:
    run, *_ = run_of(tmp_path / "a", 6, 5, ["a", "b"], trials=1)
    site = make_site(run)
    page = see_everything(visit, site)
    page.goto(f"{site.url('server')}#/gallery")
    page.wait_for_selector(".cell")
    assert page.locator(".cell").count() == 6
