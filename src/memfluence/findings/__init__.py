"""What to look at: findings that people act on, selected from the estimates."""

from memfluence.findings.pairs import Pairs, high_influence_pairs

__all__ = ["Pairs", "high_influence_pairs"]
