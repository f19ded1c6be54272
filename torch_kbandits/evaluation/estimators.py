"""Estimators of off-policy evaluation: by importance weights, by a model of rewards, and by both."""

import math
import warnings
from dataclasses import replace
from typing import Any, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from torch_kbandits import checks
from torch_kbandits.errors import InputError, OverlapWarning
from torch_kbandits.evaluation.estimate import Estimate, effective_size
from torch_kbandits.evaluation.log import (
    Log,
    checked_propensities,
    depth,
    numbers,
    refuse,
    require_log,
    require_rewards,
    whole_numbers,
)

#: Probabilities of a round add up to 1, and mean weights are 1, within this.
_ROUNDING = 1e-6
#: Of fewer effective rewards intervals are too short. So many standard errors from 1 a mean weight is not by chance.
_FEWEST, _FAR = 10.0, 4.0


class Columns(TypedDict, total=False):
    """What all estimators take of a log: columns by name, or ``log=`` in place of all of them; see ``Log``."""

    rewards: Any
    propensities: Any
    rows: Any
    slates: Any
    log: Log | None


def ips(*, target_probabilities: Any, **columns: Unpack[Columns]) -> Estimate:
    """Estimate by inverse propensity scores (IPS): the mean of w r, where w = target probability / propensity.

    Unbiased if the log plays all that the target policy plays. An ``OverlapWarning`` says where it does not, or where
    few weights are so large that little of the log counts.

    Of slates it is the mean of their sums: each position has its own weight, which is right where what is earned at
    a position depends on its own action alone. Users who read down to the first that they like (cascades) are not
    modelled.

    Source: Horvitz and Thompson, 1952; Strehl et al., NeurIPS 2010. Slates: Li et al., KDD 2018, item-position model.

    Args:
        target_probabilities: with which the target policy plays what was played, (n,); or all actions of each round,
            (n, A), or n lists where their number differs; see the function of that name. What is no action has 0.
        columns: ``rewards``, ``propensities`` and maybe ``slates``, each (n,), as in ``Log``; with probabilities of
            all actions also ``rows``. Or ``log=`` alone.

    Raises:
        InputError: if a column does not fit, or rewards are missing.
    """
    given = _choices(target_probabilities, **columns)
    return given.estimate(given.weights)


def snips(*, target_probabilities: Any, **columns: Unpack[Columns]) -> Estimate:
    """Estimate by self-normalised inverse propensity scores (SNIPS), Σ w r / Σ w. Arguments are those of ``ips``.

    Its bias is of order 1/n. It is never outside the rewards, moves with a constant that is added to all of them, and
    has mostly the smaller variance.

    Source: Swaminathan and Joachims, NeurIPS 2015.
    """
    given = _choices(target_probabilities, **columns)
    if not float(given.weights.sum()):
        raise InputError("The target policy plays nothing that the log has, so the weights add up to 0: use DM.")
    return given.normalized()


def clipped_ips(*, clip: float, target_probabilities: Any, **columns: Unpack[Columns]) -> Estimate:
    """Estimate by inverse propensity scores with weights of at most ``clip``. Other arguments are those of ``ips``.

    Less variance for a bias: what the log seldom plays counts too little, so rewards of at least 0 are underestimated.

    Source: Bottou et al., JMLR 2013.
    """
    clip, given = checks.positive("clip", clip), _choices(target_probabilities, **columns)
    return given.estimate(given.weights.clamp_max(clip))


def direct_method(
    *, target_probabilities: Any, predictions: Any, log: Log | None = None, slates: Any = None
) -> Estimate:
    """Estimate by the direct method (DM): the mean of what a model predicts for the actions of the target policy.

    No propensities are needed, and no overlap: the model extrapolates. It is biased as the model is, which its
    intervals do not say: they are about the rounds that came.

    Args:
        target_probabilities: with which the target policy plays all actions of each round, (n, A) or n lists.
        predictions: mean rewards of the same actions in the same form; see ``predicted_rewards``.
        log: to see that the actions are there, and for its slates.
        slates: (n,), as in ``Log``.
    """
    if log is not None:
        require_log(log)
        if slates is not None:
            raise InputError("Give either a log or its slates, not both.")
    table = _distributions(target_probabilities, None if log is None else len(log), log)
    slates, nothing = slates if log is None else log.slates, table.new_zeros(len(table))
    slates = None if slates is None else whole_numbers("slates", slates, len(table))
    given = _Choices(nothing, nothing, None, slates, table)
    return replace(given.estimate(nothing, *given.predicted(predictions)), weights=None)


