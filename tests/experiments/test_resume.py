"""Experiments that are stopped at any moment go on, come out as if they had not been, and have one writer."""

import json
import random
import signal
import subprocess
import sys
import time

import psutil
import pytest
from click.testing import CliRunner
from filelock import FileLock
from small_experiments import content, outcome, small

from torch_kbandits import DamagedFileError, FileError, InputError
from torch_kbandits.cli import main
from torch_kbandits.experiments import load_experiment, parse_spec, read_records, run_experiment, run_one, spec_in
from torch_kbandits.experiments import trial as trial_module
from torch_kbandits.experiments.directory import Checkpoint, sole_writer

MOVING = {"name": "moving-peak", "num_arms": 40}
#: Every kind of state: arms, batches, contexts, a memory with its clock, a choice among memories, an expert.
VARIED = {
    "bkb": {},
    "bbkb": {"batch": "rule"},
    "ek-ucb": {"batch": 4},
    "gp-ts": {},
    "w-gp-ucb": {"environment": MOVING},
    "bob-gp-ucb": {"block_size": 4, "environment": MOVING},
    "sparq-gp-ucb": {"environment": MOVING},
    "k-ucb": {"environment": {"name": "bump", "settings": {"kernel": "rbf", "regularization": 0.1}}},
}


class StopError(Exception):
    """Stands for a kill."""


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", VARIED)
def test_a_run_that_was_stopped_goes_on_and_comes_out_the_same(name, tmp_path, monkeypatch):
    player, words = {"name": name, **VARIED[name]}, {"rounds": 30, "checkpoint_every": 7, "settings": {"beta": 1.0}}
    words |= {"environments": [player.pop("environment")]} if "environment" in player else {}
    trial = next(small(**words, algorithms=[player]).trials())
    whole, _ = run_one(trial)
    play, keep, kept, resumed_at = trial_module.play, Checkpoint.keep, [], []

    def killed(self, bandit, state, warnings):
        kept.append(state.rounds)
        keep(self, bandit, state, warnings)
        if len(kept) == 2:
            raise StopError

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "keep", killed)
        with pytest.raises(StopError):
            run_one(trial, tmp_path)

    def noting(bandit, *args, **options):
        resumed_at.append((bandit.round > 0, options["state"].rounds))
        return play(bandit, *args, **options)

    monkeypatch.setattr(trial_module, "play", noting)
    resumed, warnings = run_one(trial, tmp_path)
    assert resumed_at == [(True, kept[1])]
    assert 14 <= kept[1] < 30
    assert outcome(resumed) == outcome(whole)
    assert not [words for words in warnings if "begins anew" in words]


def test_what_is_finished_leaves_no_checkpoint_and_no_draft(tmp_path):
    spec = small(rounds=12, checkpoint_every=5)
    run_experiment(spec, tmp_path, workers=1)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"records.jsonl", "experiment.json", ".lock"}
    # A process that was killed between a record and the end of its checkpoint, or while it wrote.
    key = next(spec.trials()).key
    (tmp_path / "checkpoints").mkdir()
    for name in (f"{key}.kb", f".{key}.kb.123.0123abcd"):
        (tmp_path / "checkpoints" / name).write_bytes(b"half")
    (tmp_path / ".records.jsonl.123.0123abcd").write_bytes(b"half")
    run_experiment(spec, tmp_path, workers=1)
    assert {path.name for path in tmp_path.iterdir()} == left


def kbandits(*arguments):
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert "Traceback" not in result.output
    return result


def test_a_checkpoint_that_does_not_serve_or_cannot_be_written_is_said_and_the_run_comes_out_the_same(
    tmp_path, monkeypatch
):
    trial = next(small(rounds=12, checkpoint_every=5).trials())
    whole, silent = run_one(trial)[0], tmp_path / "in the way"
    record, first = run_one(trial, tmp_path)
    file = Checkpoint(tmp_path, trial.key).file
    again, warnings = run_one(trial, tmp_path)
    assert warnings == first  # what was said before a checkpoint is not lost
    assert any("below the theorem's width" in words for words in warnings)
    file.write_bytes(file.read_bytes()[:-10])
    damaged, warnings = run_one(trial, tmp_path)
    assert any("begins anew" in words and "is cut" in words for words in warnings)
    with monkeypatch.context() as patch:
        patch.setattr("torch_kbandits.experiments.directory.versions", lambda: {"torch": "0.1"})
        other, warnings = run_one(trial, tmp_path)
    assert any("begins anew" in words and "other versions" in words for words in warnings)
    silent.mkdir()
    (silent / "checkpoints").write_text("in the way", encoding="utf-8")
    unkept, warnings = run_one(trial, silent)
    assert any("goes on without a checkpoint" in words for words in warnings)
    assert {str(outcome(each)) for each in (record, again, damaged, other, unkept)} == {str(outcome(whole))}


