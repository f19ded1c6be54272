"""Experiments that are stopped at any moment go on, come out as if they had not been, and have one writer."""

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from filelock import FileLock
from small_experiments import CONTENT, content, outcome, small

from torch_kbandits import DamagedFileError, FileError, InputError
from torch_kbandits.cli import main
from torch_kbandits.experiments import load_experiment, parse_spec, read_records, run_experiment, run_one, spec_in
from torch_kbandits.experiments import trial as trial_module
from torch_kbandits.experiments.checkpoints import Checkpoint
from torch_kbandits.experiments.directory import sole_writer

MOVING = {"name": "moving-peak", "num_arms": 40}
#: Every kind of state: arms, batches, contexts, a memory with its clock, a choice among memories, an expert.
VARIED = {
    words["algorithms"][0]["name"]: words
    for words in (
        {"algorithms": [{"name": "bkb"}]},
        {"algorithms": [{"name": "bbkb", "batch": "rule"}]},
        {"algorithms": [{"name": "ek-ucb", "batch": 4}]},
        {"algorithms": [{"name": "gp-ts"}]},
        {"algorithms": [{"name": "w-gp-ucb"}], "environments": [MOVING]},
        {"algorithms": [{"name": "bob-gp-ucb", "block_size": 4}], "environments": [MOVING]},
        {"algorithms": [{"name": "sparq-gp-ucb"}], "environments": [MOVING]},
        {
            "algorithms": [{"name": "k-ucb"}],
            "environments": [{"name": "bump", "settings": {"kernel": "rbf", "regularization": 0.1}}],
        },
    )
}
QUICK = ("bkb", "bbkb", "bob-gp-ucb")


