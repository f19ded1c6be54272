"""Arms on a device: the same choices as on the CPU, and few launches, bytes and synchronisations.

No GPU is needed: a class of tensors stands for one. Where there is one it is asked as well.
"""

from dataclasses import replace

import pytest
import torch
from gpytorch.means import ConstantMean
from pretend_device import PretendDevice, is_possible
from problems import DOUBLE, data, matern, rbf
from product import SPACES, drawn, heat, reasons, reward

from torch_kbandits import Arms, AtMost, Bandit, InputError, Outcome, Prior
from torch_kbandits.algorithms import BBKB, BKB, GPTS, IGPUCB, SWGPUCB, WGPUCB
from torch_kbandits.confidence import ConstantWidth
from torch_kbandits.dictionaries import KORS
from torch_kbandits.memory import Discount

# Where a linear function vanishes so does its variance, which GPyTorch then floors.
pytestmark = [
    pytest.mark.skipif(not is_possible(), reason="this PyTorch does not let Python make devices"),
    pytest.mark.filterwarnings("ignore:Negative variance values"),
    pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning"),
    pytest.mark.filterwarnings("ignore:The dictionary is full"),
]

ARMS = data(600, 3, 1)[0]


def mean(arms):
    constant = ConstantMean().to(arms.dtype)
    constant.constant = 0.3
    return constant


WORDS = {"kernel": rbf(0.5), "regularization": 0.01, "beta": 2.0, "seed": 0}
PRIOR = {name: WORDS[name] for name in ("kernel", "regularization", "seed")}
HOT = AtMost(Outcome("heat", Prior(matern(), 0.1)), 0.9, beta=1.0, safe_seed=lambda X: X[:, -1] <= 0.6)

CASES = {
    "grows": lambda arms: BKB(candidates=arms, resampling="growth", **WORDS),
    "exact, few arms": lambda arms: IGPUCB(candidates=arms[:60], **WORDS),
    "fresh": lambda arms: BKB(candidates=arms, resampling="fresh", **WORDS),
    "batches": lambda arms: BBKB(candidates=arms, **WORDS),
    "exact": lambda arms: IGPUCB(candidates=arms, **WORDS),
    "window": lambda arms: SWGPUCB(candidates=arms, window=5, **WORDS),
    "draws": lambda arms: GPTS(candidates=arms, **WORDS),
    "ages": lambda arms: WGPUCB(candidates=arms, discount=0.9, **WORDS),
    "offered": lambda arms: Bandit(candidates=Arms(arms), dictionary=KORS(), width=ConstantWidth(2.0), **PRIOR),
    "exchanged": lambda arms: BKB(candidates=arms, max_dictionary=4, mean=mean(arms), **WORDS),
    "exchanged, ages": lambda arms: BKB(candidates=arms, max_dictionary=4, memory=Discount(0.7), **WORDS),
    "limits": lambda arms: BKB(candidates=arms, constraints=[HOT], **WORDS),
    "coupled": lambda arms: BKB(candidates=arms, resampling="coupled", **WORDS),
}


def played(case, arms):
    """What is asked for, recommended and known, and by how much what is pending narrows the arms' variances.

    Told are copies too, points that are no arms, and some never asked.
    """
    bandit, chosen, ratios = CASES[case](arms), [], []
    for turn in range(10):
        x = bandit.ask(4 if turn == 9 else 1)
        assert x.device == arms.device
        chosen.append(x.cpu().clone())
        ratios.append(bandit.pending_variance_ratio())
        if turn % 4 == 1 and not bandit.outcomes:
            x.add_(0.01)
        x = x.clone() if turn % 4 == 2 else x
        y = reward(chosen[-1]).to(arms.dtype)
        measured = {"heat": heat(chosen[-1])} if bandit.outcomes else None
        bandit.tell(x, y.to(arms.device) if turn % 3 else y, outcomes=measured)
        if turn == 6:  # arms that come and go, a slate of those that are left, and rows
            bandit.remove_arms([1])
            bandit.add_arms(0.5 * arms[:2])
            asked = bandit.ask(2, distinct=True, exclude=[0], details=True, remember=False)
            chosen.append(asked.x.cpu())
            assert asked.mean.device == asked.std.device == arms.device
            bandit.tell(rows=asked.rows, y=[0.1, 0.2])
        if turn == 5 and not bandit.outcomes:
            bandit.tell(torch.cat([x + 0.02, x + 0.03]), y.expand(2))
    known = (part.cpu() for part in (bandit.recommend(), bandit.inducing_points, bandit.history.X))
    return torch.cat([*chosen, *known]), ratios


