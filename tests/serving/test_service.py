"""A served bandit is the bandit that was told the same without a server, whatever is killed in between."""

import errno
import os

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from gpytorch.kernels import RBFKernel
from problems import DOUBLE, examples, rbf
from served import ARMS, BANDITS, about_round, bkb, crash, saved

from torch_kbandits import Bandit, algorithms
from torch_kbandits.errors import FileError, InputError, StateMismatchError
from torch_kbandits.serving import Service, book
from torch_kbandits.serving import service as service_module
from torch_kbandits.serving.refusals import AlreadyToldError, KeyReusedError, NotSavingError, UnknownIdError

#: Asks of these differ by the rounding of a search after the posterior was computed afresh.
SEARCHED = {"box": 1e-5, "space": 1e-5}

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(1, 3)),
        st.tuples(st.just("tell"), st.integers(0, 5)),
        st.tuples(st.just("tell actions"), st.integers(0, 5)),
        st.tuples(st.just("forget"), st.integers(0, 5)),
        st.tuples(st.just("crash"), st.sampled_from([b"", b"3", b'40 0123456789abcdef {"op":"te'])),
        st.tuples(st.just("restart"), st.booleans()),
    ),
    min_size=4,
    max_size=14,
)


def numbers(value):
    """Actions, or a context, as numbers to compare and to give to a bandit."""
    if isinstance(value, list) and isinstance(value[0], dict):
        value = [[each["rate"], " abc".index(each["kind"])] for each in value]
    return torch.as_tensor(value, dtype=DOUBLE)


def done(bandit, operation, words):
    """What a bandit's own method does of a request; whether it took it."""
    try:
        getattr(bandit, operation)(**words)
    except InputError:  # the point expired
        return False
    return True


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", BANDITS)
@hypothesis.given(steps=STEPS)
@hypothesis.example(
    steps=[("ask", 2), ("crash", b""), ("tell", 0), ("ask", 1), ("crash", b"9"), ("tell", 1), ("tell actions", 0)],
)
@examples(9)
def test_whatever_crashes_it_is_the_uninterrupted_bandit(name, steps, tmp_path_factory):
    root, plain, near = tmp_path_factory.mktemp(name), BANDITS[name](), SEARCHED.get(name, 0.0)
    served = Service.open(saved(BANDITS[name], root), compact_after=5)
    for number, (step, choice) in enumerate([*steps, ("ask", 2)]):
        pending, reward, request = plain.pending_ids, 0.25 * number - 1.0, None
        about, when = about_round(name, number), {"time": 60.0 * number} if name == "dated" else {}
        if step == "ask":
            answer = served.answer("ask", {"q": choice, **about, **when})
            expected = plain.ask(
                choice, **{word: numbers(value) for word, value in about.items()}, **when, return_ids=True
            )
            assert tuple(answer["ids"]) == expected.ids
            assert torch.allclose(numbers(answer["actions"]), numbers(expected.actions), rtol=0.0, atol=near)
        elif step == "crash":
            served = Service.open(crash(served, root / str(number), torn=choice), compact_after=5)
        elif step == "restart":
            served.close()
            served = Service.open(served.path, compact_after=5)
        elif step == "tell actions" and "context" not in about and name != "space":
            x = ARMS[choice].tolist()
            served.answer("tell", {"actions": [x], "y": [reward], **when})
            plain.tell(numbers([x]), reward, **when)
        elif step == "forget" and pending:
            request = {"ids": [pending[choice % len(pending)]]}
        elif step == "tell" and pending:
            words = {"y": reward} | ({"outcomes": {"heat": reward}} if name in ("limited", "fitted_outcome") else {})
            if name == "limited" and choice % 3 == 0 and bool(plain.history.Y.isfinite().any()):
                words = {"failed": True, "outcomes": {"heat": None}}
            # Dated by its ask, or otherwise.
            request = {"ids": [pending[choice % len(pending)]], **words, **({} if choice % 2 else when)}
        if request is not None and done(plain, step, request):
            served.answer(step, request)
        elif request is not None:
            with pytest.raises(InputError, match="expired"):
                served.answer(step, request)
        assert_same(served.bandit, plain, near)
    served.close()
    assert_same(Bandit.load(served.path), plain, near)


def assert_same(one, other, near):
    """What was told, what is pending and what time it is agree."""
    states = [each.state_dict() for each in (one, other)]
    assert states[0].keys() == states[1].keys()
    for name in ("num_asked", "num_learned", "num_forgotten", "clock", "config"):
        assert states[0].get(name) == states[1].get(name), name
    for state in states:
        state |= {f"history.{column}": values for column, values in state.pop("history").items()}
    for name in [name for name in states[0] if name.startswith(("history.", "pending"))]:
        ours, theirs = (state[name] for state in states)
        if isinstance(ours, torch.Tensor):
            assert torch.allclose(ours, theirs, rtol=0.0, atol=near, equal_nan=True), name
        else:
            assert ours == theirs, name


