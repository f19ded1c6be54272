"""GP-EI, a baseline."""

from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import ExpectedImprovementRule
from torch_kbandits.algorithms.arguments import capped, common, resolve_candidates
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.dictionaries import KORS, WhenFull
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class GPEI(Bandit):
    """GP-EI: expected improvement over the best posterior mean so far; a baseline without a regret bound here.

    Source: Mockus, 1975; BoTorch's ``LogExpectedImprovement``. Differs: a Nyström posterior in place of the
    exact one, if asked for.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared.
        regularization: λ > 0, in reward units squared.
        candidates: arms (A, d), or a ``Candidates``.
        bounds: a box (2, d) instead of arms.
        oversampling: γ > 0, KORS's budget, for a Nyström posterior whose cost does not grow with the rounds; None for
            the exact one.
        max_dictionary: the most points that its dictionary may have; None for no limit.
        when_full: what happens when more are wanted, "stop", "warn" or "raise": see ``CappedDictionary``.
        memory: which observations count at a time, where the function changes, such as ``SlidingWindow(500)`` or
            ``Discount(0.99)``.
        mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
            (n, d); see ``Bandit``.
        prior: all three in one: a ``Prior``, or a ``LearnedPrior()`` where nobody knows them; see ``Bandit``.
        seed: addresses all randomness.
        others: ``outcomes``, ``constraints`` and ``objective``: what is measured beside the reward, its limits, and
            what is sought of all; see ``Bandit``.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u). On a box O(u²), or O(m²) with
    a dictionary of m points, and the search.
    """

    def __init__(
        self,
        *,
        kernel: Kernel | None = None,
        regularization: float | None = None,
        seed: int,
        candidates: Tensor | Candidates | ParameterSpace | None = None,
        bounds: Tensor | None = None,
        oversampling: float | None = None,
        max_dictionary: int | None = None,
        when_full: WhenFull = "warn",
        memory: Memory | None = None,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        prior = prior_of(prior, kernel, regularization, mean)
        if oversampling is None and max_dictionary is not None:
            raise InputError("max_dictionary caps the dictionary of a Nyström posterior: give oversampling as well.")
        dictionary = None if oversampling is None else capped(KORS(oversampling), max_dictionary, when_full)
        super().__init__(
            candidates=resolve_candidates(candidates, bounds),
            prior=prior,
            dictionary=dictionary,
            acquisition=ExpectedImprovementRule(),
            memory=memory,
            seed=seed,
            **common(others),
        )
