"""Runs are kept, taken up again, and equal however they are made."""

import io
import os
import pty
import re
import sys
from importlib.metadata import version

import numpy as np
import oracles
import pytest
import torch
from problems import dense
from rich.console import Console
from small_experiments import content, outcome, small

from torch_kbandits import InputError, KernelBanditError
from torch_kbandits.environments import build
from torch_kbandits.experiments import live, load_experiment, play, read_records, run_experiment, run_one
from torch_kbandits.experiments import run as run_module
from torch_kbandits.experiments import trial as trial_module
from torch_kbandits.experiments.live import LiveRuns, Status

pytestmark = pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")


def test_a_record_says_what_was_run_and_recommends_the_best_posterior_mean():
    (trial,) = small(algorithms=[{"name": "gp-ucb"}], seeds=[4]).trials()
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    record, warnings = run_one(trial)
    assert (torch.get_num_threads(), torch.random.get_rng_state().tolist()) == (threads, state.tolist())
    environment = build("rkhs-function", num_arms=25, seed=4)
    assert record.key == trial.key
    assert (record.rounds, record.seed, record.best_mean) == (30, 4, float(environment.means.max()))
    assert record.algorithm == {"label": "gp-ucb", "name": "gp-ucb", "options": {}, "batch": 1}
    assert record.environment == {"label": "smooth", "name": "rkhs-function", "options": {"num_arms": 25}}
    assert record.settings == {"beta": 2.0, "noise_scale": 0.2, "norm_bound": 2.0}
    assert set(record.versions) == {"torch_kbandits", "torch", "gpytorch", "botorch", "python"}
    assert record.versions["torch"] == version("torch")  # torch.__version__ may say of which build, too
    assert any("below the theorem's width" in warning for warning in warnings)

    player = trial_module.build_bandit(trial, environment)
    trace = play(player, environment, 30)
    assert record.cumulative_regret == trace.regret
    X, Y = dense(player.history.X, player.history.Y)
    kernel, noise = oracles.rbf(0.2), environment.regularization
    mean = kernel(X, X) @ np.linalg.solve(kernel(X, X) + noise * np.eye(len(X)), Y)
    arms, means = dense(environment.arms, environment.means)
    best = np.abs(arms - X[mean.argmax()]).sum(-1).argmin()
    assert record.recommended_mean == pytest.approx(means[best], rel=1e-12)


def test_only_what_is_new_is_run(tmp_path, monkeypatch):
    first = run_experiment(small(rounds=5), tmp_path, workers=1)
    played = []
    monkeypatch.setattr(run_module, "run_one", lambda trial, **words: played.append(trial) or run_one(trial, **words))
    relabelled = content(rounds=5, seeds=3)
    relabelled["algorithms"][0]["label"] = "GP-UCB"
    second = run_experiment(small(**relabelled), tmp_path, workers=1)
    assert [(trial.algorithm.label, trial.seed) for trial in played] == [("GP-UCB", 2), ("BKB", 2)]
    assert (first.skipped, second.skipped) == (0, 4)
    assert [outcome(record) for record in second.records[:4]] == [outcome(record) for record in first.records]
    # The records of a directory have the labels of the spec that was last run there.
    assert {record.algorithm["label"] for record in load_experiment(tmp_path)[0]} == {"GP-UCB", "BKB"}
    third = run_experiment(small(rounds=6, seeds=1), tmp_path, workers=1)
    assert {record.rounds for record in third.records} == {6}
    assert {record.rounds for record in load_experiment(tmp_path)[0]} == {6}
    assert len(read_records(tmp_path / "records.jsonl")[0]) == 8


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("damage", "kept", "said"),
    [
        (lambda text: text[:-40], 3, "line 4: it is cut or is not JSON"),
        (lambda text: text[:-1], 4, None),
        (lambda text: text.replace('"seed": 0', '"sed": 0', 1), 3, "line 1: it is JSON but no record"),
        (lambda text: text.replace('"rounds": 4', '"rounds": "four"', 1), 3, "line 1: its rounds is not what"),
        (lambda text: text.replace('"cumulative_regret": [', '"cumulative_regret": [0.0, ', 1), 3, "different lengths"),
        (lambda text: text + "\x00\x00", 4, "line 5: it is cut or is not JSON"),
    ],
)
def test_a_damaged_file_keeps_its_good_lines(tmp_path, damage, kept, said):
    spec = small(rounds=4)
    whole = run_experiment(spec, tmp_path, workers=1)
    file = tmp_path / "records.jsonl"
    file.write_text(damage(file.read_text(encoding="utf-8")), encoding="utf-8")
    records, losses = read_records(file)
    assert len(records) == kept
    assert len(losses) == (said is not None)
    lines: list[str] = []
    mended = run_experiment(spec, tmp_path, workers=1, say=lines.append)
    assert mended.skipped == kept
    assert (said is None) or any(said in line for line in lines)
    assert [outcome(record) for record in mended.records] == [outcome(record) for record in whole.records]
    records, losses = read_records(file)
    assert (len(records), losses) == (4, [])
    assert len(file.read_text(encoding="utf-8").splitlines()) == 4
    assert not list(tmp_path.glob(".records*"))


