"""Make all runs of an experiment, in parallel processes, and keep each as soon as it is finished."""

import json
import os
import re
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch_kbandits import checks
from torch_kbandits.errors import InputError, KernelBanditError
from torch_kbandits.experiments.registry import reason
from torch_kbandits.experiments.spec import ExperimentSpec, Trial, load_spec, parse_spec
from torch_kbandits.experiments.summary import RECORDS_FILE, Record, append_record
from torch_kbandits.experiments.trial import build_bandit, build_environment, run_one
from torch_kbandits.extras import require
from torch_kbandits.files import clear_drafts, file_error, locked, read_whole, write_whole

#: The spec that was last run in a directory, and tracebacks.
_SPEC_FILE, _FAILURES_FILE = "experiment.json", "failures.log"


class Failure(NamedTuple):
    """A run that raised: which, why in a line, and the whole traceback."""

    trial: Trial
    reason: str
    traceback: str


class Outcome(NamedTuple):
    """What came of an experiment: the finished runs in the order of the spec, and those that raised.

    How many were ``skipped`` were finished before the call; ``notes`` is the news that went to standard error: failed
    runs, lost lines of the records, warnings (once for each label).
    """

    records: list[Record]
    failures: list[Failure]
    skipped: int
    notes: list[str]


def run_experiment(
    spec: ExperimentSpec | Mapping[str, Any] | str | Path, directory: str | Path, *, workers: int | None = None
) -> Outcome:
    """Make the runs of an experiment that its directory does not hold yet, and keep each as soon as it is finished.

    A call that was killed is taken up by the next one, with the spec or with ``spec_in(directory)``; runs are known by
    what decides their outcome, so a changed spec makes only what is new.

    Args:
        spec: an ``ExperimentSpec``, a table as ``parse_spec`` takes it, or the path of a spec file.
        directory: where records are; made if it does not exist. ``InputError`` if another call is writing there.
        workers: parallel processes, by default and at most one for each core. With one, runs are made in this process.
    """
    if not isinstance(spec, ExperimentSpec):
        spec = load_spec(spec) if isinstance(spec, str | Path) else parse_spec(spec)
    workers, folder = checks.optional(checks.positive_integer)("workers", workers), Path(directory)
    trials = list({trial.key: trial for trial in spec.trials()}.values())
    bars, notes, failures, warned = require("tqdm").tqdm, list[str](), list[Failure](), set[tuple[str, str]]()

    def tell(line: str) -> None:
        notes.append(line)
        bars.write(line, file=sys.stderr)

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error("written", folder, error) from error
    lock = locked(folder / ".lock", f"Another run is writing to {str(folder)!r}: wait, or take another directory.")
    try:
        finished = _begin(spec, folder, tell)
        due = [trial for trial in trials if trial.key not in finished]
        _rehearse(due)
        results = _results(due, max(1, min(workers or len(due), len(due), require("joblib").cpu_count())))
        done = len(trials) - len(due)
        with bars(total=len(trials), initial=done, desc=spec.name, unit="run", disable=None) as bar:
            for trial, result in results:
                bar.update()
                if isinstance(result, Failure):
                    failures.append(result)
                    tell(f"failed: {trial}: {result.reason}")
                    with (folder / _FAILURES_FILE).open("a", encoding="utf-8") as log:
                        log.write(f"{trial}\n{json.dumps(trial.config())}\n{result.traceback}\n")
                    continue
                record, news = result
                append_record(folder, record)
                finished[record.key] = record
                for warning in news:
                    # The same words with the numbers of another seed are no news.
                    words = trial.algorithm.label, re.sub(r"\d[\d.e+-]*", "#", warning)
                    if words not in warned:
                        warned.add(words)
                        tell(f"{trial.algorithm.label}: {warning}")
    finally:
        lock.release()
    return Outcome(_labelled(finished, spec), failures, done, notes)


