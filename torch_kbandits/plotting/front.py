"""The Pareto front of what a bandit played, which no other play beats in every objective."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, cast

import torch
from botorch.utils.multi_objective.pareto import is_non_dominated
from torch import Tensor

from torch_kbandits.bandit import Bandit
from torch_kbandits.errors import EmptyHistoryError, InputError
from torch_kbandits.numerics.rows import distinct
from torch_kbandits.outcomes import REWARD, Scalarization
from torch_kbandits.plotting.section import moments
from torch_kbandits.plotting.style import PLAYED, POSTERIOR, SMALL, labelled, new_figure

#: Inches of a panel, and of the margin below them.
_PANEL, _BELOW = 4.4, 0.6


@dataclass(frozen=True, eq=False)
class ParetoFront:
    """The plays that count, each once, and which of them no other one dominates by posterior means.

    Attributes:
        directions: of each objective, "maximize" or "minimize", by name.
        X: points (n, d), as ``history`` has them, at the current time where points know it.
        means, deviations: posterior means and standard deviations, (n, k), in the units of each objective.
        is_on_front: (n,).
        actions: those of the front, as ``ask`` returns them: (m, a), or configurations.
    """

    directions: Mapping[str, str]
    X: Tensor
    means: Tensor
    deviations: Tensor
    is_on_front: Tensor
    actions: Any

    @property
    def values(self) -> Tensor:
        """The posterior means of the front, (m, k)."""
        return self.means[self.is_on_front]


def pareto_front(bandit: Bandit, objectives: Mapping[str, Any] | None = None) -> ParetoFront:
    """Return the plays of a bandit that no other one beats in every objective, by posterior means.

    Observed rewards are no front: with noise the luckiest of them would be. Plays without weight under a memory are
    left out. With contexts points are (context, action), and those of all contexts are compared.

    Args:
        bandit: any with outcomes; ``EmptyHistoryError`` if no play counts.
        objectives: "maximize" or "minimize" by name, with "reward"; None for those of ``bandit.objective``.

    Cost: O(n m²) for the model of each objective, and the square of the plays.
    """
    if objectives is None and bandit.objective is None:
        raise InputError('This bandit has no objective: say objectives={"reward": "maximize", "cost": "minimize"}.')
    sought = cast(Scalarization, bandit.objective) if objectives is None else Scalarization(objectives, kind="linear")
    if missing := [name for name in sought.outcomes if name not in bandit.outcomes]:
        raise InputError(f"There is no outcome {missing[0]!r}: this bandit has {list(bandit.outcomes) or 'none'}.")
    X = bandit.history.X[bandit.weights > 0.0]
    if not len(X):
        raise EmptyHistoryError("No play counts, so there is no front: tell first.")
    if bandit.candidates.is_timed:
        X = torch.cat([X.new_full((len(X), 1), bandit.now), X[:, 1:]], dim=-1)
    X, found = distinct(X)[0], []
    for name in sought.objectives:
        model = bandit.model if name == REWARD else bandit.outcome_model(name)
        known = cast(tuple[Tensor], model.train_inputs)[0].shape[-1]
        found.append(moments(bandit, X[:, X.shape[-1] - known :], model))
    means, deviations = (torch.stack(each, dim=-1) for each in zip(*found, strict=True))
    signs = X.new_tensor([1.0 if each == "maximize" else -1.0 for each in sought.objectives.values()])
    best = is_non_dominated(means * signs)
    return ParetoFront(sought.objectives, X, means, deviations, best, bandit.candidates.actions(X[best]))


def plot_front(bandit: Bandit, objectives: Mapping[str, Any] | None = None, *, center: float = 0.0) -> Any:
    """Draw what was played by posterior means, each two objectives against each other, and the Pareto front in colour.

    Bars are one posterior standard deviation of what is on the front. Of two objectives the front is joined by steps:
    what lies on their better side would be new. Of more each panel shows two, and what looks dominated there is on the
    front for another.

    Arguments and errors are those of ``pareto_front``, of two objectives or more; ``center`` is added to rewards.
    Returns the figure of matplotlib.
    """
    front = pareto_front(bandit, objectives)
    if len(front.directions) < 2:
        raise InputError(f"A front is drawn of two objectives or more, and there is {list(front.directions)} alone.")
    pairs = list(combinations(range(len(front.directions)), 2))
    columns = min(len(pairs), 3)
    rows = -(-len(pairs) // columns)
    figure = new_figure(_PANEL * columns, _PANEL * rows + _BELOW)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    shift = front.means.new_tensor([center if name == REWARD else 0.0 for name in front.directions])
    for panel, pair in zip(panels, pairs, strict=False):
        _draw(panel, front, pair, (front.means + shift).cpu())
    for panel in panels[len(pairs) :]:
        panel.set_visible(False)
    words = {"fontsize": SMALL, "frameon": False, "loc": "outside lower center", "ncols": 3 if len(pairs) > 1 else 1}
    figure.legend(*panels[0].get_legend_handles_labels(), **words)
    return figure


def _draw(ax: Any, front: ParetoFront, pair: tuple[int, int], means: Tensor) -> None:
    """Draw two of the objectives."""
    (one, other), best, names = pair, front.is_on_front.cpu(), list(front.directions)
    x, y, deviations = means[:, one].numpy(), means[:, other].numpy(), front.deviations.cpu()[best].numpy()
    words = {"s": 16, "color": PLAYED, "alpha": 0.45, "linewidths": 0, "zorder": 2.4}
    ax.scatter(x[~best], y[~best], label=f"played ({int((~best).sum())})", **words)
    words = {"fmt": "none", "ecolor": POSTERIOR, "alpha": 0.5, "linewidth": 0.9, "zorder": 2.5}
    ax.errorbar(x[best], y[best], xerr=deviations[:, one], yerr=deviations[:, other], **words)
    if len(names) == 2:
        order = x[best].argsort()
        # Between two of the front both are as bad as the worse: the corner lies on the side of what is not sought.
        step = "post" if front.directions[names[one]] == "minimize" else "pre"
        ax.step(x[best][order], y[best][order], where=step, color=POSTERIOR, linewidth=1.2, zorder=2.5)
    words = {"s": 30, "color": POSTERIOR, "edgecolor": "white", "linewidths": 0.6, "zorder": 2.6}
    ax.scatter(x[best], y[best], label=f"Pareto front of the means, ± σ ({int(best.sum())})", **words)
    labelled(ax, *(f"{names[i]} ({front.directions[names[i]]})" for i in pair))
