import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.candidates.embedded import Embedded
from torch_kbandits.candidates.joint_lookahead import JointLookahead
from torch_kbandits.candidates.model_belief import ModelBelief
from torch_kbandits.dictionaries import Selection
from torch_kbandits.gram import gram, prior_variance


class JointBelief(ModelBelief):
    """A BoTorch model of rewards at joint points, asked about the actions of one context at a time."""

    def __init__(self, example: Tensor, kernel: Kernel, regularization: float, *, exact: bool) -> None:
        super().__init__(example, kernel, regularization, exact=exact)
        with torch.no_grad():
            self._kernel_bound = prior_variance(self.kernel, example).max()

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance of a played point, 0-dim; for stationary kernels that of all points."""
        return self._kernel_bound

    def update(self, X: Tensor, Y: Tensor, selection: Selection | None) -> None:
        """Condition on rewards Y (q,) at X (q, d) and move to the selected dictionary; everything or nothing."""
        with torch.no_grad():
            bound = torch.maximum(self._kernel_bound, prior_variance(self.kernel, X).max())
        super().update(X, Y, selection)
        self._kernel_bound = bound

    def restore(self, X: Tensor, Y: Tensor, dictionary: Selection) -> None:
        """Condition the prior on a whole history at a known dictionary."""
        super().restore(X, Y, dictionary)
        with torch.no_grad():
            self._kernel_bound = torch.maximum(self._kernel_bound, prior_variance(self.kernel, X).max())

    def lookahead(self, pending: Tensor) -> JointLookahead:
        """Return the model with points (k, d) pending."""
        return JointLookahead(self, pending)

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

    def covariance_at(self, left: Embedded, right: Embedded) -> Tensor:
        """Return posterior covariances, (k, l)."""
        prior = gram(self.kernel, left.points, right.points)
        return prior - self._model.factors.explained(left.coordinates, right.coordinates)

    def remember(self, at: Embedded) -> None:
        """Keep nothing: the model embeds what it is told."""
