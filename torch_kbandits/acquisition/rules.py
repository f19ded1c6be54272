"""How a bandit chooses by an acquisition function: over a table of arms, over a box, and as a BoTorch function."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import (
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
    _log_ei_helper,  # what LogExpectedImprovement computes, without a model around it
)
from botorch.acquisition.fixed_feature import FixedFeatureAcquisitionFunction
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import rule_loops
from torch_kbandits.acquisition.cubes import Cube, looked_at
from torch_kbandits.acquisition.pending import hallucinate
from torch_kbandits.acquisition.thompson import DiscretizedThompsonSampling
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.compiled import loops_over_each
from torch_kbandits.numerics.random import seeded

#: Keeps the gradient of the square root finite, and is far below any variance that matters in any units.
MIN_VARIANCE = 1e-30


class ArmPosterior(Protocol):
    """What a rule may read of the posterior over A arms."""

    @property
    def mean(self) -> Tensor:
        """Posterior means (A,)."""
        ...

    @property
    def variance(self) -> Tensor:
        """Posterior variances (A,), with pending points hallucinated."""
        ...

    @property
    def incumbent(self) -> Tensor:
        """What is to be improved on, 0-dim: the largest posterior mean of a played point, 0 before any.

        With contexts, the largest posterior mean of the arms in this one.
        """
        ...

    def deviation(self, seed: int) -> Tensor:
        """A draw of f − mean from the joint posterior, (A,); equal arms get equal values."""
        ...


class SomeOf:
    """Some rows of a posterior over arms, as ``ArmPosterior``.

    Args:
        posterior: of A arms.
        rows: which, (k,).
        incumbent: what is to be improved on, 0-dim; None for that of all arms.
    """

    def __init__(self, posterior: ArmPosterior, rows: Tensor, incumbent: Tensor | None = None) -> None:
        self._posterior, self._rows, self._incumbent = posterior, rows, incumbent

    @property
    def mean(self) -> Tensor:
        """Posterior means (k,)."""
        return self._posterior.mean[self._rows]

    @property
    def variance(self) -> Tensor:
        """Posterior variances (k,)."""
        return self._posterior.variance[self._rows]

    @property
    def incumbent(self) -> Tensor:
        """What is to be improved on, 0-dim."""
        return self._posterior.incumbent if self._incumbent is None else self._incumbent

    def deviation(self, seed: int) -> Tensor:
        """Return a draw of f − mean at the rows, (k,)."""
        return self._posterior.deviation(seed)[self._rows]


@dataclass(frozen=True, eq=False)
class Domain:
    """Where an acquisition function is maximised: arms (A, d), bounds (2, d) with the effort of the search, or a cube.

    Attributes:
        arms: (A, d); None on a box or a cube, and for arms that are not in memory.
        bounds: (2, d), or None.
        num_restarts: starting points that the search chooses itself.
        raw_samples: random points from which it chooses them.
        starts: points of the box (s, d) that it also starts from; of a cube one, that is looked around.
        context: (c,) what the first columns are in this round, whatever the bounds say of them; None without contexts.
        incumbent: the point (1, d) whose posterior mean is to be improved on, where that is searched for.
        blocks: reads arms that are not in memory part by part, (k, d) each, in order.
        cube: points of the unit cube some of which may be played; in a context they come after it.
        allowed: the rows (k,) of the arms that limits on outcomes leave, ascending; None for all.
        avoided: points (k, d) that are not to be chosen while others are left, where nobody has all arms; else None.
    """

    arms: Tensor | None = None
    bounds: Tensor | None = None
    num_restarts: int = 8
    raw_samples: int = 128
    starts: Tensor | None = None
    context: Tensor | None = None
    incumbent: Tensor | None = None
    blocks: Callable[[], Iterable[Tensor]] | None = None
    cube: Cube | None = None
    allowed: Tensor | None = None
    avoided: Tensor | None = None

    def in_context(self, X: Tensor) -> Tensor:
        """Return points (..., d) with the context in their first columns."""
        if self.context is None:
            return X
        return torch.cat([self.context.expand(*X.shape[:-1], -1), X[..., len(self.context) :]], dim=-1)

    def parts(self) -> Iterable[Tensor]:
        """Return the arms part by part, (k, d) each, in order; none on a box or a cube."""
        if self.arms is not None:
            return [self.arms]
        return () if self.blocks is None else self.blocks()

    def joint(self, actions: Tensor) -> Tensor:
        """Return actions (..., a) with the context before them, (..., d)."""
        return (
            actions if self.context is None else torch.cat([self.context.expand(*actions.shape[:-1], -1), actions], -1)
        )

    def without_first(self, columns: int, dtype: torch.dtype) -> "Domain":
        """Return a domain of arms in a dtype whose points lack so many first columns, which are of the context."""
        if not columns:
            return self
        read, context = self.blocks, self.context
        return replace(
            self,
            arms=None if self.arms is None else self.arms[:, columns:].to(dtype),
            blocks=None if read is None else lambda: (block[:, columns:].to(dtype) for block in read()),
            context=None if context is None else context[columns:].to(dtype),
        )

    def looked_at(self, seed: int) -> list[Tensor]:
        """Return points of the cube, (k, d) each, that a search looks at first; see ``cubes.looked_at``."""
        if self.cube is None:
            raise InputError("Points are spread over a cube, and this domain has none.")
        best = None if self.starts is None else self.starts[:1, -self.cube.dimension :]
        return [self.joint(part) for part in looked_at(self.cube, best, seed)]

    def of_action(self, function: AcquisitionFunction, dimension: int) -> AcquisitionFunction:
        """Return a function of points with so many columns as one of what comes after the context."""
        if self.context is None or len(self.context) == 0:
            return function
        columns = list(range(len(self.context)))
        return _OfAction(function, dimension, columns, self.context)


class AcquisitionRule(ABC):
    """Chooses the next point from a posterior. A value: it holds settings and no state.

    Draws are addressed by the seed that a rule is handed, so equal calls give equal choices.
    """

    #: Whether a confidence width enters.
    uses_width: ClassVar[bool] = False

    #: Whether rewards guide the rule; before any, a bandit on a box plays a Sobol sequence instead.
    needs_observations: ClassVar[bool] = True

    #: In how many stages, each with a posterior of its own, the rule chooses; 0 where there is one posterior.
    num_stages: int = 0

    #: Whether the score of an arm depends on its own mean and variance and the incumbent alone, and grows with both.
    #: Then bounds on these bound the score, and not every arm need be looked at.
    grows_with_mean_and_variance: ClassVar[bool] = False

    #: Whether the score of an arm depends on its own mean, variance and deviation in a draw and the incumbent alone,
    #: without growing with both. Then, and where it does, arms may be scored where nobody has all of them.
    scores_arms_apart: ClassVar[bool] = False

    #: Whether the rule draws functions, which on arms that are not in memory takes waves.
    draws_functions: ClassVar[bool] = False

    #: Whether the rule looks for what is better than an incumbent.
    needs_incumbent: ClassVar[bool] = False

    def drawn_row(self, num_arms: int, seed: int) -> int | None:
        """Return the row of the arm that is chosen whatever is believed of the arms; None where that matters."""
        return None

    @abstractmethod
    def on_arms(self, posterior: ArmPosterior, beta: Tensor, seed: int) -> Tensor:
        """Return the scores of the arms, (A,); the largest is played."""

    @abstractmethod
    def function(
        self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int
    ) -> AcquisitionFunction:
        """Return the BoTorch acquisition function that the rule maximises, with points (k, d) pending."""

    def on_box(self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int) -> Tensor:
        """Return the maximiser (1, d) over a box; torch's global generator is left as it was.

        It is sought in shares of the box, so that no unit of a column matters. Every start is searched from on its own,
        so the value found is at least that at ``domain.starts``. A function on a discretisation is maximised there.
        """
        if domain.bounds is None:
            raise InputError("on_box needs a domain with bounds.")
        before = 0 if domain.context is None else len(domain.context)
        lower, upper = box = domain.bounds[:, before:]
        starts = None if domain.starts is None else domain.starts[:, before:].unsqueeze(-2)
        with seeded(seed % 2**31):
            function = self.function(model, beta, X_pending, domain, seed)
            if isinstance(function, DiscretizedThompsonSampling):
                return function.maximizers(1)
            shares, _ = optimize_acqf(
                _OfShares(function, domain, box),
                torch.stack([torch.zeros_like(lower), torch.ones_like(upper)]),
                q=1,
                num_restarts=domain.num_restarts + (0 if starts is None else len(starts)),
                raw_samples=domain.raw_samples,
                batch_initial_conditions=None if starts is None else (starts - lower) / (upper - lower),
            )
        return domain.joint((lower + shares.detach() * (upper - lower)).clamp(*box))


class _OfAction(FixedFeatureAcquisitionFunction):
    """BoTorch's, in the dtype of what is fixed: a time is in double precision, also beside actions in single."""

    values: Tensor

    def _construct_X_full(self, X: Tensor) -> Tensor:  # noqa: N802
        return super()._construct_X_full(X.to(self.values))