def test_directories_that_cannot_be_resumed_or_written(tmp_path):
    result = kbandits("resume", tmp_path)
    assert result.exit_code == 2
    assert "holds no experiment" in result.output
    file = tmp_path / "experiment.json"
    for text, message in (("{", "is damaged"), ("[]", "is damaged"), ('{"spec": {"rounds": 1}}', "The spec needs")):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(DamagedFileError, match=message):
            spec_in(tmp_path)
        assert kbandits("resume", tmp_path).exit_code == 1
    file.write_text('{"name": "old", "runs": []}', encoding="utf-8")
    with pytest.raises(InputError, match="holds no experiment"):
        spec_in(tmp_path)
    run_experiment(small(rounds=2), tmp_path, workers=1)
    assert spec_in(tmp_path) == small(rounds=2)
    file.write_text('{"runs": 3}', encoding="utf-8")
    with pytest.raises(DamagedFileError, match=r"experiment.json' is damaged"):
        load_experiment(tmp_path)
    for path in (file, file / "below"):
        with pytest.raises(FileError, match="cannot be written"):
            run_experiment(small(rounds=2), path, workers=1)


def test_a_directory_has_one_writer_and_a_lock_file_that_nobody_holds_blocks_nobody(tmp_path):
    (tmp_path / ".lock").write_text("99999", encoding="utf-8")
    with sole_writer(tmp_path), pytest.raises(InputError, match="Another run is writing to"):
        run_experiment(small(rounds=2), tmp_path, workers=1)
    assert not (tmp_path / "records.jsonl").exists()
    with FileLock(tmp_path / ".lock", timeout=0):
        pass


LONG = content(
    rounds=1_500,  # enough for several kills on an idle machine
    seeds=1,
    checkpoint_every=100,
    record_every=50,
    algorithms=[{"name": "bkb"}, {"name": "igp-ucb"}, {"name": "bbkb", "batch": "rule"}, {"name": "gp-ts"}],
)


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "torch_kbandits.cli", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Where the tests run in the background interrupts are ignored, and children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def newest(folder):
    """When something there was written last; what vanishes meanwhile was."""
    try:
        return max(path.stat().st_mtime_ns for path in folder.rglob("*"))
    except FileNotFoundError:
        return time.time_ns()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_runs_killed_at_random_moments_and_resumed_are_those_of_an_unbroken_experiment(workers, tmp_path):
    """SIGKILL after a random time, eight times at most, which no worker outlives; the last call is left alone."""
    whole = run_experiment(parse_spec(LONG), tmp_path / "whole", workers=1).records
    folder, lots, kills = tmp_path / "runs", random.Random(workers), 0
    (tmp_path / "spec.json").write_text(json.dumps(LONG), encoding="utf-8")
    process = start("run", tmp_path / "spec.json", "--directory", folder, "--workers", workers)
    while not (folder / "experiment.json").exists():
        assert process.poll() is None
        time.sleep(0.02)
    for _ in range(8):
        time.sleep(lots.uniform(0.0, 1.0))
        if process.poll() is not None:
            break
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not psutil.wait_procs(children, timeout=20.0)[1], "workers outlived their parent"
        kills += 1
        before, process = newest(folder), start("resume", folder, "--workers", workers)
        while process.poll() is None and newest(folder) <= before:  # imports are not part of the lot
            time.sleep(0.02)
    process.communicate(timeout=300)
    assert process.returncode == 0
    assert kills >= 2
    records, losses = load_experiment(folder)
    assert [outcome(record) for record in records] == [outcome(record) for record in whole]
    assert losses == []
    assert len(read_records(folder)[0]) == 4
    assert {path.name for path in folder.iterdir()} == {"records.jsonl", "experiment.json", ".lock"}
