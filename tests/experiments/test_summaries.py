"""Summaries equal numbers computed by hand; figures are drawn for every shape of data."""

import csv
import io
import math

import pytest
import torch
from small_experiments import record

from torch_kbandits import InputError
from torch_kbandits.experiments import Estimate, plot, plots, render, summarize
from torch_kbandits.experiments.summary import estimate, group

# Regrets 2, 4, 9: mean 5, deviations −3, −1, 4, variance 26 / 2 = 13, standard error √(13/3).
A = [
    record(0, "A", cumulative_regret=[1.0, 2.0], recommended_mean=0.2),
    record(1, "A", cumulative_regret=[1.0, 4.0], recommended_mean=0.4),
    record(2, "A", cumulative_regret=[3.0, 9.0], recommended_mean=0.6),
]
# On the seeds 1 and 2 that both have: 4 − 3 = 1 and 9 − 4 = 5, mean 3, variance 8, standard error 2.
B = [
    record(2, "B", cumulative_regret=[1.0, 4.0], dictionary_size=[3, 7], recommended_mean=None),
    record(1, "B", cumulative_regret=[1.0, 3.0], dictionary_size=[3, 6]),
]


def test_numbers_by_hand():
    first, second = summarize([*A, *B], baseline="B")
    assert (first.environment, first.algorithm, first.rounds, first.seeds) == ("E", "A", 4, 3)
    assert first.regret == Estimate(5.0, pytest.approx(math.sqrt(13.0 / 3.0)))
    assert first.seconds == Estimate(1.0, 0.0)
    assert first.recommended_mean == Estimate(pytest.approx(0.4), pytest.approx(0.2 / math.sqrt(3.0)))
    assert (first.difference, first.pairs) == (Estimate(3.0, pytest.approx(2.0)), 2)
    assert second.regret == Estimate(3.5, pytest.approx(0.5))
    assert second.dictionary_size == Estimate(6.5, pytest.approx(0.5))
    # One of the two runs recommends nothing, so a mean over the other would not be a mean over these seeds.
    assert second.recommended_mean is None
    assert (second.difference, second.pairs) == (None, 0)


def test_one_seed_has_no_standard_error():
    (row,) = summarize(A[:1])
    assert row.regret == Estimate(2.0, None)
    assert str(row.regret) == "2"


def test_a_baseline_without_common_seeds_or_environment_gives_no_difference():
    elsewhere = record(1, "B", environment={"label": "F", "name": "gp-sample", "options": {}})
    rows = summarize([A[0], B[0], elsewhere], baseline="B")
    assert [row.difference for row in rows] == [None, None, None]


def test_an_unknown_baseline_is_named():
    with pytest.raises(InputError, match="'BB' is no algorithm; did you mean 'B'"):
        summarize([*A, *B], baseline="BB")


def test_configurations_under_one_label_are_not_mixed():
    longer = record(0, "A", rounds=8, recorded_rounds=[4, 8])
    other = record(0, "A", settings={"beta": 1.0})
    assert [(entry.algorithm, len(entry.runs)) for entry in group([*A, longer, other])] == [
        ("A", 3),
        ("A (2)", 1),
        ("A (3)", 1),
    ]


def test_environments_stay_together_in_the_order_in_which_they_come():
    elsewhere = {"label": "F", "name": "gp-sample", "options": {}}
    mixed = [record(0, "A"), record(0, "A", environment=elsewhere), record(0, "B")]
    assert [(row.environment, row.algorithm) for row in summarize(mixed)] == [("E", "A"), ("E", "B"), ("F", "A")]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Estimate(123.456, 7.89), "123.5 ± 7.9"),
        (Estimate(123.456, 78.9), "123 ± 79"),
        (Estimate(0.001234, 0.000056), "0.001234 ± 0.000056"),
        (Estimate(5.25, 0.0), "5.25 ± 0"),
        (Estimate(0.0, 0.0), "0 ± 0"),
        (Estimate(1.7649071, 1e-16), "1.765 ± 0"),
        (Estimate(0.123456, None), "0.1235"),
    ],
)
def test_digits_follow_the_error(value, text):
    assert str(value) == text


def test_estimates_are_those_of_torch():
    values = torch.randn(17, dtype=torch.float64)
    ours = estimate(values.tolist())
    assert ours.mean == pytest.approx(float(values.mean()), rel=1e-12)
    assert ours.error == pytest.approx(float(values.std() / math.sqrt(17)), rel=1e-12)


