"""The point to use in the end, or in a context."""

from collections.abc import Mapping
from typing import Any

from ax.api.client import Client
from ax.core.observation import ObservationFeatures
from ax.utils.common.constants import Keys

from torch_kbandits.confidence import ConstantWidth
from torch_kbandits.errors import EmptyHistoryError, InputError
from torch_kbandits.integrations.ax.strategy import BANDIT_NODE


def recommend(client: Client, fixed_parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the parameterization of the best posterior mean; no trial is made, and later trials stay what they were.

    Unlike ``client.get_best_parameterization`` it may never have been tried, and it may be asked for in a context. It
    keeps outcome constraints by the posterior means, and surely where the strategy's are "safe"; if no point does it is
    the one least beyond them.

    Args:
        client: with a strategy of ``kernel_bandit_strategy``.
        fixed_parameters: the values of some parameters, such as a context.

    Raises:
        InputError: if the client has another strategy, or a fixed parameter is outside the search space.
        EmptyHistoryError: if no trial has an outcome.
    """
    strategy, experiment = client._maybe_generation_strategy, client._maybe_experiment
    if strategy is None or experiment is None or BANDIT_NODE not in strategy.nodes_by_name:
        raise InputError("recommend needs a client with an experiment and a strategy of kernel_bandit_strategy.")
    if experiment.lookup_data().df.empty:
        raise EmptyHistoryError("Nothing can be recommended: no trial has an outcome yet.")
    spec = strategy.nodes_by_name[BANDIT_NODE].generator_spec
    spec.fit(experiment=experiment)
    options = spec.generator_gen_kwargs["model_gen_options"]
    plain = {"beta": ConstantWidth(0.0)}
    if spec.generator_kwargs["botorch_acqf_options"].get("constraint_mode") == "optimistic":
        plain["constraint_beta"] = ConstantWidth(0.0)
    run = spec.gen(
        n=1,
        fixed_features=ObservationFeatures(parameters=dict(fixed_parameters or {})),
        model_gen_options={**options, Keys.ACQF_KWARGS.value: plain},
    )
    return dict(run.arms[0].parameters)
