"""Arms split over Ray actors, each with its block of the embedding. Needs ``pip install -e '.[ray]'`` in a clone."""

from torch_kbandits.integrations.ray.arms import ShardedArms
from torch_kbandits.integrations.ray.workers import ShardLostError

__all__ = ["ShardLostError", "ShardedArms"]
