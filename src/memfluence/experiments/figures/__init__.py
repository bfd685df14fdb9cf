"""Figures of experiments: one module each, `NAME.draw(result)`, and how they are saved."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from memfluence.drawing import encoded, style
from memfluence.experiments import Result
from memfluence.store import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw", "save_figures"]


def draw(result: Result) -> "Figure":
    """The figure of a result, by the module that is named after its experiment."""
    module = import_module(f"{__name__}.{result.name.replace('-', '_')}")
    with style():
        figure: Figure = module.draw(result)
    return figure


def save_figures(result: Result, directory: Path) -> list[Path]:
    """Draw a result into NAME.png and NAME.svg; gives their paths."""
    figure = draw(result)
    paths = [directory / f"{result.name}{suffix}" for suffix in (".png", ".svg")]
    with style():
        for path in paths:
            write_whole(path, encoded(figure, path.suffix))
    return paths
