"""Estimates on real logs are those of obp, the Open Bandit Pipeline: 10,000 rows of three campaigns, two policies."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from torch_kbandits.evaluation import Log, direct_method, doubly_robust, ips, snips, switch

ope = pytest.importorskip("obp.ope", reason="needs obp 0.4.1, in the extra 'dev'")
DATA = Path(ope.__file__).parents[1] / "dataset" / "obd"

#: Reading a campaign takes a tenth of a second, predictions of its items more.
CAMPAIGNS = [pytest.param("men"), *(pytest.param(name, marks=pytest.mark.slow) for name in ("all", "women"))]

pytestmark = pytest.mark.filterwarnings("ignore::torch_kbandits.errors.OverlapWarning")


@pytest.mark.parametrize("policy", ["random", "bts"])
@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_estimates_are_those_of_obp(campaign, policy):
    columns = ["item_id", "position", "click", "propensity_score"]
    data = pd.read_csv(DATA / policy / campaign / f"{campaign}.csv", usecols=columns)
    n, num_items, generator = len(data), data.item_id.max() + 1, np.random.default_rng(0)
    item, position, click, propensity = (data[name].to_numpy() for name in columns)
    position = position - 1
    assert (n, click.sum() > 30) == (10_000, True)
    # A target policy and a model of clicks that differ by position and context.
    kinds = generator.integers(20, size=n)
    target = generator.dirichlet(np.full(num_items, 0.3), size=(20, 3)).transpose(0, 2, 1)[kinds]
    predictions = generator.beta(1.0, 100.0, size=(20, num_items, 3))[kinds]
    theirs = {"action": item, "reward": click, "position": position, "pscore": propensity, "action_dist": target}
    of_model = {"estimated_rewards_by_reg_model": predictions}
    log = Log(item, click, propensity, num_actions=num_items)
    rows = np.arange(n)
    ours = {"target_probabilities": target[rows, :, position]}
    model = {"predictions": predictions[rows, :, position]}
    for found, expected in (
        (ips(log=log, **ours), ope.InverseProbabilityWeighting().estimate_policy_value(**theirs)),
        (snips(log=log, **ours), ope.SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**theirs)),
        (direct_method(**ours, **model), ope.DirectMethod().estimate_policy_value(**theirs, **of_model)),
        (doubly_robust(log=log, **ours, **model), ope.DoublyRobust().estimate_policy_value(**theirs, **of_model)),
        (
            switch(log=log, threshold=5.0, **ours, **model),
            ope.SwitchDoublyRobust(tau=5.0).estimate_policy_value(**theirs, **of_model),
        ),
    ):
        assert found.value == pytest.approx(expected, rel=0.0, abs=1e-10)
    # Rows as slates of three positions, each position of a slate once.
    slates, places = rows[:9999] // 3, rows[:9999] % 3
    played = target[rows, item, position]
    expected = ope.SlateIndependentIPS(len_list=3).estimate_policy_value(
        slate_id=slates,
        reward=click[:9999],
        position=places,
        pscore_item_position=propensity[:9999],
        evaluation_policy_pscore_item_position=played[:9999],
    )
    of_slates = Log(item[:9999], click[:9999], propensity[:9999], num_actions=num_items, slates=torch.tensor(slates))
    assert ips(log=of_slates, target_probabilities=played[:9999]).value == pytest.approx(expected, rel=0.0, abs=1e-10)
