"""The public acquisition functions, known to BoTorch's generic construction, whose import bandits need not wait for."""

from inspect import Parameter, signature
from typing import Any

from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import acqf_input_constructor

from torch_kbandits.acquisition.analytic import KernelUCB
from torch_kbandits.acquisition.thompson import DiscretizedThompsonSampling
from torch_kbandits.errors import InputError


def _known(kind: type[AcquisitionFunction], needed: str, example: str) -> None:
    """Let BoTorch, and Ax, make a function by its own words, of which one is needed; Ax minimises by the transform."""

    def construct(constraints: Any = None, **words: Any) -> dict[str, Any]:
        if words.get(needed) is None:
            hint = f'in Ax botorch_acqf_options={{"{needed}": {example}}}'
            raise InputError(f"{kind.__name__} needs {needed}, and none is right for all; {hint}.")
        if constraints:
            raise InputError(f"{kind.__name__} keeps no constraints: give them to optimize_acqf, or to a bandit.")
        return words

    own = signature(kind)
    accepted = [*own.parameters.values(), Parameter("constraints", Parameter.KEYWORD_ONLY, default=None)]
    construct.__signature__ = own.replace(parameters=accepted)  # pyright: ignore[reportFunctionMemberAccess]
    acqf_input_constructor(kind)(construct)


_known(KernelUCB, "beta", "2.0")
_known(DiscretizedThompsonSampling, "discretization", "points")