def read_records(path: str | Path) -> tuple[list[Record], list[str]]:
    """Read finished runs; ``FileError`` if there is no file of them.

    Of a records file they are all, one for each key, in their order; of a directory those of the spec that was last run
    there, in its order and with its labels. Beside them comes a line of words for what is damaged or left out.
    """
    file = Path(path) / RECORDS_FILE if Path(path).is_dir() else Path(path)
    records, losses = dict[str, Record](), list[str]()
    for number, line in enumerate(read_whole(file).split(b"\n"), start=1):
        try:
            if line.strip():
                record = Record(**json.loads(line))
                records.setdefault(record.key, record)
        except (ValueError, TypeError, RecursionError):
            losses.append(f"{file.name}, line {number}: it is cut, or is no record of a run; it is left out.")
    if (Path(path) / _SPEC_FILE).is_file():
        try:
            shown = _labelled(records, spec_in(path))
        except KernelBanditError as error:
            return list(records.values()), [*losses, f"All runs are shown: {error}"]
        if number := len(records) - len(shown):
            left = "All are shown." if not shown else "They are left out."
            losses.append(f"{number} finished run(s) are of another spec, or of code that has changed. {left}")
        return shown or list(records.values()), losses
    return list(records.values()), losses


def spec_in(directory: str | Path) -> ExperimentSpec:
    """Return the experiment that was last run in a directory; ``InputError`` if it holds none."""
    if not (Path(directory) / _SPEC_FILE).is_file():
        raise InputError(f"{str(directory)!r} holds no experiment: kbandits run SPEC --directory DIRECTORY begins one.")
    return load_spec(Path(directory) / _SPEC_FILE)


# ---------------------------------------------------------------- inside


def _begin(spec: ExperimentSpec, folder: Path, tell: Callable[[str], None]) -> dict[str, Record]:
    """Make a directory ready for an experiment, say what was lost, and return its finished runs."""
    clear_drafts(folder)
    file, records = folder / RECORDS_FILE, list[Record]()
    if file.exists():
        records, losses = read_records(file)
        for line in losses:
            tell(line)
        write_whole(file, b"".join(record.line() for record in records))
    write_whole(folder / _SPEC_FILE, json.dumps(spec.content(), indent=1).encode() + b"\n")
    return {record.key: record for record in records}


def _labelled(finished: Mapping[str, Record], spec: ExperimentSpec) -> list[Record]:
    """Return those of the runs of a spec that are finished under its labels, which are no part of what was run."""
    return [replace(finished[trial.key], **trial.config()) for trial in spec.trials() if trial.key in finished]


def _rehearse(due: Sequence[Trial]) -> None:
    """Build each algorithm on each environment once, so that what does not fit is refused before anything runs."""
    problems: dict[str, Any] = {}
    for trial in {(each.environment.label, each.algorithm.label): each for each in due}.values():
        where = trial.environment.label
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if where not in problems:
                    problems[where] = build_environment(trial)
                build_bandit(trial, problems[where])
        except Exception as error:
            raise InputError(f"{trial.algorithm.label} on {where}: {reason(error)}") from error


def _results(due: Sequence[Trial], workers: int) -> Iterator[tuple[Trial, tuple[Record, list[str]] | Failure]]:
    """Yield each run's result when it is there, of processes with one thread each, or of this one if it works alone."""
    joblib, loky = require("joblib"), require("joblib.externals.loky")
    try:
        words = {"inner_max_num_threads": 1, "initializer": _end_with, "initargs": (os.getpid(),)}
        with joblib.parallel_config("loky", n_jobs=workers, **words):
            parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1)
            with closing(parallel(joblib.delayed(_attempt)(trial) for trial in due)) as results:
                yield from results
        if workers > 1:
            loky.get_reusable_executor().shutdown()
    except BrokenProcessPool:
        raise KernelBanditError(
            "A worker process died, as one does when memory runs out. Finished runs are kept: use fewer workers and "
            "run again."
        ) from None


def _attempt(trial: Trial) -> tuple[Trial, tuple[Record, list[str]] | Failure]:
    try:
        return trial, run_one(trial)
    except Exception as error:
        return trial, Failure(trial, reason(error), traceback.format_exc())


def _end_with(parent: int) -> None:
    """End this worker when its parent is gone, which may have been killed without a chance to say so."""

    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
