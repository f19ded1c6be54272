"""What adapts to an unknown rate of change is saved, loaded, replayed and asked like every bandit."""

import math
from datetime import datetime, timedelta

import pytest
import torch
from problems import DOUBLE, data, rbf

from torch_kbandits import InputError, RidgeLeverageSampling, StateMismatchError, algorithms
from torch_kbandits.acquisition import ThompsonRule
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.adaptation import BanditOverBandit, CumulatedTrigger, ResidualTrigger
from torch_kbandits.bandit.batches import GlobalBatchRule
from torch_kbandits.candidates import Arms
from torch_kbandits.confidence import ConstantWidth
from torch_kbandits.memory import Discount, SlidingWindow

ARMS = data(40, 2)[0]
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
WORDS = {"kernel": rbf(0.3), "regularization": 0.01, "beta": 1.5, "seed": 3}
CHOICE = BanditOverBandit((SlidingWindow(4, "observations"), Discount(0.9), SlidingWindow(math.inf)), 5, 0.6)
START = datetime(2026, 3, 1)


def event_triggered(**settings):
    return algorithms.ETGPUCB(**(WORDS | {"candidates": ARMS} | settings))


def over_bandits(**settings):
    return algorithms.BOBGPUCB(**(WORDS | {"candidates": ARMS, "horizon": 60, "block_size": 6} | settings))


def composed(**settings):
    words = {"candidates": Arms(ARMS), "kernel": rbf(0.3), "regularization": 0.01, "width": ConstantWidth(1.5)}
    return Bandit(**(words | {"seed": 3} | settings))


def selecting(**settings):
    return algorithms.DMSGPUCB(**(WORDS | {"candidates": ARMS, "block_size": 3} | settings))


CASES = {
    "et arms": event_triggered,
    "et box": lambda: event_triggered(candidates=None, bounds=BOUNDS),
    "et contexts": lambda: event_triggered(context_dim=1),
    "et sparse": lambda: event_triggered(dictionary=RidgeLeverageSampling()),
    "et memory": lambda: event_triggered(memory=SlidingWindow(9.0)),
    "et dates": lambda: event_triggered(memory=SlidingWindow(9 * 3600.0)),
    "et batches": lambda: composed(
        trigger=ResidualTrigger(0.1), dictionary=RidgeLeverageSampling(), batches=GlobalBatchRule(300.0)
    ),
    "et slowly": lambda: composed(trigger=CumulatedTrigger(0.1)),
    "et slowly in batches": lambda: composed(
        trigger=CumulatedTrigger(0.1), dictionary=RidgeLeverageSampling(), batches=GlobalBatchRule(300.0)
    ),
    "et thompson": lambda: composed(trigger=ResidualTrigger(0.1), acquisition=ThompsonRule()),
    "bob arms": over_bandits,
    "bob box": lambda: over_bandits(candidates=None, bounds=BOUNDS),
    "bob contexts": lambda: over_bandits(context_dim=1),
    "bob sparse": lambda: over_bandits(dictionary=RidgeLeverageSampling()),
    "bob coupled": lambda: over_bandits(dictionary=RidgeLeverageSampling(resampling="coupled")),
    "bob dates": over_bandits,
    "bob anew": lambda: over_bandits(shares_history=False),
    "bob bounds": lambda: over_bandits(reward_bounds=(-2.0, 2.0), exploration=0.2, windows=[3, 9, math.inf]),
    "dms arms": selecting,
    "dms box": lambda: selecting(candidates=None, bounds=BOUNDS),
    "dms contexts": lambda: selecting(context_dim=1),
    "dms sparse": lambda: selecting(dictionary=RidgeLeverageSampling()),
    "dms dates": lambda: selecting(memories=[SlidingWindow(4 * 3600.0), SlidingWindow(math.inf)]),
    "both": lambda: composed(trigger=ResidualTrigger(0.1), memories=CHOICE),
    "both in batches": lambda: composed(
        trigger=ResidualTrigger(0.1),
        memories=CHOICE,
        dictionary=RidgeLeverageSampling(),
        batches=GlobalBatchRule(300.0),
    ),
}

#: Not in the quick suite.
DEAREST = {"dms sparse", "dms box", "bob box", "both in batches", "et slowly in batches"}
DEAREST |= {"bob contexts", "bob sparse", "bob coupled", "dms contexts", "dms dates", "et memory"}
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in DEAREST else name for name in CASES]


def quickly(*chosen):
    """All cases, the chosen ones in the quick suite."""
    return [name if name in chosen else pytest.param(name, marks=pytest.mark.slow) for name in CASES]


def words_of(name, t):
    return {
        "contexts": {"context": torch.tensor([(0.37 * t) % 1.0], dtype=DOUBLE)},
        "dates": {"time": START + timedelta(hours=t)},
    }.get(name.split()[-1], {})


