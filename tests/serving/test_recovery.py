"""What was answered is there after whatever happens: to the process, to its files, and in what is asked of it."""

import hashlib
import json
import os
import random
from contextlib import suppress

import pytest
import torch
from calls import VALID, WRONG
from problems import DOUBLE, rbf
from served import ARMS, BANDITS, about_round, bkb, crash, saved
from torch.overrides import TorchFunctionMode

from torch_kbandits import LearnedPrior, algorithms
from torch_kbandits.errors import DamagedFileError, InputError, KernelBanditError
from torch_kbandits.observations import History
from torch_kbandits.serving import Service, journal
from torch_kbandits.serving.refusals import NotSavingError


def seen(served):
    """All that a client can see of what was answered."""
    bandit = served.bandit
    told = [[None if y != y else y for y in bandit.history.Y.tolist()], bandit.history.X.tolist()]
    return bandit.pending.tolist(), bandit.pending_ids, bandit.round, bandit.num_asked, told


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", BANDITS)
def test_what_was_taken_can_be_read_again_however_odd_it_is(name, tmp_path):
    """Requests some of whose fields are wrong: what was answered is there after a crash."""
    odd, served, taken = random.Random(len(name)), Service.open(saved(BANDITS[name], tmp_path), compact_after=10**6), 0
    for number in range(80):
        operation = odd.choice(["ask", "tell", "tell", "forget"] if served.bandit.pending_ids else ["ask"])
        words = about_round(name, number) if operation == "ask" else {"ids": [odd.choice(served.bandit.pending_ids)]}
        words |= {"y": 0.5} if operation == "tell" and odd.random() < 0.8 else {}
        for _ in range(odd.randint(0, 2)):
            field = odd.choice(list(VALID[f"/{operation}"]))
            words[field] = odd.choice([VALID[f"/{operation}"][field], *WRONG, False, {"heat": 1.0}, {"heat": [1.0]}])
        with suppress(KernelBanditError):
            served.answer(operation, words)
            taken += 1
        if number % 20 == 19:
            before = seen(served)
            served = Service.open(crash(served, tmp_path / str(number)), compact_after=10**6)
            assert seen(served) == before
    assert taken > 15


# ---------------------------------------------------------------- files that others touch


def removed(path):
    path.unlink()


def cut(path):
    path.write_bytes(b"")


def replaced(path):
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    os.replace(copy, path)


def written_to(path):
    path.write_bytes(path.read_bytes() + b"9")


@pytest.mark.parametrize(
    ("ending", "deed"),
    [(".journal", removed), (".journal", cut), (".journal", replaced), (".journal", written_to), ("", removed),
     ("", replaced)],
)  # fmt: skip
def test_files_that_others_touch_end_the_service_before_anything_is_lost(ending, deed, tmp_path):
    served = Service.open(saved(bkb, tmp_path))
    asked = served.answer("ask", {"q": 3, "key": "a"})
    served.answer("tell", {"ids": [0], "y": 1.0})
    before = seen(served)
    deed(served.path.with_name(served.path.name + ending))
    for operation, words in (("tell", {"ids": [1], "y": 2.0}), ("ask", {})):
        with pytest.raises(NotSavingError, match="another process"):
            served.answer(operation, words)
    assert served.failure
    rescued = served.path.with_name(served.path.name + ".rescued")
    file = crash(served, tmp_path / "after")
    if deed in (replaced, written_to):
        assert rescued.exists()
        file = rescued
    again = Service.open(file)
    assert seen(again) == before
    removed(again.journal.path)
    again.close()  # without its journal it saves all
    again = Service.open(file)
    assert seen(again) == before
    assert file == rescued or again.answer("ask", {"q": 3, "key": "a"}) == asked


# ---------------------------------------------------------------- journals that nobody wrote


def a_journal(*payloads):
    """The bytes of a journal of these payloads, written from its description: checksums fit."""
    content = b"torch_kbandits journal 1\n"
    digest = hashlib.blake2b(content, digest_size=8).digest()
    for payload in payloads:
        digest = hashlib.blake2b(digest + payload, digest_size=8).digest()
        content += b"%d %s %s\n" % (len(payload), digest.hex().encode(), payload)
    return content


