"""Choose one of 62,208 settings for every network that customers want trained, while earlier trainings still run.

Every half minute somebody wants a network trained on one of four data sets, and says how much of a hurry there is. What
a setting of nine hyperparameters brings is known when its training has ended, seconds or an hour later: the digits of
accuracy, less what the customer's hurry makes of the time it took. So several trainings always run, and they end in
another order than they began. All of it is replayed from trainings that were recorded (``train_networks_jobs.py``).

The settings are in a file. A bandit that knows neither kernel nor noise chooses by data set, hurry and setting
together, learns from the latest 500 rewards, and is saved every fifty jobs. Stop this script whenever you like: run
again, it goes on where it was saved last, and ends as if it had not been stopped. It is compared with one that forgets
nothing, with one whose prior was fitted beforehand and with chance, and with the setting that is best for all jobs
together, had one known it.

    python examples/train_networks.py                  # minutes on one core; stop it and go on as you like
    python examples/train_networks.py --quick          # a minute
    python examples/train_networks.py --stop-after 70  # as if it had been killed after 70 jobs

Writes ``record.json`` and ``figure.png`` to ``runs/train_networks``, and to ``bandits`` in there the file of settings
and one of each bandit.
"""

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import common
import numpy as np
import torch
from common import BLUE, GREEN, GREY, ORANGE, PURPLE, Record
from matplotlib.figure import Figure
from train_networks_jobs import EVERY, JOB, SECONDS_PER_JOB, SETTING, Job, jobs, settings, write_settings

from torch_kbandits import Bandit, ColumnSpec, ContextualActions, LearnedPrior, Prior, algorithms, fit_prior
from torch_kbandits.files import write_text
from torch_kbandits.memory import Memory, SlidingWindow
from torch_kbandits.priors import default_kernel

#: A bandit is saved after so many jobs.
JOBS_PER_SAVE = 50

#: Rewards that count: the latest.
WINDOW = SlidingWindow(500, "observations")

#: The most points of a dictionary, which says what a choice among tens of thousands of settings costs.
MAX_DICTIONARY = 100

#: Multiplier of the standard deviation. With 2, in 400 jobs of another stream on one in sixteen settings and with a
#: dictionary of 100, a job lost 0.55 in the mean where it lost 0.39.
BETA = 1.0

#: Trainings of random settings, of another stream of jobs, from which the prior of ``known`` is.
LOGGED, LOG_SEED = 400, 1_000


def bandit(path: Path, seed: int, prior: Prior | LearnedPrior, memory: Memory | None) -> Bandit:
    """Return CBKB on the joint points of a job and a setting of a file."""
    mapped = np.load(path, mmap_mode="r")
    return algorithms.CBKB(
        candidates=ContextualActions(mapped, context_columns=JOB, action_columns=SETTING),
        prior=prior,
        memory=memory,
        resampling="growth",
        max_dictionary=MAX_DICTIONARY,
        when_full="stop",
        beta=BETA,
        seed=seed,
    )


def known(path: Path) -> Prior:
    """Return kernel, noise and mean as trainings of another year tell them."""
    earlier, rng = jobs(LOGGED, LOG_SEED), np.random.default_rng(LOG_SEED)
    offered = torch.from_numpy(np.load(path))
    rows = torch.from_numpy(rng.integers(len(offered), size=LOGGED))
    X = torch.cat([JOB.encode([job.row for job in earlier]), offered[rows]], dim=-1)
    rewards = [job.reward(row) for job, row in zip(earlier, rows.tolist(), strict=True)]
    joint = ColumnSpec([*JOB.columns, *SETTING.columns])
    return fit_prior(X, rewards, kernel=default_kernel(joint.width, joint.groups))


BANDITS: dict[str, Callable[[Path, int], Bandit]] = {
    "CBKB, prior learned, last 500": lambda path, seed: bandit(path, seed, LearnedPrior(), WINDOW),
    "CBKB, prior learned, all": lambda path, seed: bandit(path, seed, LearnedPrior(), None),
    "CBKB, prior known, last 500": lambda path, seed: bandit(path, seed, known(path), WINDOW),
}
RANDOM = "random settings"


