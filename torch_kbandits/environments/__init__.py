"""Problems with known means, so that regret can be measured without noise."""

from torch_kbandits.environments.arms import FiniteArms, gaussian_bumps

__all__ = ["FiniteArms", "gaussian_bumps"]
