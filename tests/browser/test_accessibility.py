"""Every view in both themes, judged by axe-core: it finds nothing."""

from collections.abc import Callable
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


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_pictures(visit: Callable[..., Any], digits: Any, view: str, theme: str) -> None:
    page = visit(digits.url("file"), view, color_scheme=theme)
    page.wait_for_timeout(300)
    assert problems(page) == []


@pytest.fixture(scope="module", params=["texts", "features", "none"])
def words(request: pytest.FixtureRequest, make_site: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    classes = ["cat", "dog"]
    run, *codes = run_of(tmp_path_factory.mktemp("run") / "a", 24, 16, classes)
    if request.param == "none":
        return make_site(run)
    rows: Any = [f"text {k} of some length" for k in range(24)]
    if request.param == "features":
        rows = np.arange(24 * 3).reshape(24, 3) / 7
    return make_site(with_data(run, (codes[0], codes[1]), classes, rows, rows[:16]))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_and_features(visit: Callable[..., Any], words: Any, theme: str) -> None:
    page = visit(words.url("file"), color_scheme=theme)
    for view in WORDS:
        page.goto(f"{words.url('file')}#/{view}")
        page.wait_for_selector("main h1")
        page.wait_for_timeout(200)
        assert (view, problems(page)) == (view, [])


def test_help_and_decisions_too(visit: Callable[..., Any], digits: Any) -> None:
    page = visit(digits.url("file"), "mislabels")
    page.locator(".verdict button").first.click()
    page.locator(".verdict button").nth(3).click()
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    assert problems(page) == []