def play(bandit, name, first, rounds):
    """Rounds of a function that changes its sign every 11 rounds, which is found at once."""
    asked = []
    for t in range(first, first + rounds):
        words = words_of(name, t)
        x = bandit.ask(**words)
        y = (3.0 if t // 11 % 2 else -3.0) * torch.cos(x.sum(-1))
        bandit.tell(x, y, **words)
        asked.append(x)
    return torch.cat(asked)


@pytest.mark.one_in(14)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("name", NAMES)
def test_loading_and_replaying_continue_alike(name):
    bandit, loaded, replayed = CASES[name](), CASES[name](), CASES[name]()
    is_box = name.endswith("box")
    play(bandit, name, 0, 16 if is_box else 27)
    bandit.ask(2, **words_of(name, 27))
    loaded.load_state_dict(bandit.state_dict())
    replayed.replay(bandit.history)
    assert (replayed.num_since_restart, replayed.memory) == (bandit.num_since_restart, bandit.memory)
    for each in (bandit, loaded):
        each.forget()
    first, rounds = len(bandit.history.X), 2 if is_box else 8
    expected = play(bandit, name, first, rounds)
    # A history has its dates as numbers, so what replayed it takes no dates.
    for each in (loaded,) if "dates" in name else (loaded, replayed):
        asked = play(each, name, first, rounds)
        assert float((asked - expected).abs().max()) <= (1e-3 if is_box else 0.0)
        assert (each.num_since_restart, each.memory) == (bandit.num_since_restart, bandit.memory)
        assert each.memory_probabilities == pytest.approx(bandit.memory_probabilities, rel=1e-3)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", quickly("et arms", "et slowly", "bob arms", "dms arms"))
def test_something_happens(name):
    """The runs above have restarts, or changes of memory, in both halves."""
    bandit, restarts, memories = CASES[name](), 0, []
    late = name in ("et memory", "et dates")  # where fewer rewards count
    for t in range(16 if name.endswith("box") else 40 if late else 28):
        known = bandit.num_since_restart
        play(bandit, name, t, 1)
        restarts += t > 0 and bandit.num_since_restart <= known
        memories.append(bandit.memory)
    if name.startswith(("et", "both")):
        assert restarts >= (1 if name.endswith(("box", "batches")) else 2)
    if not name.startswith("et"):
        assert len({id(memory) for memory in memories}) >= 2


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", quickly("et arms", "et sparse", "bob arms", "dms arms"))
def test_one_more_ask_changes_nothing(name):
    bandit, twin = CASES[name](), CASES[name]()
    for t in range(14):
        bandit.ask(2, remember=False, **words_of(name, t))
        bandit.ask(**words_of(name, t))
        bandit.forget()
        assert torch.equal(play(bandit, name, t, 1), play(twin, name, t, 1))


def test_states_of_other_settings_are_refused():
    bandit = over_bandits()
    play(bandit, "bob arms", 0, 20)
    for other in (over_bandits(exploration=0.3), over_bandits(block_size=5), over_bandits(windows=[6, 9])):
        with pytest.raises(StateMismatchError, match="memories"):
            other.load_state_dict(bandit.state_dict())
        assert other.round == 0
    triggered = event_triggered()
    with pytest.raises(StateMismatchError, match=r"trigger\.false_alarm_probability: saved 0\.1, here 0\.2"):
        event_triggered(false_alarm_probability=0.2).load_state_dict(triggered.state_dict())


def test_a_used_bandit_loads_the_memory_of_the_state():
    saved, used = over_bandits(), over_bandits()
    play(saved, "bob arms", 0, 13)
    state = saved.state_dict()
    play(used, "bob arms", 0, 25)
    used.load_state_dict(state)
    assert used.memory == saved.memory
    assert torch.equal(play(used, "bob arms", 13, 8), play(saved, "bob arms", 13, 8))


def test_without_a_memory_there_is_no_time():
    with pytest.raises(InputError, match="no memory, so it knows no time"):
        event_triggered().ask(time=3.0)
    bandit = event_triggered(memory=SlidingWindow(5.0))
    bandit.tell(ARMS[:1], 0.1, time=3.0)
    with pytest.raises(InputError, match="backwards"):
        bandit.ask(time=2.0)
    assert bandit.num_since_restart == 1


def test_the_reward_is_compared_at_its_own_time():
    """A window that has passed leaves the prior, under which no such reward surprises."""
    for gap, counted in ((1.0, 1), (9.0, 6)):
        bandit = event_triggered(memory=SlidingWindow(6.0))
        for t in range(5):
            bandit.tell(ARMS[:1], 0.0, time=float(t))
        bandit.tell(ARMS[:1], 2.0, time=4.0 + gap)
        assert bandit.num_since_restart == counted
