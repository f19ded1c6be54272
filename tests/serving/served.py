"""Bandits of several kinds to serve, what is asked of each as JSON, and services that crash."""

import shutil
from functools import partial
from pathlib import Path

import torch
from problems import DOUBLE, data, rbf

from torch_kbandits import (
    Arms,
    AtMost,
    Bandit,
    Categorical,
    ConstantWidth,
    ContextualActions,
    Float,
    LearnedPrior,
    Outcome,
    ParameterSpace,
    Prior,
    algorithms,
)
from torch_kbandits.acquisition import EpsilonGreedy, UpperConfidenceRule
from torch_kbandits.observations import Expiry
from torch_kbandits.serving import Service

WORDS = {"kernel": rbf(0.4), "regularization": 0.1, "beta": 2.0, "seed": 0}
ARMS = data(40, 2)[0]


ROUND = ContextualActions(action_dim=1, context_dim=1)
SPACE = ParameterSpace({"rate": Float(0.1, 10.0, log=True), "kind": Categorical(["a", "b", "c"])})
LIMITED = {
    "outcomes": [Outcome("heat", prior=Prior(rbf(0.4), 0.1))],
    "constraints": [AtMost("heat", 2.5, mode="optimistic")],
}
LEARNED = {"candidates": ARMS, "prior": LearnedPrior(num_initial=3), "beta": 2.0, "seed": 0}
#: How each is made.
BANDITS = {
    "bkb": partial(algorithms.BKB, candidates=ARMS, **WORDS),
    "named": partial(
        Bandit,
        candidates=Arms(ARMS, names=[f"arm {row}" for row in range(len(ARMS))]),
        acquisition=EpsilonGreedy(UpperConfidenceRule(), 0.3),
        width=ConstantWidth(2.0),
        **{name: word for name, word in WORDS.items() if name != "beta"},
    ),
    "box": partial(algorithms.IGPUCB, bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE), **WORDS),
    "contexts": partial(algorithms.EKUCB, candidates=ROUND, **WORDS),
    "space": partial(algorithms.IGPUCB, candidates=SPACE, **WORDS),
    "dated": partial(algorithms.SWGPUCB, candidates=ARMS, window=3600.0, **WORDS),
    "staged": partial(algorithms.SupKernelUCB, candidates=ROUND, num_actions=6, horizon=50, **WORDS),
    "limited": partial(algorithms.BKB, candidates=ARMS, **LIMITED, **WORDS),
    "fitted": partial(algorithms.EKUCB, **LEARNED),
    "fitted_outcome": partial(
        algorithms.EKUCB, outcomes=[Outcome("heat", prior=LearnedPrior(num_initial=3))], **LEARNED
    ),
    "batched": partial(algorithms.BBKB, candidates=ARMS, **WORDS),
    "dropping": partial(algorithms.BKB, candidates=ARMS, expire_after=2.0, **WORDS),
    "failing": partial(algorithms.BKB, candidates=ARMS, expire_after=Expiry(3.0, "fail"), **WORDS),
}
bkb = BANDITS["bkb"]


def about_round(name, number):
    """What a request of a round brings beside the number of points."""
    generator = torch.Generator().manual_seed(number)
    numbers = torch.rand(7, generator=generator, dtype=DOUBLE)
    if name in ("contexts", "staged"):
        return {"context": numbers[:1].tolist(), "candidates": numbers[1:, None].tolist()}
    return {}


def saved(make, folder: Path) -> Path:
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
