"""A weighted sample of points that were offered one after another: the dictionary of KORS."""

import math
from dataclasses import dataclass
from typing import NamedTuple, Self, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.dictionaries import sample_loops
from torch_kbandits.dictionaries.exchanges import factors
from torch_kbandits.errors import InputError
from torch_kbandits.loops.compiled import runs_compiled
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import cholesky_rank_one, jittered_cholesky, non_negative_variance
from torch_kbandits.numerics.rows import row_keys
from torch_kbandits.numerics.shallow import changed

#: So many points are offered with one evaluation of the kernel against the sample.
_BLOCK = 1024

#: So many points are scored together at first; then about as many as pass until one is taken.
_WINDOW = 32


class Offer(NamedTuple):
    """What became of points (k, d) that were offered.

    Attributes:
        sample: the sample with those taken.
        chosen: (k,) bool, which were taken.
        joined: (k,) bool, which of them were not in the sample before; they stand last there, in this order.
        probabilities: (k,) in [0, 1], double precision, the probability with which each was to be taken.
    """

    sample: "OnlineSample"
    chosen: Tensor
    joined: Tensor
    probabilities: Tensor


@dataclass(frozen=True, eq=False)
class OnlineSample:
    """Points taken with probabilities in proportion to how little those taken before explain them.

    A point s is taken with probability p̃ = min(1, γ τ̃(s)). With S of diagonal √w for the sample Z and 1 for s, and
    Z* = Z ∪ {s}, it is

        τ̃(s) = (1 + ε)/μ · (k(s,s) − k_Z*(s)ᵀ S (Sᵀ K_Z*Z* S + μI)⁻¹ Sᵀ k_Z*(s)) = (1 + ε) r(s) / (r(s) + μ)
        r(s) = k(s,s) − k_Z(s)ᵀ (K_ZZ + μ diag(1/w))⁻¹ k_Z(s)

    so that only a factor of K_ZZ + μ diag(1/w) is kept. A weight w is Σ 1/p̃ over the times that the point was taken:
    where the paper's sample holds a point several times, one point of the summed weight gives the same τ̃. The first
    point ever offered is taken with certainty.

    A value: taking points returns another. All algebra is in double precision, whatever the points are in.

    Source: Zenati et al., AISTATS 2022, Alg. 5 and (41); Calandriello et al., NeurIPS 2017. With batch dimensions the
    members share their rows, by the largest of their τ̃.

    Attributes:
        kernel: the prior covariance.
        projection: μ > 0, in reward units squared.
        accuracy: ε in (0, 1).
        oversampling: γ > 0.
        points: Z, (..., m, d), m >= 0, in the order taken; all different.
        weights: w, (m,), double precision.
        tolerance: where given, nothing is random: p̃ is 1 if r(s) exceeds this share of k(s,s), and else 0.
    """

    kernel: Kernel
    projection: float
    accuracy: float
    oversampling: float
    points: Tensor
    weights: Tensor
    _factor: Tensor
    _positions: dict[bytes, int]
    tolerance: float | None = None
    _known: Tensor | None = None  # the Gram matrix of the first points, once it was asked for
    _merged: int = 0  # how many weights changed since the factor was computed from it
    _inverse: Tensor | None = None  # of the Gram matrix, where it was asked for; gone when a point joins

    @classmethod
    def empty(
        cls, kernel: Kernel, projection: float, accuracy: float, oversampling: float, example: Tensor
    ) -> "OnlineSample":
        """Return the sample without points; the example (..., n, d) shows their dtype, device and dimensions."""
        points = example[..., :0, :]
        weights = torch.zeros(0, dtype=torch.float64, device=example.device)
        return cls.from_points(points, weights, kernel, projection, accuracy, oversampling)

    @classmethod
    def from_points(
        cls,
        points: Tensor,
        weights: Tensor,
        kernel: Kernel,
        projection: float,
        accuracy: float,
        oversampling: float,
        *,
        tolerance: float | None = None,
    ) -> "OnlineSample":
        """Return the sample of given points (..., m, d) and weights (m,); it equals the saved one to rounding.

        Raises:
            InputError: if settings, shapes or weights do not fit.

        Cost: O(m³).
        """
        projection = checks.positive("projection", projection)
        accuracy = checks.open_unit_interval("accuracy", accuracy)
        oversampling = checks.positive("oversampling", oversampling)
        if weights.shape != points.shape[-2:-1] or not bool((weights > 0.0).all() and torch.isfinite(weights).all()):
            raise InputError(
                f"weights must be a finite number above 0 for each of the {points.shape[-2]} points, got "
                f"{checks.describe(weights)}."
            )
        with torch.no_grad():
            weights = weights.to(points.device, torch.float64)
            values = _gram_of(kernel, points, None)
            factor = _factor(values, projection / weights, points.dtype)
        positions = {key: position for position, key in enumerate(_keys(points))}
        settings = kernel, projection, accuracy, oversampling
        return cls(*settings, points, weights, factor, positions, tolerance, values)

    @property
    def size(self) -> int:
        """Number m of points."""
        return self.points.shape[-2]

    def score(self, points: Tensor, cross: Tensor | None = None, prior: Tensor | None = None) -> Tensor:
        """Return τ̃ of points (..., k, d), each as if it were offered next, (k,) in double precision.

        Args:
            points: (..., k, d).
            cross: k(z, x) of the sample against them, (..., m, k), where known.
            prior: k(x, x), (..., k), where known.

        Raises:
            NumericalError: if r is negative beyond rounding.

        Cost: m k evaluations of the kernel unless known, O(m² k).
        """
        with torch.no_grad():
            cross, prior = self._values(points, cross, prior)
            return self._scores(cross, prior)

    def chances(self, points: Tensor) -> Tensor:
        """Return the probabilities p̃ (k,) with which points (..., k, d) would be taken next. Cost: O(m² k)."""
        with torch.no_grad():
            return self._chances(*self._values(points, None, None))

    def offered(
        self,
        points: Tensor,
        uniforms: Tensor,
        cross: Tensor | None = None,
        prior: Tensor | None = None,
        most: int | None = None,
    ) -> Offer:
        """Return what becomes of points offered one after another, each scored with those before it taken or not.

        Args:
            points: (..., k, d).
            uniforms: (k,) in [0, 1), the only randomness: a point is taken if its probability is above its uniform.
            cross: k(z, x) of the sample against them, (..., m, k), where known.
            prior: k(x, x), (..., k), where known.
            most: nothing more is offered once the sample has so many points; what was not offered has probability 0.

        Raises:
            InputError: if the shapes do not fit.
            NumericalError: if r is negative beyond rounding.

        Cost: O(m² k) and the kernel between the sample and the points, once each.
        """
        if uniforms.shape != points.shape[-2:-1]:
            raise InputError(
                f"offered needs a uniform for each of the {points.shape[-2]} points, got {checks.describe(uniforms)}."
            )
        uniforms = uniforms.to(points.device)
        sample, parts = self, []
        with torch.no_grad():
            if len(uniforms) == 1 and (most is None or self.size < most):
                return self._offered_one(points, uniforms, *self._values(points, cross, prior))
            for start in range(0, len(uniforms), _BLOCK):
                block = slice(start, start + _BLOCK)
                X = points[..., block, :]
                known = None if cross is None else cross[..., block].double()
                if known is not None and sample.size > self.size:
                    known = torch.cat([known, gram(self.kernel, sample.points[..., self.size :, :], X).double()], -2)
                values = sample._values(X, known, None if prior is None else prior[..., block])
                offer = sample._walked(X, uniforms[block], *values, most)
                sample = offer.sample
                parts.append(offer)
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return Offer(self, uniforms.bool(), uniforms.bool(), uniforms.double())
        return Offer(sample, *(torch.cat([part[column] for part in parts]) for column in (1, 2, 3)))

    def after(self, points: Tensor, uniforms: Tensor, cross: Tensor | None, prior: Tensor | None) -> "OnlineSample":
        """Return the sample after points were offered, as ``offered`` does, which makes no more of it."""
        if uniforms.shape[0] > 1 or cross is None or prior is None or not self._is_looped(cross, prior):
            return self.offered(points, uniforms, cross, prior).sample
        row, residual, chance = self._scored(cross.mT.numpy(), prior.numpy())
        if not uniforms.item() < chance:
            return self
        with torch.no_grad():
            whitened = torch.from_numpy(row).unsqueeze(-1), prior.new_tensor([residual])
            return self._taken(points, cross, prior, prior.new_tensor(chance), whitened)

    def exchanged(
        self,
        points: Tensor,
        uniforms: Tensor,
        least_gain: float,
        cross: Tensor | None = None,
        prior: Tensor | None = None,
    ) -> tuple[Self, bool]:
        """Return the sample of the same size after points (k, d) were offered one after another in exchange.

        A point that is taken and not there yet replaces the one with which det K_ZZ grows most, if it grows at least by
        a factor ``least_gain`` > 1. As det K_ZZ <= Π k(z, z), there are few exchanges, however many points are offered.

        Args:
            points: (k, d).
            uniforms: (k,), as for ``offered``.
            least_gain: of det K_ZZ.
            cross: k(z, x) of the sample against the points, (m, k), where known.
            prior: k(x, x), (k,), where known.

        Returns:
            The sample, and whether a point was taken that was not there.

        Cost: O(m²) for each point, and O(m³) for each exchange.
        """
        sample, first, was_new, number = self, 0, False, uniforms.shape[0]
        with torch.no_grad():
            if number == 1 and cross is not None and prior is not None and self._is_looped(cross, prior):
                chance = self._scored(cross.mT.numpy(), prior.numpy())[2]
                is_taken = uniforms.item() < chance
                known = cross, prior, prior.new_tensor(chance)
                return self._exchanged_one(points, *known, least_gain) if is_taken else (self, False)
            while first < number:
                block = slice(first, first + _WINDOW)
                if sample is not self:
                    cross = prior = None
                given = (each if each is None else each[..., block] for each in (cross, prior))
                values, own = sample._values(points[block], *given)
                chances = sample._chances(values, own)
                first += len(chances)
                for place in (uniforms[block].to(chances.device) < chances).nonzero().squeeze(-1).tolist():
                    one, point = slice(place, place + 1), block.start + place
                    known = values[:, one], own[one], chances[place]
                    after, is_new = sample._exchanged_one(points[point : point + 1], *known, least_gain)
                    was_new |= is_new
                    if after is not sample:
                        sample, first = after, point + 1
                        break
        return sample, was_new

    def keeping(self, kept: Tensor) -> Self:
        """Return the sample of some of its points, given their positions (k,), in that order. Cost: O(k³)."""
        points, weights = self.points[..., kept, :], self.weights[kept]
        values = self._gram()[..., kept, :][..., kept]
        return changed(
            self,
            points=points,
            weights=weights,
            _factor=_factor(values, self.projection / weights, points.dtype),
            _known=values,
            _positions={key: position for position, key in enumerate(_keys(points))},
            _merged=0,
            _inverse=None,
        )

    # ---------------------------------------------------------------- inside

    def _offered_one(self, point: Tensor, uniform: Tensor, cross: Tensor, prior: Tensor) -> Offer:
        """Return what becomes of one point (..., 1, d): the case of a bandit's round, without the walk's overhead."""
        whitened: tuple[Tensor, Tensor] | None = None
        if self._is_looped(cross, prior):
            row, left, share = self._scored(cross.mT.numpy(), prior.numpy())
            whitened, chance = (
                (torch.from_numpy(row).unsqueeze(-1), prior.new_tensor([left])),
                prior.new_tensor([share]),
            )
        else:
            chance = self._chances(cross, prior)
        chosen = uniform < chance
        if not bool(chosen):
            return Offer(self, chosen, chosen, chance)
        sample = self._taken(point, cross, prior, chance[0], whitened)
        return Offer(sample, chosen, chosen if sample.size > self.size else torch.zeros_like(chosen), chance)

    def _is_looped(self, cross: Tensor, prior: Tensor) -> bool:
        """Say whether one point of kernel values (m, 1), m >= 1, in double precision is scored by a loop."""
        is_one = self.size > 0 and cross.shape == (self.size, 1) and cross.dtype == torch.float64
        return is_one and runs_compiled(cross, prior, self._factor)

    def _scored(self, cross: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, float, float]:
        """Return L⁻¹ k_Z(x) (m,), r(x) >= 0 and the probability with which one point is taken, given (1, m), (1,)."""
        tolerance = -1.0 if self.tolerance is None else self.tolerance
        settings = self.projection, self.accuracy, self.oversampling, tolerance
        row, left, chance = sample_loops.scored(cross, prior, self._factor.numpy(), *settings)
        if left < 0.0:
            self._without_rounding(torch.tensor([left], dtype=torch.float64), torch.from_numpy(prior))
            left = 0.0
        return row, left, chance

    def _walked(self, points: Tensor, uniforms: Tensor, cross: Tensor, prior: Tensor, most: int | None) -> Offer:
        """Offer points of known kernel values; windows between two taken points are scored at once."""
        sample, first, width = self, 0, _WINDOW
        number = len(uniforms)
        chosen, joined = torch.zeros(2, number, dtype=torch.bool, device=uniforms.device)
        probabilities = torch.empty(number, dtype=torch.float64, device=uniforms.device)
        while first < number and (most is None or sample.size < most):
            window = slice(first, min(first + width, number))
            chances = sample._chances(cross[..., window], prior[..., window])
            probabilities[window] = chances
            hits = (uniforms[window] < chances).nonzero()
            if len(hits) == 0:
                first, width = window.stop, 2 * width
                continue
            offset = int(hits[0])
            taken = slice(first + offset, first + offset + 1)
            chosen[taken] = True
            grown = sample._taken(points[..., taken, :], cross[..., taken], prior[..., taken], chances[offset])
            first, width = taken.stop, max(1, 2 * offset)
            if grown.size > sample.size:
                joined[taken] = True
            if grown.size > sample.size and first < number:
                row = gram(self.kernel, points[..., taken, :], points).double()
                cross = torch.cat([cross, row], -2) if sample.size else row
            sample = grown
        probabilities[first:] = 0.0
        return Offer(sample, chosen, joined, probabilities)

    def _values(self, points: Tensor, cross: Tensor | None, prior: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return k_Z(x) (..., m, k) and k(x, x) (..., k) in double precision, evaluated where not given."""
        prior = (prior_variance(self.kernel, points) if prior is None else prior).double()
        if self.size == 0:
            return prior.unsqueeze(-2)[..., :0, :], prior
        cross = (gram(self.kernel, self.points, points) if cross is None else cross).double()
        if cross.shape[-2:] != (self.size, points.shape[-2]):
            raise InputError(
                f"cross must hold the kernel of {self.size} points of the sample against {points.shape[-2]} offered, "
                f"got {checks.describe(cross)}."
            )
        return cross, prior

    def _whitened(self, cross: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        """Return (L⁻¹ k_Z(x)) (..., m, k) and r(x) (..., k). Cost: O(m² k)."""
        if self.size == 0:
            return cross, prior
        whitened = torch.linalg.solve_triangular(self._factor, cross, upper=False)
        residual = prior - whitened.square().sum(-2)
        if bool((residual < 0.0).any()):
            residual = self._without_rounding(residual, prior)
        return whitened, residual

    def _without_rounding(self, residual: Tensor, prior: Tensor) -> Tensor:
        """Return r (..., k), of which some are negative, at least 0."""
        non_negative_variance(residual.to(self.points.dtype), prior.to(self.points.dtype))
        return residual.clamp_min(0.0)

    def _scores(self, cross: Tensor, prior: Tensor) -> Tensor:
        """Return τ̃ (k,)."""
        residual = self._whitened(cross, prior)[1]
        scores = (1.0 + self.accuracy) * residual / (residual + self.projection)
        return scores.flatten(end_dim=-2).amax(0) if scores.dim() > 1 else scores

    def _chances(self, cross: Tensor, prior: Tensor) -> Tensor:
        """Return the probabilities (k,) with which points would be taken next."""
        if self.size == 0:
            return torch.ones(prior.shape[-1:], dtype=torch.float64, device=prior.device)
        if self.tolerance is not None:
            outside = self._whitened(cross, prior)[1] > self.tolerance * prior
            return (outside.flatten(end_dim=-2).any(0) if outside.dim() > 1 else outside).double()
        return (self.oversampling * self._scores(cross, prior)).clamp_max(1.0)

    def _taken(
        self,
        point: Tensor,
        cross: Tensor,
        prior: Tensor,
        probability: Tensor,
        whitened: tuple[Tensor, Tensor] | None = None,
    ) -> Self:
        """Return the sample with a point (..., 1, d) taken with a probability, 0-dim; ``whitened`` if that is known."""
        (key,) = _keys(point)
        position = self._positions.get(key)
        if position is not None:
            return self._reweighted(position, 1.0 / probability)
        below, residual = self._whitened(cross, prior) if whitened is None else whitened
        m = self.size
        noise = _noise(self.projection * probability, prior, self.points.dtype)
        if below.dim() == 2 and runs_compiled(below, self._factor):
            corner = math.sqrt((residual + noise).item())
            row = below.squeeze(-1).numpy()
            factor = torch.from_numpy(sample_loops.bordered(self._factor.numpy(), row, corner))
        else:
            factor = residual.new_zeros(*residual.shape[:-1], m + 1, m + 1)
            factor[..., :m, :m], factor[..., m, :m] = self._factor, below[..., 0]
            factor[..., m, m] = (residual + noise).sqrt()[..., 0]
        return changed(
            self,
            points=torch.cat([self.points, point], -2),
            weights=torch.cat([self.weights, 1.0 / probability.reshape(1)]),
            _factor=factor,
            _positions=self._positions | {key: m},
            _inverse=None,
        )

    def _exchanged_one(
        self, point: Tensor, cross: Tensor, prior: Tensor, chance: Tensor, least_gain: float
    ) -> tuple[Self, bool]:
        """Return the sample with a point (1, d), taken with a chance, in place of another, and whether it is a new one.

        It is the same sample if none gives way.
        """
        (key,) = _keys(point)
        position = self._positions.get(key)
        if position is not None:
            return self._reweighted(position, 1.0 / chance), False
        if self._inverse is None:  # remembered, for a dataclass that does not change
            object.__setattr__(self, "_inverse", torch.cholesky_inverse(jittered_cholesky(self._gram())).contiguous())
        inverse = cast(Tensor, self._inverse)
        if runs_compiled(inverse, cross, prior):
            leaving, gain = sample_loops.gained(inverse.numpy(), cross.squeeze(-1).contiguous().numpy(), prior.item())
        else:
            gains = factors(inverse, cross, prior).squeeze(-1)
            leaving = int(gains.argmax())
            gain = gains[leaving].item()
        if gain < least_gain:
            return self, True
        others = torch.tensor([i for i in range(self.size) if i != leaving], device=cross.device)
        return self.keeping(others)._taken(point, cross[others], prior, chance), True

    def _gram(self) -> Tensor:
        """Return the Gram matrix (..., m, m), in double precision; what is known of it is not evaluated again."""
        known = self._known
        if known is None or known.shape[-1] < self.size:
            with torch.no_grad():
                known = _gram_of(self.kernel, self.points, known)
            object.__setattr__(self, "_known", known)  # remembered, for a dataclass that does not change
        return known

    def _reweighted(self, position: int, more: Tensor) -> Self:
        """Return the sample with more weight, 0-dim, on a point. Cost: O(m²) on average, for rounding is cleared."""
        weights = self.weights.clone()
        weights[position] += more
        if self._merged < self.size:
            prior = prior_variance(self.kernel, self.points[..., position : position + 1, :]).double()
            before, after = (
                _noise(self.projection / w[position], prior, self.points.dtype) for w in (self.weights, weights)
            )
            change = (after - before).squeeze(-1)
            unit = torch.zeros_like(self._factor[..., 0])
            unit[..., position] = 1.0
            factor = cholesky_rank_one(self._factor, unit, change.expand(unit.shape[:-1]), position)
            if not bool(factor[..., -1, -1].isnan().any()):
                return changed(self, weights=weights, _factor=factor, _merged=self._merged + 1)
        factor = _factor(self._gram(), self.projection / weights, self.points.dtype)
        return changed(self, weights=weights, _factor=factor, _merged=0)


def _gram_of(kernel: Kernel, points: Tensor, known: Tensor | None) -> Tensor:
    """Return the Gram matrix (..., m, m) of points, in double precision, given that of the first ones if known."""
    first = 0 if known is None else known.shape[-1]
    new = points[..., first:, :]
    values = points.new_zeros(*points.shape[:-2], points.shape[-2], points.shape[-2], dtype=torch.float64)
    if known is not None:
        values[..., :first, :first] = known
    if new.shape[-2]:
        across = gram(kernel, new, points).double()
        across[..., first:].diagonal(dim1=-2, dim2=-1).copy_(prior_variance(kernel, new))
        values[..., first:, :], values[..., :first, first:] = across, across[..., :first].mT
    return values


def _factor(values: Tensor, noise: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the Cholesky factor of a Gram matrix (..., m, m), of points in ``dtype``, plus noise (m,)."""
    noise = _noise(noise, values.diagonal(dim1=-2, dim2=-1), dtype)
    return jittered_cholesky(values + torch.diag_embed(noise))


def _noise(noise: Tensor, prior: Tensor, dtype: torch.dtype) -> Tensor:
    """Return μ/w (...) of points in ``dtype`` with k(z, z) (..., m), never below what makes up for their rounding.

    Kernel values that are off by δ explain up to δ / (4 noise) more than there is: those of single precision no more
    than rounding may, with a noise of √eps / 10 of the prior variance.
    """
    return noise if dtype == torch.float64 else torch.maximum(noise, 0.1 * torch.finfo(dtype).eps ** 0.5 * prior)


def _keys(points: Tensor) -> list[bytes]:
    """Return a hashable key for each row of points (..., n, d)."""
    return row_keys(points.movedim(-2, 0).flatten(1) if points.dim() > 2 else points)
