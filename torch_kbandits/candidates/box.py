import torch
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples, manual_seed
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.candidates.base import Belief, Candidates, ConfidenceAcquisition, PlayedLog
from torch_kbandits.dictionaries import PlayedPoints, Selection
from torch_kbandits.errors import NumericalError
from torch_kbandits.gram import prior_variance

#: Points of the box at which the largest prior variance is sought; for stationary kernels one would do.
_BOUND_SAMPLES = 512


class Box(Candidates):
    """A box of points, searched by BoTorch's ``optimize_acqf``.

    Args:
        bounds: (2, d), finite lower bounds, then upper bounds above them.
        num_restarts: starting points of the gradient search.
        raw_samples: random points from which they are chosen.
    """

    def __init__(self, bounds: Tensor, num_restarts: int = 8, raw_samples: int = 128) -> None:
        self.bounds = checks.bounds(bounds).detach().clone()
        self.num_restarts = checks.positive_integer("num_restarts", num_restarts)
        self.raw_samples = checks.positive_integer("raw_samples", raw_samples)

    @property
    def example(self) -> Tensor:
        """The lower corner, (1, d)."""
        return self.bounds[:1]

    def belief(self, kernel: Kernel, regularization: float, seed: int) -> "BoxBelief":
        """Return the prior."""
        return BoxBelief(self, kernel, regularization)

    def describe(self) -> dict[str, object]:
        """Return the bounds and the search's settings."""
        return {
            "bounds": str(self.bounds.tolist()),
            "dtype": str(self.bounds.dtype),
            "num_restarts": self.num_restarts,
            "raw_samples": self.raw_samples,
        }


class BoxBelief(Belief):
    """A ``NystromGP`` on the whole history, rebuilt at every tell.

    So the posterior is a function of history and dictionary alone. Cost of a tell: O(n m²).
    """

    def __init__(self, box: Box, kernel: Kernel, regularization: float) -> None:
        super().__init__(box.example, kernel, regularization)
        self._box = box
        empty = box.example[:0]
        self._log = PlayedLog(box.example)
        self._X, self._Y = empty, empty.new_zeros(0)
        self._model = self.model(self._X, self._Y, empty)
        samples = draw_sobol_samples(box.bounds, n=_BOUND_SAMPLES, q=1, seed=0).squeeze(-2)
        with torch.no_grad():
            self._kernel_bound = prior_variance(self.kernel, torch.cat([box.bounds, samples])).max()

    @property
    def num_observations(self) -> int:
        """Number t of observations."""
        return len(self._X)

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d)."""
        return self._model.inducing_points

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ̃(x_s), 0-dim."""
        return self._model.effective_dimension()

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats."""
        return self._model.information_gain()

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance in the box, 0-dim: the largest over its two corners and a Sobol set."""
        return self._kernel_bound

    def preview(self, X: Tensor) -> PlayedPoints:
        """Return the unique played points together with X, scored by the current posterior."""
        points, counts = self._log.points_with(X)
        with torch.no_grad():
            variance = self._model.posterior(points.unsqueeze(-2)).variance.flatten()
        return PlayedPoints(points, self.kernel, self.regularization, counts, variance / self.regularization)

    def update(self, X: Tensor, Y: Tensor, selection: Selection) -> None:
        """Condition on rewards Y (q,) at X (q, d) and move to the selected dictionary; everything or nothing."""
        self._condition(torch.cat([self._X, X]), torch.cat([self._Y, Y]), selection.points)
        self._log.add(X, Y)

    def restore(self, X: Tensor, Y: Tensor, inducing_points: Tensor) -> None:
        """Condition the prior on a whole history at a known dictionary."""
        self._condition(X, Y, inducing_points)
        self._log.add(X, Y)

    def maximize(self, acquisition: ConfidenceAcquisition, beta: Tensor, q: int, seed: int) -> Tensor:
        """Return q points (q, d) by ``optimize_acqf``, each pending for the next; Sobol points before any reward.

        Torch's global generator is left as it was.
        """
        if self.num_observations == 0:
            return draw_sobol_samples(self._box.bounds, n=q, q=1, seed=seed % 2**31).squeeze(-2)
        with manual_seed(seed % 2**31):
            X, _ = optimize_acqf(
                acquisition(self._model, beta),
                self._box.bounds,
                q=q,
                num_restarts=self._box.num_restarts,
                raw_samples=self._box.raw_samples,
                sequential=q > 1,
            )
        return X.detach()

    def _condition(self, X: Tensor, Y: Tensor, inducing_points: Tensor) -> None:
        model = self.model(X, Y, inducing_points)
        # Computes the factors: if that fails, nothing has changed yet.
        if not bool(torch.isfinite(model.posterior(inducing_points).mean).all()):
            raise NumericalError("The posterior is not finite: rewards or hyperparameters are too large for the dtype.")
        self._X, self._Y, self._model = X, Y, model
