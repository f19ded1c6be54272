"""A served bandit is the bandit that was told the same without a server, whatever is killed in between."""

import errno
import hashlib
import json
import math
import os
import random
from contextlib import suppress
from functools import partial

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from calls import VALID, WRONG
from gpytorch.kernels import RBFKernel
from problems import DOUBLE, examples, rbf
from served import ARMS, BANDITS, about_round, bkb, crash, saved

from torch_kbandits import Bandit, LearnedPrior, algorithms
from torch_kbandits.errors import DamagedFileError, FileError, InputError, KernelBanditError, StateMismatchError
from torch_kbandits.serving import Service
from torch_kbandits.serving import service as service_module
from torch_kbandits.serving.journal import parsed
from torch_kbandits.serving.requests import RefusedError

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
    steps=[("ask", 2), ("crash", b""), ("tell", 0), ("ask", 1), ("crash", b"9"), ("tell", 1), ("tell actions", 0)]
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
                choice, **{word: numbers(value) for word, value in about.items()}, **when, details=True
            )
            assert tuple(answer["ids"]) == expected.ids
            assert torch.allclose(numbers(answer["actions"]), numbers(expected.x), rtol=0.0, atol=near)
            assert answer.get("rows") == (None if expected.rows is None else expected.rows.tolist())
            known = [("means", expected.mean), ("deviations", expected.std), ("propensities", expected.propensities)]
            for said, values in known:
                assert (said in answer) == (values is not None)
                if values is not None:
                    assert answer[said] == pytest.approx(values.tolist(), rel=1e-6, abs=1e-6 + near, nan_ok=True)
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
    for part in ("history", "pending"):
        for name, ours in states[0][part].items():
            theirs = states[1][part][name]
            if isinstance(ours, torch.Tensor):
                assert torch.allclose(ours, theirs, rtol=0.0, atol=near, equal_nan=True), name
            else:  # numbers may be NaN
                assert str(ours) == str(theirs), name


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
        "in place": (type(served.journal), "restart"),
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
        with pytest.raises(RefusedError, match="another request"):
            service.answer(operation, request)
    told = {"actions": [ARMS[0].tolist()], "y": 0.5, "key": "c"}
    assert [service.answer("tell", told)["already"] for _ in range(2)] == [False, True]
    assert service.answer("forget", {"all": True, "key": "d"}) == {"already": False}
    service.answer("ask", {})
    assert service.answer("forget", {"all": True, "key": "d"}) == {"already": True}
    assert (service.bandit.num_asked, service.bandit.num_observations, len(service.bandit.pending_ids)) == (7, 1, 1)


def test_an_id_is_told_once(service):
    service.answer("ask", {"q": 5})
    told = {"ids": [1, 0], "y": [0.5, 1]}
    assert [service.answer("tell", told | {"key": key})["already"] for key in ("a", "new")] == [False, True]
    assert [service.answer("forget", {"ids": [3]})["already"] for _ in range(2)] == [False, True]
    service.answer("tell", {"actions": [service.answer("pending", {})["actions"][0]], "y": 1.0})
    for operation, request in (
        ("tell", {"ids": [1, 0], "y": [0.5, 2.0]}),
        ("tell", {"ids": [0], "y": 1.0}),
        ("tell", {"ids": [0, 4], "y": [1.0, 1.0]}),
        ("tell", {"ids": [3], "y": 0.0}),
        ("tell", {"ids": [2], "y": 1.0}),
        ("forget", {"ids": [0]}),
    ):
        with pytest.raises(RefusedError, match="not pending"):
            service.answer(operation, request)
    for number in (5, -1, 10**30):
        with pytest.raises(RefusedError, match="5 were asked"):
            service.answer("tell", {"ids": [number], "y": 0.0})
    assert service.bandit.history.Y.tolist() == [0.5, 1.0, 1.0]
    assert service.bandit.pending_ids == (4,)


def test_what_is_remembered_is_bounded_and_what_is_not_is_told_no_second_time(service, monkeypatch):
    monkeypatch.setattr(service_module, "REMEMBERED", 4)
    asked = [service.answer("ask", {"q": 2, "key": f"{number}"}) for number in range(4)]
    assert service.answer("ask", {"q": 2, "key": "3"}) == asked[3]
    assert service.answer("ask", {"q": 2, "key": "0"})["ids"] == [8, 9]
    for number in range(8):
        service.answer("tell", {"ids": number, "y": 1.0})
    assert service.answer("tell", {"ids": 7, "y": 1.0})["already"]
    with pytest.raises(RefusedError, match="latest 4"):
        service.answer("tell", {"ids": 0, "y": 1.0})
    service.compact()
    records, *_ = parsed(service.journal.path.read_bytes(), "journal")
    assert (service.bandit.num_observations, len(records[0]["answers"])) == (8, 4)


