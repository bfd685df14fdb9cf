"""What to look at: findings that people act on, selected from the estimates, and how far to trust the selection."""

from memfluence.findings.cross_fit import CrossFit, cross_fitted_pairs
from memfluence.findings.growth import trials_needed
from memfluence.findings.pairs import Pairs, high_influence_pairs
from memfluence.findings.stability import Stability, pair_stability

__all__ = [
    "CrossFit",
    "Pairs",
    "Stability",
    "cross_fitted_pairs",
    "high_influence_pairs",
    "pair_stability",
    "trials_needed",
]
