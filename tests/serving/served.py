"""Bandits of several kinds to serve, what is asked of each as JSON, and services that crash."""

import shutil
from pathlib import Path

import torch
from problems import DOUBLE, data, rbf

from torch_kbandits import (
    AtMost,
    Categorical,
    ContextualActions,
    Float,
    LearnedPrior,
    Outcome,
    ParameterSpace,
    Prior,
    algorithms,
)
from torch_kbandits.observations import Expiry
from torch_kbandits.serving import Service

WORDS = {"kernel": rbf(0.4), "regularization": 0.1, "seed": 0}
ARMS = data(40, 2)[0]


def bkb():
    return algorithms.BKB(candidates=ARMS, beta=2.0, **WORDS)


def box():
    return algorithms.IGPUCB(bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE), beta=2.0, **WORDS)


def contexts():
    return algorithms.EKUCB(candidates=ContextualActions(action_dim=1, context_dim=1), beta=2.0, **WORDS)


def space():
    parameters = {"rate": Float(0.1, 10.0, log=True), "kind": Categorical(["a", "b", "c"])}
    return algorithms.IGPUCB(candidates=ParameterSpace(parameters), beta=2.0, **WORDS)


def dated():
    return algorithms.SWGPUCB(candidates=ARMS, window=3600.0, beta=2.0, **WORDS)


def staged():
    actions = ContextualActions(action_dim=1, context_dim=1)
    return algorithms.SupKernelUCB(candidates=actions, num_actions=6, horizon=50, beta=1.0, **WORDS)


def limited():
    return algorithms.BKB(
        candidates=ARMS,
        beta=2.0,
        outcomes=[Outcome("heat", prior=Prior(rbf(0.4), 0.1))],
        constraints=[AtMost("heat", 2.5, mode="optimistic")],
        **WORDS,
    )


def fitted():
    return algorithms.EKUCB(candidates=ARMS, prior=LearnedPrior(num_initial=3), beta=2.0, seed=0)


def batched():
    return algorithms.BBKB(candidates=ARMS, beta=2.0, **WORDS)


def fitted_outcome():
    outcome = Outcome("heat", prior=LearnedPrior(num_initial=3))
    return algorithms.EKUCB(candidates=ARMS, prior=LearnedPrior(num_initial=3), outcomes=[outcome], beta=2.0, seed=0)


def dropping():
    return algorithms.BKB(candidates=ARMS, beta=2.0, expire_after=2.0, **WORDS)


def failing():
    return algorithms.BKB(candidates=ARMS, beta=2.0, expire_after=Expiry(3.0, "fail"), **WORDS)


KINDS = (bkb, box, contexts, space, dated, staged, limited, fitted, fitted_outcome, batched, dropping, failing)
BANDITS = {kind.__name__: kind for kind in KINDS}


def about_round(name, number):
    """What a request of a round brings beside the number of points."""
    generator = torch.Generator().manual_seed(number)
    numbers = torch.rand(7, generator=generator, dtype=DOUBLE)
    if name in ("contexts", "staged"):
        return {"context": numbers[:1].tolist(), "candidates": numbers[1:, None].tolist()}
    return {}


def saved(make, folder: Path) -> Path:
    """The file of a new bandit in a folder."""
    path = folder / "bandit.kb"
    make().save(path)
    return path


def crash(service: Service, folder: Path, *, torn: bytes = b"") -> Path:
    """What a process that is killed now leaves, in another folder; the path of the bandit's file there."""
    folder.mkdir()
    for file in service.path.parent.iterdir():
        if file.is_file() and not file.name.endswith(".lock"):
            shutil.copy(file, folder / file.name)
    with (folder / f"{service.path.name}.journal").open("ab") as stream:
        stream.write(torn)
    service.journal.close()
    service._sole.release()
    return folder / service.path.name
