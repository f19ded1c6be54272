"""Objectives for Optuna, and studies that are quick to play."""

import math
import warnings

import optuna
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior
from problems import DOUBLE

from torch_kbandits.errors import KernelBanditWarning
from torch_kbandits.integrations.optuna import KernelBanditSampler

optuna.logging.set_verbosity(optuna.logging.ERROR)


def frozen(dimension):
    """A kernel with a variance alone to fit, in units of rewards that differ by study, which makes fits quick."""
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(0.4, dtype=DOUBLE)
    return ScaleKernel(kernel.requires_grad_(False), outputscale_prior=GammaPrior(2.0, 2.0)).double()


def quick(**words):
    return KernelBanditSampler(**{"seed": 0, "n_startup_trials": 4, "kernel": frozen, **words})


def study_with(sampler, **words):
    return optuna.create_study(**{"sampler": sampler, "direction": "maximize", **words})


def peak(trial):
    x, y = trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("y", 0.0, 1.0)
    return -((x - 0.3) ** 2) - (y - 0.3) ** 2


def network(trial):
    """A mixed space with a conditional parameter, as in tuning a small network; to be minimised, 0 at best."""
    rate = trial.suggest_float("rate", 1e-5, 1.0, log=True)
    width = trial.suggest_int("width", 8, 512, log=True)
    layers = trial.suggest_int("layers", 1, 5)
    dropout = trial.suggest_float("dropout", 0.0, 0.5, step=0.05)
    optimizer = trial.suggest_categorical("optimizer", ["sgd", "adam", "rmsprop"])
    loss = (math.log10(rate) + {"sgd": 1.0, "adam": 3.0, "rmsprop": 3.5}[optimizer]) ** 2
    loss += 0.5 * (math.log2(width) - 7.0) ** 2 + 0.5 * (layers - 3) ** 2 + 4.0 * (dropout - 0.2) ** 2
    if optimizer == "sgd":
        return loss + 0.5 + (trial.suggest_float("momentum", 0.0, 1.0) - 0.9) ** 2
    return loss + {"adam": 0.0, "rmsprop": 0.3}[optimizer]


def play(study, objective, n_trials, **words):
    """Play trials, conditional parameters sampled on their own without a word."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Parameter .* is sampled on its own", KernelBanditWarning)
        study.optimize(objective, n_trials=n_trials, **words)


def parameters(study):
    return [trial.params for trial in study.trials]


def bandit_of(study):
    """The bandit behind the latest suggestion or recommendation, which no public call returns."""
    return study.sampler._studies[-1].bandit
