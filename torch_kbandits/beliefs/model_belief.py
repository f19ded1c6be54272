"""Beliefs of BoTorch models told the whole history."""

from abc import abstractmethod
from copy import copy
from typing import Self, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.beliefs.base import Lookahead, SelectingBelief, require_finite
from torch_kbandits.dictionaries import DictionaryRule, OnlineRule, OnlineSample, PlayedPoints, Selection
from torch_kbandits.memory import KeepAll, Memory
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.rows import RowIndex, row_keys
from torch_kbandits.observations.ledger import History
from torch_kbandits.observations.played import PlayedLog


class ModelBelief(SelectingBelief):
    """A BoTorch model on the history, for candidates that cannot be listed once for all rounds, and for memories.

    The exact posterior is an ``OnlineGP`` that is told; the Nyström one is rebuilt, so that it is a function of history
    and dictionary alone. Cost of a tell: O(u²) or O(n m²).

    With a memory the history is what counts at the present time. Where observations keep their noise while they count,
    the exact posterior is told and made to forget them, O(u²) each, and the Nyström one is made to forget them, O(m²)
    each; else they are computed afresh. A dictionary stays as it is until the next reward, whatever is forgotten.

    Args:
        example: points (k, d), k >= 1, whose dtype and device all tensors have.
        kernel: the prior covariance.
        regularization: λ.
        exact: whether the posterior is the exact one.
        online: whether the dictionary rule decides about each point once, when it is told.
        memory: which observations count at a time; None where all do for ever.
    """

    def __init__(
        self,
        example: Tensor,
        kernel: Kernel,
        regularization: float,
        *,
        exact: bool,
        online: bool = False,
        memory: Memory | None = None,
    ) -> None:
        super().__init__(example, kernel, regularization, exact=exact)
        self._memory, self._online = KeepAll() if memory is None else memory, online
        self._now = -torch.inf
        self._log = PlayedLog(example)
        self._X, self._Y = example[:0], example.new_zeros(0)
        self._times = self._noise = example.new_zeros(0, dtype=torch.float64)
        self._seen = RowIndex.of({})
        self._dictionary_weights: Tensor | None = None
        self._sample: OnlineSample | None = None
        self._model = self._model_of(self._X, self._Y, self._noise, self._X)

    @property
    def num_observations(self) -> int:
        """Number t of observations that count."""
        return len(self._X)

    @property
    def posterior_model(self) -> NystromGP | OnlineGP:
        """The model that points are chosen by."""
        return self._model

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d): all played points that count if the posterior is exact."""
        return self._model.inducing_points if isinstance(self._model, NystromGP) else self._log.points

    @property
    def dictionary_weights(self) -> Tensor | None:
        """What the dictionary rule wants handed back of each of ``inducing_points``, (m,); None if nothing."""
        return self._dictionary_weights

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s), 0-dim."""
        return self._model.effective_dimension()

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats."""
        return self._model.information_gain()

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean, 0-dim."""
        return self._model.mean_norm()

    @abstractmethod
    def kernel_bound(self) -> Tensor:
        """The largest k(x, x) known of, 0-dim."""

    def mean(self, X: Tensor) -> Tensor:
        """Return the posterior means at X (q, d), (q,)."""
        with torch.no_grad():
            return cast(Tensor, self._model.posterior(X.unsqueeze(-2)).mean).flatten()

    def variance(self, X: Tensor) -> Tensor:
        """Return the posterior variances at X (q, d), (q,)."""
        with torch.no_grad():
            return self._model.posterior(X.unsqueeze(-2)).variance.flatten()

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior means and variances at points X (q, d), each (q,)."""
        with torch.no_grad():
            posterior = self._model.posterior(X.unsqueeze(-2))
            return cast(Tensor, posterior.mean).flatten(), posterior.variance.flatten()

    def recommend(self) -> Tensor:
        """Return the played point (1, d) of the largest posterior mean, of those that count."""
        return self._log.points[self.mean(self._log.points).argmax(), None].clone()

    def leverage_scores(self, X: Tensor) -> Tensor:
        """Return the ridge leverage scores of points (q, d) under the current posterior, (q,)."""
        return self.variance(X) / self.regularization

    # ---------------------------------------------------------------- learning and forgetting

    def at(self, now: float) -> Self:
        """Return the belief at a time, which is not before the present one; this one stays as it is."""
        if now == self._now or isinstance(self._memory, KeepAll):
            return self
        noise = self._memory.noise(self._times, now, self.regularization.double())
        other = copy(self)
        other._now = now
        if not torch.equal(noise, self._noise):
            other._forget(noise)
        return other

    def _forget(self, noise: Tensor) -> None:
        """Give the observations other noise variances (n,) and drop those of which it is infinite."""
        counts = noise.isfinite()
        X, Y, noise = self._X[counts], self._Y[counts], noise[counts]
        if self._memory.keeps_noise:
            # What it knows is replaced and never written into, so the model that forgot nothing stays as it was.
            model = copy(self._model)
            model.remove((~counts).nonzero().squeeze(-1))
        else:
            model = self._model_of(X, Y, noise, self.inducing_points)
        self._X, self._Y, self._times, self._noise, self._model = X, Y, self._times[counts], noise, model
        empty = PlayedLog(X)
        self._log = empty.with_rewards(X, Y, empty.locate(X), self._weights_of(noise))

    def learn_history(self, told: History, rule: DictionaryRule | None, generator: torch.Generator | None) -> None:
        """Condition on rewards of known times, with the dictionary that a rule chooses; everything or nothing."""
        if told.times is None:
            self.learn(told.X, told.Y, rule, generator)
            return
        self._seen = self._seen.with_rows(told.X)
        times = torch.cat([self._times, told.times])
        before, noise = self._memory.noise(times, self._now, self.regularization.double()).tensor_split([len(self._X)])
        if not torch.equal(before, self._noise):
            self._forget(before)
        counts = noise.isfinite()
        if bool(counts.any()):
            self._learn_at(told.X[counts], told.Y[counts], told.times[counts], noise[counts], rule, generator)

    def learn(self, X: Tensor, Y: Tensor, rule: DictionaryRule | None, generator: torch.Generator | None) -> None:
        """Condition on rewards Y (q,) at X (q, d), with the dictionary that a rule chooses; everything or nothing."""
        times = X.new_full((len(X),), self._now, dtype=torch.float64)
        noise = torch.full_like(times, float(self.regularization))
        self._learn_at(X, Y, times, noise, rule, generator)

    def _learn_at(
        self,
        X: Tensor,
        Y: Tensor,
        times: Tensor,
        noise: Tensor,
        rule: DictionaryRule | None,
        generator: torch.Generator | None,
    ) -> None:
        """Condition on rewards Y (q,) of noise variances (q,); everything or nothing."""
        sample, selection = self._sample, None
        if rule is not None and self._online:
            sample = self._offered(X, cast(OnlineRule, rule), generator)
            selection = Selection(sample.points, X.new_ones(len(sample.points)), None, sample.weights)
        elif rule is not None:
            selection = rule.select(self.preview(X, noise), generator)
        self.update(X, Y, selection, noise)
        self._times, self._sample = torch.cat([self._times, times]), sample

    def _offered(self, X: Tensor, rule: OnlineRule, generator: torch.Generator | None) -> OnlineSample:
        """Return the dictionary once points (q, d) were offered to it; forgetting takes nothing out of it."""
        sample = self._sample
        if sample is None:
            Z, weights = self.inducing_points, self._dictionary_weights
            weights = Z.new_ones(len(Z), dtype=torch.float64) if weights is None else weights
            sample = rule.online_sample(self.kernel, float(self.regularization), Z, weights)
        uniforms = torch.rand(len(X), generator=generator, dtype=torch.float64, device="cpu")
        return rule.offered(sample, X, uniforms, None, None).sample

    def preview(self, X: Tensor, noise: Tensor | None = None) -> PlayedPoints:
        """Return the unique played points together with X, scored by the current posterior.

        Args:
            X: (q, d).
            noise: noise variances (q,); λ for each unless given.
        """
        located, weights = self._log.locate(X), None if noise is None else self._weights_of(noise)
        after = self._log.with_rewards(X, torch.zeros_like(X[:, 0]), located, weights)
        new = after.counts.clone()
        new[: len(self._log)] -= self._log.counts
        known = set(row_keys(self.inducing_points))
        held = torch.tensor([key in known for key in row_keys(after.points)], device=X.device)
        scores = self.leverage_scores(after.points)
        weights = self._rule_weights_at(after.points)
        numbers = self._seen.places(after.points) if len(self._seen) else None
        return PlayedPoints(
            after.points, self.kernel, self.regularization, after.counts, scores, held, new, weights, numbers
        )

    def update(self, X: Tensor, Y: Tensor, selection: Selection | None, noise: Tensor | None = None) -> None:
        """Condition on rewards Y (q,) at X (q, d) and move to the selected dictionary; everything or nothing.

        Args:
            X: (q, d).
            Y: (q,).
            selection: the dictionary; None for the exact posterior.
            noise: noise variances (q,); λ for each unless given.
        """
        if noise is None:
            noise = torch.full_like(Y, float(self.regularization), dtype=torch.float64)
        everything, rewards, noises = torch.cat([self._X, X]), torch.cat([self._Y, Y]), torch.cat([self._noise, noise])
        if isinstance(self._model, OnlineGP) and self._memory.keeps_noise:
            # What it knows is replaced and never written into, so the model told before stays as it was.
            model = copy(self._model)
            model.tell(X, Y.unsqueeze(-1))
        else:
            dictionary = everything if selection is None else selection.points
            model = self._checked(self._model_of(everything, rewards, noises, dictionary), X)
        log = self._log.with_rewards(X, Y, self._log.locate(X), self._weights_of(noise))
        self._X, self._Y, self._noise, self._model, self._log = everything, rewards, noises, model, log
        self._dictionary_weights = None if selection is None else selection.weights

    def restore(self, X: Tensor, Y: Tensor, dictionary: Selection) -> None:
        """Condition the prior on a whole history at a known dictionary."""
        times = X.new_full((len(X),), self._now, dtype=torch.float64)
        self._restore(X, Y, times, torch.full_like(times, float(self.regularization)), dictionary)

    def restore_history(self, told: History, dictionary: Selection) -> None:
        """Condition the prior, brought to the present time, on what counts of a history of which times are known."""
        if told.times is None:
            self.restore(told.X, told.Y, dictionary)
            return
        self._seen = self._seen.with_rows(told.X)
        noise = self._memory.noise(told.times, self._now, self.regularization.double())
        counts = noise.isfinite()
        self._restore(told.X[counts], told.Y[counts], told.times[counts], noise[counts], dictionary)

    def restore_noisy(self, X: Tensor, Y: Tensor, noise: Tensor) -> None:
        """Condition the prior, at the present time, on rewards Y (n,) at X (n, d) of noise variances (n,); exactly.

        It needs a memory under which observations do not keep their noise.
        """
        if len(X):
            times = X.new_full((len(X),), self._now, dtype=torch.float64)
            self._restore(X, Y, times, noise.double(), Selection(X, X.new_ones(len(X)), None))

    def _restore(self, X: Tensor, Y: Tensor, times: Tensor, noise: Tensor, dictionary: Selection) -> None:
        model = self._model_of(X, Y, noise, dictionary.points)
        self._model = self._checked(model, X) if len(X) else model
        self._X, self._Y, self._times, self._noise = X, Y, times, noise
        self._log = self._log.with_rewards(X, Y, self._log.locate(X), self._weights_of(noise))
        self._dictionary_weights = dictionary.weights

    def shown(self, told: History) -> NystromGP | OnlineGP:
        """Return the posterior of what counts as a BoTorch model of its own."""
        return self._model_of(self._X, self._Y, self._noise, self.inducing_points)

    # ---------------------------------------------------------------- inside

    def _model_of(self, X: Tensor, Y: Tensor, noise: Tensor, dictionary: Tensor) -> NystromGP | OnlineGP:
        return self.model(X, Y, dictionary, None if self._memory.keeps_noise else noise.to(Y))

    def _weights_of(self, noise: Tensor) -> Tensor | None:
        """Return how many fresh observations each of those with noise variances (n,) counts for, (n,); None for one."""
        return None if self._memory.keeps_noise else self.regularization.double() / noise

    def _rule_weights_at(self, points: Tensor) -> Tensor | None:
        """Return what the rule wants handed back of points (u, d), (u,), 0 where it kept nothing; None if nothing."""
        if self._dictionary_weights is None:
            return None
        known = dict(zip(row_keys(self.inducing_points), self._dictionary_weights.tolist(), strict=True))
        weights = [known.get(key, 0.0) for key in row_keys(points)]
        return self._dictionary_weights.new_tensor(weights)

    def _checked(self, model: NystromGP | OnlineGP, X: Tensor) -> NystromGP | OnlineGP:
        """Return the model if its posterior is finite; the factors are computed here, before anything changes."""
        with torch.no_grad():
            mean = cast(Tensor, model.posterior(X[:1]).mean)
        require_finite(mean)
        return model


class ModelLookahead(Lookahead):
    """The model with points pending, which acquisition functions hallucinate themselves."""

    def __init__(self, belief: ModelBelief, pending: Tensor) -> None:
        super().__init__(pending)
        self._belief = belief

    def pending_scores(self) -> Tensor:
        """Return the scores of the pending points without anything pending, (k,)."""
        return self._belief.leverage_scores(self.pending)
