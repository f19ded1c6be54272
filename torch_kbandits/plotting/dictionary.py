"""The dictionary beside what was played: leverage scores, and when its points were first played."""

from typing import Any

import torch
from torch import Tensor

from torch_kbandits.bandit import Bandit
from torch_kbandits.errors import EmptyHistoryError
from torch_kbandits.numerics.rows import row_keys
from torch_kbandits.plotting.section import moments
from torch_kbandits.plotting.style import (
    DICTIONARY,
    POSTERIOR,
    SMALL,
    TEXT,
    clean,
    legend_below,
    marker_handle,
    new_figure,
    plain_logarithmic,
)


def plot_leverage(bandit: Bandit, *, ax: Any = None) -> Any:
    """Draw the ridge leverage scores τ(x) = σ²(x) / λ of the distinct points played that count.

    A high score is a direction that little was learned about; rules such as ``RidgeLeverageSampling`` keep a point with
    a probability in proportion to it. Nothing changes for the bandit.

    Args:
        bandit: whose, as of its present time.
        ax: axes of matplotlib to draw on; None for a figure of its own.

    Returns:
        The figure of matplotlib.

    Raises:
        EmptyHistoryError: if nothing was learned that counts.
        MissingExtraError: if matplotlib is not installed.

    Cost: O(n m²).
    """
    weights, history = bandit.weights, bandit.history
    counts = weights > 0.0
    if not bool(counts.any()):
        raise EmptyHistoryError("Nothing was learned that counts, so there are no leverage scores: tell first.")
    X = history.X[counts]
    first = _first_rows(X)
    points, rounds = X[first], history.rounds[counts][first]
    scores = (moments(bandit, X).deviation.square() / bandit.regularization).cpu()
    total = float((weights[counts].cpu() * scores).sum())
    held = _members(points, bandit.inducing_points)
    ax, handles = new_figure(6.0, 4.2).subplots() if ax is None else ax, []
    for which, colour, marker, label in (
        (~held, POSTERIOR, "o", "played, not in the dictionary"),
        (held, DICTIONARY, "D", "in the dictionary"),
    ):
        if number := int(which.sum()):
            here, hollow = which.cpu(), marker == "o"
            words = {"marker": marker, "facecolor": "none" if hollow else colour, "edgecolor": colour}
            ax.scatter(rounds.cpu()[here] + 1, scores[first][here], s=26, linewidths=1.2, **words)
            handles.append(marker_handle(marker, colour, f"{label} ({number})", hollow=hollow))
    ax.set_yscale("log")
    plain_logarithmic(ax.yaxis)
    ax.set_xlabel("round of its first play that counts", fontsize=TEXT)
    ax.set_ylabel("ridge leverage score σ²(x) / λ", fontsize=TEXT)
    said = f"effective dimension (their sum over all plays): {total:.3g}"
    ax.set_title(said, fontsize=SMALL, loc="left", color="0.3")
    clean(ax)
    legend_below(ax, handles)
    return ax.get_figure(root=True)


def plot_dictionary(bandit: Bandit, *, ax: Any = None) -> Any:
    """Draw how many distinct points were played by each round, and how many of those the present dictionary holds.

    For a dictionary that only grows the second curve is its growth, but for points that joined when they were played
    again. For one that is drawn afresh it says from which rounds its points are. How its size changed is recorded by
    ``experiments.play`` and drawn by ``experiments.plot``. Nothing changes for the bandit.

    Args:
        bandit: whose.
        ax: axes of matplotlib to draw on; None for a figure of its own.

    Returns:
        The figure of matplotlib.

    Raises:
        EmptyHistoryError: if nothing was told.
        MissingExtraError: if matplotlib is not installed.

    Cost: O(n d).
    """
    history = bandit.history
    if len(history.X) == 0:
        raise EmptyHistoryError("Nothing was told, so there is nothing to draw: tell first.")
    first = _first_rows(history.X)
    points, rounds = history.X[first], history.rounds[first]
    held = _members(points, bandit.inducing_points)
    ax = new_figure(6.0, 4.2).subplots() if ax is None else ax
    ends = range(1, int(history.rounds[-1]) + 2)
    handles = [
        ax.step(ends, _by_round(which, len(ends)), where="post", color=colour, linewidth=1.8, label=label)[0]
        for which, colour, label in (
            (rounds, POSTERIOR, f"distinct points played ({len(points)})"),
            (rounds[held], DICTIONARY, f"of them in the present dictionary ({int(held.sum())})"),
        )
    ]
    ax.set_ylim(bottom=0.0)
    ax.yaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("round of the first play", fontsize=TEXT)
    ax.set_ylabel("points", fontsize=TEXT)
    clean(ax)
    legend_below(ax, handles)
    return ax.get_figure(root=True)


# ---------------------------------------------------------------- inside


def _first_rows(X: Tensor) -> list[int]:
    """Return the row of the first occurrence of each distinct point of X (n, d), in order."""
    rows: dict[bytes, int] = {}
    for row, key in enumerate(row_keys(X)):
        rows.setdefault(key, row)
    return list(rows.values())


def _members(points: Tensor, dictionary: Tensor) -> Tensor:
    """Return which points (u, d) are in a dictionary (m, d), (u,)."""
    known = set(row_keys(dictionary))
    return torch.tensor([key in known for key in row_keys(points)], dtype=torch.bool, device=points.device)


def _by_round(rounds: Tensor, number: int) -> Any:
    """Return how many of ``rounds`` (k,) are among the first 1, 2, … ``number``, as an array."""
    return torch.bincount(rounds, minlength=number)[:number].cumsum(0).cpu().numpy()
