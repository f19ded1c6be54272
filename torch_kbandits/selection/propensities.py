"""What is chosen, how, and with what probability each of listed candidates is."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain, ThompsonRule
from torch_kbandits.numerics.random import seed_for, tie_width


class Choice(NamedTuple):
    """A choice among listed candidates."""

    row: int | Tensor  # of the candidate; maybe as (1,), for which nobody has waited
    probabilities: Callable[[], Tensor]  # returns with which each was chosen, (A,): a row for each candidate
    is_expensive: bool = False  # whether that costs many choices


class Chosen(NamedTuple):
    """A point that was chosen of a posterior."""

    x: Tensor  # (1, d)
    choice: Choice | None = None  # how; None where candidates are not listed
    score: Callable[[], float] = float  # returns its score; 0 where it was chosen without one
    stage: int | None = None  # what chose it of several posteriors, 0 for nothing that learns it; None: it is one


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


def counted(ahead: Any, choice: Choice, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain) -> Choice:
    """Return a choice that a posterior just made, with probabilities that are counted: in it and in others by seeds."""

    def probabilities() -> Tensor:
        draws, rows = range(1, getattr(rule, "num_draws", ThompsonRule.num_draws)), [int(choice.row)]
        others = (ahead.choose(rule, beta, seed_for(seed, draw, "propensities"), domain) for draw in draws)
        rows += [int(other.choice.row) for other in others]
        counts = torch.bincount(torch.tensor(rows), minlength=len(ahead.offered(domain).mean))
        return counts.double() / len(rows)

    return Choice(choice.row, probabilities, is_expensive=True)
