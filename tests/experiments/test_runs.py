"""Runs are kept, taken up again, and equal however they are made."""

from importlib.metadata import version

import numpy as np
import oracles
import pytest
import torch
from click.testing import CliRunner
from problems import dense
from small_experiments import content, outcome, small

from torch_kbandits import FileError, InputError, KernelBanditError
from torch_kbandits.cli import main
from torch_kbandits.environments import build
from torch_kbandits.experiments import play, read_records, run_experiment, run_one
from torch_kbandits.experiments import run as run_module
from torch_kbandits.experiments import trial as trial_module

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
    monkeypatch.setattr(run_module, "run_one", lambda trial: played.append(trial) or run_one(trial))
    relabelled = content(rounds=5, seeds=3)
    relabelled["algorithms"][0]["label"] = "GP-UCB"
    second = run_experiment(small(**relabelled), tmp_path, workers=1)
    assert [(trial.algorithm.label, trial.seed) for trial in played] == [("GP-UCB", 2), ("BKB", 2)]
    assert (first.skipped, second.skipped) == (0, 4)
    assert [outcome(record) for record in second.records[:4]] == [outcome(record) for record in first.records]
    # The records of a directory have the labels of the spec that was last run there.
    assert {record.algorithm["label"] for record in read_records(tmp_path)[0]} == {"GP-UCB", "BKB"}
    third = run_experiment(small(rounds=6, seeds=1), tmp_path, workers=1)
    assert {record.rounds for record in third.records} == {6}
    assert {record.rounds for record in read_records(tmp_path)[0]} == {6}
    assert len(read_records(tmp_path / "records.jsonl")[0]) == 8


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("damage", "kept", "said"),
    [
        (lambda text: text[:-40], 3, "line 4: it is cut"),
        (lambda text: text[:-1], 4, None),
        (lambda text: text.replace('"seed": 0', '"sed": 0', 1), 3, "line 1: it is cut"),
        (lambda text: text.replace('"cumulative_regret": [', '"cumulative_regret": [0.0, ', 1), 3, "line 1: it is cut"),
        (lambda text: text + "\x00\x00", 4, "line 5: it is cut"),
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
    mended = run_experiment(spec, tmp_path, workers=1)
    assert mended.skipped == kept
    assert (said is None) or any(said in line for line in mended.notes)
    assert [outcome(record) for record in mended.records] == [outcome(record) for record in whole.records]
    records, losses = read_records(file)
    assert (len(records), losses) == (4, [])
    assert len(file.read_text(encoding="utf-8").splitlines()) == 4
    assert not list(tmp_path.glob(".records*"))


def test_a_run_that_raises_is_named_and_the_others_go_on(tmp_path, monkeypatch):
    def fragile(trial):
        if trial.seed == 1 and trial.algorithm.label == "BKB":
            raise ZeroDivisionError("no such luck")
        if trial.seed == 1:
            raise KernelBanditError("on purpose")
        return run_one(trial)

    monkeypatch.setattr(run_module, "run_one", fragile)
    result = run_experiment(small(rounds=4, seeds=3), tmp_path, workers=1)
    labels = [line.partition(":")[0] for line in result.notes if not line.startswith("failed")]
    assert labels == ["gp-ucb", "BKB"]  # a warning is said once for each
    assert [(record.algorithm["label"], record.seed) for record in result.records] == [
        ("gp-ucb", 0), ("BKB", 0), ("gp-ucb", 2), ("BKB", 2)
    ]  # fmt: skip
    reasons = {failure.trial.algorithm.label: failure.reason for failure in result.failures}
    assert reasons["gp-ucb"] == "on purpose"
    assert reasons["BKB"].startswith("ZeroDivisionError: no such luck (test_runs.py, line ")
    assert any(line.startswith("failed: BKB on smooth, seed 1: ZeroDivisionError") for line in result.notes)
    log = (tmp_path / "failures.log").read_text(encoding="utf-8")
    assert "Traceback" in log
    assert '"name": "bkb"' in log
    again = CliRunner().invoke(main, ["resume", str(tmp_path), "--workers", "1"])
    assert (again.exit_code, "2 run(s) failed" in again.output) == (1, True)
    monkeypatch.setattr(run_module, "run_one", run_one)
    assert run_experiment(small(rounds=4, seeds=3), tmp_path, workers=1).skipped == 4


def test_what_does_not_fit_is_said_before_anything_runs(tmp_path):
    for environment, said in (
        ({"name": "gaussian-bumps", "num_arms": 9}, "gp-ucb on gaussian-bumps: gp-ucb needs kernel and regularization"),
        ({"name": "rkhs-function", "kernel": "rfb"}, r"gp-ucb on rkhs-function: .*kernel"),
    ):
        with pytest.raises(InputError, match=said):
            run_experiment(small(environments=[environment]), tmp_path, workers=1)
    assert not (tmp_path / "records.jsonl").exists()
    with pytest.raises(FileError, match=r"records\.jsonl' cannot be read"):
        read_records(tmp_path)
    (tmp_path / "records.jsonl").write_text("{", encoding="utf-8")
    result = CliRunner().invoke(main, ["summarize", str(tmp_path)])
    assert "There is no finished run" in result.output
