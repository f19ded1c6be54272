"""What is chosen next among the actions of a round, with points pending."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import BadInitialCandidatesWarning
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, BlindRule, Cube, Domain, SomeOf, rule_loops
from torch_kbandits.acquisition.thompson import DiscretizedThompsonSampling
from torch_kbandits.beliefs.base import Lookahead
from torch_kbandits.beliefs.box_search import BoxSearch
from torch_kbandits.beliefs.cube_search import CubeSearch, found
from torch_kbandits.beliefs.embedded import Embedded
from torch_kbandits.beliefs.joint import Hallucinated, JointPosterior
from torch_kbandits.beliefs.sieve import WORTHWHILE, score_bounds
from torch_kbandits.errors import InputError
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.compiled import runs_compiled
from torch_kbandits.numerics.linalg import covariance_root
from torch_kbandits.numerics.prior_draws import JOINT_LIMIT
from torch_kbandits.numerics.random import ROUNDING_SHARE, highest, tie_width
from torch_kbandits.numerics.rows import distinct
from torch_kbandits.numerics.waves import has_waves
from torch_kbandits.tables.lazy import SomeArms

#: Arms of the highest bounds, which are looked at first.
_FIRST = 64

#: Where bounds leave more than one in so many arms, all are looked at.
_MOST = 4


class JointLookahead(Lookahead):
    """The posterior with points pending, as if each had returned its posterior mean: variances shrink, means stay.

    It is the exact conditional of the posterior as it is, as on arms and in ``KernelUCB``; see ``Conditional``. Points
    are taken in when a variance is asked for, so that rules which draw do not pay for them. Cost: O(m² + k m + k²) for
    a point beside k others, and O(k (m + k)) for a variance.
    """

    def __init__(self, posterior: JointPosterior, pending: Tensor) -> None:
        super().__init__(pending)
        self._posterior, self.tie_rank = posterior, posterior.place.tie_rank
        # So many of the pending points; in a list, which copies share until one of them adds a point.
        self._taken: list[tuple[Hallucinated | None, int]] = [(None, 0)]

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None = None) -> Tensor:
        """Return the joint point (1, d) of the highest score; equals are broken by lot."""
        posterior, place = self._posterior, self._posterior.place
        search = place.search
        if rule.needs_incumbent:
            rule = rule.scaled_to(posterior.belief)
        is_listed = domain is not None and (domain.arms is not None or domain.blocks is not None)
        if isinstance(search, CubeSearch) and domain is None:
            domain = Domain(cube=search.cube)
        if domain is not None and domain.cube is not None:
            return self._on_cube(rule, beta, seed, domain, seed if search is None else search.seed)
        if not is_listed and (search is not None or required(domain).bounds is not None):
            return self._searched(rule, beta, seed, domain, cast(BoxSearch | None, search))
        with torch.no_grad():
            domain, ranks = required(domain), place.tie_rank
            if domain.arms is not None and domain.allowed is not None:
                ranks = (_lots(len(domain.arms), seed) if ranks is None else ranks)[domain.allowed]
                domain = _among(domain, domain.allowed)
            rows = self._contenders(rule, beta, seed, domain)
            if rows is not None:
                ranks = (_lots(len(cast(Tensor, domain.arms)), seed) if ranks is None else ranks)[rows]
                domain = _among(domain, rows)
            offer, rows = self.offered(domain), domain.allowed
            scores = rule.on_arms(offer if rows is None else SomeOf(offer, rows), beta, seed)
            ranks = ranks if rows is None else None
            row, self.best_score = best_of(scores, beta, posterior.belief.kernel_bound(), seed, ranks)
            return offer.chosen(row if rows is None else int(rows[row]))

    def _contenders(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain) -> Tensor | None:
        """Return rows among which are all arms of the highest score, ascending; None where they may be any."""
        arms, self.visited_share = domain.arms, 1.0
        # Off the CPU all variances take less time than to wait for the rows, and for the eigenvalues in the bounds.
        if arms is None or arms.shape[0] < WORTHWHILE or not arms.is_cpu:
            return None
        if not rule.grows_with_mean_and_variance or rule.needs_incumbent:
            return None

        def score(mean: Tensor, variance: Tensor) -> Tensor:
            return rule.on_arms(SomeArms(mean, variance, lambda: mean.max()), beta, seed)

        bounds = score_bounds(self._posterior, arms, score)
        first = bounds.topk(_FIRST).indices
        known = rule.on_arms(_Offer(self, _among(domain, first)), beta, seed)
        # For rounding in the bounds, of which scores above theirs say how large it is.
        width = tie_width(known.max(), beta, self._posterior.belief.kernel_bound())
        width = 2.0 * (width + (known - bounds[first]).max().clamp_min(0.0))
        rows = torch.cat([first, (bounds >= known.max() - width).nonzero().squeeze(-1)]).unique()
        if len(rows) > len(arms) // _MOST:
            return None
        self.visited_share = len(rows) / len(arms)
        return rows

    def _searched(
        self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None, search: BoxSearch | None
    ) -> Tensor:
        """Return the point (1, d) that a search of a box finds; no score decides before any reward."""
        posterior, pending = self._posterior, self.pending if len(self.pending) else None
        number = posterior.belief.num_observations
        self.best_score, is_blind = float, rule.needs_observations and number == 0
        if search is not None and is_blind:
            return search.first(len(self.pending))
        model, where = posterior.model, required(domain) if search is None else self.domain
        if search is None:
            x = on_box(rule, model, number, beta, pending, where, seed)
        else:
            x = rule.on_box(model, beta, pending, where, seed)
        if not is_blind:
            self.best_score = partial(_score, x, rule, model, beta, pending, where, seed)
        return x

    def _on_cube(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain, first_seed: int) -> Tensor:
        """Return the joint point (1, d) that a rule finds on a cube: at least as good as all that it looks at first."""
        posterior, pending = self._posterior, self.pending if len(self.pending) else None
        self.best_score, cube = float, cast(Cube, domain.cube)
        if rule.needs_observations and posterior.belief.num_observations == 0:
            return domain.joint(cube.sample(1, torch.Generator().manual_seed(first_seed), first=len(self.pending)))
        if isinstance(rule, BlindRule):
            return domain.joint(rule.of_cube(cube, seed))

        def offer(points: Tensor) -> _Offer:
            return _Offer(self, replace(domain, arms=points, cube=None))

        def score(points: Tensor) -> Tensor:
            with torch.no_grad():
                return rule.on_arms(offer(points), beta, seed)

        def function() -> AcquisitionFunction:
            return rule.climbed(posterior.model, beta, pending, domain, seed)

        points = found(domain, score, None if rule.draws_functions else function, seed)
        with torch.no_grad():
            last = offer(points)
            scores = rule.on_arms(last, beta, seed)
            row, self.best_score = best_of(scores, beta, posterior.belief.kernel_bound(), seed)
            return last.chosen(row)

    def offered(self, domain: Domain | None) -> "_Offer | _StoredOffer":
        """Return the posterior at the actions of a round."""
        domain = required(domain)
        return _Offer(self, domain) if domain.arms is not None else _StoredOffer(self, domain)

    def _add(self, point: Tensor, times: int) -> None:
        """Part from the copies; points are taken in when a variance is asked for."""
        self._taken = [*self._taken]

    def pending_scores(self) -> Tensor:
        """Return the scores of the pending points without anything pending, (k,)."""
        noise = self._posterior.belief.regularization
        with torch.no_grad():
            variance = self._posterior.dtc_variance_at(self._posterior.embed(self.pending))
        return (variance / noise.double()).to(noise)

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio, 0-dim: over points of a box that stays, and the pending ones.

        It is over the pending points alone where the contexts to come are not known.
        """
        search = self._posterior.place.search
        probes = None if search is None else search.probes
        X = self.pending if probes is None else torch.cat([probes, self.pending])
        before, after = self._before(X), self.variance_at(X)
        least = torch.finfo(torch.float64).eps * self._posterior.belief.kernel_bound()
        return ((before + least) / (after + least)).max()

    def variance_at(self, X: Tensor) -> Tensor:
        """Return the posterior variances at points (k, d) with the pending points hallucinated, (k,)."""
        with torch.no_grad():
            return self.variance_of(self._posterior.embed(X))

    def variance_of(self, at: Embedded) -> Tensor:
        """Return the posterior variances at embedded points with the pending points hallucinated, (k,)."""
        hallucinated, number = self._taken[0]
        if number < self.num_pending:
            hallucinated = self._posterior.hallucinating(self.pending[number:], hallucinated)
            self._taken[0] = hallucinated, self.num_pending
        return (
            self._posterior.variance_at(at)
            if hallucinated is None
            else self._posterior.variance_given(at, hallucinated)
        )

    @property
    def model(self) -> NystromGP:
        """The posterior without anything pending, as a BoTorch model."""
        return self._posterior.model

    @property
    def domain(self) -> Domain:
        """What may be played in a box that stays, with where to start the search."""
        return self._posterior.domain

    def _before(self, X: Tensor) -> Tensor:
        """Return the variances at points (k, d) without anything pending, (k,)."""
        with torch.no_grad():
            return self._posterior.variance_at(self._posterior.embed(X))


