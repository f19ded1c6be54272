"""A spec says the same in TOML and in JSON, and what it cannot mean is named, with where it stands."""

import json
import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from problems import DOUBLE, data
from small_experiments import CONTENT, TOML, content, small

from torch_kbandits import BKBWidth, InputError, RidgeLeverageSampling, ScaledWidth
from torch_kbandits.cli import main
from torch_kbandits.confidence import (
    BayesianGPUCBWidth,
    ConstantGain,
    GPUCBWidth,
    GuessAndDouble,
    IGPUCBWidth,
    KUCBWidth,
    MartingaleMixtureWidth,
    RateGain,
    RealizedGain,
    SelfNormalizedWidth,
)
from torch_kbandits.environments import build
from torch_kbandits.experiments import load_spec, parse_spec, run_experiment
from torch_kbandits.experiments.registry import build_kernel, build_width
from torch_kbandits.experiments.trial import build_bandit, build_environment

WORDS = {"noise_scale": 0.1, "norm_bound": 2.0, "failure_probability": 0.05}
SPECS = sorted((Path(__file__).parents[2] / "benchmarks" / "specs").glob("*.toml"))


pytestmark = pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")


def test_toml_and_json_say_the_same_and_every_pair_is_run_with_every_seed(tmp_path):
    (tmp_path / "small.toml").write_text(TOML.replace('name = "small"\n', "", 1), encoding="utf-8")
    (tmp_path / "a.json").write_text(json.dumps(CONTENT), encoding="utf-8")
    assert load_spec(tmp_path / "small.toml") == load_spec(tmp_path / "a.json") == small()
    trials = list(small(seeds=[3, 5]).trials())
    assert [(trial.algorithm.label, trial.seed) for trial in trials] == [
        ("gp-ucb", 3), ("BKB", 3), ("gp-ucb", 5), ("BKB", 5)
    ]  # fmt: skip
    assert len({trial.key for trial in trials}) == 4


def test_keys_follow_the_content_and_not_the_labels():
    def keys(**changes):
        return [trial.key for trial in small(**changes).trials()]

    base, relabelled = keys(), content()
    relabelled["algorithms"][0]["label"] = "another"
    assert [trial.key for trial in parse_spec(relabelled).trials()] == keys(name="another") == base
    assert keys(settings={"norm_bound": 2.0, "noise_scale": 0.2, "beta": 2}) == keys(seeds=3)[:4] == base
    for change in ({"rounds": 31}, {"record_every": 2}, {"settings": {"beta": 2.5}}):
        assert not set(keys(**change)) & set(base)


def test_settings_go_to_the_algorithms_that_take_them_and_nearer_ones_first():
    spec = small(
        settings={"beta": 1.0, "regularization": 0.5, "horizon": 9},
        environments=[{"name": "rkhs-function", "settings": {"beta": 2.0}}],
        algorithms=[
            {"name": "bkb", "resampling": "coupled", "max_dictionary": 9, "when_full": "stop"},
            {"name": "bkb", "label": "own", "beta": 3.0, "regularization": 0.25},
            {"name": "random"},
            {"name": "sup-kernel-ucb"},
        ],
    )
    environment = build("rkhs-function", seed=0)
    first, second, third, fourth = (build_bandit(trial, environment) for trial in list(spec.trials())[:4])
    assert (float(first.beta), first.regularization) == (2.0, 0.5)
    assert (float(second.beta), second.regularization) == (3.0, 0.25)
    assert [type(each).__name__ for each in (third, fourth)] == ["RandomSearch", "SupKernelUCB"]
    assert fourth.rule.horizon == 9
    rule = first.dictionary
    assert (rule.max_size, rule.when_full, rule.rule) == (9, "stop", RidgeLeverageSampling(3.0, "coupled"))
    known = build_bandit(next(small(algorithms=[{"name": "gp-ei"}]).trials()), environment)
    assert known.regularization == environment.regularization


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2, 2.0),
        ("igp-ucb", IGPUCBWidth(0.1, 2.0, 0.05, RealizedGain())),
        ({"width": "martingale-mixture", "mixture": 2.0}, MartingaleMixtureWidth(0.1, 2.0, 0.05, mixture=2.0)),
        ({"width": "igp-ucb", "scale": 0.1}, ScaledWidth(IGPUCBWidth(0.1, 2.0, 0.05), 0.1)),
        ({"width": "bkb", "norm_bound": 3.0, "accuracy": 0.25}, BKBWidth(0.1, 3.0, 0.05, 0.25)),
        ({"width": "gp-ucb", "gain": 4.0}, GPUCBWidth(2.0, 0.05, ConstantGain(4.0))),
        ({"width": "gp-ucb", "gain": {"rate": "rbf"}}, GPUCBWidth(2.0, 0.05, RateGain("rbf", 2))),
        (
            {"width": "gp-ucb", "gain": {"rate": "matern", "nu": 2.5, "constant": 0.5}},
            GPUCBWidth(2.0, 0.05, RateGain("matern", 2, 2.5, 0.5)),
        ),
        (
            {"width": "self-normalized", "double": True, "norm_bound": 0.5},
            GuessAndDouble(SelfNormalizedWidth(0.1, 0.5, 0.05)),
        ),
        ("bayesian-gp-ucb", BayesianGPUCBWidth(7, 0.05)),
    ],
)
def test_widths_by_name(value, expected):
    assert build_width("beta", value, WORDS | {"candidates": torch.zeros(7, 2, dtype=DOUBLE)}) == expected


