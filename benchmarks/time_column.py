"""What is done without this package where rewards move: BoTorch with the time as a column, and windows of counts."""

import math
from contextlib import suppress

import torch
from botorch import fit_gpytorch_mll
from botorch.acquisition import UpperConfidenceBound
from botorch.exceptions.errors import ModelFittingError
from botorch.models import SingleTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from torch_kbandits.numerics.random import generator_for

#: Rewards before the first fit, and the share of more rewards after which it is fitted again, as of a LearnedPrior.
_FIRST, _REFIT = 10, 0.25


class TimeColumn:
    """SingleTaskGP as it comes on (context, arm, time), and the arm of the largest mean and β deviations now.

    Arms (A, d) are what they are, each column of range 1, or rows of the identity where they are positions (A, 1). The
    first plays are drawn without replacement. The time is in units of the ``rounds`` there will be, contexts in units
    of ``levels``. Between fits the data are new and the parameters are not. ``ask`` and ``tell`` are those of a
    ``Bandit``.
    """

    def __init__(self, arms: Tensor, *, rounds: int, seed: int, beta: float, levels: float = 1.0) -> None:
        self.arms, self.rounds, self.beta, self.levels = arms, rounds, beta, levels
        least, largest = arms.aminmax(dim=0)
        columns = (arms - least) / (largest - least).clamp_min(1e-12)
        self._columns = torch.eye(len(arms), dtype=torch.float64) if arms.shape[1] == 1 else columns
        self._first = torch.randperm(len(arms), generator=generator_for(seed, 0, "first plays"))
        self._points, self._rewards = list[Tensor](), list[float]()
        self._model: SingleTaskGP | None = None
        self._due = _FIRST

    def ask(self, context: Tensor | None = None) -> Tensor:
        """Return an arm, (1, d)."""
        number = len(self._rewards)
        if self._model is None:
            row = int(self._first[number % len(self._first)])
        else:
            with torch.no_grad():
                scores = UpperConfidenceBound(self._model, beta=self.beta**2)(self._joint(context).unsqueeze(1))
            row = int(scores.argmax())
        self._points.append(self._joint(context)[row])
        return self.arms[row, None]

    def tell(self, x: Tensor, y: Tensor | float, context: Tensor | None = None) -> None:
        """Learn the reward of what was asked last."""
        self._rewards.append(float(y))
        if len(self._rewards) < _FIRST:
            return
        Y = torch.tensor(self._rewards, dtype=torch.float64).unsqueeze(-1)
        Y = (Y - Y.mean()) / Y.std().clamp_min(1e-12)
        model = SingleTaskGP(torch.stack(self._points), Y, outcome_transform=None)
        if self._model is not None:
            model.load_state_dict(self._model.state_dict())
        if len(Y) >= self._due:
            self._due = math.ceil((1.0 + _REFIT) * len(Y))
            with suppress(ModelFittingError):  # then it goes on with the parameters that it has
                fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        self._model = model.eval()

    def _joint(self, context: Tensor | None) -> Tensor:
        """Return the points (A, c + d + 1) that may be played now."""
        now = torch.full((len(self.arms), 1), len(self._rewards) / self.rounds, dtype=torch.float64)
        known = torch.empty(0, dtype=torch.float64) if context is None else context / self.levels
        return torch.cat([known.expand(len(self.arms), -1), self._columns, now], dim=-1)


class WindowedUCB:
    """SW-UCB: the arm of the largest mean of its rewards among the latest w, and ξ-wide bounds; arms are independent.

    Source: Garivier and Moulines, ALT 2011, section 4. Differs: B is the deviation of the rewards so far.
    """

    def __init__(self, arms: Tensor, *, window: int, factor: float = 0.6) -> None:
        self.arms, self.window, self.factor = arms, window, factor
        self._rows, self._rewards = list[int](), list[float]()

    def ask(self, context: Tensor | None = None) -> Tensor:
        """Return an arm, (1, d)."""
        rows = torch.tensor(self._rows[-self.window :], dtype=torch.long)
        rewards = torch.tensor(self._rewards[-self.window :], dtype=torch.float64)
        counts = torch.bincount(rows, minlength=len(self.arms)).double()
        sums = torch.zeros(len(self.arms), dtype=torch.float64).index_add(0, rows, rewards)
        spread = float(torch.tensor(self._rewards, dtype=torch.float64).std()) if len(self._rewards) > 1 else 1.0
        log = math.log(max(min(len(self._rewards), self.window), 1))
        scores = torch.where(counts > 0.0, sums / counts + spread * (self.factor * log / counts).sqrt(), math.inf)
        self._rows.append(int(scores.argmax()))
        return self.arms[self._rows[-1], None]

    def tell(self, x: Tensor, y: Tensor | float, context: Tensor | None = None) -> None:
        """Learn the reward of what was asked last."""
        self._rewards.append(float(y))
