"""Make all runs of an experiment, in parallel processes, and keep each as soon as it is finished."""

import json
import multiprocessing
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch_kbandits import checks
from torch_kbandits.environments import AnyEnvironment
from torch_kbandits.errors import InputError, KernelBanditError
from torch_kbandits.experiments import own
from torch_kbandits.experiments.directory import begin, clear, damaged, index_of, sole_writer
from torch_kbandits.experiments.live import INTERVAL, LiveRuns, Report
from torch_kbandits.experiments.records import Record, append_records, mend_records, read_records
from torch_kbandits.experiments.spec import ExperimentSpec, load_spec, parse_spec
from torch_kbandits.experiments.trial import Trial, build_bandit, build_environment, run_one

FAILURES_FILE = "failures.log"
#: Variables that numerical libraries read when they start: a worker has a core, not all.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Failure:
    """A run that raised: which, why in a line, and the whole traceback."""

    trial: Trial
    reason: str
    traceback: str


#: A finished run with the warnings that it drew, or what went wrong.
Result = tuple[Record, list[str]] | Failure


@dataclass(frozen=True)
class Outcome:
    """What came of an experiment.

    Args:
        records: the finished runs in the order of the spec, those of earlier calls among them.
        failures: the runs that raised; nothing is recorded of them.
        skipped: how many runs were finished before this call.
        notes: what was said meanwhile: lost lines of the records, clipped workers, warnings (once for each label).
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
    changed spec makes only what is new. A run with checkpoints goes on from its last one.

    Args:
        spec: what to run: an ``ExperimentSpec``, a table as ``parse_spec`` takes it, or the path of a spec file.
        directory: where records are; made if it does not exist.
        workers: parallel processes; by default one for each core. With one, the runs are made in this process.
        say: called with each line of news; by default it is printed to standard error, above the progress bar.

    Raises:
        InputError: if the spec says what cannot be, an algorithm does not fit its environment, there is less than one
            worker, or another call is writing to the directory.
        StateMismatchError: if the spec is of own code that has changed since.
        KeyboardInterrupt: after the workers were stopped; finished runs are kept.
    """
    if isinstance(spec, str | Path):
        spec = load_spec(spec)
    elif not isinstance(spec, ExperimentSpec):
        spec = parse_spec(spec)
    notes: list[str] = []
    announce = say or (lambda line: print(line, file=sys.stderr))  # noqa: T201

    def tell(line: str) -> None:
        notes.append(line)
        announce(line)

    cores = available_cores()
    workers = cores if workers is None else checks.positive_integer("workers", workers)
    if workers > cores:
        tell(f"{workers} workers were asked for and there are {cores} core(s): {cores} will run.")
    folder, failures = Path(directory), []
    trials = list({trial.key: trial for trial in spec.trials()}.values())
    with sole_writer(folder):
        finished = _begin(spec, folder, tell)
        due = [trial for trial in trials if trial.key not in finished]
        skipped = len(trials) - len(due)
        _rehearse(due)
        warned: set[tuple[str, str]] = set()
        with LiveRuns(len(trials), skipped, spec.name) as live:
            announce = say or live.say
            report = live.show if live.is_shown else None
            with closing(_results(due, folder, min(workers, cores, max(len(due), 1)), report)) as results:
                for trial, result in results:
                    live.finish(trial.key)
                    if isinstance(result, Failure):
                        failures.append(result)
                        tell(f"failed: {trial}: {result.reason}")
                        with (folder / FAILURES_FILE).open("a", encoding="utf-8") as log:
                            log.write(f"{trial}\n{json.dumps(trial.config())}\n{result.traceback}\n")
                        continue
                    record, news = result
                    append_records(folder, [record])
                    finished[record.key] = record
                    for warning in news:
                        # The same words with the numbers of another seed are no news.
                        words = trial.algorithm.label, re.sub(r"\d[\d.e+-]*", "#", warning)
                        if words not in warned:
                            warned.add(words)
                            tell(f"{trial.algorithm.label}: {warning}")
        clear(folder, list(finished))
    return Outcome(_called(finished, _labels(spec)), failures, skipped, notes)


def load_experiment(path: str | Path) -> tuple[list[Record], list[str]]:
    """Read finished runs to summarise or to draw.

    Args:
        path: a records file: all its runs; or a directory: those of the spec that was last run there, in its order and
            with its labels.

    Returns:
        The records, and a line of words for each damaged line of the file, which is left out.

    Raises:
        InputError: if there are no records.
        DamagedFileError: if the directory's list of runs cannot be read.
    """
    records, losses = read_records(path)
    if runs := index_of(Path(path)).get("runs"):
        records = _called({record.key: record for record in records}, runs)
    if not records:
        raise InputError(f"{str(path)!r} holds no finished run.")
    return records, losses


