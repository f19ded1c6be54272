"""A run's regret is that of what was played; runs are kept, taken up again, and equal however they are made."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import oracles
import psutil
import pytest
import torch
from problems import dense
from small_experiments import content, outcome, small

from torch_kbandits import InputError, KernelBanditError, algorithms
from torch_kbandits.environments import build
from torch_kbandits.experiments import load_experiment, play, read_records, run_experiment, run_one
from torch_kbandits.experiments import run as run_module
from torch_kbandits.experiments import trial as trial_module
from torch_kbandits.experiments.directory import sole_writer
from torch_kbandits.extras import MissingExtraError, require

pytestmark = pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")


def bandit(environment, name="gp-ucb", **options):
    return algorithms.build(
        name,
        candidates=environment.arms,
        kernel=environment.kernel,
        regularization=environment.regularization,
        beta=2.0,
        seed=1,
        **options,
    )


def means_of(environment, points: np.ndarray) -> np.ndarray:
    """The means of points (n, d), found among the arms by distance; shares no code with the environment's look-up."""
    arms, means = dense(environment.arms, environment.means)
    distances = np.abs(points[:, None] - arms[None]).sum(-1)
    assert distances.min(1).max() == 0.0
    return means[distances.argmin(1)]


@pytest.mark.one_in(8)
@pytest.mark.parametrize(("record_every", "batch"), [(1, 1), (7, 1), (50, 1), (4, 3), (1, "rule"), (9, "rule")])
def test_regret_is_that_of_the_history(record_every, batch):
    environment = build("test-function", function="branin", num_arms=40, standardize=False, seed=3)
    player = bandit(environment, "bbkb")
    trace = play(player, environment, 40, record_every=record_every, batch=batch)
    assert trace.rounds == [*range(record_every, 40, record_every), 40]
    X = dense(player.history.X)[0]
    assert len(X) == 40
    regret = np.cumsum(float(environment.means.max()) - means_of(environment, X))
    assert regret[-1] > 0.0
    np.testing.assert_allclose(trace.regret, regret[np.array(trace.rounds) - 1], rtol=1e-12)
    assert np.all(np.diff(trace.seconds) >= 0.0)
    assert trace.seconds[-1] > 0.0
    assert trace.dictionary_size[-1] == len(player.inducing_points)
    assert len(trace.rounds) == len(trace.regret) == len(trace.seconds) == len(trace.dictionary_size)


def test_rewards_are_told_centred_and_noise_is_the_rounds():
    environment = build("test-function", function="branin", num_arms=40, standardize=False, seed=3)
    assert abs(environment.center) > 1.0
    player = bandit(environment)
    play(player, environment, 12)
    for t, (x, y) in enumerate(zip(player.history.X, player.history.Y, strict=True)):
        assert float(y) == pytest.approx(float(environment.pull(x[None], t)) - environment.center, abs=1e-10)


def test_seconds_are_those_of_ask_and_tell_alone():
    """An environment that takes 20 ms a round adds nothing to ten rounds; the bandit sleeps 2 ms in each call."""
    environment = build("rkhs-function", num_arms=5, seed=0)

    class Sleepy:
        inducing_points = environment.arms[:2]

        def ask(self):
            time.sleep(0.002)
            return environment.arms[:1]

        def tell(self, x, y):
            time.sleep(0.002)

    class Slow:
        center, regret = 0.0, environment.regret

        def pull(self, X, round):
            time.sleep(0.02)
            return environment.pull(X, round)

    trace = play(Sleepy(), Slow(), 10)
    assert 0.04 <= trace.seconds[-1] < 0.2
    assert trace.dictionary_size == [2] * 10


def test_the_time_of_the_environment_is_not_that_of_a_bandit_that_runs():
    environment = build("rkhs-function", num_arms=5, seed=0)

    class Slow:
        center, regret = 0.0, environment.regret

        def pull(self, X, round):
            time.sleep(0.05)
            return environment.pull(X, round)

    player = bandit(environment)
    player.run(lambda x: environment.pull(x, 0), 1)  # compiles its loops
    assert 0.0 < play(player, Slow(), 10).seconds[-1] < 0.4


def test_asking_and_telling_of_a_subclass_are_heard():
    environment, told = build("rkhs-function", num_arms=5, seed=0), []
    plain = bandit(environment)

    class Listening(type(plain)):
        def tell(self, x, y, **words):
            told.append(float(y))
            super().tell(x, y, **words)

    player = bandit(environment)
    player.__class__ = Listening
    play(player, environment, 4)
    assert told == player.history.Y.tolist()


def test_a_record_says_what_was_run_and_recommends_the_best_posterior_mean():
    spec = small(algorithms=[{"name": "gp-ucb"}], seeds=[4])
    (trial,) = spec.trials()
    record, warnings = run_one(trial)
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
    assert record.recommended_mean == pytest.approx(means_of(environment, X)[mean.argmax()], rel=1e-12)