class _OfShares(AcquisitionFunction):
    """A function of points of a domain as one of shares of its box (2, a), from 0 to 1 in each column."""

    def __init__(self, function: AcquisitionFunction, domain: Domain, box: Tensor) -> None:
        super().__init__(function.model)
        self._function, self._domain, self._box = function, domain, box

    def forward(self, X: Tensor) -> Tensor:
        """Return the values (b,) at single points (b, 1, a)."""
        lower, upper = self._box
        return self._function(self._domain.joint(lower + X * (upper - lower)))


class OptimisticRule(AcquisitionRule):
    """Scores a candidate by a value that the function may have there: so those of several functions can be weighed."""

    @abstractmethod
    def signed(
        self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int, *, maximize: bool
    ) -> AcquisitionFunction:
        """Return what ``function`` does, or where little is sought that of the function with the other sign."""

    def function(
        self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int
    ) -> AcquisitionFunction:
        """Return the BoTorch acquisition function that the rule maximises, with points (k, d) pending."""
        return self.signed(model, beta, X_pending, domain, seed, maximize=True)


@dataclass(frozen=True)
class ExpectedImprovementRule(AcquisitionRule):
    """Maximise the expected improvement over the largest posterior mean of a played point.

    In a context it is over the largest posterior mean of an action there, which on a box is searched for. Scores are
    logarithms, which rank alike and do not underflow. Pending points are hallucinated at their mean.

    Source: Mockus, 1975; Ament et al., NeurIPS 2023 (BoTorch's logarithm). With noise there is no best observed value;
    the posterior mean takes its place.
    """

    needs_incumbent = True
    grows_with_mean_and_variance = True

    def on_arms(self, posterior: ArmPosterior, beta: Tensor, seed: int) -> Tensor:
        """Return log EI, (A,)."""
        mean, variance, best = posterior.mean, posterior.variance, posterior.incumbent
        if loops_over_each(mean, variance):
            scores = rule_loops.log_expected_improvement(mean.numpy(), variance.numpy(), float(best), MIN_VARIANCE)
            return torch.from_numpy(scores)
        deviation = variance.clamp_min(MIN_VARIANCE).sqrt()
        return _log_ei_helper((mean - best) / deviation) + deviation.log()

    def function(
        self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int
    ) -> AcquisitionFunction:
        """Return BoTorch's ``LogExpectedImprovement``."""
        return LogExpectedImprovement(_with_pending(model, X_pending), best_f=_incumbent(model, domain))


