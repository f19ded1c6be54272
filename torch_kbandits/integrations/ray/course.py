"""What is sent to a shard: the steps from the posterior that it holds to the one that is wanted.

Everything here is NumPy arrays and plain values, which travel with fewer bytes than tensors.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from numpy.typing import NDArray

Array = NDArray[Any]


def new_version() -> str:
    """Return a name that no posterior has had yet, in any process."""
    return uuid.uuid4().hex


class Held(NamedTuple):
    """Which posterior a shard holds.

    Attributes:
        learned: the version of what it learned.
        tip: the version with the points that it holds pending; that of what it learned if there are none.
    """

    learned: str
    tip: str


@dataclass(frozen=True, eq=False)
class Prior:
    """The posterior before any reward.

    Attributes:
        kernel: the prior covariance.
        regularization: λ.
        exact: whether every played point is in the dictionary.
        seed: addresses the order in which ties between all arms are broken.
        column_memory: bytes that kernel columns may occupy on each worker.
        kernel_bound: the largest prior variance of all arms; None for that of the shard's own.
        mean: the prior mean; None for zero.
        full_at: the size from which on a dictionary may not grow; None for none.
    """

    kernel: Kernel
    regularization: float
    exact: bool
    seed: int
    column_memory: int
    kernel_bound: float | None = None
    mean: Mean | None = None
    full_at: int | None = None


@dataclass(frozen=True, eq=False)
class Start:
    """All that was learned and still counts, from which a shard builds its table.

    Attributes:
        prior: the posterior before that.
        version: of what was learned.
        points: the unique played points in order of first play, (u, d).
        counts: how often each was played, (u,), not whole where rewards count less as they age.
        sums: of their rewards, (u,).
        dictionary: (m, d); None if the posterior is exact.
    """

    prior: Prior
    version: str
    points: Array
    counts: Array
    sums: Array
    dictionary: Array | None


@dataclass(frozen=True, eq=False)
class Told:
    """Rewards, and the dictionary after them.

    Attributes:
        version: of what was learned, with them.
        points: (q, d).
        rewards: (q,).
        dictionary: whole numbers (m,), places among the unique played points in order of first play, or points (m, d);
            None if it is what it was, and where the posterior is exact.
    """

    version: str
    points: Array
    rewards: Array
    dictionary: Array | None


@dataclass(frozen=True, eq=False)
class TakenBack:
    """Rewards that no longer count, of k points; the dictionary stays.

    Attributes:
        version: of what is left.
        places: whole numbers (3, k): where the points stood among the unique played ones, where they stand now, -1 if
            nothing is left of them, and how many rewards of each are taken back.
        sums: of the rewards of each that are taken back, and of those that are left, (2, k).
    """

    version: str
    places: Array
    sums: Array


@dataclass(frozen=True, eq=False)
class Reweighted:
    """What everything learned counts at another time; the dictionary stays.

    Attributes:
        version: of what was learned, at that time.
        places: whole numbers (k,): of the played points that still count, in the order in which they stand from now on.
        counts: for how many fresh rewards those of each count, (k,).
        sums: of these rewards, (k,).
    """

    version: str
    places: Array
    counts: Array
    sums: Array


#: What a shard learns, or unlearns.
Step = Told | TakenBack | Reweighted


@dataclass(frozen=True, eq=False)
class Added:
    """Points that became pending.

    Attributes:
        version: of what is pending, with them.
        points: (k, d).
        times: how often each.
    """

    version: str
    points: Array
    times: int


@dataclass(frozen=True, eq=False)
class Message:
    """What takes a shard to the posterior that is wanted.

    Attributes:
        since: what the shard must hold; what it holds pending beyond that is dropped. None where there is a start.
        start: what to build the table from; None to go on from the one that is there.
        steps: rewards to learn, to take back or to weigh anew, in order.
        added: points that become pending.
    """

    since: Held | None
    start: Start | None
    steps: tuple[Step, ...]
    added: tuple[Added, ...]


@dataclass(frozen=True, eq=False)
class Course:
    """The way to a posterior with points pending, from wherever a shard stands.

    Attributes:
        root: the version before the steps that are remembered one by one.
        steps: these steps.
        added: the points pending.
        start: makes what a shard that stands nowhere on the way is built from.
    """

    root: str
    steps: tuple[Step, ...]
    added: tuple[Added, ...]
    start: Callable[[], Start]

    def message(self, held: Held | None) -> Message:
        """Return what a shard is to be sent; None stands for one that holds nothing that is known."""
        learned = [self.root, *(step.version for step in self.steps)]
        tips = [learned[-1], *(step.version for step in self.added)]
        if held is None or held.learned not in learned:
            return Message(None, self.start(), (), self.added)
        if held.learned == learned[-1] and held.tip in tips:
            return Message(held, None, (), self.added[tips.index(held.tip) :])
        rest = self.steps[learned.index(held.learned) :]
        return Message(Held(held.learned, held.learned), None, rest, self.added)