def doubly_robust(*, target_probabilities: Any, predictions: Any, **columns: Unpack[Columns]) -> Estimate:
    """Estimate by the doubly robust method (DR): the direct method, and its errors by inverse propensity scores.

    Unbiased under the conditions of ``ips``, whatever the model, if that was fitted to other rounds; the better the
    model, the smaller the variance. Arguments are those of ``ips`` and ``direct_method``.

    Source: Dudík, Langford and Li, ICML 2011.
    """
    given = _choices(target_probabilities, **columns)
    return given.estimate(given.weights, *given.predicted(predictions))


def switch(*, threshold: float, target_probabilities: Any, predictions: Any, **columns: Unpack[Columns]) -> Estimate:
    """Estimate by SWITCH-DR: doubly robust where weights are at most ``threshold``, by the model alone where above.

    Other arguments are those of ``doubly_robust``.

    Source: Wang, Agarwal and Dudík, ICML 2017. Differs: the threshold is yours, nothing tunes it.
    """
    threshold, given = checks.non_negative("threshold", threshold), _choices(target_probabilities, **columns)
    return given.estimate(given.weights.where(given.weights <= threshold, 0.0), *given.predicted(predictions))


# ---------------------------------------------------------------- inside


class _Choices(NamedTuple):
    """Checked columns (n,): rewards, importance weights, rows, slates; and the target's probabilities, (n, A)."""

    rewards: Tensor
    weights: Tensor
    rows: Tensor | None
    slates: Tensor | None
    table: Tensor | None

    def predicted(self, predictions: Any) -> tuple[Tensor, Tensor]:
        """Return what a model predicts of each round for the target policy, and for the action played, (n,)."""
        if self.table is None:
            raise InputError("With predictions, target_probabilities must be of all actions of each round, (n, A).")
        values, is_needed = _table("predictions", predictions), self.table > 0.0
        if values.shape != self.table.shape:
            expected, got = tuple(self.table.shape), tuple(values.shape)
            raise InputError(f"predictions must be {expected} as the target probabilities are, got {got}.")
        if self.rows is not None:
            is_needed = is_needed.scatter(1, self.rows.unsqueeze(-1), True)
        lacking = (is_needed & ~values.isfinite()).any(1)
        values = values.where(is_needed, 0.0)
        words = "finite for all that the target policy plays and for what was played"
        refuse("predictions", values.sum(1), lacking, words)
        base = (self.table * values).sum(1)
        return base, base if self.rows is None else values.gather(1, self.rows.unsqueeze(-1)).squeeze(-1)

    def estimate(self, weights: Tensor, base: Tensor | float = 0.0, played: Tensor | float = 0.0) -> Estimate:
        """Return the mean of base + weight × (reward − what is predicted of the action played)."""
        errors = self.rewards - played
        terms, most = self._summed(base + weights * errors)
        extremes = errors.clamp_min(0.0).max() - errors.clamp_max(0.0).min()
        span = torch.as_tensor(base).max() - torch.as_tensor(base).min() + weights.max() * extremes
        return Estimate(terms, torch.ones_like(terms), self.weights, most * float(span))

    def normalized(self) -> Estimate:
        """Return the weighted mean of rewards; of slates times their mean length."""
        (terms, most), (total, _) = self._summed(self.weights * self.rewards), self._summed(self.weights)
        span = float(self.weights.max() * (self.rewards.max() - self.rewards.min()))
        return Estimate(terms, total * len(terms) / len(self.rewards), self.weights, most * span)

    def warn_of_overlap(self, stacklevel: int) -> None:
        """Say where the log tells little of the target policy: mean weights are 1 where it plays all of it."""
        weights, said = self.weights, list[str]()
        excess, _ = self._summed(weights - 1.0)
        off, error = float(excess.mean()), float(excess.std(correction=0)) / math.sqrt(len(excess))
        off, error = (each * len(excess) / len(weights) for each in (off, error))
        if off < -_FAR * error - _ROUNDING:
            advice = "no estimator by weights knows of that, a model only guesses. Log with a floor (epsilon)"
            said.append(f"About {-off:.2g} of what the target policy plays is never played by the log: {advice}.")
        elif off > _FAR * error + _ROUNDING:
            advice = "propensities may be too small, or of other rows"
            said.append(f"The mean of the weights is {1.0 + off:.3g} and should be 1: {advice}.")
        counted = effective_size(weights) * effective_size(self.rewards) / len(weights)
        if counted < _FEWEST:
            size = f"an effective sample of {effective_size(weights):.3g} of {len(weights)} rows, not all of them paid"
            advice = "intervals are too short, and one reward may decide. Log more of what it plays, or use a model"
            said.append(f"The log has as much of the target policy as {counted:.2g} rewards, {size}: {advice}.")
        if said:
            warnings.warn(" ".join(said), OverlapWarning, stacklevel=stacklevel)

    def _summed(self, values: Tensor) -> tuple[Tensor, int]:
        """Return the sums of values (n,) over slates, (m,), and how many the largest slate has."""
        if self.slates is None:
            return values, 1
        labels, places, counts = self.slates.unique(return_inverse=True, return_counts=True)
        return values.new_zeros(len(labels)).index_add(0, places, values), int(counts.max())


