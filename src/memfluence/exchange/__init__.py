"""Exchange with other people's tools: tables of scores, the authors' published layout, trials made elsewhere."""

from memfluence.exchange.comparing import compare
from memfluence.exchange.published import Published, export_published, read_published
from memfluence.exchange.tables import rows, write_table
from memfluence.exchange.trials import export_trials, import_trials

__all__ = [
    "Published",
    "compare",
    "export_published",
    "export_trials",
    "import_trials",
    "read_published",
    "rows",
    "write_table",
]
