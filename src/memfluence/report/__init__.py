"""Reports: an explorer of what a run found, and figures for papers."""

from memfluence.report.attack import attack_figure
from memfluence.report.explorer import ReportServer, is_current, write_report
from memfluence.report.figures import histogram_figure, pairs_figure
from memfluence.report.grids import duplicates_figure, mislabels_figure

__all__ = [
    "ReportServer",
    "attack_figure",
    "duplicates_figure",
    "histogram_figure",
    "is_current",
    "mislabels_figure",
    "pairs_figure",
    "write_report",
]
