"""Draws from a posterior: a draw of the prior, corrected by what was told (Matheron's rule)."""

from dataclasses import dataclass
from typing import Any, cast

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
#: Arms and the points told; the distinct ones and which each is; what draws the prior at these.
ArmPrior = tuple[Tensor, tuple[Tensor, Tensor], PriorDraws | None]


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
        followers = cast(Arms, posterior.arms)
        features = followers.table.features
        if source.tensor is None:
            prior, c = self.function(seed)
            values = torch.cat([prior.at(block) for _, block in source.blocks()])
            return values + torch.as_tensor(features.product(c)), None
        together = torch.cat([source.tensor, posterior.told.points.to(source.tensor)])
        if known is None or not torch.equal(known[0], together):
            known = together, distinct(together), None if known is None else known[2]
        _, (points, rows), prior = known
        if prior is None or prior.is_for_first or not torch.equal(prior.points, points):
            prior = PriorDraws(followers.kernel, points, rows[number + torch.from_numpy(posterior.basis)].unique())
        values, others, arms = prior.draw(generator), rows[number:].cpu().numpy(), rows[:number]
        c = posterior.draw_correction(lambda at: values[others[at]].double().cpu().numpy(), generator, self.order)
        drawn = values[arms] + torch.as_tensor(features.product(c))
        order = torch.arange(number, device=arms.device)
        first = order.new_full(values.shape, number).scatter_reduce(0, arms, order, "amin")
        return drawn[first[arms]], (together, (points, rows), prior)
