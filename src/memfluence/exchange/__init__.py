"""Exchange with other people's tools: tables of scores, the authors' published layout, trials made elsewhere."""

from memfluence.exchange.comparing import Comparison, compare, compared
from memfluence.exchange.finding_again import FoundAgain, found_again
from memfluence.exchange.published import Published, export_published, read_published
from memfluence.exchange.tables import rows, write_table
from memfluence.exchange.trials import export_trials, import_trials

__all__ = [
    "Comparison",
    "FoundAgain",
    "Published",
    "compare",
    "compared",
    "export_published",
    "export_trials",
    "found_again",
    "import_trials",
    "read_published",
    "rows",
    "write_table",
]
