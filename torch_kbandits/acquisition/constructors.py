"""The public acquisition functions, known to BoTorch's generic construction, whose import bandits need not wait for."""

from collections.abc import Callable, Sequence
from typing import Any

from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from torch_kbandits.acquisition.kernel_ucb import KernelUCB
from torch_kbandits.acquisition.thompson import DiscretizedThompsonSampling
from torch_kbandits.confidence import Width
from torch_kbandits.confidence.base import Mode
from torch_kbandits.errors import InputError


@acqf_input_constructor(KernelUCB)
def construct_inputs_kernel_ucb(
    model: Model,
    beta: float | Tensor | Width | None = None,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    maximize: bool = True,
    constraints: Sequence[Callable[[Tensor], Tensor]] | None = None,
    constraint_mode: Mode = "safe",
    constraint_beta: float | Width | None = None,
) -> dict[str, Any]:
    """Return the arguments of ``KernelUCB``; Ax minimises by the transform, and makes constraints of its own."""
    if beta is None:
        raise InputError('KernelUCB needs beta, and none is right for all; in Ax botorch_acqf_options={"beta": 2.0}.')
    return dict(locals())


@acqf_input_constructor(DiscretizedThompsonSampling)
def construct_inputs_thompson(
    model: Model,
    discretization: Tensor | None = None,
    beta: float | Tensor | Width = 1.0,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """Return the arguments of ``DiscretizedThompsonSampling``; Ax minimises by the transform."""
    if discretization is None:
        raise InputError(
            'DiscretizedThompsonSampling needs discretization; in Ax botorch_acqf_options={"discretization": points}.'
        )
    return dict(locals())
