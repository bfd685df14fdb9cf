"""Reports: an explorer of what a run found, figures for papers, and what a notebook shows of a run."""

from memfluence.report.cards import Shown, show, show_pairs
from memfluence.report.explorer import ReportServer, is_current, write_report
from memfluence.report.figures import (
    attack_figure,
    duplicates_figure,
    histogram_figure,
    histogram_plot,
    mislabels_figure,
    pair_grid,
    pairs_figure,
)
from memfluence.report.notebook import ReportPage, run_html

__all__ = [
    "ReportPage",
    "ReportServer",
    "Shown",
    "attack_figure",
    "duplicates_figure",
    "histogram_figure",
    "histogram_plot",
    "is_current",
    "mislabels_figure",
    "pair_grid",
    "pairs_figure",
    "run_html",
    "show",
    "show_pairs",
    "write_report",
]
