"""What the theorem behind a bandit's width says, and warnings where it does not hold or rewards are not as assumed."""

import math
import warnings
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from torch_kbandits.bandit.config import BanditConfig
from torch_kbandits.bandit.state import State
from torch_kbandits.candidates import ArmSource
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.confidence import ConstantWidth, Guarantee, Width
from torch_kbandits.confidence.guarantee import Circumstances, precise
from torch_kbandits.errors import KernelBanditWarning, TheoryWarning
from torch_kbandits.numerics.gram import prior_variance
from torch_kbandits.observations.history import History

#: In single precision a regularization below this fraction of the prior variance drowns in rounding.
_FLOAT32_REGULARIZATION = 1e-4
#: So many rewards say whether a prior mean is far off: by more standard deviations than ``_FAR`` all of them.
FIRST_REWARDS, _FAR = 3, 10.0


def guarantee(config: BanditConfig, regularization: float, *, was_restarted: bool = False, **known: Any) -> Guarantee:
    """Return what the width's theorem says, and which of its assumptions hold, given the rest of ``Circumstances``."""
    arms, batches = untimed(config.candidates), config.batches
    source: ArmSource | None = getattr(arms, "source", None)
    forgetting = ["a restart"] * was_restarted + [repr(config.trigger)] * (config.trigger is not None)
    forgetting += [repr(memory) for memory in config.all_memories if memory.forgets]
    circumstances = Circumstances(
        **{"ratio": 1.0 if batches is None else batches.largest_ratio, **known},
        regularization=regularization,
        noise_scale=config.noise_scale,
        dictionary=config.dictionary,
        forgets_by=" and ".join(dict.fromkeys(forgetting)) or None,
        prior="fitted" if config.learns_units else "given" if config.family is None else "one of several",
        num_arms=math.inf if not arms.is_finite else None if source is None else len(source),
        is_staged=config.acquisition.num_stages > 0,
        theory=config.theory if isinstance(config.width, ConstantWidth) else None,
    )
    of_width = cast(Width, config.width).guarantee(circumstances)
    if config.learns_units:
        return of_width
    example, level = config.candidates.example, config.start.regularization
    is_precise, said = True, f"{example.dtype} is enough for regularization={level:g}."
    if example.dtype != torch.float64:
        with torch.no_grad():
            scale = float(prior_variance(deepcopy(config.start.kernel).to(example), example).max())
        if level < _FLOAT32_REGULARIZATION * scale:
            is_precise, said = False, f"regularization={level:g} drowns in rounding of {example.dtype}: use float64."
    return replace(of_width, assumptions=(*of_width.assumptions, *precise(is_precise, said)))


def warn_of_failing(config: BanditConfig, stacklevel: int) -> None:
    """Say which assumptions of the theorem the settings break, if any, as many calls above."""
    if (said := guarantee(config, config.start.regularization).warning) is not None:
        warnings.warn(said, TheoryWarning, stacklevel=stacklevel + 1)


def warn_of_far_rewards(config: BanditConfig, told: History, kernel_bound: Tensor, stacklevel: int) -> None:
    """Say that the first rewards are all far above or below what was expected, if so, as many calls above."""
    told = told.rewarded
    if config.learns_units or not len(told.Y):
        return
    with torch.no_grad():
        expected = config.spec.expected(told.X)
    least, largest = (told.Y - expected).aminmax()
    scale = (float(kernel_bound) + config.start.regularization) ** 0.5
    if max(float(least), -float(largest)) > _FAR * scale:
        said = (
            f"The first {len(told.Y)} rewards are around {float(told.Y.mean()):.4g}, and "
            f"{float(expected.mean()):.4g} ± {scale:.3g} was expected: points not tried look far worse or better "
            "than any other. Give mean=, what is expected of rewards, or subtract it and scale them."
        )
        warnings.warn(said, KernelBanditWarning, stacklevel=stacklevel + 1)


def warn_of_clipping(before: State, after: State, stacklevel: int) -> bool:
    """Say, so many calls above, that rewards count as if they were higher if they do now; return whether they do."""
    floor, was_fitted = after.spec.prior.floor, after.last_fit is not before.last_fit
    Y = after.ledger.history_since(0 if was_fitted else before.ledger.num_observations).Y
    if not len(below := Y[floor > Y]):
        return False
    said = (
        f"{len(below)} reward(s) lie far below the others, down to {float(below.min()):.6g}, and count as {floor:.6g}, "
        "so that the others can be told apart, as is right for penalties. Of losses whose mean matters say clip=False."
    )
    warnings.warn(said, KernelBanditWarning, stacklevel=stacklevel + 1)
    return True
