"""The command line: what a newcomer types works, and what is wrong is said in a line with exit code 2."""

import re
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result
from small_experiments import TOML

from torch_kbandits import __version__, algorithms, environments
from torch_kbandits.cli import main
from torch_kbandits.experiments import read_records


def kbandits(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert "Traceback" not in result.output
    return result


@pytest.fixture
def spec(tmp_path) -> str:
    (tmp_path / "small.toml").write_text(TOML, encoding="utf-8")
    return str(tmp_path / "small.toml")


def test_help_has_examples_and_list_has_everything():
    for command in ((), ("list",), ("run",), ("resume",), ("compare",), ("summarize",), ("plot",)):
        result = kbandits(*command, "--help")
        assert result.exit_code == 0
        assert "kbandits " in " ".join(result.output.split())
    assert kbandits("--version").output == f"kbandits, version {__version__}\n"
    result = kbandits("list")
    for name in [*algorithms.names(), *environments.names(), "igp-ucb", "matern-2.5", "oversampling", "lengthscale"]:
        assert name in result.output
    assert "rkhs-function" not in kbandits("list", "algorithms").output


@pytest.mark.needs("click>=8.3")  # whose runner keeps standard error apart
@pytest.mark.usefixtures("unrendered")
def test_run_summarize_plot(spec, tmp_path):
    directory = tmp_path / "records"
    arguments = ("run", spec, "--directory", str(directory), "--workers", "1", "--rounds", "6", "--seeds", "0,2")
    first = kbandits(*arguments)
    assert first.exit_code == 0, first.output
    assert "smooth" in first.output
    # Standard error is no terminal: no progress bar, only the warnings, one for each algorithm.
    assert [line.partition(":")[0] for line in first.stderr.splitlines()] == ["gp-ucb", "BKB"]
    records, _ = read_records(directory)
    assert [(record.algorithm["label"], record.seed, record.rounds) for record in records] == [
        ("gp-ucb", 0, 6), ("BKB", 0, 6), ("gp-ucb", 2, 6), ("BKB", 2, 6)
    ]  # fmt: skip
    assert "4 run(s) were finished before" in kbandits(*arguments).output

    shown = kbandits("summarize", str(directory), "--baseline", "gp-ucb")
    assert "| BKB | 6 | 2 |" in re.sub(" +", " ", shown.output)
    assert "of 2" in shown.output
    assert "| BKB " in kbandits("summarize", str(directory / "records.jsonl")).output

    assert kbandits("plot", str(directory), "--output", str(tmp_path / "figures")).exit_code == 0
    names = {"regret", "average-regret", "regret-against-time", "dictionary", "time"}
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {f"{name}.png" for name in names}
    with (directory / "records.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"key": ')
    cut = kbandits("summarize", str(directory))
    assert cut.exit_code == 0
    assert "line 5: it is cut" in cut.stderr


@pytest.mark.usefixtures("unrendered")
def test_compare_leaves_nothing_behind_and_takes_options_as_in_toml(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = kbandits("compare", *E, *A, "--rounds", "2", "--seeds", "7,", "--workers", "1")
    assert result.exit_code == 0, result.output
    assert "random" in result.output
    assert not list(tmp_path.iterdir())
    result = kbandits(
        "compare",
        "-e", "rkhs-function:num_arms=20,kernel=matern-2.5,label=rough",
        "-a", "gp-ucb",
        "-a", 'bkb:oversampling=5,label="with, comma",beta={width="igp-ucb",scale=0.1}',
        "--rounds", "5", "--seeds", "2", "--beta", "1.5", "--setting", "regularization=0.2",
        "--baseline", "gp-ucb", "--directory", str(tmp_path / "out"), "--workers", "1",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "with, comma" in result.output
    assert "of 2" in result.output
    records, _ = read_records(tmp_path / "out")
    assert len(list((tmp_path / "out").glob("*.png"))) == 5
    assert records[1].algorithm["options"] == {"oversampling": 5, "beta": {"width": "igp-ucb", "scale": 0.1}}
    assert records[1].environment["options"] == {"num_arms": 20, "kernel": "matern-2.5"}
    assert records[1].settings == {"regularization": 0.2, "beta": 1.5}


E, A = ("-e", "rkhs-function"), ("-a", "random")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare", *E, "-a", "randon"), "'randon' is no algorithm; did you mean 'random'"),
        (("compare", "-e", "rkhs-function:num_arms", *A), "'num_arms' must be KEY=VALUE"),
        (("compare", *E, *A, "--seeds", "some"), "--seeds must be a number"),
        (("compare", *E, *A, "--setting", "bta=1"), "'bta' is no setting; did you mean 'beta'"),
        (("compare", *E, *A, "--baseline", "bkb"), "--baseline: 'bkb' is no algorithm"),
        (("compare", *A), "Missing option '--environment'"),
        (("run", "none.toml"), "'none.toml' cannot be read: No such file"),
        (("plot", "none"), "'none' cannot be read: No such file"), (("list", "widhts"), "'widhts' is not one of"),
        (("rnu",), "No such command 'rnu'"),
    ],
)  # fmt: skip
def test_bad_input_is_a_line_and_exit_code_2(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = kbandits(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("Error: ")]) == 1


def test_help_and_wrong_words_import_nothing_heavy():
    script = """if True:
        import sys
        from torch_kbandits.cli import main
        for words in ("--help", "--version", "run --help", "list --help", "plot --help", "serve --help", "frobnicate",
                      "list nothing", "run"):
            try:
                main(words.split(), prog_name="kbandits")
            except SystemExit:
                print("ended")
        heavy = {"botorch", "gpytorch", "linear_operator", "matplotlib", "numba", "numpy", "rich", "scipy", "torch"}
        print("HEAVY", *sorted(heavy & set(sys.modules)))
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines().count("ended") == 9, done.stderr
    assert done.stdout.splitlines()[-1] == "HEAVY"
