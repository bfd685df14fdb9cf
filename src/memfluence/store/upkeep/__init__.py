"""Upkeep of runs: `verify` what is there, `repair` what is damaged, `merge` runs, `compact` many segments into few.

Nothing here is needed for scores, and nothing here makes any: it reads, moves and joins whole rows. Trials are only
ever removed from a place after another place has been written, read back and compared.
"""

from memfluence.store.upkeep.compacting import Compacted, compact
from memfluence.store.upkeep.merging import Merged, merge
from memfluence.store.upkeep.repairing import Repaired, repair
from memfluence.store.upkeep.verifying import Problem, Verified, verify

__all__ = ["Compacted", "Merged", "Problem", "Repaired", "Verified", "compact", "merge", "repair", "verify"]
