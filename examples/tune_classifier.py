"""Tune a neural network with BKB in a plain BoTorch loop, and compare it with random search.

The task (``tune_classifier_task.py``) is to choose five hyperparameters of a scikit-learn classifier from noisy
validation scores. No bandit class is involved: a ``NystromGP`` whose dictionary is resampled every round, a
``KernelUCB`` and BoTorch's ``optimize_acqf`` are all there is to BKB. The loop is :func:`tune`.

    python examples/tune_classifier.py                               # about two minutes
    python examples/tune_classifier.py --quick                       # a few seconds

Both searches are run several times with the same budget, on other divisions of the data and with other seeds: a single
run of each is decided by luck. Writes ``record.json`` (all that was played and found) and ``figure.png`` to
``runs/tune_classifier``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import common
import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples, manual_seed
from common import BLUE, DASHED, GREEN, GREY, ORANGE, Record, below, runs_of, spread
from gpytorch.kernels import Kernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator
from sklearn.neural_network import MLPClassifier
from torch import Tensor
from tqdm import tqdm
from tune_classifier_task import EPOCHS, LABELS, SPACE, VALIDATION_SIZE, Digits, RewardScale, network, numpy_seed

from torch_kbandits import KernelUCB, NystromGP, RidgeLeverageSampling
from torch_kbandits.numerics.random import generator_for

#: Multiplier of the standard deviation. BKB's theorem asks for one about ten times larger, which explores long after
#: there is anything to find; a constant near 2 is what works. BoTorch's ``UpperConfidenceBound`` calls this one 4.
BETA = 2.0

#: Probability of being kept in the dictionary over ridge leverage score.
OVERSAMPLING = 3.0

#: The kernel's hyperparameters are fitted after the initial design and then after every so many evaluations.
EVALUATIONS_PER_FIT = 10

#: The unit cube, in which configurations are points.
BOUNDS = torch.stack([torch.zeros(SPACE.dimension), torch.ones(SPACE.dimension)]).double()


class Search:
    """What a search has played, and what it made of it.

    An evaluation has its configuration and score; those after which the search could say so also which one it would
    recommend, and the accuracy that it expects there, and of BKB the size of its dictionary and effective dimension.
    """

    def __init__(self, digits: Digits, advance: Callable[[], object]) -> None:
        self.digits, self.advance = digits, advance
        self.X, self.evaluations = BOUNDS[:0], list[Record]()

    @property
    def scores(self) -> list[float]:
        """The validation accuracies in order."""
        return [evaluation["score"] for evaluation in self.evaluations]

    def play(self, x: Tensor) -> None:
        """Evaluate the configuration at x (1, d)."""
        (configuration,) = SPACE.decode(x)
        score = self.digits.validate(configuration, len(self.X))
        self.X = torch.cat([self.X, x])
        self.evaluations.append({"configuration": configuration, "score": score})
        self.advance()

    def recommended(self) -> dict[str, Any]:
        """Return the configuration that is recommended at the end."""
        return self.evaluations[self.evaluations[-1]["recommended"]]["configuration"]


def tune(search: Search, budget: int) -> tuple[NystromGP, RewardScale]:
    """Run BKB: a Sobol design, then again and again the point of the highest upper confidence bound.

    Returns:
        The final posterior, and the scale of its rewards.
    """
    seed = search.digits.seed
    design_size = min(10, max(2, budget // 3))
    for x in draw_sobol_samples(BOUNDS, n=design_size, q=1, seed=numpy_seed(seed, 0, "design")):
        search.play(SPACE.snap(x))
    scale = RewardScale.of_design(search.scores)
    kernel = get_covar_module_with_dim_scaled_prior(ard_num_dims=SPACE.dimension, use_rbf_kernel=False).double()
    while True:
        n = len(search.X)
        Y = scale.rewards(search.scores)
        model = condition(search.X, Y, kernel, scale.regularization, seed)
        if (n - design_size) % EVALUATIONS_PER_FIT == 0:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
            model = condition(search.X, Y, kernel, scale.regularization, seed)
        search.evaluations[-1] |= recommendation(search.X, model, scale)
        if n == budget:
            return model, scale
        words: dict[str, Any] = {"num_restarts": 4, "raw_samples": 128, "post_processing_func": SPACE.snap}
        with manual_seed(numpy_seed(seed, n, "acquisition")):
            x, _ = optimize_acqf(KernelUCB(model, beta=BETA), BOUNDS, q=1, **words)
        search.play(x)


def condition(X: Tensor, Y: Tensor, kernel: Kernel, regularization: float, seed: int) -> NystromGP:
    """Return the posterior given all that was played, at a dictionary drawn afresh by ridge leverage scores."""
    return NystromGP(
        X,
        Y,
        dictionary=RidgeLeverageSampling(OVERSAMPLING),
        generator=generator_for(seed, len(X), "dictionary"),
        covar_module=kernel,
        regularization=regularization,
    )


def recommendation(X: Tensor, model: NystromGP, scale: RewardScale) -> Record:
    """Return which played point has the highest posterior mean: the best score of many is mostly the luckiest."""
    with torch.no_grad():
        mean, best = model.posterior(X.unsqueeze(-2)).mean.flatten().max(0)
    sizes = {"dictionary_size": len(model.inducing_points), "effective_dimension": float(model.effective_dimension())}
    return {"recommended": int(best), "recommended_mean": float(scale.accuracies(mean))} | sizes


def search_at_random(search: Search, budget: int) -> None:
    """Play uniformly random points of the same box, and recommend the best score, as people do."""
    for index in range(budget):
        generator = generator_for(search.digits.seed, index, "random search")
        search.play(SPACE.snap(torch.rand(1, SPACE.dimension, generator=generator, dtype=torch.float64)))
        luckiest = int(np.argmax(search.scores))
        search.evaluations[-1] |= {"recommended": luckiest, "recommended_mean": search.scores[luckiest]}


def slice_of_mean(model: NystromGP, scale: RewardScale, recommended: Tensor, resolution: int = 60) -> Record:
    """Return the posterior mean over the two hyperparameters it depends on most, the others as recommended.

    Dependence is the mean absolute derivative of the posterior mean over the unit cube.
    """
    probes = draw_sobol_samples(BOUNDS, n=512, q=1, seed=0).requires_grad_()
    (gradient,) = torch.autograd.grad(model.posterior(probes).mean.sum(), probes)
    i, j = sorted(gradient.abs().mean(dim=(0, 1)).topk(2).indices.tolist())
    axis = torch.linspace(0.0, 1.0, resolution, dtype=torch.float64)
    points = recommended.expand(resolution, resolution, -1).clone()
    points[..., i], points[..., j] = torch.meshgrid(axis, axis, indexing="xy")
    with torch.no_grad():
        mean = model.posterior(points.unsqueeze(-2)).mean.reshape(resolution, resolution)
    names = [[*SPACE.parameters][k] for k in (i, j)]
    low, high = SPACE.decode(BOUNDS)
    values = [np.geomspace(low[name], high[name], resolution).tolist() for name in names]
    return {"names": names, "values": values, "accuracy": scale.accuracies(mean).tolist()}


def contender(digits: Digits, name: str, configuration: dict[str, Any], make: Any, expected: float | None) -> Record:
    """Return how well a classifier, which ``make`` makes of a seed, does on the held-out digits."""
    held_out = digits.refit(make)
    found = {"name": name, "configuration": configuration, "expected": expected, "held_out": held_out}
    return found | {"mean": float(np.mean(held_out)), "sd": float(np.std(held_out, ddof=1))}


def run(seed: int, budget: int) -> Record:
    """Run both searches once and return their record."""
    torch.set_num_threads(1)
    digits, results = Digits(seed), []
    with tqdm(total=2 * budget, desc=f"seed {seed}", unit="training") as bar:
        searches = {"BKB": Search(digits, bar.update), "random search": Search(digits, bar.update)}
        model, scale = tune(searches["BKB"], budget)
        search_at_random(searches["random search"], budget)
    for name, search in searches.items():
        given, expected = search.recommended(), search.evaluations[-1]["recommended_mean"]
        results.append(contender(digits, name, given, lambda state, given=given: network(given, state), expected))
    # scikit-learn's default, which uses Adam rather than plain gradient descent.
    own = MLPClassifier()
    sizes = {"hidden_units": own.hidden_layer_sizes[0], "batch_size": 200, "learning_rate": own.learning_rate_init}
    defaults = sizes | {"one_minus_momentum": 1.0 - own.beta_1, "weight_decay": own.alpha}
    for epochs in (EPOCHS, own.max_iter):
        words = {"max_iter": epochs}
        make = lambda state, words=words: MLPClassifier(random_state=state, **words)  # noqa: E731
        results.append(contender(digits, f"defaults, {epochs} passes", defaults, make, None))
    played, dictionary = searches["BKB"].X, model.inducing_points
    posterior = {
        "dictionary": (played.unsqueeze(1) == dictionary).all(-1).any(-1).nonzero().flatten().tolist(),
        "slice": slice_of_mean(model, scale, played[searches["BKB"].evaluations[-1]["recommended"]]),
    }
    evaluations = {name: search.evaluations for name, search in searches.items()}
    return {"seed": seed, "searches": evaluations, "posterior": posterior, "results": results}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both searches, compare them, and write record and figure."""
    parser = common.options_of("tune_classifier", __doc__)
    common.sized(parser, "evaluations", 80, 6, "trainings of each search in a run", runs=6, least=3)
    options = common.parse(parser, arguments)
    settings = {"evaluations": options.size, "seed": options.seed, "beta": BETA, "oversampling": OVERSAMPLING}
    record = {"settings": settings, "runs": common.play(run, options, processes=1)}
    common.finish(options, record, report, figure=draw)


