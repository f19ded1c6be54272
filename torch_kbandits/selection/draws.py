"""Draws from a posterior: a draw of the prior, corrected by what was told (Matheron's rule)."""

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.candidates import ArmSource
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.prior_draws import PriorDraws, RandomFourierFeatures, spectrum_of
from torch_kbandits.numerics.rows import distinct
from torch_kbandits.posteriors.observations import Places
from torch_kbandits.posteriors.posterior import Arms, Posterior

Array = NDArray[Any]


def drawn_function(kernel: Kernel, dimension: int, generator: torch.Generator) -> RandomFourierFeatures:
    """Return a draw of the prior that is a function of the point (d,) alone.

    Raises:
        InputError: if the kernel has no random Fourier features.
    """
    spectrum = spectrum_of(kernel, dimension)
    if spectrum is None:
        while type(kernel) is ScaleKernel:
            kernel = kernel.base_kernel
        raise InputError(
            "Thompson sampling on arms in files, blocks or shards draws a sum of random waves, one function of all "
            f"points. There are no random Fourier features of {type(kernel).__name__}. Take RBFKernel or MaternKernel, "
            "scaled or not; or give Arms a tensor; or take UpperConfidenceRule, ExpectedImprovementRule or "
            "ProbabilityOfImprovementRule."
        )
    return RandomFourierFeatures.drawn(spectrum, generator)


class ArmPrior(NamedTuple):
    """What draws the prior at A arms and at the points that were told, which is the same while these are."""

    together: Tensor  # the arms, then the points, (A + u, d)
    rows: Tensor  # which of the distinct ones each is, (A + u,)
    first: Tensor  # the first arm that is equal to each, (A,)
    draws: PriorDraws


@dataclass(frozen=True, eq=False)
class PosteriorDraws:
    """Draws of f − mean. Source: Matheron's rule, Wilson et al., ICML 2020."""

    posterior: Posterior  # of f
    order: Places  # of the points that count, in the order in which they were first played
    kernel: Kernel  # the prior covariance, in the dtype of the points

    def function(self, seed: int) -> tuple[RandomFourierFeatures, Array]:
        """Return a draw of the prior as a function, and weights of the coordinates, (m,), that make it one of f − mean.

        Raises:
            InputError: if the kernel has no random Fourier features.
        """
        told, generator = self.posterior.told, torch.Generator().manual_seed(seed)
        prior = drawn_function(self.kernel, told.points.shape[-1], generator)
        values = self.posterior.draw_correction(lambda at: prior.at(told.points_at(at)).numpy(), generator, self.order)
        return prior, values

    def at_arms(self, source: ArmSource, seed: int, known: ArmPrior | None) -> tuple[Tensor, ArmPrior | None]:
        """Return a joint draw at the arms, (A,), equal at equal arms, and what drew the prior, if that serves again.

        What drew it last may be known. Raises as ``function`` does if the arms are not all in memory.
        """
        posterior, generator, number = self.posterior, torch.Generator().manual_seed(seed), len(source)
        features = cast(Arms, posterior.arms).table.features
        if source.tensor is None:
            prior, c = self.function(seed)
            values = torch.cat([prior.at(block) for _, block in source.blocks()])
            return values + torch.as_tensor(features.product(c)), None
        together = torch.cat([source.tensor, posterior.told.points.to(source.tensor)])
        if known is None or known.draws.is_for_first or not torch.equal(known.together, together):
            known = self._prior_at(together, number, known)
        values, others, arms = known.draws.draw(generator), known.rows[number:].cpu().numpy(), known.rows[:number]
        c = posterior.draw_correction(lambda at: values[others[at]].double().cpu().numpy(), generator, self.order)
        return (values[arms] + torch.as_tensor(features.product(c)))[known.first], known

    def _prior_at(self, together: Tensor, number: int, known: ArmPrior | None) -> ArmPrior:
        """Return what draws the prior at so many arms and the points after them, with the factor that is known."""
        points, rows = distinct(together)
        draws = None if known is None or known.draws.is_for_first else known.draws
        if draws is None or not torch.equal(draws.points, points):
            first = rows[number + torch.from_numpy(self.posterior.basis)].unique()
            draws = PriorDraws(cast(Arms, self.posterior.arms).kernel, points, first)
        order = torch.arange(number, device=rows.device)
        first = order.new_full((len(points),), number).scatter_reduce(0, rows[:number], order, "amin")
        return ArmPrior(together, rows, first[rows[:number]], draws)
