"""Summaries equal numbers computed by hand; figures are drawn for every shape of data."""

import math
import re
import statistics

import pytest
from small_experiments import record

from torch_kbandits import InputError
from torch_kbandits.experiments import (
    Difference,
    Summary,
    plot,
    render,
    summarize,
)
from torch_kbandits.experiments.plots import figures
from torch_kbandits.experiments.summary import difference, group, outside_median, summary_of

# Regrets 2, 4, 9: mean 5, deviations −3, −1, 4, variance 26 / 2 = 13, standard error √(13/3).
A = [
    record(0, "A", cumulative_regret=[1.0, 2.0], recommended_mean=0.2),
    record(1, "A", cumulative_regret=[1.0, 4.0], recommended_mean=0.5),
    record(2, "A", cumulative_regret=[3.0, 9.0], recommended_mean=0.6),
]
# On the seeds 1 and 2 that both have: 4 − 3 = 1 and 9 − 4 = 5.
B = [
    record(2, "B", cumulative_regret=[1.0, 4.0], dictionary_size=[3, 7], recommended_mean=None),
    record(1, "B", cumulative_regret=[1.0, 3.0], dictionary_size=[3, 6]),
]


def test_numbers_by_hand():
    first, second = summarize([*A, *B], baseline="B")
    assert (first.environment, first.algorithm, first.rounds, first.seeds) == ("E", "A", 4, 3)
    assert first.regret == Summary(4.0, 2.0, 9.0, 5.0, pytest.approx(math.sqrt(13.0 / 3.0)))
    assert first.seconds == Summary(1.0, 1.0, 1.0, 1.0, 0.0)
    assert first.simple_regret is not None
    assert (first.simple_regret.median, first.simple_regret.lower) == pytest.approx((0.5, 0.4))
    assert first.difference == Difference(3.0, None, None, 0, 2)
    five = summary_of([1.0, 2.0, 3.0, 4.0, 90.0])
    assert (five.lower, five.median, five.upper, five.mean) == (2.0, 3.0, 4.0, 20.0)
    assert second.regret == Summary(3.5, 3.0, 4.0, 3.5, pytest.approx(0.5))
    assert second.dictionary_size.median == 6.5
    # One of the two runs recommends nothing, so a mean over the other would not be one over these seeds.
    assert second.simple_regret is None
    assert second.difference is None


def test_one_seed_has_no_spread_and_what_differs_is_not_mixed():
    (row,) = summarize(A[:1])
    assert row.regret == Summary(2.0, 2.0, 2.0, 2.0, None)
    assert str(row.regret) == row.regret.mean_and_error == "2"
    assert "its mean" not in render([row])
    # Problems with other best means are compared by what is missed.
    runs = [record(seed, "A", best_mean=10.0 * seed, recommended_mean=10.0 * seed - 0.5) for seed in range(3)]
    assert summarize(runs)[0].simple_regret == Summary(0.5, 0.5, 0.5, 0.5, 0.0)
    longer, other = record(0, "A", rounds=8, recorded_rounds=[4, 8]), record(0, "A", settings={"beta": 1.0})
    groups = [(algorithm, len(runs)) for (_, algorithm), runs in group([*A, longer, other]).items()]
    assert groups == [("A", 3), ("A (2)", 1), ("A (3)", 1)]
    elsewhere = {"label": "F", "name": "gp-sample", "options": {}}
    mixed = [A[0], record(1, "B", environment=elsewhere), B[0]]
    rows = summarize(mixed, baseline="B")  # without a common seed
    assert [(row.environment, row.algorithm) for row in rows] == [("E", "A"), ("E", "B"), ("F", "B")]
    assert [row.difference for row in rows] == [None, None, None]
    assert "| a\\|b " in render(summarize([record(0, "a|b")]))
    with pytest.raises(InputError, match="'BB' is no algorithm; did you mean 'B'"):
        summarize([*A, *B], baseline="BB")


@pytest.mark.parametrize("n", [2, 5, 6, 11, 20])
def test_the_interval_of_the_median_is_that_of_the_sign_test(n):
    """Its probability, summed over all orders of n signs, is at least 95 %, and not with one order statistic fewer."""
    outside = outside_median(n)

    def covered(k):
        return sum(math.comb(n, below) for below in range(k, n - k + 1)) / 2.0**n if k else 1.0

    assert covered(outside) >= 0.95
    assert covered(outside + 1) < 0.95
    values = [float(i) for i in range(n)]
    known = difference(values)
    assert known.median == statistics.median(values)
    assert (known.lower, known.upper) == ((values[outside - 1], values[-outside]) if outside else (None, None))
    assert (outside > 0) == (n >= 6)