class KilledError(BaseException):
    pass


def killed(*_):
    raise KilledError


@pytest.mark.parametrize("stop", ["nothing", "saved", "named", "in place", "renewed"])
def test_a_crash_while_it_is_saved_whole_loses_and_doubles_nothing(stop, tmp_path, monkeypatch):
    served = Service.open(saved(bkb, tmp_path))
    for number in range(4):
        asked = served.answer("ask", {"q": 2, "key": f"key {number}"})
        served.answer("tell", {"ids": asked["ids"][:1], "y": number})
    names = {
        "nothing": (Bandit, "save"),
        "saved": (served.journal, "append"),
        "named": (service_module, "put_in_place"),
        "in place": (type(served.journal), "renew"),
    }
    with monkeypatch.context() as patch:
        if stop in names:
            patch.setattr(*names[stop], killed)
            with pytest.raises(KilledError):
                served.compact()
        else:
            served.compact()
        path = crash(served, tmp_path / "after")
    again = Service.open(path)
    assert_same(again.bandit, served.bandit, 0.0)
    assert again.answer("ask", {"q": 2, "key": "key 3"}) == asked
    assert again.answer("tell", {"ids": asked["ids"][:1], "y": 3})["already"]
    again.answer("tell", {"ids": asked["ids"][1:], "y": 7.0})
    path = crash(again, tmp_path / "once more")
    assert Service.open(path).bandit.history.Y.tolist() == [0.0, 1.0, 2.0, 3.0, 7.0]


def test_a_key_gets_the_same_answer_again_and_nothing_is_asked_twice(service):
    first = service.answer("ask", {"q": 3, "key": "a"})
    assert service.answer("ask", {"key": "a", "q": 3}) == first
    assert service.answer("ask", {"q": 3, "key": "b"})["ids"] == [3, 4, 5]
    for operation, request in (("ask", {"q": 2, "key": "a"}), ("forget", {"all": True, "key": "a"})):
        with pytest.raises(KeyReusedError, match="another request"):
            service.answer(operation, request)
    told = {"actions": [ARMS[0].tolist()], "y": 0.5, "key": "c"}
    assert [service.answer("tell", told)["already"] for _ in range(2)] == [False, True]
    assert service.answer("forget", {"all": True, "key": "d"}) == {"already": False}
    service.answer("ask", {})
    assert service.answer("forget", {"all": True, "key": "d"}) == {"already": True}
    assert (service.bandit.num_asked, service.bandit.num_told, len(service.bandit.pending_ids)) == (7, 1, 1)


def test_an_id_is_told_once(service):
    service.answer("ask", {"q": 5})
    assert not service.answer("tell", {"ids": [1, 0], "y": [0.5, 1]})["already"]
    assert service.answer("tell", {"ids": [0, 1], "y": [1.0, 0.5]})["already"]
    assert service.answer("tell", {"ids": 1, "y": 0.5, "key": "new"})["already"]
    assert [service.answer("forget", {"ids": [3]})["already"] for _ in range(2)] == [False, True]
    service.answer("tell", {"actions": [service.answer("pending", {})["actions"][0]], "y": 1.0})
    for operation, request in (
        ("tell", {"ids": [0], "y": 2.0}),
        ("tell", {"ids": [0, 4], "y": [1.0, 1.0]}),
        ("tell", {"ids": [3], "y": 0.0}),
        ("tell", {"ids": [2], "y": 1.0}),
        ("forget", {"ids": [0]}),
    ):
        with pytest.raises(AlreadyToldError, match="settled"):
            service.answer(operation, request)
    for number in (5, -1, 10**30):
        with pytest.raises(UnknownIdError, match="5 point"):
            service.answer("tell", {"ids": [number], "y": 0.0})
    assert service.bandit.history.Y.tolist() == [0.5, 1.0, 1.0]
    assert service.bandit.pending_ids == (4,)