def test_a_width_names_what_it_needs_and_the_greedy_gain_gets_it():
    arms, words = data(5, 2)[0], WORDS | {"kernel": build_kernel("kernel", "rbf"), "horizon": 9, "regularization": 0.1}
    gain = build_width("beta", {"width": "igp-ucb", "gain": "certified-greedy"}, words | {"candidates": arms}).gain
    assert (gain.candidates, gain.horizon, gain.regularization, gain.certified) == (arms, 9, 0.1, True)
    greedy = {"width": "igp-ucb", "gain": "greedy"}
    for value, given, needed in ((greedy, words, "candidates"), ("igp-ucb", {}, "norm_bound")):
        with pytest.raises(InputError, match=f"needs .*{needed}"):
            build_width("beta", value, {"noise_scale": 0.1, "failure_probability": 0.1} | given)


def test_widths_by_name_in_contexts():
    environment, words = build("bump", seed=0), {"norm_bound": 2.0}
    gain = {"rate": "rbf", "dimension": 6}
    widths = {"width": "k-ucb"} | words, {"width": "gp-ucb", "gain": gain} | words
    spec = small(algorithms=[{"name": "k-ucb", "label": each["width"], "beta": each} for each in widths])
    found = [build_bandit(trial, environment).width for trial in list(spec.trials())[:2]]
    assert found == [KUCBWidth(0.2, 2.0, 0.1), GPUCBWidth(2.0, 0.1, RateGain("rbf", 6))]
    for value, needed in (("bayesian-gp-ucb", "num_arms"), ({**widths[1], "gain": {"rate": "rbf"}}, "dimension")):
        (trial, *_) = small(algorithms=[{"name": "k-ucb", "beta": value}]).trials()
        with pytest.raises(InputError, match=f"needs {needed}"):
            build_bandit(trial, environment)


E, A = {"name": "rkhs-function"}, {"name": "bkb"}


def beta(**words):
    return {"settings": {"beta": words}}