@dataclass(frozen=True)
class ProbabilityOfImprovementRule(AcquisitionRule):
    """Maximise the probability of improving on the largest posterior mean of a played point.

    In a context it is that of an action there, as for expected improvement. Pending points are hallucinated at their
    mean.

    Source: Kushner, 1964. The score on arms is the standardised improvement, of which the probability is a monotone
    function.

    Args:
        margin: improvements count above this many units of reward; at 0 the best point so far would be played for ever.
    """

    margin: float = 0.01

    needs_incumbent = True
    scores_arms_apart = True

    def __post_init__(self) -> None:
        checks.keep(self, margin=checks.non_negative)

    def on_arms(self, posterior: ArmPosterior, beta: Tensor, seed: int) -> Tensor:
        """Return (μ − best − margin) / σ, (A,)."""
        improvement = posterior.mean - posterior.incumbent - self.margin
        return improvement / posterior.variance.clamp_min(MIN_VARIANCE).sqrt()

    def function(
        self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int
    ) -> AcquisitionFunction:
        """Return BoTorch's ``LogProbabilityOfImprovement``."""
        best = _incumbent(model, domain)
        return LogProbabilityOfImprovement(_with_pending(model, X_pending), best_f=best + self.margin)


@dataclass(frozen=True)
class ThompsonRule(OptimisticRule):
    """Maximise a draw from N(μ, β² cov): on arms over all of them, on a box over a fresh Sobol set D_t.

    Each point of a batch has a draw of its own; pending points need no other treatment.

    Source: Chowdhury and Gopalan, ICML 2017, Algorithm 2. Differs: D_t is a scrambled Sobol set of fixed size; see
    ``theoretical_discretization_size`` for the theorem's.

    Args:
        discretization_size: number of points of D_t on a box.
    """

    discretization_size: int = 1024

    uses_width = True
    draws_functions = True
    scores_arms_apart = True

    def __post_init__(self) -> None:
        checks.keep(self, discretization_size=checks.positive_integer)

    def on_arms(self, posterior: ArmPosterior, beta: Tensor, seed: int) -> Tensor:
        """Return μ + β (f − μ) for a draw f, (A,)."""
        return posterior.mean + beta * posterior.deviation(seed)

    def signed(
        self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int, *, maximize: bool
    ) -> DiscretizedThompsonSampling:
        """Return a ``DiscretizedThompsonSampling`` on ``discretization``."""
        points = self.discretization(domain, seed)
        return DiscretizedThompsonSampling(model, points, beta=beta, seed=seed, maximize=maximize)

    def discretization(self, domain: Domain, seed: int) -> Tensor:
        """Return the arms (A, d), D_t on a box, or what is looked at first on a cube.

        Raises:
            InputError: if the arms are not in memory.
        """
        points = domain.arms
        if domain.bounds is not None:
            size = self.discretization_size
            points = domain.in_context(draw_sobol_samples(domain.bounds, n=size, q=1, seed=seed % 2**31).squeeze(-2))
        if domain.cube is not None:
            points = torch.cat(domain.looked_at(seed))
        if points is None:
            raise InputError(
                "As an acquisition function Thompson sampling draws on a tensor of points, and these arms are not in "
                "memory: they are read from a file, computed in blocks or held by shards. Call ask, which needs none "
                "in memory; or give DiscretizedThompsonSampling points of your choice."
            )
        return points


