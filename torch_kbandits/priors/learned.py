"""A prior that nobody knows: kernel, noise, mean and units are fitted to the rewards that count."""

import math
import warnings
from collections.abc import Sequence, Sized
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError, KernelBanditWarning
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.gram import check_kernel
from torch_kbandits.observations.history import rewards
from torch_kbandits.priors.evidence import fit_evidence
from torch_kbandits.priors.marginal import TrainingData
from torch_kbandits.priors.prior import Prior, PriorMean, own_mean
from torch_kbandits.priors.units import FIRST_NOISE, Units, column_spans, default_kernel, floor_below

#: The prior is fitted again at a tenth more rewards while at most so many count, then at a quarter; in contexts and
#: under a memory, where rounds are many, a quarter at once. On three boxes and two tables, two or three seeds each, the
#: mean reward of 60 rounds was higher on all five than with a quarter at once.
_SHARES, _FEW = (0.1, 0.25), 100

#: The deviation of log λ under its prior where rewards may be all noise, as clicks are, or have none, as labels; and
#: where a memory is learned: under 1 noise alone is taken for change, in 24 of 24 series, under 3 in none of them.
_UNKNOWN_SPREAD = 3.0


class LastFit(NamedTuple):
    """How many rewards were learned when a prior was fitted last, 0 before the first fit, how many counted, its end."""

    number: int = 0
    counted: int = 0
    end: tuple[float, ...] = ()


NEVER = LastFit()


