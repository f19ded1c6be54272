"""What is known of columns reaches the prior that is learned: one length scale for a category, and its name."""

import pytest
import torch

from torch_kbandits import (
    Categorical,
    Category,
    ColumnSpec,
    Configurations,
    ContextualActions,
    Float,
    KernelBanditWarning,
    LearnedPrior,
    Number,
    ParameterSpace,
    algorithms,
)
from torch_kbandits.memory import BackToPrior

CONTEXTS = ColumnSpec([Number("hour", 0, 24), Category("device", ["phone", "tablet", "desktop"], other=True)])
ACTIONS = ColumnSpec([Category("banner", ["plain", "bold"]), Number("price", 5, 80, log=True)])
SPACE = ParameterSpace({"colour": Categorical(["red", "green", "blue"]), "size": Float(0.0, 1.0)})
DEVICES = ["device=phone", "device=tablet", "device=desktop"]
BANNERS = ["banner=plain", "banner=bold"]


@pytest.mark.parametrize(
    ("candidates", "groups", "names"),
    [
        (ContextualActions(action_dim=2, context_dim=1), None, None),
        (
            ContextualActions(action_dim=2, context_columns=CONTEXTS),
            [0, 1, 1, 1, 2, 3],
            ["hour", *DEVICES, "", ""],
        ),
        (ContextualActions(action_columns=ACTIONS, context_dim=2), [0, 1, 2, 2, 3], ["", "", *BANNERS, "price"]),
        (
            ContextualActions(action_columns=ACTIONS, context_columns=CONTEXTS),
            [0, 1, 1, 1, 2, 2, 3],
            ["hour", *DEVICES, *BANNERS, "price"],
        ),
        (Configurations(SPACE), [0, 0, 0, 1], ["colour 1", "colour 2", "colour 3", "size"]),
        (
            Configurations(SPACE, context_columns=CONTEXTS),
            [0, 1, 1, 1, 2, 2, 2, 3],
            ["hour", *DEVICES, "colour 1", "colour 2", "colour 3", "size"],
        ),
        (Configurations(SPACE, context_dim=1), [0, 1, 1, 1, 2], ["", "colour 1", "colour 2", "colour 3", "size"]),
    ],
)
def test_candidates_know_what_their_columns_are(candidates, groups, names):
    assert candidates.groups == groups
    assert candidates.names == names


@pytest.mark.parametrize("memory", [None, BackToPrior(0.01)])
def test_a_category_of_contexts_has_one_length_scale(memory):
    """Also where points know the time for the sake of a memory."""
    bandit = algorithms.KUCB(
        candidates=ContextualActions(
            [{"banner": "plain", "price": 9}], context_columns=CONTEXTS, action_columns=ACTIONS
        ),
        prior=LearnedPrior(num_initial=4),
        memory=memory,
        seed=0,
    )
    for hour, device in enumerate(["phone", "tablet", "desktop", "tv"]):
        bandit.tell([{"banner": "bold", "price": 10 + hour}], 0.1 * hour**2, context={"hour": hour, "device": device})
    kernel = bandit.prior.kernel.base_kernel
    assert kernel.groups == (0, 1, 1, 1, 2, 2, 3)
    assert kernel.lengthscale.shape == (1, 4)


def test_a_parameter_in_several_columns_has_one_length_scale():
    bandit = algorithms.GPUCB(candidates=SPACE, prior=LearnedPrior(num_initial=3), seed=0)
    for number in range(3):
        bandit.tell(bandit.ask(), float(number))
    assert bandit.prior.kernel.base_kernel.groups == (0, 0, 0, 1)


def test_a_warning_has_the_name_of_the_column():
    """Of kinds of things that are numbered as if they were near each other."""
    generator = torch.Generator().manual_seed(0)
    effects = (1.0 + torch.rand(25, generator=generator, dtype=torch.float64)) * torch.tensor([1.0, -1.0]).repeat(13)[
        :25
    ]
    spec = ColumnSpec([Number("hour", 0, 24), Number("shop", 0, 24)])
    bandit = algorithms.KUCB(
        candidates=ContextualActions(torch.rand(9, 1, dtype=torch.float64), context_columns=spec),
        prior=LearnedPrior(),
        seed=0,
    )
    shops = torch.randint(25, (60,), generator=generator).tolist()
    rows = [{"hour": 24.0 * number / 60.0, "shop": shop} for number, shop in enumerate(shops)]
    X = torch.rand(60, 1, generator=generator, dtype=torch.float64)
    noise = 0.2 * torch.randn(60, generator=generator, dtype=torch.float64)
    with pytest.warns(KernelBanditWarning, match=r"of column 'shop' \(1 from 0\) is short"):
        bandit.tell(X, X.squeeze(-1) + effects[shops] + noise, context=spec.encode(rows))