def test_a_run_that_raises_is_named_and_the_others_go_on(tmp_path, monkeypatch):
    def fragile(trial, **words):
        if trial.seed == 1 and trial.algorithm.label == "BKB":
            raise ZeroDivisionError("no such luck")
        if trial.seed == 1:
            raise KernelBanditError("on purpose")
        return run_one(trial)

    monkeypatch.setattr(run_module, "run_one", fragile)
    lines: list[str] = []
    monkeypatch.setattr(run_module, "available_cores", lambda: 1)
    result = run_experiment(small(rounds=4, seeds=3), tmp_path, workers=64, say=lines.append)
    assert lines[0] == "64 workers were asked for and there are 1 core(s): 1 will run."
    labels = [line.partition(":")[0] for line in lines[1:] if not line.startswith("failed")]
    assert labels == ["gp-ucb", "BKB"]  # a warning is said once for each
    assert [(record.algorithm["label"], record.seed) for record in result.records] == [
        ("gp-ucb", 0), ("BKB", 0), ("gp-ucb", 2), ("BKB", 2)
    ]  # fmt: skip
    reasons = {failure.trial.algorithm.label: failure.reason for failure in result.failures}
    assert reasons["gp-ucb"] == "on purpose"
    assert reasons["BKB"].startswith("ZeroDivisionError: no such luck (test_runs.py, line ")
    assert any(line.startswith("failed: BKB on smooth, seed 1: ZeroDivisionError") for line in lines)
    log = (tmp_path / "failures.log").read_text(encoding="utf-8")
    assert "Traceback" in log
    assert '"name": "bkb"' in log
    monkeypatch.setattr(run_module, "run_one", run_one)
    assert run_experiment(small(rounds=4, seeds=3), tmp_path, workers=1).skipped == 4


def test_what_does_not_fit_is_said_before_anything_runs(tmp_path):
    for environment, said in (
        ({"name": "gaussian-bumps", "num_arms": 9}, "gp-ucb on gaussian-bumps: gp-ucb needs kernel and regularization"),
        ({"name": "rkhs-function", "kernel": "rfb"}, r"gp-ucb on rkhs-function: .*kernel"),
    ):
        with pytest.raises(InputError, match=said):
            run_experiment(small(environments=[environment]), tmp_path, workers=1)
    for workers in (0, 1.5, True):
        with pytest.raises(InputError, match="workers must be a whole number of at least 1"):
            run_experiment(small(rounds=2), tmp_path, workers=workers)
    assert not (tmp_path / "records.jsonl").exists()
    for path, said in (
        (tmp_path, r"no finished runs in .*: it has no file rec"),
        (tmp_path / "none", "cannot be read"),
    ):
        with pytest.raises(InputError, match=said):
            load_experiment(path)
    (tmp_path / "records.jsonl").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="holds no finished run"):
        load_experiment(tmp_path)


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
            shown._lines.refresh()
            return plain(stream.getvalue()[before:])

        for key, label in zip("ab", labels, strict=True):
            shown.show(Status(key, label, 12, 300, "34 rounds/s, best 1.5"))
        said = look()
        for label in labels:
            assert re.search(rf"{re.escape(label)} .* 12/300 34 rounds/s, best 1.5", said)
        assert re.search(r"1/3 +runs", said)
        shown.finish("a")
        said = look()
        assert labels[0] not in said
        assert re.search(r"2/3 +runs", said)
        shown.show(Status("a", labels[0], 13, 300, ""))  # sent before it was finished
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
    assert (last.key, last.name, last.rounds) == (trial.key, "BKB on smooth, seed 0", 30)
    assert f"m = {reported.dictionary_size[-1]}, " in last.words


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_on_a_terminal_workers_say_how_their_runs_are_doing():
    words = ["compare", "-e", "rkhs-function:num_arms=2000", "-a", "bkb", "--rounds", "600", "--seeds", "2"]
    words, shown = [*words, "--beta", "2", "--workers", "2"], []

    def read(file):
        shown.append(os.read(file, 65536))
        return shown[-1]

    command = ["env", "COLUMNS=140", "TERM=xterm", sys.executable, "-m", "torch_kbandits.cli", *words]
    assert pty.spawn(command, read) == 0
    text = plain(b"".join(shown).decode(errors="replace"))
    assert re.search(r"bkb on rkhs-function, seed [01] .* \d+/600 [\d.e+]+ rounds/s, best .*, m = \d+, β = 2", text)
    assert re.search(r"2/2 +runs", text)
