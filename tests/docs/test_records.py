"""Records of benchmarks: their form, the page that is rendered from them, and numbers that pages have of them."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import report, tabulate
from benchmarks.runner import Record, Table

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = sorted(path.stem for path in report.RECORDS.glob("*.json"))
KEYS = {"name", "command", "commit", "date", "machine", "sizes", "note", "tables"}
MEASURED = [("ours", "a", 1.0), ("ours", "a", 3.0), ("ours", "b", 5.0), ("random", "a", 6.0), ("random", "a", 8.0)]
MACHINE = {"cpu": "a processor", "cores": 2, "torch_threads": 1, "python": "3.12", "packages": {}, "commit": "abc"}


@pytest.mark.parametrize("name", NAMES)
def test_a_record_says_where_its_tables_come_from_and_rows_and_columns_have_names(name):
    record = report.record(name)
    assert record.keys() == KEYS
    assert record["name"] == name
    assert record["command"]
    assert re.fullmatch(r"[0-9a-f]{7,8}( with local changes)?", record["commit"])
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", record["date"])
    for table in record["tables"]:
        assert len(set(table["columns"])) == len(table["columns"])
        assert {len(row) for row in table["rows"]} == {len(table["columns"])}
        assert all(isinstance(cell, str) for row in table["rows"] for cell in row)
        assert len({tuple(row) for row in table["rows"]}) == len(table["rows"])


@pytest.mark.parametrize("template", sorted(report.TEMPLATES.glob("*.md")), ids=lambda template: template.name)
def test_pages_of_evidence_are_rendered_from_the_records(template):
    page = (ROOT / "docs" / template.name).read_text(encoding="utf-8")
    assert page == report.render(template), "render it again: make bench-report"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_number_that_a_record_has_is_the_records(page):
    assert report.mismatches(page.read_text(encoding="utf-8")) == []


def test_a_mark_is_compared_to_the_digits_shown():
    address = "bkb_regret :: d = 2 :: BKB, q̄ = 1 :: cumulative regret"
    assert report.value(address) == "47.4"
    for shown, agrees in {"47.4": True, "47": True, "48": False, "47.40": True, "47.5": False}.items():
        assert (report.mismatches(f"Regret is {shown}<!-- record: {address} -->.") == []) is agrees
    with pytest.raises(LookupError, match="0 such rows"):
        report.mismatches("1<!-- record: bkb_regret :: d = 2 :: BKB, q̄ = 9 :: cumulative regret -->")


def test_what_a_benchmark_publishes_is_a_record(tmp_path):
    tables = [Table("Regret, quick", ("player", "regret"), [("random", "1.0"), ("GP-UCB", "0.5 ± 0.1")])]
    path = Record("quick", {"seeds": 3}, tables, []).publish(tmp_path, MACHINE, "python -m benchmarks quick")
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record.keys() == KEYS
    assert record["tables"][0]["rows"] == [["random", "1.0"], ["GP-UCB", "0.5 ± 0.1"]]
    assert (record["command"], record["commit"], record["sizes"]) == ("python -m benchmarks quick", "abc", "seeds 3")


def test_json_lines_become_a_record_of_means_and_standard_errors(tmp_path):
    lines = [{"player": who, "on": on, "loss": loss} for who, on, loss in MEASURED]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    words = "--name made --title Loss --command script --row player --column on --value loss --sizes seeds=2"
    tabulate.main([str(tmp_path / "rows.jsonl"), *words.split(), "--output", str(tmp_path)])
    record = json.loads((tmp_path / "made.json").read_text(encoding="utf-8"))
    assert record["sizes"] == "lines 5, seeds 2"
    assert record["tables"][0]["columns"] == ["player", "a", "b"]
    assert record["tables"][0]["rows"] == [["ours", "2.000 ± 1.000", "5.000"], ["random", "7.000 ± 1.000", "–"]]