class BlindRule(AcquisitionRule):
    """Chooses whatever is believed."""

    needs_observations = False

    @abstractmethod
    def drawn_row(self, num_arms: int, seed: int) -> int:
        """Return the row of so many that is chosen."""

    @abstractmethod
    def of_cube(self, cube: Cube, seed: int) -> Tensor:
        """Return the point (1, a) of a cube that is chosen."""

    def on_arms(self, posterior: ArmPosterior, beta: Tensor, seed: int) -> Tensor:
        """Return 0 for the arm drawn and −∞ for the others, (A,): no other is its equal, in any precision."""
        scores = torch.full_like(posterior.mean, -torch.inf)
        scores[self.drawn_row(len(scores), seed)] = 0.0
        return scores

    def function(
        self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int
    ) -> AcquisitionFunction:
        """Raise: there is no function that is maximised.

        Raises:
            InputError: always.
        """
        raise InputError(
            "No acquisition function is maximised: points are drawn at random, or spread until a prior is fitted."
        )


@dataclass(frozen=True)
class SpreadRule(BlindRule):
    """Spread points evenly: no arm again before all were chosen, on a box a Sobol sequence.

    Args:
        number: how many points came before.
        order: addresses the order.
    """

    number: int
    order: int

    def __post_init__(self) -> None:
        checks.keep(self, number=checks.non_negative_integer, order=checks.whole_number)

    def drawn_row(self, num_arms: int, seed: int) -> int:
        """Return a row of so many, another one for each number below that."""
        generator = torch.Generator().manual_seed(self.order)
        start, step = torch.randint(2**62, (2,), generator=generator, device="cpu").tolist()
        while math.gcd(step, num_arms) > 1:
            step += 1
        return (start + self.number * step) % num_arms

    def of_cube(self, cube: Cube, seed: int) -> Tensor:
        """Return the playable point (1, a) next to that of this number in a Sobol sequence."""
        return cube.sample(1, torch.Generator().manual_seed(self.order), first=self.number)

    def on_box(self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int) -> Tensor:
        """Return the point (1, d) of this number in the sequence."""
        bounds, order = cast(Tensor, domain.bounds), self.order % 2**31
        return domain.in_context(draw_sobol_samples(bounds, n=self.number + 1, q=1, seed=order)[self.number])