def spec_in(directory: str | Path) -> ExperimentSpec:
    """Return the experiment that was last run in a directory.

    Raises:
        InputError: if the directory holds none.
        DamagedFileError: if what it holds cannot be read.
    """
    index = index_of(Path(directory))
    if "spec" not in index:
        raise InputError(f"{str(directory)!r} holds no experiment: kbandits run SPEC --directory DIRECTORY begins one.")
    try:
        return parse_spec(index["spec"])
    except (InputError, KeyError, TypeError) as error:
        raise damaged(Path(directory), error) from error


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---------------------------------------------------------------- inside


def _begin(spec: ExperimentSpec, folder: Path, tell: Callable[[str], None]) -> dict[str, Record]:
    """Make a directory ready for an experiment, say what was lost or has changed, and return its finished runs."""
    records, losses = mend_records(folder)
    for loss in losses:
        tell(loss)
    finished = {record.key: record for record in records}
    before, content = own.names_in(index_of(folder).get("spec", {})), spec.content()
    for name, digest in own.names_in(content).items():
        if before.get(name, digest) != digest:
            tell(f"{name} has changed since this directory was run last: what it decides is run again.")
    clear(folder, list(finished))
    begin(folder, spec.name, content, _labels(spec))
    return finished


def _labels(spec: ExperimentSpec) -> list[tuple[str, str, str]]:
    return [(trial.key, trial.environment.label, trial.algorithm.label) for trial in spec.trials()]


def _called(finished: Mapping[str, Record], runs: Sequence[tuple[str, str, str]]) -> list[Record]:
    """Return those of the runs that are finished under their labels, which are no part of what was run."""
    return [
        replace(
            known,
            environment={**known.environment, "label": environment},
            algorithm={**known.algorithm, "label": algorithm},
        )
        for key, environment, algorithm in runs
        if (known := finished.get(key)) is not None
    ]


def _rehearse(due: Sequence[Trial]) -> None:
    """Build each algorithm on each environment once, so that what does not fit is said before anything runs."""
    problems: dict[str, tuple[Trial, AnyEnvironment]] = {}
    firsts: dict[tuple[str, str], Trial] = {}
    for trial in due:
        firsts.setdefault((trial.environment.label, trial.algorithm.label), trial)
    for (label, _), trial in firsts.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if label not in problems:
                    problems[label] = trial, build_environment(trial)
                first, environment = problems[label]
                build_bandit(replace(trial, seed=first.seed), environment)
        except InputError as error:
            raise InputError(f"{trial.algorithm.label} on {label}: {error}") from None


def _results(
    due: Sequence[Trial], folder: Path, workers: int, report: Report | None
) -> Generator[tuple[Trial, Result], None, None]:
    """Yield each run's result when it is there; the order depends on the speed of the workers."""
    if workers == 1:
        yield from ((trial, _attempt(trial, folder, report)) for trial in due)
        return
    ours = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with _one_thread_each():
        reports = None if report is None else context.SimpleQueue()
        pool = ProcessPoolExecutor(workers, context, initializer=_begin_worker, initargs=(reports,))
        try:
            with _deaf_to_interrupts():
                waiting: dict[Future, Trial] = {pool.submit(_attempt_in_worker, trial, folder): trial for trial in due}
            while waiting:
                patience = None if reports is None else INTERVAL
                for future in wait(waiting, timeout=patience, return_when=FIRST_COMPLETED).done:
                    yield waiting.pop(future), future.result()
                while report is not None and reports is not None and not reports.empty():
                    report(reports.get())
        except BrokenProcessPool:
            raise KernelBanditError(
                "A worker process died, as one does when memory runs out. Finished runs are kept: use fewer workers "
                "and run again."
            ) from None
        except BaseException:
            for process in set(multiprocessing.active_children()) - ours:
                process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _attempt(trial: Trial, folder: Path, report: Report | None = None) -> Result:
    try:
        return run_one(trial, directory=folder, report=report)
    except Exception as error:
        reason = str(error) if isinstance(error, KernelBanditError) else own.said(error)
        return Failure(trial, reason, traceback.format_exc())


#: In a worker: where it says how its runs are doing; None if nobody looks.
_reports: Any = None


def _begin_worker(reports: Any) -> None:
    """End when the parent is gone, which may have been killed without a chance to say so."""
    global _reports
    _reports = reports
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def _attempt_in_worker(trial: Trial, folder: Path) -> Result:
    return _attempt(trial, folder, None if _reports is None else _reports.put)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Let the processes that are started inside ignore Ctrl-C, which reaches all of them: this one ends the others."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let the processes that are started inside begin with one thread."""
    before = {name: os.environ.pop(name) for name in _THREADS if name in os.environ}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name in _THREADS:
            del os.environ[name]
        os.environ.update(before)
