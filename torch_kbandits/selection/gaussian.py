"""The surrogate of one posterior, under a memory and a dictionary rule, whatever may be played."""

from dataclasses import replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.candidates import ArmSource
from torch_kbandits.dictionaries import DictionaryRule, OnlineRule, OnlineState, PlayedPoints, Selection
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory, Stationary
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.prior_draws import PriorDraws, RandomFourierFeatures, drawn_function
from torch_kbandits.numerics.rows import RowIndex, Rows, distinct, distinct_in_order
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.observations.experts import Answers
from torch_kbandits.observations.history import History, own_or
from torch_kbandits.posteriors.dictionary_posterior import DictionaryPosterior
from torch_kbandits.posteriors.exact_posterior import ExactPosterior
from torch_kbandits.posteriors.observations import Places
from torch_kbandits.posteriors.posterior import Arms, Prior, arms_of
from torch_kbandits.selection.base import FantasyPosterior, PosteriorConfig, Surrogate
from torch_kbandits.selection.counting import Counting, in_order, totals
from torch_kbandits.selection.online import pruned, started, too_many_forgotten, uniforms
from torch_kbandits.selection.search import SearchConfig

Array = NDArray[Any]

Rule = DictionaryRule | None
Generator = torch.Generator | None

#: Places of known points (n,), weights (n,) of what is told of them or downdated, and that less its prior mean (n, k).
_Statistics = tuple[Places, Array, Array]
_NOTHING: _Statistics = np.empty(0, np.int64), np.empty(0), np.empty((0, 0))

#: Answers of an expert have at least this share of λ as their noise variance: without any, numbers lose all digits.
_LEAST_VARIANCE = 1e-6

#: Of more points than this those that count no more are dropped, once they are three in four.
_MANY = 64