@dataclass(frozen=True)
class UniformRule(BlindRule):
    """Choose uniformly at random, with replacement: the baseline of every other rule."""

    def drawn_row(self, num_arms: int, seed: int) -> int:
        """Return a row of so many, each as likely."""
        # For short ranges torch reduces 32 bits, which favours the first rows where there are hundreds of millions.
        return int(torch.randint(2**62, (), generator=torch.Generator().manual_seed(seed), device="cpu")) % num_arms

    def of_cube(self, cube: Cube, seed: int) -> Tensor:
        """Return a playable point (1, a) next to a uniform one."""
        return cube.sample(1, torch.Generator().manual_seed(seed))

    def on_box(self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int) -> Tensor:
        """Return a uniform point (1, d)."""
        lower, upper = cast(Tensor, domain.bounds)
        generator = torch.Generator().manual_seed(seed)
        uniform = torch.rand(1, len(lower), generator=generator, dtype=torch.float64, device="cpu").to(lower)
        return domain.in_context(lower + (upper - lower) * uniform)


def _incumbent(model: Model, domain: Domain) -> Tensor:
    """Return what is to be improved on, 0-dim: the largest posterior mean at an observation, 0 if there are none.

    Where there are contexts an observation is of another context than this one. Then it is the largest posterior mean
    of the actions.
    """
    X = cast(tuple[Tensor], model.train_inputs)[0]
    if domain.incumbent is not None:
        X = domain.incumbent
    elif domain.arms is not None and domain.context is not None:
        X = domain.arms if domain.allowed is None else domain.arms[domain.allowed]
    elif domain.context is not None and len(X):
        X = None
    if X is None:
        raise InputError(
            "Improvement on a box of actions beside a context is over the best mean in that context: "
            "Domain.incumbent is missing. Search for the point (1, d) of the largest posterior mean and give that."
        )
    if len(X) == 0:
        return X.new_zeros(())
    with torch.no_grad():
        return cast(GPyTorchPosterior, model.posterior(X.unsqueeze(-2))).mean.max()


def _with_pending(model: Model, X_pending: Tensor | None) -> Model:
    if X_pending is None or len(X_pending) == 0:
        return model
    with torch.no_grad():
        return hallucinate(model, X_pending)
