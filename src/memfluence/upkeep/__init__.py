"""Upkeep of runs: `verify` what is there, `repair` what is damaged, `merge` runs, `compact` many segments into few.

Nothing here is needed for scores, and nothing here makes any: it reads, moves and joins whole rows. Trials are only
ever removed from a place after another place has been written, read back and compared.
"""

from memfluence.upkeep.compacting import Compacted, compact
from memfluence.upkeep.merging import Merged, merge
from memfluence.upkeep.repairing import Repaired, repair
from memfluence.upkeep.verifying import Problem, Verified, verify

__all__ = ["Compacted", "Merged", "Problem", "Repaired", "Verified", "compact", "merge", "repair", "verify"]
