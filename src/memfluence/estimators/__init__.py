"""Estimates with their errors: memorization and influence from exact counts, and other values of the examples.

Everything here takes `records.Trials` and the kinds of trial that the plan has. Axis order is always (train, test),
and a positive value means that the training example helps.
"""

from memfluence.estimators._arms import Arms, arms
from memfluence.estimators._estimates import Block, ClassBlock, Estimates, TopK, TopTests, class_members, keep_largest
from memfluence.estimators._values import chosen_tests, mean_utility
from memfluence.estimators.adjusted import AdjustedInfluence, adjusted_influence, adjusted_memorization
from memfluence.estimators.banzhaf import banzhaf_values
from memfluence.estimators.counts import JointCounter, joint_counts_reference
from memfluence.estimators.cscore import CScores, c_scores
from memfluence.estimators.datamodels import Datamodels, datamodels
from memfluence.estimators.influence import Influence, Scan, influence
from memfluence.estimators.intervals import Difference, difference
from memfluence.estimators.judging import Judged, Judgement, Mean, judge_scores
from memfluence.estimators.lemma import lemma_bound, lemma_trials
from memfluence.estimators.memorization import Memorization, memorization, memorization_of
from memfluence.estimators.memory import Memory
from memfluence.estimators.real import (
    RealInfluence,
    held_out_means,
    real_influence,
    real_memorization,
    with_ties_by,
)
from memfluence.estimators.shapley import shapley_values
from memfluence.estimators.significance import harmonic, p_values, q_values

__all__ = [
    "AdjustedInfluence",
    "Arms",
    "Block",
    "CScores",
    "ClassBlock",
    "Datamodels",
    "Difference",
    "Estimates",
    "Influence",
    "JointCounter",
    "Judged",
    "Judgement",
    "Mean",
    "Memorization",
    "Memory",
    "RealInfluence",
    "Scan",
    "TopK",
    "TopTests",
    "adjusted_influence",
    "adjusted_memorization",
    "arms",
    "banzhaf_values",
    "c_scores",
    "chosen_tests",
    "class_members",
    "datamodels",
    "difference",
    "harmonic",
    "held_out_means",
    "influence",
    "joint_counts_reference",
    "judge_scores",
    "keep_largest",
    "lemma_bound",
    "lemma_trials",
    "mean_utility",
    "memorization",
    "memorization_of",
    "p_values",
    "q_values",
    "real_influence",
    "real_memorization",
    "shapley_values",
    "with_ties_by",
]
