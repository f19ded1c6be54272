"""What callbacks are told, and what a log says, is what was asked and told; nothing of a bandit depends on them."""

import copy
import json
import logging
import math
import pickle
import warnings
from io import FileIO

import pytest
import torch
from kinds import ARMS, KINDS, composed, make, of_each_round, play, points, rewarded, same

from torch_kbandits import Bandit, InputError
from torch_kbandits.bandit import Callback, JSONLog, callbacks
from torch_kbandits.errors import FileError, KernelBanditWarning
from torch_kbandits.observations import Expiry


class Notes(Callback):
    """Keeps what it is called with, and the round then."""

    def __init__(self):
        self.asked, self.told, self.events = [], [], []

    def on_ask(self, bandit, suggestion):
        self.asked.append(suggestion)
        self.events.append(("ask", bandit.round, bandit.pending_ids))

    def on_tell(self, bandit, told):
        self.told.append(told)
        self.events.append(("tell", bandit.round, bandit.pending_ids))


class Failing(Callback):
    def on_ask(self, bandit, suggestion):
        raise OSError("the tracker is away")

    on_tell = on_ask


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def plain(value):
    """A number as JSON has it."""
    return None if math.isnan(value) else value


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", KINDS)
def test_a_log_says_what_was_asked_and_told_and_changes_nothing(name, tmp_path):
    kind, path = KINDS[name], tmp_path / "log.jsonl"
    silent, logged, notes = kind.make(), kind.make(), Notes()
    logged.log_to(path, contexts=True)
    logged.add_callback(notes)
    asked = [play(kind, bandit, kind.rounds) for bandit in (silent, logged)]
    assert all(map(same, map(points, asked[0]), map(points, asked[1])))
    history = logged.history  # but for propensities, which are noted where somebody is told
    assert same(silent.history._replace(propensities=None), history._replace(propensities=None))
    assert same(silent.pending, logged.pending)

    lines = lines_of(path)
    asks, tells = ([line for line in lines if line["event"] == event] for event in ("ask", "tell"))
    assert [line["id"] for line in asks] == list(range(logged.num_asked))
    X = torch.cat([suggestion.points for suggestion in notes.asked])
    assert torch.equal(torch.cat([points(found.x) for found in notes.asked]), torch.cat([*map(points, asked[1])]))
    for line, action in zip(asks, torch.cat([*map(points, asked[1])]).tolist(), strict=True):
        assert isinstance(line["action"], dict) or line["action"] == action
        if "actions" in line:
            assert line["actions"][line["row"]] == action
            assert line["num_actions"] == len(line["actions"])
        elif "row" in line:
            source = logged.candidates.untimed.source if logged.candidates.is_timed else logged.candidates.source
            assert source.block(line["row"], line["row"] + 1)[0].tolist() == action
            assert line["num_actions"] == len(source)
    assert [line["std"] for line in asks] == torch.cat([found.std for found in notes.asked]).tolist()
    # Told by id: what is played is what was asked for, at the time of its ask.
    ids = [line["id"] for line in tells]
    assert torch.equal(X[ids], history.X)
    propensities = [math.nan] * len(ids) if history.propensities is None else history.propensities.tolist()
    assert [asks[number].get("propensity") for number in ids] == [*map(plain, propensities)]
    assert [line["reward"] for line in tells] == [*map(plain, history.Y.tolist())]
    assert [line["failed"] for line in tells] == history.lost.tolist()
    assert [line["round"] for line in tells] == history.rounds.tolist()
    if history.times is not None:
        assert [asks[number]["time"] for number in ids] == history.times.tolist() == [line["time"] for line in tells]
    if history.outcomes is not None:
        expected = [dict(zip(logged.outcomes, map(plain, row), strict=True)) for row in history.outcomes.tolist()]
        assert [line["outcomes"] for line in tells] == expected
    assert torch.equal(torch.cat([told.history.X for told in notes.told]), history.X)
    assert [number for told in notes.told for number in told.ids] == ids


