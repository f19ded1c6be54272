"""Choose one of 62,208 settings for every network that customers want trained, while earlier trainings still run.

Every half minute somebody wants a network trained on one of four data sets, and says how much of a hurry there is. What
a setting of nine hyperparameters brings is known when its training has ended, seconds or an hour later: the digits of
accuracy, less what the customer's hurry makes of the time it took. So several trainings always run, and they end in
another order than they began. All of it is replayed from trainings that were recorded (``train_networks_jobs.py``).

The settings are in a file. A bandit that knows neither kernel nor noise chooses by data set, hurry and setting
together, learns from the latest 500 rewards, and is saved every fifty jobs. Stop this script whenever you like: run
again, it goes on where it was saved last, and ends as if it had not been stopped. It is compared with one that forgets
nothing, with one whose prior was fitted beforehand and with chance (``train_networks_policies.py``), and with the
setting that is best for all jobs together, had one known it.

    python examples/train_networks.py                  # minutes on one core; stop it and go on as you like
    python examples/train_networks.py --quick          # a minute
    python examples/train_networks.py --stop-after 70  # as if it had been killed after 70 jobs

Writes ``record.json`` and ``figure.png`` to ``runs/train_networks``, and to ``bandits`` in there the file of settings
and one of each bandit.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from records import make_folder, versions, whole_number, write_record
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from train_networks_figure import draw
from train_networks_jobs import EVERY, SECONDS_PER_JOB, TABLES, Job, jobs, settings, write_settings
from train_networks_policies import BANDITS, RANDOM, AnySetting, Contextual, Policy, described

from torch_kbandits import Bandit
from torch_kbandits.files import write_text
from torch_kbandits.plotting.style import write_figure

#: A bandit is saved after so many jobs.
JOBS_PER_SAVE = 50


class Course:
    """What one policy did so far, kept in a folder so that it goes on from there.

    Args:
        name: of the policy.
        folder: with the settings; the bandit's own files are beside them.
        seed: of the run.
        stream: the jobs.
    """

    def __init__(self, name: str, folder: Path, seed: int, stream: Sequence[Job]) -> None:
        self.stream, self._log = stream, folder / f"{name}, seed {seed}.json"
        self._file = self._log.with_suffix(".kb") if name in BANDITS else None
        self.played: list[int] = []
        self.times: dict[str, list[float]] = {"choose": [], "learn": [], "save": []}
        self.policy: Policy = AnySetting(seed, len(settings()))
        started = 0
        if self._file is not None:
            bandit = Bandit.load(self._file) if self._file.exists() else BANDITS[name](folder / "settings.npy", seed)
            self.policy = Contextual(bandit, folder / "settings.npy")
            self.open = [number for number in bandit.pending_ids if number < len(stream)]
            started = len(bandit.history.X) + len(bandit.pending_ids)
        else:
            self.open = []
        if started:  # the log was written before the bandit, so that it has all of its jobs, or more
            known = json.loads(self._log.read_text(encoding="utf-8"))
            self.played = known["played"][: min(started, len(stream))]
            self.times = {
                name: spent[: started if name == "choose" else None] for name, spent in known["times"].items()
            }

    def go_on(self, until: int) -> None:
        """Choose settings for jobs up to a number."""
        for job in self.stream[len(self.played) : until]:
            now = job.number * SECONDS_PER_JOB
            ended = sorted((self.ends(number), number) for number in self.open)
            known = [number for end, number in ended if end <= now]
            if known:
                rewards = [self.stream[number].reward(self.played[number]) for number in known]
                self._timed("learn", lambda known=known, rewards=rewards: self.policy.learn(known, rewards))
                self.open = [number for number in self.open if number not in known]
            self.played.append(self._timed("choose", lambda job=job: self.policy.choose(job)))
            self.open.append(job.number)
            if len(self.played) % JOBS_PER_SAVE == 0:
                self._timed("save", self.save)

    def ends(self, number: int) -> float:
        """Return when a job ends, in seconds."""
        return self.stream[number].ends(self.played[number])

    def save(self) -> None:
        """Write what was played, then the bandit."""
        if self._file is not None and isinstance(self.policy, Contextual):
            write_text(self._log, json.dumps({"played": self.played, "times": self.times}))
            self.policy.bandit.save(self._file)

    def _timed(self, what: str, do: Any) -> Any:
        started = time.process_time()
        result = do()
        self.times[what].append(time.process_time() - started)
        return result

    def record(self) -> dict[str, Any]:
        """Return what was played and lost, how many trainings ran at once, and what a job took."""
        expected = [job.expected() for job in self.stream]
        regret = [float(each.max() - each[setting]) for each, setting in zip(expected, self.played, strict=True)]
        ends = np.array([self.ends(number) for number in range(len(self.played))])
        starts = SECONDS_PER_JOB * np.arange(len(ends))
        running = [int(((starts <= now) & (ends > now)).sum()) for now in starts]
        found: dict[str, Any] = {"settings": self.played, "regret": regret, "running": running}
        found["seconds"] = {what: sum(spent) for what, spent in self.times.items()}
        found["median_choice"] = float(np.median(self.times["choose"]))
        if isinstance(self.policy, Contextual):
            prior, bandit = self.policy.bandit.prior, self.policy.bandit
            found |= {"dictionary_size": len(bandit.inducing_points), "regularization": prior.regularization}
        return found


def best_for_all(stream: Sequence[Job]) -> dict[str, Any]:
    """Return the setting that is best for the jobs together, and what it would have lost."""
    expected = np.stack([job.expected() for job in stream])
    best = int(expected.mean(0).argmax())
    return {"setting": best, "values": settings()[best], "regret": (expected.max(1) - expected[:, best]).tolist()}


def report(record: dict[str, Any], output: Path) -> None:
    """Print what each policy lost, and what a job took."""
    number = record["settings"]["jobs"]
    last = slice(number - max(1, number // 4), number)
    table = Table(title=f"{number:,} jobs, {record['settings']['offered']:,} settings", box=SIMPLE_HEAD, pad_edge=False)
    for column in ("", "regret per job", "last quarter", "ms to choose", "ms a job"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, played in record["policies"].items():
        regret, spent = np.array(played["regret"]), 1e3 * sum(played["seconds"].values()) / number
        cells = (f"{regret.mean():.3f}", f"{regret[last].mean():.3f}", f"{1e3 * played['median_choice']:.1f}")
        table.add_row(name, *cells, f"{spent:.1f}")
    table.add_section()
    fixed = np.array(record["best_for_all"]["regret"])
    table.add_row("best setting for all, had one known it", f"{fixed.mean():.3f}", f"{fixed[last].mean():.3f}", "", "")
    console = Console(width=max(Console().width, 100))  # a pipe would get 80 columns and cut the cells
    console.print(table)
    console.print(
        "Regret is in digits, from the means of four trainings; times are of the processor, to choose in the median, a "
        "job in the mean with all that is told, fitted and saved. "
        f"Up to {max(max(played['running']) for played in record['policies'].values())} trainings ran at once.",
        highlight=False,
    )
    console.print(f"Wrote {output / 'record.json'} and {output / 'figure.png'}.", highlight=False, soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Let every policy choose for the same jobs, from where each was stopped, and write record and figure."""
    options = parse_arguments(arguments)
    torch.set_num_threads(1)
    folder = options.output / "bandits"
    folder.mkdir(exist_ok=True)
    if not (folder / "settings.npy").exists():  # a bandit goes on with the file that it was saved with
        write_settings(folder / "settings.npy")
    stream = jobs(options.jobs, options.seed)
    courses = {name: Course(name, folder, options.seed, stream) for name in (*BANDITS, RANDOM)}
    for name, course in courses.items():
        print(f"{name}: from job {len(course.played)}", flush=True)
        course.go_on(options.jobs if options.stop_after is None else options.stop_after)
    if options.stop_after is not None:
        return
    record = {
        "settings": {"jobs": options.jobs, "seed": options.seed, "offered": len(settings()), "every": EVERY}
        | {"tables": list(TABLES), "seconds_per_job": SECONDS_PER_JOB}
        | described(),
        "versions": versions(),
        "best_for_all": best_for_all(stream),
        "policies": {name: course.record() for name, course in courses.items()},
    }
    write_record(options.output / "record.json", record)
    write_figure(options.output / "figure.png", draw(record))
    report(record, options.output)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options, and make the folder to write to."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--jobs", type=whole_number(12), default=700, help="in the stream, at least 12")
    parser.add_argument("--seed", type=int, default=0, help="of jobs and policies")
    parser.add_argument("--stop-after", type=whole_number(), help="end after so many jobs, without a record")
    parser.add_argument("--quick", action="store_true", help="80 jobs")
    parser.add_argument("--output", type=Path, default=Path("runs/train_networks"), help="folder to write to")
    options = parser.parse_args(arguments)
    if options.quick:
        options.jobs = 80
    make_folder(parser, options.output)
    return options


if __name__ == "__main__":
    main()
