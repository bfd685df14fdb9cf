"""A small tree of JPEGs as ImageNet has them: of many sizes, some grey, some CMYK, one a PNG by another name."""

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("n01440764", "n01443537", "n01484850")


def picture(label: int, number: int) -> Image.Image:
    """Smooth noise about the class's own colour, from 40 x 30 to 90 x 70 pixels."""
    rng = np.random.default_rng([label, number])
    width, height = int(rng.integers(40, 90)), int(rng.integers(30, 70))
    coarse = rng.normal(120, 40, (6, 8, 3)) + 60 * np.eye(3)[label]
    image = Image.fromarray(np.clip(coarse, 0, 255).astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
    return image.convert({1: "L", 2: "CMYK"}.get(number, "RGB"))


def save(path: Path, image: Image.Image, kind: str = "JPEG") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, kind)


def image_tree(root: Path, n_train: int = 8, n_test: int = 3) -> Path:
    """train/WNID/*.JPEG and val/WNID/*.JPEG, so many of each class; gives the folder."""
    for code, label in enumerate(CLASSES):
        for number in range(n_train):
            image, odd = picture(code, number), (code, number) == (0, 3)
            save(root / "train" / label / f"{label}_{number}.JPEG", image, "PNG" if odd else "JPEG")
        for number in range(n_test):
            save(root / "val" / label / f"ILSVRC2012_val_{code}{number}.JPEG", picture(code, 100 + number))
    return root