class GaussianSurrogate(Surrogate):
    """The posterior of the observations that count under a memory, at the dictionary that a rule chooses, or exact.

    What no longer counts is downdated, by changes of rank one. Where observations age, all weights change with the
    time, and the posterior is computed afresh from its coordinates.

    Args:
        example: points (n, d), which say how large prior variances are where there are no arms; of their dtype are all.
        config: what it is to be.
        place: what may be played.

    Cost of a round: that of the posterior; see ``ExactPosterior`` and ``DictionaryPosterior``.
    """

    def __init__(self, example: Tensor, config: PosteriorConfig, place: SearchConfig) -> None:
        exact, rule = config.dictionary is None, config.dictionary
        super().__init__(example[:0], config.kernel, config.regularization, exact=exact, mean=config.mean)
        self.place, self._rule = place, rule
        #: Which observations count at a time, and with what noise.
        self.memory: Memory = Stationary() if config.memory is None else config.memory
        self._is_stationary = isinstance(self.memory, Stationary)
        self.tie_rank = place.tie_rank
        self._none, self._now = example[:0].clone(), -torch.inf
        prior, arms = Prior.of(config.kernel, float(config.regularization), config.mean), None
        largest = prior.variance(example)
        if place.source is not None:
            arms, largest = arms_of(place.source, self.kernel, prior)
        self._kernel_bound = self._number(float(largest.max(initial=0.0)))
        words: dict[str, Any] = {} if rule is None else {"follows": not rule.is_online, "full_at": rule.full_at}
        kind: Any = ExactPosterior if exact else DictionaryPosterior
        self.posterior: ExactPosterior | DictionaryPosterior = kind.of(prior, self._none, arms, **words)
        self._counted = Counting.none(self._none)
        self._numbers = RowIndex.of({})
        self._dictionary = Selection(self._none, self._none.new_ones(0), None)
        self._online_state: OnlineState | None = None
        self._rule_memory: dict[Any, Any] = {}
        self._arm_prior: tuple[Tensor, Tensor, Tensor, PriorDraws] | None = None

    def _number(self, value: float) -> Tensor:
        return self.regularization.new_tensor(value)

    def _values(self, values: Any) -> Tensor:
        tensor = values if isinstance(values, Tensor) else torch.from_numpy(values)
        return tensor if tensor.dtype == self._none.dtype else tensor.to(self._none.dtype)

    @property
    def learns_residual(self) -> bool:
        """Whether variances are those of ``learned_residual``."""
        return self.posterior.learns_residual

    @property
    def num_observations(self) -> int:
        """Number t of observations that count."""
        return len(self._counted)

    @property
    def _order(self) -> Places:
        """Places of the played points that count, in the order in which they were first played."""
        if self._is_stationary:
            return np.flatnonzero(self.posterior.told.counts)
        return in_order(self._counted.places.array)

    @property
    def played(self) -> Tensor:
        """The points that count, (u, d), each once, in the order in which they were first played."""
        return self.posterior.told.points_at(self._order)

    @property
    def now(self) -> float:
        """The time at which it is, minus infinity before the first."""
        return self._now

    @property
    def latest(self) -> Tensor:
        """The point learned last, (1, d); none before any."""
        return self._counted.X.tensor[-1:]

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d): all played points that count if the posterior is exact."""
        return self.played if self.exact else self._dictionary.points

    @property
    def dictionary_weights(self) -> Tensor | None:
        """What the dictionary rule wants handed back of each of ``inducing_points``, (m,); None if nothing."""
        return self._dictionary.weights

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ̃(x_s), 0-dim."""
        return self._number(self.posterior.effective_dimension())

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats."""
        return self._number(self.posterior.information_gain())

    def projection_error(self) -> Tensor:
        """Return Σ_s (k(x_s, x_s) − z_sᵀz_s) / λ_s, 0-dim."""
        return self._number(self.posterior.projection_error())

    def kernel_bound(self) -> Tensor:
        """Return the largest k(x, x) known of, 0-dim."""
        return self._kernel_bound

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean less the prior one, 0-dim, in reward units."""
        return self._number(self.posterior.mean_norm())

    def ridge_fit(self, noise: float) -> tuple[Tensor, Tensor]:
        """Return the data fit and the information gain at another noise, both 0-dim; see ``ExactPosterior``."""
        if not isinstance(self.posterior, ExactPosterior):
            raise InputError("The data fit is that of the exact posterior, and there is a dictionary: mixture=None.")
        fit, gain = self.posterior.ridge_fit(noise)
        return self._number(fit), self._number(gain)

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior means and variances at points X (q, d), each (q,)."""
        mean, variance = self.posterior.moments(X)
        return self._values(mean[0]), self._values(variance)

    def recommend(self) -> Tensor:
        """Return the played point (1, d) of the largest posterior mean."""
        order = self._order
        best = order[self._values(self.posterior.told_means()[0, order]).argmax()]
        return self.posterior.told.points[best, None].clone()

    @property
    def observations(self) -> tuple[Tensor, Tensor]:
        """The points (n, d) and the rewards (n,) that count, in the order told."""
        return self._counted.X.tensor, self._values(self._counted.Y.array[:, 0])

    @property
    def noise(self) -> Tensor | None:
        """Noise variances (n,) of the observations that count, None if that of each is λ and stays it."""
        if self._is_stationary and (told := self._counted.noise) is not None:
            return self._values(own_or(told.tensor, self.posterior.prior.noise))
        weights = self._counted.weights.array
        if self.memory.keeps_noise and bool((weights == 1.0).all()):
            return None
        return self._values(self.posterior.prior.noise / weights)

    def shown(self) -> NystromGP | OnlineGP:
        """Return the posterior of the observations that count as a BoTorch model of its own."""
        return self.model(*self.observations, self.inducing_points, self.noise, self.posterior)

    @cached_property
    def searched(self) -> NystromGP | OnlineGP:
        """The posterior as a BoTorch model, which nobody changes."""
        model = self.shown()
        model.is_final = True
        return model

    @cached_property
    def searched_in_double(self) -> NystromGP | OnlineGP:
        """The same in double precision."""
        if self._none.dtype == torch.float64:
            return self.searched
        model = self.model(*self.observations, self.inducing_points, self.noise).double()
        return model.predicting_by(self.posterior)

    def fantasized(self, pending: Tensor, stages: Tensor | None = None) -> FantasyPosterior:
        """Return the posterior with points (k, d) pending."""
        from torch_kbandits.selection.fantasies import GaussianFantasy

        return GaussianFantasy(self, pending)

    def over(self, source: ArmSource, rank: Tensor, kept: Tensor) -> Self:
        """Return the surrogate over other arms, in the order in which ties are broken: rows kept (k,), then others."""
        other, follows = self._copy(), self.place.source is not None
        other.place, other.tie_rank = SearchConfig(source if follows else None, rank), rank
        if follows:
            added = ArmSource(source.block(len(kept), len(source))) if len(kept) < len(source) else None
            other.posterior = self.posterior.over(source, kept, added)
            prior = torch.as_tensor(cast(Any, other.posterior.arms).table.prior)
            other._kernel_bound = other._number(float(prior.max()))
        return other

    # ---------------------------------------------------------------- forgetting

    def _copy(self) -> Self:
        other = shallow_copy(self)
        for name in ("searched", "searched_in_double"):
            vars(other).pop(name, None)
        return other

    def at(self, now: float) -> Self:
        """Return the surrogate at a time, which is not before the current one; this one stays as it is."""
        if now == self._now or self._is_stationary:
            return self
        other = self._copy()
        other._now = now
        other._learn(*other._weigh(self._weights(self._counted.times.array, now, self._counted.noise)))
        return other

    def _weights(self, times: Array, now: float, noise: Rows | None) -> Array:
        """Return how many fresh observations those of these times (n,) count for, (n,), given what noise was told."""
        level = torch.tensor(self.posterior.prior.noise, dtype=torch.float64)
        own = level if noise is None else own_or(noise.tensor, level)
        return (level / self.memory.noise(torch.from_numpy(times), now, own)).numpy()

    def _weigh(self, weights: Array) -> _Statistics:
        """Give the observations other weights (n,), and return what is still to be downdated: those without any."""
        counted, before = self._counted, self._counted.weights.array
        if np.array_equal(weights, before):
            return _NOTHING
        kept, less = weights > 0.0, _NOTHING
        places, rests = counted.places.array, counted.rests.array
        if np.array_equal(weights[kept], before[kept]):
            gone = ~kept
            less = places[gone], -before[gone], rests[gone]
        else:
            self.posterior = self.posterior.reweighted(*totals(places, weights, rests, len(self.posterior.told)))
            counted = replace(counted, weights=Rows(weights))
        self._counted = counted.kept(kept)
        return less

    def _learn(self, places: Places, weights: Array, rests: Array) -> None:
        """Condition on what is told of known points less its prior mean (n, k), with weights (n,), or downdate it."""
        if len(places):
            self.posterior = self.posterior.learned(places, weights, rests.T)
        counts = self.posterior.told.counts
        if not self._is_stationary and len(counts) > _MANY and 4 * np.count_nonzero(counts) < len(counts):
            self.posterior, moved = self.posterior.without_forgotten()
            self._counted = replace(self._counted, places=Rows(moved[self._counted.places.array]))

    # ---------------------------------------------------------------- learning

    def learned(self, told: History, generator: Generator = None, until: float | None = None) -> Self:
        """Return the surrogate conditioned on more rewards, made now if they have no times; see ``Surrogate``.

        What no longer counts at the later time is downdated together with it, unless a rule has to choose before.
        """
        other, times, weights, gone = self._copy(), self._times_of(told), np.ones(told.Y.shape[0]), _NOTHING
        rule = self._rule
        if told.times is not None:
            other._numbers = self._numbers.with_rows(told.X)
        if times is not None:
            other._now = self._now if rule is not None or until is None else until
            noise = self._counted.noise
            if noise is not None or told.noise is not None:
                noise = self._counted.noise_with(told.noise, len(times))
            weights = self._weights(np.concatenate((self._counted.times.array, times)), other._now, noise)
            weights, gone = weights[len(self._counted) :], other._weigh(weights[: len(self._counted)])
            if rule is not None:
                other._learn(*gone)
                gone = _NOTHING
        elif told.noise is not None:
            weights = self._weights(weights, self._now, Rows(told.noise))
        other._tell(told, times, weights, rule, generator, gone)
        return other if until is None else other.at(until)

    def _times_of(self, told: History) -> Array | None:
        """Return when rewards were made, (q,): now if nobody says when; None where it does not matter."""
        if self._is_stationary:
            return None
        return np.full(len(told.Y), self._now) if told.times is None else told.times.double().numpy()

    def _tell(
        self, told: History, times: Any, weights: Array, rule: Rule, generator: Generator, gone: _Statistics
    ) -> None:
        """Condition on what was told, of which that of weight 0 does not count, and downdate what is gone."""
        X, Y, noise = told.X, told.Y.numpy()[:, None].astype(np.float64, copy=False), told.noise
        if times is not None and not (counts := weights > 0.0).all():
            X, Y, times, weights = X[torch.from_numpy(counts)], Y[counts], times[counts], weights[counts]
            noise = None if noise is None else noise[torch.from_numpy(counts)]
        if not len(Y):
            self._learn(*gone)
            return
        selection = None
        if self.place.source is not None:
            self.place.source.verify()
        posterior, places = self.posterior.knowing(X)
        if rule is not None and rule.is_online:
            posterior = self._updated(cast(Any, posterior), places, cast(OnlineRule, rule), generator, noise)
        elif rule is not None:
            order = in_order(np.concatenate((self._order, places)))
            selection = rule.select(self._preview(posterior, order, places, weights), generator)
            if selection.indices is not None:
                chosen = order[selection.indices.numpy()]
                posterior = cast(DictionaryPosterior, posterior).at_dictionary(chosen, learns_next=True)
        self._condition(posterior, X, Y, (times, weights, places, noise), selection, gone)

    def _condition(
        self, posterior: Any, X: Tensor, Y: Array, counting: Any, selection: Selection | None, gone: _Statistics
    ) -> None:
        """Take over a posterior that knows points, once it learned rewards of them at a dictionary."""
        times, weights, places, noise = counting
        if selection is not None:
            if selection.indices is None:
                posterior, dictionary = posterior.knowing(selection.points)
                posterior = posterior.at_dictionary(np.unique(dictionary), learns_next=True)
            self._dictionary = selection
        rests = Y - posterior.told.expected.array[places]
        self.posterior, news = posterior, (places, weights, rests)
        others = () if self._is_stationary else (rests, times, weights, places)
        if noise is not None or self._counted.noise is not None:
            self._counted = self._counted.followed(X, Y, *others, noise=self._counted.noise_with(noise, len(Y)))
        else:
            self._counted = self._counted.followed(X, Y, *others)
        self._learn(*(news if gone is _NOTHING else map(np.concatenate, zip(gone, news, strict=True))))

    def _preview(self, posterior: Any, order: Places, places: Places, weights: Array) -> PlayedPoints:
        """Return what a rule may know of points at places (u,), of which some (q,) are told now."""
        told, size = posterior.told, len(posterior.told)
        points = told.points_at(order)
        new = np.bincount(places, weights, size)
        counts, scores = told.counts + new, np.maximum(posterior.known.variance, 0.0) / posterior.prior.noise
        held = posterior.is_in_dictionary
        return PlayedPoints(
            points,
            self.kernel,
            self.regularization,
            self._values(counts[order]),
            self._values(scores[order]),
            torch.from_numpy(held[order]),
            self._values(new[order]),
            self._numbers.places(points) if len(self._numbers) else None,
            memory=self._rule_memory,
        )

    def _updated(
        self,
        posterior: DictionaryPosterior,
        places: Places,
        rule: OnlineRule,
        generator: Generator,
        noise: Tensor | None = None,
    ) -> DictionaryPosterior:
        """Return the posterior at its dictionary once known points were offered to that, given their places (q,)."""
        state = self._online_state or started(posterior, self._dictionary, rule)
        if not self._is_stationary and too_many_forgotten(posterior):
            posterior, state = pruned(posterior, state, rule, self._order, generator)
        worth = None if noise is None else posterior.prior.noise / own_or(noise, posterior.prior.noise).numpy()
        posterior, state = rule.update(posterior, state, places, uniforms(len(places), generator), worth)
        if state is not self._online_state:
            points = posterior.told.points_at(posterior.dictionary)
            self._dictionary = Selection(points, points.new_ones(len(points)), None, torch.from_numpy(state.weights))
        self._online_state = state
        return posterior

    def advised(self, answers: Answers) -> Self:
        """Return the surrogate conditioned on an expert's answers as well, which are made now; this one stays as it is.

        The points asked about join the dictionary. To choose by in this round: the next reward is told to this one.
        """
        if len(answers.X) == 0:
            return self
        other, level, number = self._copy(), self.posterior.prior.noise, len(self._counted)
        weights = level / answers.variance.double().clamp_min(_LEAST_VARIANCE * level).numpy()
        selection = None
        if not self.exact:
            points, _ = distinct_in_order(torch.cat([self._dictionary.points, answers.X]))
            selection = Selection(points, points.new_ones(len(points)), None)
        posterior, places = self.posterior.knowing(answers.X)
        times = np.full(len(weights), self._now)
        counting = times, weights, places, None
        other._condition(posterior, answers.X, answers.Y.double().numpy()[:, None], counting, selection, _NOTHING)
        if not self._is_stationary:  # what is learned last stays last, since searches start from it
            other._counted = other._counted.at(np.roll(np.arange(len(other._counted)), -number))
        return other

    def restored(self, told: History, dictionary: Selection) -> Self:
        """Return the empty surrogate conditioned, at the current time, on the observations of a history that count."""
        other = self._copy()
        times = self._times_of(told)
        weights, noise = np.ones(len(told.Y)), None if told.noise is None else Rows(told.noise)
        if times is not None or noise is not None:
            weights = self._weights(weights if times is None else times, self._now, noise)
        if told.times is not None:
            other._numbers = self._numbers.with_rows(told.X)
        if not self.exact:
            other._dictionary = dictionary
            posterior, _ = cast(DictionaryPosterior, self.posterior).knowing(told.X)  # in the order told, as ever
            posterior, places = posterior.knowing(dictionary.points)
            other.posterior = posterior.at_dictionary(np.unique(places))
        other._tell(told, times, weights, None, None, _NOTHING)
        return other

    # ---------------------------------------------------------------- draws of f − mean, by Matheron's rule

    def drawn(self, seed: int) -> tuple[RandomFourierFeatures, Array]:
        """Return a draw of the prior as a function, and weights of the coordinates, (m,), that make it one of f − mean.

        Source: Wilson et al., ICML 2020. ``InputError`` if the kernel has no random Fourier features.
        """
        told, generator = self.posterior.told, torch.Generator().manual_seed(seed)
        prior = drawn_function(self.kernel, told.points.shape[-1], generator)
        at = self.posterior.draw_correction
        return prior, at(lambda places: prior.at(told.points_at(places)).numpy(), generator, self._order)

    def deviation(self, seed: int) -> Tensor:
        """Return a joint draw of f − mean at the arms, (A,), equal at equal arms; as ``drawn`` if not all in memory."""
        source, posterior, generator = cast(ArmSource, self.place.source), self.posterior, torch.Generator()
        generator, followers, number = generator.manual_seed(seed), cast(Arms, posterior.arms), len(source)
        features = followers.table.features
        if source.tensor is None:
            prior, c = self.drawn(seed)
            values = torch.cat([prior.at(block) for _, block in source.blocks()])
            return self._values(values + torch.as_tensor(features.product(c)))
        together, known = torch.cat([source.tensor, posterior.told.points.to(source.tensor)]), self._arm_prior
        if known is None or not torch.equal(known[0], together):
            known = together, *distinct(together), known and known[-1]
        *_, points, rows, prior = known
        if prior is None or prior.is_for_first or not torch.equal(prior.points, points):
            prior = PriorDraws(followers.kernel, points, rows[number + torch.from_numpy(posterior.basis)].unique())
        self._arm_prior = together, points, rows, prior
        values, others, arms = prior.draw(generator), rows[number:].cpu().numpy(), rows[:number]
        at = posterior.draw_correction
        c = at(lambda places: values[others[places]].double().cpu().numpy(), generator, self._order)
        drawn, order = values[arms] + torch.as_tensor(features.product(c)), torch.arange(number, device=arms.device)
        return self._values(drawn[order.new_full(values.shape, number).scatter_reduce(0, arms, order, "amin")[arms]])