@pytest.mark.one_in(12)
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize("case", CASES)
def test_bandits_choose_as_on_the_cpu(case, dtype):
    arms = ARMS.to(dtype)
    there = PretendDevice()
    with there:
        found, ratios = played(case, arms.to(there.device))
    expected, wanted = played(case, arms)
    assert torch.equal(found, expected)
    assert ratios == pytest.approx(wanted, rel=1e-9 if dtype == DOUBLE else 1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("case", CASES)
def test_bandits_choose_on_a_gpu_as_on_the_cpu(case):
    (found, ratios), (expected, wanted) = played(case, ARMS.cuda()), played(case, ARMS)
    assert torch.equal(found, expected)
    assert ratios == pytest.approx(wanted, rel=1e-9)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("case", CASES)
def test_what_a_gpu_chooses_in_single_precision_is_as_good(case):
    """Rounding differs, so that bandits told the same may choose differently, but nothing worse by more than that."""
    here, there = CASES[case](ARMS.float()), CASES[case](ARMS.float().cuda())
    for x in ARMS.float()[torch.randperm(60, generator=torch.Generator().manual_seed(0))[:20]].split(1):
        measured = {"heat": heat(x)} if here.outcomes else None
        here.tell(x, reward(x).float(), outcomes=measured)
        there.tell(x.cuda(), reward(x).float(), outcomes=measured)
    value, best = (here.acquisition()(bandit.ask(remember=False).cpu().unsqueeze(0)) for bandit in (there, here))
    torch.testing.assert_close(value, best, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300, 310))
def test_any_composition_chooses_as_on_the_cpu(seed, tmp_path, monkeypatch):
    def played(it, device):
        arms = it.where.actions
        monkeypatch.setitem(SPACES, it.space, it.where._replace(make=lambda _: Arms(arms.to(device))))
        bandit, chosen = it.bandit(tmp_path), []
        for turn in range(6):
            date = {"time": 0.7 * turn} if it.dated and it.has_clock else {}
            x = bandit.ask(3 if turn == 2 else 1, **date)
            known = x.cpu()
            chosen.append(known)
            bandit.tell(x, reward(known), **date)
        return torch.cat(chosen)

    for number, it in enumerate(drawn(seed, 8)):
        it = replace(it, space=("arms", "many arms")[number % 2])
        if reasons(it):
            continue
        there = PretendDevice()
        with there:
            chosen = played(it, there.device)
        assert torch.equal(chosen, played(it, "cpu")), it


#: Launches, waits of the host and copies from it in rounds whose dictionary stays or grows: in three of four, in any.
LIMITS = {
    "grows": {"stays": ((22, 1, 2), (22, 1, 2)), "grows": ((53, 1, 4), (53, 1, 4))},
    "window": {"stays": ((52, 1, 4), (53, 1, 5)), "grows": ((46, 1, 3), (46, 1, 3))},
    "ages": {"stays": ((52, 1, 5), (52, 1, 5)), "grows": ((76, 1, 6), (76, 1, 6))},
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", LIMITS)
def test_a_round_has_few_launches_and_synchronisations(case):
    counted: dict[str, list[tuple[int, ...]]] = {name: [] for name in LIMITS[case]}
    arms = ARMS.float()
    there = PretendDevice()
    with there:
        bandit = CASES[case](arms.to(there.device))
        for _ in range(40):
            size = len(bandit.inducing_points)
            with there.counted() as counts:
                x = bandit.ask()
            y = reward(x.cpu())
            with there.counted() as more:
                bandit.tell(x, y)
            waits, sent = counts.syncs.total() + more.syncs.total(), counts.sent + more.sent
            kind = "stays" if len(bandit.inducing_points) == size else "grows"
            counted[kind].append((counts.launches + more.launches, waits, sent))
    for name, limits in LIMITS[case].items():
        columns = [sorted(column) for column in zip(*counted[name], strict=True)]
        for column, *most in zip(columns, *limits, strict=True):
            assert column[3 * len(column) // 4] <= most[0], (name, columns)
            assert column[-1] <= most[1], (name, columns)


def test_points_of_another_device_are_refused():
    there = PretendDevice()
    with there:
        bandit = BKB(candidates=ARMS.to(there.device), **WORDS)
        with pytest.raises(InputError, match="pretend"):
            bandit.tell(ARMS[:1], 0.0)
