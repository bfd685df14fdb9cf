"""Every view in both themes, judged by axe-core: nothing serious."""

from collections.abc import Callable
from typing import Any

import pytest

VIEWS = ("", "gallery", "gallery?split=test", "train/1", "test/127", "pairs", "mislabels", "duplicates", "classes")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_nothing_serious(visit: Callable[..., Any], digits: Any, view: str, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install '.[dev]'").Axe()
    page = visit(digits.url("file"), view, color_scheme=theme)
    page.wait_for_timeout(300)
    found = axe.run(page, options={"preload": False}).response["violations"]
    serious = [
        f"{one['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:200]}"
        for one in found
        for node in one["nodes"]
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []
    assert {one["id"] for one in found} <= set(), [one["help"] for one in found]


def test_help_and_decisions_too(visit: Callable[..., Any], digits: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = visit(digits.url("file"), "mislabels")
    page.locator(".verdict button").first.click()
    page.locator(".verdict button").nth(3).click()
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    assert axe.run(page, options={"preload": False}).response["violations"] == []