def _score(x: Tensor, rule: AcquisitionRule, *words: Any) -> float:
    """Return the value at a point (1, d) of the function that a rule maximises, whose other words these are."""
    with torch.no_grad():
        return float(rule.function(*words)(x.unsqueeze(0)))


class _Offer:
    """The posterior at the actions of a round, as ``ArmPosterior``; computed as far as a rule reads it."""

    def __init__(self, ahead: JointLookahead, domain: Domain) -> None:
        self._ahead, self._posterior, self._domain = ahead, ahead._posterior, domain
        self._arms = cast(Tensor, domain.arms)
        self._embedded: Embedded | None = None

    def chosen(self, row: int) -> Tensor:
        """Return the action of a row, (1, d), which the belief may keep if the rule looked at the posterior at all."""
        point = self._arms[row : row + 1].clone()
        if self._embedded is not None:
            self._posterior.table.remember(self._embedded.column(row, point))
        return point

    @property
    def at(self) -> Embedded:
        """The actions as the posterior sees them."""
        if self._embedded is None:
            self._embedded = self._posterior.embed(self._arms)
        return self._embedded

    @property
    def mean(self) -> Tensor:
        """Posterior means, (A,)."""
        return self._posterior.mean_at(self.at)

    @property
    def variance(self) -> Tensor:
        """Posterior variances with the pending points hallucinated, (A,)."""
        return self._ahead.variance_of(self.at)

    @property
    def incumbent(self) -> Tensor:
        """What is to be improved on, 0-dim; see ``ArmPosterior``."""
        return _incumbent(self)

    def deviation(self, seed: int) -> Tensor:
        """Return a draw of f − mean from the joint posterior of the actions, (A,); equal actions get equal values."""
        points, rows = distinct(self._arms)
        if len(points) > JOINT_LIMIT:
            if has_waves(self._posterior.table.kernel, points.shape[-1]):  # draws that depend on no order of points
                return self._posterior.draw(seed)(points).to(points)[rows]
            draws = DiscretizedThompsonSampling(self._posterior.model, self._arms, beta=1.0, seed=seed)
            return draws.draws(1)[0] - self.mean
        at = self._posterior.embed(points)
        root = covariance_root(self._posterior.covariance_at(at, at))
        generator = torch.Generator().manual_seed(seed)
        normals = torch.randn(len(points), generator=generator, dtype=torch.float64, device="cpu")
        return (root @ normals.to(root))[rows]


class _StoredOffer:
    """The posterior at arms that are not in memory, as ``ArmPosterior``: read once for all means and variances."""

    def __init__(self, ahead: JointLookahead, domain: Domain) -> None:
        self._ahead, self._posterior, self._domain = ahead, ahead._posterior, domain

    def chosen(self, row: int) -> Tensor:
        """Return the arm of a row, (1, d)."""
        for block in self._blocks():
            if row < len(block):
                return block[row, None].clone()
            row -= len(block)
        raise IndexError(row)

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        means, variances = [], []
        for block in self._blocks():
            offer = _Offer(self._ahead, replace(self._domain, arms=block))
            means.append(offer.mean)
            variances.append(offer.variance)
        return torch.cat(means), torch.cat(variances)

    @property
    def mean(self) -> Tensor:
        """Posterior means, (A,)."""
        return self._moments[0]

    @property
    def variance(self) -> Tensor:
        """Posterior variances with the pending points hallucinated, (A,)."""
        return self._moments[1]

    @property
    def incumbent(self) -> Tensor:
        """What is to be improved on, 0-dim; see ``ArmPosterior``."""
        return _incumbent(self)

    def deviation(self, seed: int) -> Tensor:
        """Return a draw of f − mean from the joint posterior of the arms, (A,), made of waves; see ``Waves``."""
        draw = self._posterior.draw(seed)
        with torch.no_grad():
            return torch.cat([draw(block).to(block) for block in self._blocks()])

    def _blocks(self) -> Iterable[Tensor]:
        return () if self._domain.blocks is None else self._domain.blocks()


def _incumbent(offer: _Offer | _StoredOffer) -> Tensor:
    """Return the largest posterior mean of a point played or pending, or in a context that of its actions, 0-dim."""
    posterior, domain = offer._posterior, offer._domain
    known, belief = domain.incumbent, posterior.belief
    if known is None and domain.context is not None:
        return offer.mean.max()
    if known is None:
        known = belief.recommend() if belief.num_observations else belief.inducing_points[:0]
    known = torch.cat([known, domain.eligible(offer._ahead.pending)])
    return posterior.mean_at(posterior.embed(known)).max() if len(known) else torch.zeros_like(belief.regularization)


def _among(domain: Domain, rows: Tensor) -> Domain:
    """Return a domain of some of its arms alone."""
    return replace(domain, arms=cast(Tensor, domain.arms)[rows], allowed=None)


def required(domain: Domain | None) -> Domain:
    """Return the domain of a round, without which nothing can be chosen among contextual actions."""
    if domain is None:
        raise InputError("Contextual actions are chosen from in a round: its domain is missing.")
    return domain


def best_of(
    scores: Tensor, beta: Tensor, kernel_bound: Tensor, seed: int, tie_rank: Tensor | None = None
) -> tuple[int, Callable[[], float]]:
    """Return the position of the highest score (A,), and what returns the score.

    Scores that differ by rounding only are broken by lot. Without ``tie_rank`` the lot is the round's: actions differ
    from round to round, so there is no order of all.
    """
    if runs_compiled(scores, beta, kernel_bound):
        share = ROUNDING_SHARE[kernel_bound.dtype]
        row, best, is_alone = rule_loops.highest(scores.numpy(), beta.item(), kernel_bound.item(), share)
        if is_alone:
            return row, partial(float, best)
    ranks = _lots(len(scores), seed).to(scores.device) if tie_rank is None else tie_rank
    best = scores.max()
    return int(highest(scores, ranks, tie_width(best, beta, kernel_bound))), best.item


def _lots(number: int, seed: int) -> Tensor:
    """Return the order in which a round breaks ties between so many arms, (A,)."""
    return torch.rand(number, generator=torch.Generator().manual_seed(seed), dtype=torch.float32, device="cpu")


def on_box(
    rule: AcquisitionRule,
    model: NystromGP | OnlineGP,
    num_observations: int,
    beta: Tensor,
    pending: Tensor | None,
    domain: Domain,
    seed: int,
) -> Tensor:
    """Return the joint point (1, d) that a rule finds over a box of actions; a uniform one before any reward.

    The search also starts from the action told last, which is no context's optimum but often near one, and from what is
    to be improved on. In a context far from all that was seen every action is as good; BoTorch's warning of that is not
    passed on.
    """
    if rule.needs_observations and num_observations == 0:
        lower, upper = cast(Tensor, domain.bounds)
        uniform = torch.rand(
            1, len(lower), generator=torch.Generator().manual_seed(seed), dtype=torch.float64, device="cpu"
        )
        return domain.in_context(lower + (upper - lower) * uniform.to(lower))
    starts = domain.in_context(model.train_inputs[0][-1:]).clamp(*cast(Tensor, domain.bounds))
    if domain.incumbent is not None:
        starts = torch.cat([starts, domain.incumbent])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BadInitialCandidatesWarning)
        return rule.on_box(model, beta, pending, replace(domain, starts=starts), seed)
