"""The posterior over one block of arms, seen from its worker."""

import time
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.candidates.sources import ArmSource, UnsearchedArms
from torch_kbandits.dictionaries import Selection
from torch_kbandits.integrations.ray.course import Added, Array, Held, Message, Reweighted, Start, TakenBack, Told
from torch_kbandits.integrations.ray.questions import Question
from torch_kbandits.integrations.ray.table import ShardLookahead, ShardTable, ranks_of
from torch_kbandits.observations.played import Plays


class Reply(NamedTuple):
    """What a shard returns.

    Attributes:
        held: the posterior that it holds now; None for none that is known.
        is_answered: whether it held what the message builds on; if not, nothing was done.
        answer: to the question, if it is answered.
    """

    held: Held | None
    is_answered: bool
    answer: Any = None


class _Standing(NamedTuple):
    """Where a shard stands: its version, its posterior, and the dictionary last selected, None if it is exact."""

    held: Held
    ahead: ShardLookahead
    selection: Selection | None

    def goes_on_from(self, since: Held | None) -> bool:
        """Say whether this is what a message builds on, but for pending points that are to be dropped."""
        return since in (self.held, Held(self.held.learned, self.held.learned))

    def without_pending(self) -> "_Standing":
        """Return the same with nothing pending."""
        ahead = ShardLookahead(self.ahead.table, self.ahead.arms)
        return _Standing(Held(self.held.learned, self.held.learned), ahead, self.selection)


class Shard:
    """One block of the arms and the table over it: what lives in a worker. It knows nothing of Ray.

    It learns what the other shards learn, from the same few numbers, and repeats the algebra on matrices of the
    dictionary's size; so no such matrix is ever sent.

    Args:
        device: where arms and embedding live.
        num_threads: of torch in this process; None leaves them as they are.
    """

    def __init__(self, device: str = "cpu", num_threads: int | None = None) -> None:
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        self._device = torch.device(device)
        self._standing: _Standing | None = None
        self._known_ranks: tuple[int, Tensor] | None = None

    def load(self, arms: Array | ArmSource, rows: range) -> None:
        """Read the arms of some rows into memory; ``arms`` are these arms, or a source of all.

        Raises:
            ArmsChangedError: if the source has other arms by now.
        """
        block = arms.block(rows.start, rows.stop) if isinstance(arms, ArmSource) else torch.from_numpy(np.array(arms))
        self._arms, self._rows = UnsearchedArms(block.to(self._device)), rows

    def answer(self, message: Message, question: Question) -> Reply:
        """Go to the posterior that a message leads to, and answer a question about it.

        After an error or an interrupt the shard holds nothing that is known, and has to be started again.

        Cost: that of ``FeatureTable`` for what is new; O(A m²) for a start.
        """
        standing, self._standing = self._standing, None
        if message.start is not None:
            standing = None  # its memory is that of the new table
            standing = self._started(message.start)
        elif standing is None or not standing.goes_on_from(message.since):
            self._standing = standing
            return Reply(self.held, False)
        elif message.since != standing.held:
            standing = standing.without_pending()
        for step in message.steps:
            standing = self._with_rewards(standing, step) if isinstance(step, Told) else self._moved(standing, step)
        for added in message.added:
            standing = self._with_pending(standing, added)
        answer = question.asked_of(standing.ahead)
        self._standing = standing
        return Reply(standing.held, True, answer)

    @property
    def held(self) -> Held | None:
        """The posterior that it holds; None for none that is known."""
        return None if self._standing is None else self._standing.held

    def cpu_seconds(self) -> float:
        """Return the processor time that this process has used so far."""
        return time.process_time()

    def _started(self, start: Start) -> _Standing:
        prior = start.prior
        table = ShardTable(
            self._arms,
            prior.kernel,
            prior.regularization,
            self._ranks(prior.seed),
            prior.column_memory,
            prior.kernel_bound,
            exact=prior.exact,
            mean=prior.mean,
            full_at=prior.full_at,
        )
        selection = self._selection(start.dictionary)
        if len(start.points):
            counts, sums = self._tensor(start.counts), self._tensor(start.sums)
            table = table.updated(self._tensor(start.points), sums / counts, selection)
            if bool((counts != 1.0).any()):
                table = table.reweighted(Plays(torch.arange(len(counts), device=counts.device), counts, sums))
        return _Standing(Held(start.version, start.version), ShardLookahead(table, self._arms), selection)

    def _with_rewards(self, standing: _Standing, told: Told) -> _Standing:
        selection = standing.selection if told.dictionary is None else self._selection(told.dictionary)
        table = standing.ahead.table.updated(self._tensor(told.points), self._tensor(told.rewards), selection)
        return _Standing(Held(told.version, told.version), ShardLookahead(table, self._arms), selection)

    def _moved(self, standing: _Standing, step: TakenBack | Reweighted) -> _Standing:
        table = standing.ahead.table
        if isinstance(step, TakenBack):
            table = table.without(step)
        else:
            table = table.reweighted(Plays(*map(self._tensor, (step.places, step.counts, step.sums))))
        ahead = ShardLookahead(table, self._arms)
        return _Standing(Held(step.version, step.version), ahead, standing.selection)

    def _with_pending(self, standing: _Standing, added: Added) -> _Standing:
        for point in self._tensor(added.points).split(1):
            standing.ahead.add(point, added.times)
        return standing._replace(held=Held(standing.held.learned, added.version))

    def _selection(self, dictionary: Array | None) -> Selection | None:
        """Return a dictionary of points (m, d), or at places (m,) among the played ones; None stays None."""
        if dictionary is None:
            return None
        chosen = self._tensor(dictionary)
        if chosen.dim() == 1:
            return Selection(self._arms.block(0, 0), chosen.double(), chosen.long())
        return Selection(chosen, chosen.new_ones(len(chosen)), None)

    def _ranks(self, seed: int) -> Tensor:
        if self._known_ranks is None or self._known_ranks[0] != seed:
            self._known_ranks = seed, ranks_of(self._rows, seed, device=self._device)
        return self._known_ranks[1]

    def _tensor(self, values: Array) -> Tensor:
        """Return a copy: what Ray hands over may not be written to."""
        return torch.from_numpy(np.array(values)).to(self._device)
