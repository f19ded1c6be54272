"""Make all runs of an experiment, in parallel processes, and keep each as soon as it is finished."""

import json
import multiprocessing
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from torch_kbandits import checks
from torch_kbandits.errors import InputError, KernelBanditError
from torch_kbandits.experiments import directory as on_disk
from torch_kbandits.experiments import own
from torch_kbandits.experiments.directory import Record
from torch_kbandits.experiments.spec import ExperimentSpec, Trial, load_spec, parse_spec
from torch_kbandits.experiments.trial import build_bandit, build_environment, run_one
from torch_kbandits.extras import require
from torch_kbandits.files import clear_drafts, write_text


class Failure(NamedTuple):
    """A run that raised: which, why in a line, and the whole traceback."""

    trial: Trial
    reason: str
    traceback: str


class Outcome(NamedTuple):
    """What came of an experiment.

    Args:
        records: the finished runs in the order of the spec, those of earlier calls among them.
        failures: the runs that raised; nothing is recorded of them.
        skipped: how many runs were finished before this call.
        notes: what was said meanwhile: lost lines of the records, warnings (once for each label).
    """

    records: list[Record]
    failures: list[Failure]
    skipped: int
    notes: list[str]


def run_experiment(
    spec: ExperimentSpec | Mapping[str, Any] | str | Path,
    directory: str | Path,
    *,
    workers: int | None = None,
    say: Callable[[str], None] | None = None,
) -> Outcome:
    """Make the runs of an experiment that its directory does not hold yet.

    Each finished run is one line of ``records.jsonl``, written when it is finished. So a call that was killed is taken
    up by the next one, with the spec or with ``spec_in(directory)``; runs are known by what decides their outcome, so a
    changed spec makes only what is new.

    Args:
        spec: an ``ExperimentSpec``, a table as ``parse_spec`` takes it, or the path of a spec file.
        directory: where records are; made if it does not exist.
        workers: parallel processes, by default and at most one for each core. With one, runs are made in this process.
        say: called with each line of news; by default it is printed to standard error, above the progress bar.

    Raises:
        InputError: if the spec says what cannot be, or another call is writing to the directory.
        StateMismatchError: if the spec is of own code that has changed since.
        KeyboardInterrupt: after the workers were stopped; finished runs are kept.
    """
    if not isinstance(spec, ExperimentSpec):
        spec = load_spec(spec) if isinstance(spec, str | Path) else parse_spec(spec)
    bars, notes, failures = require("tqdm").tqdm, list[str](), list[Failure]()
    announce = say or (lambda line: bars.write(line, file=sys.stderr))

    def tell(line: str) -> None:
        notes.append(line)
        announce(line)

    workers = checks.optional(checks.positive_integer)("workers", workers)
    folder, trials = Path(directory), list({trial.key: trial for trial in spec.trials()}.values())
    with on_disk.sole_writer(folder):
        finished = _begin(spec, folder, tell)
        due = [trial for trial in trials if trial.key not in finished]
        _rehearse(due)
        warned: set[tuple[str, str]] = set()
        results = _results(due, max(1, min(workers or len(due), len(due), require("joblib").cpu_count())))
        bar = bars(total=len(trials), initial=len(trials) - len(due), desc=spec.name, unit="run", disable=None)
        with bar:
            for trial, result in results:
                bar.update()
                if isinstance(result, Failure):
                    failures.append(result)
                    tell(f"failed: {trial}: {result.reason}")
                    with (folder / on_disk.FAILURES_FILE).open("a", encoding="utf-8") as log:
                        log.write(f"{trial}\n{json.dumps(trial.config())}\n{result.traceback}\n")
                    continue
                record, news = result
                on_disk.append_record(folder, record)
                finished[record.key] = record
                for warning in news:
                    # The same words with the numbers of another seed are no news.
                    words = trial.algorithm.label, re.sub(r"\d[\d.e+-]*", "#", warning)
                    if words not in warned:
                        warned.add(words)
                        tell(f"{trial.algorithm.label}: {warning}")
    return Outcome(_called(finished, spec), failures, len(trials) - len(due), notes)


