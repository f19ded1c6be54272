"""Figures: the posterior along one coordinate or over two, with what was played; leverage scores; the dictionary."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.errors import EmptyHistoryError, InputError
from torch_kbandits.extras import require
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.rows import among, row_keys
from torch_kbandits.observations.columns import Number
from torch_kbandits.plotting import style
from torch_kbandits.plotting.section import Section, moments
from torch_kbandits.plotting.style import DICTIONARY, PENDING, PLAYED, POSTERIOR, RECOMMENDED, SMALL, TEXT

#: The band of a bandit that uses no width.
_USUAL_BETA = 2.0
#: Maps whose lightness grows with the value, so that they are read without colours, too.
_MAPS = ("viridis", "cividis")
#: What would be drawn more faintly is left out.
_FAINTEST = 0.02
#: Fixed coordinates that are listed, at most.
_LISTED = 4

#: How points are drawn, the later ones above the others.
_LOOKS: dict[str, dict[str, Any]] = {
    "played": {"marker": "o", "s": 20, "facecolor": PLAYED, "edgecolor": "white", "linewidths": 0.5},
    "dictionary": {"marker": "s", "s": 70, "color": DICTIONARY, "linewidths": 1.4},
    "recommended": {"marker": "*", "s": 170, "facecolor": RECOMMENDED, "edgecolor": "black", "linewidths": 0.8},
    "pending": {"marker": "v", "s": 55, "facecolor": PENDING, "edgecolor": "white", "linewidths": 0.8},
}
#: The dictionary beside a line, above the axis.
_TICKS = {"marker": "|", "s": 40, "color": DICTIONARY, "linewidths": 1.5}


def plot_line(
    bandit: Bandit,
    coordinate: int | str | None = None,
    *,
    at: Tensor | None = None,
    context: Any = None,
    candidates: Any = None,
    bounds: Tensor | None = None,
    beta: float | None = None,
    center: float = 0.0,
    ax: Any = None,
) -> Any:
    """Draw the posterior of a bandit along one coordinate, with the others fixed; return the figure of matplotlib.

    A point is drawn as strongly as it counts: fainter where a memory makes it count less, a kernel on time makes it
    old, or it lies off the line: by the squared prior correlation of the function there and on the line. What would be
    fainter than 2% is left out. Nothing changes for the bandit.

    Args:
        bandit: whose posterior, as of now.
        coordinate: by name, or as a column of ``history.X``; None for the first of an action.
        at: a point (d,) with the other coordinates, joint with contexts; None for the recommended point.
        context: with contexts, that in which the point is recommended, as in ``ask``.
        candidates: as in ``ask``, where actions differ from round to round; None for those played.
        bounds: (2, 1), the range to show, in the units that the kernel sees; None for that of what may be played.
        beta: the band is the mean ± beta σ; None for the bandit's own, or 2 if it uses none.
        center: constant to add to rewards: what you subtracted before you told them.
        ax: axes of matplotlib to draw on; None for a figure of its own.

    ``InputError`` if an argument does not fit. Cost: O(n m²), and a pass over the arms for their range.
    """
    where = bandit.candidates.context_dim if coordinate is None else coordinate
    line = Section(bandit, (where,), at, context, candidates, bounds)
    beta = float(bandit.beta) or _USUAL_BETA if beta is None else checks.non_negative("beta", beta)
    ax = style.new_figure(6.0, 4.6).subplots() if ax is None else ax
    (values,), (column,), (mean, deviation) = line.values, line.columns, moments(bandit, line.points)
    shown, middle, margin = line.shown(column, values), (mean + center).cpu().numpy(), (beta * deviation).cpu().numpy()
    ax.plot(shown, middle, color=POSTERIOR, linewidth=1.8, label="posterior mean")
    band = {"color": POSTERIOR, "alpha": 0.18, "linewidth": 0, "label": f"mean ± {beta:.3g} σ"}
    ax.fill_between(shown, middle - margin, middle + margin, **band)
    for kind, X, strength in _points(bandit, line):
        seen, look, name = strength >= _FAINTEST, _LOOKS[kind], kind
        if kind == "played":
            heights = bandit.history.Y[seen] + center
        elif kind == "dictionary":
            heights, look = torch.full((int(seen.sum()),), 0.015), _TICKS | {"transform": ax.get_xaxis_transform()}
        else:
            heights = moments(bandit, line.through(X[seen]))[0] + center
            name = "pending, at the mean" if kind == "pending" else kind
        _scatter(ax, line.shown(column, X[seen, column]), heights.cpu().numpy(), strength, look, name)
    _scale_axis(line, column, ax, "x")
    style.legend_below(ax)
    return style.labelled(ax, line.names[column], "reward", _fixed_words(line))


def plot_plane(
    bandit: Bandit,
    coordinates: Sequence[int | str] | None = None,
    *,
    at: Tensor | None = None,
    context: Any = None,
    candidates: Any = None,
    bounds: Tensor | None = None,
    center: float = 0.0,
    axes: Sequence[Any] | None = None,
) -> Any:
    """Draw the posterior over two coordinates, with the others fixed: its mean and its standard deviation.

    Arguments, result, errors and cost are those of ``plot_line``, but for ``coordinates``: two, None for the first two
    of an action, or if it has one for the last of the context and that; for ``bounds``, (2, 2); and for ``axes``: two
    axes of matplotlib, for the mean and the standard deviation.
    """
    start, d = bandit.candidates.context_dim, bandit.candidates.example.shape[-1]
    if coordinates is None:
        first = start if d - start >= 2 else start - 1
        if first < int(bandit.candidates.is_timed):
            raise InputError("There is one coordinate to show: take plot_line, or name two coordinates.")
        coordinates = first, first + 1
    if len(coordinates) != 2:
        raise InputError(f"coordinates must be two, got {list(coordinates)}.")
    plane = Section(bandit, coordinates, at, context, candidates, bounds)
    if len(plane.values) != 2:
        raise InputError("The kernel knows arms by their number, which is one coordinate: take plot_line.")
    panels = list(style.new_figure(10.0, 4.6).subplots(1, 2, sharey=True)) if axes is None else list(axes)
    if len(panels) != 2:
        raise InputError(f"axes must be two, for the mean and the standard deviation; got {len(panels)}.")
    mean, deviation = moments(bandit, plane.points)
    first, second = map(plane.shown, plane.columns, plane.values)
    points = list(_points(bandit, plane))
    maps = ((mean + center, "posterior mean of the reward"), (deviation, "σ of the reward"))
    for ax, colours, (values, label) in zip(panels, _MAPS, maps, strict=True):
        grid = values.reshape(len(first), len(second)).T.cpu().numpy()
        image = ax.pcolormesh(first, second, grid, cmap=colours, shading="nearest", rasterized=True)
        bar = ax.get_figure().colorbar(image, ax=ax)
        bar.set_label(label, fontsize=TEXT)
        bar.ax.tick_params(labelsize=TEXT)
        for kind, X, strength in points:
            x, y = (plane.shown(column, X[strength >= _FAINTEST, column]) for column in plane.columns)
            _scatter(ax, x, y, strength, _LOOKS[kind] | {"clip_on": False}, kind)  # whole on the border, too
        for column, which in zip(plane.columns, "xy", strict=True):
            _scale_axis(plane, column, ax, which)
        ax.set(xlim=(first[0], first[-1]), ylim=(second[0], second[-1]))
        ax.set_xlabel(plane.names[plane.columns[0]], fontsize=TEXT)
        ax.tick_params(labelsize=TEXT)
    panels[0].set_ylabel(plane.names[plane.columns[1]], fontsize=TEXT)
    panels[0].set_title(_fixed_words(plane), fontsize=SMALL, loc="left", color="0.3")
    if points:
        style.legend_below(panels[0])
    return panels[0].get_figure(root=True)


def plot_dictionary(bandit: Bandit, *, axes: Sequence[Any] | None = None) -> Any:
    """Draw what the dictionary holds of the distinct points played that count; return the figure of matplotlib.

    On the left are their ridge leverage scores τ(x) = σ²(x) / λ. A high score is a direction that little was learned
    about; rules such as ``RidgeLeverageSampling`` keep a point with a probability in proportion to it. On the right is
    how many were played by each round, and how many of those the dictionary holds now; how its size changed is recorded
    by ``experiments.play``.

    Args:
        bandit: whose, as of now; nothing changes for it. ``EmptyHistoryError`` if nothing was learned that counts.
        axes: two axes of matplotlib to draw on; None for a figure of its own.

    Cost: O(n m²).
    """
    counts = bandit.weights > 0.0
    if not bool(counts.any()):
        raise EmptyHistoryError("Nothing was learned that counts, so there is no dictionary to draw: tell first.")
    X, rounds = bandit.history.X[counts], bandit.history.rounds[counts].cpu() + 1
    first = sorted({key: row for row, key in reversed(list(enumerate(row_keys(X))))}.values())
    held, rounds = among(X[first], bandit.inducing_points).cpu(), rounds[first]
    scores = (moments(bandit, X)[1].square() / bandit.regularization).cpu()
    total = float((bandit.weights[counts].cpu() * scores).sum())
    left, right = style.new_figure(11.0, 4.2).subplots(1, 2) if axes is None else axes
    for which, label, words in (
        (~held, "played, not in the dictionary", {"marker": "o", "facecolor": "none", "edgecolor": POSTERIOR}),
        (held, "in the dictionary", {"marker": "D", "color": DICTIONARY}),
    ):
        if number := int(which.sum()):
            name = f"{label} ({number})"
            left.scatter(rounds[which], scores[first][which], s=26, linewidths=1.2, label=name, **words)
    for which, words, label in (
        (torch.ones_like(held), {"color": POSTERIOR}, "distinct points played"),
        (held, {"color": DICTIONARY, "linestyle": "--"}, "of them in the dictionary now"),
    ):
        grown = torch.bincount(rounds[which], minlength=bandit.round + 1).cumsum(0)
        right.step(range(len(grown)), grown, where="post", linewidth=1.8, label=f"{label} ({grown[-1]})", **words)
    left.set_yscale("log")
    style.plain_logarithmic(left.yaxis)
    right.set_ylim(bottom=0.0)
    right.yaxis.get_major_locator().set_params(integer=True)
    title = f"effective dimension (their sum over all plays): {total:.3g}"
    for ax, *named in ((left, "ridge leverage score σ²(x) / λ", title), (right, "points", "")):
        style.legend_below(ax)
        style.labelled(ax, "round of the first play that counts", *named)
    return left.get_figure(root=True)


def plot_importance(bandit: Bandit, *, confidence: float = 0.9, ax: Any = None, **words: Any) -> Any:
    """Draw what share of the posterior mean's variance each parameter explains; return the figure of matplotlib.

    Dark bars are of first order, light ones total; lines are where functions drawn from the posterior have them, with a
    probability of ``confidence``. ``words`` and errors are those of ``Bandit.importance``, as is the cost.
    """
    found = bandit.importance(**words)
    order = found.total.argsort()
    ax = style.new_figure(6.0, 1.2 + 0.5 * len(order)).subplots() if ax is None else ax
    bars = (("total", found.total, 0.35, -0.18), ("first order", found.first_order, 1.0, 0.18))
    for (name, shares, alpha, shift), ends in zip(bars, reversed(found.interval(confidence)), strict=True):
        places = (torch.arange(len(order)) + shift).numpy()
        ax.barh(places, shares[order].numpy(), 0.34, color=POSTERIOR, alpha=alpha, label=name)
        ax.hlines(places, *ends[:, order].numpy(), color=PLAYED, linewidth=1.4)
    ax.set_yticks(range(len(order)), [found.names[place] for place in order.tolist()])
    style.legend_below(ax)
    return style.labelled(ax, "share of the variance", "")


# ---------------------------------------------------------------- inside


def _points(bandit: Bandit, where: Section) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield what to draw, in order: the kind, points (k, d) and their strength (k,), 1 on the section in full."""
    X, kernel = bandit.history.X, cast(Kernel, bandit.model.covar_module)
    if len(X):
        yield "played", X, bandit.weights * _nearness(kernel, where, X)
    if bandit.dictionary is not None and len(bandit.inducing_points):
        yield "dictionary", bandit.inducing_points, _nearness(kernel, where, bandit.inducing_points)
    if where.is_recommended:
        yield "recommended", where.at, torch.ones(1, dtype=torch.float64, device=where.at.device)
    if len(bandit.pending):
        yield "pending", bandit.pending, _nearness(kernel, where, bandit.pending)


