"""Whatever is looked at, a bandit's state and its next choices are those of one that nobody looked at."""

import forgetting
import pytest
import torch
from kinds import KINDS, dated, future, nothing, same, started
from problems import reward

from torch_kbandits.plotting import history_columns, plot_dictionary, plot_leverage, plot_line, plot_plane
from torch_kbandits.plotting.section import coordinate_names


@pytest.mark.one_in(16)
@pytest.mark.parametrize("name", KINDS)
def test_bandits_do_not_notice(name):
    kind = KINDS[name]
    seen, unseen = started(kind), started(kind)
    before, random = seen.state_dict(), torch.random.get_rng_state()
    where = {} if kind.words in (nothing, dated) else {"at": seen.history.X[-1]}
    plot_line(seen, resolution=7, **where)
    plot_plane(seen, resolution=4, **where)
    plot_dictionary(seen)
    if bool((seen.weights > 0.0).any()):
        plot_leverage(seen)
    assert len(history_columns(seen)["reward"]) == len(seen.history.Y)
    assert torch.equal(torch.random.get_rng_state(), random)
    assert same(seen.state_dict(), before)
    assert same(seen.state_dict(), unseen.state_dict())
    assert torch.equal(future(kind, seen), future(kind, unseen))


def test_what_was_told_since():
    """Whether the history was put together before or not."""
    bandit, twin = forgetting.make("discount"), forgetting.make("discount")
    for each in (bandit, twin):
        for q in (1, 3, 2, 1):
            X = each.ask(q)
            each.tell(X, reward(X))
    whole = twin.history
    for number in (0, 1, 2, 3, 7, 8):
        for each in (bandit, twin):
            assert same(tuple(each.history_since(number)), tuple(whole.rows(slice(number, None))))


def test_named_parameters_are_shown_by_their_names():
    bandit = started(KINDS["configurations"])
    assert plot_line(bandit, "x", resolution=7).axes[0].get_xlabel() == "x"
    assert coordinate_names(bandit) == tuple(bandit.candidates.names)