def report(record: Record) -> list[Any]:
    """Say what each recommends in run 1 and how well it does, and which search did better."""
    runs = record["runs"]
    first, last = runs[0]["results"], runs[0]["searches"]["BKB"][-1]
    rows: list[Any] = [[LABELS[name], *(f"{each['configuration'][name]:.3g}" for each in first)] for name in LABELS]
    rows += [None, ["expected", *("" if each["expected"] is None else f"{each['expected']:.3f}" for each in first)]]
    rows.append(["held out", *(f"{each['mean']:.3f} ± {each['sd']:.3f}" for each in first)])
    means = np.array([[result["mean"] for result in run["results"]] for run in runs])
    rows += [None, [f"held out, {runs_of(runs)}", *map(spread, means.T)]]
    less = means[:, 0] - means[:, 1]
    won = f"BKB did better than random search in {(less > 0).sum()} of {runs_of(runs)}, by {less.mean():+.4f}"
    if len(runs) > 1:
        error = less.std(ddof=1) / len(runs) ** 0.5
        unclear = ", too little to tell them apart" * bool(abs(less.mean()) <= 2.0 * error)
        won += f" ± {error:.4f} on average (standard error over runs){unclear}"
    heads = [each["name"].replace(", ", "\n").replace(" search", "\nsearch") for each in first]
    return [
        common.table(f"What each recommends in run 1 of {len(runs)}, and its accuracy", ["", *heads], rows),
        "Accuracies; ± is the standard deviation. BKB recommends the played configuration of the highest posterior "
        "mean, random search its luckiest score. The defaults are scikit-learn's: Adam, whose 1 − β₁ stands in for "
        "1 − momentum; 200 passes are at most 200.",
        f"{won}.",
        f"Dictionary at the end of run 1: {last['dictionary_size']} of {record['settings']['evaluations']} points "
        f"(effective dimension {last['effective_dimension']:.1f}).",
    ]


