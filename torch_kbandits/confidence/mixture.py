"""The tightest width for functions of bounded RKHS norm at exact posteriors, by a mixture of martingales."""

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.confidence import guarantee as needs
from torch_kbandits.confidence.base import Evidence, InformationGain, SubGaussian, TheoremWidth
from torch_kbandits.confidence.gain import REALIZED
from torch_kbandits.confidence.guarantee import EXACT, SUBGAUSSIAN
from torch_kbandits.errors import InputError


@dataclass(frozen=True)
class MartingaleMixtureWidth(SubGaussian, TheoremWidth):
    """The width of AMM-UCB, and with a ``mixture`` that of DMM-UCB at one regularization, at any λ > 0 fixed before.

        β_t = √(B² + (R²/λ) (2 I_t + 2 ln(1/δ)))

    The two parts add up as squares: it is never above ``SelfNormalizedWidth`` nor, at λ >= 1, ``IGPUCBWidth``. With a
    mixture c it is

        β_t = √(B² + (S_t² − D_t(λ)) / λ),  S_t² = D_t(R²/c) + 2R² (I_t(R²/c) + ln(1/δ)),

    with the data fit D_t(r) = min_g Σ (y_s − g(x_s))² + r ‖g‖² and the gain I_t(r) at regularization r. In all rounds
    Σ (y_s − f(x_s))² <= S_t², and β_t is what that and ‖f‖ <= B leave at λ. What rewards say of ‖f‖ is subtracted,
    which pays where λ is above R², c = 1, and most of f is known. At λ = R²/c the fits cancel, and both forms are one.

    Source: Flynn and Reeb, "Tighter confidence bounds for sequential kernel regression", 2024. Differs: DMM-UCB takes
    the least bound over a grid of regularizations, each with a posterior of its own; the proof is ours, on the page on
    phased elimination, as the text could not be had; observations of more noise than λ count for less, as in it.

    Cost: O(1); with a mixture O(u³) for u distinct points played.
    """

    theorem = "Flynn and Reeb, 2024, AMM-UCB; with a mixture DMM-UCB"
    assumes = (*SUBGAUSSIAN, needs.enough_gain, *EXACT)

    gain: InformationGain = REALIZED
    mixture: float | None = None  #: c > 0, in units of the kernel; None for R²/λ, where no data fit is computed.

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.keep(self, mixture=checks.optional(checks.positive))

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t."""
        level, log_confidence = evidence.regularization, -math.log(self.failure_probability)
        if self.mixture is None:
            noise = 2.0 * self.noise_scale**2 * (self.gain(evidence) + log_confidence)
            return (self.norm_bound**2 + noise / level).sqrt()
        ridge_fit: Any = getattr(evidence, "ridge_fit", None)
        if ridge_fit is None:
            raise InputError("The data fit of a mixture is that of an exact posterior of arms or a box: mixture=None.")
        (fit, gain), (own, _) = ridge_fit(self.noise_scale**2 / self.mixture), ridge_fit(float(level))
        rest = fit - own + 2.0 * self.noise_scale**2 * (gain + log_confidence)
        return (self.norm_bound**2 + rest / level).clamp_min(0.0).sqrt()

    def smallest(self, regularization: float) -> float:
        """Return the width before any observation; with a mixture 0, as it may fall."""
        return super().smallest(regularization) if self.mixture is None else 0.0
