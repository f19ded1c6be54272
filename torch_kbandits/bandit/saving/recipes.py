"""Which kernels, constraints and priors are made again, and from which words of their constructors."""

from dataclasses import dataclass
from typing import Any

import torch
from botorch.models.kernels import CategoricalKernel, InfiniteWidthBNNKernel
from botorch.utils.constraints import LogTransformedInterval, NonTransformedInterval
from gpytorch import kernels as standard
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.kernels import Kernel
from gpytorch.priors import (
    GammaPrior,
    HalfCauchyPrior,
    HalfNormalPrior,
    LogNormalPrior,
    NormalPrior,
    Prior,
    UniformPrior,
)
from gpytorch.utils.transforms import inv_sigmoid

from torch_kbandits import kernels as ours


@dataclass(frozen=True)
class Recipe:
    """How a kernel is made: which attributes its constructor takes, and which of them are kernels."""

    kind: type[Kernel]
    settings: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    is_common: bool = True


RECIPES = {
    recipe.kind.__name__: recipe
    for recipe in (
        *(
            Recipe(kind)
            for kind in (
                standard.RBFKernel,
                standard.PeriodicKernel,
                standard.RQKernel,
                standard.LinearKernel,
                standard.CosineKernel,
                CategoricalKernel,
                ours.ForgettingKernel,
            )
        ),
        Recipe(standard.MaternKernel, ("nu",)),
        Recipe(standard.PolynomialKernel, ("power",)),
        Recipe(standard.PiecewisePolynomialKernel, ("q",)),
        Recipe(standard.ConstantKernel),
        Recipe(standard.HammingIMQKernel, ("vocab_size",), is_common=False),
        Recipe(standard.SpectralMixtureKernel, ("num_mixtures",)),
        Recipe(standard.ScaleKernel, parts=("base_kernel",)),
        Recipe(standard.AdditiveKernel, parts=("kernels",), is_common=False),
        Recipe(standard.ProductKernel, parts=("kernels",), is_common=False),
        Recipe(InfiniteWidthBNNKernel, ("depth", "acos_eps")),
        Recipe(ours.WienerKernel, ("origin",)),
        Recipe(ours.PrecomputedKernel, ("covariance",)),
        Recipe(ours.GroupedKernel, ("groups",), parts=("base_kernel",)),
        Recipe(ours.PerActionLinearKernel, ("context_dim",)),
        Recipe(ours.SpaceTimeKernel, parts=("space_kernel", "time_kernel")),
    )
}

CONSTRAINTS: dict[str, tuple[type[Interval], tuple[str, ...]]] = {
    kind.__name__: (kind, words)
    for kind, words in (
        (Positive, ()),
        (GreaterThan, ("lower_bound",)),
        (LessThan, ("upper_bound",)),
        (Interval, ("lower_bound", "upper_bound")),
        (NonTransformedInterval, ("lower_bound", "upper_bound")),
        (LogTransformedInterval, ("lower_bound", "upper_bound")),
    )
}
#: Constraints that know their transform.
TRANSFORMED = (NonTransformedInterval, LogTransformedInterval)

#: Transforms that are functions, with their inverses; GPyTorch's softplus is a module and has numbers of its own.
TRANSFORMS: dict[str, tuple[Any, Any]] = {"sigmoid": (torch.sigmoid, inv_sigmoid), "exp": (torch.exp, torch.log)}

#: Names of the constructor's words, and of the attributes that hold them.
PRIORS: dict[str, tuple[type[Prior], dict[str, str]]] = {
    kind.__name__: (kind, words)
    for kind, words in (
        (GammaPrior, {"concentration": "concentration", "rate": "rate"}),
        (HalfCauchyPrior, {"scale": "scale"}),
        (HalfNormalPrior, {"scale": "scale"}),
        (LogNormalPrior, {"loc": "loc", "scale": "scale"}),
        (NormalPrior, {"loc": "loc", "scale": "scale"}),
        (UniformPrior, {"a": "low", "b": "high"}),
    )
}
