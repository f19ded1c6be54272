"""The dictionary beside what was played: leverage scores, and when its points were first played."""

from typing import Any

import torch
from torch import Tensor

from torch_kbandits.bandit import Bandit
from torch_kbandits.errors import EmptyHistoryError
from torch_kbandits.numerics.rows import row_keys
from torch_kbandits.plotting.section import moments
from torch_kbandits.plotting.style import DICTIONARY, POSTERIOR, labelled, legend_below, new_figure, plain_logarithmic


def plot_leverage(bandit: Bandit, *, ax: Any = None) -> Any:
    """Draw the ridge leverage scores τ(x) = σ²(x) / λ of the distinct points played that count.

    A high score is a direction that little was learned about; rules such as ``RidgeLeverageSampling`` keep a point with
    a probability in proportion to it. Nothing changes for the bandit.

    Args:
        bandit: whose, as of now.
        ax: axes of matplotlib to draw on; None for a figure of its own. That figure is returned.

    Raises:
        EmptyHistoryError: if nothing was learned that counts.

    Cost: O(n m²).
    """
    weights, history = bandit.weights, bandit.history
    counts = weights > 0.0
    if not bool(counts.any()):
        raise EmptyHistoryError("Nothing was learned that counts, so there are no leverage scores: tell first.")
    X = history.X[counts]
    first, held = _distinct(X, bandit.inducing_points)
    rounds = history.rounds[counts][first].cpu() + 1
    scores = (moments(bandit, X).deviation.square() / bandit.regularization).cpu()
    total = float((weights[counts].cpu() * scores).sum())
    ax = new_figure(6.0, 4.2).subplots() if ax is None else ax
    for which, label, words in (
        (~held, "played, not in the dictionary", {"marker": "o", "facecolor": "none", "edgecolor": POSTERIOR}),
        (held, "in the dictionary", {"marker": "D", "color": DICTIONARY}),
    ):
        if number := int(which.sum()):
            ax.scatter(rounds[which], scores[first][which], s=26, linewidths=1.2, label=f"{label} ({number})", **words)
    ax.set_yscale("log")
    plain_logarithmic(ax.yaxis)
    legend_below(ax)
    said = f"effective dimension (their sum over all plays): {total:.3g}"
    return labelled(ax, "round of its first play that counts", "ridge leverage score σ²(x) / λ", said)


def plot_dictionary(bandit: Bandit, *, ax: Any = None) -> Any:
    """Draw how many distinct points were played by each round, and how many of those the dictionary holds now.

    For a dictionary that only grows the second curve is its growth, but for points that joined when they were played
    again. For one that is drawn afresh it says from which rounds its points are. How its size changed is recorded by
    ``experiments.play``. Arguments, result and errors are those of ``plot_leverage``. Cost: O(n d).
    """
    history = bandit.history
    if len(history.X) == 0:
        raise EmptyHistoryError("Nothing was told, so there is nothing to draw: tell first.")
    first, held = _distinct(history.X, bandit.inducing_points)
    rounds, number = history.rounds[first].cpu(), int(history.rounds[-1]) + 1
    ax = new_figure(6.0, 4.2).subplots() if ax is None else ax
    for which, colour, label in (
        (rounds, POSTERIOR, f"distinct points played ({len(rounds)})"),
        (rounds[held], DICTIONARY, f"of them in the dictionary now ({int(held.sum())})"),
    ):
        counts = torch.bincount(which, minlength=number).cumsum(0).numpy()
        ax.step(range(1, number + 1), counts, where="post", color=colour, linewidth=1.8, label=label)
    ax.set_ylim(bottom=0.0)
    ax.yaxis.get_major_locator().set_params(integer=True)
    legend_below(ax)
    return labelled(ax, "round of the first play", "points")


def _distinct(X: Tensor, dictionary: Tensor) -> tuple[list[int], Tensor]:
    """Return the row of the first occurrence of each distinct point of X, in order, and which of them are members."""
    rows: dict[bytes, int] = {}
    for row, key in enumerate(row_keys(X)):
        rows.setdefault(key, row)
    members = set(row_keys(dictionary))
    return list(rows.values()), torch.tensor([key in members for key in rows], dtype=torch.bool)
