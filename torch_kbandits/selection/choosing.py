"""Which of listed candidates is chosen by scores, and with what probability each is."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain, ThompsonRule
from torch_kbandits.loops import score_loops
from torch_kbandits.loops.compiled import on_cpu_without_grad
from torch_kbandits.numerics.random import ROUNDING_SHARE, highest, seed_for, tie_width
from torch_kbandits.numerics.shallow import shallow_copy


class Choice(NamedTuple):
    """A choice among listed candidates."""

    row: int | Tensor  # of the candidate; maybe as (1,), for which nobody has waited
    probabilities: Callable[[], Tensor]  # returns with which each was chosen, (A,): a row for each candidate
    is_dear: bool = False  # whether that costs many choices


def best_of(
    scores: Tensor, beta: Tensor, kernel_bound: Tensor, seed: int, tie_rank: Tensor | None = None
) -> tuple[int | Tensor, Callable[[], float]]:
    """Return the position of the highest score (A,), maybe as (1,), for which nobody has waited, and what returns it.

    Scores that differ by rounding only are broken at random. Without ``tie_rank`` the round decides: actions differ
    from round to round, so there is no order of all.
    """
    if on_cpu_without_grad(scores, beta, kernel_bound):
        share = ROUNDING_SHARE[kernel_bound.dtype]
        row, best, is_alone = score_loops.highest(scores.numpy(), beta.item(), kernel_bound.item(), share)
        if is_alone:
            return row, partial(float, best)
    ranks = lots(len(scores), seed).to(scores.device) if tie_rank is None else tie_rank
    best = scores.max()
    return highest(scores, ranks, tie_width(best, beta, kernel_bound), best), best.item


def shares(beta: Tensor, kernel_bound: Tensor, scores: Tensor) -> Tensor:
    """Return what share of choices by scores (..., A) each arm has, (..., A): those that ``best_of`` takes for equal.

    In double precision, on the CPU.
    """
    best = scores.amax(-1, keepdim=True)
    highest = (scores >= best - tie_width(best, beta, kernel_bound)).double()
    return (highest / highest.sum(-1, keepdim=True)).cpu()


def spread_out(probabilities: Tensor, rows: Tensor, number: int) -> Tensor:
    """Return probabilities of some rows (k,) of so many as those of all, (A,)."""
    return probabilities.new_zeros(number).index_copy(0, rows.cpu(), probabilities)


def counted(
    ahead: Any, choice: Choice, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None
) -> Choice:
    """Return a choice that a posterior just made, with probabilities that are counted: in it and in others by seeds."""

    def probabilities() -> Tensor:
        other, rows = shallow_copy(ahead), [int(choice.row)]
        for draw in range(1, getattr(rule, "num_draws", ThompsonRule.num_draws)):
            other.choose(rule, beta, seed_for(seed, draw, "propensities"), domain)
            rows.append(int(other.choice.row))
        counts = torch.bincount(torch.tensor(rows), minlength=len(other.offered(domain).mean))
        return counts.double() / len(rows)

    return Choice(choice.row, probabilities, is_dear=True)


def lots(number: int, seed: int) -> Tensor:
    """Return the order in which a round breaks ties between so many arms, (A,)."""
    return torch.rand(number, generator=torch.Generator().manual_seed(seed), dtype=torch.float32, device="cpu")