def test_rows_and_names_come_and_go(tmp_path):
    """Of arms with names, and of the actions of a round; after a crash a request that comes again has them again."""
    served, plain = Service.open(saved(BANDITS["named"], tmp_path)), BANDITS["named"]()
    asked = served.answer("ask", {"q": 2, "distinct": True, "exclude": ["arm 0", "arm 1"], "key": "a"})
    expected = plain.ask(2, distinct=True, exclude=[0, 1], details=True)
    assert asked["names"] == list(expected.names) == [f"arm {row}" for row in asked["rows"]]
    assert asked["propensities"] == expected.propensities.tolist()
    assert {0, 1}.isdisjoint(asked["rows"])
    assert len({*asked["rows"]}) == 2
    served = Service.open(crash(served, tmp_path / "crashed"))
    assert served.answer("ask", {"q": 2, "distinct": True, "exclude": ["arm 0", "arm 1"], "key": "a"}) == asked
    served.answer("tell", {"rows": asked["names"][::-1], "y": [0.5, 1.5]})
    served.answer("tell", {"rows": [7], "y": [-1.0]})
    plain.tell(rows=asked["rows"][::-1], y=[0.5, 1.5])
    plain.tell(rows="arm 7", y=-1.0)
    assert_same(served.bandit, plain, 0.0)
    assert not served.bandit.pending_ids
    best = served.answer("recommend", {})
    assert best["actions"] == plain.recommend().tolist() == [ARMS[best["rows"][0]].tolist()]
    assert best["names"] == [f"arm {best['rows'][0]}"]
    with pytest.raises(InputError, match="did you mean 'arm 7'"):
        served.answer("tell", {"rows": "Arm 7", "y": 1.0})
    served.close()


def test_rows_of_a_round_are_told_with_its_actions(tmp_path):
    served = Service.open(saved(BANDITS["contexts"], tmp_path))
    about = {"context": [0.5], "candidates": [[0.1], [0.9], [0.4]]}
    asked = served.answer("ask", about)
    assert asked["actions"] == [about["candidates"][asked["rows"][0]]]
    assert "names" not in asked
    served.answer("tell", about | {"rows": asked["rows"], "y": 1.0})
    served.answer("tell", about | {"rows": [2], "y": 3.0})
    assert served.bandit.pending_ids == ()
    assert served.bandit.history.X.tolist() == [[0.5, *asked["actions"][0]], [0.5, 0.4]]
    best = served.answer("recommend", about)
    assert best["actions"] == [about["candidates"][best["rows"][0]]]
    with pytest.raises(InputError, match="candidates="):
        served.answer("tell", {"rows": [2], "context": [0.5], "y": 3.0})
    served.close()


