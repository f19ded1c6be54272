"""The examples run as a user runs them, with small settings."""

import importlib
import json
import math
import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def written(folder):
    """The record of an example; its figures must be PNGs."""
    names = {path.name for path in folder.iterdir() if path.is_file()}
    assert names >= {"figure.png", "record.json"}
    for name in names - {"record.json"}:
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    return json.loads((folder / "record.json").read_text())


def main_of(name, monkeypatch):
    """What a script does, in this process: imports are most of a short run."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module(name).main


# ---------------------------------------------------------------- what must be true of a record, tiny or not


def choose_among_many(record, tiny):
    (only,) = record["runs"]
    ours, theirs = (only["policies"][name] for name in ("BKB, torch_kbandits", "exact GP, BoTorch"))
    assert len(ours["regret"]) == len(ours["seconds"]) == (20 if tiny else 60)
    assert 0 < len(theirs["regret"]) <= len(ours["regret"])
    assert theirs["seconds"][-1] <= ours["seconds"][-1]  # not one choice beyond the seconds of the other
    for played in (ours, theirs):
        assert min(played["regret"]) >= 0.0  # from the means: no setting is better than the best one
        assert all(later >= earlier for earlier, later in pairwise(played["seconds"]))
    fixed = only["without_learning"]
    assert 0.0 <= fixed["kept"] < fixed["random"]
    assert statistics.mean(ours["regret"][-20:]) < fixed["random"] or tiny


def variance_starvation(record, tiny):
    """The figure of the paper."""
    assert [stage["t"] for stage in record["stages"]] == [6, 63, 215]
    for stage in record["stages"]:
        exact, dtc, starved = (stage["mean_band_widths"][name] for name in ("exact", "DTC", "SoR"))
        # Wide where nothing is known, as the exact one; the starved band is not.
        assert dtc["without data"] > 0.9 * exact["without data"]
        assert starved["without data"] < 0.5 * exact["without data"]
        # It is DTC's without a term that is never negative.
        assert all(starved[half] <= dtc[half] for half in dtc)
        # Narrow where there are data, within the factor α = 3 of an accurate dictionary.
        assert exact["with data"] / 3.0**0.5 < dtc["with data"] < 3.0**0.5 * exact["with data"]
    assert record["stages"][2]["mean_band_widths"]["DTC"]["with data"] < 0.3
    assert record["stages"][2]["dictionary_size"] < 100


def personalise_prices(record, tiny):
    (only,) = record["runs"]
    assert len(only["policies"]) == 4
    for played in only["policies"].values():
        assert len(played["regret"]) == (50 if tiny else 300)
        # From expected margins: no offer can do better than the best one, whatever the luck.
        assert all(later >= earlier for earlier, later in pairwise([0.0, *played["regret"]]))
        # An offer stays open for 8 hours at most; one is made every 3 minutes, and outcomes are told 10 offers apart.
        assert 20 < played["most_open"] < 170 or tiny
    lost = {name: played["regret"][-1] for name, played in only["policies"].items()}
    assert lost["EK-UCB, traveller and price"] < 0.6 * lost["random prices"] or tiny
    for curve in only["posterior"]["curves"]:
        assert len(curve["mean"]) == len(curve["truth"]) == len(record["settings"]["prices"])


def train_networks(record, tiny):
    assert len(record["policies"]) == (2 if tiny else 4)
    for played in record["policies"].values():
        assert len(played["settings"]) == len(played["regret"]) == (13 if tiny else 80)
        assert min(played["regret"]) >= 0.0  # from the means: no setting is better than the best one
        assert max(played["running"]) > 1  # rewards come late
    learned = record["policies"]["CBKB, prior learned, last 500"]
    assert sum(learned["regret"]) < 0.8 * sum(record["policies"]["random settings"]["regret"]) or tiny


def follow_the_weather(record, tiny):
    (only,) = record["runs"]
    assert len(only["policies"]) == 5
    assert (record["dates"][0], len(record["dates"])) == ("2013-01-01", 3 if tiny else 60)
    for played in only["policies"].values():
        # What is lost follows from the measured temperature and what was prepared for: the best arm is half a degree
        # off at most, and every arm is a whole degree.
        for prepared, lost, measured in zip(played["prepared"], played["regret"], record["temperatures"], strict=True):
            best = math.exp(-((round(measured) - measured) ** 2) / 50.0)
            assert lost == pytest.approx(best - math.exp(-((prepared - measured) ** 2) / 50.0), abs=1e-9)
        assert statistics.mean(played["regret"]) < record["without_learning"]["any, at random"] or tiny


def run_a_reactor(record, tiny):
    (only,) = record["runs"]
    assert len(only["policies"]) == 6
    limit = record["settings"]["limit"]
    for name, played in only["policies"].items():
        assert len(played["peaks"]) == len(played["yields"]) == len(only["best"]) == (10 if tiny else 40)
        for peak, given, best in zip(played["peaks"], played["yields"], only["best"], strict=True):
            assert given <= best or peak > limit, name  # no other set-point that keeps the limit gives more
    for name in ("safe limit", "safe limit, forgets nothing"):
        assert sum(peak > limit for peak in only["policies"][name]["peaks"]) <= 1
    assert max(only["policies"]["no limit"]["peaks"]) > limit
    assert [posterior["batch"] for posterior in only["posteriors"]] == ([0, 5] if tiny else [0, 23])


def tune_pipeline(record, tiny):
    (only,) = record["runs"]
    for name, result in only["results"].items():
        assert 0.1 < result["held_out"] <= 1.0, name
        assert {*result["configuration"]} == {"scale", "pca__n_components", "pca__whiten", "svc__C", "svc__gamma"}
    for name, scores in only["scores"].items():
        assert len(scores) == 8
        assert only["results"][name]["score"] == max(scores)


def choose_learning_rate(record, tiny):
    (only,) = record["runs"]
    assert len(only["contenders"]) == 10
    for name, played in only["contenders"].items():
        assert len(played["test_loss"]) == 6, name
        assert min(played["reward"]) >= -math.log(record["settings"]["tolerance"])
        assert played["undone"] == sum(reward < -0.22 for reward in played["reward"]), name
        assert not name.startswith(("bandit", "random")) or {*played["rate"]} <= {*record["settings"]["rates"]}
    assert only["contenders"]["constant 0.1"]["accuracy"] > 0.8


def evaluate_a_policy(record, tiny):
    (one,) = record["runs"]
    assert [*one["policies"]] == ["clicks, all", "clicks, men", "clicks, women", "digits, RBF", "digits, linear"]
    for name, found in one["policies"].items():
        for mean, low, high in found.values():
            assert low <= mean <= high, name
        # On real logs what is estimated of Thompson sampling and what it earned agree within both intervals.
        if name.startswith("clicks"):
            for estimator in ("IPS", "SNIPS", "DR"):
                assert found[estimator][1] < found["known"][2], name
                assert found["known"][1] < found[estimator][2], name
    assert one["better"] == "digits, RBF"


# ---------------------------------------------------------------- runs


def few_networks(monkeypatch):
    """Constants for jobs on one data set, of few settings, and for two policies."""
    monkeypatch.syspath_prepend(EXAMPLES)
    name, bandit = next(iter(importlib.import_module("train_networks").BANDITS.items()))
    few = {".EVERY": 300, ".TABLES": ("naval_propulsion",), ".JOBS_PER_SAVE": 4}
    return few | {".BANDITS": {name: bandit}}


QUICK = "--quick"
#: What an example prints, the options of a larger run in a process of its own, and of a tiny one in this process those
#: and other constants. Of others there is no tiny one.
RUNS = {
    personalise_prices: ("EK-UCB", QUICK, "--runs 1 --offers 50", lambda _: {".believed.__defaults__": (5,)}),
    train_networks: ("best setting for all, had one known it", QUICK, "--jobs 13", few_networks),
    run_a_reactor: ("forgets nothing", QUICK, "--runs 1 --batches 10", lambda _: {".DELAYS": (1, 3)}),
    follow_the_weather: ("UI-GP-UCB, memory that fades", QUICK, "--runs 1 --days 3", lambda _: {}),
    choose_among_many: ("the same processor time", QUICK, "--choices 20", lambda _: {".RANDOM_STARTS": 2}),
    variance_starvation: ("SoR", ""),
    tune_pipeline: ("random search", QUICK),
    choose_learning_rate: ("cosine 1.0", QUICK),
    evaluate_a_policy: ("Deployed: digits, RBF", QUICK),
}


@pytest.mark.slow
@pytest.mark.parametrize("check", RUNS)
def test_an_example_runs_alone(check, tmp_path):
    says, options, *_ = RUNS[check]
    if check is evaluate_a_policy:
        pytest.importorskip("obp", reason="needs obp 0.4.1, in the extra 'dev'")
    command = [sys.executable, f"{EXAMPLES / check.__name__}.py", "--output", str(tmp_path), *options.split()]
    process = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert process.returncode == 0, process.stderr
    assert says in process.stdout
    assert check is not choose_among_many or "choices/s" in process.stderr  # the progress bar
    check(written(tmp_path), False)


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(each, marks=[pytest.mark.slow] * (each in (follow_the_weather, choose_among_many)))
        for each, run in RUNS.items()
        if len(run) == 4
    ],
)
def test_an_example_runs_tiny(check, tmp_path, monkeypatch, capsys):
    """Figures are coarse and not laid out, which is to draw them twice."""
    says, _, options, constants = RUNS[check]
    main = main_of(check.__name__, monkeypatch)
    monkeypatch.setattr("matplotlib.figure.Figure.get_layout_engine", lambda figure: None)
    monkeypatch.setattr("torch_kbandits.plotting.style._DOTS_PER_INCH", 30)
    for name, value in constants(monkeypatch).items():
        monkeypatch.setattr(check.__name__ + name, value)
    main(["--output", str(tmp_path), *options.split()])
    assert says in capsys.readouterr().out
    check(written(tmp_path), True)
    assert check is not follow_the_weather or (tmp_path / "seasons.png").exists()


@pytest.mark.slow
def test_networks_go_on_where_they_were_stopped(tmp_path, monkeypatch, capsys):
    """Stopped between two saves they end as if they had not been stopped."""
    main = main_of("train_networks", monkeypatch)
    for name, value in few_networks(monkeypatch).items():
        monkeypatch.setattr(f"train_networks{name}", value)
    main(["--jobs", "13", "--output", str(tmp_path / "whole")])
    main(["--jobs", "13", "--output", str(tmp_path / "stopped"), "--stop-after", "11"])
    assert not (tmp_path / "stopped" / "record.json").exists()
    capsys.readouterr()
    main(["--jobs", "13", "--output", str(tmp_path / "stopped")])
    assert "CBKB, prior learned, last 500: from job 8" in capsys.readouterr().out
    whole, stopped = (written(tmp_path / name)["policies"] for name in ("whole", "stopped"))
    for name, played in whole.items():
        assert played["settings"] == stopped[name]["settings"]
        assert played.get("regularization") == stopped[name].get("regularization")


def test_bad_arguments_are_named(monkeypatch, capsys):
    for name, arguments, message in (
        ("follow_the_weather", ["--days", "1096"], "argument --days: must be from 1 to 1095, got 1096"),
        ("choose_among_many", ["--choices", "0"], "argument --choices: must be at least 20, got 0"),
        ("choose_among_many", ["--runs", "many"], "argument --runs: invalid whole number value: 'many'"),
        ("variance_starvation", ["--seed", "none"], "invalid int value"),
        ("train_networks", ["--jobs", "2"], "argument --jobs: must be at least 12, got 2"),
        ("personalise_prices", ["--offers", "0"], "argument --offers: must be at least 50, got 0"),
        ("run_a_reactor", ["--batches", "9"], "argument --batches: must be at least 10, got 9"),
        ("choose_learning_rate", ["--epochs", "0"], "argument --epochs: must be at least 1, got 0"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main_of(name, monkeypatch)(arguments)
        assert stopped.value.code == 2
        assert message in capsys.readouterr().err
