"""Make the README's picture from a real run: python docs/make_figures.py [--run DIR] [--trials 2000]

Without --run the trials are run into a temporary directory (half a minute on two cores). A run that is there already
is resumed, so it may also be a longer one made before.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

import memfluence as mf
from memfluence.report import pairs_figure

IMAGES = Path(__file__).resolve().parent / "images"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help="directory of the run; a temporary one if left out")
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--images", type=Path, default=IMAGES, help="where the picture goes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        make(options.run or Path(temporary) / "digits", options.trials, options.images)


def make(directory: Path, trials: int, images: Path) -> None:
    """Run the trials that `directory` lacks, draw, and say what was drawn."""
    command = ["run", "digits", "--trials", str(trials), "--out", str(directory)]
    print("memfluence", *command, flush=True)
    subprocess.run([sys.executable, "-m", "memfluence", *command], check=True)
    run = mf.open(directory)
    pairs = run.find_pairs()
    picture = pairs_figure(run, run.dataset(), images / "digits-pairs.png", rows=4)
    shrink(picture)
    print(f"{len(run.trials)} trials, {len(pairs)} pairs, {pairs.expected_by_chance:.1f} of them expected by chance")
    print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")


def shrink(picture: Path) -> None:
    """Grey digits and three inks: a palette shows no difference and saves most of the bytes."""
    Image.open(picture).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(picture, optimize=True)


if __name__ == "__main__":
    main()
