"""A run as a notebook shows it (what it is, how far it is, and a small histogram of memorization), and its explorer.

One piece of HTML without scripts or styles from elsewhere. It takes its colours from the page, so that it is readable
on light and on dark, and every name is escaped.
"""

import threading
from collections.abc import Callable, Mapping
from functools import cache
from html import escape
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.errors import MemfluenceError
from memfluence.paper import MEMORIZED
from memfluence.report._histogram import BINS_PER_UNIT, histogram
from memfluence.report.cards import show_pairs
from memfluence.report.explorer import ReportServer
from memfluence.report.explorer.writing import chosen_keep

if TYPE_CHECKING:
    from memfluence.runs import Run

    ConcretePath = Path
else:
    ConcretePath = type(Path())  # Path itself has no heirs before Python 3.12

WIDTH, HEIGHT = 360, 80
PREVIEWED = 3  # training examples with the test examples that they carry


class ReportPage(ConcretePath):
    """The path of an explorer's page, which a notebook shows as a link with the strongest pairs below."""

    _preview: Callable[[], str] | None = None  # of paths that are made from it, none

    @classmethod
    def of(cls, page: Path, run: "Run", keep: float | None) -> "ReportPage":
        found = cls(page)

        def preview() -> str:
            shown, _ = chosen_keep(run, keep)  # the page's own
            return show_pairs(run, PREVIEWED, {"keep": shown, "permutations": 0})._repr_html_()

        found._preview = preview
        return found

    def _repr_html_(self) -> str | None:
        if self._preview is None:
            return None
        try:
            preview = self._preview()
        except MemfluenceError as error:  # a cap on memory
            preview = f"<p>{escape(str(error))}</p>"
        link = (
            f'<a href="{_address(Path(self.parent).resolve())}" target="_blank"><strong>Open the explorer</strong></a>'
        )
        path = f"<code>{escape(str(self))}</code>"
        return f"<div>{link} while this notebook runs, or {path} in a browser at any time.{preview}</div>"


@cache
def _address(folder: Path) -> str:
    """The address, on this machine alone, of a server that ends with this process.

    Jupyter shows files of its own folder without their scripts, and pages of http may not link to files.
    """
    server = ReportServer(folder, port=0, secret=token_urlsafe())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.url


def run_html(status: Mapping[str, Any], memorization: np.ndarray | None, note: str = "") -> str:
    """`status` is what `Run.status` says; `memorization` (n_train,), or None with a `note` that says why not."""
    rows = [
        ("data", f"{status['dataset']}: {status['n_train']:,} training and {status['n_test']:,} test examples"),
        ("learner", status["learner"] or "imported trials"),
        ("trials", _trials(status)),
        ("mean score" if _has_scores(status) else "accuracy", _means(status)),
    ]
    left = 'style="text-align:left"'
    cells = "".join(
        f'<tr><th scope="row" {left}>{name}</th><td {left}>{escape(str(text))}</td></tr>' for name, text in rows
    )
    chart = f"<p>{escape(note)}</p>" if memorization is None else _histogram(memorization)
    head = f"<strong>Run</strong> <code>{escape(str(status['run']))}</code>"
    return f'<div>{head}<table style="color:inherit">{cells}</table>{chart}</div>'


def _trials(status: Mapping[str, Any]) -> str:
    keep = ", ".join(f"{one:.0%}" for one in status["keep"] if one is not None)
    failed = f", {status['trials_failed']:,} failed" if status["trials_failed"] else ""
    damaged = f", {len(status['damaged'])} damaged file(s)" if status["damaged"] else ""
    return f"{status['trials']:,} of {status['trials_wanted']:,}{failed}{damaged}; {keep} of the examples kept"


def _has_scores(status: Mapping[str, Any]) -> bool:
    return status.get("outcome") == "score"


def _means(status: Mapping[str, Any]) -> str:
    names = {"accuracy_in": "on kept", "accuracy_out": "on held-out", "test_accuracy": "on test examples"}
    shape = ".4g" if _has_scores(status) else ".1%"
    known = [f"{status[key]:{shape}} {name}" for key, name in names.items() if status[key] is not None]
    return ", ".join(known) or "unknown"


def _histogram(values: np.ndarray) -> str:
    """Bars on a scale where one example among thousands can still be seen, and the paper's threshold."""
    chart = histogram(values)
    edges, counts = chart.edges, chart.counts
    heights = np.log1p(counts) / np.log1p(max(1, int(counts.max()))) * HEIGHT
    step = WIDTH / len(counts)
    bars = "".join(
        f'<rect x="{k * step + 0.5:.1f}" y="{HEIGHT - height:.1f}" width="{step - 1:.1f}" height="{height:.1f}"'
        f' fill="currentColor" fill-opacity="{0.85 if edges[k] >= MEMORIZED else 0.45}">'
        f"<title>{edges[k]:.2f} to {edges[k + 1]:.2f}: {count:,}</title></rect>"
        for k, (height, count) in enumerate(zip(heights.tolist(), counts.tolist()))
    )
    memorized, missing = int((values >= MEMORIZED).sum()), chart.missing
    said = f"{memorized:,} of {len(values):,} training examples have memorization ≥ {MEMORIZED}"
    said += f"; {missing:,} cannot be estimated yet" if missing else ""
    ticks = "".join(
        f'<text x="{(tick - edges[0]) * BINS_PER_UNIT * step:.1f}" y="{HEIGHT + 13}" font-size="10" fill="currentColor"'
        f' text-anchor="{"end" if tick == 1 else "middle" if tick > edges[0] else "start"}">{tick:g}</text>'
        for tick in (0, MEMORIZED, 0.5, 0.75, 1)
    )
    return (
        f'<svg role="img" aria-label="Histogram of memorization: {said}" width="{WIDTH}" height="{HEIGHT + 18}"'
        f' viewBox="0 0 {WIDTH} {HEIGHT + 18}">{bars}'
        f'<line x1="0" x2="{WIDTH}" y1="{HEIGHT}" y2="{HEIGHT}" stroke="currentColor"/>{ticks}</svg>'
        f"<div>{said} (heights are logarithmic)</div>"
    )
