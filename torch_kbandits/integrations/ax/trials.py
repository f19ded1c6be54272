"""The trials of an experiment, as a memory looks at them."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from botorch.utils.datasets import SupervisedDataset
from torch import Tensor

from torch_kbandits.memory import Memory, Stationary

#: Most observations that hyperparameters are fitted to, so that a fit costs the same after ten thousand trials.
MOST_FITTED = 200

#: Where a window or a restart leaves fewer observations, hyperparameters are fitted to this many of the latest.
LEAST_FITTED = 10

#: The least noise variance of a trial, as a share of the variance of all outcomes.
LEAST_NOISE = 1e-6


@dataclass(frozen=True, eq=False)
class Trials:
    """Observations in order of time, and what a memory makes of their noise at ``now``.

    Attributes:
        X: points as Ax gives them, (n, d).
        Y: rewards, (n, 1).
        times: indices of their trials, (n,).
        now: the present, one after the latest trial with data.
        Yvar: noise variances when fresh, (n, 1), where they are known.
        noise: noise variances now, (n,), infinite where an observation does not count. Where λ is not known they are
            those for λ = 1.
    """

    X: Tensor
    Y: Tensor
    times: Tensor
    now: float
    Yvar: Tensor | None
    noise: Tensor

    @classmethod
    def of(cls, data: SupervisedDataset, memory: Memory | None, regularization: float | None) -> Self:
        """Return the observations of one outcome.

        Trials without a known noise, beside others that have one, get ``regularization`` or the mean of the others.
        Variances below ``LEAST_NOISE`` of that of the outcomes are raised to it, for the sake of the factorisations.
        """
        X, Y, Yvar = data.X, data.Y, data.Yvar
        indices = torch.arange(len(X)) if data.group_indices is None else data.group_indices
        times, order = indices.to(X).sort(stable=True)
        now = float(times[-1]) + 1.0 if len(times) else 0.0
        if Yvar is not None:
            Yvar = torch.where(Yvar.isnan(), Yvar.nanmean() if regularization is None else regularization, Yvar)[order]
            Yvar = Yvar.clamp_min(LEAST_NOISE * (float(Y.var()) if len(Y) > 1 else 1.0) or LEAST_NOISE)
        fresh = cls(X[order], Y[order], times, now, Yvar, torch.zeros_like(times))
        return fresh.seen_at(now, memory, regularization)

    def seen_at(self, now: float, memory: Memory | None, regularization: float | None) -> Self:
        """Return the same observations with the noise that the memory makes of them at a time."""
        memory = Stationary() if memory is None else memory
        if self.Yvar is None:
            noise = memory.noise(self.times, now, regularization or 1.0)
        else:
            noise = _noise_of_known(memory, self.times, now, self.Yvar.squeeze(-1))
        return replace(self, now=now, noise=noise.to(self.X))

    @property
    def dimension(self) -> int:
        """Number d of columns."""
        return self.X.shape[-1]

    def counted(self) -> Self:
        """Return those that count."""
        return self._rows(self.noise.isfinite().nonzero().flatten())

    def fitted(self, *, fading: bool) -> Self:
        """Return those that hyperparameters are fitted to, up to ``MOST_FITTED`` of those that count.

        Where observations fade they are the latest, otherwise evenly spaced ones. Where hardly any count, as after a
        restart, the latest are taken whether or not they do, with the noise that they had.
        """
        counted = self.counted()
        size = len(counted.times)
        if size < LEAST_FITTED:
            latest = self._rows(torch.arange(max(0, len(self.times) - LEAST_FITTED), len(self.times)))
            fresh = torch.ones_like(latest.noise) if latest.Yvar is None else latest.Yvar.squeeze(-1)
            return replace(latest, noise=torch.where(latest.noise.isfinite(), latest.noise, fresh))
        if size <= MOST_FITTED:
            return counted
        latest = torch.arange(size - MOST_FITTED, size)
        spaced = torch.linspace(0, size - 1, MOST_FITTED, dtype=torch.float64).round().long()
        return counted._rows(latest if fading else spaced)

    def _rows(self, rows: Tensor) -> Self:
        Yvar = None if self.Yvar is None else self.Yvar[rows]
        return replace(self, X=self.X[rows], Y=self.Y[rows], times=self.times[rows], Yvar=Yvar, noise=self.noise[rows])


def _noise_of_known(memory: Memory, times: Tensor, now: float, fresh: Tensor) -> Tensor:
    """Return what a memory makes of known noise variances, (n,): windows keep them, fading memories let them grow."""
    if memory.keeps_noise:
        return fresh.masked_fill(~memory.noise(times, now, 1.0).isfinite().to(fresh.device), torch.inf)
    return memory.noise(times, now, fresh)
