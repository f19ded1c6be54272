"""Importance of parameters: by length scales, and by the share of the variance of what is expected."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_kbandits import checks
from torch_kbandits.bandit.config import BanditConfig
from torch_kbandits.bandit.state import State
from torch_kbandits.candidates import Configurations
from torch_kbandits.candidates.timed import column_names, dated, listing_of, untimed
from torch_kbandits.errors import EmptyHistoryError
from torch_kbandits.models import FactoredGP
from torch_kbandits.models.draws import PosteriorDraws
from torch_kbandits.numerics.prior_draws import JOINT_LIMIT
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.priors.evidence import length_scales

#: Values of each parameter, at most, points evaluated at a time, and the fewest points of a draw.
_VALUES, _BLOCK, _FEWEST = 4096, 4096, 32


@dataclass(frozen=True, eq=False)
class Importance:
    """How much each of G parameters matters, as ``Bandit.importance`` returns it; printed, it is a table.

    Attributes:
        names: of the parameters, (G,).
        length_scales: ℓ over the range of the parameter, (G,), the shortest where there are several; a long one says
            that little changes along it. NaN where the kernel has none, or nothing is known of the range.
        first_order: the share of the variance of the posterior mean that each explains alone, (G,).
        total: the share that each explains alone and together with others, (G,): what is left with all others fixed.
        first_order_draws, total_draws: the same of functions drawn from the posterior, (S, G).
    """

    names: tuple[str, ...]
    length_scales: Tensor
    first_order: Tensor
    total: Tensor
    first_order_draws: Tensor
    total_draws: Tensor

    def interval(self, confidence: float = 0.9) -> tuple[Tensor, Tensor]:
        """Return between what first-order and total shares lie with a posterior probability, each (2, G)."""
        tail = 0.5 - 0.5 * checks.open_unit_interval("confidence", confidence)
        ends = torch.tensor([tail, 1.0 - tail], dtype=torch.float64)
        return self.first_order_draws.quantile(ends, dim=0), self.total_draws.quantile(ends, dim=0)

    def __str__(self) -> str:
        width = max(len("parameter"), *map(len, self.names))
        lines = [f"{'parameter':<{width}}  length scale  first order  total  (90% interval)"]
        for place in self.total.argsort(descending=True).tolist():
            low, high = self.interval()[1][:, place].tolist()
            shares = f"{self.length_scales[place]:12.3g}  {self.first_order[place]:11.2f}  {self.total[place]:5.2f}"
            lines.append(f"{self.names[place]:<{width}}  {shares}  ({low:.2f} to {high:.2f})")
        return "\n".join(lines)


def importance_of(
    config: BanditConfig, state: State, model: FactoredGP, *, num_points: int, num_draws: int
) -> Importance:
    """Return the importance of the parameters of a bandit under its posterior; see ``Bandit.importance``."""
    candidates, now = config.candidates, state.clock.now
    if not state.surrogate.num_observations:
        raise EmptyHistoryError("Nothing that was learned counts, so nothing is known of parameters: tell first.")
    num_points, num_draws = checks.size("num_points", num_points), checks.size("num_draws", num_draws)
    generator = generator_for(config.seed, state.round, "importance")
    values = _values(config, state.surrogate.played[:, candidates.is_timed :], generator)
    columns = [*range(values.shape[-1])] if (known := untimed(candidates).groups) is None else list(known)
    groups = [[place for place, each in enumerate(columns) if each == group] for group in dict.fromkeys(columns)]
    plain = column_names(candidates)[candidates.is_timed :]
    names = tuple(plain[g[0]] if len(g) == 1 else plain[g[0]].split("=")[0].removesuffix(" 1") for g in groups)
    seed = int(torch.randint(2**31, (), generator=generator, device="cpu"))
    uniforms = SobolEngine(2 * len(groups), scramble=True, seed=seed).draw(num_points, dtype=torch.float64)

    def points(number: int) -> Tensor:
        """Return A, B, and A with each parameter as in B, one below the other, (number (2 + G), d)."""
        rows = (uniforms[:number] * len(values)).long().clamp_max(len(values) - 1).chunk(2, dim=-1)
        first, second = (torch.empty(number, len(columns), dtype=values.dtype) for _ in rows)
        for place, group in enumerate(groups):
            for part, row in zip((first, second), rows, strict=True):
                part[:, group] = values[row[:, place]][:, group]
        mixed = [first.index_copy(-1, torch.tensor(group), second[:, group]) for group in groups]
        X = torch.cat([first, second, *mixed])
        return (dated(now, X) if candidates.is_timed else X).to(candidates.device)

    with torch.no_grad():
        X, some = points(num_points), points(min(num_points, max(JOINT_LIMIT // (2 + len(groups)), _FEWEST)))
        mean, at_some = (_means(model, each) for each in (X, some))
        drawn = PosteriorDraws(model, some.double())
        draws = torch.stack([at_some + drawn.draw(generator).cpu().double() for _ in range(num_draws)])
    whole, part, of_draws = (_shares(each, len(groups)) for each in (mean, at_some, draws))
    # Fewer points are off by about as much for each draw as for the mean.
    first_draws, total_draws = ((d + w - p).clamp(0.0, 1.0) for d, w, p in zip(of_draws, whole, part, strict=True))
    scales = _relative_scales(config, state, groups, values)
    first, total = (each.clamp(0.0, 1.0) for each in whole)
    return Importance(names, scales, first, total, first_draws, total_draws)


def _values(config: BanditConfig, played: Tensor, generator: torch.Generator) -> Tensor:
    """Return what each parameter may be, (P, d), sorted in each column that is a parameter: its values are as likely.

    Those of contexts, and of actions that differ from round to round, are as played.
    """
    space, listing = untimed(config.candidates), listing_of(config.candidates)
    c, actions = space.context_dim, played[:, space.context_dim :]
    if isinstance(space, Configurations):
        actions = space.space.sample(_VALUES, generator)
    elif not space.is_finite:
        lower, upper = space.ranges[:, c:]
        actions = lower + (upper - lower) * ((torch.arange(_VALUES, dtype=torch.float64) + 0.5) / _VALUES).unsqueeze(-1)
    elif listing is not None:
        rows = torch.arange(listing.size, device="cpu")
        if listing.size > _VALUES:
            rows = torch.randint(listing.size, (_VALUES,), generator=generator, device="cpu")
        actions = listing.actions(rows.tolist())
    number = max(len(actions), len(played) if c else 0)
    parts = [
        part[(torch.arange(number) * len(part)) // number].cpu().to(space.example) for part in (played[:, :c], actions)
    ]
    values = torch.cat(parts, dim=-1)
    groups = range(values.shape[-1]) if space.groups is None else [*space.groups]
    alone = [place for place, group in enumerate(groups) if groups.count(group) == 1]
    values[:, alone] = values[:, alone].sort(dim=0).values
    return values


def _means(model: FactoredGP, X: Tensor) -> Tensor:
    """Return posterior means of points (N, d), (N,), in double precision on the CPU."""
    return torch.cat([model.posterior(block.unsqueeze(-2)).mean.flatten().cpu().double() for block in X.split(_BLOCK)])


def _shares(values: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Return first-order and total Sobol indices, (..., G), of values at A, B and each mixture, (..., n (2 + G)).

    Source: Saltelli et al., Computer Physics Communications 2010, Table 2, (b) and (f). Differs: values are centred.
    """
    values = values.unflatten(-1, (2 + number, -1))
    values = values - values[..., :2, :].mean((-2, -1), keepdim=True)
    second, steps = values[..., 1:2, :], values[..., 2:, :] - values[..., :1, :]
    variance = values[..., :2, :].square().mean((-2, -1)).unsqueeze(-1)
    shares = (second * steps).mean(-1) / variance, 0.5 * steps.square().mean(-1) / variance
    return cast(Any, tuple(torch.where(variance > 0.0, share, 0.0) for share in shares))


def _relative_scales(config: BanditConfig, state: State, groups: list[list[int]], values: Tensor) -> Tensor:
    """Return the shortest length scale of each group over the range of its values, (G,)."""
    kernel, first = state.surrogate.kernel, -int(config.candidates.is_timed)
    spans, found = values.double().amax(0) - values.double().amin(0), torch.full((len(groups),), torch.inf).double()
    for columns, scale, _ in length_scales(kernel, range(first, values.shape[-1])):
        for place, group in enumerate(groups):
            if set(group) & set(columns):
                found[place] = min(float(found[place]), scale / float(spans[group].max()))
    return torch.where(found.isfinite(), found, torch.nan)
