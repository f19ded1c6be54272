"""The report of an experiment is one sound page that needs nothing else, says what is true, and can be run again."""

import base64
import json
import re
import struct
from dataclasses import replace
from html.parser import HTMLParser

import hypothesis.strategies as st
import pytest
from click.testing import CliRunner
from hypothesis import given
from problems import examples
from small_experiments import record, small

from torch_kbandits.cli import main
from torch_kbandits.errors import DamagedFileError
from torch_kbandits.experiments import parse_spec, read_records, run_experiment, summarize, write_report
from torch_kbandits.experiments import report as report_module
from torch_kbandits.experiments.records import Record, append_records
from torch_kbandits.experiments.specification import spec_text, specs_of

VOID = {"meta", "img", "link", "br", "hr", "input"}
NASTY = "<script>alert('1')</script> & \"quoted\" {{ 7 * 7 }}"


class Page(HTMLParser):
    """What a page holds, refused if its elements are not closed in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.words, self.blocks = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "pre":
            self.blocks.append("")

    def handle_endtag(self, tag):
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)
        if self.open and self.open[-1] == "pre":
            self.blocks[-1] += data

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def page_of(path, **words):
    return Page(write_report(path, **words).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A small experiment that was run."""
    folder = tmp_path_factory.mktemp("small")
    run_experiment(small(rounds=6), folder, workers=1, say=lambda line: None)
    return folder


@pytest.fixture
def _without_figures(monkeypatch):
    monkeypatch.setattr(report_module, "figures", lambda records, **words: {})


def test_it_needs_nothing_else_and_its_figures_are_whole_and_have_words(directory):
    page = page_of(directory)
    for tag, name, value in page.attributes:
        if name in ("src", "href", "srcset", "action", "data"):
            assert value.startswith(("data:image/png;base64,", "#")), (tag, name, value[:50])
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    style = " ".join(page.words)
    assert "@import" not in style
    assert "url(" not in style
    assert ("meta", "content", "default-src 'none'; img-src data:; style-src 'unsafe-inline'") in page.attributes
    assert "prefers-color-scheme: dark" in style
    images = [value for tag, name, value in page.attributes if (tag, name) == ("img", "src")]
    assert len(images) == 5
    for image in images:
        png = base64.b64decode(image.partition(",")[2], validate=True)
        assert png.startswith(b"\x89PNG\r\n\x1a\n")
        assert png.endswith(b"IEND\xaeB`\x82")
        assert struct.unpack(">I", png[16:20])[0] >= 600  # wide enough to be read
    words = [value for tag, name, value in page.attributes if (tag, name) == ("img", "alt")]
    assert len(set(words)) == 5
    assert all(words)


@pytest.mark.usefixtures("_without_figures")
def test_numbers_are_those_of_the_summary_and_what_was_run_can_be_run_again(directory):
    page = page_of(directory, baseline="gp-ucb")
    records, _ = read_records(directory)
    for row in summarize(records, "gp-ucb"):
        for value in (row.regret, row.seconds, row.dictionary_size, row.simple_regret, row.regret.mean_and_error):
            assert str(value) in page.text
    assert "of 2" in page.text
    assert "Differences are paired by seed" in page.text
    assert "4 finished runs: 2 algorithms on 1 environment, 2 seeds, 6 rounds" in page.text
    for name, version in records[0].versions.items():
        assert f"{name} {version}" in page.text
    command, text = page.blocks[-2:]
    assert command == "kbandits run small.json --directory runs/small-again"
    again = {trial.key for trial in parse_spec(json.loads(text)).trials()}
    assert again == {record.key for record in records}


def as_record(trial) -> Record:
    """The record that a trial would leave, with numbers of our choice."""
    config = trial.config()
    return replace(
        record(trial.seed),
        key=trial.key,
        algorithm={"label": trial.algorithm.label, **config["algorithm"]},
        environment={"label": trial.environment.label, **config["environment"]},
        settings=config["settings"],
        rounds=trial.rounds,
        record_every=trial.record_every,
    )


ENVIRONMENTS = [
    {"name": "rkhs-function", "label": "smooth", "num_arms": 25},
    {"name": "rkhs-function", "label": "rough", "num_arms": 25, "settings": {"beta": 1.0}},
]
PLAYERS = [{"name": "gp-ucb"}, {"name": "bkb", "label": "BKB", "oversampling": 2.0}, {"name": "bbkb", "batch": "rule"}]
SPECS = [small(rounds=rounds, seeds=3, environments=ENVIRONMENTS, algorithms=PLAYERS) for rounds in (4, 5)]
TRIALS = [trial for spec in SPECS for trial in spec.trials()]


