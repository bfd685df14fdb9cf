"""The documentation site builds without a warning, has every public name, and fetches nothing from elsewhere."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import memfluence as mf

pytest.importorskip("mkdocs", reason="the site is built with memfluence[docs]")
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Broken links and anchors, and pages that are in no menu, are warnings, which `--strict` makes errors."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def test_every_public_name_is_on_the_page_about_python(site: Path) -> None:
    text = (site / "api.html").read_text()
    anchors = set(re.findall(r'id="memfluence\.([\w.]+)"', text))
    assert set(mf.__all__) <= anchors
    methods = {name: one for name, one in inspect.getmembers(mf.Run, inspect.isfunction) if not name.startswith("_")}
    of_run = {name for name, one in methods.items() if one.__qualname__.startswith("Run.")}
    assert {f"Run.{name}" for name in of_run} <= anchors
    assert methods.keys() - of_run <= anchors  # functions of the package, which the page has under their own name


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        tags = re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text())
        assert not [tag for tag in tags if re.search(r'(?:src|href)="?(?:https?:)?//', tag)], page
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"url\(['\"]?(?:https?:)?//", styles)
