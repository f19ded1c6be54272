"""What is chosen next, with points pending."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, BoxPosterior, Cube, Domain, RandomRule, UniformRule
from torch_kbandits.acquisition.thompson import DiscretizedThompsonSampling, triangular_root
from torch_kbandits.candidates import ArmSource
from torch_kbandits.numerics.linalg import covariance_root
from torch_kbandits.numerics.prior_draws import JOINT_LIMIT, spectrum_of
from torch_kbandits.numerics.rows import distinct
from torch_kbandits.posteriors.pending import Pending
from torch_kbandits.posteriors.posterior import Points, Posterior
from torch_kbandits.selection.base import FantasyPosterior, best_of
from torch_kbandits.selection.gaussian import GaussianSurrogate
from torch_kbandits.selection.propensities import Chosen
from torch_kbandits.selection.search import found


class GaussianFantasy(FantasyPosterior):
    """The posterior with points pending, as if each had returned its posterior mean: variances shrink, means stay.

    Points are taken in when a variance is asked for, so that rules which draw do not pay for them.
    """

    def __init__(self, surrogate: GaussianSurrogate, pending: Tensor) -> None:
        super().__init__(pending)
        self.surrogate, self.tie_rank = surrogate, surrogate.place.tie_rank
        # With so many of the pending points; in a list, which copies share until one of them adds a point.
        self._taken: list[tuple[Posterior | Pending, int]] = [(surrogate.posterior, 0)]

    def taken_in(self) -> Posterior | Pending:
        """Return the posterior with all points pending."""
        pending, number = self._taken[0]
        if number < self.num_pending:
            pending = pending if isinstance(pending, Pending) else Pending.none(pending)
            points, counts = self.pending[number:].unique_consecutive(dim=0, return_counts=True)
            for point, count in zip(points.split(1), counts.tolist(), strict=True):
                pending = pending.given(point, count)
            self._taken[0] = pending, self.num_pending
        return pending

    # ---------------------------------------------------------------- choosing

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain) -> Chosen:
        """Return the point of the highest score."""
        surrogate = self.surrogate
        if rule.needs_incumbent or rule.is_random:
            rule = rule.scaled_to(surrogate)
        if domain.cube is not None:
            return self._on_cube(rule, beta, seed, domain)
        if domain.bounds is not None:
            return self._in_box(rule, beta, seed, domain)
        return self._best_offered(rule, beta, seed, domain, surrogate.kernel_bound(), self.incumbent_within(domain))

    def incumbent_within(self, domain: Domain) -> Tensor | None:
        """Return what is to be improved on within limits; None for what is without them."""
        is_table = self.surrogate.place.source is not None
        if domain.allowed is None or (domain.allows if is_table else domain.context) is None:
            return None
        if not is_table:
            return self.offered(domain).mean[domain.allowed].max() if domain.incumbent is None else None
        known = domain.eligible(self.pending)
        known = known if domain.incumbent is None else torch.cat([domain.incumbent, known])
        return self.surrogate.moments(known)[0].max() if len(known) else None

    def _in_box(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain) -> Chosen:
        """Return the joint point that a search of a box finds; no score decides before any reward."""
        surrogate, number = self.surrogate, len(self.pending)
        is_blind, first_seed = rule.needs_observations and surrogate.num_observations == 0, surrogate.place.seed
        if is_blind and first_seed is not None:
            return Chosen(draw_sobol_samples(cast(Tensor, domain.bounds), n=number + 1, q=1, seed=first_seed)[number])
        pending, where = self.pending.double() if number else None, _in_double(self._started(domain))
        posterior = BoxPosterior(lambda: surrogate.searched_in_double, pending, surrogate.kernel, self.moments)
        x = (UniformRule() if is_blind else rule).on_box(posterior, beta, where, seed)
        score = float if is_blind else partial(_score, x, rule, posterior, beta, where, seed)
        return Chosen(x.to(surrogate.inducing_points), None, score)

    def _started(self, domain: Domain) -> Domain:
        """Return a box with points to start from: the action told last, and the best one known, or what is improved on.

        The first is no context's optimum but often near one. Pending points are none: where a shrunken deviation raises
        a score the search would stay there.
        """
        surrogate = self.surrogate
        if not surrogate.num_observations:
            return domain
        best = surrogate.recommend() if domain.context is None else domain.incumbent
        starts = [domain.in_context(surrogate.latest), *([] if best is None else [best])]
        return replace(domain, starts=distinct(torch.cat(starts).clamp(*cast(Tensor, domain.bounds)))[0])

    def _on_cube(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain) -> Chosen:
        """Return the joint point that a rule finds on a cube: at least as good as all that it looks at first."""
        surrogate, pending = self.surrogate, self.pending if len(self.pending) else None
        cube, first_seed = cast(Cube, domain.cube), surrogate.place.seed
        if rule.needs_observations and surrogate.num_observations == 0:
            generator = torch.Generator().manual_seed(seed if first_seed is None else first_seed)
            return Chosen(domain.joint(cube.sample(1, generator, first=len(self.pending))))
        if isinstance(rule, RandomRule):
            return Chosen(domain.joint(rule.of_cube(cube, seed)))

        def offer(points: Tensor) -> ListOffer:
            return ListOffer(self, replace(domain, arms=points, cube=None))

        def score(points: Tensor) -> Tensor:
            with torch.no_grad():
                return rule.on_arms(offer(points), beta, seed)

        def function() -> AcquisitionFunction:
            return rule.climbed(surrogate.searched, beta, pending, domain, seed)

        points = found(domain, score, None if rule.draws_functions else function, seed)
        with torch.no_grad():
            last = offer(points)
            scores = rule.on_arms(last, beta, seed)
            row, best = best_of(scores, beta, surrogate.kernel_bound(), seed)
            return Chosen(last.chosen(row), None, best)

    def offered(self, domain: Domain) -> "TableOffer | ListOffer":
        """Return the posterior at what may be played in a round."""
        return TableOffer(self) if self.surrogate.place.source is not None else ListOffer(self, domain)

    @property
    def model(self) -> Any:
        """The posterior without anything pending, as a BoTorch model."""
        return self.surrogate.searched

    # ---------------------------------------------------------------- pending points

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return posterior means at points X (q, d), and variances with pending points hallucinated, each (q,)."""
        surrogate, posterior = self.surrogate, self.surrogate.posterior
        at = posterior.at(X, is_offer=False)
        values = posterior.mean_at(at)[0], self.taken_in().variance_at(at)
        return surrogate._values(values[0]), surrogate._values(values[1])

    def _add(self, point: Tensor, times: int, stage: int | None) -> None:
        """Part from the copies; points are taken in when a variance is asked for."""
        self._taken = [*self._taken]

    def pending_scores(self) -> Tensor:
        """Return the scores of the pending points without anything pending, (k,)."""
        posterior = self.surrogate.posterior
        return self.surrogate._values(posterior.own_variance_at(posterior.at(self.pending)) / posterior.prior.noise)

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over the candidates of the variance without and with pending points, 0-dim.

        It is over the pending points alone where the contexts to come are not known.
        """
        surrogate = self.surrogate
        if surrogate.place.source is not None:
            before, after = surrogate.posterior.arm_variance(), self.taken_in().arm_variance()
        else:
            probes = surrogate.place.probes
            at = surrogate.posterior.at(self.pending if probes is None else torch.cat([probes, self.pending]))
            before, after = surrogate.posterior.variance_at(at), self.taken_in().variance_at(at)
        least = torch.finfo(surrogate._none.dtype).eps * surrogate.kernel_bound().item()
        return surrogate._number(float(((before + least) / (after + least)).max()))


class TableOffer:
    """The posterior at arms that are always the same, as ``ArmPosterior``."""

    def __init__(self, ahead: GaussianFantasy) -> None:
        self._ahead, self._surrogate = ahead, ahead.surrogate

    def chosen(self, row: int | Tensor) -> Tensor:
        """Return the arm of a row, (1, d); on a device this is what is waited for."""
        source = cast(ArmSource, self._surrogate.place.source)
        if isinstance(row, int):
            return source.block(row, row + 1).cpu().clone()
        return source.rows(row.reshape(1).to(source.device)).cpu()

    @property
    def mean(self) -> Tensor:
        """Posterior means, (A,)."""
        return self._surrogate._values(self._surrogate.posterior.arm_mean()[0])

    @property
    def variance(self) -> Tensor:
        """Posterior variances with the pending points hallucinated, (A,)."""
        return self._surrogate._values(self._ahead.taken_in().arm_variance())

    @property
    def incumbent(self) -> Tensor:
        """The largest posterior mean of a point played or pending, 0-dim; 0 before any."""
        surrogate = self._surrogate
        means = surrogate.posterior.told_means()[0, surrogate._order]
        if self._ahead.num_pending:
            means = np.append(means, surrogate.moments(self._ahead.pending)[0].double().numpy())
        return surrogate._number(float(means.max()) if len(means) else 0.0)

    def deviation(self, seed: int) -> Tensor:
        """Return a draw of f − mean, (A,)."""
        return self._surrogate.deviation(seed)

    def covariance_root(self, rows: Tensor) -> Tensor:
        """Return a root of the covariance of some arms, (k, u); see ``ArmPosterior``."""
        source, posterior = cast(ArmSource, self._surrogate.place.source), self._surrogate.posterior
        points, places = distinct(source.rows(rows.to(source.device)).cpu())
        covariance = posterior.covariance(posterior.at(points, is_offer=False))
        return triangular_root(torch.from_numpy(covariance))[places]


class ListOffer:
    """The posterior at the points of a round, as ``ArmPosterior``; computed as far as a rule reads it."""

    def __init__(self, ahead: GaussianFantasy, domain: Domain) -> None:
        self._ahead, self._surrogate, self._domain = ahead, ahead.surrogate, domain

    @cached_property
    def _at(self) -> list[Points]:
        return [self._surrogate.posterior.at(part) for part in self._domain.parts()]

    def chosen(self, row: int | Tensor) -> Tensor:
        """Return the point of a row, (1, d)."""
        row = int(row)
        for part in self._domain.parts():
            if row < len(part):
                return part[row, None].clone()
            row -= len(part)
        raise IndexError(row)

    def _each(self, values: Callable[[Points], Any]) -> Tensor:
        return torch.cat([self._surrogate._values(values(at)) for at in self._at])

    @property
    def mean(self) -> Tensor:
        """Posterior means, (A,)."""
        return self._each(lambda at: self._surrogate.posterior.mean_at(at)[0])

    @property
    def variance(self) -> Tensor:
        """Posterior variances with the pending points hallucinated, (A,)."""
        return self._each(self._ahead.taken_in().variance_at)

    @property
    def incumbent(self) -> Tensor:
        """What is to be improved on, 0-dim; see ``ArmPosterior``."""
        surrogate, known = self._surrogate, self._domain.incumbent
        if known is None and self._domain.context is not None:
            return self.mean.max()
        if known is None:
            known = surrogate.recommend() if surrogate.num_observations else surrogate.inducing_points[:0]
        known = torch.cat([known, self._domain.eligible(self._ahead.pending)])
        return surrogate.moments(known)[0].max() if len(known) else surrogate._number(0.0)

    def deviation(self, seed: int) -> Tensor:
        """Return a draw of f − mean from the joint posterior of the points, (A,); equal points get equal values."""
        surrogate, arms = self._surrogate, self._domain.arms
        if arms is None:
            return torch.cat([self._drawn(seed)(block) for block in self._domain.parts()])
        points, rows = self._distinct
        if len(points) > JOINT_LIMIT:
            if spectrum_of(surrogate.kernel, points.shape[-1]) is not None:  # draws that depend on no order of points
                return self._drawn(seed)(points)[rows]
            draws = DiscretizedThompsonSampling(surrogate.searched, arms, beta=1.0, seed=seed)
            return draws.draws(1)[0] - self.mean
        generator = torch.Generator().manual_seed(seed)
        normals = torch.randn(len(points), generator=generator, dtype=torch.float64, device="cpu")
        return (self._root @ normals)[rows].to(arms.dtype)

    @cached_property
    def _distinct(self) -> tuple[Tensor, Tensor]:
        return distinct(cast(Tensor, self._domain.arms))

    @cached_property
    def _root(self) -> Tensor:
        posterior = self._surrogate.posterior
        return covariance_root(torch.from_numpy(posterior.covariance(posterior.at(self._distinct[0]))))

    def covariance_root(self, rows: Tensor) -> Tensor:
        """Return a root of the covariance of some points, (k, u); see ``ArmPosterior``."""
        points, places = self._distinct
        if len(points) <= JOINT_LIMIT:
            return self._root[places[rows]]
        (points, places), posterior = distinct(points[places[rows]]), self._surrogate.posterior
        return covariance_root(torch.from_numpy(posterior.covariance(posterior.at(points, is_offer=False))))[places]

    def _drawn(self, seed: int) -> Callable[[Tensor], Tensor]:
        """Return a draw of f − mean as a function of points, (k, d) to (k,): the same one in whatever blocks."""
        surrogate, (prior, c) = self._surrogate, self._surrogate.drawn(seed)
        return lambda X: surrogate._values(prior.at(X).numpy() + c @ surrogate.posterior.coordinates(X))


def _in_double(domain: Domain) -> Domain:
    """Return a box in double precision, in which it is searched whatever the points are in: ends depend on rounding."""
    parts = {name: getattr(domain, name) for name in ("bounds", "starts", "context", "incumbent")}
    return replace(domain, **{name: part.double() for name, part in parts.items() if part is not None})


def _score(x: Tensor, rule: AcquisitionRule, posterior: BoxPosterior, beta: Tensor, domain: Domain, seed: int) -> float:
    """Return the value at a point (1, d) of the function that a rule maximises over a box."""
    with torch.no_grad():
        function = rule.function(posterior.model_of(), beta, posterior.pending, domain, seed)
        return float(function(x.unsqueeze(0)))
