"""Own algorithms, environments, kernels, widths and memories in specs: named, checked, run, and known by their code."""

import json
import shutil

import pytest
import torch

from torch_kbandits import InputError
from torch_kbandits.experiments import (
    load_spec,
    parse_spec,
    play,
    read_records,
    run_experiment,
    spec_in,
)
from torch_kbandits.experiments.trial import build_bandit, build_environment

CODE = """
from dataclasses import dataclass
import torch
from gpytorch.kernels import RBFKernel
from torch_kbandits import Bandit, Width
from torch_kbandits.candidates import Arms
from torch_kbandits.environments import FiniteArms
from torch_kbandits.memory import Memory

class Turns:
    def __init__(self, candidates, step=1):
        self.arms, self.step, self.told = candidates, step, 0
    def ask(self):
        row = self.told * self.step % len(self.arms)
        return self.arms[row : row + 1]
    def tell(self, x, y):
        self.told += len(y)

class Wide(Bandit):
    def __init__(self, *, candidates, kernel, regularization, seed, beta=None, memory=None):
        words = {"kernel": kernel, "regularization": regularization, "width": beta, "memory": memory, "seed": seed}
        super().__init__(candidates=Arms(candidates), **words)

def slope(num_arms=20, *, seed):
    arms = torch.linspace(0.0, 1.0, num_arms, dtype=torch.float64)[:, None]
    return FiniteArms(arms, arms[:, 0].clone(), 0.1, seed, kernel=RBFKernel().double(), regularization=0.01)

class Slope(FiniteArms):
    def __init__(self, num_arms, *, seed):
        self.__dict__.update(slope(num_arms, seed=seed).__dict__)

class Narrow(RBFKernel):
    def __init__(self, width=0.1):
        super().__init__()
        self.lengthscale = width

@dataclass(frozen=True)
class Shrinking(Width):
    start: float
    noise_scale: float = 1.0
    def __call__(self, evidence):
        return torch.tensor(self.start, dtype=torch.float64)

@dataclass(frozen=True)
class Latest(Memory):
    age: float = 5.0
    def noise(self, times, now, regularization):
        return torch.where(now - times <= self.age, float(regularization), torch.inf)

class Broken(Turns):
    def __init__(self, candidates):
        raise RuntimeError("out of luck")

def nothing(seed=0):
    return None
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a file of code, which is not where the process is."""
    (tmp_path / "specs").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "specs" / "mine.py").write_text(CODE, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "specs"


def content(**changes):
    table = {
        "rounds": 8,
        "environments": [{"name": "mine.py:slope", "num_arms": 5}],
        "algorithms": [{"name": "mine.py:Turns", "step": 2}],
    }
    return table | changes


def parsed(folder, **changes):
    return parse_spec(content(**changes), folder=folder)


def test_an_own_algorithm_plays_an_own_environment(folder, tmp_path):
    outcome = run_experiment(parsed(folder), tmp_path / "run", workers=1)
    assert not outcome.failures
    (record,) = outcome.records
    # Arms 0, 2, 4, 1, 3, … of means 0, ¼, …, 1.
    means = torch.tensor([0.0, 0.5, 1.0, 0.25, 0.75, 0.0, 0.5, 1.0], dtype=torch.float64)
    assert record.cumulative_regret == pytest.approx(torch.cumsum(1.0 - means, 0).tolist(), abs=1e-12)
    assert (record.algorithm["label"], record.environment["label"]) == ("Turns", "slope")
    assert (record.dictionary_size, record.recommended_mean) == ([0] * 8, None)
    assert record.algorithm["name"].startswith("mine.py:Turns@")


def test_a_table_a_path_and_a_spec_are_the_same_experiment(folder, tmp_path, monkeypatch):
    (folder / "spec.json").write_text(json.dumps(content()), encoding="utf-8")
    with pytest.raises(InputError, match=r"environments\[0\]\.name: .*mine\.py"):
        parse_spec(content())
    (trial,) = load_spec(folder / "spec.json").trials()
    assert len(build_environment(trial).arms) == 5
    monkeypatch.chdir(folder)
    specs = parsed(folder), content(), folder / "spec.json", str(folder / "spec.json")
    keys = [run_experiment(spec, tmp_path / "run", workers=1).records[0].key for spec in specs]
    assert len(set(keys)) == len(read_records(tmp_path / "run")[0]) == 1


def test_own_kernels_widths_and_memories_reach_a_bandit(folder):
    words = {
        "kernel": {"name": "mine.py:Narrow", "width": 0.25},
        "beta": {"width": "mine.py:Shrinking", "start": 3.0, "scale": 0.5},
        "memory": "mine.py:Latest",
    }
    for name in ("mine.py:Wide", "gp-ucb"):
        (trial,) = parsed(folder, algorithms=[{"name": name, **words}]).trials()
        environment = build_environment(trial)
        bandit = build_bandit(trial, environment)
        assert float(bandit.beta) == 1.5
        play(bandit, environment, 8)
        assert bandit.model.covar_module.lengthscale.item() == pytest.approx(0.25)
        assert len(bandit.model.train_targets) < 8


def test_runs_of_changed_code_are_other_runs_wherever_the_file_is(folder, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folder, tmp_path / "moved")
    (trial,), (moved,) = parsed(folder).trials(), parsed(tmp_path / "moved").trials()
    assert trial.key == moved.key
    first = run_experiment(parsed(folder), run, workers=1)
    again = run_experiment(spec_in(run), run, workers=1)
    assert (again.skipped, again.notes) == (1, [])

    (folder / "mine.py").write_text(CODE.replace("self.told * self.step", "0"), encoding="utf-8")
    records, losses = read_records(run)
    assert records == first.records
    assert "code that has changed" in losses[0]
    other = run_experiment(spec_in(run), run, workers=1)
    assert other.skipped == 0
    assert other.records[0].cumulative_regret[-1] == 8.0
    assert len(read_records(run / "records.jsonl")[0]) == 2

    (folder / "mine.py").write_text(CODE, encoding="utf-8")
    back = run_experiment(parsed(folder), run, workers=1)
    assert back.skipped == 1
    assert back.records[0].cumulative_regret == first.records[0].cumulative_regret

    (folder / "mine.py").unlink()
    with pytest.raises(InputError, match=r"mine\.py' cannot be read"):
        spec_in(run)


def player(name, **options):
    return {"algorithms": [{"name": name, **options}]}


def problem(name, **options):
    return {"environments": [{"name": name, **options}]}


def setting(key, name, **options):
    return {"settings": {key: {"width" if key == "beta" else "name": name, **options} if options else name}}


MEMORY = {"name": "mine.py:Latest", "agee": 1}
WRONG = [
    # What is said when the spec is read.
    (player("bkbb"), "Your own is path/to/file.py:Class or package.module:Class"),
    (player("mine.py:Turn"), r"algorithms\[0\]\.name: 'Turn' is no class .*mine\.py'; did you mean 'Turns'"),
    (player("mine.py:Turns", stepp=1), "'stepp' is no option of algorithm 'Turns'; did you mean 'step'"),
    (player("others.py:Turns"), r"others\.py' cannot be read"), (player("itertools:count"), "in no file"),
    (player("no_module:A"), r"'no_module' cannot be imported: ModuleNotFoundError: No module named 'no_module'"),
    (player("bad.py:Turns"), r"bad\.py' cannot be imported: ZeroDivisionError: .* \(bad\.py, line 2\)"),
    (player("bkb", memory=MEMORY), r"'agee' is no option of memory 'Latest'; .* 'age'"),
    (problem("mine.py:Slope"), "'Slope' needs num_arms"),
    (setting("kernel", "mine.py:Latest"), "kernel must be a GPyTorch kernel"),
    # What is said before anything runs.
    (player("mine.py:Broken"), r"Broken on rkhs-function: RuntimeError: out of luck \(mine.py, line \d+\)"),
    (problem("mine.py:nothing"), "nothing must be an environment, got None of type NoneType"),
    (setting("beta", "mine.py:Shrinking"), "width 'Shrinking' needs start"),
    (setting("beta", "mine.py:Latest"), "beta must be a Width"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_what_own_code_cannot_be_is_named(folder, tmp_path, change, message):
    (folder / "bad.py").write_text("# a line\n1 / 0\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        run_experiment(parsed(folder, **player("bkb") | problem("rkhs-function") | change), tmp_path / "run", workers=1)
    assert not (tmp_path / "run" / "records.jsonl").exists()
