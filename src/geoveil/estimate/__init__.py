"""From noisy reports back to the distribution: one loop, its stops, its accelerators, its error bars."""

# fmt: off
# isort: off
from geoveil.channel.joint import JointTally
from geoveil.channel.operator import DenseOperator, Operator, StackedOperator
from geoveil.estimate.bayesian_update import IterativeBayesianUpdate
from geoveil.estimate.em import ActiveSetNewton, Squarem, maximise
from geoveil.estimate.fitted import Estimate
from geoveil.estimate.linear import MatrixInversion, RapporEstimator, Repair
from geoveil.estimate.mixture import AverageMechanism, AverageOfEstimates, Estimator
from geoveil.estimate.stopping import (
    CertifiedWithin, CrossValidated, LikelihoodChange, Progress, Steps, Stop, StoppingRule,
)
from geoveil.estimate.uncertainty import Bootstrap, FisherInformation, Uncertainty

__all__ = [
    "ActiveSetNewton", "AverageMechanism", "AverageOfEstimates", "Bootstrap", "CertifiedWithin",
    "CrossValidated", "DenseOperator", "Estimate", "Estimator", "FisherInformation",
    "IterativeBayesianUpdate", "JointTally", "LikelihoodChange", "MatrixInversion", "Operator", "Progress",
    "RapporEstimator", "Repair", "Squarem", "StackedOperator", "Steps", "Stop", "StoppingRule", "Uncertainty",
    "maximise",
]
# isort: on
# fmt: on