def test_what_is_remembered_is_bounded_and_what_is_not_is_told_no_second_time(service, monkeypatch):
    monkeypatch.setattr(book, "REMEMBERED", 4)
    asked = [service.answer("ask", {"q": 2, "key": f"{number}"}) for number in range(4)]
    assert service.answer("ask", {"q": 2, "key": "3"}) == asked[3]
    assert service.answer("ask", {"q": 2, "key": "0"})["ids"] == [8, 9]
    for number in range(8):
        service.answer("tell", {"ids": number, "y": 1.0})
    assert service.answer("tell", {"ids": 7, "y": 1.0})["already"]
    with pytest.raises(AlreadyToldError, match="before the last 4"):
        service.answer("tell", {"ids": 0, "y": 1.0})
    content = service._book.content()
    assert (service.bandit.num_told, len(content["keys"]), len(content["ids"])) == (8, 2, 4)


REFUSED = {
    "ask": [
        ({"q": 0}, "q must be"), ({"q": 1001}, "at most 1,000"), ({"q": True}, "q must be"), ({"n": 1}, "no field"),
        ({"key": ""}, "key must be"), ({"key": "k" * 201}, "key must be"), ({"context": [0.5]}, "neither contexts"),
        ({"time": 3}, "no memory"), ({"time": "yesterday"}, "ISO 8601"),
    ],
    "tell": [
        ({"ids": [0]}, "y is missing"), ({"ids": [0, 0], "y": [1, 2]}, "different whole numbers"),
        ({"ids": [True], "y": [1]}, "different whole numbers"), ({"ids": [0], "y": "1"}, "y must be"),
        ({"ids": [0], "actions": [[0.5, 0.5]], "y": 1}, "Give ids, or actions"), ({"ids": [0], "y": []}, "y must be"),
        ({"ids": [0], "y": [1, 2]}, "a reward for each"), ({"ids": [0], "y": 10**400}, "a float holds"),
        ({"actions": [[0.5]], "y": 1}, "2 columns"), ({"actions": [[0.5, 0.5], [0.5]], "y": [1, 1]}, "equal length"),
        ({"actions": [0.5, 0.5], "y": 1}, "list of lists"), ({"actions": [[10**400, 0.5]], "y": 1}, "a float holds"),
        ({"ids": [0], "y": 1, "outcomes": {"temperature": 71.3}}, "rewards alone|outcome"),
        ({"ids": [0], "y": 1, "time": [None, "x"]}, "ISO 8601"), ({"ids": [0], "failed": 1}, "failed must be"),
    ],
    "forget": [
        ({}, "Give ids, or actions"), ({"all": False}, '"all": true'), ({"all": True, "ids": [0]}, '"all": true'),
        ({"actions": [[0.5, 0.5]]}, "pending"),
    ],
    "belief": [({}, "points is missing"), ({"points": [[0.5]]}, "2 columns")],
    "recommend": [({"q": 1}, "no field here")],
    "restart": [({}, "operation must be")],
}  # fmt: skip


def test_what_does_not_fit_is_refused_and_changes_nothing(service):
    service.answer("ask", {"q": 1})
    size, before = service.journal.size, str(service.bandit.state_dict())
    for operation, cases in REFUSED.items():
        for request, message in cases:
            with pytest.raises(InputError, match=message):
                service.answer(operation, request)
            assert service.journal.size == size
            assert str(service.bandit.state_dict()) == before
    assert service.answer("tell", {"ids": [0], "y": 1.0}) == {"already": False, "told": 1}


def test_belief_and_recommendation_are_the_bandits_and_a_record_is_as_long_as_what_is_new(service):
    sizes = []
    for number in range(12):
        before = service.journal.size
        asked = service.answer("ask", {})
        service.answer("tell", {"ids": asked["ids"], "y": 0.5})
        sizes.append(service.journal.size - before)
        assert service.journal.num_syncs == 2 * (number + 1)
    assert max(sizes) <= min(sizes) + 12  # digits of ids and of points
    found, posterior = service.answer("belief", {"points": ARMS[:5].tolist()}), service.bandit.model.posterior(ARMS[:5])
    assert found["means"] == pytest.approx(posterior.mean.flatten().tolist())
    assert found["deviations"] == pytest.approx(posterior.variance.sqrt().flatten().tolist())
    assert service.answer("recommend", {})["actions"] == service.bandit.recommend().tolist()


def test_ages_are_counted_from_the_ask_and_rewards_may_be_late(tmp_path):
    served = Service.open(saved(BANDITS["dated"], tmp_path))
    served.answer("ask", {"time": 10.0})
    served.answer("ask", {"q": 2, "time": 25})
    assert served.answer("pending", {})["ages"] == [15.0, 0.0, 0.0]
    served.answer("tell", {"ids": [1], "y": 1.0})
    served.answer("tell", {"ids": [0, 2], "y": [2.0, 3.0], "time": [5.0, 30.0]})
    again = Service.open(crash(served, tmp_path / "after"))
    assert again.bandit.history.times.tolist() == served.bandit.history.times.tolist() == [25.0, 5.0, 30.0]
    with pytest.raises(InputError):
        again.answer("ask", {"time": 29.0})


