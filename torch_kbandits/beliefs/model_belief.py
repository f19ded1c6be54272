"""Beliefs of BoTorch models told the whole history."""

from copy import copy
from typing import Self, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import hallucinate
from torch_kbandits.beliefs.base import Belief, require_finite
from torch_kbandits.beliefs.box_search import BoxSearch
from torch_kbandits.beliefs.embedded import Embedded
from torch_kbandits.beliefs.joint_lookahead import JointLookahead
from torch_kbandits.dictionaries import DictionaryRule, OnlineRule, OnlineSample, PlayedPoints, Selection
from torch_kbandits.memory import KeepAll, Memory
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.rows import RowIndex, row_keys
from torch_kbandits.observations.experts import Answers
from torch_kbandits.observations.ledger import History
from torch_kbandits.observations.played import PlayedLog

#: Answers of an expert have at least this share of λ as their noise variance.
_LEAST_VARIANCE = 1e-6


class ModelBelief(Belief):
    """A BoTorch model on the history, for exact posteriors of joint points and boxes, and for memories that let age.

    The exact posterior is an ``OnlineGP`` that is told; the Nyström one is rebuilt, so that it is a function of history
    and dictionary alone. Cost of a tell: O(u²) or O(n m²).

    With a memory the history is what counts at the present time. Where observations keep their noise while they count,
    the exact posterior is told and made to forget them, O(u²) each, and the Nyström one is made to forget them, O(m²)
    each; else they are computed afresh. A dictionary stays as it is until the next reward, whatever is forgotten.

    Args:
        example: points (k, d), k >= 1, whose dtype and device all tensors have, and whose prior variance is known of.
        kernel: the prior covariance.
        regularization: λ.
        exact: whether the posterior is the exact one.
        online: whether the dictionary rule decides about each point once, when it is told.
        memory: which observations count at a time; None where all do for ever.
        tie_rank: the order in which ties between arms are broken, (A,), if the candidates are always the same.
        search: where in a box the next point is sought, if it is always the same.
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
        tie_rank: Tensor | None = None,
        search: BoxSearch | None = None,
    ) -> None:
        super().__init__(example, kernel, regularization, exact=exact)
        self.tie_rank = None if tie_rank is None else tie_rank.to(example.device)
        self._search = search
        self._memory, self._online = KeepAll() if memory is None else memory, online
        self._now = -torch.inf
        self._log = PlayedLog(example)
        self._X, self._Y = example[:0], example.new_zeros(0)
        self._times = self._noise = example.new_zeros(0, dtype=torch.float64)
        self._seen = RowIndex.of({})
        self._dictionary_weights: Tensor | None = None
        self._sample: OnlineSample | None = None
        self._model = self._model_of(self._X, self._Y, self._noise, self._X)
        with torch.no_grad():
            self._kernel_bound = prior_variance(self.kernel, example).max()

    @property
    def num_observations(self) -> int:
        """Number t of observations that count."""
        return len(self._X)

    @property
    def posterior_model(self) -> NystromGP | OnlineGP:
        """The model that points are chosen by."""
        return self._model

    @property
    def latest(self) -> Tensor:
        """The point learned last, (1, d); none before any."""
        return self._X[-1:]

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

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance of the example and the played points, 0-dim."""
        return self._kernel_bound

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

    def learned(self, told: History, rule: DictionaryRule | None, generator: torch.Generator | None) -> Self:
        """Return the belief conditioned on more rewards, made now if they have no times."""
        other, number = copy(self), len(self._X)
        if told.times is not None:
            other._seen = self._seen.with_rows(told.X)
        new = self._times_of(told)
        times = torch.cat([self._times, new])
        before, noise = self._memory.noise(times, self._now, self.regularization.double()).tensor_split([number])
        if not torch.equal(before, self._noise):
            other._forget(before)
        counts = noise.isfinite()
        if bool(counts.any()):
            other._learn(told.X[counts], told.Y[counts], new[counts], noise[counts], rule, generator)
        return other

    def _times_of(self, told: History) -> Tensor:
        return told.Y.new_full((len(told.Y),), self._now, dtype=torch.float64) if told.times is None else told.times

    def _learn(
        self,
        X: Tensor,
        Y: Tensor,
        times: Tensor,
        noise: Tensor,
        rule: DictionaryRule | None,
        generator: torch.Generator | None,
    ) -> None:
        """Condition on rewards Y (q,) of noise variances (q,), made at times (q,)."""
        sample, selection = self._sample, None
        if rule is not None and self._online:
            sample = self._offered(X, cast(OnlineRule, rule), generator)
            selection = Selection(sample.points, X.new_ones(len(sample.points)), None, sample.weights)
        elif rule is not None:
            selection = rule.select(self.preview(X, noise), generator)
        self._update(X, Y, times, noise, selection)
        self._sample = sample

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

    def updated(self, X: Tensor, Y: Tensor, selection: Selection | None) -> Self:
        """Return the belief conditioned on rewards Y (q,) at X (q, d), made now, at the selected dictionary."""
        other, times = copy(self), X.new_full((len(X),), self._now, dtype=torch.float64)
        other._update(X, Y, times, torch.full_like(times, float(self.regularization)), selection)
        return other

    def _update(self, X: Tensor, Y: Tensor, times: Tensor, noise: Tensor, selection: Selection | None) -> None:
        """Condition on rewards Y (q,) at X (q, d) of noise variances (q,), made at times (q,)."""
        everything, rewards, noises = torch.cat([self._X, X]), torch.cat([self._Y, Y]), torch.cat([self._noise, noise])
        if isinstance(self._model, OnlineGP) and self._memory.keeps_noise:
            # What it knows is replaced and never written into, so the model told before stays as it was.
            model = copy(self._model)
            model.tell(X, Y.unsqueeze(-1))
        else:
            dictionary = everything if selection is None else selection.points
            model = self._checked(self._model_of(everything, rewards, noises, dictionary), X)
        self._take_over(model, X, Y, noise)
        self._X, self._Y, self._times, self._noise = everything, rewards, torch.cat([self._times, times]), noises
        self._dictionary_weights = None if selection is None else selection.weights

    def restored(self, told: History, dictionary: Selection) -> Self:
        """Return the empty belief conditioned, at the present time, on what counts of a history."""
        other, times = copy(self), self._times_of(told)
        if told.times is not None:
            other._seen = self._seen.with_rows(told.X)
        noise = self._memory.noise(times, self._now, self.regularization.double())
        counts = noise.isfinite()
        other._restore(told.X[counts], told.Y[counts], times[counts], noise[counts], dictionary)
        return other

    def advised(self, answers: Answers) -> Self:
        """Return the belief conditioned on an expert's answers as well, which are made now; this one stays as it is.

        It needs a memory under which observations age. Answers have at least 1e-6 λ as their noise variance: without
        noise Gram matrices lose their rank.
        """
        if len(answers.X) == 0:
            return self
        other, level = copy(self), self.regularization.double()
        other._log = PlayedLog(self._X)
        X, Y = torch.cat([answers.X, self._X]), torch.cat([answers.Y, self._Y])
        noise = torch.cat([answers.variance.clamp_min(_LEAST_VARIANCE * level), self._noise])
        times = torch.cat([torch.full_like(answers.variance, self._now), self._times])
        other._restore(X, Y, times, noise, Selection(X, X.new_ones(len(X)), None))
        return other

    def _restore(self, X: Tensor, Y: Tensor, times: Tensor, noise: Tensor, dictionary: Selection) -> None:
        model = self._model_of(X, Y, noise, dictionary.points)
        self._take_over(self._checked(model, X) if len(X) else model, X, Y, noise)
        self._X, self._Y, self._times, self._noise = X, Y, times, noise
        self._dictionary_weights = dictionary.weights

    def _take_over(self, model: NystromGP | OnlineGP, X: Tensor, Y: Tensor, noise: Tensor) -> None:
        """Believe a model that learned rewards Y (q,) at X (q, d), and count these among what was played."""
        self._model = model
        self._log = self._log.with_rewards(X, Y, self._log.locate(X), self._weights_of(noise))
        if len(X):
            with torch.no_grad():
                self._kernel_bound = torch.maximum(self._kernel_bound, prior_variance(self.kernel, X).max())

    def shown(self, told: History) -> NystromGP | OnlineGP:
        """Return the posterior of what counts as a BoTorch model of its own."""
        return self._model_of(self._X, self._Y, self._noise, self.inducing_points)

    def lookahead(self, pending: Tensor, stages: Tensor | None = None) -> JointLookahead:
        """Return the model with points (k, d) pending."""
        return JointLookahead(self, pending, self._search)

    # ---------------------------------------------------------------- the posterior at points, see ``JointPosterior``

    def embed(self, X: Tensor) -> Embedded:
        """Return points (k, d) as the posterior sees them."""
        return Embedded(X, self._model.embed(X), prior_variance(self.kernel, X))

    def mean_at(self, at: Embedded) -> Tensor:
        """Return posterior means, (k,)."""
        return self._model.factors.mean(at.coordinates)

    def variance_at(self, at: Embedded) -> Tensor:
        """Return posterior variances, (k,)."""
        return self._model.factors.variance(at.prior_variance, at.coordinates)

    def hallucinated(self, points: Tensor) -> Self:
        """Return the belief conditioned on its mean at points (k, d), which join the dictionary; this one stays."""
        other = copy(self)
        with torch.no_grad():
            other._model = cast(NystromGP | OnlineGP, hallucinate(self._model, points))
        return other

    def covariance_at(self, left: Embedded, right: Embedded) -> Tensor:
        """Return posterior covariances, (k, l)."""
        prior = gram(self.kernel, left.points, right.points)
        return prior - self._model.factors.explained(left.coordinates, right.coordinates)

    def remember(self, at: Embedded) -> None:
        """Keep nothing: the model embeds what it is told."""

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
