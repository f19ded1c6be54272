"""The recipes of docs/logging.md run, with what stands in for the clients of trackers, and are short."""

import json
import logging
import re
import sys
import types
from pathlib import Path

import pytest
from kinds import ARMS, KINDS, make, play

from torch_kbandits import Arms

PAGE = (Path(__file__).parents[2] / "docs" / "logging.md").read_text(encoding="utf-8")
#: By the bold word before each.
RECIPES = dict(re.findall(r"^\*\*([\w &]+)[:*].*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))


def fake(name, monkeypatch, **members):
    module = types.ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


def played(recipe, rounds=3):
    """A bandit with the callback of a recipe, and the rewards that it was told."""
    bandit = make("bkb")
    exec(RECIPES[recipe], {"bandit": bandit})
    for number in range(rounds):
        bandit.tell(bandit.ask(), float(number))
    assert len(bandit.callbacks) == 1
    return bandit


@pytest.mark.parametrize("recipe", ["MLflow", "TensorBoard", "Weights & Biases", "Health"])
def test_recipes_are_short(recipe):
    assert len([line for line in RECIPES[recipe].splitlines() if line.strip()]) <= 10


def test_mlflow_gets_rewards(monkeypatch):
    metrics = []
    fake("mlflow", monkeypatch, log_metric=lambda key, value, step=None: metrics.append((key, value, step)))
    played("MLflow")
    assert metrics == [("reward", 0.0, 1), ("reward", 1.0, 2), ("reward", 2.0, 3)]


def test_tensorboard_gets_rewards_in_a_file_of_events(monkeypatch, tmp_path):
    """By the writer of tensorboardX, of which that of PyTorch is a copy."""
    writers = pytest.importorskip("tensorboardX")
    monkeypatch.chdir(tmp_path)
    fake("torch.utils.tensorboard", monkeypatch, SummaryWriter=writers.SummaryWriter)
    bandit = played("TensorBoard")
    bandit.callbacks[0].writer.close()
    (events,) = (tmp_path / "runs" / "bandit").iterdir()
    assert events.read_bytes().count(b"reward") >= 3


def test_weights_and_biases_gets_deviations(monkeypatch):
    logged, projects = [], []

    def init(project):
        projects.append(project)
        return types.SimpleNamespace(log=logged.append)

    fake("wandb", monkeypatch, init=init)
    played("Weights & Biases")
    assert projects == ["prices"]
    assert [each["round"] for each in logged] == [0, 1, 2]
    assert all(0.0 < each["std"] <= 1.0 for each in logged)


def test_health_is_logged_every_so_many_rounds(caplog):
    with caplog.at_level(logging.INFO, "health"):
        played("Health", rounds=201)
    assert [json.loads(record.getMessage())["round"] for record in caplog.records] == [100, 200]


def test_tables_have_every_key_of_a_line(tmp_path):
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    tables = set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in rows)))
    named, keys = Arms(ARMS[:3], names=["a", "b", "c"]), set()
    bandits = {name: KINDS[name].make() for name in ("outcomes", "ek-ucb, sets of each round", "dates", "noise told")}
    for name, bandit in {**bandits, "bkb": make("bkb", candidates=named)}.items():
        bandit.log_to(tmp_path / "log.jsonl", contexts=True)
        play(KINDS[name], bandit, 2)
    for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines():
        keys |= json.loads(line).keys()
    assert keys == tables | {"event", "log", "at"}
