"""What a policy would play, and what a model expects of it, in the rounds of a log."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.evaluation.log import Log, depth, require_log

#: So many points are predicted at a time.
_POINTS_AT_A_TIME = 2**16


def target_probabilities(policy: Any, log: Log) -> Tensor:
    """Return with which probabilities a policy plays the actions of each round of a log, (n, A), 0 for what is none.

    It is a policy that has stopped learning: a bandit is told nothing. Where all rounds have the same actions it is
    asked once for each distinct context.

    Args:
        policy: a bandit, "uniform", or a function of a context (c,), or None, and the actions (A, a), or how many there
            are where their features are not known. It returns probabilities (A,), or the row of the one that it plays.
        log: of another policy.

    Raises:
        InputError: if what a policy returns are no probabilities of these actions.

    Cost: a call for each round or distinct context.
    """
    require_log(log)
    function = _function_of(policy, log)
    table = torch.zeros(len(log), int(log.num_actions.max()), dtype=torch.float64)
    for rows, context, actions in _rounds(log):
        count = int(log.num_actions[rows[0]])
        table[rows, :count] = _probabilities(function(context, actions), count)
    return table


def predicted_rewards(model: Any, log: Log) -> Tensor:
    """Return the mean rewards that a model predicts of the actions of each round of a log, (n, A), 0 for what is none.

    Args:
        model: a bandit, or a BoTorch model such as ``NystromGP``, or a function of points (k, c + a), contexts beside
            actions, that returns (k,).
        log: with the features of the actions.

    Cost: a prediction of each action in each round, or distinct context where all rounds have the same actions.
    """
    require_log(log)
    predict, table = _mean_of(model), torch.zeros(len(log), int(log.num_actions.max()), dtype=torch.float64)
    waiting = list[tuple[Tensor, Tensor]]()
    rounds = list(_rounds(log))
    for number, (rows, context, _) in enumerate(rounds, 1):
        actions = log.actions_of(int(rows[0]))
        joint = actions if context is None else torch.cat([context.to(actions).expand(len(actions), -1), actions], -1)
        waiting.append((rows, joint))
        if number == len(rounds) or sum(len(points) for _, points in waiting) >= _POINTS_AT_A_TIME:
            sizes = [len(points) for _, points in waiting]
            with torch.no_grad():
                means = torch.as_tensor(predict(torch.cat([points for _, points in waiting]))).double().cpu()
            if means.shape != (sum(sizes),):
                raise InputError(f"The model must return ({sum(sizes)},) for so many points, {checks.describe(means)}.")
            for (places, points), mean in zip(waiting, means.split(sizes), strict=True):
                table[places, : len(points)] = mean
            waiting = []
    return table


def cross_fitted_rewards(fit: Callable[[Log], Any], log: Log, *, folds: int = 5) -> Tensor:
    """Return ``predicted_rewards`` by models of which none saw the rounds that it predicts, (n, A).

    So the doubly robust method is unbiased: a model that saw a reward takes part of its error for signal.

    Args:
        fit: given a part of the log, returns a model of it, as ``predicted_rewards`` takes it.
        log: of another policy.
        folds: into how many parts the log is divided, every so many rows or slates; 2 or more.

    Cost: ``folds`` fits, each to 1 − 1 / folds of the log, and the predictions.
    """
    require_log(log)
    checks.instance("fit", fit, Callable, "a function of a log that returns a model")
    folds = checks.size("folds", folds, least=2)
    units = torch.arange(len(log)) if log.slates is None else log.slates.unique(return_inverse=True)[1]
    if int(units.max()) + 1 < folds:
        raise InputError(f"folds must be at most the number of rounds, {int(units.max()) + 1}, got {folds}.")
    table = torch.zeros(len(log), int(log.num_actions.max()), dtype=torch.float64)
    for fold in range(folds):
        rows = (units % folds == fold).nonzero().flatten()
        part = log.part(rows)
        found = predicted_rewards(fit(log.part(units % folds != fold)), part)
        table[rows, : found.shape[1]] = found
    return table


# ---------------------------------------------------------------- inside


def _rounds(log: Log) -> Iterator[tuple[Tensor, Tensor | None, Any]]:
    """Yield the rows of rounds that are the same, their context, and their actions, or how many there are."""
    shared = int(log.num_actions[0]) if log.actions is None else log.actions
    if isinstance(shared, tuple) or bool((log.num_actions != log.num_actions[0]).any()):
        for row in range(len(log)):
            context = None if log.contexts is None else log.contexts[row]
            yield torch.tensor([row]), context, int(log.num_actions[row]) if log.actions is None else log.actions[row]
    elif log.contexts is None:
        yield torch.arange(len(log)), None, shared
    else:
        contexts, places = log.contexts.unique(dim=0, return_inverse=True)
        counts = places.bincount(minlength=len(contexts)).tolist()
        for context, rows in zip(contexts, places.argsort(stable=True).split(counts), strict=True):
            yield rows, context, shared


def _function_of(policy: Any, log: Log) -> Callable[[Any, Any], Any]:
    """Return a policy as a function of a context and actions."""
    if isinstance(policy, str) and policy == "uniform":
        return lambda _, actions: np.full(n := actions if isinstance(actions, int) else len(actions), 1.0 / n)
    if (ask := getattr(policy, "propensities", None)) is not None:
        varies = isinstance(log.actions, tuple)
        return lambda context, actions: ask(context=context, candidates=actions if varies else None)
    checks.instance("policy", policy, Callable, 'a bandit, "uniform", or a function of a context and actions')
    return cast(Callable[[Any, Any], Any], policy)


def _probabilities(said: Any, count: int) -> Tensor:
    """Return what a policy says of so many actions as probabilities."""
    if depth(said) == 0:
        row = checks.whole_number("the row that a policy plays", said, least=0)
        if row >= count:
            raise InputError(f"A policy plays row {row} of {count} actions.")
        return torch.nn.functional.one_hot(torch.tensor(row), count).double()
    found = torch.as_tensor(checks.real_numbers("what a policy returns", said)).double().cpu()
    if found.shape != (count,):
        raise InputError(
            f"A policy must return probabilities of {count} actions, ({count},), got {checks.describe(said)}."
        )
    return found


def _mean_of(model: Any) -> Callable[[Tensor], Any]:
    """Return the function that predicts mean rewards (k,) of points (k, d)."""
    known = model if hasattr(model, "posterior") else getattr(model, "model", None)
    if known is not None and hasattr(known, "posterior"):
        return lambda X: known.posterior(X).mean.squeeze(-1)
    checks.instance("model", model, Callable, "a bandit, a BoTorch model, or a function of points")
    return model
