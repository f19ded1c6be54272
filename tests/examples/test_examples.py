"""The examples run as a user runs them, with small settings."""

import importlib
import json
import math
import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def outcome(script, folder, *arguments):
    """What an example printed in a process of its own, and its record; the figure must be a PNG."""
    command = [sys.executable, str(EXAMPLES / script), "--output", str(folder), *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert process.returncode == 0, process.stderr
    return process, written(folder)


def written(folder):
    names = {path.name for path in folder.iterdir() if path.is_file()}
    assert names >= {"figure.png", "record.json"}
    for name in names - {"record.json"}:
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    return json.loads((folder / "record.json").read_text())


def main_of(script, monkeypatch):
    """What a script does, in this process: imports are most of a short run."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module(script.removesuffix(".py")).main


@pytest.fixture(params=["here", pytest.param("alone", marks=pytest.mark.slow)])
def sized(request, monkeypatch, capsys):
    """A function that runs an example and says how large: tiny in this process, or larger in a process of its own.

    Tiny ones may have other constants (``_task.NAME``: one of the task), and their figures are coarse and not laid out,
    which is to draw them twice.
    """

    def play(script, folder, tiny, larger, **constants):
        if request.param == "alone":
            return *outcome(script, folder, *larger), False
        main = main_of(script, monkeypatch)
        monkeypatch.setattr("matplotlib.figure.Figure.get_layout_engine", lambda figure: None)
        monkeypatch.setattr("torch_kbandits.plotting.style._DOTS_PER_INCH", 30)
        for name, value in constants.items():
            monkeypatch.setattr(script.removesuffix(".py") + name, value)
        main(["--output", str(folder), *map(str, tiny)])
        printed = capsys.readouterr()
        return SimpleNamespace(stdout=printed.out, stderr=printed.err), written(folder), True

    return play


@pytest.mark.slow
def test_tune_classifier(tmp_path, sized):
    sizes = [["--runs", 1, "--evaluations", number] for number in (3, 4)]
    constants = {"_task.DEVELOPMENT_SIZE": 160, "_task.VALIDATION_SIZE": 32, "_task.EPOCHS": 1, "_task.REFITS": 2}
    process, record, tiny = sized("tune_classifier.py", tmp_path / "one", *sizes, **constants)
    assert "random search" in process.stdout
    assert "Dictionary at the end of run 1" in process.stdout
    assert "training" in process.stderr  # the progress bar
    (trial,) = record["runs"]
    assert [len(search) for search in trial["searches"].values()] == [3 if tiny else 4] * 2
    for evaluation in trial["searches"]["BKB"]:
        assert 0.0 <= evaluation["score"] <= 1.0
        assert isinstance(evaluation["configuration"]["hidden_units"], int)
        assert 1e-4 <= evaluation["configuration"]["learning_rate"] <= 1.0
    assert [len(result["held_out"]) for result in trial["results"]] == [2 if tiny else 5] * 4


@pytest.mark.slow
def test_variance_starvation_reproduces_the_figure_of_the_paper(tmp_path):
    process, record = outcome("variance_starvation.py", tmp_path)
    assert "SoR" in process.stdout
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


def test_personalise_prices(tmp_path, sized):
    sizes = ["--runs", 1, "--offers", 50], ["--quick"]
    constants = {".believed.__defaults__": (5,)}
    process, record, tiny = sized("personalise_prices.py", tmp_path / "quick", *sizes, **constants)
    assert "EK-UCB, traveller and price" in process.stdout
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


@pytest.fixture
def few_networks(monkeypatch):
    """Constants for jobs on one data set, of few settings, and for two policies."""
    monkeypatch.syspath_prepend(EXAMPLES)
    bandits = importlib.import_module("train_networks").BANDITS
    name = next(iter(bandits))
    few = {"_jobs.EVERY": 300, "_jobs.TABLES": ("naval_propulsion",), ".JOBS_PER_SAVE": 4}
    return few | {".BANDITS": {name: bandits[name]}}


def test_train_networks(tmp_path, sized, few_networks):
    process, record, tiny = sized("train_networks.py", tmp_path / "all", ["--jobs", 13], ["--quick"], **few_networks)
    number = 13 if tiny else 80
    assert "best setting for all, had one known it" in process.stdout
    assert len(record["policies"]) == (2 if tiny else 4)
    for played in record["policies"].values():
        assert len(played["settings"]) == len(played["regret"]) == number
        assert min(played["regret"]) >= 0.0  # from the means: no setting is better than the best one
        assert max(played["running"]) > 1  # rewards come late
    learned = record["policies"]["CBKB, prior learned, last 500"]
    assert sum(learned["regret"]) < 0.8 * sum(record["policies"]["random settings"]["regret"]) or tiny


@pytest.mark.slow
def test_networks_go_on_where_they_were_stopped(tmp_path, few_networks, monkeypatch, capsys):
    """Stopped between two saves they end as if they had not been stopped."""
    main = main_of("train_networks.py", monkeypatch)
    for name, value in few_networks.items():
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


@pytest.mark.slow
def test_follow_the_weather(tmp_path, sized):
    sizes = ["--runs", 1, "--days", 3], ["--quick"]
    process, record, tiny = sized("follow_the_weather.py", tmp_path / "quick", *sizes)
    assert "UI-GP-UCB, memory that fades" in process.stdout
    assert (tmp_path / "quick" / "seasons.png").exists()
    (only,) = record["runs"]
    assert len(only["policies"]) == 5
    assert (record["dates"][0], len(record["dates"])) == ("2013-01-01", 3 if tiny else 60)
    for played in only["policies"].values():
        # What is lost follows from the measured temperature and what was prepared for: the best arm is half a degree
        # off at most, and every arm is a whole degree.
        for prepared, lost, temperature in zip(
            played["prepared"], played["regret"], record["temperatures"], strict=True
        ):
            best = math.exp(-((round(temperature) - temperature) ** 2) / 50.0)
            assert lost == pytest.approx(best - math.exp(-((prepared - temperature) ** 2) / 50.0), abs=1e-9)
        assert statistics.mean(played["regret"]) < record["without_learning"]["any, by lot"] or tiny


def test_run_a_reactor(tmp_path, sized):
    sizes = ["--runs", 1, "--batches", 10], ["--quick"]
    process, record, tiny = sized("run_a_reactor.py", tmp_path / "quick", *sizes, **{"_plant.DELAYS": (1, 3)})
    batches = 10 if tiny else 40
    assert "safe limit, forgets nothing" in process.stdout
    (only,) = record["runs"]
    assert len(only["policies"]) == 6
    limit = record["settings"]["limit"]
    for name, played in only["policies"].items():
        assert len(played["peaks"]) == len(played["yields"]) == len(only["best"]) == batches
        for peak, given, best in zip(played["peaks"], played["yields"], only["best"], strict=True):
            assert given <= best or peak > limit, name  # no other set-point that keeps the limit gives more
    for name in ("safe limit", "safe limit, forgets nothing"):
        assert sum(peak > limit for peak in only["policies"][name]["peaks"]) <= 1
    assert max(only["policies"]["no limit"]["peaks"]) > limit
    assert [posterior["batch"] for posterior in only["posteriors"]] == ([0, 5] if tiny else [0, 23])


@pytest.mark.slow
def test_tune_pipeline(tmp_path):
    process, record = outcome("tune_pipeline.py", tmp_path, "--quick")
    assert "random search" in process.stdout
    (only,) = record["runs"]
    for name, result in only["results"].items():
        assert 0.1 < result["held_out"] <= 1.0, name
        assert {*result["configuration"]} == {"scale", "pca__n_components", "pca__whiten", "svc__C", "svc__gamma"}
    for name, scores in only["scores"].items():
        assert len(scores) == 8
        assert only["results"][name]["score"] == max(scores)


@pytest.mark.slow
def test_choose_learning_rate(tmp_path):
    process, record = outcome("choose_learning_rate.py", tmp_path, "--quick")
    assert "cosine 1.0" in process.stdout
    (only,) = record["runs"]
    assert len(only["contenders"]) == 10
    for name, played in only["contenders"].items():
        assert len(played["test_loss"]) == 6, name
        assert min(played["reward"]) >= -math.log(record["settings"]["tolerance"])
        assert played["undone"] == sum(reward < -0.22 for reward in played["reward"]), name
        assert not name.startswith(("bandit", "random")) or {*played["rate"]} <= {*record["settings"]["rates"]}
    assert only["contenders"]["constant 0.1"]["accuracy"] > 0.8


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("follow_the_weather.py", ["--days", "1096"], "argument --days: must be from 1 to 1095, got 1096"),
        ("tune_classifier.py", ["--evaluations", "0"], "argument --evaluations: must be at least 3, got 0"),
        ("tune_classifier.py", ["--runs", "many"], "argument --runs: invalid whole number value: 'many'"),
        ("variance_starvation.py", ["--seed", "none"], "invalid int value"),
        ("train_networks.py", ["--jobs", "2"], "argument --jobs: must be at least 12, got 2"),
        ("personalise_prices.py", ["--offers", "0"], "argument --offers: must be at least 50, got 0"),
        ("run_a_reactor.py", ["--batches", "9"], "argument --batches: must be at least 10, got 9"),
        ("choose_learning_rate.py", ["--epochs", "0"], "argument --epochs: must be at least 1, got 0"),
    ],
)
def test_bad_arguments_are_named(script, arguments, message, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stopped:
        main_of(script, monkeypatch)(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