class Course:
    """What one policy did so far, kept in a folder so that it goes on from there.

    A bandit numbers what it asks, from 0, as jobs are numbered, so that rewards are told by the numbers of their jobs:
    neither the job nor the setting need be kept. The log is written before the bandit: it has all of its jobs, or more.
    The folder has the settings, and the bandit's own files beside them.
    """

    def __init__(self, name: str, folder: Path, seed: int, stream: Sequence[Job]) -> None:
        self.stream, self.seed, self._log = stream, seed, folder / f"{name}, seed {seed}.json"
        self._file, self._number, self.bandit = self._log.with_suffix(".kb"), len(settings()), None
        self.played: list[int] = []
        self.open: list[int] = []
        self.times: dict[str, list[float]] = {"choose": [], "learn": [], "save": []}
        if name == RANDOM:
            return
        path = folder / "settings.npy"
        self._settings = torch.from_numpy(np.load(path))
        self.bandit = Bandit.load(self._file) if self._file.exists() else BANDITS[name](path, seed)
        self.open = [number for number in self.bandit.pending_ids if number < len(stream)]
        if started := len(self.bandit.history.X) + len(self.bandit.pending_ids):
            log = json.loads(self._log.read_text(encoding="utf-8"))
            self.played = log["played"][: min(started, len(stream))]
            self.times = {what: spent[: started if what == "choose" else None] for what, spent in log["times"].items()}

    def go_on(self, until: int) -> None:
        """Choose settings for jobs up to a number; learn what came of them when their trainings have ended."""
        for job in self.stream[len(self.played) : until]:
            ended = sorted((self.ends(number), number) for number in self.open)
            told = [number for end, number in ended if end <= job.number * SECONDS_PER_JOB]
            if told and self.bandit is not None:
                rewards = [self.stream[number].reward(self.played[number]) for number in told]
                self._timed("learn", partial(self.bandit.tell, ids=told, y=rewards))
            self.open = [number for number in self.open if number not in told]
            self.played.append(self._timed("choose", partial(self.choose, job)))
            self.open.append(job.number)
            if len(self.played) % JOBS_PER_SAVE == 0:
                self._timed("save", self.save)

    def choose(self, job: Job) -> int:
        """Return the row of a setting: ask in the context of the job, a row that goes in as it is, or draw."""
        if self.bandit is None:
            return int(np.random.default_rng([self.seed, job.number]).integers(self._number))
        return int((self._settings == self.bandit.ask(context=job.row)).all(-1).nonzero()[0])

    def ends(self, number: int) -> float:
        """Return when a job ends, in seconds."""
        return self.stream[number].ends(self.played[number])

    def save(self) -> None:
        """Write what was played, then the bandit."""
        if self.bandit is not None:
            write_text(self._log, json.dumps({"played": self.played, "times": self.times}))
            self.bandit.save(self._file)

    def _timed(self, what: str, do: Callable[[], Any]) -> Any:
        started = time.process_time()
        result = do()
        self.times[what].append(time.process_time() - started)
        return result

    def record(self) -> Record:
        """Return what was played and lost, how many trainings ran at once, and what a job took."""
        expected = [job.expected() for job in self.stream]
        ends = np.array([self.ends(number) for number in range(len(self.played))])
        starts = SECONDS_PER_JOB * np.arange(len(ends))
        found: Record = {
            "settings": self.played,
            "regret": [float(each.max() - each[row]) for each, row in zip(expected, self.played, strict=True)],
            "running": [int(((starts <= now) & (ends > now)).sum()) for now in starts],
            "seconds": {what: sum(spent) for what, spent in self.times.items()},
            "median_choice": float(np.median(self.times["choose"])),
        }
        if self.bandit is not None:
            found["regularization"] = self.bandit.prior.regularization
        return found