def test_a_run_leaves_the_generator_and_the_threads_as_they_were():
    threads = torch.get_num_threads()
    state = torch.random.get_rng_state()
    run_one(next(small(rounds=3).trials()))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads


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


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("damage", "kept", "said"),
    [
        (lambda text: text[:-40], 3, "line 4: it is cut or is not JSON"),
        (lambda text: text[:-1], 4, None),
        (lambda text: text.replace('"seed": 0', '"sed": 0', 1), 3, "line 1: it is JSON but no record"),
        (lambda text: text.replace('"rounds": 4', '"rounds": "four"', 1), 3, "line 1: its rounds is not what"),
        (lambda text: text.replace('"cumulative_regret": [', '"cumulative_regret": [0.0, ', 1), 3, "different lengths"),
        (lambda text: text + "\x00\x00", 4, "line 5: it is cut or is not JSON"),
        (lambda text: "", 0, None),
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
    result = run_experiment(small(rounds=4), tmp_path, workers=1, say=lines.append)
    assert [(record.algorithm["label"], record.seed) for record in result.records] == [("gp-ucb", 0), ("BKB", 0)]
    reasons = {failure.trial.algorithm.label: failure.reason for failure in result.failures}
    assert reasons["gp-ucb"] == "on purpose"
    assert reasons["BKB"].startswith("ZeroDivisionError: no such luck (test_runs.py, line ")
    assert any(line.startswith("failed: BKB on smooth, seed 1: ZeroDivisionError") for line in lines)
    log = (tmp_path / "failures.log").read_text(encoding="utf-8")
    assert "Traceback" in log
    assert '"name": "bkb"' in log
    monkeypatch.setattr(run_module, "run_one", run_one)
    assert run_experiment(small(rounds=4), tmp_path, workers=1).skipped == 2


def test_what_does_not_fit_is_said_before_anything_runs(tmp_path):
    spec = small(environments=[{"name": "gaussian-bumps", "num_arms": 9}])
    with pytest.raises(InputError, match="gp-ucb on gaussian-bumps: gp-ucb needs kernel and regularization"):
        run_experiment(spec, tmp_path, workers=1)
    spec = small(environments=[{"name": "rkhs-function", "kernel": "rfb"}])
    with pytest.raises(InputError, match=r"gp-ucb on rkhs-function: .*kernel"):
        run_experiment(spec, tmp_path, workers=1)
    assert not (tmp_path / "records.jsonl").exists()


def test_a_warning_is_said_once_for_each_label(tmp_path):
    lines: list[str] = []
    run_experiment(small(rounds=2, seeds=3), tmp_path, workers=1, say=lines.append)
    assert [line.partition(":")[0] for line in lines] == ["gp-ucb", "BKB"]


def test_workers_are_at_least_one_and_at_most_the_cores(tmp_path, monkeypatch):
    for workers in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="workers must be a whole number of at least 1"):
            run_experiment(small(rounds=2), tmp_path, workers=workers)
    monkeypatch.setattr(run_module, "available_cores", lambda: 1)
    lines: list[str] = []
    run_experiment(small(rounds=2), tmp_path, workers=64, say=lines.append)
    assert lines[0] == "64 workers were asked for and there are 1 core(s): 1 will run."


def test_a_directory_has_one_writer(tmp_path):
    with sole_writer(tmp_path), pytest.raises(InputError, match="Another run is writing"):
        run_experiment(small(rounds=2), tmp_path, workers=1)


def test_no_records_are_named(tmp_path):
    with pytest.raises(InputError, match=r"no finished runs in .*: it has no file records\.jsonl"):
        load_experiment(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        load_experiment(tmp_path / "records.jsonl")
    (tmp_path / "records.jsonl").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="holds no finished run"):
        load_experiment(tmp_path)


def test_a_missing_extra_has_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(MissingExtraError, match=r"pip install -e '\.\[experiments\]'"):
        require("tqdm")


# ---------------------------------------------------------------- real processes

LONG = content(rounds=250, seeds=8, record_every=10, algorithms=[{"name": "gp-ucb"}])


def start(directory: Path, workers: int) -> subprocess.Popen:
    """Start the long experiment and return when it has kept a run, so that it is in the middle."""
    spec = directory / "spec.json"
    spec.write_text(json.dumps(LONG), encoding="utf-8")
    command = [sys.executable, "-m", "torch_kbandits.cli", "run", str(spec)]
    process = subprocess.Popen(
        [*command, "--directory", str(directory / "runs"), "--workers", str(workers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
        # Where the tests run in the background interrupts are ignored, and children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    records = directory / "runs" / "records.jsonl"
    deadline = time.monotonic() + 60.0
    while not (records.exists() and records.stat().st_size):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return process


@pytest.mark.slow
def test_a_killed_experiment_is_taken_up_again(tmp_path):
    """By two workers, and finds what one worker finds that nothing interrupts."""
    process = start(tmp_path, workers=2)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=20.0)
    for child in alive:
        child.kill()
    process.communicate()
    assert not alive, "workers outlived their parent"
    kept = len(read_records(tmp_path / "runs")[0])
    assert 1 <= kept < 8
    resumed = run_experiment(small(**LONG), tmp_path / "runs", workers=2)
    assert resumed.skipped == kept
    whole = run_experiment(small(**LONG), tmp_path / "whole", workers=1)
    assert [outcome(record) for record in resumed.records] == [outcome(record) for record in whole.records]
    reread, losses = load_experiment(tmp_path / "runs")
    assert [outcome(record) for record in reread] == [outcome(record) for record in whole.records]
    assert not losses


@pytest.mark.slow
def test_an_interrupted_experiment_keeps_what_is_finished(tmp_path):
    process = start(tmp_path, workers=2)
    # As a terminal does: to the process and to all its children.
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Finished runs are kept" in errors
    assert "Traceback" not in errors
    records, losses = read_records(tmp_path / "runs")
    assert 1 <= len(records) < 8
    assert not losses
