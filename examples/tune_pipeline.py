"""Tune a scikit-learn pipeline with ``KernelBanditSearchCV`` and with ``RandomizedSearchCV`` at the same budget.

The pipeline scales images of digits, projects them on principal components and separates them by a support vector
machine. Five parameters are chosen: how to scale (four ways), how many components, whether to whiten them, C and γ.
Both searches see the same development digits and the same splits; what they recommend is refitted and judged on digits
that neither saw. They are run several times, on other divisions of the data: a single run is decided by luck.

    python examples/tune_pipeline.py                 # one to two minutes
    python examples/tune_pipeline.py --quick         # a few seconds

Writes ``record.json`` and ``figure.png`` to ``runs/tune_pipeline``.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from records import make_folder, versions, whole_number, write_record
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from scipy.stats import loguniform, randint, wilcoxon
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import RandomizedSearchCV, StratifiedKFold, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
from sklearn.svm import SVC
from tune_pipeline_figure import draw

from torch_kbandits.integrations.sklearn import KernelBanditSearchCV
from torch_kbandits.plotting.style import write_figure

PIPELINE = Pipeline([("scale", StandardScaler()), ("pca", PCA(random_state=0)), ("svc", SVC())])

#: The same words for both searches.
DISTRIBUTIONS = {
    "scale": ["passthrough", StandardScaler(), MinMaxScaler(), Normalizer()],
    "pca__n_components": randint(2, 65),
    "pca__whiten": [False, True],
    "svc__C": loguniform(1e-3, 1e3),
    "svc__gamma": loguniform(1e-6, 1e2),
}

#: Digits to tune with, of 1,797; with more of them every search finds the ceiling.
DEVELOPMENT_SIZE = 400

FOLDS = 3

BANDIT, POSTERIOR, RANDOM = "bandit, best score", "bandit, posterior mean", "random search"


def run(seed: int, evaluations: int) -> dict[str, Any]:
    """Run both searches on one division of the digits and return their record."""
    images, labels = load_digits(return_X_y=True)
    X, X_held_out, y, y_held_out = train_test_split(
        images, labels, train_size=DEVELOPMENT_SIZE, stratify=labels, random_state=seed
    )
    settings: dict[str, Any] = {
        "n_iter": evaluations,
        "cv": StratifiedKFold(FOLDS, shuffle=True, random_state=seed),
        "random_state": seed,
    }
    record: dict[str, Any] = {"seed": seed, "scores": {}, "seconds": {}, "results": {}}
    searches = {BANDIT: KernelBanditSearchCV, RANDOM: RandomizedSearchCV}
    for name, search_class in searches.items():
        started = time.perf_counter()
        search = search_class(PIPELINE, DISTRIBUTIONS, **settings).fit(X, y)
        record["seconds"][name] = time.perf_counter() - started
        record["scores"][name] = search.cv_results_["mean_test_score"].tolist()
        record["results"][name] = result(search.best_params_, search.best_score_, search.score(X_held_out, y_held_out))
        if isinstance(search, KernelBanditSearchCV):
            believed = best_believed(search)
            refitted: Any = clone(PIPELINE)
            refitted.set_params(**search.cv_results_["params"][believed]).fit(X, y)
            record["results"][POSTERIOR] = result(
                search.cv_results_["params"][believed],
                search.cv_results_["mean_test_score"][believed],
                refitted.score(X_held_out, y_held_out),
            )
    return record


def best_believed(search: KernelBanditSearchCV) -> int:
    """Return the row of the largest posterior mean."""
    bandit: Any = search.bandit_
    return int((bandit.recommend() == bandit.history.X).all(-1).nonzero()[0])


def result(configuration: dict[str, Any], score: float, held_out: float) -> dict[str, Any]:
    """Return what the record keeps of a recommendation."""
    unwrapped = {
        name: value.item() if isinstance(value, np.generic) else value for name, value in configuration.items()
    }
    plain = {name: value if isinstance(value, (int, float)) else str(value) for name, value in unwrapped.items()}
    return {"configuration": plain, "score": float(score), "held_out": float(held_out)}


def report(record: dict[str, Any], output: Path) -> None:
    """Print what each search found."""
    runs = record["runs"]
    table = Table(title=f"{record['settings']['evaluations']} evaluations, mean ± sd of {len(runs)} run(s)")
    table.box, table.pad_edge = SIMPLE_HEAD, False
    for column in ("", "cross-validated", "held out", "seconds"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name in (BANDIT, POSTERIOR, RANDOM):
        seconds = [one["seconds"][name] for one in runs if name in one["seconds"]]
        table.add_row(
            name,
            *(spread([one["results"][name][what] for one in runs], ".3f") for what in ("score", "held_out")),
            spread(seconds, ".1f") if seconds else "",
        )
    console = Console(width=max(Console().width, 100))  # a pipe would get 80 columns and cut the cells
    console.print(table)
    for name in (BANDIT, POSTERIOR):
        for what in ("score", "held_out"):
            console.print(verdict(name, what, runs), highlight=False)
    console.print(f"{record['seconds']:.0f} seconds in all.", highlight=False)
    console.print(f"Wrote {output / 'record.json'} and {output / 'figure.png'}.", highlight=False, soft_wrap=True)


def verdict(name: str, what: str, runs: Sequence[dict[str, Any]]) -> str:
    """Say how much better than random search a search did, and how surely."""
    differences = np.array([one["results"][name][what] - one["results"][RANDOM][what] for one in runs])
    words = {"score": "cross-validated", "held_out": "held out"}[what]
    text = f"{name}, {words}: {differences.mean():+.4f} on random search, better in {(differences > 0).sum()} runs"
    if len(runs) < 2 or not differences.any():
        return f"{text} of {len(runs)}."
    test: Any = wilcoxon(differences)
    return f"{text} of {len(runs)} (two-sided Wilcoxon p = {test.pvalue:.3f})."


def spread(values: Sequence[float], form: str) -> str:
    """Return mean ± standard deviation."""
    mean = f"{np.mean(values):{form}}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):{form}}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both searches on every division, and write record and figure."""
    options = parse_arguments(arguments)
    torch.set_num_threads(1)
    started = time.perf_counter()
    runs = [run(seed, options.evaluations) for seed in range(options.seed, options.seed + options.runs)]
    record = {
        "settings": {
            "evaluations": options.evaluations,
            "seed": options.seed,
            "development_size": DEVELOPMENT_SIZE,
            "folds": FOLDS,
            "initial": min(10, max(2, options.evaluations // 3)),
        },
        "versions": versions(),
        "seconds": time.perf_counter() - started,
        "runs": runs,
    }
    write_record(options.output / "record.json", record)
    write_figure(options.output / "figure.png", draw(record))
    report(record, options.output)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options, and make the folder to write to."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--evaluations", type=whole_number(), default=40, help="configurations that each search may evaluate"
    )
    parser.add_argument("--runs", type=whole_number(), default=10, help="how often both searches start anew")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run; the next has the next")
    parser.add_argument("--quick", action="store_true", help="one run of 8 evaluations")
    parser.add_argument("--output", type=Path, default=Path("runs/tune_pipeline"), help="folder to write to")
    options = parser.parse_args(arguments)
    if options.quick:
        options.evaluations, options.runs = 8, 1
    make_folder(parser, options.output)
    return options


if __name__ == "__main__":
    main()