ASK = {"op": "ask", "key": None, "known": "", "time": None, "points": [[0.5, 0.5]], "stages": None, "ids": [0]}
TELL = {"op": "tell", "key": None, "request": {"actions": [[0.5, 0.5]], "y": 1.0}}
CRAFTED = {
    "no JSON": b"{", "deep": b"[" * 100_000, "a list": b"[]", "null": b"null", "digits": b"9" * 5000,
    "no UTF-8": b"\xff\xfe", "no operation": b"{}", "another operation": {"op": "save"}, "a view": {"op": "belief"},
    "inside": {"op": "_round", "request": {}}, "no points": ASK | {"points": []}, "NaN": ASK | {"points": [[None]]},
    "huge": ASK | {"points": [[10**400, 0]]}, "stages": ASK | {"stages": [[1e308, 1e308]]}, "ids": ASK | {"ids": [7]},
    "key": ASK | {"key": [1]}, "time": ASK | {"time": {}}, "no request": {"op": "tell", "key": None},
    "a text": TELL | {"request": "y"}, "a field": TELL | {"request": {"z": 1}}, "no key": {"op": "tell", "request": {}},
    "nested": TELL | {"request": {"y": [[[[1]]]], "ids": [0]}}, "unknown": TELL | {"request": {"y": 1, "ids": [9]}},
}  # fmt: skip
BOOKS = {
    "none": None, "empty": {}, "lists": {"keys": [[[1], "b", {}]], "ids": []},
    "triples": {"keys": [], "ids": [[1, 2, 3]]},
    "answers": {"keys": [["a", "b", {"ids": 3}]], "ids": []}, "no answer": {"keys": [["a", "b", 3]], "ids": []},
}  # fmt: skip


@pytest.mark.parametrize("what", [*CRAFTED, *(f"book: {name}" for name in BOOKS)])
def test_a_journal_that_nobody_wrote_is_named(what, tmp_path):
    served = Service.open(saved(bkb, tmp_path))
    begin = journal.read(served.journal.path).records[0]
    served.close()
    if what in CRAFTED:
        record = CRAFTED[what]
        payloads = [json.dumps(begin).encode(), record if isinstance(record, bytes) else json.dumps(record).encode()]
    else:
        payloads = [json.dumps(begin | {"book": BOOKS[what.partition(": ")[2]]}).encode()]
    served.journal.path.write_bytes(a_journal(*payloads))
    with pytest.raises(DamagedFileError, match="record"):
        Service.open(served.path)
    served.journal.path.write_bytes(a_journal(json.dumps(begin).encode(), json.dumps(TELL).encode()))
    assert Service.open(served.path).bandit.num_told == 1


# ---------------------------------------------------------------- how long it takes


def f(action):
    return float(torch.sin(torch.tensor(5.0 * action[0])) * action[1])


def test_no_fit_is_made_again_after_a_crash_and_outcomes_without_a_reward_are_refused(tmp_path, monkeypatch):
    served, fits, fitted = Service.open(saved(BANDITS["fitted_outcome"], tmp_path)), [], LearnedPrior.fitted

    def counted(self, told, seed, *, units_only):
        fits.append(units_only)
        return fitted(self, told, seed, units_only=units_only)

    monkeypatch.setattr(LearnedPrior, "fitted", counted)
    for _ in range(6):
        asked = served.answer("ask", {"q": 1})
        words = {"ids": asked["ids"], "outcomes": {"heat": asked["actions"][0][0]}}
        for without in ({"failed": False}, {"failed": None}, {"failed": False, "y": None}, {}):
            with pytest.raises(InputError, match="y is missing"):
                served.answer("tell", words | without)
        served.answer("tell", words | {"y": f(asked["actions"][0])})
    assert fits.count(False) >= 2
    fits.clear()
    again = Service.open(crash(served, tmp_path / "after"))
    assert seen(again) == seen(served)
    assert fits.count(False) == 0
    kernels = [each.prior.kernel.state_dict() for each in (again.bandit, served.bandit)]
    assert str(kernels[0]) == str(kernels[1])
    assert torch.equal(again.bandit.ask(4), served.bandit.ask(4))


class Work(TorchFunctionMode):
    """Counts the entries of all tensors that are made."""

    entries = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        self.entries += made.numel() if isinstance(made, torch.Tensor) else 0
        return made


def test_a_replay_reads_its_history_once():
    """Work as a function of rounds, of which none is counted twice: of four times as many five times at most."""

    def work(rounds):
        history = History(ARMS[:1].expand(rounds, 2), torch.zeros(rounds, dtype=DOUBLE), torch.arange(rounds))
        bandit = algorithms.GPUCB(candidates=ARMS[:2], kernel=rbf(0.4), regularization=0.1, beta=2.0, seed=0)
        with Work() as counted:
            bandit.replay(history)
        return counted.entries

    assert work(800) < 5 * work(200)