def _nearness(kernel: Kernel, where: Section, X: Tensor) -> Tensor:
    """Return the squared prior correlation of the function at X (q, d) and moved onto the section; 0 off its range."""
    moved = where.through(X)
    with torch.no_grad():
        covariance = gram(kernel, X.unsqueeze(-2), moved.unsqueeze(-2)).flatten()
        scale = (prior_variance(kernel, X) * prior_variance(kernel, moved)).clamp_min(torch.finfo(X.dtype).tiny)
    # On the section it is 1 exactly, also where the prior variance is 0.
    share = (covariance.square() / scale).masked_fill((moved == X).all(-1), 1.0)
    return share.double().clamp(0.0, 1.0) * where.covers(X)


def _scatter(ax: Any, x: Any, y: Any, strength: Tensor, look: dict[str, Any], kind: str) -> None:
    """Draw points as transparent as they are weak, with an entry of the legend: how many there are, and are drawn."""
    drawn, label = strength[strength >= _FAINTEST].cpu(), kind
    if kind != "recommended":
        fading = ", fainter where it counts less" if kind == "played" and bool((strength < 1.0).any()) else ""
        number = f"{len(drawn)}" if len(drawn) == len(strength) else f"{len(drawn)} of {len(strength)}"
        label = f"{kind}{fading} ({number})"
    hollow = "none" if look["marker"] == "s" else "full"
    look = look | {"marker": require("matplotlib.markers").MarkerStyle(look["marker"], hollow)}
    if len(drawn):
        order = 2.5 + 0.1 * list(_LOOKS).index(kind.partition(",")[0])
        ax.scatter(x, y, alpha=(0.1 + 0.9 * drawn).clamp_max(1.0).numpy(), zorder=order, **look)
    ax.scatter([], [], label=label, **look)


def _fixed_words(where: Section) -> str:
    """Return what the fixed coordinates are, in a line; nothing if none are."""
    others = [i for i in range(len(where.names)) if i not in where.columns]
    source = " (recommended)" if where.is_recommended and others else ""
    if len(others) > _LISTED:
        return f"the other {len(others)} coordinates are fixed{source}"
    return ", ".join(f"{where.names[i]} = {float(where.at[0, i]):.4g}" for i in others) + source


def _scale_axis(where: Section, column: int, ax: Any, which: str) -> None:
    """Give the axis "x" or "y" the logarithmic scale of the column that it shows, if that has one; plain numbers."""
    owner = where.owner(column)
    if isinstance(owner, Number) and owner.log:
        getattr(ax, f"set_{which}scale")("log")
        style.plain_logarithmic(getattr(ax, f"{which}axis"))
