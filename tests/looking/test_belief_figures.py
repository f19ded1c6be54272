"""What figures of a belief draw is the dense posterior, points are as strong as they count, and bandits stay as is."""

import math

import contextual
import forgetting
import numpy as np
import oracles
import pytest
import torch
from matplotlib.colors import to_rgb
from problems import DOUBLE, data, dense, matern, rbf

from torch_kbandits import Category, ColumnSpec, ContextualActions, InputError, Number, algorithms
from torch_kbandits.errors import EmptyHistoryError
from torch_kbandits.looking import plot_dictionary, plot_leverage, plot_line, plot_plane
from torch_kbandits.looking.belief import recommended_point
from torch_kbandits.looking.palette import PLAYED
from torch_kbandits.memory import BackToPrior

FIXED = torch.tensor([0.3, 0.6, 0.1], dtype=DOUBLE)
UNIT = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 2.0]], dtype=DOUBLE)


def told(bandit, n=25, seed=0):
    """A bandit that was told points of which some come twice."""
    X, _ = data(n, bandit.candidates.example.shape[-1], seed=seed)
    X = torch.cat([X, X[: n // 5]])
    bandit.tell(X, torch.sin(5.0 * X).sum(-1))
    return bandit


def bkb(**words):
    settings = {"bounds": UNIT, "kernel": matern(0.5, 1.7), "regularization": 0.05, "beta": 1.5, "seed": 0}
    return algorithms.BKB(**(settings | words))


def believed(bandit, points):
    """The dense posterior of a bandit of ``bkb``."""
    history = bandit.history
    X, y, Z, T = dense(history.X, history.Y, bandit.inducing_points, points)
    return oracles.dtc(oracles.matern52(0.5, 1.7), X, y, np.full(len(X), 0.05), Z, T)


def curve(figure):
    """The mean and the edges of the band: x (k,), mean (k,), lower (k,), upper (k,)."""
    (ax,) = figure.axes
    line = next(line for line in ax.lines if line.get_label() == "posterior mean")
    (band,) = [part for part in ax.collections if (part.get_label() or "").startswith("mean ±")]
    x, mean = line.get_data()
    vertices = band.get_paths()[0].vertices
    lower = [vertices[np.isclose(vertices[:, 0], at), 1].min() for at in x]
    upper = [vertices[np.isclose(vertices[:, 0], at), 1].max() for at in x]
    return np.asarray(x), np.asarray(mean), np.array(lower), np.array(upper)


def points_of(ax, colour):
    """Where points of a colour were drawn, (k, 2), and how opaque they are, (k,)."""
    for part in ax.collections:
        faces = part.get_facecolor() if len(part.get_facecolor()) else part.get_edgecolor()
        if len(part.get_offsets()) and len(faces) and np.allclose(faces[0, :3], to_rgb(colour)):
            return np.asarray(part.get_offsets()), np.broadcast_to(faces[:, 3], len(part.get_offsets()))
    return np.zeros((0, 2)), np.zeros(0)


def labels(figure):
    legends = [ax.get_legend() for ax in figure.axes if ax.get_legend()] + figure.legends
    return [text.get_text() for legend in legends for text in legend.get_texts()]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("coordinate", [0, 2, "x2"])
def test_a_line_is_the_dense_posterior_with_the_others_fixed_or_recommended(coordinate):
    bandit = told(bkb())
    x, mean, lower, upper = curve(plot_line(bandit, coordinate, at=FIXED, resolution=30, center=2.0))
    column = 1 if coordinate == "x2" else coordinate
    assert np.allclose(x, np.linspace(0.0, [1.0, 1.0, 2.0][column], 30))
    T = FIXED.repeat(30, 1)
    T[:, column] = torch.tensor(x)
    expected = believed(bandit, T)
    assert np.abs(mean - 2.0 - expected.mean).max() < expected.rounding
    margin = 1.5 * np.sqrt(expected.variance)
    assert np.abs(upper - mean - margin).max() < expected.upper_rounding(1.5)
    assert np.abs(mean - lower - margin).max() < expected.upper_rounding(1.5)
    figure, best = plot_line(bandit, column, resolution=5), bandit.recommend()
    x, mean, *_ = curve(figure)
    T = best.repeat(5, 1)
    T[:, column] = torch.tensor(x)
    assert np.abs(mean - believed(bandit, T).mean).max() < expected.rounding
    title = figure.axes[0].get_title(loc="left")
    other = 2 if column == 0 else 0
    assert f"x{other + 1} = {float(best[0, other]):.4g}" in title
    assert "(recommended)" in title
    assert "recommended" in labels(figure)


def test_before_any_reward_the_prior_is_shown_in_the_middle():
    x, mean, lower, upper = curve(plot_line(bkb(), resolution=5))
    assert np.allclose(mean, 0.0)
    assert np.allclose(upper, 1.5 * math.sqrt(1.7))
    assert np.allclose(lower, -upper)
    assert x[0] == 0.0
    assert not {"played", "recommended"} & {label.split()[0] for label in labels(plot_plane(bkb()))}


def test_points_off_the_line_are_as_strong_as_the_kernel_says():
    bandit = told(bkb())
    at = torch.tensor([0.3, 0.6, 1.9], dtype=DOUBLE)  # points were told up to 1
    figure = plot_line(bandit, 0, at=at)
    X, Y = dense(bandit.history.X, bandit.history.Y)
    moved = X.copy()
    moved[:, 1:] = at[1:].numpy()
    near = (np.diag(oracles.matern52(0.5, 1.7)(X, moved)) / 1.7) ** 2
    offsets, opacity = points_of(figure.axes[0], PLAYED)
    seen = near >= 0.02
    assert 0 < seen.sum() < len(X)
    assert np.allclose(offsets, np.stack([X[seen, 0], Y[seen]], axis=-1))
    assert np.allclose(opacity, 0.1 + 0.9 * near[seen])
    assert f"played, fainter where it counts less ({seen.sum()} of {len(X)})" in labels(figure)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", ["window", "restart", "discount", "linear to a limit"])
@pytest.mark.parametrize("posterior", ["exact", "fresh"])
def test_with_a_memory_the_belief_is_that_of_now_and_ages_fade(name, posterior):
    bandit = forgetting.make(name, posterior)
    forgetting.play(bandit, 16)
    at = forgetting.TESTED[0]
    figure = plot_line(bandit, 1, at=at, resolution=9, bounds=torch.tensor([[0.0], [1.0]], dtype=DOUBLE))
    x, mean, _, upper = curve(figure)
    T = at.repeat(9, 1)
    T[:, 1] = torch.tensor(x)
    expected = forgetting.expected(bandit, name, 16.0, T)
    assert np.abs(mean - expected.mean).max() < expected.rounding
    margin = forgetting.BETA * np.sqrt(expected.variance)
    assert np.abs(upper - mean - margin).max() < expected.upper_rounding(forgetting.BETA)

    noise = forgetting.MEMORIES[name].noise(dense(bandit.history.times)[0], 16.0)
    weights = forgetting.LAMBDA / noise
    assert np.allclose(dense(bandit.weights)[0], weights)
    plane = plot_plane(bandit, resolution=5)  # all points lie on it, so that only their ages count
    _, opacity = points_of(plane.axes[0], PLAYED)
    assert np.allclose(opacity, 0.1 + 0.9 * weights[weights >= 0.02])


def test_a_plane_has_the_mean_and_the_deviation():
    bandit = told(bkb())
    bandit.mark_pending(data(2, 3, seed=9)[0])
    figure = plot_plane(bandit, ("x3", 0), at=FIXED, resolution=7, center=-1.0)
    mean, deviation = (ax.collections[0].get_array().reshape(7, 7) for ax in figure.axes[:2])
    first, second = np.linspace(0.0, 2.0, 7), np.linspace(0.0, 1.0, 7)
    T = FIXED.repeat(49, 1)
    T[:, 2], T[:, 0] = (
        torch.tensor(np.tile(first, 7)),
        torch.tensor(np.repeat(second, 7)),
    )  # a row of the map has one x1
    expected = believed(bandit, T)
    assert np.abs(mean.ravel() + 1.0 - expected.mean).max() < expected.rounding
    assert np.abs(deviation.ravel() - np.sqrt(expected.variance)).max() < expected.upper_rounding(1.0)
    assert figure.axes[0].get_xlabel() == "x3"
    assert figure.axes[0].get_ylabel() == "x1"
    words = [label.split()[0] for label in labels(figure)]
    assert words == ["played,", "dictionary", "pending"]
    assert f"dictionary ({len(bandit.inducing_points)}" in " ".join(labels(figure))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("memory", [None, BackToPrior(0.2)], ids=["lasting", "in time"])
def test_a_line_in_a_context_is_in_the_units_of_its_column(memory):
    context = ColumnSpec([Number("hours", 1.0, 8.0, log=True), Category("channel", ["app", "web"])])
    action = ColumnSpec([Number("price", 16.0, 72.0)])
    prices = [{"price": price} for price in (16.0, 30.0, 44.0, 58.0, 72.0)]
    shop = algorithms.CBKB(
        candidates=ContextualActions(prices, context_columns=context, action_columns=action),
        kernel=rbf(0.5), regularization=0.05, beta=1.0, memory=memory, seed=0,
    )  # fmt: skip
    visitors = [{"hours": 1.0 + t, "channel": "web" if t % 2 else "app"} for t in range(6)]
    for visitor in visitors:
        shop.tell(shop.ask(context=visitor), 0.5, context=visitor)
    figure = plot_line(shop, context=visitors[3], resolution=8)
    x, mean, *_ = curve(figure)
    assert np.allclose(x, np.linspace(16.0, 72.0, 8))
    assert figure.axes[0].get_xlabel() == "price"
    joint = torch.cat([context.encode(visitors[3], dtype=DOUBLE).expand(8, -1), action.encode(
        [{"price": float(price)} for price in x], dtype=DOUBLE
    )], dim=-1)  # fmt: skip
    kernel = oracles.rbf(0.5)
    if memory is not None:
        joint = torch.cat([torch.full((8, 1), 6.0, dtype=DOUBLE), joint], dim=-1)
        kernel = oracles.in_time(kernel, 0.2)
    X, y, Z, T = dense(shop.history.X, shop.history.Y, shop.inducing_points, joint)
    expected = oracles.dtc(kernel, X, y, np.full(6, 0.05), Z, T)
    assert np.abs(mean - expected.mean).max() < expected.rounding
    hours = plot_line(shop, "hours", context=visitors[3])
    assert hours.axes[0].get_xscale() == "log"
    assert curve(hours)[0][[0, -1]] == pytest.approx([1.0, 6.0])  # what was seen
    plane = plot_plane(shop, ("hours", "price"), context=visitors[3])
    assert (plane.axes[0].get_xlabel(), plane.axes[0].get_ylabel()) == ("hours", "price")
    with pytest.raises(InputError, match="'channel=web' belongs to a category"):
        plot_line(shop, "channel=web", context=visitors[3])
    with pytest.raises(InputError, match="context is missing"):
        plot_line(shop)


def test_of_actions_that_differ_by_round_those_played_may_be_recommended():
    bandit = contextual.make("igp-ucb", contextual.changing())
    with pytest.raises(InputError, match="give bounds="):
        plot_line(bandit, context=contextual.CONTEXTS[0])
    with pytest.raises(InputError, match="give at="):
        plot_line(bandit, context=contextual.CONTEXTS[0], bounds=UNIT[:, :1])
    contextual.play(bandit, 8, actions_of=lambda number: contextual.ACTIONS[number % 3 :])
    context, played = contextual.CONTEXTS[40], bandit.history.X[:, 2:]
    best = bandit.recommend(context=context, candidates=played)
    assert torch.equal(recommended_point(bandit, context), contextual.joint(context, best))
    x, *_ = curve(plot_line(bandit, context=context))
    assert x[[0, -1]].tolist() == [float(played[:, 0].min()), float(played[:, 0].max())]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("name", "rate"), [("tv-gp-ucb", {"forgetting": 0.2}), ("dms-tv-gp-ucb", {"forgettings": [0.2]})]
)
def test_time_in_the_kernel_fades_points_and_may_be_the_coordinate(name, rate):
    words = {"candidates": data(20, 1)[0], "kernel": rbf(0.3), "regularization": 0.05, "beta": 1.0, "seed": 0}
    bandit = algorithms.build(name, **words, **rate)
    for _ in range(12):
        x = bandit.ask()
        bandit.tell(x, torch.sin(5.0 * x[:, 0]))
    figure = plot_line(bandit)
    _, opacity = points_of(figure.axes[0], PLAYED)
    ages = 12.0 - dense(bandit.history.times)[0]
    near = 0.8**ages  # the squared correlation (1 − ε)^age of the forgetting kernel
    assert np.allclose(opacity, 0.1 + 0.9 * near[near >= 0.02])
    assert figure.axes[0].get_title(loc="left").startswith("time = 12")
    x, *_ = curve(plot_line(bandit, "time"))
    assert x[[0, -1]].tolist() == [0.0, 11.0]


def test_leverage_scores_and_dictionary_are_those_of_the_formulas():
    bandit = told(bkb())
    X, first = np.unique(dense(bandit.history.X)[0], axis=0, return_index=True)
    variance = believed(bandit, torch.tensor(X)).variance
    figure = plot_leverage(bandit)
    drawn = np.concatenate([np.asarray(part.get_offsets()) for part in figure.axes[0].collections])
    assert np.allclose(np.sort(drawn[:, 1]), np.sort(variance / 0.05))
    everywhere = believed(bandit, bandit.history.X).variance.sum() / 0.05
    assert f"{everywhere:.3g}" in figure.axes[0].get_title(loc="left")
    held = {row.tobytes() for row in dense(bandit.inducing_points)[0]}
    assert f"in the dictionary ({sum(row.tobytes() in held for row in X)})" in labels(figure)
    assert len(first) == 25

    played, members = plot_dictionary(bandit).axes[0].lines
    assert played.get_ydata()[-1] == 25
    assert members.get_ydata()[-1] == len(bandit.inducing_points)
    for empty in (plot_leverage, plot_dictionary):
        with pytest.raises(EmptyHistoryError):
            empty(bkb())


def test_texts_are_large_enough_and_legends_hide_nothing():
    bandit = told(bkb())
    bandit.mark_pending(data(2, 3, seed=9)[0])
    for figure in (plot_line(bandit), plot_plane(bandit), plot_leverage(bandit), plot_dictionary(bandit)):
        figure.set_dpi(60)
        figure.draw_without_rendering()
        legends = [ax.get_legend() for ax in figure.axes if ax.get_legend()] + figure.legends
        (legend,) = legends
        window = legend.get_window_extent()
        assert all(not window.overlaps(ax.get_window_extent()) for ax in figure.axes)
        assert window.y0 >= 0.0
        assert window.x0 >= 0.0
        assert window.x1 <= figure.bbox.x1
        for ax in figure.axes:
            texts = [ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels(), *legend.get_texts()]
            assert all(text.get_size() >= 8.0 for text in texts)
            if ax.get_label() != "<colorbar>":
                assert ax.get_xlabel()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"coordinate": "x33"}, "'x33' is no coordinate; did you mean 'x3'"),
        ({"coordinate": 3}, "coordinate must be from 0 to 2, got 3"),
        ({"at": FIXED[:2]}, "at must"),
        ({"at": FIXED, "context": FIXED[:1]}, "Give either at"),
        ({"context": FIXED[:1]}, "have neither contexts"),
        ({"bounds": UNIT}, r"bounds must be \(2, 1\)"),
        ({"resolution": 0}, "resolution must be"),
        ({"resolution": 1}, "resolution must be at least 2"),
        ({"at": ["a", "b", "c"]}, "at must be"),
        ({"names": ["a"]}, "names must be 3"),
        ({"beta": -1.0}, "beta must be"),
    ],
)
def test_what_does_not_fit_is_named(words, message):
    with pytest.raises(InputError, match=message):
        plot_line(told(bkb()), **words)