def test_formats_hold_the_same_numbers():
    rows = summarize([*A, *B], baseline="B")
    markdown, table = render(rows, "markdown"), render(rows, "table")
    for text in (markdown, table):
        for cell in ("5.0 ± 2.1", "3.0 ± 2.0 (2 pairs)", "3.50 ± 0.50", "0.40 ± 0.12"):
            assert cell in text
    assert "| A | 4 | 3 | 5.0 ± 2.1 |" in markdown
    lines = list(csv.DictReader(io.StringIO(render(rows, "csv"))))
    assert [line["algorithm"] for line in lines] == ["A", "B"]
    assert float(lines[0]["regret_error"]) == pytest.approx(math.sqrt(13.0 / 3.0))
    assert (lines[1]["difference"], lines[1]["recommended_mean"]) == ("", "")
    with pytest.raises(InputError, match="'html' is no format"):
        render(rows, "html")


def test_a_bar_in_a_label_does_not_break_the_table():
    assert "| a\\|b |" in render(summarize([record(0, "a|b")]), "markdown")


# ---------------------------------------------------------------- figures


def many(algorithms: int, environments: int) -> list:
    rounds = list(range(2, 102, 2))
    return [
        record(
            seed,
            f"algorithm {a}",
            environment={"label": f"problem {e}", "name": "rkhs-function", "options": {}},
            rounds=100,
            recorded_rounds=rounds,
            cumulative_regret=[(a + 1) * r**0.5 + seed for r in rounds],
            cumulative_seconds=[0.01 * (a + 1) * r for r in rounds],
            dictionary_size=[min(r, 20 + a) for r in rounds],
        )
        for e in range(environments)
        for a in range(algorithms)
        for seed in range(3)
    ]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("records", [pytest.param(many(9, 4), marks=pytest.mark.slow),
    pytest.param(many(1, 1), marks=pytest.mark.slow), A + B, pytest.param(A[:1], marks=pytest.mark.slow),
    [record(recorded_rounds=[4], cumulative_regret=[1.0], cumulative_seconds=[1.0], dictionary_size=[1])]])  # fmt: skip
def test_figures_are_drawn(tmp_path, records):
    files = plot(records, tmp_path)
    assert [file.name for file in files] == [
        "regret.png",
        "regret-against-time.png",
        "dictionary.png",
        "time.png",
    ]
    for file in files:
        assert file.read_bytes().startswith(b"\x89PNG")
        assert file.stat().st_size > 8_000


@pytest.mark.usefixtures("unrendered")
def test_algorithms_are_told_apart_and_named_once(tmp_path, monkeypatch):
    drawn = []
    original = plots._draw
    monkeypatch.setattr(plots, "_draw", lambda *args: drawn.append(original(*args)) or drawn[-1])
    plot(many(9, 2), tmp_path, band="deviation")
    for figure in drawn:
        assert [panel.get_title() for panel in figure.axes] == ["problem 0", "problem 1"]
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == [f"algorithm {a}" for a in range(9)]
        for panel in figure.axes:
            assert panel.get_xlabel()
            assert panel.get_ylabel()
            looks = {(line.get_color(), str(line.get_linestyle()), line.is_dashed()) for line in panel.lines}
            assert len(looks) == len(panel.lines) == 9
    regret, _, _, spent = drawn
    line = regret.axes[0].lines[1]
    assert line.get_ydata()[-1] == pytest.approx(2 * 10.0 + 1.0)  # mean over the seeds 0, 1, 2
    x, y = spent.axes[0].lines[1].get_data()
    assert y == pytest.approx(0.02 * x)  # 0.01 · 2 seconds a round


@pytest.mark.usefixtures("unrendered")
def test_regret_may_have_a_logarithmic_axis(tmp_path, monkeypatch):
    scales = []
    original = plots._draw
    monkeypatch.setattr(plots, "_draw", lambda *args: scales.append(args[4].get("yscale")) or original(*args))
    plot(many(2, 1), tmp_path, log=True)
    plot(many(2, 1), tmp_path)
    assert scales == ["log", "log", None, None, None, None, None, None]


def test_bands_are_the_error_or_the_deviation():
    (entry,) = group(A)
    error, deviation, none = (plots._regret(entry, band).spread for band in ("error", "deviation", "none"))
    assert deviation.tolist() == pytest.approx([math.sqrt(4.0 / 3.0), math.sqrt(13.0)])
    assert error.tolist() == pytest.approx([math.sqrt(4.0 / 9.0), math.sqrt(13.0 / 3.0)])
    assert none.tolist() == [0.0, 0.0]


def test_bad_figures_are_named(tmp_path):
    for arguments, message in (
        ({"records": A, "band": "eror"}, "'eror' is no band; did you mean 'error'"),
        ({"records": A, "format": "gif"}, "'gif' is no format of figures"),
        ({"records": []}, "no finished run"),
    ):
        with pytest.raises(InputError, match=message):
            plot(directory=tmp_path, **arguments)
