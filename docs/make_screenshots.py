"""The pictures of the explorer in docs/images, taken with headless Chromium.

    python docs/make_screenshots.py CIFAR DIGITS

CIFAR and DIGITS are folders that `memfluence report` wrote: of the 733 trials on CIFAR-100 (of a file `npz:` that holds
`class_names`, with `--title "What ResNet-9 memorizes in CIFAR-100"`), and of 600 trials of digits with recorded
predictions (`memfluence run digits --trials 600 --record prediction`).
"""

import argparse
import os
import shutil
from pathlib import Path

from PIL import Image

IMAGES = Path(__file__).parent / "images"
# Name: the report, the view, the theme, the height.
SHOTS = {
    "explorer-overview": ("cifar", "", "light", 1080),
    "explorer-gallery": ("cifar", "gallery?class=15", "light", 860),
    "explorer-example": ("cifar", "train/3630", "dark", 860),
    "explorer-pairs": ("cifar", "pairs?show=all&min=0.2", "light", 960),
    "explorer-duplicates": ("cifar", "duplicates", "dark", 860),
    "explorer-classes": ("cifar", "classes", "light", 700),
    "explorer-mislabels": ("digits", "mislabels", "light", 860),
    "explorer-test": ("digits", "test/1124", "light", 860),
}
TICKED = {0: "wrong", 1: "wrong", 2: "fine", 3: "fine", 5: "fine"}  # of the mislabels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cifar", type=Path)
    parser.add_argument("digits", type=Path)
    parser.add_argument("--images", type=Path, default=IMAGES, help="where the pictures go")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = os.environ.get("MEMFLUENCE_CHROMIUM") or shutil.which("chromium")
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=[*arguments, "--hide-scrollbars"])
        for name, (report, view, theme, height) in SHOTS.items():
            context = browser.new_context(viewport={"width": 1360, "height": height}, color_scheme=theme)
            page = context.new_page()
            page.goto(f"{(getattr(options, report) / 'index.html').resolve().as_uri()}#/{view}")
            page.wait_for_selector("main h1")
            page.evaluate("document.documentElement.style.scrollbarGutter = 'auto'")  # there is no scroll bar here
            page.wait_for_timeout(1000)  # for the pictures
            if name == "explorer-mislabels":
                for card, decision in TICKED.items():
                    page.locator(".verdict").nth(card).get_by_role("button", name=decision).click()
                page.mouse.move(5, 5)
            page.screenshot(path=options.images / f"{name}.png")
            shrink(options.images / f"{name}.png")
            context.close()
        browser.close()


def shrink(picture: Path) -> None:
    """A palette of 256 colours: a third of the bytes."""
    whole = Image.open(picture).convert("RGB")
    palette = whole.quantize(256, kmeans=2)
    whole.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG).save(picture, optimize=True)


if __name__ == "__main__":
    main()