def _choices(target_probabilities: Any, log: Log | None = None, **columns: Any) -> _Choices:
    """Return the checked columns of the caller of an estimator, whom a warning reaches."""
    if log is not None:
        require_rewards(log)
        if given := [name for name, column in columns.items() if column is not None]:
            raise InputError(f"Give either a log or its columns, not log and {', '.join(given)}.")
        columns = {name: getattr(log, name) for name in ("rewards", "propensities", "rows", "slates")}
    rewards = numbers("rewards", columns.get("rewards"))
    n = len(rewards)
    propensities = checked_propensities(numbers("propensities", columns.get("propensities"), n))
    rows, slates = (
        None if columns.get(name) is None else whole_numbers(name, columns[name], n) for name in ("rows", "slates")
    )
    if depth(target_probabilities) == 1:
        table, target = None, numbers("target_probabilities", target_probabilities, n)
        refuse("target_probabilities", target, (target < 0.0) | (target > 1.0 + _ROUNDING), "in [0, 1]")
    else:
        table = _distributions(target_probabilities, n, log)
        if rows is None:
            raise InputError("Target probabilities of all actions need rows=, which of them was played.")
        refuse("rows", rows, (rows < 0) | (rows >= table.shape[1]), f"at least 0 and below {table.shape[1]}")
        target = table.gather(1, rows.unsqueeze(-1)).squeeze(-1)
    given = _Choices(rewards, target / propensities, rows, slates, table)
    given.warn_of_overlap(4)
    return given


def _table(name: str, values: Any) -> Tensor:
    """Return numbers of all actions of each round, (n, A), with 0 for what is no action where their number differs."""
    if isinstance(values, (list, tuple)):
        columns = [torch.as_tensor(checks.real_numbers(name, each)).double().cpu() for each in values]
        if not columns or any(column.dim() != 1 for column in columns):
            raise InputError(f"{name} must be (n, A), or a list of numbers for each round, got {checks.shown(values)}.")
        return pad_sequence(columns, batch_first=True)
    table = torch.as_tensor(checks.real_numbers(name, values)).double().cpu()
    if table.dim() != 2 or not table.numel():
        raise InputError(f"{name} must be (n, A), or a list of numbers for each round, got {checks.describe(values)}.")
    return table


def _distributions(target_probabilities: Any, n: int | None, log: Log | None) -> Tensor:
    """Return the probabilities (n, A) of a target policy, which add up to 1 over the actions of each round."""
    table, name = _table("target_probabilities", target_probabilities), "target_probabilities"
    if n is not None and len(table) != n:
        raise InputError(f"{name} must be of {n} rounds as the rewards are, got {len(table)}.")
    wrong = (table < 0.0).any(1) | ~((table.sum(1) - 1.0).abs() <= _ROUNDING)
    refuse(name, table.sum(1), wrong, "at least 0 and add up to 1 in each round")
    if log is not None:
        beyond = (table > 0.0) & (torch.arange(table.shape[1]) >= log.num_actions.unsqueeze(-1))
        refuse(name, log.num_actions, beyond.any(1), "0 for what was no action, of which a round has that many")
    return table