def test_a_parameter_space_is_told_configurations(tmp_path):
    served = Service.open(saved(BANDITS["space"], tmp_path))
    served.answer("tell", {"actions": [{"rate": 1.0, "kind": "b"}], "y": [2.0]})
    again = Service.open(crash(served, tmp_path / "after"))
    assert again.answer("recommend", {})["actions"] == [{"rate": pytest.approx(1.0), "kind": "b"}]
    assert len(again.answer("belief", {"points": [{"rate": 1.0, "kind": "a"}]})["means"]) == 1
    with pytest.raises(InputError, match="kind"):
        again.answer("tell", {"actions": {"rate": 1.0, "kind": "z"}, "y": 2.0})


def test_a_file_has_one_writer_and_what_others_wrote_is_not_taken_for_its_own(service, tmp_path):
    with pytest.raises(InputError, match="Another process serves"):
        Service.open(service.path)
    service.answer("tell", {"ids": service.answer("ask", {})["ids"], "y": 1.0})
    path = crash(service, tmp_path / "after")
    BANDITS["box"]().save(path)
    with pytest.raises(StateMismatchError, match="not the file that its journal"):
        Service.open(path)
    path.with_name("bandit.kb.journal").unlink()
    Service.open(path).close()  # and now none is missing
    bkb().save(path)
    assert Service.open(path).bandit.num_asked == 0


@pytest.mark.parametrize("failing", ["write", "fsync", "append"])
def test_where_the_disk_fails_or_is_interrupted_nothing_is_answered_and_what_was_is_there(
    failing, service, tmp_path, monkeypatch
):
    asked = service.answer("ask", {"q": 3})
    service.answer("tell", {"ids": [0], "y": 1.0})
    write = os.write

    def full(file, *line):
        for each in line:
            write(file, each[: len(each) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    kind, said = (KilledError, "interrupted") if failing == "append" else (NotSavingError, "No space left")
    with monkeypatch.context() as patch:
        patch.setattr(*((service.journal, failing, killed) if failing == "append" else (os, failing, full)))
        with pytest.raises(kind):
            service.answer("tell", {"ids": [1], "y": 2.0})
    for operation in ("ask", "tell", "pending"):
        with pytest.raises(NotSavingError, match=said):
            service.answer(operation, {"ids": [1], "y": 2.0} if operation == "tell" else {})
    assert service.failure or failing == "append"
    again = Service.open(crash(service, tmp_path / "after"))
    assert again.bandit.history.Y.tolist()[:1] == [1.0]
    assert again.answer("pending", {})["actions"][-1:] == asked["actions"][2:]


def test_a_bandit_that_cannot_be_saved_whole_goes_on_with_its_journal(tmp_path, monkeypatch, caplog):
    served = Service.open(saved(bkb, tmp_path), compact_after=2)

    def refused(*_):
        raise FileError(errno.ENOSPC, "no room", "draft")

    with monkeypatch.context() as patch:
        patch.setattr(Bandit, "save", refused)
        for _ in range(3):
            served.answer("tell", {"ids": served.answer("ask", {})["ids"], "y": 1.0})
    assert "journal goes on" in caplog.text
    assert Service.open(crash(served, tmp_path / "after")).bandit.num_told == 3


def test_what_a_file_does_not_hold_is_given_or_refused(tmp_path):
    class Mine(RBFKernel):
        pass

    def make():
        return algorithms.BKB(candidates=ARMS, kernel=Mine().double(), regularization=0.1, beta=2.0, seed=0)

    path = saved(make, tmp_path)
    with pytest.raises(StateMismatchError, match="into"):
        Service.open(path)
    served = Service.open(path, into=make())
    asked = served.answer("ask", {"q": 2})
    again = Service.open(crash(served, tmp_path / "after"), into=make())
    assert again.answer("pending", {})["actions"] == asked["actions"]
    words = {"regularization": 0.1, "kernel": rbf(0.4), "seed": 0, "beta": 2.0}
    bandit = algorithms.SparQGPUCB(candidates=ARMS, expert=lambda X, time: None, questions=1.0, **words)
    bandit.save(path)
    with pytest.raises(InputError, match="expert"):  # what that says is in no journal
        Service.open(path, into=bandit)
    with pytest.raises(InputError, match="compact_after"):
        Service.open(path, compact_after=0)
    for none in (tmp_path / "none.kb", tmp_path / "no folder" / "none.kb"):
        with pytest.raises(FileError):
            Service.open(none)