@examples(12)
@given(st.sets(st.sampled_from(range(len(TRIALS))), min_size=1))
def test_specs_of_records_make_these_runs_and_no_others(chosen):
    records = [as_record(TRIALS[i]) for i in sorted(chosen)]
    specs = [parse_spec(json.loads(spec_text(spec))) for spec in specs_of(records, "again")]
    keys = [trial.key for spec in specs for trial in spec.trials()]
    assert sorted(keys) == sorted(record.key for record in records)

    grid = [as_record(trial) for trial in TRIALS if trial.rounds == 4]
    assert len(specs_of(grid, "again")) == 1
    same = [replace(run, algorithm={**run.algorithm, "label": "A"}) for run in grid]
    keys = [trial.key for spec in specs_of(same, "again") for trial in parse_spec(spec).trials()]
    assert sorted(keys) == sorted(run.key for run in grid)


@pytest.mark.usefixtures("_without_figures")
def test_everything_is_escaped(tmp_path):
    runs = [
        record(seed, NASTY, environment={"label": NASTY + "E", "name": "rkhs-function", "options": {"note": NASTY}})
        for seed in (0, 1)
    ]
    append_records(tmp_path, runs)
    index = {"name": NASTY, "runs": [[run.key, NASTY + "E", NASTY] for run in runs] + [["k", NASTY, NASTY]]}
    (tmp_path / "experiment.json").write_text(json.dumps(index), encoding="utf-8")
    (tmp_path / "failures.log").write_text(f"{NASTY}\n</pre>{NASTY}\n", encoding="utf-8")
    page = page_of(tmp_path, baseline=NASTY)
    assert "script" not in page.tags
    assert page.text.count(NASTY) >= 6
    assert "49" not in page.text
    assert f"{NASTY} on {NASTY}: 1 seed" in page.text
    assert any(f"</pre>{NASTY}" in block for block in page.blocks)
    assert re.search(r"kbandits run [\w.-]+\.json --directory runs/[\w.-]+$", page.blocks[-2])


@pytest.mark.usefixtures("_without_figures")
def test_what_failed_or_is_missing_is_said(tmp_path, directory):
    folder = tmp_path / "records"
    folder.mkdir()
    for name in ("records.jsonl", "experiment.json"):
        (folder / name).write_bytes((directory / name).read_bytes())
    assert "Not finished" not in page_of(folder).text
    lines = (folder / "records.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "records.jsonl").write_text("".join(lines[:-1]) + lines[-1][:40], encoding="utf-8")
    (folder / "failures.log").write_text("x" * 30_000 + "\nthe last words\n", encoding="utf-8")
    page = page_of(folder)
    assert "Not finished: 1 run, listed below" in page.text
    assert "BKB on smooth: 1 seed" in page.text
    assert "line 4: it is cut" in page.text
    assert "failures.log (its end)" in page.text
    assert "the last words" in page.text


@pytest.mark.usefixtures("_without_figures")
def test_it_is_written_whole_or_not_at_all(tmp_path, directory, monkeypatch):
    output, nowhere = str(tmp_path / "page.html"), str(tmp_path / "no" / "p.html")
    done = CliRunner().invoke(main, ["report", str(directory), "-o", output, "--baseline", "gp-ucb"])
    assert (done.exit_code, done.output.strip()) == (0, output)
    before = (tmp_path / "page.html").read_bytes()

    def broken(*arguments, **words):
        raise RuntimeError("in the middle")

    with monkeypatch.context() as patch:
        patch.setattr(report_module, "figures", broken)
        with pytest.raises(RuntimeError, match="in the middle"):
            write_report(directory, output)
    for arguments, code, message in [
        (["report", "none"], 2, "cannot be read"),
        (["report", str(directory), "--baseline", "bkb"], 2, "did you mean 'BKB'"),
        (["report", str(directory), "-o", nowhere], 1, "No such file"),
    ]:
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == code
        assert message in done.stderr
        assert "Traceback" not in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    write_report(directory, output, baseline="gp-ucb")
    assert (tmp_path / "page.html").read_bytes() == before  # the same page for the same records


@pytest.mark.usefixtures("_without_figures")
def test_a_records_file_alone_is_enough_and_a_damaged_index_is_named(tmp_path, directory):
    (tmp_path / "records.jsonl").write_bytes((directory / "records.jsonl").read_bytes())
    assert write_report(tmp_path / "records.jsonl") == tmp_path / "report.html"
    assert tmp_path.name in page_of(tmp_path).text
    (tmp_path / "experiment.json").write_text("{", encoding="utf-8")
    with pytest.raises(DamagedFileError, match=r"is damaged: .* writes it anew and keeps the finished runs"):
        write_report(tmp_path)
