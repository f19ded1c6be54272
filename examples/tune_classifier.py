"""Tune a neural network with BKB in a plain BoTorch loop, and compare it with random search.

The task is to choose five hyperparameters of scikit-learn's ``MLPClassifier`` on its digits, trained by stochastic
gradients for ten passes. A score is the accuracy on one freshly drawn validation split, so its noise is real: near the
optimum its standard deviation is 0.018, more than there is left to gain. Two thirds are held out until the end.

No bandit class is involved: a ``NystromGP`` whose dictionary is resampled every round, a ``KernelUCB`` and BoTorch's
``optimize_acqf`` are all there is to BKB. The loop is :func:`tune`. Both searches are run several times, on other
divisions of the data and with other seeds: a single run of each is decided by luck.

    python examples/tune_classifier.py      # about two minutes; with --quick a few seconds
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import common
import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples, manual_seed
from common import BLUE, DASHED, GREEN, GREY, ORANGE, Record, below, line, runs_of, spread, ticks
from gpytorch.mlls import ExactMarginalLogLikelihood
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits
from torch import Tensor
from tqdm import tqdm

from torch_kbandits import Float, Integer, KernelUCB, NystromGP, ParameterSpace, RidgeLeverageSampling
from torch_kbandits.numerics.random import generator_for, seed_for

DEVELOPMENT_SIZE, VALIDATION_SIZE, EPOCHS, REFITS, CHANCE = 600, 150, 10, 5, 0.1

#: Standard deviation of a validation score's log-odds: which digits fall into the split gives an accuracy p the
#: variance 1 / (n p (1 − p)), here at p = 0.95. 40 replicates of each of three good configurations had 0.36 to 0.43.
LOG_ODDS_NOISE = (VALIDATION_SIZE * 0.95 * 0.05) ** -0.5

FLOOR = 0.5  # accuracies below this count as this: how badly a training fails says nothing about where it succeeds

#: What is tuned, and how it is called.
SPACE = ParameterSpace(
    {
        "hidden_units": Integer(4, 128, log=True),
        "learning_rate": Float(1e-4, 1.0, log=True),
        "one_minus_momentum": Float(1e-2, 1.0, log=True),
        "weight_decay": Float(1e-6, 10.0, log=True),
        "batch_size": Integer(4, 128, log=True),
    }
)
LABELS = {name: name.replace("one_minus_", "1 − ").replace("_", " ") for name in SPACE.parameters}


def network(configuration: dict[str, Any], random_state: int) -> MLPClassifier:
    """Return the untrained classifier of a configuration."""
    names = {"learning_rate_init": "learning_rate", "alpha": "weight_decay", "batch_size": "batch_size"}
    words: dict[str, Any] = {word: configuration[name] for word, name in names.items()}
    words["momentum"] = 1.0 - configuration["one_minus_momentum"]
    words |= {"max_iter": EPOCHS, "n_iter_no_change": EPOCHS}  # as many as there are: training never stops early
    return MLPClassifier((configuration["hidden_units"],), solver="sgd", random_state=random_state, **words)


Labelled = tuple[np.ndarray, np.ndarray]


class Digits:
    """The digits data set, split once into what the searches may see and what they may not."""

    def __init__(self, seed: int) -> None:
        images, labels = map(np.asarray, load_digits(return_X_y=True))
        self.seed = seed
        held_out = numpy_seed(seed, 0, "held-out set")
        self.development, self.held_out = split((images / 16.0, labels), len(labels) - DEVELOPMENT_SIZE, held_out)

    def validate(self, configuration: dict[str, Any], index: int) -> float:
        """Train, and return the accuracy on a fresh split; both searches meet the same splits and initial weights."""
        train, validation = split(self.development, VALIDATION_SIZE, numpy_seed(self.seed, index, "validation split"))
        return accuracy(network(configuration, numpy_seed(self.seed, index, "weights")), train, validation)

    def refit(self, classifier: Callable[[int], MLPClassifier]) -> list[float]:
        """Return held-out accuracies after training on all development data with other seeds."""
        seeds = [numpy_seed(self.seed, number, "refit") for number in range(REFITS)]
        return [accuracy(classifier(random_state), self.development, self.held_out) for random_state in seeds]


def split(data: Labelled, second_size: int, random_state: int) -> tuple[Labelled, Labelled]:
    """Split at random into two parts with equal shares of each digit."""
    images, labels = data
    parts: Any = train_test_split(images, labels, test_size=second_size, stratify=labels, random_state=random_state)
    return (parts[0], parts[2]), (parts[1], parts[3])


def accuracy(classifier: MLPClassifier, train: Labelled, test: Labelled) -> float:
    """Train and return the accuracy on the test data; a training that diverges has that of chance."""
    # One thread: the matrices are too small for more. Few epochs are the task, so not having converged is no news.
    with threadpool_limits(limits=1), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            return float(classifier.fit(*train).score(*test))
        except ValueError as error:
            if "non-finite" not in str(error):
                raise
            return CHANCE


def numpy_seed(*address: Any) -> int:
    """Return the 32-bit seed of a draw, of a seed, a number and a purpose."""
    return seed_for(*address) % 2**32


class RewardScale:
    """Accuracies as rewards of mean about 0 and variance about 1, which is what the model's prior expects.

    A reward is the log-odds of the accuracy, which pull apart 0.94 and 0.96, less a centre and divided by a scale. Both
    are those of the initial design and stay: were they recomputed, λ would change its meaning every round.
    """

    def __init__(self, scores: Sequence[float]) -> None:
        odds = log_odds(scores)
        self.centre, self.scale = float(odds.mean()), max(float(odds.std(ddof=1)), LOG_ODDS_NOISE)
        self.regularization = (LOG_ODDS_NOISE / self.scale) ** 2  # λ, the noise variance of a reward

    def rewards(self, scores: Sequence[float]) -> Tensor:
        """Return the rewards (n, 1) of accuracies."""
        return torch.from_numpy((log_odds(scores) - self.centre) / self.scale).unsqueeze(-1)

    def accuracies(self, rewards: Tensor) -> Tensor:
        """Return the accuracies that rewards stand for."""
        return torch.sigmoid(rewards * self.scale + self.centre)


def log_odds(scores: Sequence[float]) -> np.ndarray:
    """Return log (right + ½) / (wrong + ½) of validation accuracies."""
    right = np.maximum(scores, FLOOR) * VALIDATION_SIZE
    return np.log((right + 0.5) / (VALIDATION_SIZE - right + 0.5))


#: Multiplier of the standard deviation. BKB's theorem asks for one about ten times larger, which explores long after
#: there is anything to find; a constant near 2 is what works. BoTorch's ``UpperConfidenceBound`` calls this one 4.
BETA = 2.0

OVERSAMPLING = 3.0  # the probability of being kept in the dictionary over the ridge leverage score
EVALUATIONS_PER_FIT = 10  # between fits of the kernel's hyperparameters, of which the first is after the initial design

#: The unit cube, in which configurations are points.
BOUNDS = torch.stack([torch.zeros(SPACE.dimension), torch.ones(SPACE.dimension)]).double()


class Search:
    """What a search has played: configurations and scores, and what it made of them then."""

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
        self.evaluations.append({"configuration": configuration, "score": score})
        self.X = torch.cat([self.X, x])
        self.advance()


def tune(search: Search, budget: int) -> tuple[NystromGP, RewardScale]:
    """Run BKB: a Sobol design, then the highest upper confidence bounds; return the last posterior and reward scale."""
    seed, design_size = search.digits.seed, min(10, max(2, budget // 3))
    for x in draw_sobol_samples(BOUNDS, n=design_size, q=1, seed=numpy_seed(seed, 0, "design")):
        search.play(SPACE.snap(x))
    scale = RewardScale(search.scores)
    kernel = get_covar_module_with_dim_scaled_prior(ard_num_dims=SPACE.dimension, use_rbf_kernel=False).double()

    def condition() -> NystromGP:
        """Return the posterior given all that was played, at a dictionary drawn afresh by ridge leverage scores."""
        drawn = RidgeLeverageSampling(OVERSAMPLING), generator_for(seed, len(search.X), "dictionary")
        words: dict[str, Any] = dict(zip(("dictionary", "generator"), drawn, strict=True)) | {"covar_module": kernel}
        return NystromGP(search.X, scale.rewards(search.scores), regularization=scale.regularization, **words)

    while True:
        n, model = len(search.X), condition()
        if (n - design_size) % EVALUATIONS_PER_FIT == 0:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
            model = condition()
        # The highest posterior mean is recommended: the best score of many is mostly the luckiest.
        with torch.no_grad():
            mean, best = model.posterior(search.X.unsqueeze(-2)).mean.flatten().max(0)
        search.evaluations[-1] |= {"recommended": int(best), "recommended_mean": float(scale.accuracies(mean))}
        size, dimension = len(model.inducing_points), float(model.effective_dimension())
        search.evaluations[-1] |= {"dictionary_size": size, "effective_dimension": dimension}
        if n == budget:
            return model, scale
        words: dict[str, Any] = {"num_restarts": 4, "raw_samples": 128, "post_processing_func": SPACE.snap}
        with manual_seed(numpy_seed(seed, n, "acquisition")):
            x, _ = optimize_acqf(KernelUCB(model, beta=BETA), BOUNDS, q=1, **words)
        search.play(x)


def search_at_random(search: Search, budget: int) -> None:
    """Play uniformly random points of the same box, and recommend the best score, as people do."""
    for index in range(budget):
        generator = generator_for(search.digits.seed, index, "random search")
        search.play(SPACE.snap(torch.rand(1, SPACE.dimension, generator=generator, dtype=torch.float64)))
        luckiest = int(np.argmax(search.scores))
        search.evaluations[-1] |= {"recommended": luckiest, "recommended_mean": search.scores[luckiest]}


def slice_of_mean(model: NystromGP, scale: RewardScale, recommended: Tensor, resolution: int = 60) -> Record:
    """Return the posterior mean over the two hyperparameters of the largest mean absolute derivative."""
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


def run(seed: int, budget: int) -> Record:
    """Run both searches once and return their record; how well what they recommend does, and what is usual, too."""
    torch.set_num_threads(1)
    digits, contenders = Digits(seed), []
    with tqdm(total=2 * budget, desc=f"seed {seed}", unit="training") as bar:
        searches = {"BKB": Search(digits, bar.update), "random search": Search(digits, bar.update)}
        model, scale = tune(searches["BKB"], budget)
        search_at_random(searches["random search"], budget)
    for name, search in searches.items():
        last = search.evaluations[-1]
        given = search.evaluations[last["recommended"]]["configuration"]
        contenders.append((name, given, last["recommended_mean"], partial(network, given)))
    # scikit-learn's default, which uses Adam rather than plain gradient descent.
    own = MLPClassifier()
    sizes = {"hidden_units": own.hidden_layer_sizes[0], "batch_size": 200, "learning_rate": own.learning_rate_init}
    defaults = sizes | {"one_minus_momentum": 1.0 - own.beta_1, "weight_decay": own.alpha}
    for epochs in (EPOCHS, own.max_iter):
        make = partial(lambda epochs, state: MLPClassifier(random_state=state, max_iter=epochs), epochs)
        contenders.append((f"defaults, {epochs} passes", defaults, None, make))
    results = []
    for name, configuration, expected, make in contenders:
        held_out = digits.refit(make)
        found = {"name": name, "configuration": configuration, "expected": expected, "held_out": held_out}
        results.append(found | {"mean": float(np.mean(held_out)), "sd": float(np.std(held_out, ddof=1))})
    played, best = searches["BKB"].X, searches["BKB"].evaluations[-1]["recommended"]
    kept = (played.unsqueeze(1) == model.inducing_points).all(-1).any(-1).nonzero().flatten().tolist()
    posterior = {"dictionary": kept, "slice": slice_of_mean(model, scale, played[best])}
    evaluations = {name: search.evaluations for name, search in searches.items()}
    return {"seed": seed, "searches": evaluations, "posterior": posterior, "results": results}


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


COLOURS, WINDOW = {"BKB": BLUE, "random search": ORANGE}, 15


def draw(record: Record) -> Figure:
    """Return four panels: the scores, what BKB believes, the held-out accuracies and the dictionary."""
    figure, runs = Figure(figsize=(12.5, 9.2)), record["runs"]
    margins = {"left": 0.125, "right": 0.97, "top": 0.96, "bottom": 0.09, "hspace": 0.38, "wspace": 0.24}
    (scores, posterior), (held_out, dictionary) = figure.subplots(2, 2, gridspec_kw=margins)
    draw_scores(scores, runs[0])
    draw_posterior(posterior, runs[0])
    draw_held_out(held_out, runs)
    for run in runs:
        look: dict[str, Any] = {"linewidth": 2.0} if run is runs[0] else {"alpha": 0.4, "linewidth": 1.0}
        for what, colour in (("dictionary_size", BLUE), ("effective_dimension", GREEN)):
            values = [evaluation.get(what, np.nan) for evaluation in run["searches"]["BKB"]]
            dictionary.plot(np.arange(1, len(values) + 1), values, color=colour, **look)
    exact = line("exact GP: every observation", linewidth=1.2, linestyle=DASHED)
    ends = [0, record["settings"]["evaluations"]]
    dictionary.plot(ends, ends, color=GREY, linewidth=1.2, linestyle=DASHED)
    dictionary.set(title="BKB's dictionary, run 1 in bold", xlabel="observations", ylabel="points")
    dictionary.set(ylim=(0, None), xlim=(0, None))
    below(dictionary, [exact, line("dictionary size", color=BLUE), line("effective dimension", color=GREEN)])
    common.tidy([scores, posterior, held_out, dictionary], "abcd", plain=[posterior])
    return figure


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
    axes.set(title="Validation accuracy of every evaluation of run 1", yscale="logit")
    axes.set(xlabel="evaluation", ylabel="validation accuracy")
    ticks(axes.yaxis, (0.1, 0.5, 0.8, 0.9, 0.95, 0.98))
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
        look: dict[str, Any] = {"fmt": "o", "color": colour, "markersize": 8, "capsize": 4, "linewidth": 2}
        axes.errorbar(means.mean(), row + 0.2, xerr=means.std(ddof=1) if len(means) > 1 else np.nan, **look)
        expected = [result["expected"] for result in results if result["expected"] is not None]
        axes.plot(expected, np.full(len(expected), row - 0.2), "D", markersize=5, color="white", markeredgecolor=colour)
    axes.set_yticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set(title=f"Accuracy on the held-out digits, {runs_of(runs)}", xlabel="accuracy", xscale="logit")
    ticks(axes.xaxis, (0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.94, 0.96, 0.98))
    handles = [line("expected", linewidth=0, marker="D", markersize=5, color="white", markeredgecolor=GREY)]
    handles += [line("held out, a run", linewidth=0, marker="o", markersize=5, alpha=0.5)]
    below(axes, [*handles, line("held out, mean ± sd of the runs", marker="o", markersize=8)], 3)


size = "evaluations", 80, 6, "trainings of each search in a run", 6
settings = {"beta": BETA, "oversampling": OVERSAMPLING}
main = common.script("tune_classifier", __doc__, run, report, draw, settings, size=size, processes=1, least=3)

if __name__ == "__main__":
    main()
