"""Tune a scikit-learn pipeline with ``KernelBanditSearchCV`` and with ``RandomizedSearchCV`` at the same budget.

The pipeline scales images of digits, projects them on principal components and separates them by a support vector
machine. Five parameters are chosen: how to scale (four ways), how many components, whether to whiten them, C and γ.
Both searches see the same development digits and the same splits; what they recommend is refitted and judged on digits
that neither saw. They are run several times, on other divisions of the data: a single run is decided by luck.

    python examples/tune_pipeline.py      # one to two minutes; with --quick a few seconds
"""

import time
from typing import Any

import common
import numpy as np
import torch
from common import BLUE, GREEN, ORANGE, Record, curves_of, spread
from matplotlib.figure import Figure
from scipy.stats import loguniform, randint, wilcoxon
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import RandomizedSearchCV, StratifiedKFold, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
from sklearn.svm import SVC

from torch_kbandits.integrations.sklearn import KernelBanditSearchCV

PIPELINE = Pipeline([("scale", StandardScaler()), ("pca", PCA(random_state=0)), ("svc", SVC())])

#: The same words for both searches.
DISTRIBUTIONS = {
    "scale": ["passthrough", StandardScaler(), MinMaxScaler(), Normalizer()],
    "pca__n_components": randint(2, 65),
    "pca__whiten": [False, True],
    "svc__C": loguniform(1e-3, 1e3),
    "svc__gamma": loguniform(1e-6, 1e2),
}

DEVELOPMENT_SIZE = 400  # digits to tune with, of 1,797; with more of them every search finds the ceiling

BANDIT, POSTERIOR, RANDOM = "bandit, best score", "bandit, posterior mean", "random search"
COLOURS = {BANDIT: BLUE, POSTERIOR: GREEN, RANDOM: ORANGE}


def run(seed: int, evaluations: int) -> Record:
    """Run both searches on one division of the digits and return their record."""
    torch.set_num_threads(1)
    images, labels = load_digits(return_X_y=True)
    X, X_held_out, y, y_held_out = train_test_split(
        images, labels, train_size=DEVELOPMENT_SIZE, stratify=labels, random_state=seed
    )
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    settings: dict[str, Any] = {"n_iter": evaluations, "cv": folds, "random_state": seed}
    record: Record = {"seed": seed, "scores": {}, "seconds": {}, "results": {}}
    for name, search_class in ((BANDIT, KernelBanditSearchCV), (RANDOM, RandomizedSearchCV)):
        started = time.perf_counter()
        search = search_class(PIPELINE, DISTRIBUTIONS, **settings).fit(X, y)
        record["seconds"][name] = time.perf_counter() - started
        record["scores"][name] = search.cv_results_["mean_test_score"].tolist()
        results = {name: (search.best_params_, search.best_score_, search.score(X_held_out, y_held_out))}
        if isinstance(search, KernelBanditSearchCV):
            # The row of the largest posterior mean, without running the search again.
            bandit: Any = search.bandit_
            row = int((bandit.recommend() == bandit.history.X).all(-1).nonzero()[0])
            params, score = (search.cv_results_[each][row] for each in ("params", "mean_test_score"))
            refitted: Any = clone(PIPELINE)
            refitted.set_params(**params).fit(X, y)
            results[POSTERIOR] = params, score, refitted.score(X_held_out, y_held_out)
        for each, found in results.items():
            record["results"][each] = dict(zip(("configuration", "score", "held_out"), found, strict=True))
    return record


def report(record: Record) -> list[Any]:
    """Say what each search found, and how much better than random search, how surely."""
    runs, rows, said = record["runs"], [], []
    for name in COLOURS:
        seconds = [one["seconds"][name] for one in runs if name in one["seconds"]]
        cells = [spread([one["results"][name][what] for one in runs]) for what in ("score", "held_out")]
        rows.append([name, *cells, spread(seconds, ".1f") if seconds else ""])
        for what, words in (("score", "cross-validated"), ("held_out", "held out")):
            less = np.array([one["results"][name][what] - one["results"][RANDOM][what] for one in runs])
            text = f"{name}, {words}: {less.mean():+.4f} on random search, better in {(less > 0).sum()} of {len(runs)}"
            test: Any = wilcoxon(less) if len(runs) > 1 and less.any() else None
            said.append(f"{text} (two-sided Wilcoxon p = {test.pvalue:.3f})." if test else f"{text}.")
    title = f"{record['settings']['evaluations']} evaluations, mean ± sd of {common.runs_of(runs)}"
    return [common.table(title, ["", "cross-validated", "held out", "seconds"], rows), *said[:4]]


def draw(record: Record) -> Figure:
    """Return two panels: the best score so far, and the accuracy on held-out digits run by run."""
    figure, runs = Figure(figsize=(11.0, 4.4), layout="constrained"), record["runs"]
    evaluations = record["settings"]["evaluations"]
    best, held_out = figure.subplots(1, 2)
    for name in (BANDIT, RANDOM):
        curves = np.maximum.accumulate([one["scores"][name] for one in runs], axis=1)
        words: dict[str, Any] = {"linestyle": "--" if name == RANDOM else "-", "label": name.partition(",")[0]}
        curves_of(best, np.arange(1, evaluations + 1), curves, COLOURS[name], **words)
    best.axvline(begins := min(10, max(2, evaluations // 3)) + 0.5, color="0.6", linewidth=1.0, linestyle=":")
    where: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "xytext": (4, 0), "textcoords": "offset points"}
    best.annotate("bandit begins to choose", (begins, 0.02), fontsize=9, color="0.4", **where)
    best.set_ylim(min(max(one["scores"][name]) for one in runs for name in one["scores"]) - 0.12, 1.0)
    best.set(title="Best cross-validated accuracy so far", xlabel="configurations evaluated", ylabel="accuracy")
    best.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 0.08))
    values = np.array([[one["results"][name]["held_out"] for name in COLOURS] for one in runs])
    held_out.plot(range(len(COLOURS)), values.T, color="0.8", linewidth=1.0, zorder=1)
    for place, colour in enumerate(COLOURS.values()):
        held_out.scatter(np.full(len(runs), place), values[:, place], color=colour, s=28, alpha=0.8, zorder=2)
        held_out.hlines(values[:, place].mean(), place - 0.18, place + 0.18, color=colour, linewidth=2.6, zorder=3)
    held_out.set_xticks(range(len(COLOURS)), [name.replace(", ", ",\n") for name in COLOURS])
    held_out.set(title="Accuracy on held-out digits, runs joined, means as bars", ylabel="accuracy", xlim=(-0.5, 2.5))
    common.tidy([best, held_out], "ab")
    return figure


size = "evaluations", 40, 8, "configurations that each search may evaluate", 10
main = common.script("tune_pipeline", __doc__, run, report, draw, {}, size=size, processes=1)

if __name__ == "__main__":
    main()
