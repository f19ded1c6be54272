"""How a batch fills with points: one chosen after the other, or the first again where its rule says so."""

from collections.abc import Callable

from torch import Tensor

from torch_kbandits.bandit.batches import Batches
from torch_kbandits.beliefs import Lookahead
from torch_kbandits.errors import InputError


def fill(
    ahead: Lookahead, size: int, batches: Batches, choose: Callable[[int], Tensor], *, until_complete: bool
) -> None:
    """Make points pending until there are so many, or until a rule says that the batch is complete.

    Args:
        ahead: the posterior with the points so far pending; it changes.
        size: how many are to be pending.
        batches: their rule, if there is one.
        choose: returns the point (1, d) to add when so many are pending.
        until_complete: whether the rule may end it before.
    """
    while len(ahead.pending) < size:
        number = len(ahead.pending)
        if again := batches.repeats(ahead):
            ahead.add(ahead.pending[:1], min(again, size - number))
        else:
            ahead.add(choose(number))
        if until_complete and batches.is_complete(ahead):
            return


def require_open(batches: Batches, ahead: Callable[[], Lookahead], num_pending: int) -> None:
    """Refuse to fill a batch without a rule, or one that is complete.

    Args:
        batches: their rule, if there is one.
        ahead: returns the posterior with the batch so far pending.
        num_pending: how many of its points are not told.

    Raises:
        InputError: if there is no rule, or the batch is complete.
    """
    if batches.rule is None:
        raise InputError("ask(q=None) lets a batch rule decide, and this bandit has none: give q.")
    # What is kept aside may be a complete batch by now, where variances grow as time passes: one more point then.
    if num_pending and batches.is_complete(batch := ahead()):
        raise InputError(
            f"The batch of {len(batch.pending)} point(s) is complete: tell the {num_pending} pending one(s), or give q "
            "to go on without their rewards."
        )
