"""The figure of a comparison: memorization and influence of both sides, agreement over thresholds, ranks of pairs."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.drawing import BLUE, GREY, INK, ORANGE, encoded, legend, note, panels, style
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
    drawers: list[tuple[str, Callable[[Axes], None]]] = []
    names = _names(found)
    if found.memorization is not None:
        said = found.document["memorization"]
        words = ["examples", f"Pearson {_number(said['pearson'])}, Spearman {_number(said['spearman'])}"]
        drawers.append(("Memorization", lambda axes: _cloud(axes, found.memorization, names, words)))
    if found.c_scores is not None:
        related = [f"1 − C-score, {names[1]}", f"memorization, {names[0]}"]
        about = _about_c_scores(found.document["c_scores"])
        drawers.append(("Memorization and C-scores", lambda axes: _cloud(axes, found.c_scores, related, about)))
    if found.influence is not None:
        drawers.append(("Influence", lambda axes: _cloud(axes, found.influence, names, _about_pairs(found))))
    if found.curves:
        drawers.append(("Jaccard index", lambda axes: _curves(axes, found, "jaccard")))
    if any(np.isfinite(curve.difference).any() for curve in found.curves.values()):
        drawers.append(("Average difference", lambda axes: _curves(axes, found, "difference")))
    if found.published is not None and len(found.published.rank):
        published = found.published
        drawers.append(("Ranks of published pairs", lambda axes: _ranks(axes, published)))
    if not drawers:
        raise InputError("These two have nothing in common that could be drawn; leave out `out`.")
    columns = len(drawers) if len(drawers) < 4 else -(-len(drawers) // 2)
    width, height = columns * (PANEL + 0.5), -(-len(drawers) // columns) * (PANEL + 0.3)
    headings = [heading for heading, _ in drawers]
    figure, axes = panels(_caption(found, names), width, height, headings, columns)
    for (_, draw), panel in zip(drawers, axes):
        draw(panel)
    return figure


def _caption(found: Comparison, names: Sequence[str]) -> str:
    said = f"{' and '.join(names)}: {_sizes(found.document)}."
    if found.influence is not None:
        where = "in the file" if found.published is not None else "on either side"
        said += (
            f" Shown are the pairs selected {where}; the side that selects is biased upwards, near the threshold most."
        )
    return said


def _sizes(document: dict[str, Any]) -> str:
    """'n = 600 training, 1,197 test examples; t = 2,000 and 500', as far as the two sides say."""
    examples = [f"{count(n)} {split}" for split in ("train", "test") if (n := document.get(f"n_{split}"))]
    trials = [count(t) for side in ("first", "second") if (t := document.get(f"trials_{side}"))]
    named = ", ".join(examples).replace("train", "training")
    return "; ".join([*([f"n = {named} examples"] * bool(named)), *([f"t = {' and '.join(trials)}"] * bool(trials))])


def _cloud(axes: "Axes", both: Any, named: Sequence[str], words: list[str]) -> None:
    """One side against the other; where points are many, how many there are in each bin (log scale).

    `words` say what the points are, and more about them.
    """
    x, y = both
    low, high = min(0.0, float(min(x.min(), y.min()))), max(0.05, float(max(x.max(), y.max())))
    margin = 0.03 * (high - low)
    if len(x) > MANY:
        from matplotlib.colors import LinearSegmentedColormap, LogNorm

        shades = LinearSegmentedColormap.from_list("counts", ["#cfe3f0", BLUE, "#002b45"])
        mesh = axes.hist2d(x, y, bins=50, range=[(low, high)] * 2, norm=LogNorm(), cmap=shades, rasterized=True)[3]
        axes.figure.colorbar(mesh, ax=axes, label=f"{words[0]} in a bin", fraction=0.05, pad=0.02)
    else:
        axes.scatter(x, y, s=4, color=BLUE, alpha=0.45, linewidths=0, rasterized=True)
    axes.plot([low, high], [low, high], color=INK, linewidth=0.6, linestyle=":")
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlabel(named[0])
    axes.set_ylabel(named[1])
    note(axes, "\n".join([f"n = {count(len(x))} {words[0]}", *words[1:]]))


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


def _curves(axes: "Axes", found: Comparison, measure: str) -> None:
    """The agreement of both sides over thresholds, by one measure."""
    for name, colour in (("memorization", BLUE), ("influence", ORANGE)):
        if name in found.curves:
            values = getattr(found.curves[name], measure)
            if np.isfinite(values).any():
                axes.plot(found.curves[name].thresholds, values, color=colour, label=name)
    axes.set_ylim(0, 1.02 if measure == "jaccard" else None)
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("threshold")
    legend(axes, 2)


def _ranks(axes: "Axes", published: FoundAgain) -> None:
    """The share of published pairs whose training example is among the first k of its class, beside chance."""
    size = int(published.class_size.max())
    k = np.unique(np.geomspace(1, size, 200).astype(int))
    axes.plot(k, [(published.rank <= one).mean() for one in k], color=BLUE, label="published pairs")
    chance = [np.minimum(one / published.class_size, 1).mean() for one in k]
    axes.plot(k, chance, color=GREY, linewidth=1, linestyle="--", label="by chance")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("rank of the training example in its class, at most")
    axes.set_ylabel("share of published pairs")
    legend(axes, 2, title=f"{count(int((published.rank == 1).sum()))} of {count(len(published.rank))} come first")
    axes.xaxis.set_major_formatter(lambda place, _: count(place))


def _names(found: Comparison) -> list[str]:
    """Learners; the names of files, and of the folders of runs of one learner."""
    paths = [_name(str(found.document.get(side, ""))) for side in ("first", "second")]
    alike = found.learners[0] == found.learners[1]
    return paths if alike else [learner or path for learner, path in zip(found.learners, paths)]


def _name(path: str) -> str:
    file = Path(path)
    return shortened(file.stem if file.suffix in {".csv", ".npz", ".parquet"} else file.name, NAME_LETTERS)


def _number(found: float | None) -> str:
    return "–" if found is None else value(found)
