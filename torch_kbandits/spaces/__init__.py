"""Search spaces of named parameters."""

from torch_kbandits.spaces.kinds import Categorical, Float, Integer, LinearConstraint, Parameter
from torch_kbandits.spaces.space import ParameterSpace

__all__ = ["Categorical", "Float", "Integer", "LinearConstraint", "Parameter", "ParameterSpace"]