def test_callbacks_see_what_changed_in_the_order_added():
    bandit, notes = make("bkb"), [Notes(), Notes()]
    for each in notes:
        bandit.add_callback(each)
    assert bandit.callbacks == notes
    x = bandit.ask(2)
    bandit.tell(x[:1], 0.5)
    bandit.ask(remember=False)
    bandit.mark_pending(ARMS[:1])
    bandit.callbacks.remove(notes[1])
    bandit.tell(torch.cat([ARMS[:2], x[1:]]), [1.0, 2.0, 3.0])
    assert notes[0].events == [("ask", 0, (0, 1)), ("tell", 1, (1,)), ("tell", 2, ())]
    assert notes[1].events == notes[0].events[:2]
    assert [told.ids for told in notes[0].told] == [(0,), (2, None, 1)]
    assert notes[0].told[1].history.Y.tolist() == [1.0, 2.0, 3.0]


def test_runs_and_what_expired_are_told():
    """In a run once the round is over; points that expire as failed with what is told next, or asked."""
    words = {"expire_after": Expiry(1.0, "fail")}
    bandit, plain, notes = composed(**words), composed(**words), Notes()
    bandit.add_callback(notes)
    waiting = bandit.ask(2)
    assert torch.equal(waiting, plain.ask(2))
    played = [each.run(lambda x: float(x.sum()), 2) for each in (bandit, plain)]
    assert torch.equal(*played)
    assert [told.ids for told in notes.told] == [(2,), (0, 1, 3)]
    assert notes.told[1].history.lost.tolist() == [True, True, False]
    assert torch.equal(torch.cat([told.history.X for told in notes.told]), bandit.history.X)
    assert [(found.ids, found.time) for found in notes.asked] == [((0, 1), 0.0), ((2,), 0.0), ((3,), 2.0)]
    assert [event for event, *_ in notes.events] == ["ask", "ask", "tell", "ask", "tell"]


def test_one_that_fails_is_named_and_nothing_is_lost():
    bandit, plain, notes = make("bkb"), make("bkb"), Notes()
    bandit.add_callback(Failing())
    bandit.add_callback(notes)
    with pytest.warns(KernelBanditWarning, match=r"Failing.on_ask failed.*OSError: the tracker is away") as caught:
        x = bandit.ask()
    assert caught[0].filename == __file__
    with pytest.warns(KernelBanditWarning, match="Failing.on_tell failed") as caught:
        bandit.tell(x, 0.5)
    assert caught[0].filename == __file__
    plain.tell(plain.ask(), 0.5)
    assert len(notes.events) == 2
    assert same(bandit.history._replace(propensities=None), plain.history._replace(propensities=None))
    bandit.callbacks.pop(0)
    assert torch.equal(bandit.ask(), plain.ask())


def test_an_ask_or_tell_that_fails_is_told_to_nobody():
    bandit, notes = make("bkb"), Notes()
    bandit.add_callback(notes)
    for call in (lambda: bandit.ask(context=[1.0]), lambda: bandit.tell(ARMS[:1], math.nan)):
        with pytest.raises(InputError):
            call()
    assert notes.events == []


def test_copies_pickles_and_files_have_none(tmp_path):
    bandit = make("bkb")
    bandit.log_to(tmp_path / "log.jsonl")
    bandit.save(tmp_path / "bandit.kb")
    others = (
        copy.copy(bandit),
        copy.deepcopy(bandit),
        pickle.loads(pickle.dumps(bandit)),
        Bandit.load(tmp_path / "bandit.kb"),
    )
    assert [each.callbacks for each in others] == [[]] * 4
    others[0].tell(others[0].ask(), 1.0)
    assert lines_of(tmp_path / "log.jsonl") == []
    assert len(bandit.callbacks) == 1


@pytest.mark.parametrize("wrong", [None, 3, print, Notes, object()])
def test_what_is_no_callback_is_refused(wrong):
    bandit = make("bkb")
    with pytest.raises(InputError, match="on_ask and on_tell"):
        bandit.add_callback(wrong)
    assert bandit.callbacks == []


