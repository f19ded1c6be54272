"""Off-policy evaluation: what another policy would have earned, from the log of one that was played."""

from typing import TYPE_CHECKING

from torch_kbandits.extras import exports

if TYPE_CHECKING:
    from torch_kbandits.evaluation.estimate import Estimate as Estimate
    from torch_kbandits.evaluation.estimators import clipped_ips as clipped_ips
    from torch_kbandits.evaluation.estimators import direct_method as direct_method
    from torch_kbandits.evaluation.estimators import doubly_robust as doubly_robust
    from torch_kbandits.evaluation.estimators import ips as ips
    from torch_kbandits.evaluation.estimators import snips as snips
    from torch_kbandits.evaluation.estimators import switch as switch
    from torch_kbandits.evaluation.log import Log as Log
    from torch_kbandits.evaluation.policies import cross_fitted_rewards as cross_fitted_rewards
    from torch_kbandits.evaluation.policies import predicted_rewards as predicted_rewards
    from torch_kbandits.evaluation.policies import target_probabilities as target_probabilities
    from torch_kbandits.evaluation.reading import read_log as read_log
    from torch_kbandits.evaluation.replay import Replay as Replay
    from torch_kbandits.evaluation.replay import replay_log as replay_log
else:
    __getattr__, __dir__, __all__ = exports(__name__)
