"""How the next trial is found: by Ax's optimisers, or among candidates."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from ax.core.search_space import SearchSpaceDigest
from ax.generators.torch.botorch_modular.acquisition import Acquisition, determine_optimizer
from ax.generators.torch.botorch_modular.surrogate import Surrogate
from ax.generators.torch_base import TorchOptConfig
from ax.generators.utils import mk_discrete_choices
from botorch.acquisition import AcquisitionFunction
from botorch.optim import optimize_acqf_discrete
from torch import Tensor

from torch_kbandits.integrations.ax.fitting import own_least_noise

#: Candidates that are scored at a time.
_BLOCK = 8192

#: BoTorch's optimisers that never return a point twice unless told that they may.
_AVOIDING = ("optimize_acqf_discrete", "optimize_acqf_discrete_local_search")


class KernelBanditAcquisition(Acquisition):
    """Ax's acquisition, with three differences.

    Pending trials count whatever parameters are fixed, since what is pending in one context tells of those like it. A
    parameterization may be tried again. The search is over ``options["candidate_set"]`` (N, d) if there is one.
    """

    def __init__(
        self,
        surrogate: Surrogate,
        search_space_digest: SearchSpaceDigest,
        torch_opt_config: TorchOptConfig,
        botorch_acqf_class: type[AcquisitionFunction] | None,
        botorch_acqf_options: dict[str, Any] | None = None,
        botorch_acqf_classes_with_options: list[tuple[type[AcquisitionFunction], dict[str, Any]]] | None = None,
        n: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        objective = int(torch_opt_config.objective_weights.nonzero()[0, -1])
        pending = torch_opt_config.pending_observations
        self._all_pending = pending[objective] if pending and len(pending[objective]) else None
        super().__init__(
            surrogate=surrogate,
            search_space_digest=search_space_digest,
            torch_opt_config=torch_opt_config,
            botorch_acqf_class=botorch_acqf_class,
            botorch_acqf_options=botorch_acqf_options,
            botorch_acqf_classes_with_options=botorch_acqf_classes_with_options,
            n=n,
            options=options,
        )

    def _instantiate_acquisition(self) -> None:
        self.X_pending = self._all_pending
        with own_least_noise():  # pending trials are conditioned on here
            super()._instantiate_acquisition()

    def optimize(
        self,
        n: int,
        search_space_digest: SearchSpaceDigest,
        inequality_constraints: list[tuple[Tensor, Tensor, float]] | None = None,
        equality_constraints: list[tuple[Tensor, Tensor, float]] | None = None,
        fixed_features: dict[int, float] | None = None,
        rounding_func: Callable[[Tensor], Tensor] | None = None,
        optimizer_options: Mapping[str, Any] | None = None,
        candidate_set: Tensor | None = None,
        sampling_strategy: Any = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return n points (n, d), their scores and their weights; the arguments are those of the base class."""
        candidates = self.options.get("candidate_set")
        if candidates is not None:
            X, scores = optimize_acqf_discrete(
                self.acqf, q=n, choices=candidates.to(self.device), max_batch_size=_BLOCK, unique=False
            )
            return X, scores, torch.ones(n, dtype=self.dtype)
        options = dict(optimizer_options or {})
        choices = mk_discrete_choices(ssd=search_space_digest, fixed_features=fixed_features)
        if determine_optimizer(search_space_digest, self.acqf, choices) in _AVOIDING:
            options.setdefault("unique", False)
        return super().optimize(
            n=n,
            search_space_digest=search_space_digest,
            inequality_constraints=inequality_constraints,
            equality_constraints=equality_constraints,
            fixed_features=fixed_features,
            rounding_func=rounding_func,
            optimizer_options=options,
            candidate_set=candidate_set,
            sampling_strategy=sampling_strategy,
        )