# ---------------------------------------------------------------- figure

COLOURS = {"BKB": BLUE, "random search": ORANGE}
WINDOW = 15


def draw(record: Record) -> Figure:
    """Return four panels: the scores, what BKB believes, the held-out accuracies and the dictionary."""
    figure, runs = Figure(figsize=(12.5, 9.2)), record["runs"]
    margins = {"left": 0.125, "right": 0.97, "top": 0.96, "bottom": 0.09, "hspace": 0.38, "wspace": 0.24}
    (scores, posterior), (held_out, dictionary) = figure.subplots(2, 2, gridspec_kw=margins)
    draw_scores(scores, runs[0])
    draw_posterior(posterior, runs[0])
    draw_held_out(held_out, runs)
    draw_dictionary(dictionary, runs)
    common.tidy([scores, posterior, held_out, dictionary], "abcd", plain=[posterior])
    return figure


def line(label: str, **words: Any) -> Line2D:
    """Return an entry of a legend."""
    return Line2D([], [], label=label, **{"color": GREY, "linewidth": 2.0, **words})


def draw_scores(axes: Axes, run: Record) -> None:
    """Draw every score of a run, its running median and what each search expects of its recommendation."""
    half_digit = 0.5 / VALIDATION_SIZE  # on a logit axis 0 and 1 are infinitely far away
    for name, evaluations in run["searches"].items():
        colour, numbers = COLOURS[name], np.arange(1, len(evaluations) + 1)
        scores = np.clip([evaluation["score"] for evaluation in evaluations], half_digit, 1.0 - half_digit)
        median = [np.median(scores[max(0, n - WINDOW) : n]) for n in numbers]
        expected = [evaluation.get("recommended_mean", np.nan) for evaluation in evaluations]
        axes.plot(numbers, scores, "o", markersize=4, color=colour, alpha=0.4, markeredgewidth=0)
        axes.plot(numbers, median, color=colour, linewidth=2.0)
        axes.plot(numbers, expected, color=colour, linewidth=1.4, linestyle=DASHED)
    logit_axis(axes, "y", (0.1, 0.5, 0.8, 0.9, 0.95, 0.98))
    axes.set(
        title="Validation accuracy of every evaluation of run 1", xlabel="evaluation", ylabel="validation accuracy"
    )
    handles = [line(name, color=colour) for name, colour in COLOURS.items()]
    handles += [line("one evaluation", linewidth=0, marker="o", markersize=4, alpha=0.6)]
    handles += [line(f"median of the last {WINDOW}")]
    below(axes, [*handles, line("expected of the recommendation", linewidth=1.4, linestyle=DASHED)], 3)


