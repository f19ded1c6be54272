"""Arms split over workers."""

from itertools import pairwise
from typing import Any

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import Domain
from torch_kbandits.candidates import Arms, LastingCandidates
from torch_kbandits.errors import InputError
from torch_kbandits.integrations.ray.sharded_posterior import ShardedPosterior
from torch_kbandits.integrations.ray.workers import Workers
from torch_kbandits.selection import PosteriorConfig, surrogate_over


class ShardedArms(LastingCandidates):
    """A finite set of arms split over Ray actors, each with its block of the arms and of the embedding.

    What is chosen is what ``Arms`` would choose. A round sends O(d + m) numbers to each shard, and one arm comes back.
    A worker that is lost is replaced. One bandit at a time: workers hold one posterior, and bandits that take turns
    with the same object have it built anew at each turn. Ray is the one that is initialised; if there is none, it is
    started with its own defaults. Workers end when nothing refers to this object any more, or with ``close``.

    Args:
        arms: what ``Arms`` takes, or these; of an array of a file each worker reads its own arms only, which every
            machine with a worker must be able to read under the same path.
        num_shards: number of actors, at least 1 and at most A. Sizes of shards differ by at most one arm.
        num_gpus_per_shard: GPUs of each; above 0 arms and embedding live on one.
        num_cpus_per_shard: CPUs of each. Torch has one thread in each.
        start_timeout: seconds that a worker may take to come up and read its arms.

    Raises:
        MissingExtraError: if Ray is not installed.
        InputError: if the arms do not fit or cannot be sent to another process, or a number is out of range.
    """

    is_stored = True
    is_split = True

    def __init__(
        self,
        arms: Any,
        *,
        num_shards: int,
        num_gpus_per_shard: float = 0,
        num_cpus_per_shard: float = 1,
        start_timeout: float = 120.0,
    ) -> None:
        cpus = checks.non_negative("num_cpus_per_shard", num_cpus_per_shard)
        gpus = checks.non_negative("num_gpus_per_shard", num_gpus_per_shard)
        patience = checks.positive("start_timeout", start_timeout)
        self.source = arms.source if isinstance(arms, Arms) else Arms(arms).source
        count, number = len(self.source), checks.positive_integer("num_shards", num_shards)
        if number > count:
            raise InputError(f"num_shards must be at most the number of arms, {count}, got {number}.")
        shards = [range(*pair) for pair in pairwise(each * count // number for each in range(number + 1))]
        self.example, self.ranges = self.source.block(0, 1).cpu().clone(), self.source.ranges
        self.workers = Workers(self.source, shards, cpus, gpus, patience)

    @property
    def domain(self) -> Domain:
        """No arms: they are not all in this process."""
        return Domain()

    def close(self) -> None:
        """End the workers and free what they hold. What was learned is not lost: the next ``ask`` starts others."""
        self.workers.close()

    def recommends(self, points: Tensor) -> Tensor:
        """Say of points (n, d) which are arms, (n,) bool; they are looked through in this process."""
        return self.source.has(points)

    def describe(self) -> dict[str, object]:
        """Return what ``Arms`` says of the same arms, so that saved states go from one to the other."""
        return {"arms": self.source.describe()}


@surrogate_over.register
def _over_shards(candidates: ShardedArms, config: PosteriorConfig) -> ShardedPosterior:
    """Return the posterior before any observation; the workers are started if they are not there."""
    return ShardedPosterior(candidates.example, candidates.source, candidates.workers, config)
