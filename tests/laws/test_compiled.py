"""Loops and plain PyTorch make the same choices, to ties, and what is saved does not depend on which ran."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from product import Loop, drawn, reasons

from torch_kbandits import use_compiled
from torch_kbandits.numerics.compiled import _Announcement, compiled, in_parts, runs_compiled

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


#: Plays, and says where loops are kept.
_PLAYS = """
import torch, gpytorch, torch_kbandits
from torch_kbandits.numerics import compiled
arms = torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1)
kernel = gpytorch.kernels.RBFKernel().double()
bandit = torch_kbandits.algorithms.IGPUCB(candidates=arms, kernel=kernel, regularization=0.1, beta=2.0, seed=0)
bandit.run(lambda x: x.sum(), 2)
print(compiled._FOLDER)
"""


@pytest.mark.one_in(4)
@pytest.mark.parametrize("place", ["a folder", "Numba's", "a file", "nowhere"])
def test_loops_are_kept_in_the_cache_of_the_user_or_not_at_all(place, tmp_path):
    root = Path(__file__).resolve().parents[2]
    environment = {
        **os.environ,
        "TORCH_KBANDITS_COMPILED": "1",
        "PYTHONPATH": str(root),
        "XDG_CACHE_HOME": str(tmp_path),
    }
    environment.pop("NUMBA_CACHE_DIR", None)
    if place == "Numba's":
        environment |= {"XDG_CACHE_HOME": str(tmp_path / "other"), "NUMBA_CACHE_DIR": str(tmp_path)}
    elif place == "a file":
        (tmp_path / "taken").write_text("")
        environment["XDG_CACHE_HOME"] = str(tmp_path / "taken")
    elif place == "nowhere":
        environment |= {"XDG_CACHE_HOME": "", "HOME": str(tmp_path / "none" / "such")}
        (tmp_path / "none").write_text("")
    command = [sys.executable, "-W", "ignore", "-c", _PLAYS]
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    kept = list(tmp_path.rglob("*.nbc"))
    if place in ("a folder", "Numba's"):
        assert said.strip().startswith(str(tmp_path / "torch_kbandits"))
        assert kept
    else:
        assert said.strip() == "None"
        assert not kept


def test_on_a_terminal_it_is_said_once_why_the_first_rounds_take_longer(capsys, monkeypatch):
    ours, others = compiled(lambda x: x), object()

    def said():
        announcement = _Announcement()
        for dispatcher in (others, ours, ours):
            announcement.on_start(SimpleNamespace(data={"dispatcher": dispatcher}))
        return capsys.readouterr().err.count("compiles its loops")

    assert said() == 0
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert said() == 1


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
