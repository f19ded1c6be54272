"""What a bandit logged is read back as it was: rewards joined by id, whatever was cut, killed or written twice."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
import warnings

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from problems import DOUBLE, data, examples, rbf

from torch_kbandits import Arms, Bandit, ConstantWidth, ContextualActions, InputError
from torch_kbandits.acquisition import EpsilonGreedy, UpperConfidenceRule
from torch_kbandits.errors import FileError, KernelBanditWarning
from torch_kbandits.evaluation import Log, read_log

ARMS = data(5, 1)[0]
CANDIDATES = {
    "arms": lambda: Arms(ARMS, names=list("abcde")),
    "contexts": lambda: ContextualActions(ARMS, context_dim=2),
    "sets of each round": lambda: ContextualActions(action_dim=1, context_dim=2),
}


def explorer(name="arms", seed=0):
    rule = EpsilonGreedy(UpperConfidenceRule(), 0.5)
    words = {"kernel": rbf(0.4), "regularization": 0.1, "width": ConstantWidth(1.0), "seed": seed}
    return Bandit(candidates=CANDIDATES[name](), acquisition=rule, **words)


def brought(name, number):
    """What a round brings."""
    numbers = torch.rand(8, generator=torch.Generator().manual_seed(number), dtype=DOUBLE)
    context = {} if name == "arms" else {"context": numbers[:2]}
    return context | ({"candidates": numbers[2 : 4 + number % 5, None]} if name == "sets of each round" else {})


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(1, 3)),
        st.tuples(st.just("tell"), st.integers(0, 7)),
        st.tuples(st.just("tell x"), st.integers(0, 4)),
        st.tuples(st.just("forget"), st.integers(0, 7)),
        st.tuples(st.just("reload"), st.just(0)),
    ),
    min_size=3,
    max_size=12,
)
KNOWN = [("ask", 3), ("tell", 1), ("reload", 0), ("tell", 0), ("ask", 1), ("tell x", 2), ("forget", 0), ("tell", 1)]


@pytest.mark.parametrize("name", CANDIDATES)
@hypothesis.given(steps=STEPS)
@hypothesis.example(steps=KNOWN)
@examples(9)
def test_a_log_is_read_as_it_was_played(name, steps, tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    bandit, asked, rewards = explorer(name), [], {}
    bandit.log_to(folder / "log.jsonl", contexts=True)
    for number, (step, choice) in enumerate([("ask", 1), *steps]):
        about, y, waiting = brought(name, number), 0.1 * number, bandit.pending_ids
        if step == "ask":
            asked.append((bandit.ask(choice, details=True, **about), about))
        elif step == "tell" and waiting:
            bandit.tell(ids=waiting[choice % len(waiting)], y=y)
            rewards[waiting[choice % len(waiting)]] = y
        elif step == "forget" and waiting:
            bandit.forget(ids=waiting[choice % len(waiting)])
        elif step == "tell x" and name == "arms":
            x = ARMS[choice : choice + 1]
            known = [place for place, each in zip(waiting, bandit.pending, strict=True) if torch.equal(each, x[0])]
            bandit.tell(x, y)
            rewards |= dict.fromkeys(known[:1], y)
        elif step == "reload":
            bandit.save(folder / "bandit.kb")
            bandit = Bandit.load(folder / "bandit.kb")
            bandit.log_to(folder / "log.jsonl", contexts=True)
    log = read_log(folder / "log.jsonl", actions=ARMS if name == "contexts" else None)
    assert log.ids == tuple(range(bandit.num_asked))
    assert torch.equal(log.rows, torch.cat([found.rows for found, _ in asked]))
    assert torch.equal(log.propensities, torch.cat([found.propensities for found, _ in asked]))
    expected = torch.tensor([rewards.get(number, torch.nan) for number in log.ids], dtype=DOUBLE)
    assert torch.equal(log.rewards.nan_to_num(99.0), expected.nan_to_num(99.0))
    assert log.times == tuple(found.time for found, _ in asked for _ in found.ids)
    if name == "arms":
        assert log.contexts is None
        assert log.num_actions.tolist() == [len(ARMS)] * len(log)
        return
    assert torch.equal(log.played, torch.cat([found.x for found, _ in asked]))
    assert torch.equal(log.contexts, torch.stack([about["context"] for found, about in asked for _ in found.ids]))
    if name == "sets of each round":
        sets = [about["candidates"] for found, about in asked for _ in found.ids]
        assert all(map(torch.equal, log.actions, sets))


def test_an_id_that_comes_again_is_another_choice(tmp_path):
    """As of a bandit that was loaded as it had been before; a later reward is of the later choice."""
    path, bandit = tmp_path / "log.jsonl", explorer()
    bandit.save(tmp_path / "bandit.kb")
    bandit.log_to(path)
    bandit.tell(bandit.ask(2), [0.5, 1.5])
    again = Bandit.load(tmp_path / "bandit.kb")
    again.log_to(path)
    again.ask(2)
    again.tell(ids=1, y=2.5)
    log = read_log(path)
    assert log.rewards.nan_to_num(99.0).tolist() == [0.5, 1.5, 99.0, 2.5]
    assert log.ids == (f"0 of {path}, line 1", f"1 of {path}, line 2", 0, 1)


def test_bandits_that_share_a_file_get_their_own_rewards(tmp_path):
    path, bandits = tmp_path / "log.jsonl", [explorer(seed=seed) for seed in range(2)]
    for bandit in bandits:
        bandit.log_to(path)
    asked = [bandit.ask(2, details=True) for bandit in bandits]
    for number, bandit in enumerate(bandits):
        bandit.tell(ids=(1, 0), y=[number + 0.25, number + 0.5])
    log = read_log(path)
    assert log.rewards.tolist() == [0.5, 0.25, 1.5, 1.25]
    assert torch.equal(log.rows, torch.cat([found.rows for found in asked]))


def test_a_file_of_a_logger_is_read(tmp_path):
    logger, handler, bandit = logging.getLogger("choices"), logging.FileHandler(tmp_path / "log.jsonl"), explorer()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    bandit.log_to(logger)
    bandit.tell(bandit.ask(2), [0.5, 1.5])
    logger.removeHandler(handler)
    handler.close()
    assert read_log(tmp_path / "log.jsonl").rewards.tolist() == [0.5, 1.5]


def test_several_files_are_read_in_their_order(tmp_path):
    newer, older, bandit = tmp_path / "log.jsonl", tmp_path / "log.jsonl.1", explorer()
    bandit.log_to(newer)
    bandit.ask(2)
    newer.rename(older)
    bandit.tell(ids=(0, 1), y=[0.5, 1.5])
    assert read_log([older, newer]).rewards.tolist() == [0.5, 1.5]


@pytest.fixture
def written(tmp_path):
    """A log of two choices and their rewards."""
    bandit = explorer()
    bandit.log_to(tmp_path / "log.jsonl")
    for y in (0.5, 1.5):
        bandit.tell(bandit.ask(), y)
    return tmp_path / "log.jsonl"


def test_wherever_it_is_cut_the_whole_lines_are_read(written):
    """A line is whole without the sign that ends it."""
    content, rewards = written.read_bytes(), [[99.0], [0.5], [0.5, 99.0], [0.5, 1.5]]
    ends = [place for place, byte in enumerate(content) if byte == ord("\n")]
    for size in sorted(
        {*range(ends[0], len(content), 7), *(end + step for end in ends for step in (-1, 0, 1))} - {ends[0] - 1}
    ):
        written.write_bytes(content[:size])
        whole = sum(end <= size for end in ends)
        is_cut = size not in ends and size - 1 not in ends
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            log = read_log(written)
        assert len(caught) == is_cut
        for each in caught:
            assert f"left out: {whole + 1}. The last one was cut while it was written" in str(each.message)
        assert log.rewards.nan_to_num(99.0).tolist() == rewards[whole - 1]


def test_a_cut_line_stays_alone(written):
    """What is logged next begins a line of its own."""
    written.write_bytes(written.read_bytes()[:-20])
    bandit = explorer(seed=1)
    bandit.log_to(written)
    bandit.tell(bandit.ask(), 2.5)
    with pytest.warns(KernelBanditWarning, match=r"1 line\(s\) are not whole or not of a log and left out: 4\.$"):
        log = read_log(written)
    assert log.rewards.nan_to_num(99.0).tolist() == [0.5, 99.0, 2.5]


CHILD = """
import torch
from torch_kbandits import Arms, Bandit, ConstantWidth
from torch_kbandits.acquisition import EpsilonGreedy, UpperConfidenceRule
from gpytorch.kernels import RBFKernel

