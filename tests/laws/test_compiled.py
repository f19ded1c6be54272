"""Loops and plain PyTorch make the same choices, to ties, and what is saved does not depend on which ran."""

import threading

import numpy as np
import pytest
import torch
from product import Loop, drawn, reasons

from torch_kbandits import use_compiled
from torch_kbandits.numerics.compiled import in_parts, runs_compiled

# Where a linear function vanishes so does its variance, which GPyTorch then floors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Negative variance values"),
    pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning"),
]

ROUNDS = 6


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("seed", [200, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(201, 240))])
def test_bandits_choose_alike_with_loops_and_without_and_go_on_where_the_other_was(seed, tmp_path):
    combinations = [it for it in drawn(seed, 10) if not reasons(it)]
    assert combinations
    for it in combinations:
        loops, plain = Loop(it, it.bandit(tmp_path)), Loop(it, it.bandit(tmp_path))
        for number in range(ROUNDS):
            with use_compiled(True):
                x = loops.ask()
                loops.tell(x)
            with use_compiled(False):
                z = plain.ask()
                if not torch.equal(x, z):
                    assert it.where.actions is None, (it, number, x, z)  # a search of a box amplifies rounding
                    plain.bandit.forget()
                plain.tell(x)
        for one, other, enabled in ((loops, plain, False), (plain, loops, True)):
            with use_compiled(enabled):
                twin = it.bandit(tmp_path)
                twin.load_state_dict(one.bandit.state_dict())
                Loop(it, twin, other.turn).compare(other)


def test_loops_are_for_plain_tensors_on_a_cpu_and_only_while_they_are_switched_on():
    tensor = torch.ones(2, dtype=torch.float64)
    with use_compiled(True):
        assert runs_compiled(tensor, tensor.float())
        assert not runs_compiled(tensor, tensor.clone().requires_grad_())
        assert not runs_compiled(tensor.to("meta"))
        with use_compiled(False):
            assert not runs_compiled(tensor)
        seen = list[bool]()
        thread = threading.Thread(target=lambda: seen.append(runs_compiled(tensor)))
        thread.start()
        thread.join()
        assert seen == [True]


@pytest.mark.parametrize("number", [0, 1, 2, 7])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_parts_of_a_loop_are_all_rows_once_and_an_error_waits_for_all(number, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    counts = np.zeros(number)

    def loop(first: int, last: int, values: np.ndarray) -> None:
        values[first:last] += 1.0
        if last == number:
            raise ValueError(first)

    with pytest.raises(ValueError, match=r"\d"):
        in_parts(loop, number, 2**30, counts)
    assert np.array_equal(counts, np.ones(number))