def test_what_cannot_be_written_is_written_later(tmp_path):
    folder, away = tmp_path / "logs", tmp_path / "away"
    folder.mkdir()
    bandit = KINDS["ek-ucb, sets of each round"].make()
    bandit.log_to(folder / "log.jsonl")
    for number in range(4):
        if number in (1, 3):
            (folder, away)[number == 3].rename((away, folder)[number == 3])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            bandit.ask(**of_each_round(number))
            bandit.tell(ids=number, **rewarded(bandit.pending, number))
        said = [str(each.message) for each in caught]
        assert len(said) == (2 if number in (1, 2) else 0)
        assert all("JSONLog.on_" in each and "cannot be written" in each for each in said)
    lines = lines_of(folder / "log.jsonl")
    assert [(line["event"], line["id"]) for line in lines] == [
        (event, n) for n in range(4) for event in ("ask", "tell")
    ]
    assert [line["reward"] for line in lines[1::2]] == bandit.history.Y.tolist()


def test_a_disk_that_takes_half_a_line_gets_the_other_half(tmp_path, monkeypatch):
    """The rest of a line comes where it was cut, so that the file is whole again."""
    path, room = tmp_path / "log.jsonl", [70, 0, 10**9]

    class Disk(FileIO):
        def __init__(self, path, mode, buffering):
            super().__init__(path, mode)
            self.room = room.pop(0)

        def write(self, content):
            if not self.room:
                raise OSError(28, "No space left on device")
            written = super().write(content[: self.room])
            self.room -= written
            return written

    bandit = make("bkb")
    bandit.log_to(path)
    monkeypatch.setattr(callbacks, "open", Disk, raising=False)
    with pytest.warns(KernelBanditWarning, match="No space left"):
        x = bandit.ask(2)
    assert path.stat().st_size == 70
    with pytest.warns(KernelBanditWarning, match="No space left"):
        bandit.tell(x, [0.5, 1.5])
    bandit.ask()
    assert [line["id"] for line in lines_of(path)] == [0, 1, 0, 1, 2]


def test_a_logger_gets_each_line(caplog):
    bandit = make("bkb")
    bandit.log_to(logging.getLogger("choices"))
    with caplog.at_level(logging.INFO, "choices"):
        bandit.tell(bandit.ask(2), [0.5, 1.5])
    said = [json.loads(record.getMessage()) for record in caplog.records]
    assert [(line["event"], line["id"]) for line in said] == [("ask", 0), ("ask", 1), ("tell", 0), ("tell", 1)]
    assert [line.get("reward") for line in said] == [None, None, 0.5, 1.5]


def test_where_nothing_can_be_logged_is_said_at_once(tmp_path):
    bandit = make("bkb")
    for where, kind in (
        (3, InputError),
        (None, InputError),
        (tmp_path, FileError),
        (tmp_path / "no" / "log", FileError),
    ):
        with pytest.raises(kind):
            bandit.log_to(where)
    with pytest.raises(InputError, match="contexts"):
        bandit.log_to(tmp_path / "log.jsonl", contexts=1)
    assert bandit.callbacks == []
    bandit.log_to(tmp_path / "log.jsonl")
    assert isinstance(bandit.callbacks[0], JSONLog)
    with pytest.raises(InputError, match="already"):
        bandit.log_to(str(tmp_path / ".." / tmp_path.name / "log.jsonl"))
    assert len(bandit.callbacks) == 1


def test_digests_of_contexts_are_equal_where_contexts_are(tmp_path):
    bandit = KINDS["ek-ucb, contexts"].make()
    bandit.log_to(tmp_path / "log.jsonl")
    for context in ([0.25], [0.5], [0.25], [0.0], [-0.0]):
        bandit.ask(context=context)
    lines = lines_of(tmp_path / "log.jsonl")
    first, other, again, zero, same_zero = (line["context_digest"] for line in lines)
    assert first == again
    assert zero == same_zero
    assert len({first, other, zero}) == 3
    assert all("context" not in line for line in lines)
