"""Servers: who connects and says nothing, who kills them, and what the command line and docs/serving.md say."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from processes import Client, Nursery, end, free_port, insist
from served import BANDITS, saved

from torch_kbandits import Bandit
from torch_kbandits.cli import main
from torch_kbandits.evaluation import read_log
from torch_kbandits.serving import Service, requests, server, service

ASK = b"POST /ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture
def port(tmp_path, monkeypatch):
    """That of a server which waits an eighth of a second, and takes four connections at a time."""
    monkeypatch.setattr(server, "_PATIENCE", 0.125)
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 4)
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


def test_who_sends_no_more_is_cut_off_or_makes_room_and_requests_in_a_row_are_answered_in_order(port):
    for several in ((b"", b"GET /rea", b"POST /ask HTTP/1.1\r\n"), (ASK, ASK + b"GET /")):
        connections = [connected(port, sent) for sent in several]
        for sent, connection in zip(several, connections, strict=True):
            assert closed(connection).count(b"200 OK") == sent.count(ASK)
            connection.close()
    for sent in (b"", ASK[:-1]):
        idle = [connected(port, sent) for _ in range(6)]
        assert insist(port, "POST", "/ask", {"key": "a"})["ids"] == [2]
        for each in idle:
            each.close()
    with connected(port, ASK * 5) as connection:
        said = closed(connection)
    assert [json.loads(part.split(b"\r\n\r\n")[1].split(b"HTTP")[0])["ids"] for part in said.split(b"200 OK")[1:]] == [
        [number] for number in range(3, 8)
    ]


def killed_under_load(folder, *, kills, clients, compact_after, seed=0):
    """Kill a server so often while clients insist, then look that what is left is what they were answered."""
    path, port, random_ = saved(BANDITS["bkb"], folder), free_port(), random.Random(seed)
    nursery = Nursery(path, port, compact_after=compact_after)
    crowd = [Client(port, number) for number in range(clients)]
    pid = nursery.start()
    insist(port, "GET", "/ready")
    for client in crowd:
        client.start()
    for _ in range(kills):
        time.sleep(random_.uniform(0.0, 0.15))
        end(pid, signal.SIGKILL)
        pid = nursery.start()
        insist(port, "GET", "/ready")
    for client in crowd:
        client.stopping.set()
    for client in crowd:
        client.join()
    end(pid, signal.SIGKILL)
    nursery.close()
    assert [client.error for client in crowd] == [None] * clients
    return path, crowd


def audit(path, crowd):
    """Each answer that somebody got is there once, and nothing else is."""
    served = Service.open(path)
    asked = {key: answer for client in crowd for key, answer in client.asked.items()}
    told = {number: reward for client in crowd for number, reward in client.told.items()}
    ids = [number for answer in asked.values() for number in answer["ids"]]
    assert sorted(ids) == list(range(served.bandit.num_asked))
    assert sorted(told) == sorted(ids)
    assert served.bandit.pending_ids == ()
    history = served.bandit.history
    assert sorted(history.Y.tolist()) == sorted(told.values())
    points = {
        told[number]: action
        for answer in asked.values()
        for number, action in zip(answer["ids"], answer["actions"], strict=True)
    }
    assert torch.equal(history.X, history.X.new_tensor([points[reward] for reward in history.Y.tolist()]))
    served.close()
    return len(told)


@pytest.mark.parametrize(
    ("kills", "compact_after"),
    [(2, 3), *(pytest.param(60, compact_after, marks=pytest.mark.slow) for compact_after in (4, 25, 1000))],
)
def test_kills(kills, compact_after, tmp_path):
    words = {"kills": kills, "clients": 2 if kills < 10 else 4, "seed": compact_after}
    path, crowd = killed_under_load(tmp_path, compact_after=compact_after, **words)
    assert audit(path, crowd) > kills


def test_who_is_asked_to_stop_saves_the_bandit_whole(tmp_path):
    path, port = saved(BANDITS["bkb"], tmp_path), free_port()
    nursery = Nursery(path, port)
    pid = nursery.start()
    asked = insist(port, "POST", "/ask", {"q": 2, "key": "a"})
    insist(port, "POST", "/tell", {"ids": asked["ids"][:1], "y": 1.5})
    end(pid, signal.SIGTERM)
    nursery.close()
    served = Service.open(path)
    assert served.journal.position == served.num_changes == 0
    assert served.bandit.history.Y.tolist() == [1.5]
    assert served.answer("ask", {"q": 2, "key": "a"}) == asked
    served.close()


PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")


def kbandits(*arguments, **environment):
    result = CliRunner(env={"KBANDITS_TOKEN": None} | environment).invoke(main, ["serve", *arguments])
    assert "Traceback" not in result.output
    return result


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--host", "0.0.0.0"), "give a token"),
        (("--max-request", "0"), "must be"),
        (("--token-file", "none"), "be read"),
        (("--log", "none/choices.jsonl"), "Make its directory first"),
    ],
)
def test_what_does_not_fit_is_said_and_the_file_is_free(arguments, message, tmp_path):
    path = saved(BANDITS["bkb"], tmp_path)
    result = kbandits(str(path), *arguments)
    assert result.exit_code in (1, 2)
    assert message in result.output
    served = Service.open(path)
    assert "Another process serves" in kbandits(str(path)).output
    served.close()
    assert "at least 16" in kbandits(str(path), "--host", "::", KBANDITS_TOKEN="short").output


def test_the_client_of_the_page_plays_and_survives_a_kill(tmp_path):
    path, port = saved(BANDITS["bkb"], tmp_path), free_port()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "urllib" in block]
    nursery = Nursery(path, port)
    pid = nursery.start()
    insist(port, "GET", "/ready")
    names: dict = {}
    code = code.replace("http://127.0.0.1:8000", f"http://127.0.0.1:{port}").replace(
        "time.sleep(1.0)", "time.sleep(0.01)"
    )
    exec(code, names)
    end(pid, signal.SIGKILL)
    pid = nursery.start()
    exec(code.partition("asked = ")[1] + code.partition("asked = ")[2], names)
    with pytest.raises(ValueError, match="RefusedError"):
        names["call"]("/tell", ids=[0], y=17.0)
    end(pid, signal.SIGKILL)
    nursery.close()
    served = Service.open(path)
    assert (served.bandit.num_asked, served.bandit.num_observations) == (2, 2)
    served.close()


def test_the_page_says_the_limits_and_help_has_an_example_and_the_defaults():
    shown = kbandits("--help").output
    assert "kbandits serve prices.kb" in " ".join(shown.split())
    for default in ("127.0.0.1", "8000", str(server.MAX_REQUEST), str(service.COMPACT_AFTER)):
        assert f"[default: {default}]" in re.sub(r"\s+", " ", shown)
    for number in (service.REMEMBERED, requests.LARGEST_BATCH, service.COMPACT_AFTER):
        assert f"{number:,}" in PAGE
    assert f"at most {server.MOST_CONNECTIONS} connections" in PAGE


@pytest.mark.slow
def test_the_command_serves_with_a_token_until_it_is_stopped(tmp_path):
    path, token = saved(BANDITS["bkb"], tmp_path), "a token of enough letters"
    command = [sys.executable, "-m", "torch_kbandits.cli", "serve", str(path), "--host", "0.0.0.0", "--port", "0"]
    command += ["--log", str(tmp_path / "choices.jsonl")]
    environment = os.environ | {"KBANDITS_TOKEN": token}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        request = urllib.request.Request(f"http://127.0.0.1:{port}/ask", b'{"q": 2}')
        request.add_header("Content-Type", "application/json")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request)
        request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request) as response:
            assert json.load(response)["ids"] == [0, 1]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert Bandit.load(path).pending_ids == (0, 1)
    assert read_log(tmp_path / "choices.jsonl").ids == (0, 1)