def kernel(value):
    return {"settings": {"kernel": value}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithms": [A, {"name": "gp-uct"}]}, r"algorithms\[1\]: 'gp-uct' is no algorithm; did you mean 'gp-uc"),
        ({"environments": [E | {"lenghtscale": 1}]}, "'lenghtscale' is no option of env.*mean 'lengthscale'"),
        ({"environments": [{"name": "sensors"}]}, "environment 'sensors' needs csv"),
        ({"setings": {}}, "'setings' is no key; did you mean 'settings'"),
        (beta(width="igpucb"), "'igpucb' is no width; did you mean 'igp-ucb'"), (beta(scale=0.1), "beta needs a width"),
        (beta(width="bkb", scal=1), "'scal' is no option of width.*mean 'scale'"),
        (beta(width="bkb", gain="greedy"), "'gain' is no option of width 'bkb'"),
        (beta(width="gp-ucb", double="yes"), "true or false"),
        ({"settings": {"gain": "realised"}}, "'realised' is no information gain; did you mean 'realized'"),
        ({"settings": {"gain": {"nu": 2.5}}}, "needs a rate"), (kernel({"lengthscale": 1}), "kernel needs a name"),
        (kernel({"name": "rbf", "lengthscale": 0}), r"kernel\.lengthscale must be"),
        (kernel(3), "kernel must be a GPyTorch kernel"),
        ({"settings": {"failure_probability": 1}}, "strictly between 0 and 1"),
        ({"environments": [E | {"settings": {"bta": 1}}]}, r"environments\[0\]\.settings: 'bta'"),
        ({"algorithms": [A, A]}, "Two algorithms are called 'bkb'"),
        ({"algorithms": ["bkb"]}, r"algorithms\[0\] must be a table"),
        ({"rounds": 2.5}, "rounds must be a whole number"), ({"record_every": 0}, "record_every must be"),
        ({"seeds": []}, "seeds must be"), ({"seeds": [1, 1]}, "differ from each other"),
        ({"name": "a/b"}, "without slashes"),
    ],
)  # fmt: skip
def test_what_a_spec_cannot_mean_is_named(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        run_experiment(small(**change), tmp_path, workers=1)
    assert not (tmp_path / "records.jsonl").exists()


def make_up_records(options, rounds):
    """Write files of 28 stations in place of those that a spec reads and the repository has not."""
    names = [f"station {i}" for i in range(28)]
    Path(options["csv"]).parent.mkdir(parents=True, exist_ok=True)
    days = ["day," + ",".join(names), *(f"day {t}," + ",".join(str(t + i) for i in range(28)) for t in range(rounds))]
    Path(options["csv"]).write_text("\n".join(days), encoding="utf-8")
    places = ["name,x,y", *(f"{name},{i},0" for i, name in enumerate(names))]
    Path(options["locations"]).write_text("\n".join(places), encoding="utf-8")


@pytest.mark.one_in(32)
@pytest.mark.parametrize("file", SPECS, ids=lambda file: file.stem)
def test_the_papers_specs_are_valid(file, tmp_path, monkeypatch):
    assert len(SPECS) >= 4
    spec = load_spec(file)
    assert spec.name == file.stem
    monkeypatch.chdir(tmp_path)
    for trial in list(spec.trials())[:: len(spec.seeds)]:
        if trial.environment.name == "sensor-replay":
            make_up_records(trial.environment.options, trial.rounds)
        if trial.environment.name != "hpolib":
            build_bandit(trial, build_environment(trial))


DIGITS = "9" * 5000
HUGE = str(10**21)


def refused(*arguments):
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 2, result.output[-500:]
    assert "Traceback" not in result.output
    assert len(result.output) < 1500
    return " ".join(result.output.split())


def toml(rest="", environment="", rounds="10", **words):
    lines = [f"rounds = {rounds}", *(f"{key} = {value}" for key, value in words.items()), rest]
    return "\n".join([*lines, '[[environments]]\nname = "rkhs-function"', environment, '[[algorithms]]\nname = "bkb"'])


HOSTILE = {
    "deep.json": ("[" * 10**5 + "]" * 10**5, "recursion depth"),
    "deep.toml": (f"x = {'[' * 10**4}{']' * 10**4}", "recursion depth"),
    "digits.json": (json.dumps({"rounds": 0}).replace("0", DIGITS), "digits"),
    "seeds.toml": (toml(seeds=HUGE), "seeds, unless they are a list, must be at most 1,000,000"),
    "list.toml": (toml(seeds='["1"]'), r"seeds\[0\] must be a whole number"),
    "arms.toml": (toml(environment=f"num_arms = {HUGE}"), "num_arms × num_arms must be at most .* 2 GB"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_spec_that_no_one_means_is_refused(name, tmp_path):
    text, message = HOSTILE[name]
    (tmp_path / name).write_text(text)
    said = refused("run", str(tmp_path / name), "--directory", str(tmp_path / "runs"), "--workers", "1")
    assert re.search(message, said)


HOSTILE_WORDS = [
    ("--seeds", HUGE), ("--seeds", DIGITS), ("--rounds", "9" * 400), ("--beta", "[" * 10**4),
    ("--beta", DIGITS), ("--setting", 'regularization="0.1"'), ("--setting", "beta=" + "{width=" * 30 + "1" + "}" * 30),
    ("-a", f"bkb:max_dictionary={DIGITS},label=more"),
]  # fmt: skip


@pytest.mark.parametrize("words", HOSTILE_WORDS, ids=range(len(HOSTILE_WORDS)))
def test_words_that_no_one_means_are_refused(words):
    refused("compare", "-e", "rkhs-function", "-a", "bkb:label=one", *words)
