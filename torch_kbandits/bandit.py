"""Ask, tell, save and replay: the order of the calls. What is believed and how it is searched lives below."""

import warnings
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import KernelUCB
from torch_kbandits.candidates import Candidates
from torch_kbandits.candidates.base import ConfidenceAcquisition
from torch_kbandits.confidence import Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError, TheoryWarning
from torch_kbandits.gram import gram, prior_variance
from torch_kbandits.models import NystromGP
from torch_kbandits.random import generator_for, seed_for
from torch_kbandits.state import (
    STATE_FORMAT,
    History,
    check_config,
    check_format,
    check_rounds,
    describe_kernel,
    describe_value,
    empty_history,
    rewards,
    saved_tensors,
)

#: In single precision a regularization below this fraction of the prior variance drowns in rounding.
_FLOAT32_REGULARIZATION = 1e-4


class Bandit:
    """A kernelized bandit: ``ask`` for the next point, ``tell`` its reward.

    The state is a function of the configuration, the seed and the history: asking changes nothing, and the randomness
    of a round depends on no other round. A named algorithm is a subclass that only chooses the pieces.

    Args:
        candidates: what may be played.
        kernel: the prior covariance; a copy is kept.
        regularization: λ > 0, the noise variance of the surrogate, in reward units squared.
        dictionary: which played points span the approximation.
        width: the confidence width; a multiplier of the standard deviation.
        acquisition: builds the acquisition function.
        seed: addresses all randomness.

    Raises:
        InputError: if an argument does not fit; the message says what was expected.
    """

    def __init__(
        self,
        *,
        candidates: Candidates,
        kernel: Kernel,
        regularization: float,
        dictionary: DictionaryRule,
        width: Width,
        acquisition: ConfidenceAcquisition = KernelUCB,
        seed: int,
    ) -> None:
        checks.instance("candidates", candidates, Candidates, "Arms or a Box")
        checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
        checks.instance("dictionary", dictionary, DictionaryRule, "a rule such as RidgeLeverageSampling()")
        checks.instance("width", width, Width, "a confidence width such as ConstantWidth(2.0)")
        if isinstance(seed, bool):
            raise InputError(f"seed must be a whole number, got {seed}.")
        checks.instance("seed", seed, int, "a whole number")
        _check_kernel(kernel, candidates.example)
        self.candidates = candidates
        self.regularization = checks.positive("regularization", regularization)
        self.dictionary = dictionary
        self.width = width
        self.seed = seed
        self._acquisition = acquisition
        self._kernel = deepcopy(kernel)
        self._belief = candidates.belief(kernel, self.regularization, seed)
        self._told: list[History] = [empty_history(candidates.example)]
        self._model: NystromGP | None = None
        self.round = 0
        self._warn_of_single_precision()

    # ---------------------------------------------------------------- the loop

    def ask(self, q: int = 1) -> Tensor:
        """Return the next q points to play, (q, d).

        The points of a batch are chosen one after another, each with the earlier ones hallucinated at their posterior
        mean. Asking again before telling returns the same points.

        Cost: that of the candidates; O(A) on arms when q = 1.
        """
        checks.positive_integer("q", q)
        return self._belief.maximize(self._acquisition, self.beta, q, seed_for(self.seed, self.round, "ask"))

    def tell(self, x: Tensor, y: Tensor | float) -> None:
        """Learn rewards; the points need not have been asked for.

        Args:
            x: points (q, d), of the dtype and device of the candidates.
            y: rewards (q,) or (q, 1), or a number or 0-dim tensor if q = 1.

        Raises:
            InputError: if shapes, dtypes or values do not fit.
            NumericalError: if the posterior cannot be computed.

        After an error the bandit is as it was.
        """
        X = checks.points("x", x, dimension=self.candidates.example.shape[-1], like=self.candidates.example)
        if X.dim() != 2 or len(X) == 0:
            raise InputError(f"x must be (q, d) with q >= 1, got {checks.describe(x)}.")
        Y = rewards(y, X)
        X, Y = X.detach().clone(), Y.detach().clone()
        generator = generator_for(self.seed, self.round, "dictionary")
        selection = self.dictionary.select(self._belief.preview(X), generator)
        self._belief.update(X, Y, selection)
        self._told.append(History(X, Y, torch.full((len(X),), self.round, device=X.device)))
        self._model = None
        self.round += 1

    # ---------------------------------------------------------------- what is believed

    @property
    def beta(self) -> Tensor:
        """The multiplier of the posterior standard deviation in force now, 0-dim."""
        return self.width(self._belief)

    @property
    def history(self) -> History:
        """All that was told, in order; a copy."""
        if len(self._told) > 1:
            self._told = [History(*(torch.cat(parts) for parts in zip(*self._told, strict=True)))]
        return History(*(part.clone() for part in self._told[0]))

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d); a copy."""
        return self._belief.inducing_points.clone()

    @property
    def model(self) -> NystromGP:
        """The posterior as a BoTorch model on the whole history; built when asked for, O(n m²)."""
        if self._model is None:
            history = self.history
            self._model = self._belief.model(history.X, history.Y, self.inducing_points)
        return self._model

    def acquisition(self) -> AcquisitionFunction:
        """Return the acquisition function that ``ask`` maximises, as a BoTorch one on ``model``."""
        return self._acquisition(self.model, self.beta)

    # ---------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state: tensors, numbers and strings, which ``torch.load(weights_only=True)`` reads."""
        history = self.history
        return {
            "format": STATE_FORMAT,
            "config": self._config(),
            "history": history._asdict(),
            "inducing_points": self.inducing_points,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a bandit of the same configuration was saved; what this one knew is replaced.

        The posterior is computed afresh from history and dictionary, so it agrees with the saved one to rounding.

        Raises:
            StateMismatchError: if the state is of another format or configuration; the message names each difference.

        After an error the bandit is as it was.
        """
        check_format(state)
        check_config(state["config"], self._config())
        example = self.candidates.example
        history, inducing_points = saved_tensors(state, example)
        belief = self.candidates.belief(self._kernel, self.regularization, self.seed)
        if len(history.X):
            belief.restore(history.X, history.Y, inducing_points)
        self._belief, self._told, self._model = belief, [history], None
        self.round = history.next_round

    def replay(self, history: History) -> None:
        """Tell a recorded history, round by round, to a bandit that was told nothing yet.

        The bandit then chooses as the recorded one would, if its configuration and seed are the same.

        Raises:
            InputError: if something was told already, or the history does not fit; then the bandit stays empty.
        """
        check_rounds(history)
        if self.round:
            raise InputError(f"replay needs a bandit that was told nothing; this one was told {self.round} round(s).")
        fresh = self.candidates.belief(self._kernel, self.regularization, self.seed)
        try:
            for number in history.rounds.unique_consecutive():
                rows = history.rounds == number
                self.tell(history.X[rows], history.Y[rows])
        except BaseException:
            self._belief, self._told, self._model, self.round = fresh, self._told[:1], None, 0
            raise

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(kernel={type(self._kernel).__name__}, regularization={self.regularization:g}, "
            f"dictionary={self.dictionary!r}, width={self.width!r}, seed={self.seed}, round={self.round})"
        )

    # ---------------------------------------------------------------- inside

    def _config(self) -> dict[str, Any]:
        """Return all that must agree between a saved state and the bandit that loads it, by name."""
        config: dict[str, Any] = {"algorithm": type(self).__name__, "seed": self.seed}
        config |= {f"candidates.{key}": value for key, value in self.candidates.describe().items()}
        config |= describe_kernel(self._kernel)
        config["regularization"] = self.regularization
        config["acquisition"] = getattr(self._acquisition, "__name__", type(self._acquisition).__name__)
        describe_value("dictionary", self.dictionary, config)
        describe_value("width", self.width, config)
        return config

    def _warn_of_single_precision(self) -> None:
        example = self.candidates.example
        if example.dtype == torch.float64:
            return
        with torch.no_grad():
            scale = float(prior_variance(self._belief.kernel, example).max())
        if self.regularization < _FLOAT32_REGULARIZATION * scale:
            warnings.warn(
                f"regularization={self.regularization:g} is tiny for {example.dtype} (prior variance "
                f"{scale:g}): the confidence widths drown in rounding. Use float64 candidates.",
                TheoryWarning,
                stacklevel=3,
            )


def _check_kernel(kernel: Kernel, example: Tensor) -> None:
    """Refuse a kernel that does not give a plain, finite covariance at points like the example (1, d)."""
    d = example.shape[-1]
    try:
        with torch.no_grad():
            values = gram(deepcopy(kernel).to(example), example.expand(2, d), example)
    except (RuntimeError, IndexError) as error:
        raise InputError(f"The kernel cannot be evaluated at points of {d} columns: {error}") from error
    if values.shape != (2, 1) or not bool(torch.isfinite(values).all()):
        raise InputError(
            "The kernel must give a finite number for each pair of points; two points against one give a tensor of "
            f"shape {tuple(values.shape)}, {values.flatten()[:4].tolist()}. Kernels with a batch shape do not fit."
        )
