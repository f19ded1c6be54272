"""Which of several memories is in force, block by block of rounds."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.observations.ledger import History


class Choice(NamedTuple):
    """The memory of a block.

    Attributes:
        memory: the one chosen.
        probabilities: those that the memories had.
    """

    memory: Memory
    probabilities: tuple[float, ...]


class Predictor(Protocol):
    """A posterior, as far as scoring its predictions needs it."""

    @property
    def regularization(self) -> Tensor:
        """λ, 0-dim."""
        ...

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior means and variances of the function at points X (q, d), each (q,)."""
        ...


#: The posterior of a history under a memory at a time.
Believe = Callable[[History, Memory, float], Predictor]


class MemoryChoice(ABC):
    """Which of several memories to use in each block of rounds. A value: it holds settings and no state.

    What is known of a block once it is over is its summary, a function of the history.

    Attributes:
        memories: what to choose from.
        block_size: H, rounds of a block. A round is a call of ``tell``.
    """

    memories: tuple[Memory, ...]
    block_size: int

    #: Whether a block goes on with what was told before it. False forgets all at its start.
    shares_history: bool = True

    #: Whether the choice may go with a trigger that restarts. A history does not say when there were restarts.
    allows_restarts: ClassVar[bool] = True

    @abstractmethod
    def summaries(self, history: History, known: tuple[Any, ...], believe: Believe) -> tuple[Any, ...]:
        """Return the summaries of the complete blocks of a history that matter to the next choice, in order.

        Args:
            history: what was told.
            known: what this returned for an earlier part of the history.
            believe: computes the posterior of a part of it.
        """

    @abstractmethod
    def choice(self, summaries: tuple[Any, ...], seed: int) -> Choice:
        """Return the memory of the next block.

        Args:
            summaries: of the blocks so far.
            seed: addresses the draws, if there are any.
        """


def checked_memories(memories: Any) -> tuple[Memory, ...]:
    """Return one or more memories as a tuple.

    Raises:
        InputError: if they are none.
    """
    if not isinstance(memories, (tuple, list)) or not memories:
        raise InputError(f"memories must be one or more memories, got {checks.describe(memories)}.")
    for number, memory in enumerate(memories):
        checks.instance(f"memories[{number}]", memory, Memory, "a memory such as SlidingWindow(500)")
    return tuple(memories)
