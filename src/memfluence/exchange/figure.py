"""The figure of a comparison: memorization and influence of both sides, agreement over thresholds, ranks of pairs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.drawing import BLUE, GREY, INK, ORANGE, SOFT, encoded, panels, style
from memfluence.errors import InputError
from memfluence.exchange.comparing import Comparison
from memfluence.exchange.finding_again import FoundAgain
from memfluence.store import write_whole
from memfluence.wording import count, error, shortened, value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MANY = 3000  # points, from which on a cloud is counted in bins
PANEL = 2.7  # inches
NAME_LETTERS = 26  # of a run's or a file's name


def save_comparison(found: Comparison, directory: Path) -> list[Path]:
    """Write comparison.json, .png and .svg and, where there are published pairs, a table of them; gives their paths."""
    with style():
        figure = comparison_figure(found)
        paths = [directory / f"comparison{suffix}" for suffix in (".png", ".svg", ".json")]
        for path in paths[:2]:
            write_whole(path, encoded(figure, path.suffix))
    document = json.dumps(found.document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(paths[2], document.encode())
    if found.published is not None:
        paths.append(directory / "published-pairs.parquet")
        found.published.table().write(paths[-1])
    return paths


def comparison_figure(found: Comparison) -> "Figure":
    """Up to five panels, as many as the two sides have something for."""
    drawers: list[Callable[[Axes], None]] = []
    names = [_name(str(found.document.get(side, ""))) for side in ("first", "second")]
    if found.memorization is not None:
        said = found.document["memorization"]
        words = ["examples", f"Pearson {_number(said['pearson'])}, Spearman {_number(said['spearman'])}"]
        memorization = [f"memorization, {name}" for name in names]
        drawers.append(lambda axes: _cloud(axes, found.memorization, memorization, words))
    if found.c_scores is not None:
        related = [f"1 − C-score, {names[1]}", f"memorization, {names[0]}"]
        about = _about_c_scores(found.document["c_scores"])
        drawers.append(lambda axes: _cloud(axes, found.c_scores, related, about))
    if found.influence is not None:
        influence = [f"influence, {name}" for name in names]
        drawers.append(lambda axes: _cloud(axes, found.influence, influence, _about_pairs(found)))
    if found.curves:
        drawers.append(lambda axes: _curves(axes, found, "jaccard", "Jaccard index"))
    if any(np.isfinite(curve.difference).any() for curve in found.curves.values()):
        drawers.append(lambda axes: _curves(axes, found, "difference", "average difference"))
    if found.published is not None and len(found.published.rank):
        published = found.published
        drawers.append(lambda axes: _ranks(axes, published))
    if not drawers:
        raise InputError("These two have nothing in common that could be drawn; leave out `out`.")
    columns = len(drawers) if len(drawers) < 4 else -(-len(drawers) // 2)
    rows = -(-len(drawers) // columns)
    title = "\n".join([" and ".join(names), _sizes(found.document)])
    figure, axes = panels(title, columns * (PANEL + 0.5), rows * PANEL + 0.4, rows, columns)
    for draw, panel in zip(drawers, axes.flat):
        draw(panel)
    for panel in axes.flat[len(drawers) :]:
        panel.set_axis_off()
    return figure


def _sizes(document: dict[str, Any]) -> str:
    """'n = 600 training, 1,197 test examples; t = 2,000 and 500', as far as the two sides say."""
    examples = [f"{count(n)} {split}" for split in ("train", "test") if (n := document.get(f"n_{split}"))]
    trials = [count(t) for side in ("first", "second") if (t := document.get(f"trials_{side}"))]
    named = ", ".join(examples).replace("train", "training")
    return "; ".join([*([f"n = {named} examples"] * bool(named)), *([f"t = {' and '.join(trials)}"] * bool(trials))])


def _cloud(axes: "Axes", both: Any, named: list[str], words: list[str]) -> None:
    """One side against the other; where points are many, how many there are in each bin (log scale).

    `words` say what the points are, and more about them.
    """
    x, y = both
    low, high = min(0.0, float(min(x.min(), y.min()))), max(0.05, float(max(x.max(), y.max())))
    margin = 0.03 * (high - low)
    if len(x) > MANY:
        from matplotlib.colors import LinearSegmentedColormap, LogNorm

        shades = LinearSegmentedColormap.from_list("counts", ["#cfe3f0", BLUE, "#002b45"])
        axes.hist2d(x, y, bins=50, range=[(low, high)] * 2, norm=LogNorm(), cmap=shades, rasterized=True)
    else:
        axes.scatter(x, y, s=4, color=BLUE, alpha=0.45, linewidths=0, rasterized=True)
    axes.plot([low, high], [low, high], color=INK, linewidth=0.6, linestyle=":")
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlabel(named[0])
    axes.set_ylabel(named[1])
    _say(axes, "\n".join([f"n = {count(len(x))} {words[0]}", *words[1:]]))


def _about_c_scores(said: dict[str, Any]) -> list[str]:
    words = ["examples"]
    for kind in ("pearson", "spearman"):
        words.append(f"{kind.capitalize()} {_number(said[kind])} (ceiling {_number(said[f'{kind}_ceiling'])})")
    return words


def _about_pairs(found: Comparison) -> list[str]:
    if found.published is not None:
        said = found.document["published_pairs"]
        mean, spread = said["mean_influence_here"], said["mean_influence_here_stderr"]
        means = f"mean {_number(mean)}{'' if spread is None else f' ± {error(spread)}'}; in the file"
        return [
            "pairs",
            f"correlation {_number(said['correlation'])}",
            f"{means} {_number(said['mean_influence_published'])}",
            f"{count(said['found'])} selected here too",
        ]
    said, shown = found.document["pairs"], 0 if found.influence is None else len(found.influence[0])
    either = said["first"] + said["second"] - said["shared"]
    of = f"of {count(either)} " if either > shown else ""  # of the others a list of pairs does not say the influence
    pairs = "pairs" if said["same_class"] else "pairs of any class"
    return [pairs, f"{of}that either side selects", f"{count(said['shared'])} by both"]


def _curves(axes: "Axes", found: Comparison, measure: str, words: str) -> None:
    """The agreement of both sides over thresholds, by one measure."""
    for name, colour in (("memorization", BLUE), ("influence", ORANGE)):
        if name in found.curves:
            values = getattr(found.curves[name], measure)
            if np.isfinite(values).any():
                axes.plot(found.curves[name].thresholds, values, color=colour, linewidth=1.3, label=name)
    axes.set_ylim(0, 1.02 if measure == "jaccard" else None)
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("threshold: at or above")
    axes.set_ylabel(words)
    axes.legend(frameon=False, fontsize=7)


def _ranks(axes: "Axes", published: FoundAgain) -> None:
    """The share of published pairs whose training example is among the first k of its class, beside chance."""
    size = int(published.class_size.max())
    k = np.unique(np.geomspace(1, size, 200).astype(int))
    axes.plot(k, [(published.rank <= one).mean() for one in k], color=BLUE, linewidth=1.3, label="published pairs")
    chance = [np.minimum(one / published.class_size, 1).mean() for one in k]
    axes.plot(k, chance, color=GREY, linewidth=1, linestyle="--", label="by chance")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("rank of the training example in its class, at most")
    axes.set_ylabel("share of published pairs")
    axes.legend(frameon=False, fontsize=7, loc="lower right")
    axes.xaxis.set_major_formatter(lambda place, _: count(place))
    _say(axes, f"{count(int((published.rank == 1).sum()))} of {count(len(published.rank))} come first")


def _name(path: str) -> str:
    file = Path(path)
    return shortened(file.stem if file.suffix in {".csv", ".npz", ".parquet"} else file.name, NAME_LETTERS)


def _say(axes: "Axes", text: str) -> None:
    box = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1.5}
    axes.text(0.03, 0.98, text, transform=axes.transAxes, va="top", color=SOFT, fontsize=7, bbox=box)


def _number(found: float | None) -> str:
    return "–" if found is None else value(found, 3)
