"""Exchange with other people's tools: their formats, the authors' published layout, trials made elsewhere."""

from memfluence.exchange.comparing import Comparison, compare, compared
from memfluence.exchange.figure import comparison_figure, save_comparison
from memfluence.exchange.finding_again import FoundAgain, found_again
from memfluence.exchange.importing import import_trials
from memfluence.exchange.published import Published, export_published, read_published
from memfluence.exchange.tools import TOOLS, export_for
from memfluence.exchange.trials_file import export_trials

__all__ = [
    "TOOLS",
    "Comparison",
    "FoundAgain",
    "Published",
    "compare",
    "compared",
    "comparison_figure",
    "export_for",
    "export_published",
    "export_trials",
    "found_again",
    "import_trials",
    "read_published",
    "save_comparison",
]
