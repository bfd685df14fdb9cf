"""The explorer: a folder of plain files in which people look at what a run found, and a server for it."""

from memfluence.report.explorer.serving import ReportServer
from memfluence.report.explorer.writing import is_current, write_report

__all__ = ["ReportServer", "is_current", "write_report"]
