"""Reports: an explorer of what a run found, figures for papers, and what a notebook shows of a run."""

from memfluence.report.explorer import ReportServer, is_current, write_report
from memfluence.report.figures import (
    attack_figure,
    duplicates_figure,
    histogram_figure,
    mislabels_figure,
    pair_grid,
    pairs_figure,
)
from memfluence.report.notebook import run_html

__all__ = [
    "ReportServer",
    "attack_figure",
    "duplicates_figure",
    "histogram_figure",
    "is_current",
    "mislabels_figure",
    "pair_grid",
    "pairs_figure",
    "run_html",
    "write_report",
]
