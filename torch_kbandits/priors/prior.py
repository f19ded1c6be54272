"""What is assumed of rewards before any is told: kernel, noise and mean."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean, Mean
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.candidates import Arms, Candidates
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.gram import prior_mean
from torch_kbandits.numerics.rows import row_keys

#: A number, a value for each arm (A,), a GPyTorch mean, or a function of points (n, d), and of ``time`` (n,) if it has
#: a parameter of that name, that returns (n,).
PriorMean = float | Tensor | Mean | Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Prior:
    """A Gaussian process as it is taken to be before any reward is told, in the units of rewards.

    Args:
        kernel: the prior covariance of the function, any GPyTorch kernel, in reward units squared; a copy is kept.
        regularization: λ > 0, the variance of the noise, in reward units squared.
        mean: the prior mean, in reward units: a number, a value for each arm (A,), a GPyTorch mean, or a function of
            points (n, d), with contexts of (context, action), that returns (n,); see ``PriorMean``.
        floor: in reward units: a reward below counts as if it were this one, so that penalties do not outweigh all
            else; see ``floor_below``. Minus infinity where all count as they are.
    """

    kernel: Kernel
    regularization: float
    mean: PriorMean = 0.0
    floor: float = -math.inf

    def __post_init__(self) -> None:
        checks.instance("kernel", self.kernel, Kernel, "a GPyTorch kernel")
        checks.keep(self, regularization=checks.positive)
        if not (isinstance(self.floor, float) and self.floor == -math.inf):
            checks.keep(self, floor=checks.finite_number)
        object.__setattr__(self, "mean", own_mean(self.mean))
        object.__setattr__(self, "kernel", deepcopy(self.kernel))

    @classmethod
    def from_runs(cls, runs: Sequence[Any], kernel: Kernel | None = None, *, seed: int = 0) -> "Prior":
        """Return the prior that past runs of like tasks say: transfer learning, a warm start.

        Kernel and λ are shared and fitted by the sum of the marginal likelihoods, each run with a level of its own. The
        mean is what runs have in common, a posterior mean, if each is better predicted by the others with it than
        without; then kernel and λ are of what the others leave. The prior variance contains that of levels. λ is of
        rewards of which no noise was told.

        Args:
            runs: bandits, their histories, without a column of time, or pairs (X, Y), n >= 2 rewards each.
            kernel: as in ``LearnedPrior``.
            seed: of the points from which the fit starts.

        Source: Swersky, Snoek and Adams, NeurIPS 2013, multi-task Bayesian optimisation. Differs: one function is
        shared, as far as it predicts a run left out. Cost: O(R u³) for some hundred evaluations, R runs of u distinct
        points, of which at most 400 and 2,000 in all are used.
        """
        from torch_kbandits.priors.runs import priors_of

        return priors_of(runs, kernel, seed)[0]


class FunctionMean(Mean):
    """A function of points (n, d) of a dtype that returns (n,), as a GPyTorch mean.

    Where the points are ``timed`` their first column is the time, which the function is given only if it takes it.
    """

    def __init__(self, function: Callable[..., Any], dtype: torch.dtype, *, timed: bool) -> None:
        super().__init__()
        self.function, self._dtype, self._timed = function, dtype, timed
        self._depends_on_time = timed and depends_on_time(function)

    def forward(self, x: Tensor) -> Tensor:
        """Return the means at points (..., n, d), with a time (..., n, 1 + d), (..., n); refuse what is none."""
        points = x.reshape(-1, x.shape[-1])
        words = {"time": points[:, 0]} if self._depends_on_time else {}
        values = torch.as_tensor(self.function(points[:, int(self._timed) :].to(self._dtype), **words)).to(x)
        if values.shape not in ((len(points),), (len(points), 1)) or not checks.all_finite(values):
            hint = f"a finite number for each of {len(points)} points (n, d), a tensor (n,)"
            raise InputError(f"mean must return {hint}, got {checks.describe(values)}.")
        return values.reshape(x.shape[:-1])


def tabulated_mean(points: Tensor, values: Tensor) -> Callable[[Tensor], Tensor]:
    """Return values (A,) for each of some points (A, d) as a function of points, which refuses others."""
    keys = row_keys(points)
    places = {key: place for place, key in enumerate(keys)}
    for row in (values != values[[places[key] for key in keys]]).nonzero().flatten().tolist():
        raise InputError(f"mean must be the same at equal arms: those equal to arm {row} have other values.")
    return partial(_looked_up, places, values)


def _looked_up(places: Mapping[bytes, int], values: Tensor, X: Tensor) -> Tensor:
    found = [places.get(key) for key in row_keys(X)]
    if None in found:
        point = X[found.index(None)].tolist()
        raise InputError(f"mean has no value for {point}: give it as a function of points.")
    return values[cast(list[int], found)]


def depends_on_time(mean: PriorMean | None) -> bool:
    """Say whether a prior mean is a function with a parameter that is called ``time``."""
    if not callable(mean) or isinstance(mean, Mean):
        return False
    try:
        return "time" in inspect.signature(mean).parameters
    except ValueError:  # some that are built in do not say
        return False


def own_mean(mean: PriorMean) -> PriorMean:
    """Return a prior mean that nobody else changes, or refuse what is none."""
    if isinstance(mean, Mean):
        return deepcopy(mean)
    if callable(mean):
        return mean
    if isinstance(mean, (list, tuple)) or getattr(mean, "ndim", 0):
        return checks.finite("mean", torch.as_tensor(checks.real_numbers("mean", mean)).to(torch.float64, copy=True))
    return checks.finite_number("mean", mean) or 0.0


def mean_over(candidates: Candidates, mean: PriorMean) -> Mean:
    """Return a prior mean, as ``own_mean`` returns it, as a GPyTorch mean of the points of candidates.

    Where these know the time the mean depends on it only if it says so. One of another size, or that is not finite at
    an example, is refused.
    """
    kind, example = untimed(candidates), candidates.example
    function = mean
    if isinstance(mean, Tensor):
        arms = kind.source.tensor if isinstance(kind, Arms) else None
        if arms is None or mean.shape != arms.shape[:1]:
            hint = "give a number, a function of points (n, d) or a GPyTorch mean"
            raise InputError(f"mean={checks.describe(mean)} needs as many arms in memory: {hint}.")
        function = tabulated_mean(arms, mean)
    elif not callable(mean):
        function = ConstantMean().double()  # before it is set, since GPyTorch rounds a float to single precision
        function.initialize(constant=torch.tensor(mean, dtype=torch.float64))
    if isinstance(function, Mean) and kind is candidates:
        module = function
    else:
        dtype = example.dtype if isinstance(function, Mean) else kind.example.dtype
        module = FunctionMean(cast(Callable[..., Any], function), dtype, timed=kind is not candidates)
    module = module.to(example).requires_grad_(False).eval()
    try:
        with torch.no_grad():
            values = prior_mean(module, example)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"mean cannot be evaluated at points of {example.shape[-1]} columns: {error!r}") from error
    if values.shape != example.shape[:-1] or not checks.all_finite(values):
        raise InputError(f"mean must give a finite number for each point (n, d), got {checks.describe(values)}.")
    return module
