"""SparQ-GP-UCB, which asks an expert few questions."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import Domain, UpperConfidenceRule
from torch_kbandits.algorithms.arguments import check_theory, refuse_memory, resolve_contextual, resolve_width
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.state import SavedState, check_config, check_format, check_parts
from torch_kbandits.beliefs import Belief
from torch_kbandits.beliefs.model_belief import ModelBelief
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import InformationGain, RealizedGain, SparQWidth, Width, sparq_cutoff, sparq_queries
from torch_kbandits.dictionaries import sample_k_dpp
from torch_kbandits.errors import InputError, StateMismatchError
from torch_kbandits.memory import Growth, Memory, Quadratic, UncertaintyInjection, ages
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.observations.experts import Answers, Expert, GuardedExpert
from torch_kbandits.observations.ledger import History, joined

#: Answers count with at least this share of λ as their noise variance: without noise Gram matrices lose their rank.
_LEAST_VARIANCE = 1e-6


class Consultation(NamedTuple):
    """What the expert said in a round, and what is believed since."""

    answers: Answers
    belief: ModelBelief


class SparQGPUCB(Bandit):
    """SparQ-GP-UCB: where the function changes, few recent rewards and the answers of an expert to few questions.

    In round t = 1, 2, … it drops the rewards whose noise, grown with their age, is above λ g(t); draws past inputs by a
    k-DPP, far apart yet at random; asks the expert for the present function there; and plays the point of the largest
    upper confidence bound given both.

    The expert is asked once a round, by the first ``ask``, ``acquisition`` or ``recommend``; with ``ask(time=)`` once
    for each time in it. If it fails or answers "not yet", the round goes on without it and a warning says so: see
    ``GuardedExpert``, which is ``expert``. Its answers are no rewards: ``history`` has none of them, and the next round
    drops them. Those of the present round are saved with the state, as is what was counted. A replayed bandit asks its
    own expert in the round that it comes to, and its budget is whole.

    Source: Mauduit, Berthier and Simonetto, "Time-varying Gaussian process bandit optimization with experts", 2025,
    Algorithm 1. Differs: the questions and the ages are of the round in which the point is played, where the paper has
    those of the round before, so the latest reward has age 1.

    Args:
        expert: a function (X, time) → (Y, variance) or None for "not yet"; see ``experts.Expert``. A variance below
            1e-6 λ counts as that.
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared.
        regularization: λ > 0, the noise variance of a reward, in reward units squared.
        candidates: arms (A, d), or a ``Candidates``; with contexts actions (A, a).
        bounds: a box (2, d) instead of arms.
        context_dim: number of context columns; the expert is then asked about (context, action).
        action_dim: number of action columns, where each round brings its own actions.
        questions: a number, for ⌈questions · ln t⌉ of them in round t, or a function of t. Fewer are asked if there are
            fewer distinct past inputs, or if they span less.
        budget: how many points the expert may be asked about in all; None for any number.
        cutoff: g, a function of t or a number for a constant.
        growth: how noise grows with age; by default λ (age² + 1).
        num_swaps: steps of the k-DPP's chain; None for ``default_num_swaps``.
        noise_scale: R, not used: the theorem takes the noise from the variances.
        norm_bound: B > 0, a bound on the RKHS norm of the function at any time.
        failure_probability: δ in (0, 1).
        horizon: T, the planned number of rounds; not used.
        gain: the information gain in the width; by default the realised one.
        memory: refused, with the reason: ``growth`` says what an observation counts for.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``, instead of the theorem's
            width, ``SparQWidth``; then B is not needed.
        seed: addresses all randomness.

    Cost of round t with Q questions and w rewards that count: O(t Q²) and the k-DPP's chain, O(num_swaps · Q²), for the
    questions; O((Q + w)³) for the posterior; O(A (Q + w)²) for A arms, on a box the search.
    """

    def __init__(
        self,
        *,
        expert: Expert,
        kernel: Kernel,
        regularization: float,
        seed: int,
        candidates: Tensor | Candidates | None = None,
        bounds: Tensor | None = None,
        context_dim: int | None = None,
        action_dim: int | None = None,
        questions: float | Callable[[int], int] = 6.0,
        budget: int | None = None,
        cutoff: float | Callable[[int], float] = math.log,
        growth: Growth | None = None,
        num_swaps: int | None = None,
        noise_scale: float | None = None,
        norm_bound: float | None = None,
        failure_probability: float = 0.1,
        horizon: int | None = None,
        gain: InformationGain | None = None,
        memory: Memory | None = None,
        beta: float | Width | None = None,
    ) -> None:
        refuse_memory(memory, "growth")
        check_theory(noise_scale, norm_bound, failure_probability, horizon)
        gain = gain or RealizedGain()
        theory = None if norm_bound is None else SparQWidth(norm_bound, failure_probability, gain)
        if not callable(questions):
            questions = _Logarithmic(checks.positive("questions", questions))
        if not callable(cutoff):
            cutoff = _Constant(checks.non_negative("cutoff", cutoff))
        if num_swaps is not None:
            num_swaps = checks.non_negative_integer("num_swaps", num_swaps)
        self.expert = GuardedExpert(expert, budget)
        self.growth = Quadratic() if growth is None else growth
        self._questions, self._cutoff, self._num_swaps = questions, cutoff, num_swaps
        self._consultations: dict[tuple[int, float, int], Consultation] = {}
        super().__init__(
            candidates=resolve_contextual(candidates, bounds, context_dim, action_dim),
            kernel=kernel,
            regularization=regularization,
            width=resolve_width(beta, theory, regularization, needed="norm_bound"),
            acquisition=UpperConfidenceRule(),
            memory=UncertaintyInjection(self.growth),
            seed=seed,
        )

    @property
    def weights(self) -> Tensor:
        """What each reward of ``history`` counts for now, (n,); answers of the expert are not among them."""
        weights = super().weights
        cutoff = sparq_cutoff(self.round + 1, self.regularization, self._cutoff)
        return weights.masked_fill(weights * cutoff < self.regularization, 0.0)

    # ---------------------------------------------------------------- what is believed in a round

    def _domain_at(self, time: Any, context: Any, candidates: Any) -> Domain:
        """Move on to a time, ask the expert if it was not asked yet, and return what may be played."""
        domain = super()._domain_at(time, context, candidates)
        moment = self._moment
        if moment not in self._consultations:
            answers = self._consulted()
            belief = self._believed(self._told, answers, self._clock.now, self.round + 1)
            self._consultations = {**self._consultations, moment: Consultation(answers, belief)}
        belief = self._consultations[moment].belief
        if belief is not self._belief:
            self._belief, self._ahead, self._model = belief, None, None
        return domain

    def _learn(self, told: History) -> None:
        """Believe what the rewards that count in the next round say; the expert is asked when that begins."""
        history = joined([*self._ledger.told, told]).rows(slice(self._ledger.num_forgotten, None))
        self._belief = self._believed(history, Answers.none(told.X), self._clock.now, self.round + 2)
        self._consultations = {}

    def _restored(self, saved: SavedState) -> Belief:
        """Return what the rewards of a saved bandit say."""
        told = saved.history.rows(slice(saved.num_forgotten, None))
        return self._believed(told, Answers.none(told.X), saved.clock.now, saved.history.next_round + 1)

    @property
    def _moment(self) -> tuple[int, float, int]:
        """What the questions and the answers depend on."""
        return self.round, self._clock.now, self._ledger.num_forgotten

    @property
    def _told(self) -> History:
        """All that was told, but what was forgotten on demand."""
        self._ledger = self._ledger.in_one_part
        return self._ledger.told[0].rows(slice(self._ledger.num_forgotten, None))

    def _consulted(self) -> Answers:
        """Ask the expert the questions of this round, if there are any."""
        X, t = self._told.X, self.round + 1
        wanted = checks.non_negative_integer(f"questions({t})", self._questions(t)) if len(X) else 0
        wanted = self.expert.allowed(wanted)
        if wanted == 0:
            return Answers.none(X)
        generator = generator_for(self.seed, self.round, "questions")
        rows = sample_k_dpp(X, self._belief.kernel, wanted, self._num_swaps, generator)
        now = self._clock.now
        return self.expert.answers(X[rows], int(now) if self._clock.kind == "rounds" else now)

    def _believed(self, told: History, answers: Answers, now: float, t: int) -> ModelBelief:
        """Return the posterior of answers and of the rewards that count in round t."""
        belief = cast(ModelBelief, self._prior().at(now))
        if told.times is None:
            raise InputError("The history of a bandit with a memory has times.")
        level = belief.regularization.double()
        noise = self.growth.noise(ages(told.times, told.times.new_tensor(now)), level)
        counts = noise <= sparq_cutoff(t, float(level), self._cutoff)
        belief.restore_noisy(
            torch.cat([answers.X, told.X[counts]]),
            torch.cat([answers.Y, told.Y[counts]]),
            torch.cat([answers.variance.clamp_min(_LEAST_VARIANCE * float(level)), noise[counts]]),
        )
        return belief

    # ---------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, with the answers of the present round; see ``Bandit.state_dict``."""
        here = self._moment
        answers = [
            {"now": now, **known.answers.copied()._asdict()}
            for (number, now, forgotten), known in self._consultations.items()
            if (number, forgotten) == (here[0], here[2])
        ]
        return super().state_dict() | {"expert": {"counts": self.expert.counts(), "answers": answers}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a bandit was saved, with the answers that it had; see ``Bandit.load_state_dict``."""
        check_format(state)
        check_config(state["config"], self._config())
        check_parts(state, {"expert": (Mapping,)})
        check_parts(state["expert"], {"counts": (Mapping,), "answers": (list, tuple)}, prefix="expert.")
        counts = {name: state["expert"]["counts"].get(name) for name in self.expert.counts()}
        check_parts(counts, dict.fromkeys(counts, (int,)), prefix="expert.counts.")
        before = dict(vars(self))
        try:
            super().load_state_dict(state)
            known = {}
            for now, answers in _saved_answers(state, self.candidates.example):
                belief = self._believed(self._told, answers, now, self.round + 1)
                known[self.round, now, self._ledger.num_forgotten] = Consultation(answers, belief)
            self._consultations = known
            if self._moment in known:
                self._belief = known[self._moment].belief
        except BaseException:
            vars(self).update(before)
            raise
        self.expert.restore(counts)

    def _words(self) -> dict[str, Any]:
        return super()._words() | {"expert": self.expert}

    def _config(self) -> dict[str, Any]:
        return super()._config() | {
            "questions": _name_of(self._questions),
            "cutoff": _name_of(self._cutoff),
            "num_swaps": self._num_swaps,
            "budget": self.expert.budget,
        }


@dataclass(frozen=True)
class _Logarithmic:
    """As many questions in round t as ⌈factor · ln t⌉."""

    factor: float

    def __call__(self, round: int) -> int:
        return sparq_queries(round, self.factor)

    def __str__(self) -> str:
        return f"{self.factor!r} ln t"


@dataclass(frozen=True)
class _Constant:
    """A function of the round that is always the same number."""

    value: float

    def __call__(self, round: int) -> float:
        return self.value

    def __str__(self) -> str:
        return repr(self.value)


def _name_of(function: Callable[[int], float]) -> str:
    """Return what tells a function of the round from others, as far as functions have names."""
    if isinstance(function, _Logarithmic | _Constant):
        return str(function)
    return getattr(function, "__qualname__", type(function).__name__)


_ANSWER: dict[str, tuple[type, ...]] = {
    "now": (int, float),
    "X": (Tensor,),
    "Y": (Tensor,),
    "variance": (Tensor,),
}


def _saved_answers(state: Mapping[str, Any], example: Tensor) -> list[tuple[float, Answers]]:
    """Return what an expert said before a state was saved, with the time of each."""
    found = []
    for saved in state["expert"]["answers"]:
        if not isinstance(saved, Mapping):
            raise StateMismatchError(f"The state is damaged: an answer is {checks.describe(saved)}.")
        check_parts(saved, _ANSWER, prefix="expert.answers.")
        X = checks.points("the saved questions", saved["X"].to(example.device), dimension=example.shape[-1])
        Y, variance = saved["Y"].to(example), saved["variance"].to(example.device, torch.float64)
        if not (X.dim() == 2 and Y.shape == variance.shape == X.shape[:1]):
            raise StateMismatchError(
                f"The state is damaged: {len(X)} questions have {len(Y)} answers and {len(variance)} variances."
            )
        found.append((float(saved["now"]), Answers(X.clone(), Y.clone(), variance.clone())))
    return found
