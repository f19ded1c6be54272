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

from torch_kbandits import FileError, InputError
from torch_kbandits.cli import main
from torch_kbandits.experiments import load_spec, parse_spec, read_records, run_experiment, spec_in


def kbandits(*arguments):
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert "Traceback" not in result.output
    return result


def test_directories_that_cannot_be_resumed_or_written(tmp_path):
    result = kbandits("resume", tmp_path)
    assert result.exit_code == 2
    assert "holds no experiment" in result.output
    file, first = tmp_path / "experiment.json", run_experiment(small(rounds=2), tmp_path, workers=1)
    assert spec_in(tmp_path) == load_spec(file) == small(rounds=2)
    file.write_text("{", encoding="utf-8")
    assert kbandits("resume", tmp_path).exit_code == 2
    records, losses = read_records(tmp_path)  # the records alone are enough
    assert [record.key for record in records] == [record.key for record in first.records]
    assert len(losses) == 1
    run_experiment(small(rounds=2), tmp_path, workers=1)  # writes it anew
    assert spec_in(tmp_path) == small(rounds=2)
    for path in (file, file / "below"):
        with pytest.raises(FileError, match="cannot be written"):
            run_experiment(small(rounds=2), path, workers=1)


def test_a_directory_has_one_writer_and_a_lock_file_that_nobody_holds_blocks_nobody(tmp_path):
    (tmp_path / ".lock").write_text("99999", encoding="utf-8")
    with FileLock(tmp_path / ".lock"), pytest.raises(InputError, match="Another run is writing to"):
        run_experiment(small(rounds=2), tmp_path, workers=1)
    assert not (tmp_path / "records.jsonl").exists()
    with FileLock(tmp_path / ".lock", timeout=0):
        pass


LONG = content(
    rounds=1_500,  # enough for several kills on an idle machine
    seeds=1,
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
    records, losses = read_records(folder)
    assert [outcome(record) for record in records] == [outcome(record) for record in whole]
    assert losses == []
    assert len(read_records(folder / "records.jsonl")[0]) == 4
    assert {path.name for path in folder.iterdir()} == {"records.jsonl", "experiment.json", ".lock"}


@pytest.mark.slow
def test_an_interrupt_ends_the_workers_and_says_how_to_go_on(tmp_path):
    (tmp_path / "spec.json").write_text(json.dumps(LONG), encoding="utf-8")
    process = start("run", tmp_path / "spec.json", "--directory", tmp_path / "runs", "--workers", 2)
    while not (tmp_path / "runs" / "experiment.json").exists():
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(3.0)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"kbandits resume {tmp_path / 'runs'} goes on" in said
    assert "Traceback" not in said
    assert not psutil.wait_procs(children, timeout=20.0)[1]