def draw_posterior(axes: Axes, run: Record) -> None:
    """Draw the posterior mean over two hyperparameters, with the points played and those in the dictionary."""
    shown, evaluations = run["posterior"]["slice"], run["searches"]["BKB"]
    (first, second), accuracy = shown["names"], np.array(shown["accuracy"])
    low, high = (np.log(value / (1.0 - value)) for value in (accuracy.min(), accuracy.max()))
    levels = 1.0 / (1.0 + np.exp(-np.linspace(low - 1e-3, high + 1e-3, 13)))
    contours = axes.contourf(*shown["values"], accuracy, levels, cmap="YlGnBu_r", norm=BoundaryNorm(levels, 256))
    axes.figure.colorbar(contours, ax=axes, label="posterior mean, as validation accuracy", format="%.2f")
    x, y = (np.array([each["configuration"][name] for each in evaluations]) for name in (first, second))
    kept, best = np.isin(np.arange(len(x)), run["posterior"]["dictionary"]), evaluations[-1]["recommended"]
    style: dict[str, Any] = {"markeredgecolor": "black", "linestyle": "none", "clip_on": False, "markeredgewidth": 0.6}
    axes.plot(x[~kept], y[~kept], "o", markersize=4, color="white", label="played", **style)
    axes.plot(x[kept], y[kept], "o", markersize=5, color=BLUE, label="and in the dictionary", **style)
    axes.plot(x[best], y[best], "*", markersize=16, color="gold", label="recommended", **style)
    axes.set(xscale="log", yscale="log", xlabel=LABELS[first], ylabel=LABELS[second])
    axes.set_title("BKB's posterior after run 1, the rest as recommended")
    below(axes, axes.get_legend_handles_labels()[0], 3)


def draw_held_out(axes: Axes, runs: list[Record]) -> None:
    """Draw the held-out accuracy of every run, the mean ± sd of the runs, and what was expected."""
    names = [result["name"] for result in runs[0]["results"]]
    for row, name in enumerate(names):
        results, colour = [run["results"][row] for run in runs], COLOURS.get(name, GREY)
        means = np.array([result["mean"] for result in results])
        axes.plot(means, np.full(len(means), row), "o", markersize=5, color=colour, alpha=0.5, markeredgewidth=0)
        deviation = means.std(ddof=1) if len(means) > 1 else np.nan
        look: dict[str, Any] = {"fmt": "o", "color": colour, "markersize": 8, "capsize": 4, "linewidth": 2}
        axes.errorbar(means.mean(), row + 0.2, xerr=deviation, **look)
        expected = [result["expected"] for result in results if result["expected"] is not None]
        axes.plot(expected, np.full(len(expected), row - 0.2), "D", markersize=5, color="white", markeredgecolor=colour)
    axes.set_yticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    logit_axis(axes, "x", (0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.94, 0.96, 0.98))
    axes.set(title=f"Accuracy on the held-out digits, {runs_of(runs)}", xlabel="accuracy")
    handles = [line("expected", linewidth=0, marker="D", markersize=5, color="white", markeredgecolor=GREY)]
    handles += [line("held out, a run", linewidth=0, marker="o", markersize=5, alpha=0.5)]
    below(axes, [*handles, line("held out, mean ± sd of the runs", marker="o", markersize=8)], 3)


def draw_dictionary(axes: Axes, runs: list[Record]) -> None:
    """Draw the dictionary size against the number of observations."""
    for run in runs:
        evaluations = run["searches"]["BKB"]
        emphasis: dict[str, Any] = {"linewidth": 2.0} if run is runs[0] else {"alpha": 0.4, "linewidth": 1.0}
        for what, colour in (("dictionary_size", BLUE), ("effective_dimension", GREEN)):
            values = [evaluation.get(what, np.nan) for evaluation in evaluations]
            axes.plot(np.arange(1, len(values) + 1), values, color=colour, **emphasis)
    last = len(runs[0]["searches"]["BKB"])
    axes.plot([0, last], [0, last], color=GREY, linewidth=1.2, linestyle=DASHED)
    axes.set(title="BKB's dictionary, run 1 in bold", xlabel="observations", ylabel="points")
    axes.set(ylim=(0, None), xlim=(0, None))
    handles = [
        line("exact GP: every observation", linewidth=1.2, linestyle=DASHED),
        line("dictionary size", color=BLUE),
    ]
    below(axes, [*handles, line("effective dimension", color=GREEN)])


def logit_axis(axes: Axes, which: str, ticks: tuple[float, ...]) -> None:
    """Scale an axis of accuracies by their log-odds."""
    getattr(axes, f"set_{which}scale")("logit")
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


if __name__ == "__main__":
    main()