@pytest.mark.parametrize(
    ("numbers", "median", "mean"),
    [
        ((120.0, 110.0, 117.89, 123.456, 7.89), "120.0 [110.0, 117.9]", "123.5 ± 7.9"),
        ((120.0, 50.0, 190.0, 123.456, 78.9), "120 [50, 190]", "123 ± 79"),
        ((0.00123, 0.0012, 0.001256, 0.001234, 0.000056), "0.001230 [0.001200, 0.001256]", "0.001234 ± 0.000056"),
        ((5.25, 5.25, 5.25, 5.25, 0.0), "5.25", "5.25 ± 0"),
        ((0.0, 0.0, 0.0, 0.0, 0.0), "0", "0 ± 0"),
        ((-1e-9, -2.0, 2.0, 0.0, 1.0), "0.0 [-2.0, 2.0]", "0.0 ± 1.0"),
        ((1.7649071, 1.7649071, 1.7649071 + 1e-16, 1.7649071, 0.0), "1.765", "1.765 ± 0"),
        ((0.123456, 0.123456, 0.123456, 0.123456, None), "0.1235", "0.1235"),
    ],
)
def test_digits_follow_the_spread(numbers, median, mean):
    value = Summary(*numbers)
    assert (str(value), value.mean_and_error) == (median, mean)


def test_tables_hold_the_numbers_aligned():
    text = render(summarize([*A, *B], baseline="B"))
    for cell in ("4.0 [2.0, 9.0]", "5.0 ± 2.1", "0 of 2", "3.5 [3.0, 4.0]", "0.50 [0.40, 0.80]"):
        assert cell in text
    assert "[quartiles; of fewer than 5 the range], and means ± standard errors. Differences are paired" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({tuple(i for i, sign in enumerate(line) if sign == "|") for line in lines}) == 1
    assert all(re.fullmatch(":?-+:?", cell.strip()) for cell in lines[1].strip("|").split("|"))
    assert "| A | 4 | 3 | 4.0 [2.0, 9.0] | 5.0 ± 2.1 | 3 | 0 of 2 |" in re.sub(" +", " ", text)


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


@pytest.mark.slow
@pytest.mark.parametrize("records", [many(13, 1), many(9, 4), A + B])
def test_figures_are_drawn(tmp_path, records):
    for file in plot(records, tmp_path):
        assert file.read_bytes().startswith(b"\x89PNG")
        assert file.stat().st_size > 8_000


@pytest.mark.usefixtures("unrendered")
def test_algorithms_are_told_apart_without_colours_named_once_and_look_the_same_everywhere():
    looks = {}
    for figure in figures(many(6, 2)).values():
        assert [panel.get_title() for panel in figure.axes] == ["problem 0", "problem 1"]
        (legend,) = figure.legends
        names = [f"algorithm {a}" for a in range(6)]
        assert [text.get_text() for text in legend.get_texts()] == names
        for line, own in zip(legend.get_lines(), names, strict=True):
            looks.setdefault(own, set()).add((line.get_color(), line.get_marker()))
        for panel in figure.axes:
            lines = [line for line in panel.lines if len(line.get_xdata()) > 2 and line.get_alpha() is None]
            assert len({line.get_color() for line in lines}) == len(names)
            assert len({(line.get_marker(), line.is_dashed()) for line in lines}) == len(names)
    assert [len(each) for each in looks.values()] == [1] * 6


@pytest.mark.usefixtures("unrendered")
def test_curves_are_those_of_the_runs():
    with pytest.raises(InputError, match="'logg' is no scale; did you mean 'log'"):
        figures(A, scale="logg")
    runs = [record(seed, cumulative_regret=[1.0, value]) for seed, value in enumerate([1.0, 2.0, 3.0, 4.0, 90.0])]
    (panel,) = figures(runs)["regret"].axes
    assert panel.lines[0].get_ydata()[-1] == 3.0
    assert panel.collections[0].get_paths()[0].get_extents().y1 == pytest.approx(4.0)
    drawn = figures(many(3, 1))
    for name, expected in (
        ("average-regret", lambda x: (2 * x**0.5 + 1.0) / x),  # the median over the seeds 0, 1, 2
        ("time", lambda x: 0.02 * x),  # 0.01 · 2 seconds a round
    ):
        x, y = drawn[name].axes[0].lines[1].get_data()
        assert y == pytest.approx(expected(x))
