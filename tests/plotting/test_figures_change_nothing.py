"""Whatever is looked at, a bandit's state and its next choices are those of one that nobody looked at."""

import pytest
import torch
from kinds import KINDS, dated, future, nothing, same, started

from torch_kbandits.plotting import plot_dictionary, plot_line, plot_plane


@pytest.mark.one_in(16)
@pytest.mark.parametrize("name", [name for name in KINDS if name != "means"])  # which are known at arms alone
def test_bandits_do_not_notice(name):
    kind = KINDS[name]
    seen, unseen = started(kind), started(kind)
    before, random = seen.state_dict(), torch.random.get_rng_state()
    where = {} if kind.words in (nothing, dated) else {"at": seen.history.X[-1]}
    plot_line(seen, **where)
    plot_plane(seen, **where)
    if bool((seen.weights > 0.0).any()):
        plot_dictionary(seen)
    assert torch.equal(torch.random.get_rng_state(), random)
    assert same(seen.state_dict(), before)
    assert same(seen.state_dict(), unseen.state_dict())
    assert torch.equal(future(kind, seen), future(kind, unseen))
