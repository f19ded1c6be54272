import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.random import generator_for


class FiniteArms:
    """Arms with known means and Gaussian noise; regret is measured against the means.

    The noise of a round has an address, (seed, round), so it does not depend on what is played or measured.

    Args:
        arms: (A, d).
        means: expected rewards (A,), in reward units.
        noise_scale: standard deviation of the noise, at least 0.
        seed: addresses the noise.
    """

    def __init__(self, arms: Tensor, means: Tensor, noise_scale: float, seed: int) -> None:
        self.arms = checks.points("arms", arms)
        self.means = checks.finite("means", checks.same_kind("means", checks.floating_tensor("means", means), arms))
        if arms.dim() != 2 or len(arms) == 0 or means.shape != arms.shape[:1]:
            raise InputError(
                "arms must be (A, d) with A >= 1 and means (A,); "
                f"got {checks.describe(arms)} and {checks.describe(means)}."
            )
        self.noise_scale = checks.non_negative("noise_scale", noise_scale)
        self.seed = seed

    @property
    def best_mean(self) -> Tensor:
        """The largest expected reward, 0-dim."""
        return self.means.max()

    def mean(self, X: Tensor) -> Tensor:
        """Return the expected rewards (q,) of arms X (q, d).

        Raises:
            InputError: if a row is no arm.
        """
        matches = (X.unsqueeze(1) == self.arms).all(-1)
        if not bool(matches.any(1).all()):
            raise InputError(f"Row(s) {(~matches.any(1)).nonzero().flatten().tolist()} of X are no arms.")
        return self.means[matches.to(torch.uint8).argmax(1)]

    def pull(self, X: Tensor, round: int) -> Tensor:
        """Return noisy rewards (q,) of arms X (q, d) in a round."""
        noise = torch.randn(len(X), generator=generator_for(self.seed, round, "noise"), dtype=torch.float64)
        return self.mean(X) + self.noise_scale * noise.to(self.means)

    def regret(self, X: Tensor) -> Tensor:
        """Return the pseudo-regrets (q,) >= 0 of arms X (q, d): from means, without randomness."""
        return self.best_mean - self.mean(X)


def gaussian_bumps(
    num_arms: int,
    dimension: int,
    *,
    num_bumps: int = 30,
    lengthscale: float = 0.5,
    noise_scale: float = 0.1,
    seed: int,
    dtype: torch.dtype = torch.float64,
) -> FiniteArms:
    """Return arms uniform in [0, 1]^d whose means are a sum of Gaussian bumps, scaled to [0, 1].

    Args:
        num_arms: A.
        dimension: d.
        num_bumps: how many, with normal heights and uniform centres.
        lengthscale: of every bump, exp(−‖x − c‖² / (2 lengthscale²)).
        noise_scale: standard deviation of the noise.
        seed: addresses arms, bumps and noise.
        dtype: of the arms and the means.
    """
    if checks.positive_integer("num_arms", num_arms) < 2:
        raise InputError("num_arms must be at least 2: the means of one arm cannot be scaled to [0, 1].")
    generator = generator_for(seed, 0, "gaussian bumps")
    arms = torch.rand(num_arms, dimension, generator=generator, dtype=torch.float64)
    centres = torch.rand(num_bumps, dimension, generator=generator, dtype=torch.float64)
    heights = torch.randn(num_bumps, generator=generator, dtype=torch.float64)
    means = torch.exp(-torch.cdist(arms, centres).square() / (2.0 * lengthscale**2)) @ heights
    means = (means - means.min()) / (means.max() - means.min())
    return FiniteArms(arms.to(dtype), means.to(dtype), noise_scale, seed)