REFUSED = {
    "ask": [
        ({"q": 0}, "q must be"), ({"q": 1001}, "at most 1,000"), ({"q": True}, "q must be"),
        ({"n": 1}, "a field must be"),
        ({"key": "k" * 201}, "key must be"), ({"context": [0.5]}, "neither contexts"), ({"time": "today"}, "ISO 8601"),
    ],
    "tell": [
        ({"ids": [0]}, "y is missing"), ({"ids": [0, 0], "y": [1, 2]}, "different whole numbers"),
        ({"ids": [True], "y": [1]}, "different whole numbers"), ({"ids": [0], "y": "1"}, "y must be"),
        ({"ids": [0], "actions": [[0.5, 0.5]], "y": 1}, "Give ids, or actions"),
        ({"rows": [40], "y": 1}, "from 0 to 39"),
        ({"ids": [0], "rows": [0], "y": 1}, "rows or names"), ({"rows": ["a"], "y": 1}, "a name, and these"),
        ({"ids": [0], "y": []}, "y must have"),
        ({"ids": [0], "y": [1, 2]}, "a reward for each"), ({"ids": [0], "y": 10**400}, "a float holds"),
        ({"actions": [[0.5]], "y": 1}, "2 columns"), ({"actions": [[0.5, 0.5], [0.5]], "y": [1, 1]}, "real numbers"),
        ({"ids": [0], "y": 1, "time": [None, "x"]}, "ISO 8601"), ({"ids": [0], "y": ARMS}, "what JSON holds"),
        ({"ids": [0], "y": 1, "outcomes": {"heat": math.nan}}, "what JSON holds"),
        ({"ids": [0], "failed": 1}, "failed must be"),
    ],
    "forget": [
        ({}, "Give ids, or actions"), ({"all": False}, '"all": true'), ({"all": True, "ids": [0]}, '"all": true'),
        ({"actions": [[0.5, 0.5]]}, "pending"),
    ],
    "posterior": [({}, "points is missing"), ({"points": [[0.5]]}, "2 columns")],
    "recommend": [({"q": 1}, "a field must be")],
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


def test_surrogate_and_recommendation_are_the_bandits_and_a_record_is_as_long_as_what_is_new(service):
    sizes = []
    for number in range(12):
        before = service.journal.size
        asked = service.answer("ask", {})
        service.answer("tell", {"ids": asked["ids"], "y": 0.5})
        sizes.append(service.journal.size - before)
        assert service.journal.num_syncs == 2 * (number + 1)
    assert max(sizes) <= min(sizes) + 60  # digits of ids, of points and of what is known of them
    found, posterior = (
        service.answer("posterior", {"points": ARMS[:5].tolist()}),
        service.bandit.model.posterior(ARMS[:5]),
    )
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

    kind, said = (KilledError, "interrupted") if failing == "append" else (RefusedError, "No space left")
    with monkeypatch.context() as patch:
        patch.setattr(*((service.journal, failing, killed) if failing == "append" else (os, failing, full)))
        with pytest.raises(kind):
            service.answer("tell", {"ids": [1], "y": 2.0})
    for operation in ("ask", "tell", "pending"):
        with pytest.raises(RefusedError, match=said):
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
    assert Service.open(crash(served, tmp_path / "after")).bandit.num_observations == 3


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


@pytest.mark.parametrize("make", [algorithms.SparQGPUCB, partial(algorithms.WSparQGPUCB, window=3.0)])
def test_questions_are_answered_over_the_service_and_answers_outlive_a_crash(make, tmp_path):
    words = {"regularization": 0.1, "kernel": rbf(0.4), "seed": 0, "beta": 2.0, "questions": 3.0}
    served = Service.open(saved(lambda: make(candidates=ARMS, expert=None, **words), tmp_path))
    alone = make(candidates=ARMS, expert=None, **words)
    for t in range(9):
        found = served.answer("questions", {})
        assert found["points"] == alone.questions().tolist()
        if found["points"]:
            said = {"points": found["points"], "y": [math.sin(5.0 * x + t) for x, _ in found["points"]]}
            assert served.answer("answer", said | {"variance": 0.01, "key": f"{t}"}) == {"already": False}
            assert served.answer("answer", said | {"variance": 0.01, "key": f"{t}"}) == {"already": True}
            alone.answer(said["points"], said["y"], 0.01)
            assert served.answer("questions", {}) == {"actions": [], "points": []}
        if t % 4 == 2:
            served = Service.open(crash(served, tmp_path / f"after {t}"))
        asked = served.answer("ask", {})
        assert torch.equal(numbers(asked["actions"]), alone.ask())
        served.answer("tell", {"ids": asked["ids"], "y": 0.5})
        alone.tell(alone.pending, 0.5)
    with pytest.raises(InputError, match="variance is missing"):
        served.answer("answer", {"points": [[0.5, 0.5]], "y": [0.5]})
    with pytest.raises(InputError, match="at least 0, got -1"):
        served.answer("answer", {"points": [[0.5, 0.5]], "y": [0.5], "variance": -1.0})


def seen(served):
    """All that a client can see of what was answered."""
    bandit = served.bandit
    told = [[None if y != y else y for y in bandit.history.Y.tolist()], bandit.history.X.tolist()]
    return bandit.pending.tolist(), bandit.pending_ids, bandit.round, bandit.num_asked, told


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", BANDITS)
def test_what_was_taken_can_be_read_again_however_odd_it_is(name, tmp_path):
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
    served.answer("ask", {"q": 3})
    served.answer("tell", {"ids": [0], "y": 1.0})
    before = seen(served)
    deed(served.path.with_name(served.path.name + ending))
    for operation, words in (("tell", {"ids": [1], "y": 2.0}), ("ask", {})):
        with pytest.raises(RefusedError, match="another process"):
            served.answer(operation, words)
    assert served.failure
    assert seen(Service.open(served.path.with_name(served.path.name + ".rescued"))) == before
    served.journal.close()
    served._sole.release()


def a_journal(*payloads):
    """The bytes of a journal of these payloads, written from its description: checksums fit."""
    content = b"torch_kbandits journal 2\n"
    digest = hashlib.blake2b(content, digest_size=8).digest()
    for payload in payloads:
        digest = hashlib.blake2b(digest + payload, digest_size=8).digest()
        content += b"%d %s %s\n" % (len(payload), digest.hex().encode(), payload)
    return content


SAID = {"ids": [0], "rows": [2], "propensities": [0.5]}
ASK = {"op": "ask", "key": None, "known": "", "time": None, "points": [[0.5, 0.5]], "stages": None, "answer": SAID}
TELL = {"op": "tell", "key": None, "known": "", "request": {"actions": [[0.5, 0.5]], "y": 1.0}}
WRONG_SAID = {}, {"ids": [7]}, {"rows": [0, 1]}, {"rows": ["a"]}, {"propensities": "p"}, {"propensities": [0.5, 0.5]}
CRAFTED = (
    "{", "[" * 100_000, "[]", "9" * 5000, {}, {"op": "_round", "request": {}}, ASK | {"points": []},
    *(ASK | {"answer": wrong and SAID | wrong} for wrong in WRONG_SAID), ASK | {"points": [[10**400, 0]]},
    ASK | {"key": [1]}, TELL | {"request": "y"}, {"op": "begin", "answers": None},
)  # fmt: skip


@pytest.mark.parametrize("record", CRAFTED, ids=range(len(CRAFTED)))
def test_a_journal_that_nobody_wrote_is_named(record, tmp_path):
    served = Service.open(saved(bkb, tmp_path))
    begin = json.dumps(parsed(served.journal.path.read_bytes(), "journal")[0][0]).encode()
    served.close()
    served.journal.path.write_bytes(
        a_journal(begin, (record if isinstance(record, str) else json.dumps(record)).encode())
    )
    with pytest.raises(DamagedFileError, match="record 2"):
        Service.open(served.path)
    served.journal.path.write_bytes(a_journal(begin, *(json.dumps(each).encode() for each in (ASK, TELL))))
    assert Service.open(served.path).bandit.history.propensities.tolist() == [0.5]


def f(action):
    return float(torch.sin(torch.tensor(5.0 * action[0])) * action[1])


def test_no_fit_is_made_again_after_a_crash_and_outcomes_without_a_reward_are_refused(tmp_path, monkeypatch):
    served, fits, fitted = Service.open(saved(BANDITS["fitted_outcome"], tmp_path)), [], LearnedPrior.fitted

    def counted(self, *arguments, units_only, **words):
        fits.append(units_only)
        return fitted(self, *arguments, units_only=units_only, **words)

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


def test_propensities_are_answered_and_kept_over_a_crash(tmp_path):
    """Of listed candidates, also where nobody asked for a floor; on a box there are none."""
    served = Service.open(saved(lambda: BANDITS["bkb"](epsilon=0.3), tmp_path))
    asked = served.answer("ask", {"q": 3})
    assert all(0.3 / len(ARMS) <= each <= 1.0 for each in asked["propensities"])
    served = Service.open(crash(served, tmp_path / "crash"))
    served.answer("tell", {"ids": asked["ids"], "y": [0.1, 0.2, 0.3]})
    assert served.bandit.history.propensities.tolist() == asked["propensities"]
    served.close()
    for name, says in (("bkb", 1.0), ("box", None)):
        (tmp_path / name).mkdir()
        served = Service.open(saved(BANDITS[name], tmp_path / name))
        served.answer("tell", {"actions": [[0.25, 0.5]], "y": [0.1]})
        answer = served.answer("ask", {"key": "a"}).get("propensities")
        assert (answer if says is None else answer[0]) == says
        served.close()


def test_it_says_when_to_stop(service):
    request = {"regret": 0.5, "no_better_by": 0.1}
    assert service.answer("stop", request) == {"stop": False, "no_better_by": None, "regret": None}
    service.answer("tell", {"rows": [0, 1, 2], "y": [0.1, 0.2, 0.3]})
    bandit = service.bandit
    bound, gain = bandit.regret_bound(), bandit.largest_expected_improvement()
    assert service.answer("stop", request) == {"stop": False, "no_better_by": gain, "regret": bound}
    assert service.answer("stop", {"regret": 1.01 * bound}) == {"stop": True, "regret": bound}
    likely = service.answer("stop", {"regret": 0.5, "confidence": 0.9})["regret"]
    assert likely == bandit.regret_bound(confidence=0.9)
    with pytest.raises(InputError, match="Give regret"):
        service.answer("stop", {})
    with pytest.raises(InputError, match="a field must be"):
        service.answer("stop", {"every": 2})


def test_noise_is_told_and_kept_over_a_crash(tmp_path):
    served = Service.open(saved(bkb, tmp_path))
    ids = served.answer("ask", {"q": 4})["ids"]
    served.answer("tell", {"ids": ids[:2], "y": [0.1, 0.2], "noise": [0.5, None]})
    served = Service.open(crash(served, tmp_path / "crash"))
    served.answer("tell", {"ids": ids[2:], "y": [0.3, 0.4], "sem": 0.5})
    assert served.bandit.history.noise.nan_to_num(-1.0).tolist() == [0.5, -1.0, 0.25, 0.25]
    with pytest.raises(InputError, match="noise must be a finite number above 0"):
        served.answer("tell", {"actions": [[0.25, 0.5]], "y": [0.1], "noise": -0.5})
    served.close()
