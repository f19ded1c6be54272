"""Candidates, kernels, dictionaries, memories, rules, batches, widths and families play together, or say what to do."""

from dataclasses import replace

import pytest
from product import RIGHTLY, drawn, played, reasons, says_what_to_do

pytestmark = [
    pytest.mark.usefixtures("brief_searches"),
    # Where a linear function vanishes so does its variance, which GPyTorch then floors.
    pytest.mark.filterwarnings("ignore:Negative variance values"),
    pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning"),
    pytest.mark.filterwarnings("ignore:.*fitted to a small part"),
]

#: So many combinations are drawn of each seed: 300 in all, of which 30 are quick.
NUMBER, SEEDS = 15, [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_drawn_is_played_or_refused_for_a_known_reason(seed, tmp_path):
    for combination in drawn(seed, NUMBER):
        try:
            refused = played(combination, tmp_path, turns=2 if seed > 1 else 1)
        except Exception as error:
            raise AssertionError(combination) from error
        expected = reasons(combination)
        assert (refused is not None) is bool(expected), (combination, refused, expected)
        if refused is not None:
            assert any(RIGHTLY[reason].says in refused.message for reason in expected), (combination, refused)
            assert says_what_to_do(refused.message), refused.message


#: What the messages propose.
REMEDIES = {
    "repetition of a point that is another in each round": {"batches": "global"},
    "Thompson sampling by a kernel without waves on stored arms": {"rule": "upper bound"},
    "hypotheses where no one posterior chooses": {"rule": "upper bound"},
    "stages on a box": {"space": "actions"},
    "a softmax on a box": {"space": "actions"},
    "a floor under propensities of a point that is played again": {"batches": "global"},
    "a family of priors that are learned": {"family": "none"},
}


@pytest.mark.parametrize("reason", RIGHTLY)
def test_what_is_rightly_refused_is_refused_when_it_is_put_together_and_the_remedy_helps(reason, tmp_path):
    """All that it depends on is known then."""
    alone = min((it for it in drawn(1000, 3000) if reasons(it) == [reason]), key=lambda it: it.where.actions is None)
    assert not played(alone, tmp_path).at_ask
    remedied = replace(alone, **REMEDIES[reason])
    assert reasons(remedied) == []
    assert played(remedied, tmp_path) is None
