"""One block of the arms in a worker, with the posterior there, and what is asked of it. It knows nothing of Ray."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule
from torch_kbandits.candidates import ArmSource
from torch_kbandits.numerics.prior_draws import drawn_function
from torch_kbandits.numerics.random import generator_for, tie_width
from torch_kbandits.posteriors.posterior import Prior, arms_of
from torch_kbandits.selection import among

Array = NDArray[Any]

#: A method of ``Arms``, and its words.
Change = tuple[str, tuple[Any, ...]]
#: Which posterior a shard holds: the version of what was learned, and after it of each point pending.
Versions = tuple[int, ...]

_BLOCK = 2**20  # ranks drawn at a time to get at those of a shard
#: Scores of arms that are avoided are so much lower: finite, since ties are told apart by the size of scores.
_FAR_BELOW = 2.0**100


class Message(NamedTuple):
    """What takes a shard from the posterior that it holds, but for points pending beyond ``since``, to one ``wanted``.

    ``start`` is the kernel and the prior to begin with; None to go on. ``pending`` has the words of ``Arms.taken``.
    """

    since: Versions
    start: tuple[Kernel, Prior] | None
    changes: Sequence[Change]
    pending: Sequence[tuple[Any, ...]]
    learns_residual: bool
    wanted: Versions


class Shard:
    """``Arms`` of one block at a posterior, on a device, and what points pending take of them."""

    def __init__(self, device: str = "cpu", num_threads: int | None = None) -> None:
        torch.set_num_threads(num_threads or torch.get_num_threads())
        self._device, self._ranks, self._held = device, dict[int, Tensor](), cast(Versions, ())

    def load(self, arms: Array | ArmSource, rows: range) -> None:
        """Read the arms of some rows into memory: they are given, or a source of all."""
        block = arms.block(rows.start, rows.stop) if isinstance(arms, ArmSource) else torch.from_numpy(np.array(arms))
        self.source, self._rows = ArmSource(block.to(self._device)), rows

    def reply(self, data: bytes) -> Any:
        """Go where a message leads, and answer a question about the posterior there; both are in bytes.

        None says that the shard holds something else than the message builds on, as after an error or an interrupt.
        """
        message, question = cast(tuple[Message, Callable[[Shard], Any]], pickle.loads(data))
        held, kept = self._held, len(message.since)
        if message.start is None and held[:kept] != message.since:
            return None
        self._held = ()
        if message.start is not None:
            vars(self).pop("arms", None)  # its memory is that of the new ones
            self.arms, _ = arms_of(self.source, *message.start)
        for name, words in message.changes:
            self.arms = getattr(self.arms, name)(*words)
        if message.start is not None or len(held) > kept or message.changes:
            self._pending, self._taken = list[tuple[Any, ...]](), self.arms.untaken
        self._pending += message.pending
        self.learns_residual = message.learns_residual
        answer, self._held = question(self), message.wanted
        return answer

    @property
    def variance(self) -> Any:
        """Variances of the arms with the points pending, (A,), where the arms are."""
        for words in self._pending[len(self._taken) :]:
            self._taken = self.arms.taken(self._taken, *words)
        variance = self.arms.variance(learns_residual=self.learns_residual)
        return self.arms.steps.left(variance, self._taken) if len(self._taken) else variance

    def ranks(self, seed: int) -> Tensor:
        """Return what ``tie_rank`` has of these arms under a seed, (A,). Cost: that of all draws up to theirs, once."""
        if seed not in self._ranks:
            kind = {"generator": generator_for(seed, 0, "ties"), "dtype": torch.float32, "device": "cpu"}
            for first in range(0, self._rows.start, _BLOCK):
                torch.rand(min(_BLOCK, self._rows.start - first), **kind)
            self._ranks = {seed: torch.rand(len(self._rows), **kind).to(self._device)}
        return self._ranks[seed]

    def kernel_bound(self) -> float:
        """Return the largest prior variance of the arms."""
        return float(self.arms.table.prior.max())

    def variance_ratio(self, least: float) -> float:
        """Return the largest ratio of variances without and with the points pending, none of which is below another."""
        before = self.arms.variance(learns_residual=self.learns_residual)
        return float(((before + least) / (self.variance + least)).max())

    def moments(self) -> tuple[Array, Array]:
        """Return posterior means, (k, A), and variances with the points pending, (A,)."""
        return _sent(self.arms.table.mean), _sent(self.variance)


@dataclass(frozen=True, eq=False)
class Choice:
    """Which arm does a rule choose? Of a shard it is the posterior at the arms there, as ``ArmPosterior``."""

    rule: AcquisitionRule
    beta: Array  # 0-dim; takes fewer bytes than a tensor
    seed: int
    bound: float  # the largest prior variance of all arms
    tie_seed: int
    incumbent: Tensor | None
    correction: Array | None  # the weights of the coordinates that make a prior draw one of the posterior, (m,)
    avoided: Tensor | None  # arms (n, d) that are not chosen while the shard has others
    shard: Any = None

    @property
    def mean(self) -> Tensor:
        """Posterior means, (A,)."""
        return self._values(self.shard.arms.table.mean[0])

    @property
    def variance(self) -> Tensor:
        """Posterior variances with the points pending, (A,)."""
        return self._values(self.shard.variance)

    def _values(self, values: Any) -> Tensor:
        return torch.as_tensor(values).to(self.shard.source.dtype)

    def deviation(self, seed: int) -> Tensor:
        """Return a draw of f − mean, (A,): one function on the arms of all shards."""
        arms, source, c = self.shard.arms, self.shard.source, cast(Array, self.correction)
        drawn = drawn_function(arms.kernel, source.dimension, torch.Generator().manual_seed(seed))
        prior = torch.cat([drawn.at(block) for _, block in source.blocks()])
        return (prior + torch.as_tensor(arms.table.features.product(c))).to(source.dtype)

    def __call__(self, shard: Shard) -> tuple[Array, Array, Array]:
        """Return scores (k,), ranks among ties (k,), and arms (k, d): the best, and what nearly ties and may win."""
        posterior: Any = replace(self, shard=shard)
        with torch.no_grad():
            scores = self.rule.on_arms(posterior, beta := torch.tensor(self.beta), self.seed)
        if self.avoided is not None:
            scores = scores - _FAR_BELOW * among(shard.source.block(0, len(scores)), [*self.avoided.to(scores.device)])
        # Twice the width of ties leaves room for where the best of all shards sets it; higher ranks win among them.
        least = scores.max() - 2.0 * tie_width(scores.max(), beta, scores.new_tensor(self.bound))
        ranks, near, places = shard.ranks(self.tie_seed), (scores >= least).nonzero().squeeze(-1), list[Tensor]()
        while len(near):
            places.append(near[ranks[near].argmax()])
            near = near[scores[near] > scores[places[-1]]]
        rows = torch.stack(places)
        return _sent(scores[rows]), _sent(ranks[rows]), _sent(shard.source.rows(rows))


def _sent(values: Any) -> Array:
    return torch.as_tensor(values).cpu().numpy()
