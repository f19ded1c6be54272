"""Over HTTP only named errors come back, strangers do not come in, and nothing waits that need not."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from calls import LOCAL, call, get, post

from torch_kbandits import Bandit
from torch_kbandits.errors import ArmsChangedError, InfeasibleError, InputError, NumericalError
from torch_kbandits.serving import server

TOKEN = "a token of enough letters"


@contextmanager
def listening(service, token=None):
    with server._Server(service, "127.0.0.1", 0, token, 200_000) as found:
        threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield found
        finally:
            found.stop()


@pytest.fixture
def app(service):
    with listening(service) as found:
        yield found


def test_a_round_over_http(app, service):
    asked = post(app, "/ask", {"q": 2, "key": "a"})
    assert (asked.status, asked.json["ids"]) == (200, [0, 1])
    assert asked.json["actions"] == service.bandit.pending.tolist()
    assert post(app, "/ask", {"q": 2, "key": "a"}).body == asked.body
    assert get(app, "/pending").json["ids"] == [0, 1]
    assert [post(app, "/tell", {"ids": [0], "y": 0.5}).json["already"] for _ in range(2)] == [False, True]
    assert post(app, "/recommend", b"").json["actions"] == asked.json["actions"][:1]
    assert len(post(app, "/posterior", {"points": asked.json["actions"]}).json["deviations"]) == 2
    assert post(app, "/forget", {"all": True}).json == {"already": False}
    health = get(app, "/health").json
    assert (health["told"], health["pending"], health["latency"]["ask"]["count"]) == (1, 0, 2)
    assert health["latency"]["tell"]["seconds"] > 0.0
    assert health["bandit"].keys() == service.bandit.health().as_dict().keys()
    assert get(app, "/ready").json == {"ready": True}
    metrics = get(app, "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = dict(line.rsplit(" ", 1) for line in metrics.body.decode().splitlines() if not line.startswith("#"))
    assert values["kbandits_serving_asked_total"] == "2"
    assert float(values['kbandits_serving_latency_seconds_sum{operation="ask"}']) > 0.0
    assert service.bandit.health().to_prometheus().splitlines()[0] in metrics.body.decode()
    # Half a pair of surrogates, which JSON may hold.
    assert post(app, "/ask", b'{"key": "\\ud800"}').json == post(app, "/ask", b'{"key": "\\ud800"}').json
    assert post(app, "/ask", b'{"\\ud800": 1}').status == 422
    service.journal.path.unlink()
    for answer in (get(app, "/ready"), post(app, "/ask", {}), get(app, "/ready")):
        assert (answer.status, answer.error) == (503, "RefusedError")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error"),
    [
        *(("POST", "/ask", body, 400, "RefusedError") for body in (b"{", b"\xff", b'{"q": 1e999}', b"[" * 100_000)),
        ("POST", "/ask", b'{"q": 0}', 422, "InputError"),
        ("POST", "/tell", b'{"ids": [7], "y": 1}', 409, "RefusedError"),
        ("POST", "/recommend", b"{}", 409, "EmptyHistoryError"),
        ("GET", "/ask", b"", 405, "RefusedError"),
        ("PUT", "/ask", b"{}", 405, "RefusedError"),
        ("GET", "/nothing", b"", 404, "RefusedError"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_wrong_has_a_name_and_a_status(app, method, path, body, status, error):
    answer = call(app, method, path, body)
    assert (answer.status, answer.error) == (status, error)
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("error", "status"),
    [(InfeasibleError, 409), (NumericalError, 422), (ArmsChangedError, 503), (ZeroDivisionError, 500)],
)
def test_errors_of_the_bandit_keep_their_names_and_what_is_unexpected_keeps_its_words(
    app, service, monkeypatch, caplog, error, status
):
    def refused(*_, **__):
        raise error("because")

    size = service.journal.size
    with monkeypatch.context() as patch:
        patch.setattr(Bandit, "ask", refused)
        answer = post(app, "/ask", {})
    assert answer.status == status
    if status == 500:
        assert (answer.error, b"because" in answer.body) == ("InternalError", False)
        assert "ZeroDivisionError: because" in caplog.text
    else:
        assert answer.json == {"error": {"type": error.__name__, "message": "because"}}
    assert service.journal.size == size
    assert post(app, "/ask", {}).json["ids"] == [0]


def test_bodies_are_bounded_say_their_length_and_are_not_waited_for_long(app, service, monkeypatch):
    large = b'{"key": "' + b" " * 200_001 + b'"}'
    unsaid = call(app, "POST", "/ask", b"2\r\n{}\r\n0\r\n\r\n", [*LOCAL, ("transfer-encoding", "chunked")])
    assert (unsaid.status, unsaid.error) == (411, "RefusedError")
    assert call(app, "POST", "/ask", b"{}", length="x").status == 411
    monkeypatch.setattr(server, "_PATIENCE", 0.05)
    for answer, status in ((post(app, "/ask", large), 413), (call(app, "POST", "/ask", b"{", length=7), 408)):
        assert (answer.status, answer.error, answer.headers["connection"]) == (status, "RefusedError", "close")
    assert service.bandit.num_asked == 0


def test_strangers_and_pages_of_other_sites_are_not_answered(app, service):
    for host in ("evil.example", "", "localhost.evil.example:8000", "127.0.0.1.evil", "[::1].x", "["):
        answer = get(app, "/pending", [("host", host)])
        assert (answer.status, answer.error) == (400, "RefusedError")
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:8000", "[::1]:8000", "[::1]"):
        assert get(app, "/pending", [("host", host)]).status == 200
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        answer = post(app, "/ask", {}, [("host", "localhost"), ("content-type", kind)])
        assert (answer.status, answer.error) == (415, "RefusedError")
    headers = [("host", "localhost"), ("content-type", "Application/JSON; charset=utf-8")]
    assert post(app, "/ask", {}, headers).status == 200
    with listening(service, TOKEN) as app:
        for given in ("", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer", "Bearer \xff"):
            for path in ("/pending", "/health", "/metrics", "/nothing"):
                answer = get(app, path, [("host", "bandit.example"), ("authorization", given)])
                assert (answer.status, answer.error) == (401, "RefusedError")
                assert answer.headers["www-authenticate"] == "Bearer"
        assert get(app, "/pending", [("host", "bandit.example"), ("authorization", f"bearer {TOKEN}")]).status == 200
        assert get(app, "/ready", [("host", "bandit.example")]).status == 200


def test_addresses_and_tokens_are_checked():
    for host in ("0.0.0.0", "::", "192.168.1.7", "example.org", ""):
        with pytest.raises(InputError, match="give a token"):
            server._check_address(host, 8000, None)
        server._check_address(host, 8000, TOKEN)
    for host in ("127.0.0.1", "127.0.0.9", "::1", "localhost"):
        server._check_address(host, 0, None)
    for token in ("", "short", "x" * 15, "né" * 20, "x\n" * 20):
        with pytest.raises(InputError, match="token"):
            server._check_address("localhost", 8000, token)
    for port in (-1, 65536, "8000"):
        with pytest.raises(InputError, match="port"):
            server._check_address("localhost", port, None)


def test_while_the_bandit_computes_it_is_ready_and_an_answer_waits_for_the_disk_and_the_bandit_does_not(
    app, service, monkeypatch
):
    ask, sync, turns = Bandit.ask, os.fsync, {name: (threading.Event(), threading.Event()) for name in ("ask", "sync")}

    def slow(name, call, *arguments, **words):
        entered, leave = turns[name]
        entered.set()
        assert leave.wait(10.0)
        return call(*arguments, **words)

    monkeypatch.setattr(Bandit, "ask", lambda *arguments, **words: slow("ask", ask, *arguments, **words))
    monkeypatch.setattr(os, "fsync", lambda file: slow("sync", sync, file))
    with ThreadPoolExecutor() as pool:
        asked = [pool.submit(post, app, "/ask", {}) for _ in range(3)]
        assert turns["ask"][0].wait(10.0)
        assert get(app, "/ready").status == 200
        turns["ask"][1].set()
        while not turns["sync"][0].is_set() or service.journal.position < 3:
            time.sleep(0.001)
        pending = pool.submit(get, app, "/pending")
        time.sleep(0.05)
        assert not any(each.done() for each in (*asked, pending))
        turns["sync"][1].set()
        assert sorted(each.result().json["ids"][0] for each in asked) == [0, 1, 2]
        assert pending.result().json["ids"] == [0, 1, 2]
    assert 1 <= service.journal.num_syncs <= 3  # one, where all were written before the first began
