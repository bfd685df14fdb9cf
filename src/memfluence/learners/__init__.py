"""Learners: what trains a group of trials. By name, from a file, a scikit-learn classifier, or a function: `resolve`.

Importing this room imports neither torch nor scikit-learn; a learner does, when it trains.
"""

from memfluence.learners.estimator import EstimatorLearner
from memfluence.learners.function import FunctionLearner
from memfluence.learners.mlp import MLP
from memfluence.learners.protocol import (
    Checkpoints,
    Learner,
    Representation,
    Representing,
    Resumable,
)
from memfluence.learners.resolve import data_for, described, represent, resolve, up_to_date

__all__ = [
    "MLP",
    "Checkpoints",
    "EstimatorLearner",
    "FunctionLearner",
    "Learner",
    "Representation",
    "Representing",
    "Resumable",
    "data_for",
    "described",
    "represent",
    "resolve",
    "up_to_date",
]
