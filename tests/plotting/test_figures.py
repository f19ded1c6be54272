"""Figures draw the dense posterior, points as strong as they count, the front of means; columns hold what was told."""

import math

import contextual
import forgetting
import numpy as np
import oracles
import pytest
import torch
from click.testing import CliRunner
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from problems import DOUBLE, data, dense, matern, on_a_cube, rbf

from torch_kbandits import (
    Category,
    ColumnSpec,
    ContextualActions,
    InputError,
    Number,
    Outcome,
    Prior,
    Scalarization,
    algorithms,
)
from torch_kbandits.cli import main
from torch_kbandits.errors import EmptyHistoryError
from torch_kbandits.memory import SlidingWindow, TemporalPrior
from torch_kbandits.plotting import (
    pareto_front,
    plot_dictionary,
    plot_front,
    plot_line,
    plot_plane,
)
from torch_kbandits.plotting.section import recommended_point
from torch_kbandits.plotting.style import PLAYED

FIXED = torch.tensor([0.3, 0.6, 0.1], dtype=DOUBLE)
UNIT = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 2.0]], dtype=DOUBLE)


def told(bandit, n=25, seed=0):
    X, _ = data(n, bandit.candidates.example.shape[-1], seed=seed)
    X = torch.cat([X, X[: n // 5]])
    bandit.tell(X, torch.sin(5.0 * X).sum(-1))
    return bandit


def bkb(**words):
    settings = {"bounds": UNIT, "kernel": matern(0.5, 1.7), "regularization": 0.05, "beta": 1.5, "seed": 0}
    return algorithms.BKB(**(settings | words))


def believed(bandit, points):
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
    x, mean, lower, upper = curve(plot_line(bandit, coordinate, at=FIXED, center=2.0))
    column = 1 if coordinate == "x2" else coordinate
    assert np.allclose(x, np.linspace(0.0, [1.0, 1.0, 2.0][column], 200))
    T = FIXED.repeat(200, 1)
    T[:, column] = torch.tensor(x)
    expected = believed(bandit, T)
    assert np.abs(mean - 2.0 - expected.mean).max() < expected.rounding
    margin = 1.5 * np.sqrt(expected.variance)
    assert np.abs(upper - mean - margin).max() < expected.upper_rounding(1.5)
    assert np.abs(mean - lower - margin).max() < expected.upper_rounding(1.5)
    figure, best = plot_line(bandit, column), bandit.recommend()
    x, mean, *_ = curve(figure)
    T = best.repeat(200, 1)
    T[:, column] = torch.tensor(x)
    assert np.abs(mean - believed(bandit, T).mean).max() < expected.rounding
    title = figure.axes[0].get_title(loc="left")
    other = 2 if column == 0 else 0
    assert f"x{other + 1} = {float(best[0, other]):.4g}" in title
    assert "(recommended)" in title
    assert "recommended" in labels(figure)


def test_before_any_reward_the_prior_is_shown_in_the_middle():
    x, mean, lower, upper = curve(plot_line(bkb()))
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


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ["window", "restart", "discount", "linear to a limit"])
def test_with_a_memory_the_surrogate_is_that_of_now_and_ages_fade(name):
    bandit = forgetting.make(name, "fresh")
    forgetting.play(bandit, 16)
    at, bounds = forgetting.TESTED[0], torch.tensor([[0.0], [1.0]], dtype=DOUBLE)
    x, mean, *_ = curve(plot_line(bandit, 1, at=at, bounds=bounds))
    T = at.repeat(200, 1)
    T[:, 1] = torch.tensor(x)
    expected = forgetting.expected(bandit, name, 16.0, T)
    assert np.abs(mean - expected.mean).max() < expected.rounding
    weights = forgetting.LAMBDA / forgetting.MEMORIES[name].noise(dense(bandit.history.times)[0], 16.0)
    plane = plot_plane(bandit)  # all points lie on it, so that only their ages count
    _, opacity = points_of(plane.axes[0], PLAYED)
    assert np.allclose(opacity, 0.1 + 0.9 * weights[weights >= 0.02])


def test_a_plane_has_the_mean_and_the_deviation():
    bandit = told(bkb())
    bandit.mark_pending(data(2, 3, seed=9)[0])
    figure = plot_plane(bandit, ("x3", 0), at=FIXED, center=-1.0)
    mean, deviation = (ax.collections[0].get_array().reshape(60, 60) for ax in figure.axes[:2])
    first, second = np.linspace(0.0, 2.0, 60), np.linspace(0.0, 1.0, 60)
    T = FIXED.repeat(3600, 1)
    T[:, 2], T[:, 0] = map(torch.tensor, (np.tile(first, 60), np.repeat(second, 60)))  # a row of the map has one x1
    expected = believed(bandit, T)
    assert np.abs(mean.ravel() + 1.0 - expected.mean).max() < expected.rounding
    assert np.abs(deviation.ravel() - np.sqrt(expected.variance)).max() < expected.upper_rounding(1.0)
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("x3", "x1")
    words = [label.split()[0] for label in labels(figure)]
    assert words == ["played,", "dictionary", "pending"]
    assert f"dictionary ({len(bandit.inducing_points)}" in " ".join(labels(figure))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("memory", [None, TemporalPrior(0.2)], ids=["lasting", "in time"])
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
    figure = plot_line(shop, context=visitors[3])
    x, mean, *_ = curve(figure)
    assert np.allclose(x, np.linspace(16.0, 72.0, 200))
    assert figure.axes[0].get_xlabel() == "price"
    joint = torch.cat([context.encode(visitors[3], dtype=DOUBLE).expand(200, -1), action.encode(
        [{"price": float(price)} for price in x], dtype=DOUBLE
    )], dim=-1)  # fmt: skip
    kernel = oracles.rbf(0.5)
    if memory is not None:
        joint = torch.cat([torch.full((200, 1), 6.0, dtype=DOUBLE), joint], dim=-1)
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


def test_leverage_scores_and_dictionary_are_those_of_the_formulas():
    bandit = told(bkb())
    X, first = np.unique(dense(bandit.history.X)[0], axis=0, return_index=True)
    variance = believed(bandit, torch.tensor(X)).variance
    figure = plot_dictionary(bandit)
    drawn = np.concatenate([np.asarray(part.get_offsets()) for part in figure.axes[0].collections])
    assert np.allclose(np.sort(drawn[:, 1]), np.sort(variance / 0.05))
    everywhere = believed(bandit, bandit.history.X).variance.sum() / 0.05
    assert f"{everywhere:.3g}" in figure.axes[0].get_title(loc="left")
    held = {row.tobytes() for row in dense(bandit.inducing_points)[0]}
    assert f"in the dictionary ({sum(row.tobytes() in held for row in X)})" in labels(figure)
    assert len(first) == 25

    played, members = figure.axes[1].lines
    assert played.get_ydata()[-1] == 25
    assert members.get_ydata()[-1] == len(bandit.inducing_points)
    with pytest.raises(EmptyHistoryError):
        plot_dictionary(bkb())


def test_what_does_not_fit_is_named():
    for words, message in (
        ({"coordinate": "x33"}, '"x3", got .x33.'),
        ({"at": FIXED, "context": FIXED[:1]}, "Give either at"),
        ({"context": FIXED[:1]}, "have neither contexts"),
        ({"bounds": UNIT}, r"bounds must be \(2, 1\)"),
    ):
        with pytest.raises(InputError, match=message):
            plot_line(told(bkb()), **words)


WORDS = {"kernel": rbf(0.4), "regularization": 0.05, "seed": 0, "beta": 1.5}
START = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


def saved(path, bandit=None, contexts=False):
    bandit = algorithms.BKB(candidates=data(20, 2)[0], **WORDS) if bandit is None else bandit
    for t in range(6):
        words = {"context": torch.tensor([0.1 * t], dtype=DOUBLE)} if contexts else {}
        x = bandit.ask(**words)
        bandit.tell(x, torch.sin(5.0 * x).sum(-1), **words)
    bandit.save(path)
    return path


def saved_with_context(path):
    return saved(path, algorithms.CBKB(candidates=data(6, 1)[0], context_dim=1, **WORDS), contexts=True)


def saved_and_fitted(path):
    return saved(path, on_a_cube(num_initial=4))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("make", "format"), [(saved, "svg"), (saved_with_context, "pdf"), (saved_and_fitted, "png")])
def test_the_command_writes_all_figures(tmp_path, make, format):
    make(tmp_path / "bandit.kb")
    result = CliRunner().invoke(main, ["look", str(tmp_path / "bandit.kb"), "--format", format])
    assert result.exit_code == 0, result.output
    names = [f"{name}.{format}" for name in ("line", "plane", "dictionary")]
    assert result.output.splitlines() == [str(tmp_path / "bandit-figures" / name) for name in names]
    assert sorted(file.name for file in (tmp_path / "bandit-figures").iterdir()) == sorted(names)
    for name in names:
        assert (tmp_path / "bandit-figures" / name).read_bytes().startswith(START[format])


def test_bad_input_is_named_and_nothing_is_written(tmp_path):
    file = saved(tmp_path / "bandit.kb")
    for words, message in (
        (["-c", "x1", "-c", "x9"], "got 'x9'"), (["--center", "nan"], "--center must be a finite number"),
        (["--at", "nan,nan"], "at must be finite"), (["--format", "gif"], "'gif' is not one of"),
        (["--at", "a,b"], "--at must be a number or numbers with commas"),
        (["-o", str(file / "folder")], "cannot be written"),
    ):  # fmt: skip
        result = CliRunner().invoke(main, ["look", str(file), "-o", str(tmp_path / "none"), *words])
        assert (result.exit_code, message in " ".join(result.output.split())) == (2, True), result.output
    assert not (tmp_path / "none").exists()


ARMS = data(25, 2, seed=2)[0]
BOTH = {"reward": "maximize", "cost": "minimize"}
ALL = BOTH | {"heat": "maximize"}
PRIOR, COST = Prior(rbf(0.4), 0.2), Outcome("cost", Prior(rbf(0.4, 4.0), 0.5))
HEAT = Outcome("heat", PRIOR)


def make(objectives=BOTH, **words):
    settings = {"candidates": ARMS, "prior": PRIOR, "beta": 1.5, "seed": 0, "outcomes": [COST, HEAT]}
    return algorithms.GPUCB(**(settings | {"objective": Scalarization(objectives)} | words))


def told_of_outcomes(bandit, n=20, context=None):
    noise = torch.Generator().manual_seed(1)
    X = ARMS[torch.arange(n) % 12]  # some come again
    Y = torch.sin(5.0 * X).sum(-1) + torch.randn(n, generator=noise, dtype=DOUBLE)
    outcomes = {"cost": 3.0 * X[:, 0] + torch.randn(n, generator=noise, dtype=DOUBLE), "heat": X[:, 1]}
    for row in range(n):
        own = {name: float(values[row]) for name, values in outcomes.items()}
        bandit.tell(X[row, None], float(Y[row]), outcomes=own)
    return bandit, X, Y, outcomes


def test_it_is_the_front_of_dense_means_and_not_of_values():
    bandit, X, Y, outcomes = told_of_outcomes(make())
    front = pareto_front(bandit)
    rows, means = dense(front.X)[0], []
    for kernel, noise, y in ((oracles.rbf(0.4), 0.2, Y), (oracles.rbf(0.4, 4.0), 0.5, outcomes["cost"])):
        at = oracles.exact(kernel, *dense(X, y), np.full(len(X), noise), rows)
        means.append(at.mean)
        column = len(means) - 1
        assert np.abs(front.means[:, column].numpy() - at.mean).max() < 1e-7
        assert np.abs(front.deviations[:, column].numpy() - np.sqrt(at.variance)).max() < 1e-6
    good = np.stack([means[0], -means[1]], -1)
    beaten = [any((other >= mine).all() and (other > mine).any() for other in good) for mine in good]
    assert front.is_on_front.tolist() == [not each for each in beaten]
    assert 0 < sum(beaten) < len(beaten) == 12
    assert torch.equal(front.actions, front.X[front.is_on_front])
    assert tuple(front.directions) == ("reward", "cost")
    assert torch.equal(front.values, front.means[front.is_on_front])


@pytest.mark.parametrize("memory", [SlidingWindow(5), TemporalPrior(0.1)])
def test_what_counts_at_the_present_time_is_compared(memory):
    bandit, X, *_ = told_of_outcomes(make(memory=memory))
    front = pareto_front(bandit)
    own = front.X[:, front.X.shape[-1] - 2 :]
    counted = X[-5:] if isinstance(memory, SlidingWindow) else X
    assert {tuple(x) for x in own.tolist()} == {tuple(x) for x in counted.tolist()}


@pytest.mark.parametrize(("objectives", "panels"), [(BOTH, 1), (ALL, 3)])
def test_the_figure_has_a_panel_for_each_pair_with_the_front_in_it(objectives, panels):
    bandit, *_ = told_of_outcomes(make(objectives))
    before = bandit.state_dict()
    figure = plot_front(bandit, center=10.0)
    assert isinstance(figure, Figure)
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert len(shown) == panels
    front = pareto_front(bandit)
    drawn = shown[0].collections[-1].get_offsets()
    expected = front.values[:, :2] + torch.tensor([10.0, 0.0], dtype=DOUBLE)
    assert np.abs(np.asarray(drawn) - expected.numpy()).max() < 1e-9
    assert shown[0].get_xlabel() == "reward (maximize)"
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[1] == f"Pareto front of the means, ± σ ({int(front.is_on_front.sum())})"
    after = bandit.state_dict()
    assert before["num_asked"] == after["num_asked"]
    assert torch.equal(before["history"]["Y"], after["history"]["Y"])
