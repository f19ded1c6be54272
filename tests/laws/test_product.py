"""Candidates, kernels, dictionaries, memories, rules, batches, widths and families play together, or say what to do."""

from dataclasses import replace

import pytest
from product import RIGHTLY, drawn, found, played, reasons, rightly_refused, says_what_to_do, table

# Where a linear function vanishes so does its variance, which GPyTorch then floors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Negative variance values"),
    pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning"),
]

#: So many combinations are drawn of each seed: 1,500 in all, of which 15 are quick.
NUMBER, SEEDS = 15, [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 100))]


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_drawn_is_played_or_refused_for_a_known_reason(seed, tmp_path):
    results = found(drawn(seed, NUMBER), tmp_path, turns=2 if seed else 1)
    assert [(result.combination, result.broke) for result in results if result.broke is not None] == []
    for combination, refused, _ in results:
        expected = reasons(combination)
        assert (refused is not None) is bool(expected), (combination, refused, expected)
        if refused is not None:
            says = [RIGHTLY[reason].says for reason in expected]
            assert any(words in refused.message for words in says), (combination, refused)
            assert says_what_to_do(refused.message), refused.message
    assert f"{NUMBER:6}         drawn" in table(results)


def alone(reason):
    """The first combination drawn that is refused for this reason and no other."""
    return next(it for it in drawn(1000, 3000) if reasons(it) == [reason])


@pytest.mark.parametrize("reason", RIGHTLY)
def test_what_is_rightly_refused_is_refused(reason, tmp_path):
    combination = alone(reason)
    assert rightly_refused(combination)
    assert played(combination, tmp_path) is not None


#: What the messages propose.
REMEDIES = {
    "repetition of a point that is another in each round": {"batches": "global"},
    "Thompson sampling by a kernel without waves on stored arms": {"rule": "upper bound"},
    "hypotheses where no one posterior chooses": {"rule": "upper bound"},
    "stages on a box": {"space": "actions"},
    "a family of priors that are learned": {"family": "none"},
}


@pytest.mark.one_in(6)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("reason", RIGHTLY)
def test_doing_what_the_message_says_helps(reason, tmp_path):
    remedied = replace(alone(reason), **REMEDIES[reason])
    assert reasons(remedied) == []
    assert played(remedied, tmp_path) is None


@pytest.mark.parametrize("reason", RIGHTLY)
def test_what_is_rightly_refused_is_refused_when_it_is_put_together(reason, tmp_path):
    """All that it depends on is known then."""
    assert not played(alone(reason), tmp_path).at_ask
