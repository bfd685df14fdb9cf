"""Every view, light on a desk and dark on a phone, judged by axe-core: it finds nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_runs import run_of, with_data

VIEWS = ("", "gallery", "gallery?split=test", "train/1", "test/127", "pairs", "mislabels", "duplicates", "classes")


WORDS = ("", "gallery", "train/1", "test/2", "pairs", "mislabels", "duplicates")


def problems(page: Any) -> list[str]:
    """All that axe finds, serious or not; it needs nothing but the page."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install '.[dev]'").Axe()
    found = axe.run(page, options={"preload": False}).response["violations"]
    return [f"{one['impact']} {one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]


def look_at_all(visit: Callable[..., Any], url: str, views: tuple[str, ...], theme: str, width: int) -> None:
    page = visit(url, color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 800})
    for view in views:
        page.goto(f"{url}#/{view}")
        page.wait_for_selector("main h1")
        page.wait_for_timeout(300)
        assert (view, problems(page)) == (view, [])


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
def test_pictures(visit: Callable[..., Any], digits: Any, theme: str, width: int) -> None:
    look_at_all(visit, digits.url("file"), VIEWS, theme, width)


@pytest.mark.parametrize(
    ("inputs", "theme", "width"), [("texts", "light", 390), ("features", "dark", 1280), ("none", "dark", 390)]
)
def test_texts_and_features(
    visit: Callable[..., Any], make_site: Any, tmp_path: Path, inputs: str, theme: str, width: int
) -> None:
    classes = ["cat", "dog"]
    run, *codes = run_of(tmp_path / "a", 24, 16, classes)
    rows: Any = [f"text {k} of some length" for k in range(24)]
    if inputs == "features":
        rows = np.arange(24 * 3).reshape(24, 3) / 7
    if inputs != "none":
        run = with_data(run, (codes[0], codes[1]), classes, rows, rows[:16])
    look_at_all(visit, make_site(run).url("file"), WORDS, theme, width)


def test_help_and_decisions_too(visit: Callable[..., Any], digits: Any) -> None:
    page = visit(digits.url("file"), "mislabels")
    page.locator(".verdict button").first.click()
    page.locator(".verdict button").nth(3).click()
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    assert problems(page) == []
