"""Specs and words of the command line that no one means: a line with exit code 2, at once, whatever they are."""

import json
import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from small_experiments import TOML
from torch.overrides import TorchFunctionMode

from torch_kbandits.cli import main
from torch_kbandits.experiments.records import RECORDS_FILE

DIGITS = "9" * 5000
HUGE = str(10**21)


class Work(TorchFunctionMode):
    """The bytes of the largest tensor that is made."""

    largest = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.largest = max(self.largest, made.nbytes)
        return made


def refused(*arguments, code=2):
    """What is said, in a few lines."""
    with Work() as work:
        result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == code, result.output[-500:]
    assert isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    assert len(result.output) < 1500
    assert work.largest < 2**26
    return result.output


def toml(rest="", environment="", rounds="10", **words):
    lines = [f"rounds = {rounds}", *(f"{key} = {value}" for key, value in words.items()), rest]
    return "\n".join([*lines, '[[environments]]\nname = "rkhs-function"', environment, '[[algorithms]]\nname = "bkb"'])


SPECS = {
    "deep.json": ("[" * 10**5 + "]" * 10**5, "nested too deeply"),
    "deep.toml": (f"x = {'[' * 10**4}{']' * 10**4}", "nested too deeply"),
    "dotted.toml": (toml(environment="x" + ".a" * 10**5 + " = 1"), "nested too deeply"),
    "tables.toml": (toml(rest="settings.beta = " + "{width = " * 50 + "1" + "}" * 50), "nested too deeply"),
    "digits.json": (json.dumps({"rounds": 0}).replace("0", DIGITS), "too many digits"),
    "digits.toml": (toml(rounds=DIGITS), "too many digits"),
    "rounds.toml": (toml(rounds=HUGE), "rounds must be at most"),
    "seeds.toml": (toml(seeds=HUGE), "seeds must be at most 100,000"),
    "list.toml": (toml(seeds='["1"]'), r"seeds\[0\] must be a whole number"),
    "arms.toml": (toml(environment=f"num_arms = {HUGE}"), "num_arms × num_arms must be at most"),
    "columns.toml": (toml(environment=f"dimension = {HUGE}"), "num_arms × dimension must be at most"),
    "large.toml": ("# " + "x" * 10**6, "more than 1,000,000 characters"),
    "zeros.toml": ("\0" * 100, "not valid TOML"),
}


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_that_no_one_means_is_refused(name, tmp_path):
    text, message = SPECS[name]
    (tmp_path / name).write_text(text)
    said = refused("run", str(tmp_path / name), "--directory", str(tmp_path / "runs"), "--workers", "1")
    assert re.search(message, " ".join(said.split()))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "environment", ["rkhs-function", "gp-sample", "gaussian-bumps", "test-function", "moving-peak", "abrupt", "drift"]
)
def test_more_arms_than_memory_has_are_refused(environment):
    for number in (10**8 if environment in ("rkhs-function", "gp-sample") else 10**9, HUGE):
        said = refused("compare", "-e", f"{environment}:num_arms={number}", "-a", "bkb", "--beta", "2")
        assert "num_arms" in said
        assert "2 GB" in said


WORDS = [
    ("--seeds", HUGE), ("--seeds", DIGITS), ("--rounds", HUGE), ("--rounds", "9" * 400), ("--beta", "[" * 10**4),
    ("--beta", DIGITS), ("--setting", f"regularization={DIGITS}"), ("--setting", 'regularization="0.1"'),
    ("--setting", "beta=" + "{width=" * 30 + "1" + "}" * 30), ("-a", f"bkb:max_dictionary={DIGITS},label=more"),
]  # fmt: skip


@pytest.mark.parametrize("words", WORDS, ids=range(len(WORDS)))
def test_words_that_no_one_means_are_refused(words):
    refused("compare", "-e", "rkhs-function", "-a", "bkb:label=one", *words)


@pytest.mark.parametrize("text", ["[" * 10**5, f'{{"runs": {DIGITS}}}'])
def test_what_is_nested_in_a_directory_is_named(text, tmp_path):
    (tmp_path / "small.toml").write_text(TOML)
    (tmp_path / "experiment.json").write_text(text)
    assert "is damaged" in refused("resume", str(tmp_path), code=1)
    (tmp_path / "experiment.json").unlink()
    Path(tmp_path / RECORDS_FILE).write_text(text)
    refused("summarize", str(tmp_path))
    assert "no spec" in refused("run", "/dev/zero")