bandit = Bandit(
    candidates=Arms(torch.rand(5, 1, dtype=torch.float64)), kernel=RBFKernel().double(), regularization=0.1, seed=0,
    width=ConstantWidth(1.0), acquisition=EpsilonGreedy(UpperConfidenceRule(), 0.5),
)
bandit.log_to("log.jsonl")
while True:
    bandit.tell(ids=bandit.ask(details=True).ids, y=float(bandit.round))
    print(bandit.round, flush=True)
"""


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_all_that_it_learned(tmp_path):
    with subprocess.Popen([sys.executable, "-c", CHILD], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as child:
        said = [child.stdout.readline() for _ in range(50)]
        time.sleep(0.05)
        os.kill(child.pid, signal.SIGKILL)
        said += child.stdout.readlines()
    known = int(said[-1] if said[-1].endswith("\n") else said[-2])
    log = read_log(tmp_path / "log.jsonl")
    rewarded = log.rewards[~log.rewards.isnan()].tolist()
    assert known <= len(rewarded) <= len(log) <= known + 1
    assert rewarded == [*map(float, range(len(rewarded)))]


def changed(path, number, **says):
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | says)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("number", "says", "message"),
    [
        (1, {"propensity": 0.0}, "epsilon="),
        (3, {"propensity": 1.5}, r"\(0, 1\]"),
        (3, {"propensity": None}, "epsilon="),
        (1, {"row": -1}, "whole number"),
        (1, {"row": None}, "box"),
        (1, {"row": 0.5}, "whole number"),
        (3, {"id": None}, "id"),
        (4, {"id": "one"}, "id"),
        (2, {"reward": "much"}, "finite number"),
        (2, {"reward": float("inf")}, "finite number"),
        (4, {"id": 0}, r"0\.5 as in .*line 2, of the same id"),
    ],
)
def test_a_line_that_cannot_be_is_named(written, number, says, message):
    changed(written, number, **says)
    with pytest.raises(InputError, match=f"log.jsonl, line {number}: .*{message}"):
        read_log(written)


def test_lines_may_be_written_twice_and_rows_out_of_range_are_refused(written):
    content = written.read_text(encoding="utf-8")
    with written.open("a") as file:
        file.writelines(content.splitlines(keepends=True)[1:])
    assert read_log(written).rewards.tolist() == [0.5, 1.5]
    changed(written, 3, row=5)
    with pytest.raises(InputError, match=r"below the number of actions.*row 1 with 5"):
        read_log(written)


def test_other_lines_are_left_out_by_number_and_files_without_a_choice_refused(tmp_path, written):
    lines = ["INFO begun", *written.read_text(encoding="utf-8").splitlines(), "", '{"event": "health"}', "[" * 10**5]
    written.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.warns(KernelBanditWarning, match=r"3 line\(s\) .*: 1, 7, 8\.$") as caught:
        log = read_log(written)
    assert isinstance(log, Log)
    assert caught[0].filename == __file__
    (tmp_path / "empty").touch()
    with pytest.raises(InputError, match="has no choice"):
        read_log(tmp_path / "empty")
    with pytest.raises(FileError):
        read_log(tmp_path / "none")
    for wrong in (3, None, [3]):
        with pytest.raises(InputError, match="path"):
            read_log(wrong)
