"""Whoever connects and says or reads nothing is cut off, makes room for others, and does not keep a server alive."""

import json
import random
import re
import signal
import socket
from contextlib import suppress

import pytest
from calls import malformed
from processes import Nursery, end, free_port, insist
from served import BANDITS, saved

from torch_kbandits.serving import server

ASK = b"POST /ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture
def port(tmp_path, monkeypatch):
    """That of a server which waits an eighth of a second, and takes four connections at a time."""
    monkeypatch.setattr(server, "_PATIENCE", 0.125)
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 4)
    found = free_port()
    nursery = Nursery(saved(BANDITS["bkb"], tmp_path), found)
    found_pid = nursery.start()
    insist(found, "GET", "/ready")
    yield found
    end(found_pid, signal.SIGTERM)  # which must end it, whatever is connected
    nursery.close()


def connected(port, sent=b""):
    found = socket.create_connection(("127.0.0.1", port), timeout=20.0)
    found.sendall(sent)
    return found


def closed(connection):
    """Wait until the other side closes a connection, and return what it sent before."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def flood(connection, content):
    for _ in range(1000):
        connection.sendall(content)


def test_who_sends_no_more_is_cut_off_or_makes_room_and_requests_in_a_row_are_answered_in_order(port):
    for several in ((b"", b"GET /rea", b"POST /ask HTTP/1.1\r\n"), (ASK, ASK + b"GET /")):
        connections = [connected(port, sent) for sent in several]
        for sent, connection in zip(several, connections, strict=True):
            assert closed(connection).count(b"200 OK") == sent.count(ASK)
            connection.close()
    for sent in (b"", ASK[:-1]):
        idle = [connected(port, sent) for _ in range(12)]
        assert insist(port, "POST", "/ask", {"key": "a"})["ids"] == [2]
        for each in idle:
            each.close()
    with connected(port, ASK * 5) as connection:
        said = closed(connection)
    assert [json.loads(part.split(b"\r\n\r\n")[1].split(b"HTTP")[0])["ids"] for part in said.split(b"200 OK")[1:]] == [
        [number] for number in range(3, 8)
    ]


def test_who_reads_nothing_is_cut_off(port):
    body = json.dumps({"points": [[0.1, 0.2]] * 40_000}).encode()
    head = f"POST /belief HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20.0)
        connection.connect(("127.0.0.1", port))
        with pytest.raises(ConnectionError):  # of a server that waits for ever it is a timeout
            flood(connection, head.encode() + b"\r\n\r\n" + body)
    assert insist(port, "GET", "/ready") == {"ready": True}


def test_connections_that_break_and_bytes_that_are_no_request_leave_a_server_as_it_was(port, request):
    asked, random_ = insist(port, "POST", "/ask", {"q": 3}), random.Random(1)
    for _ in range(60 if request.config.option.markexpr == "not slow" else 2000):
        method, route, parts, headers = malformed(random_)
        body = b"".join(parts)
        length = ("content-length", str(len(body) + random_.choice([0, 0, 7, -1])))
        lines = [f"{method} {route} HTTP/1.1", *(f"{name}: {value}" for name, value in [*headers, length])]
        raw = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body
        with suppress(ConnectionError), connected(port) as connection:
            if random_.random() < 0.3:
                connection.sendall(raw[: random_.randrange(len(raw))])
                continue
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            first = connection.makefile("rb").readline()
            assert re.fullmatch(rb"(HTTP/1.1 (200|4\d\d|503) .*\r\n)?", first), (raw, first)
    assert insist(port, "GET", "/ready") == {"ready": True}
    assert insist(port, "GET", "/pending")["ids"][:3] == asked["ids"]
