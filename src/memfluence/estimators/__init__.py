"""What trials say, with how surely: memorization and influence from exact counts.

Everything here takes `records.Trials` and the kinds of trial that the plan has. Axis order is always (train, test),
and a positive value means that the training example helps.
"""

from memfluence.estimators._arms import Arms, arms
from memfluence.estimators.counts import JointCounter, joint_counts_reference
from memfluence.estimators.influence import ClassBlock, Influence, TopK, influence
from memfluence.estimators.intervals import Difference, difference
from memfluence.estimators.memorization import Memorization, memorization, memorization_of

__all__ = [
    "Arms",
    "ClassBlock",
    "Difference",
    "Influence",
    "JointCounter",
    "Memorization",
    "TopK",
    "arms",
    "difference",
    "influence",
    "joint_counts_reference",
    "memorization",
    "memorization_of",
]
