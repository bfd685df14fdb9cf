"""Findings: what people act on, selected from the estimates, and how far to trust the selection."""

from memfluence.findings._selection import Selection
from memfluence.findings.cross_fit import CrossFit, cross_fitted_pairs
from memfluence.findings.duplicates import Duplicates, train_test_duplicates
from memfluence.findings.groups import GroupScores, group_scores, group_trials
from memfluence.findings.membership import Attack, Variance, membership_attack
from memfluence.findings.mislabels import (
    Mislabels,
    held_out_acceptance,
    held_out_votes,
    likely_mislabels,
    unlikely_targets,
)
from memfluence.findings.pairs import Pairs, high_influence_pairs, influences_by_chance
from memfluence.findings.prediction import trials_needed
from memfluence.findings.stability import Stability, pair_stability
from memfluence.findings.tail_map import TailMap, tail_map

__all__ = [
    "Attack",
    "CrossFit",
    "Duplicates",
    "GroupScores",
    "Mislabels",
    "Pairs",
    "Selection",
    "Stability",
    "TailMap",
    "Variance",
    "cross_fitted_pairs",
    "group_scores",
    "group_trials",
    "held_out_acceptance",
    "held_out_votes",
    "high_influence_pairs",
    "influences_by_chance",
    "likely_mislabels",
    "membership_attack",
    "pair_stability",
    "tail_map",
    "train_test_duplicates",
    "trials_needed",
    "unlikely_targets",
]
