"""What docs/serving.md and the command line say is what happens."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner
from processes import Nursery, end, free_port, insist
from served import BANDITS, saved

from torch_kbandits import Bandit
from torch_kbandits.cli import main
from torch_kbandits.serving import Service, book, queue, requests, service
from torch_kbandits.serving.http import MAX_REQUEST

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")


def kbandits(*arguments, **environment):
    result = CliRunner(env={"KBANDITS_TOKEN": None} | environment).invoke(main, ["serve", *arguments])
    assert "Traceback" not in result.output
    return result


def test_help_has_an_example_and_the_defaults():
    shown = kbandits("--help").output
    assert "\n    kbandits serve " in shown
    for default in ("127.0.0.1", "8000", str(MAX_REQUEST), str(service.COMPACT_AFTER)):
        assert f"[default: {default}]" in re.sub(r"\s+", " ", shown)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--host", "0.0.0.0"), "give a token"),
        (("--port", "70000"), "port must be"),
        (("--compact-after", "0"), "compact_after must be"),
        (("--max-request", "0"), "max_request must be"),
        (("--token-file", "short"), "at least 16"),
        (("--token-file", "none"), "cannot be read"),
    ],
)
def test_what_does_not_fit_is_said_and_the_file_is_free(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = saved(BANDITS["bkb"], tmp_path)
    (tmp_path / "short").write_text("secret\n")
    result = kbandits(str(path), *arguments)
    assert result.exit_code in (1, 2)
    assert message in result.output
    Service.open(path).close()


def test_a_file_that_is_none_or_has_a_server_is_named(tmp_path):
    path = saved(BANDITS["bkb"], tmp_path)
    assert "cannot be read" in kbandits(str(tmp_path / "none.kb")).output
    served = Service.open(path)
    assert "Another process serves" in kbandits(str(path)).output
    served.close()
    assert "give a token" in kbandits(str(path), "--host", "::", KBANDITS_TOKEN="").output
    assert "at least 16" in kbandits(str(path), "--host", "::", KBANDITS_TOKEN="short").output


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_a_missing_extra_is_named(package, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("torch_kbandits.serving.http", package))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "torch_kbandits.serving.server", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    result = kbandits(str(saved(BANDITS["bkb"], tmp_path)))
    assert result.exit_code == 1
    assert package in result.output
    assert "[serve]" in result.output


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
    with pytest.raises(ValueError, match="AlreadyToldError"):
        names["call"]("/tell", ids=[0], y=17.0)
    end(pid, signal.SIGKILL)
    nursery.close()
    served = Service.open(path)
    assert (served.bandit.num_asked, served.bandit.num_told) == (2, 2)
    served.close()


def test_the_page_says_the_limits():
    for number in (book.REMEMBERED, requests.LARGEST_BATCH, service.COMPACT_AFTER):
        assert f"{number:,}" in PAGE
    assert f"at most {requests.DEEPEST} deep" in PAGE.replace("nest at most", "at most")
    assert f"at most {queue.MOST_WAITING} wait" in PAGE


@pytest.mark.slow
def test_the_command_serves_with_a_token_until_it_is_stopped(tmp_path):
    path, token = saved(BANDITS["bkb"], tmp_path), "a token of enough letters"
    command = [sys.executable, "-m", "torch_kbandits.cli", "serve", str(path), "--host", "0.0.0.0", "--port", "0"]
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