def best_for_all(stream: Sequence[Job]) -> Record:
    """Return the setting with the largest mean over all jobs, and what it loses in each."""
    expected = np.array([job.expected() for job in stream])
    best = int(expected.mean(0).argmax())
    return {"setting": settings()[best], "regret": (expected.max(1) - expected[:, best]).tolist()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Let every policy choose for the same jobs, from where each was stopped, and write record and figure."""
    parser = common.options_of("train_networks", __doc__)
    parser.add_argument("--jobs", type=common.whole_number(12), default=700, help="in the stream, at least 12")
    parser.add_argument("--stop-after", type=common.whole_number(), help="end after so many jobs, without a record")
    parser.add_argument("--quick", action="store_true", help="80 jobs")
    parser.set_defaults(quick_size=80, runs=1)
    options = common.parse(parser, arguments)
    number = options.size if options.quick else options.jobs
    torch.set_num_threads(1)
    folder, stream = options.output / "bandits", jobs(number, options.seed)
    folder.mkdir(exist_ok=True)
    if not (folder / "settings.npy").exists():  # a bandit goes on with the file that it was saved with
        write_settings(folder / "settings.npy")
    courses = {name: Course(name, folder, options.seed, stream) for name in (*BANDITS, RANDOM)}
    for name, course in courses.items():
        print(f"{name}: from job {len(course.played)}", flush=True)
        course.go_on(number if options.stop_after is None else options.stop_after)
    if options.stop_after is not None:
        return
    record = {
        "settings": {"jobs": number, "seed": options.seed, "every": EVERY, "max_dictionary": MAX_DICTIONARY},
        "best_for_all": best_for_all(stream),
        "policies": {name: course.record() for name, course in courses.items()},
    }
    common.finish(options, record, report, figure=draw)


def report(record: Record) -> list[Any]:
    """Say what each policy lost, and what a job took."""
    number, rows = record["settings"]["jobs"], []
    last = slice(number - number // 4, number)
    for name, played in record["policies"].items():
        regret, spent = np.array(played["regret"]), 1e3 * sum(played["seconds"].values()) / number
        cells = (f"{regret.mean():.3f}", f"{regret[last].mean():.3f}", f"{1e3 * played['median_choice']:.1f}")
        rows.append([name, *cells, f"{spent:.1f}"])
    fixed = np.array(record["best_for_all"]["regret"])
    best = ["best setting for all, had one known it", f"{fixed.mean():.3f}", f"{fixed[last].mean():.3f}", "", ""]
    most = max(max(played["running"]) for played in record["policies"].values())
    columns = ["", "regret\nof a job", "in the last\nquarter", "ms to\nchoose", "ms\na job"]
    return [
        common.table(f"{number} jobs", columns, [*rows, None, best]),
        "Regret is in digits, from the means of four trainings; times are of the processor, to choose in the median, a "
        f"job in the mean with all that is told, fitted and saved. Up to {most} trainings ran at once.",
    ]


def draw(record: Record) -> Figure:
    """Return two panels: cumulative regret, and how many trainings run."""
    figure = Figure(figsize=(12.0, 4.6), layout="constrained")
    regret, running = figure.subplots(1, 2)
    highest = 0.0
    for (name, played), colour in zip(record["policies"].items(), (BLUE, GREEN, ORANGE, PURPLE), strict=False):
        numbers, lost = np.arange(1, len(played["regret"]) + 1), np.cumsum(played["regret"])
        regret.plot(numbers, lost, color=colour, linewidth=2.0, label=name)
        running.plot(numbers, played["running"], color=colour, linewidth=0.8, label=name)
        highest = highest if name == RANDOM else max(highest, lost[-1])
    fixed = np.cumsum(record["best_for_all"]["regret"])
    regret.plot(np.arange(1, len(fixed) + 1), fixed, color=GREY, linestyle="--", label="best setting for all, if known")
    regret.set(title="Cumulative regret", xlabel="jobs", ylabel="digits", ylim=(0, 1.3 * max(highest, fixed[-1])))
    running.set(title="Trainings that run when a job comes in", xlabel="jobs", ylim=(0, None))
    regret.legend(frameon=False, fontsize=9)
    common.tidy([regret, running], "ab")
    return figure


if __name__ == "__main__":
    main()
