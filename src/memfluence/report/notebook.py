"""A run as a notebook shows it: what it is, how far it is, and a small histogram of memorization.

One piece of HTML without scripts or styles from elsewhere. It takes its colours from the page, so that it is readable
on light and on dark, and every name is escaped.
"""

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from memfluence.paper import MEMORIZED
from memfluence.report._histogram import BINS_PER_UNIT, histogram

WIDTH, HEIGHT = 360, 80


def run_html(status: Mapping[str, Any], memorization: np.ndarray | None, note: str = "") -> str:
    """`status` is what `Run.status` says; `memorization` (n_train,), or None with a `note` that says why not."""
    rows = [
        ("data", f"{status['dataset']}: {status['n_train']:,} training and {status['n_test']:,} test examples"),
        ("learner", status["learner"] or "imported trials"),
        ("trials", _trials(status)),
        ("accuracy", _accuracies(status)),
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


def _accuracies(status: Mapping[str, Any]) -> str:
    names = {"accuracy_in": "on kept", "accuracy_out": "on held-out", "test_accuracy": "on test examples"}
    known = [f"{status[key]:.1%} {name}" for key, name in names.items() if status[key] is not None]
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