class StopError(Exception):
    """Stands for a kill at a chosen moment."""


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in VARIED]
)
def test_a_run_that_was_stopped_goes_on_and_comes_out_the_same(name, tmp_path, monkeypatch):
    words = {"rounds": 30, "seeds": 1, "checkpoint_every": 7, "settings": {"beta": 1.0}} | VARIED[name]
    trial = next(small(**words).trials())
    whole, _ = run_one(trial)
    asked = []
    play = trial_module.play

    def stopping(bandit, *args, **options):
        run, tell = bandit.run, bandit.tell

        def count(x):
            asked.append(len(x))
            if sum(asked) > 18:
                raise StopError

        def counted(pull):
            if not callable(pull):  # rewards of all arms, of rounds that are played together
                count(pull)
                return pull
            return lambda x: (count(x), pull(x))[1]

        def told(x, *given, **named):
            count(x)
            tell(x, *given, **named)

        bandit.tell, bandit.run = told, lambda pull, *given, **named: run(counted(pull), *given, **named)
        return play(bandit, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(trial_module, "play", stopping)
        with pytest.raises(StopError):
            run_one(trial, tmp_path)
    assert (tmp_path / "checkpoints" / f"{trial.key}.kb").exists()
    resumed_at = []

    def noting(bandit, *args, **options):
        resumed_at.append((bandit.round, options["progress"].rounds))
        return play(bandit, *args, **options)

    monkeypatch.setattr(trial_module, "play", noting)
    resumed, warnings = run_one(trial, tmp_path)
    assert 7 <= resumed_at[0][1] <= 18
    assert resumed_at[0][0] > 0
    assert outcome(resumed) == outcome(whole)
    assert not [words for words in warnings if "begins anew" in words]


def test_a_run_computes_the_same_with_and_without_a_directory(tmp_path):
    trial = next(small(rounds=20, checkpoint_every=6).trials())
    assert outcome(run_one(trial)[0]) == outcome(run_one(trial, tmp_path)[0])


def test_checkpoints_are_part_of_what_a_run_is_only_where_there_are_any():
    with_them, without = (next(small(checkpoint_every=every).trials()) for every in (5, None))
    assert with_them.key != without.key
    assert "checkpoint_every" not in without.config()
    assert replace(with_them, checkpoint_every=None).key == without.key


def test_warnings_before_a_checkpoint_are_not_lost(tmp_path):
    trial = next(small(rounds=12, checkpoint_every=5).trials())
    _, warnings = run_one(trial, tmp_path)
    assert any("below the theorem's width" in words for words in warnings)
    _, again = run_one(trial, tmp_path)
    assert again == warnings


def damaged(file):
    file.write_bytes(file.read_bytes()[:-10])


def of_another_version(file, monkeypatch):
    monkeypatch.setattr("torch_kbandits.experiments.checkpoints.versions", lambda: {"torch": "0.1"})


@pytest.mark.parametrize("what", ["cut", "version"])
def test_a_checkpoint_that_does_not_serve_is_said_and_the_run_begins_anew(what, tmp_path, monkeypatch):
    trial = next(small(rounds=12, checkpoint_every=5).trials())
    whole, _ = run_one(trial, tmp_path)
    file = Checkpoint(tmp_path, trial.key).file
    damaged(file) if what == "cut" else of_another_version(file, monkeypatch)
    again, warnings = run_one(trial, tmp_path)
    assert any("begins anew" in words and ("is cut" in words or "other versions" in words) for words in warnings)
    assert outcome(again) == outcome(whole)


def test_a_run_goes_on_where_no_checkpoint_can_be_written(tmp_path):
    trial = next(small(rounds=12, checkpoint_every=5).trials())
    (tmp_path / "checkpoints").write_text("in the way", encoding="utf-8")
    record, warnings = run_one(trial, tmp_path)
    assert outcome(record) == outcome(run_one(trial)[0])
    assert any("goes on without a checkpoint" in words for words in warnings)


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


def test_a_directory_knows_its_spec(tmp_path):
    table = content(
        rounds=4,
        seeds=[3, 1],
        checkpoint_every=2,
        environments=[
            {"name": "rkhs-function", "label": "one", "num_arms": 9, "settings": {"beta": 1.0}},
            {"name": "gaussian-bumps", "num_arms": 9, "settings": {"kernel": {"name": "rbf", "lengthscale": 0.3}}},
        ],
        settings={"beta": {"width": "igp-ucb", "scale": 0.2, "norm_bound": 3.0}, "regularization": 0.01},
        algorithms=[{"name": "bkb", "label": "B", "oversampling": 2.0}, {"name": "bbkb", "batch": "rule"}],
    )
    spec = parse_spec(table)
    assert parse_spec(spec.content()) == spec
    run_experiment(spec, tmp_path, workers=1)
    assert spec_in(tmp_path) == spec


def kbandits(*arguments):
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert "Traceback" not in result.output
    return result


def test_resume_goes_on_with_what_is_left(tmp_path):
    spec = small(rounds=6)
    whole = run_experiment(spec, tmp_path / "whole", workers=1).records
    run_experiment(spec, tmp_path / "part", workers=1)
    file = tmp_path / "part" / "records.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[:2]) + lines[2][:50], encoding="utf-8")
    result = kbandits("resume", tmp_path / "part", "--workers", "1")
    assert result.exit_code == 0
    assert "2 run(s) were finished before" in result.output
    records, losses = load_experiment(tmp_path / "part")
    assert [outcome(record) for record in records] == [outcome(record) for record in whole]
    assert losses == []
    assert "4 run(s) were finished before" in kbandits("resume", tmp_path / "part").output


def test_directories_that_cannot_be_resumed(tmp_path):
    result = kbandits("resume", tmp_path)
    assert result.exit_code == 2
    assert "holds no experiment" in result.output
    file = tmp_path / "experiment.json"
    for text, message in (
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"spec": {"rounds": 1}}', "is damaged: The spec needs"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(DamagedFileError, match=message):
            spec_in(tmp_path)
        assert kbandits("resume", tmp_path).exit_code == 1
    file.write_text('{"name": "old", "runs": []}', encoding="utf-8")
    with pytest.raises(InputError, match="did not write down the spec"):
        spec_in(tmp_path)
    run_experiment(small(rounds=2), tmp_path, workers=1)
    assert spec_in(tmp_path) == small(rounds=2)


def test_a_damaged_list_of_runs_is_named(tmp_path):
    run_experiment(small(rounds=2), tmp_path, workers=1)
    (tmp_path / "experiment.json").write_text('{"runs": 3}', encoding="utf-8")
    with pytest.raises(DamagedFileError, match=r"experiment.json' is damaged"):
        load_experiment(tmp_path)


def test_a_directory_that_cannot_be_made_or_is_a_file(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileError, match="cannot be written"):
            run_experiment(small(rounds=2), path, workers=1)


#: Takes the lock of a directory as a run does, without the seconds that the imports of one take.
HOLDER = """
import sys, time
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_process_is_refused_and_a_killed_one_holds_nothing(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path / ".lock"], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InputError, match="Another run is writing to"):
            run_experiment(small(rounds=2), tmp_path, workers=1)
        assert not (tmp_path / "records.jsonl").exists()
        assert not (tmp_path / "experiment.json").exists()
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    assert (tmp_path / ".lock").exists()
    assert len(run_experiment(small(rounds=2), tmp_path, workers=1).records) == 4


def test_a_lock_file_that_nobody_holds_blocks_nobody(tmp_path):
    (tmp_path / ".lock").write_text("99999", encoding="utf-8")
    with sole_writer(tmp_path), pytest.raises(InputError, match="Another run"), sole_writer(tmp_path):
        pass
    with FileLock(tmp_path / ".lock", timeout=0):
        pass


def start(*arguments):
    command = [sys.executable, "-m", "torch_kbandits.cli", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_runs_killed_at_random_moments_and_resumed_are_those_of_an_unbroken_experiment(workers, tmp_path):
    """SIGKILL after a random time, eight times at most; the last call is left alone."""
    table = CONTENT | {
        "rounds": 1_500,  # enough for several kills on an idle machine
        "seeds": 1,
        "checkpoint_every": 100,
        "record_every": 50,
        "algorithms": [{"name": "bkb"}, {"name": "igp-ucb"}, {"name": "bbkb", "batch": "rule"}, {"name": "gp-ts"}],
    }
    spec = parse_spec(table)
    whole = run_experiment(spec, tmp_path / "whole", workers=1).records
    (tmp_path / "spec.json").write_text(json.dumps(table), encoding="utf-8")
    folder, lots = tmp_path / "killed", random.Random(workers)
    process = start("run", tmp_path / "spec.json", "--directory", folder, "--workers", workers)
    wait_for(folder / "experiment.json", process)
    kills = 0
    for _ in range(8):
        time.sleep(lots.uniform(0.0, 2.0))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        process = start("resume", folder, "--workers", workers)
        # The wait for imports is not part of the lot: else most kills would come before anything is done.
        time.sleep(lots.uniform(3.0, 6.0))
    assert process.wait(timeout=300) == 0
    assert kills >= 2
    records, losses = load_experiment(folder)
    assert [outcome(record) for record in records] == [outcome(record) for record in whole]
    assert losses == []
    assert len(read_records(folder)[0]) == 4
    assert {path.name for path in folder.iterdir()} == {"records.jsonl", "experiment.json", ".lock"}


def wait_for(file: Path, process):
    deadline = time.monotonic() + 120.0
    while not file.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