@dataclass(frozen=True, eq=False)
class LearnedPrior:
    """A prior that is fitted to the rewards that count, again and again as more of them come.

    What is fitted, by the largest marginal posterior: the free parameters of the kernel, the noise variance λ, the mean
    and the units of rewards, so that these change no choice. The first points are spread over the candidates. Then the
    prior is fitted whenever there are a tenth more rewards, from 100 on, in contexts and under a memory a quarter more,
    and the posterior computed anew under it. In between the algorithm plays as if the prior were known: no theorem
    covers it.

    What is given is taken in reward units and stays as it is: λ, the mean, and a kernel of which no parameter is free.
    With all three, or a mean that says where to look, no point is spread. A ``KernelBanditWarning`` says once what is
    odd about a fit of 50 rewards or more.

    Args:
        kernel: any GPyTorch kernel, whose free parameters are fitted, with the priors and constraints it has; its
            variance is in units of the variance of rewards. One without free parameters, as after
            ``requires_grad_(False)``, is in reward units squared and stays as it is. ``default_kernel`` unless given,
            each column divided by its range: of what may be played as far as that is known, else of what was told.
        regularization: λ > 0, in reward units squared, where it is known; else it is fitted.
        mean: the prior mean, as in ``Prior``, where it is known; else the mean of the rewards that count.
        learn_memory: whether the number of the bandit's memory is fitted, too: ε of ``TemporalPrior`` by the marginal
            likelihood, any other by how well rewards are predicted; the memory in force is ``bandit.memory``. While
            the evidence for a change is weak, less than 3 nats, nothing is forgotten.
        clip: whether rewards far below the others, such as a penalty for what fails, count as less far below, with a
            warning the first time; see ``floor_below``, of the first ``num_initial`` different rewards. Not under a
            memory or a trigger, since the level of rewards may change, nor under a mean that is given.
        num_initial: rewards before the first fit, at least 2. Until then points are spread, or the algorithm plays
            under units that are fitted to two rewards or more and, where it is not known, the kernel to start from.
        refit_share: the prior is fitted again once the rewards since the last fit are this share of those that counted,
            unless given a tenth of up to 100, but in contexts and under a memory, and a quarter of more; after a
            restart once there are ``num_initial`` again. Until then it stays, and no trigger restarts.
        background: whether all fits but the first are made in a thread, while rounds go on under the prior as it is,
            until a ``tell`` finds one ready. No call waits for a fit, and choices depend on how long one takes. A fit
            that fails is warned of, and the prior stays. What a kernel or mean of your own computes must allow threads.
        noise_spread: deviation of log λ under its prior, whose mode is e⁻⁵ of the variance of rewards: 1 as BoTorch has
            it, under which rewards without noise are taken for such with some; 3 where there may be none, or much.
            Unless given 3 in contexts, of rewards that all are 0 or 1, and where a memory is learned, else 1.
        initial: points asked for first, in this order, such as those that were best in past runs: rows of arms or of a
            box, (k, d), or configurations. Then points are spread until there are ``num_initial`` rewards. One that may
            not be played when its turn comes is left out. Not with contexts or actions that differ by round.

    A fit goes on from where the last one ended, but for the first after a restart.

    Cost of a fit: O(n³) for each of at most about 10,000 / n evaluations, of the first for some hundreds, n at most 400
    of the rewards, see ``fit_evidence``, and a posterior computed anew. The number of fits grows with the logarithm of
    the number of rewards; where a memory counts n at most, it is four for n rewards.
    """

    kernel: Kernel | None = None
    regularization: float | None = None
    mean: PriorMean | None = None
    learn_memory: bool = False
    clip: bool = True
    num_initial: int = 10
    refit_share: float | None = None
    background: bool = False
    noise_spread: float | None = None
    initial: Sequence[Any] | Tensor = ()

    def __post_init__(self) -> None:
        if self.kernel is not None:
            checks.instance("kernel", self.kernel, Kernel, "a GPyTorch kernel, such as RBFKernel().double()")
            object.__setattr__(self, "kernel", deepcopy(self.kernel))
        checks.keep(self, regularization=checks.optional(checks.positive), num_initial=checks.positive_integer)
        checks.keep(self, refit_share=checks.optional(checks.positive))
        checks.keep(self, learn_memory=checks.flag, clip=checks.flag, background=checks.flag)
        checks.keep(self, noise_spread=checks.optional(checks.positive))
        if self.num_initial < 2:
            raise InputError(f"num_initial must be at least 2, since a fit needs two rewards; got {self.num_initial}.")
        checks.instance("initial", self.initial, Sized, "points (k, d) or a list of configurations")
        if self.mean is not None:
            object.__setattr__(self, "mean", own_mean(self.mean))
        if self.is_known and not self.learn_memory:
            raise InputError("Nothing is left to learn: all is given. Give a Prior, or say learn_memory=True.")

    @property
    def is_known(self) -> bool:
        """Whether kernel, λ and mean are known, so that only the memory's number is learned."""
        return self._knows_kernel and self.regularization is not None and self.mean is not None

    @property
    def says_where(self) -> bool:
        """Whether it says before any reward where to look: all is known, or a mean that differs from point to point."""
        return self.is_known or not (self.mean is None or isinstance(self.mean, (float, ConstantMean)))

    @property
    def _knows_kernel(self) -> bool:
        return self.kernel is not None and not any(parameter.requires_grad for parameter in self.kernel.parameters())

    def is_due(self, number: int, last: LastFit, num_forgotten: int, *, seldom: bool = False) -> bool:
        """Say whether to fit again, once so many rewards were learned of which a restart forgot the first ones.

        If ``seldom`` also few rewards are to be a quarter more, unless a share is given.
        """
        if not last.number:
            return number >= 2
        if last.number <= num_forgotten:
            return number >= num_forgotten + self.num_initial
        share = self.refit_share or _SHARES[seldom or last.counted > _FEW]
        return number >= last.number + share * last.counted

    def started(
        self, spans: Tensor, groups: Sequence[int] | None, context_dim: int = 0, units: Units | None = None
    ) -> Prior:
        """Return the prior before any fit, in units of rewards or as if their deviation were 1; see ``fitted``."""
        units = Units(spans=spans if self.kernel is None else None) if units is None else units
        kernel, noise = self._given(units, len(spans), groups, context_dim)
        return self._of_rewards(units, kernel, FIRST_NOISE if noise is None else noise, self.mean)

    def fitted(
        self,
        data: TrainingData,
        spans: Tensor,
        *,
        first: Tensor,
        expected: Tensor | None = None,
        memory: Memory | None = None,
        groups: Sequence[int] | None = None,
        context_dim: int = 0,
        seed: int,
        start: Sequence[float] = (),
        units_only: bool = False,
    ) -> tuple[Prior, Memory | None, tuple[str, ...], tuple[float, ...]]:
        """Fit to two rewards or more that count, or with ``units_only`` only bring what is given to their units.

        The data are as they were told. Columns without the time are divided by ``spans`` (d,) unless a kernel is given.
        Penalties are known by the ``first`` different rewards since a restart, (f,); none where their level may change.
        ``expected`` is a prior mean that is given, at the points, (n,); None where it is fitted. Returned are the prior
        in units of rewards, the memory as given or with its number fitted, what is odd about the fit, and its end, from
        which the next one may ``start``.
        """
        X, Y, floor = data.X.double(), data.Y.double(), -math.inf
        if expected is not None:
            Y = Y - expected.double()
        elif self.clip:
            floor = floor_below(first.double(), float(Y.min()))
        divided_by = spans if self.kernel is None else None  # a kernel that is given sees points as they are
        middles = X[:, X.shape[1] - len(spans) :].mean(0) if context_dim else 0.0  # under which there is a linear trend
        units = Units.of(Y, centered=expected is not None, floor=floor, spans=divided_by, middles=middles)
        if units_only:
            return self.started(spans, groups, context_dim, units), memory, (), ()
        told = None if data.noise is None else data.noise / units.scale**2
        kernel, noise = self._given(units, len(spans), groups, context_dim)
        is_binary = bool(((data.Y == 0.0) | (data.Y == 1.0)).all())
        spread = self.noise_spread or (_UNKNOWN_SPREAD if context_dim or is_binary or self.learn_memory else 1.0)
        fit = fit_evidence(
            replace(data, X=units.points(X), Y=units.rewards(Y), noise=told),
            kernel,
            regularization=noise,
            memory=None if memory is None else memory.scaled(units.scale**-2),
            learn_memory=self.learn_memory,
            # The mean of the latest rewards, which are of points chosen to be good, is no prior mean.
            learn_mean=self.mean is None and memory is not None,
            noise_spread=spread,
            seed=seed,
            start=start,
        )
        mean = units.center + units.scale * fit.mean if self.mean is None else self.mean
        if self.learn_memory and fit.memory is not None:
            memory = fit.memory.scaled(units.scale**2)
        return self._of_rewards(units, fit.kernel, fit.regularization, mean), memory, fit.diagnostics, fit.end

    def _of_rewards(self, units: Units, kernel: Kernel, noise: float, mean: PriorMean | None) -> Prior:
        """Return a prior in units of rewards, with kernel and λ as they are given, if they are, to the last digit."""
        prior = units.prior(kernel, noise, mean)
        if self._knows_kernel and self.kernel is not None:
            prior = replace(prior, kernel=self.kernel)
        return prior if self.regularization is None else replace(prior, regularization=self.regularization)

    def _given(
        self, units: Units, dimension: int, groups: Sequence[int] | None, context_dim: int
    ) -> tuple[Kernel, float | None]:
        """Return the kernel to start from and λ, if it is known, in units."""
        noise = None if self.regularization is None else self.regularization / units.scale**2
        if self.kernel is None:
            return default_kernel(dimension, groups, context_dim), noise
        return (units.kernel(self.kernel) if self._knows_kernel else self.kernel), noise


