"""From noisy reports back to the distribution: one loop, its stops, its accelerators, its error bars."""

# fmt: off
# isort: off
from geoveil.channel.joint import JointTally
from geoveil.channel.operator import DenseOperator, Operator, StackedOperator
from geoveil.estimate.bayesian_update import IterativeBayesianUpdate
from geoveil.estimate.em import ActiveSetNewton, Ascent, Squarem, maximise
from geoveil.estimate.fitted import Estimate, RegionEstimate
from geoveil.estimate.identifiability import Identifiability
from geoveil.estimate.linear import (
    MatrixInversion, RandomizedResponseEstimator, RapporEstimator, Repair, clip_and_normalise,
    project_onto_simplex,
)
from geoveil.estimate.mixture import (
    AverageMechanism, AverageOfEstimates, Estimator, randomized_response_error_bound,
    randomized_response_level, rappor_error_bound, rappor_level,
)
from geoveil.estimate.stopping import (
    CertifiedWithin, CrossValidated, LikelihoodChange, Progress, Steps, Stop, StoppingRule,
)
from geoveil.estimate.uncertainty import Bootstrap, FisherInformation, Uncertainty

__all__ = [
    "ActiveSetNewton", "Ascent", "AverageMechanism", "AverageOfEstimates", "Bootstrap",
    "CertifiedWithin", "CrossValidated", "DenseOperator", "Estimate", "Estimator", "FisherInformation",
    "Identifiability", "IterativeBayesianUpdate", "JointTally", "LikelihoodChange", "MatrixInversion",
    "Operator", "Progress", "RandomizedResponseEstimator", "RapporEstimator", "RegionEstimate", "Repair",
    "Squarem", "StackedOperator", "Steps", "Stop", "StoppingRule", "Uncertainty",
    "clip_and_normalise", "maximise", "project_onto_simplex",
    "randomized_response_error_bound", "randomized_response_level", "rappor_error_bound", "rappor_level",
]
# isort: on
# fmt: on
