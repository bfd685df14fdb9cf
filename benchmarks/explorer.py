"""The explorer at full size: how large its folder is, how fast it opens, and how smoothly 50,000 examples scroll.

    python benchmarks/explorer.py RUN --data npz:cifar100.npz     a run of your own
    python benchmarks/explorer.py                                 50,000 x 10,000 made-up examples of CIFAR-100's shape

It writes the explorer (timed), opens it in headless Chromium from the disk and from the server with an empty cache,
and scrolls through the gallery at a reader's speed and at a fling's, in the default order and in another one, in which
neighbours lie in different sheets. Times are of frames as the page sees them (requestAnimationFrame); at 60 Hz one
takes 16.7 ms. A headless browser draws in software on the CPU, so a desktop with a GPU does better. Prints what it
finds, with how busy the machine was, and saves it as JSON.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import memfluence as mf
from memfluence.datasets import from_arrays
from memfluence.report import ReportServer
from memfluence.runs import Run

COMMIT = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
# Screens a second (a wheel gives about 3), seconds at most, where in the gallery it begins; the fling goes through all.
SPEEDS = {"reading": (3.0, 8, 0.3), "fling": (20.0, 90, 0.0)}
SCROLL = """
async ([seconds, screens, from]) => {
  const frames = [];
  let empty = 0;
  const step = (screens * innerHeight) / 1000;
  const end = document.documentElement.scrollHeight - innerHeight;
  let y = from * end;
  const begin = y;
  const start = performance.now();
  let last = start;
  while (last - start < seconds * 1000 && y < end) {
    const now = await new Promise(requestAnimationFrame);
    const cells = document.querySelectorAll(".cell");
    const rows = [...cells].map((cell) => cell.getBoundingClientRect());
    const middle = innerHeight / 2;
    if (frames.length && !rows.some((row) => row.top <= middle + 60 && row.bottom >= middle - 60)) empty++;
    frames.push(now - last);
    y += step * (now - last);
    last = now;
    window.scrollTo(0, y);
  }
  return { frames: frames.slice(1), empty: empty / frames.length, share: (Math.min(y, end) - begin) / end };
}
"""


def made_up(folder: Path, n_train: int) -> Run:
    """Random trials and pictures (noise compresses worst) in 100 classes."""
    rng = np.random.default_rng(0)
    n_test, trials = n_train // 5, 100
    labels = np.arange(n_train) % 100, np.arange(n_test) % 100
    mask = rng.random((trials, n_train)) < 0.7
    hard = rng.random(n_train) < 0.3
    file = folder / "trials.npz"
    np.savez(
        file,
        mask=mask,
        train_correct=mask | ~hard | (rng.random(mask.shape) < 0.2),
        test_correct=rng.random((trials, n_test)) < rng.random(n_test),
        train_labels=labels[0],
        test_labels=labels[1],
    )
    from memfluence.exchange import import_trials

    pictures = [rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8) for n in (n_train, n_test)]
    data = from_arrays(pictures[0], labels[0], pictures[1], labels[1])
    return Run(import_trials([file], folder / "run").store, data)


def opened(browser: Any, url: str, repeats: int) -> dict[str, float]:
    """Seconds from the request to the overview and to the gallery with its pictures, with an empty cache."""
    found: dict[str, list[float]] = {"overview": [], "gallery": []}
    for _ in range(repeats):
        for view in found:
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            page = context.new_page()
            start = time.perf_counter()
            page.goto(f"{url}#/{view if view == 'gallery' else ''}")
            page.wait_for_selector(".cell .picture" if view == "gallery" else ".strip .picture")
            page.wait_for_load_state("networkidle")  # nothing asked for during half a second, pictures included
            found[view].append(time.perf_counter() - start - 0.5)
            context.close()
    return {view: round(statistics.median(times), 3) for view, times in found.items()}


def scrolled(browser: Any, url: str, sort: str, speed: tuple[float, float, float]) -> dict[str, float]:
    """Frame times while the gallery is scrolled at that speed."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.goto(f"{url}#/gallery?sort={sort}")
    page.wait_for_selector(".cell .picture")
    found = page.evaluate(SCROLL, [speed[1], speed[0], speed[2]])
    frames = np.array(found["frames"])
    page.context.close()
    return {
        "share_of_gallery": round(found["share"], 3),
        "frames": len(frames),
        "frames_per_second": round(float(1000 * len(frames) / frames.sum()), 1),
        "median_ms": round(float(np.median(frames)), 1),
        "p95_ms": round(float(np.percentile(frames, 95)), 1),
        "p99_ms": round(float(np.percentile(frames, 99)), 1),
        "worst_ms": round(float(frames.max()), 1),
        "over_50_ms": round(float((frames > 50).mean()), 4),
        "empty_frames": round(found["empty"], 4),
    }


def reached_end(browser: Any, url: str, sort: str) -> float:
    """Seconds from the End key to the last example's picture."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.goto(f"{url}#/gallery?sort={sort}")
    page.locator(".cell a").first.focus()
    last = page.locator(".cell").first.get_attribute("aria-setsize")
    start = time.perf_counter()
    page.keyboard.press("End")
    page.wait_for_selector(f'.cell[aria-posinset="{last}"] .picture')
    seconds = time.perf_counter() - start
    page.context.close()
    return round(seconds, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("--data", help="where the run's data are, if it does not say")
    parser.add_argument("--examples", type=int, default=50_000, help="training examples that are made up")
    parser.add_argument("--repeats", type=int, default=5, help="how often each page is opened")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "explorer.json")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = mf.open(options.run) if options.run else made_up(folder, options.examples)
        start = time.perf_counter()
        page = run.report(folder / "site", dataset=options.data)
        seconds = time.perf_counter() - start
        files = [file.stat().st_size for file in (folder / "site").rglob("*") if file.is_file()]
        found: dict[str, Any] = {
            "data": options.data.rpartition("/")[2] if options.data else "made up",
            "n_train": run.info.n_train,
            "n_test": run.info.n_test,
            "trials": len(run.trials),
            "write_seconds": round(seconds, 1),
            "files": len(files),
            "megabytes": round(sum(files) / 1e6, 1),
            "cores": os.cpu_count(),
            "load_average": round(os.getloadavg()[0], 1),
            "machine": platform.machine(),
            "commit": subprocess.run(COMMIT, capture_output=True, text=True).stdout.strip(),
        }
        server = ReportServer(folder / "site", port=0)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        chromium = os.environ.get("MEMFLUENCE_CHROMIUM") or shutil.which("chromium")
        with sync_playwright() as playwright:
            arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
            found["browser"] = browser.version
            for origin, url in (("file", page.as_uri()), ("server", server.url)):
                found[f"open_{origin}"] = opened(browser, url, options.repeats)
            for sort in ("memorized", "index"):
                for name_of_speed, speed in SPEEDS.items():
                    found[f"scroll_{sort}_{name_of_speed}"] = scrolled(browser, page.as_uri(), sort, speed)
                found[f"reach_end_{sort}"] = reached_end(browser, page.as_uri(), sort)
            browser.close()
        server.shutdown()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