def fit_prior(X: Any, Y: Any, kernel: Kernel | None = None, *, clip: bool = True, seed: int = 0) -> Prior:
    """Fit kernel, noise and mean to rewards, as ``LearnedPrior`` does; a ``Bandit`` takes the result as ``prior``.

    Args:
        X: points (n, d), n >= 2: a tensor, a list, an array or a data frame.
        Y: rewards (n,), as in ``Bandit.tell``.
        kernel: as in ``LearnedPrior``, like ``clip``.
        clip: whether rewards far below the others count as less far below, see ``floor_below``.
        seed: of the points from which the fit starts.

    A ``KernelBanditWarning`` says what is odd: a column whose length scale is too short or that explains nothing, no
    noise, a kernel that explains nothing; or that no fit succeeded, and all is as the kernel came.
    """
    X = checks.points("X", X)
    if X.dim() != 2 or len(X) < 2:
        raise InputError(f"X must be (n, d) with n >= 2, got {checks.describe(X)}.")
    Y, learned = rewards(Y, X.double()), LearnedPrior(kernel, clip=clip)
    if kernel is not None:
        check_kernel(kernel, X[:1].double())
    seed = checks.whole_number("seed", seed)
    prior, _, diagnostics, _ = learned.fitted(TrainingData(X, Y), column_spans(X), first=Y, seed=seed)
    for diagnostic in diagnostics:
        warnings.warn(diagnostic, KernelBanditWarning, stacklevel=2)
    return prior


def given_prior(prior: Prior | LearnedPrior) -> Prior:
    """Return a prior, or refuse one that is to be learned."""
    if isinstance(prior, LearnedPrior):
        raise InputError("A family has hypotheses that are given: give a Prior or a kernel, or leave out the family.")
    return prior


def prior_of(
    prior: Prior | LearnedPrior | None, kernel: Kernel | None, regularization: float | None, mean: PriorMean | None
) -> Prior | LearnedPrior:
    """Return the prior that is given, as one word or as its parts; refuse both, or a part that is missing."""
    parts = {"kernel": kernel, "regularization": regularization, "mean": mean}
    if prior is not None:
        checks.instance("prior", prior, (Prior, LearnedPrior), "a Prior or a LearnedPrior")
        if twice := [name for name, part in parts.items() if part is not None]:
            raise InputError(f"Give either prior or {' and '.join(twice)}: a {type(prior).__name__} has them.")
        return prior
    if missing := [name for name in ("kernel", "regularization") if parts[name] is None]:
        names = " and ".join(missing)
        raise InputError(f"{names} must be given, or prior=LearnedPrior(), which fits both to the rewards.")
    return Prior(kernel, regularization, 0.0 if mean is None else mean)  # pyright: ignore[reportArgumentType]