def load_experiment(path: str | Path) -> tuple[list[Record], list[str]]:
    """Read finished runs to summarise or to draw.

    Args:
        path: a records file: all its runs; or a directory: those of the spec that was last run there, in its order and
            with its labels.

    Returns:
        The records, at least one, and a line of words for each damaged line of the file, which is left out, and for a
        spec that cannot be read, without which all runs are returned.
    """
    records, losses = on_disk.read_records(path)
    if (Path(path) / on_disk.SPEC_FILE).is_file():
        try:
            records = _called({record.key: record for record in records}, spec_in(path))
        except KernelBanditError as error:
            losses.append(f"All runs are shown: {error}")
    if not records:
        raise InputError(f"{str(path)!r} holds no finished run.")
    return records, losses


def spec_in(directory: str | Path) -> ExperimentSpec:
    """Return the experiment that was last run in a directory; ``InputError`` if it holds none."""
    if not (Path(directory) / on_disk.SPEC_FILE).is_file():
        raise InputError(f"{str(directory)!r} holds no experiment: kbandits run SPEC --directory DIRECTORY begins one.")
    return load_spec(Path(directory) / on_disk.SPEC_FILE)


# ---------------------------------------------------------------- inside


def _begin(spec: ExperimentSpec, folder: Path, tell: Callable[[str], None]) -> dict[str, Record]:
    """Make a directory ready for an experiment, say what was lost or has changed, and return its finished runs."""
    clear_drafts(folder)
    records, losses = on_disk.read_records(folder, mend=True) if (folder / on_disk.RECORDS_FILE).exists() else ([], [])
    for loss in losses:
        tell(loss)
    text, file = json.dumps(spec.content(), indent=1), folder / on_disk.SPEC_FILE
    before = own.digests(file.read_text("utf-8", errors="replace")) if file.is_file() else {}
    for name, digest in own.digests(text).items():
        if before.get(name, digest) != digest:
            tell(f"{name} has changed since this directory was run last: what it decides is run again.")
    write_text(file, text + "\n")
    return {record.key: record for record in records}


def _called(finished: Mapping[str, Record], spec: ExperimentSpec) -> list[Record]:
    """Return those of the runs of a spec that are finished under its labels, which are no part of what was run."""
    records = []
    for trial in spec.trials():
        if known := finished.get(trial.key):
            labels = {"environment": trial.environment.label, "algorithm": trial.algorithm.label}
            records.append(replace(known, **{kind: getattr(known, kind) | {"label": labels[kind]} for kind in labels}))
    return records


def _rehearse(due: Sequence[Trial]) -> None:
    """Build each algorithm on each environment once, so that what does not fit is refused before anything runs."""
    problems: dict[str, Any] = {}
    firsts: dict[tuple[str, str], Trial] = {}
    for trial in due:
        firsts.setdefault((trial.environment.label, trial.algorithm.label), trial)
    for (label, _), trial in firsts.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if label not in problems:
                    problems[label] = trial.seed, build_environment(trial)
                seed, environment = problems[label]
                build_bandit(replace(trial, seed=seed), environment)
        except InputError as error:
            raise InputError(f"{trial.algorithm.label} on {label}: {error}") from None


def _results(due: Sequence[Trial], workers: int) -> Iterator[tuple[Trial, tuple[Record, list[str]] | Failure]]:
    """Yield each run's result when it is there, of processes with one thread each, or of this one if it works alone."""
    joblib, loky = require("joblib"), require("joblib.externals.loky")
    try:
        with joblib.parallel_config("loky", n_jobs=workers, inner_max_num_threads=1):
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
    _end_with_parent()
    try:
        return trial, run_one(trial)
    except Exception as error:
        reason = str(error) if isinstance(error, KernelBanditError) else own.said(error)
        return trial, Failure(trial, reason, traceback.format_exc())


@cache
def _end_with_parent() -> None:
    """End a worker when the parent is gone, which may have been killed without a chance to say so."""
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
