"""What trials say, with how surely: memorization and influence from exact counts.

Everything here takes `records.Trials` and the kinds of trial that the plan has. Axis order is always (train, test),
and a positive value means that the training example helps.
"""

from memfluence.estimators._arms import Arms, arms
from memfluence.estimators._asking import ask
from memfluence.estimators._estimates import Block, ClassBlock, Estimates, TopK, TopTests, class_members
from memfluence.estimators.adjusted import AdjustedInfluence, adjusted_influence, adjusted_memorization
from memfluence.estimators.choosing import ESTIMATORS, chosen_influence, chosen_memorization
from memfluence.estimators.counts import JointCounter, joint_counts_reference
from memfluence.estimators.influence import Influence, influence
from memfluence.estimators.intervals import Difference, difference
from memfluence.estimators.lemma import lemma_bound, lemma_estimate, lemma_trials
from memfluence.estimators.memorization import Memorization, memorization, memorization_of
from memfluence.estimators.memory import Memory
from memfluence.estimators.real import (
    RealInfluence,
    RealMemorization,
    real_influence,
    real_memorization,
    recorded_outcome,
)
from memfluence.estimators.shrunk import ShrunkInfluence, shrunk_influence
from memfluence.estimators.significance import p_values, q_values
from memfluence.estimators.smoothed import smoothed

__all__ = [
    "ESTIMATORS",
    "AdjustedInfluence",
    "Arms",
    "Block",
    "ClassBlock",
    "Difference",
    "Estimates",
    "Influence",
    "JointCounter",
    "Memorization",
    "Memory",
    "RealInfluence",
    "RealMemorization",
    "ShrunkInfluence",
    "TopK",
    "TopTests",
    "adjusted_influence",
    "adjusted_memorization",
    "arms",
    "ask",
    "chosen_influence",
    "chosen_memorization",
    "class_members",
    "difference",
    "influence",
    "joint_counts_reference",
    "lemma_bound",
    "lemma_estimate",
    "lemma_trials",
    "memorization",
    "memorization_of",
    "p_values",
    "q_values",
    "real_influence",
    "real_memorization",
    "recorded_outcome",
    "shrunk_influence",
    "smoothed",
]
