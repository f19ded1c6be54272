"""Runs in flight are shown on a terminal and nowhere else, and what is recorded does not depend on it."""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from small_experiments import outcome, small

from torch_kbandits.experiments import live, run_one
from torch_kbandits.experiments import run as run_module
from torch_kbandits.experiments.live import LiveRuns, Status
from torch_kbandits.experiments.run import run_experiment
from torch_kbandits.looking import Reading

ROOT = Path(__file__).parents[2]


def plain(text):
    """A terminal's text without its control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_nobody_reports_without_a_terminal_where_news_are_lines(tmp_path, monkeypatch, capsys):
    reports = []
    monkeypatch.setattr(run_module, "run_one", lambda trial, report, **rest: reports.append(report) or run_one(trial))
    assert not run_experiment(small(rounds=3), tmp_path, workers=1).failures
    assert set(reports) == {None}
    capsys.readouterr()
    with LiveRuns(3, 0, "small", Console(file=io.StringIO(), force_terminal=False)) as shown:
        shown.say("a long line " * 20)
    assert capsys.readouterr().err == "a long line " * 20 + "\n"


def test_lines_of_runs_come_and_go():
    stream, labels = io.StringIO(), ("BKB on smooth, seed 0", "a [bold]label[/bold]")
    with LiveRuns(3, 1, "small", Console(file=stream, force_terminal=True, width=120, legacy_windows=False)) as shown:

        def look():
            before = len(stream.getvalue())
            shown._live.refresh()
            return plain(stream.getvalue()[before:])

        for key, label in zip("ab", labels, strict=True):
            shown.show(Status(key, label, 12, 300, Reading(12, 34.0, 1.5, 0.25, 7, 2.0)))
        said = look()
        for label in labels:
            assert f"{label}: 12/300, 34 rounds/s, best 1.5, recent 0.25, m = 7, β = 2" in said
        assert "1/3 runs" in said
        shown.finish("a")
        said = look()
        assert labels[0] not in said
        assert "2/3 runs" in said
        shown.show(Status("a", labels[0], 13, 300, Reading(12, 34.0, 1.5, 0.25, 7, 2.0)))  # sent before it was finished
        assert labels[0] not in look()


def test_a_run_reports_how_it_is_doing_and_comes_out_the_same(monkeypatch):
    monkeypatch.setattr(live, "INTERVAL", 0.0)
    trial = next(small(algorithms=[{"name": "bkb", "label": "BKB"}]).trials())
    statuses = []
    reported, _ = run_one(trial, report=statuses.append)
    silent, _ = run_one(trial)
    assert outcome(reported) == outcome(silent)
    assert [status.played for status in statuses] == list(range(1, 31))
    last = statuses[-1]
    assert (last.key, last.rounds, last.reading.round) == (trial.key, 30, 30)
    assert last.reading.dictionary_size == reported.dictionary_size[-1]
    assert str(last).startswith("BKB on smooth, seed 0: 30/30, ")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_on_a_terminal_workers_say_how_their_runs_are_doing(tmp_path):
    command = [
        sys.executable, "-m", "torch_kbandits.cli", "compare", "-e", "rkhs-function:num_arms=2000", "-a", "bkb",
        "--rounds", "600", "--seeds", "2", "--beta", "2", "--workers", "2",
    ]  # fmt: skip
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": "140", "TERM": "xterm"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, cwd=ROOT, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is gone
            break
        if not part:
            break
        shown += part
    os.close(ours)
    table, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    text = plain(shown.decode(errors="replace"))
    assert re.search(r"bkb on rkhs-function, seed [01]: \d+/600, [\d.e+]+ rounds/s, best .*, m = \d+, β = 2", text)
    assert "2/2 runs" in text
    assert b"bkb" in table
