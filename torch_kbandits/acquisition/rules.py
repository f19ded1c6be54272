"""How a bandit chooses by an acquisition function: over arms, over a box, and as a BoTorch function."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Never, Protocol, Self, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import BadInitialCandidatesWarning
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn.functional import max_pool1d

from torch_kbandits import checks
from torch_kbandits.acquisition.climbing import EACH_BY_ITSELF, Rescaled
from torch_kbandits.acquisition.domain import Cube, Domain
from torch_kbandits.acquisition.thompson import DiscretizedThompsonSampling
from torch_kbandits.errors import InputError
from torch_kbandits.models import FactoredGP
from torch_kbandits.models.normal import deviation_of
from torch_kbandits.numerics.prior_draws import JOINT_LIMIT, slope_of
from torch_kbandits.numerics.random import generator_for, seed_for, seeded

#: The golden section, multiples of which, modulo 1, stay as far apart as those of any number.
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
#: Ends of searches whose values, of order 1, differ by less are as good: searches are not more exact.
_EQUAL = 1e-6

#: About how many peaks of a draw more points of the theorem's grid are evaluated, and how much more closely.
_PEAKS, _FINER = 8, 64
#: Of so many points of a grid double precision tells neighbours apart.
_FINEST = 2.0**52

#: Returns of scores (..., A) what share of the choice each arm has, (..., A) in float64 on the CPU: the highest score,
#: or all that are its equals but for rounding.
Shares = Callable[[Tensor], Tensor]
#: Of the set D_t on a box.
GridSize = int | Literal["theory"]

#: Returns the posterior means and variances at points (n, d), each (n,).
Moments = Callable[[Tensor], tuple[Tensor, Tensor]]


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
        """What is to be improved on, 0-dim: the largest mean of a point played or pending, or of arms in a context."""
        ...

    def deviation(self, seed: int) -> Tensor:
        """A draw of f − mean from the joint posterior, (A,); equal arms get equal values."""
        ...

    def covariance_root(self, rows: Tensor) -> Tensor:
        """R of some arms, (k, r) in double precision on the CPU, so that R Rᵀ is their covariance in such draws."""
        ...


@dataclass(frozen=True)
class BoxPosterior:
    """What a rule may read of the posterior over a box."""

    model_of: Callable[[], Model]  #: Makes a BoTorch model of it in double precision, without anything pending.
    pending: Tensor | None  #: Points pending, (k, d).
    kernel: Kernel  #: The prior covariance.
    moments: Moments  #: With points pending.


class SomeOf:
    """Some rows (k,) of an ``ArmPosterior`` times a factor as one, with another incumbent if one is given."""

    def __init__(
        self, posterior: ArmPosterior, rows: Tensor | slice, incumbent: Tensor | None = None, factor: Any = 1.0
    ) -> None:
        self.mean, self.variance = factor * posterior.mean[rows], factor * factor * posterior.variance[rows]
        self._posterior, self._rows, self._incumbent, self._factor = posterior, rows, incumbent, factor

    @property
    def incumbent(self) -> Tensor:
        """What is to be improved on, 0-dim."""
        return self._factor * self._posterior.incumbent if self._incumbent is None else self._incumbent

    def deviation(self, seed: int) -> Tensor:
        """Return a draw of f − mean at the rows, (k,)."""
        return self._factor * self._posterior.deviation(seed)[self._rows]

    def covariance_root(self, rows: Tensor) -> Tensor:
        """Return a root of the covariance of some of the rows; see ``ArmPosterior``."""
        known = rows if isinstance(self._rows, slice) else self._rows.cpu()[rows]
        return self._factor * self._posterior.covariance_root(known)


class AcquisitionRule(ABC):
    """Chooses the next point from a posterior. A value: it holds settings and no state.

    Draws are addressed by the seed that a rule is handed, so equal calls give equal choices.
    """

    uses_width: ClassVar[bool] = False  #: Whether a confidence width enters.
    needs_observations: ClassVar[bool] = True  #: Whether rewards guide it; before any a box is played by a Sobol set.
    num_stages: int = 0  #: In how many stages, each with a posterior of its own, it chooses; 0 where there is one.
    draws_functions: ClassVar[bool] = False  #: Whether it draws functions: waves where arms are not in memory.
    needs_incumbent: ClassVar[bool] = False  #: Whether it improves on an incumbent, and is to be ``scaled_to`` before.

    #: Whether the score of an arm depends on its own mean, variance and deviation in a draw and the incumbent alone, so
    #: that arms may be scored where nobody has all of them.
    scores_arms_apart: ClassVar[bool] = False

    #: Whether the choice is drawn, so that ``probabilities`` are its own.
    is_random: ClassVar[bool] = False

    def scaled_to(self, surrogate: Any) -> Self:
        """Return the rule with what depends on how large rewards are, by ``kernel_bound``."""
        return self

    @abstractmethod
    def on_arms(self, posterior: ArmPosterior, beta: Tensor, seed: int) -> Tensor:
        """Return the scores of the arms, (A,); the largest is played."""

    def probabilities(self, posterior: ArmPosterior, scores: Tensor, beta: Tensor, seed: int, shares: Shares) -> Tensor:
        """Return with what probability each arm is chosen, (A,), in double precision on the CPU, given what it scores.

        Of a rule that draws nothing that is 1 for the arm of the highest score; equals share it.
        """
        return shares(scores)

    @abstractmethod
    def function(
        self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int
    ) -> AcquisitionFunction:
        """Return the BoTorch acquisition function that the rule maximises, with points (k, d) pending."""

    def climbed(self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int) -> Rescaled:
        """Return what a search climbs: ``function`` less its value at a start, in prior deviations if it has a unit."""
        function = self.function(model, beta, X_pending, domain, seed)
        unit = offset = torch.ones((), dtype=torch.float64)
        if isinstance(self, OptimisticRule) and isinstance(model, FactoredGP):
            largest = model.kernel_bound()
            unit = torch.where(largest > 0.0, largest, 1.0).sqrt()
        start = domain.starts if domain.incumbent is None else domain.incumbent
        with torch.no_grad():
            value = offset if start is None else function(domain.in_context(start[:1]).unsqueeze(-2)).squeeze(0)
        return Rescaled(function, torch.where(value.isfinite(), value, 0.0), unit, lambda X: X)

    def on_box(self, posterior: BoxPosterior, beta: Tensor, domain: Domain, seed: int) -> Tensor:
        """Return the maximiser (1, d) over a box; torch's global generator is left as it was.

        It is sought in shares of the box, so that no unit of a column matters. The value found is at least that at
        ``domain.starts``, within 1e-6 prior deviations, or 1e-6 of the improvement.
        """
        model, X_pending = posterior.model_of(), posterior.pending
        before = 0 if domain.context is None else len(domain.context)
        lower, upper = box = cast(Tensor, domain.bounds)[:, before:]
        starts = None if domain.starts is None else domain.starts[:, before:].unsqueeze(-2)
        with seeded(seed % 2**31), warnings.catch_warnings():
            warnings.simplefilter("ignore", BadInitialCandidatesWarning)  # every point is as good, far from all seen
            if self.draws_functions:
                drawn = self.function(model, beta, X_pending, domain, seed)
                return cast(DiscretizedThompsonSampling, drawn).maximizers(1)
            climbed = self.climbed(model, beta, X_pending, domain, seed)
            zero, one = torch.zeros_like(lower), torch.ones_like(upper)
            ends, found = optimize_acqf(
                Rescaled(climbed, zero[0], one[0], lambda X: domain.joint(lower + X * (upper - lower))),
                torch.stack([zero, one]),
                q=1,
                num_restarts=domain.num_restarts + (0 if starts is None else len(starts)),
                raw_samples=domain.raw_samples,
                batch_initial_conditions=None if starts is None else (starts - lower) / (upper - lower),
                return_best_only=False,
                options=EACH_BY_ITSELF,
            )
            # Of ends that are as good the first: which is higher in the last digits depends on the units of rewards.
            values = cast(Tensor, found)
            first = int((values >= values.max() - _EQUAL).nonzero()[0])
        return domain.joint((lower + ends[first].detach() * (upper - lower)).clamp(*box))


class OptimisticRule(AcquisitionRule):
    """Scores a candidate by a value that the function may have there, so that several functions can be weighed.

    What ``function`` returns has the units of rewards, and an attribute ``maximize``, False where little is sought.
    """


@dataclass(frozen=True)
class ThompsonRule(OptimisticRule):
    """Maximise a draw from N(μ, β² cov): on arms over all of them, on a box over a fresh Sobol set D_t of a size.

    Each point of a batch has a draw of its own; pending points need no other treatment.

    Source: Chowdhury and Gopalan, ICML 2017, Algorithm 2. Differs: D_t is a scrambled Sobol set of fixed size, or the
    theorem's, of which, beyond 2,000 points, those are evaluated that a search of the peaks of the draw comes to.

    Args:
        discretization_size: of D_t; or "theory", on a box of one column, of width r: an even grid of ⌈B L r t²⌉ points,
            from the nearest of which a function of norm B differs by at most 1/t².
        num_draws: n, of which propensities are counted: see ``probabilities``.
        norm_bound: B, for the theorem's grid.
    """

    discretization_size: GridSize = 1024
    num_draws: int = 256
    norm_bound: float | None = None

    uses_width = True
    draws_functions = True
    scores_arms_apart = True
    is_random = True

    def __post_init__(self) -> None:
        checks.keep(self, num_draws=checks.positive_integer, norm_bound=checks.optional(checks.scale))
        if not isinstance(self.discretization_size, str):
            checks.keep(self, discretization_size=checks.positive_integer)
        elif checks.one_of("discretization_size", self.discretization_size, ["theory"]) and self.norm_bound is None:
            raise InputError('discretization_size="theory" depends on the norm of the function: give norm_bound.')

    def on_arms(self, posterior: ArmPosterior, beta: Tensor, seed: int) -> Tensor:
        """Return μ + β (f − μ) for a draw f, (A,)."""
        return posterior.mean + beta * posterior.deviation(seed)

    def probabilities(self, posterior: ArmPosterior, scores: Tensor, beta: Tensor, seed: int, shares: Shares) -> Tensor:
        """Return with what probability each arm is chosen, (A,): exactly of two, else counted.

        That is the share of n draws of which it is the best, whose standard error is √(p (1 − p) / n). The draw that
        chooses is one of them, and any might as well have been it: so given the draws the shares are the probabilities
        of the choice, without an error, and estimates that divide by them have no bias of theirs.

        Cost: O(A³ + n A²), and that of n choices for more than 2,000 arms.
        """
        counts, number = shares(scores), self.num_draws
        if len(scores) > JOINT_LIMIT:
            seeds = (seed_for(seed, each, "propensities") for each in range(1, number))
            return sum((shares(self.on_arms(posterior, beta, each)) for each in seeds), counts) / number
        mean, root = posterior.mean.cpu().double(), posterior.covariance_root(torch.arange(len(scores)))
        root = beta.cpu().double() * root
        if len(mean) == 2 and float(spread := (root[0] - root[1]).norm()) > 0.0:
            return torch.special.ndtr((mean - mean.flip(0)) / spread)
        generator = generator_for(seed, 0, "propensities")
        normals = torch.randn(root.shape[-1], number - 1, generator=generator, dtype=torch.float64, device="cpu")
        return (counts + shares((mean.unsqueeze(-1) + root @ normals).mT).sum(0)) / number

    def function(
        self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int
    ) -> DiscretizedThompsonSampling:
        """Return a ``DiscretizedThompsonSampling`` on ``discretization``, or what a search looks at of the grid."""
        if self.discretization_size == "theory" and isinstance(model, FactoredGP) and domain.bounds is not None:
            t = 1 + model.num_observations + (0 if X_pending is None else len(X_pending))
            points = self._on_grid(model, beta, domain.bounds, domain, seed, t)
        else:
            points = self.discretization(domain, seed)
        return DiscretizedThompsonSampling(model, points, beta=beta, seed=seed)

    def discretization(self, domain: Domain, seed: int) -> Tensor:
        """Return the arms (A, d), D_t on a box, or the initial points on a cube; refuse arms that are not in memory."""
        if domain.cube is not None:
            return torch.cat(domain.initial_points(seed))
        if domain.bounds is not None:
            drawn = draw_sobol_samples(domain.bounds, n=cast(int, self.discretization_size), q=1, seed=seed % 2**31)
            return domain.in_context(drawn.squeeze(-2))
        if domain.arms is None:
            raise InputError("Thompson sampling as a function needs arms in memory: call ask, which does not.")
        return domain.arms

    def _on_grid(self, model: FactoredGP, beta: Tensor, bounds: Tensor, domain: Domain, seed: int, t: int) -> Tensor:
        """Return those points of the grid of round t that a search of the maximiser of a draw evaluates."""
        lower, upper = bounds[:, -1]
        steepest = cast(float, self.norm_bound) * slope_of(model.covar_module, bounds.shape[-1])
        last = max(1, math.ceil(min(steepest * float(upper - lower) * t**2, _FINEST)) - 1)
        places = torch.linspace(0, last, min(last, JOINT_LIMIT) + 1, dtype=torch.float64).round().long()
        step, window = max(1, -(-last // JOINT_LIMIT)), torch.arange(-_FINER, _FINER + 1)
        while True:
            points = domain.joint(lower + (upper - lower) * (places.to(bounds) / last).unsqueeze(-1))
            if step == 1:
                return points
            # A value does not depend on the other points that are evaluated, as these are too many for a joint draw.
            values = DiscretizedThompsonSampling(model, points, beta=beta, seed=seed).draws(1).cpu()
            peaks = torch.where(values == max_pool1d(values, 3, 1, 1), values, -torch.inf).squeeze(0)
            step = -(-step // _FINER)
            near = places[peaks.topk(_PEAKS).indices, None] + step * window
            places = torch.cat([places, near.clamp(0, last).flatten()]).unique()


class RandomRule(AcquisitionRule):
    """Chooses whatever the posterior."""

    needs_observations = False
    is_random = True

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

    def function(self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int) -> Never:
        """Raise: no function is maximised."""
        raise InputError("No acquisition function is maximised: points are drawn, or spread until a prior is fitted.")


@dataclass(frozen=True)
class SobolRule(RandomRule):
    """Spread points evenly: no arm again before all were chosen, on a box a Sobol sequence."""

    is_random = False

    number: int  #: How many points came before.
    order: int  #: Addresses the order.

    def __post_init__(self) -> None:
        checks.keep(self, number=checks.non_negative_integer, order=checks.whole_number)

    def drawn_row(self, num_arms: int, seed: int) -> int:
        """Return a row of so many, another one for each number below that; of the first each is far from the others.

        Steps are about the golden section of all rows, not quite, so that those of a lattice differ in all columns.
        """
        generator = torch.Generator().manual_seed(self.order)
        start, step = torch.randint(2**62, (2,), generator=generator, device="cpu").tolist()
        step = int(_GOLDEN * num_arms) + step % max(1, num_arms // 300)
        while math.gcd(step, num_arms) > 1:
            step += 1
        return (start + self.number * step) % num_arms

    def of_cube(self, cube: Cube, seed: int) -> Tensor:
        """Return the playable point (1, a) next to that of this number in a Sobol sequence."""
        return cube.sample(1, torch.Generator().manual_seed(self.order), first=self.number)

    def on_box(self, posterior: BoxPosterior, beta: Tensor, domain: Domain, seed: int) -> Tensor:
        """Return the point (1, d) of this number in the sequence."""
        bounds, order = cast(Tensor, domain.bounds), self.order % 2**31
        return domain.in_context(draw_sobol_samples(bounds, n=self.number + 1, q=1, seed=order)[self.number])


@dataclass(frozen=True)
class UniformRule(RandomRule):
    """Choose uniformly at random, with replacement: the baseline of every other rule."""

    def drawn_row(self, num_arms: int, seed: int) -> int:
        """Return a row of so many, each as likely."""
        # For short ranges torch reduces 32 bits, which favours the first rows where there are hundreds of millions.
        return int(torch.randint(2**62, (), generator=torch.Generator().manual_seed(seed), device="cpu")) % num_arms

    def probabilities(self, posterior: ArmPosterior, scores: Tensor, beta: Tensor, seed: int, shares: Shares) -> Tensor:
        """Return 1 / A for each, (A,)."""
        return torch.full((len(scores),), 1.0 / len(scores), dtype=torch.float64)

    def of_cube(self, cube: Cube, seed: int) -> Tensor:
        """Return a playable point (1, a) next to a uniform one."""
        return cube.sample(1, torch.Generator().manual_seed(seed))

    def on_box(self, posterior: BoxPosterior, beta: Tensor, domain: Domain, seed: int) -> Tensor:
        """Return a uniform point (1, d)."""
        lower, upper = cast(Tensor, domain.bounds)
        generator = torch.Generator().manual_seed(seed)
        uniform = torch.rand(1, len(lower), generator=generator, dtype=torch.float64, device="cpu").to(lower)
        return domain.in_context(lower + (upper - lower) * uniform)


@dataclass(frozen=True)
class StagedRule(AcquisitionRule):
    """Look at the actions stage by stage, each conditioned on its own rounds only, until one of them decides.

    In stage s, with widths w = β σ and bounds u = μ + w of the actions left:

    - if all widths are at most 1/√T, play the action of the highest bound, and no stage learns the reward;
    - else if all are at most 2⁻ˢ, keep the actions with u >= max u − 2¹⁻ˢ and go on to stage s + 1;
    - else play the action of the largest width, and stage s learns the reward.

    So what a stage learns from was chosen by widths and by other stages, never by the rewards that it knows.

    Source: Valko et al., UAI 2013, SupKernelUCB; Auer, JMLR 2002. Differs: of the actions wider than 2⁻ˢ, any of which
    may be played, it is the widest; there are no stages that cannot be reached.
    """

    horizon: int  #: T, the planned number of rounds.

    uses_width = True

    def __post_init__(self) -> None:
        checks.keep(self, horizon=checks.positive_integer)
        # S = ⌈½ log₂ T⌉, at least 1: there 2⁻ˢ is at most 1/√T, and one of the two ways to play applies.
        object.__setattr__(self, "num_stages", max(1, ((self.horizon - 1).bit_length() + 1) // 2))

    def verdict(self, stage: int, mean: Tensor, width: Tensor) -> tuple[Tensor | None, int, Tensor]:
        """Return what a stage, from 1 to ``num_stages``, says of actions with means (A,) and widths β σ, (A,).

        That is scores, of which the highest is played, or None if the next stage decides; the stage that learns the
        reward, 0 for none; and which of the actions go on to the next stage, (A,) bool.
        """
        bounds, widest = mean + width, float(width.max())
        if widest <= self.horizon**-0.5:
            return bounds, 0, bounds == bounds.max()
        if widest <= 2.0**-stage:
            return None, 0, bounds >= bounds.max() - 2.0 ** (1 - stage)
        return width, stage, width > 2.0**-stage

    def on_arms(self, posterior: ArmPosterior, beta: Tensor, seed: int) -> Tensor:
        """Return μ + β σ, (A,), of a posterior that is that of no stage."""
        return posterior.mean + beta * deviation_of(posterior.variance)

    def function(self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int) -> Never:
        """Raise: no one function is maximised."""
        raise InputError("A choice through stages maximises no acquisition function.")
