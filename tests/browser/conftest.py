"""A real browser for the explorer: headless Chromium, driven by Playwright.

A test fails on any error in the console and on any request that is not for the report itself.
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import memfluence as mf
from memfluence.report import ReportServer
from memfluence.runs import Run

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MISSING = (
    "there is no Chromium for the tests of the explorer: 'apt-get install chromium' (make test does it as root on"
    " Debian), 'playwright install chromium', or name one in MEMFLUENCE_CHROMIUM"
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install '.[dev]'")
    named = os.environ.get("MEMFLUENCE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with playwright.sync_playwright() as started:
        path = named or started.chromium.executable_path
        if not Path(path).exists():
            pytest.skip(MISSING)
        running = started.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield running
        running.close()


class Site:
    """An explorer on disk and on a server; both are there at once."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run = run
        self.page = run.report(folder)
        self.server = ReportServer(folder, port=0)
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def url(self, origin: str) -> str:
        return self.page.as_uri() if origin == "file" else self.server.url

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture(scope="session")
def make_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Run], Site]]:
    made: list[Site] = []

    def make(run: Run) -> Site:
        made.append(Site(run, tmp_path_factory.mktemp("site")))
        return made[-1]

    yield make
    for site in made:
        site.close()


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory, make_site: Callable[[Run], Site]) -> Site:
    """Real data and real models, few enough for seconds; predictions are recorded."""
    out = tmp_path_factory.mktemp("runs") / "digits"
    return make_site(
        mf.run("digits", learner="mlp", trials=96, seed=0, record=("prediction",), out=out, progress=False)
    )


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages, and checks at the end that all was quiet and that nothing left the machine."""
    troubles: list[str] = []
    contexts = []

    def open_page(url: str, view: str = "", **options: Any) -> Any:
        context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        home = url.rpartition("/")[0] + "/"
        page.on("console", lambda message: message.type in ("error", "warning") and troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "requestfailed",  # but for those that a reload cuts short
            lambda request: request.failure == "net::ERR_ABORTED" or troubles.append(f"failed: {request.url}"),
        )
        page.on(
            "request",
            lambda request: (
                request.url.startswith((home, "data:", "blob:")) or troubles.append(f"asked: {request.url}")
            ),
        )
        page.on("dialog", lambda dialog: (troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto(f"{url}#/{view}")
        page.wait_for_selector("main h1")
        page.wait_for_timeout(100)  # keys are listened to after the first paint
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []
