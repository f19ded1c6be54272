"""What each surrogate of a bandit answers, and the posterior with points pending."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from gpytorch.settings import min_fixed_noise
from torch import Tensor

from torch_kbandits.acquisition import (
    AcquisitionRule,
    ArmPosterior,
    Domain,
    SomeOf,
    UpperConfidenceRule,
)
from torch_kbandits.dictionaries import DictionaryRule, Selection
from torch_kbandits.errors import EmptyHistoryError
from torch_kbandits.loops.compiled import on_cpu_without_grad
from torch_kbandits.memory import Memory
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.formulas import frozen
from torch_kbandits.numerics.prior_draws import JOINT_LIMIT
from torch_kbandits.numerics.random import ROUNDING_SHARE, highest, tie_width
from torch_kbandits.numerics.rows import distinct
from torch_kbandits.observations.history import History
from torch_kbandits.posteriors.dictionary_posterior import DictionaryPosterior
from torch_kbandits.posteriors.exact_posterior import ExactPosterior
from torch_kbandits.selection.propensities import Choice, Chosen, shares, spread_out

#: Of so many of the points played, the latest, the best in a context is sought.
_PLAYED = 256


@dataclass(frozen=True, eq=False)
class PosteriorConfig:
    """What a surrogate is to be, whatever may be played."""

    kernel: Kernel  # the prior covariance
    regularization: float  # λ
    seed: int  # addresses what is drawn once
    dictionary: DictionaryRule | None = None  # which played points span the approximation; None: it is exact
    memory: Memory | None = None  # which observations count at a time, and with what noise; None where all do for ever
    mean: Mean | None = None  # the prior mean; None for zero


class FantasyPosterior(ABC):
    """The posterior with points pending, from which the next is chosen. Telling makes it out of date.

    Args:
        pending: (k, d).
    """

    #: The stage that chose each of the pending points, (k,), 0 for none; None where there are no stages.
    stages: Tensor | None = None

    #: The order in which ties between arms are broken, (A,); None where a lot of the round decides.
    tie_rank: Tensor | None = None

    def __init__(self, pending: Tensor) -> None:
        self._pending, self.num_pending = [pending], pending.shape[0]

    @property
    def pending(self) -> Tensor:
        """The points pending, (k, d), in the order added."""
        if len(self._pending) > 1:
            self._pending = [torch.cat(self._pending)]
        return self._pending[0]

    def looks_from(self, X: Tensor, stages: Tensor | None) -> bool:
        """Say whether just these points (k, d) are pending, which these stages (k,) chose, in this order."""
        same = stages is None or self.stages is None or torch.equal(self.stages, stages)
        return same and torch.equal(self.pending, X)

    @abstractmethod
    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain) -> Chosen:
        """Return the point that a rule chooses; equals are broken at random.

        Args:
            rule: how to choose.
            beta: the multiplier of σ, 0-dim.
            seed: all randomness of the choice.
            domain: what may be played in this round.
        """

    @abstractmethod
    def offered(self, domain: Domain) -> Any:
        """Return the ``ArmPosterior`` of a round's A candidates, if these are listed, with pending points hallucinated.

        Its method ``chosen`` returns the candidate of a row, (1, d).
        """

    def _best_offered(
        self,
        rule: AcquisitionRule,
        beta: Tensor,
        seed: int,
        domain: Domain,
        kernel_bound: Tensor,
        incumbent: Tensor | None = None,
    ) -> Chosen:
        """Return the candidate of the highest score of those allowed; equals are broken at random.

        The ``kernel_bound`` is the largest prior variance, and where not all is allowed the incumbent is what is to be
        improved on, both 0-dim; None for that of all.
        """
        with torch.no_grad():
            offer, rows, ranks = self.offered(domain), domain.allowed, self.tie_rank
            posterior: ArmPosterior = offer
            if rows is not None:
                posterior = SomeOf(posterior, rows, incumbent)
                ranks = (lots(len(offer.mean), seed) if ranks is None else ranks)[rows]
            scores = rule.on_arms(posterior, beta, seed)
            row, score = best_of(scores, beta, kernel_bound, seed, ranks)
            row = row if rows is None else rows[row]

            def probabilities() -> Tensor:
                own = rule.probabilities(posterior, scores, beta, seed, partial(shares, beta, kernel_bound))
                return own if rows is None else spread_out(own, rows, len(offer.mean))

            choice = Choice(row, probabilities, rule.draws_functions and len(scores) > JOINT_LIMIT)
            return Chosen(offer.chosen(row), choice, score)

    def add(self, point: Tensor, times: int = 1, stage: int | None = None) -> None:
        """Make a point (1, d) pending, so many times, which a stage chose if there are any."""
        self._add(point, times, stage)
        points = point if times == 1 else point.expand(times, -1)
        self._pending = [*self._pending, points] if self.num_pending else [points]  # copies share the old list
        self.num_pending += times

    @abstractmethod
    def _add(self, point: Tensor, times: int, stage: int | None) -> None:
        """Prepare for a point (1, d) that becomes pending, so many times; copies share what this one has."""

    @abstractmethod
    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return posterior means at points X (q, d), and variances with pending points hallucinated, each (q,)."""

    @abstractmethod
    def pending_scores(self) -> Tensor:
        """Return the ridge leverage scores of the pending points without anything pending, (k,)."""

    @abstractmethod
    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over the candidates of the variance without and with pending points, 0-dim."""


class Surrogate(ABC):
    """The posterior of a bandit in the form that suits its candidates, and the search for the best of them.

    A value: what is learned makes another, and this one stays as it is. It is also the ``Evidence`` that confidence
    widths read, and checks nothing that ``Bandit`` has checked.

    Args:
        example: a point (1, d) whose dtype all tensors have, on the CPU like them; what is returned for each of many
            arms is on the device of the arms.
        kernel: the prior covariance; a copy is kept.
        regularization: λ.
        exact: whether the posterior is the exact one; else it is the Nyström–DTC one at a selected dictionary.
        mean: the prior mean; None for zero.
    """

    #: The order in which ties between arms are broken, (A,); None where a lot of the round decides.
    tie_rank: Tensor | None = None

    #: The surrogates of the stages of a choice; none where there are no stages.
    stage_surrogates: tuple["Surrogate", ...] = ()

    #: The surrogate that recommends in place of this one; None for itself.
    leading: "Surrogate | None" = None

    #: Number t of observations, and the points that count, (u, d), each once, in the order in which they were first
    #: played.
    num_observations: int
    played: Tensor

    #: The dictionary, (m, d), and what its rule wants handed back of each of these points, (m,); None if nothing.
    inducing_points: Tensor
    dictionary_weights: Tensor | None

    #: Whether variances are those of ``learned_residual``, as under a dictionary that is full.
    learns_residual: bool = False

    def __init__(
        self, example: Tensor, kernel: Kernel, regularization: float, *, exact: bool, mean: Mean | None = None
    ) -> None:
        self.exact, self.prior_mean = exact, mean
        self.kernel = frozen(deepcopy(kernel).to(example).requires_grad_(False).eval())
        self.regularization = torch.tensor(regularization, dtype=example.dtype)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become a copy of a surrogate, from all that it has."""
        for name, value in state.items():
            setattr(self, name, value)
        frozen(self.kernel)  # a copy, of which it is not known yet

    def model(
        self,
        X: Tensor,
        Y: Tensor,
        inducing_points: Tensor,
        noise: Tensor | None = None,
        posterior: ExactPosterior | DictionaryPosterior | None = None,
    ) -> NystromGP | OnlineGP:
        """Return the BoTorch model of rewards Y (n,) at X (n, d), with this prior and noise.

        Without an exact posterior it has the dictionary (m, d). With ``noise`` (n,) the observations have these noise
        variances and λ is that of the next ones. It predicts by a posterior, if that is given, and computes nothing.
        """
        prior: dict[str, Any] = {
            "covar_module": deepcopy(self.kernel),
            "regularization": float(self.regularization),
            "mean_module": deepcopy(self.prior_mean),
        }
        if noise is not None:  # the constructor rounds small ones up, with a warning, so they are set afterwards
            prior["train_Yvar"] = noise.clamp_min(min_fixed_noise.value(noise.dtype) or 0.0).unsqueeze(-1)
        if self.exact:
            model: NystromGP | OnlineGP = OnlineGP(X, Y.unsqueeze(-1), **prior)
        else:
            prior["learns_residual"] = self.learns_residual
            model = NystromGP(X, Y.unsqueeze(-1), inducing_points=inducing_points, **prior)
        if noise is not None:
            likelihood: Any = model.likelihood
            likelihood.noise_covar.noise = noise
        return model if posterior is None else model.predicting_by(posterior)

    @abstractmethod
    def effective_dimension(self) -> Tensor:
        """Σ_s τ̃(x_s), 0-dim."""

    @abstractmethod
    def information_gain(self) -> Tensor:
        """½ log det V, 0-dim, in nats."""

    @abstractmethod
    def projection_error(self) -> Tensor:
        """What the dictionary does not span of the points played, 0-dim, in units of λ; see ``Evidence``."""

    @abstractmethod
    def kernel_bound(self) -> Tensor:
        """The largest k(x, x) known of, 0-dim."""

    @abstractmethod
    def mean_norm(self) -> Tensor:
        """The RKHS norm of the posterior mean less the prior one, 0-dim, in reward units."""

    @abstractmethod
    def recommend(self) -> Tensor:
        """Return the played point (1, d) of the largest posterior mean."""

    def recommend_in(self, domain: Domain, keeps: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return the point (1, d) of the largest posterior mean: of a round's domain, or of those played without one.

        Without a context, and on a cube, it is one that was played, in whatever context: the best of them in this one.

        Args:
            domain: of the round.
            keeps: says of points played (n, d) which may be recommended, (n,) bool; None: all. If none may be, it is
                the best of the domain, of a cube of a spread set.

        Raises:
            EmptyHistoryError: if there is no observation.
        """
        if self.num_observations == 0:
            raise EmptyHistoryError("Nothing was learned that counts, so there is no point to recommend: tell first.")
        if domain.context is None:
            best = self.recommend()
            if keeps is None or bool(keeps(best)):
                return best
            known = self.played[keeps(self.played)]
            if len(known):
                return known[self.moments(known)[0].argmax(), None].clone()
        if domain.cube is not None:
            known = distinct(domain.in_context(torch.cat([self.played[-_PLAYED:], self.recommend()])))[0]
            known = known if keeps is None else known[keeps(known)]
            domain = replace(domain, arms=known, cube=None) if len(known) else domain.spread()
        surrogate, nothing = self.leading or self, torch.zeros_like(self.regularization)
        ahead = surrogate.fantasized(surrogate.inducing_points[:0])
        return ahead.choose(UpperConfidenceRule(), nothing, 0, domain).x

    def in_round(self, domain: Domain, rule: AcquisitionRule) -> Domain:
        """Return a round's domain with the point that a rule is to improve on, if that has to be searched for.

        On a cube the search starts there, too.

        Cost: one search over the box, of which all points asked for at once make use.
        """
        if not self.num_observations:
            return domain
        if domain.cube is not None:
            best = self.recommend_in(domain)
            return replace(domain, starts=best, incumbent=best)
        if not rule.needs_incumbent or domain.context is None or domain.arms is not None:
            return domain
        return replace(domain, incumbent=self.recommend_in(domain))

    @abstractmethod
    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior means and variances of the function at points X (q, d), each (q,)."""

    @abstractmethod
    def learned(self, told: History, generator: torch.Generator | None = None, until: float | None = None) -> Self:
        """Return the surrogate conditioned on more rewards, with the dictionary that its rule, if any, chooses.

        Args:
            told: the rewards; with the stages that chose their points, and times, where the bandit has any.
            generator: all randomness of the rule.
            until: the time at which it is wanted, not before the current one; None for that.
        """

    @abstractmethod
    def restored(self, told: History, dictionary: Selection) -> Self:
        """Return the empty surrogate conditioned on a whole history at a known dictionary.

        Args:
            told: as in ``learned``.
            dictionary: points, and weights if its rule has any; no indices.
        """

    @abstractmethod
    def fantasized(self, pending: Tensor, stages: Tensor | None = None) -> FantasyPosterior:
        """Return the posterior with points (k, d) pending, which stages (k,) chose; None where there are no stages."""

    @abstractmethod
    def at(self, now: float) -> Self:
        """Return the surrogate at a time, which is not before the current one: itself if it has no memory."""

    @abstractmethod
    def shown(self) -> NystromGP | OnlineGP:
        """Return the posterior of the rewards learned as a BoTorch model of its own."""


def best_of(
    scores: Tensor, beta: Tensor, kernel_bound: Tensor, seed: int, tie_rank: Tensor | None = None
) -> tuple[int | Tensor, Callable[[], float]]:
    """Return the position of the highest score (A,), maybe as (1,), for which nobody has waited, and what returns it.

    Scores that differ by rounding only are broken at random. Without ``tie_rank`` the round decides: actions differ
    from round to round, so there is no order of all.
    """
    if on_cpu_without_grad(scores, beta, kernel_bound):
        values = scores.numpy()  # whose calls cost a tenth of PyTorch's
        best, largest = values[row := int(values.argmax())].item(), beta.item() * math.sqrt(kernel_bound.item())
        width = ROUNDING_SHARE[kernel_bound.dtype] * max(abs(best), largest)
        if np.count_nonzero(values < best - width) == len(values) - 1:
            return row, partial(float, best)
    ranks = lots(len(scores), seed).to(scores.device) if tie_rank is None else tie_rank
    best = scores.max()
    return highest(scores, ranks, tie_width(best, beta, kernel_bound), best), best.item


def lots(number: int, seed: int) -> Tensor:
    """Return the order in which a round breaks ties between so many arms, (A,)."""
    return torch.rand(number, generator=torch.Generator().manual_seed(seed), dtype=torch.float32, device="cpu")
