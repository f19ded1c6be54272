"""How noise grows with age: closed formulas, what forgets nothing, and what is refused."""

import copy
import math
import pickle

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from problems import DOUBLE

from torch_kbandits import Exponential, InputError, Linear, Quadratic
from torch_kbandits.memory import ages, negligible

GROWTHS = [Quadratic(0.3), Linear(0.3), Exponential(0.7)]
STILL = [Quadratic(0.0), Linear(0.0), Exponential(1.0)]


@given(age=st.floats(0.0, 50.0), level=st.floats(1e-6, 1e3))
def test_growths_are_the_formulas(age, level):
    A = torch.tensor([age], dtype=DOUBLE)
    for growth, expected in [
        (Quadratic(0.1), level * (0.1 * age**2 + 1.0)),
        (Linear(0.1), level + 0.1 * age),
        (Exponential(0.9), level * 0.9**-age),
    ]:
        assert float(growth.noise(A, level)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("growth", STILL)
def test_what_forgets_nothing_leaves_the_noise_exactly(growth, dtype):
    age = torch.tensor([0.0, 1.0, 7.3, 1e6], dtype=dtype)
    level = torch.tensor(0.013, dtype=dtype)
    assert torch.equal(growth.noise(age, level), level.expand(4))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("growth", GROWTHS)
def test_noise_is_finite_monotone_and_fresh_at_age_zero(growth, dtype):
    age = torch.tensor([0.0, 0.5, 1.0, 1e2, 1e4, 1e9], dtype=dtype)
    noise = growth.noise(age, 0.013)
    assert noise.dtype == dtype
    assert noise[0] == torch.tensor(0.013, dtype=dtype)
    assert bool(noise.isfinite().all())
    assert bool((noise[1:] >= noise[:-1]).all())


@pytest.mark.parametrize("growth", GROWTHS)
def test_gradients(growth):
    age = torch.tensor([0.0, 0.5, 3.0], dtype=DOUBLE, requires_grad=True)
    level = torch.tensor(0.2, dtype=DOUBLE, requires_grad=True)
    value = torch.tensor(growth.value, dtype=DOUBLE, requires_grad=True)
    assert torch.autograd.gradcheck(growth.formula, (age, level, value))
    old = torch.tensor([1e6], dtype=DOUBLE)
    (gradient,) = torch.autograd.grad(growth.formula(old, level, value).sum(), value)
    assert bool(gradient.isfinite())


def test_exponential_stops_at_what_counts_nothing():
    level = torch.tensor(0.5, dtype=DOUBLE)
    noise = Exponential(0.5).noise(torch.tensor([1e9], dtype=DOUBLE), level)
    assert float(noise / negligible(level)) == pytest.approx(1.0, rel=1e-12)
    assert float(negligible(level)) == pytest.approx(0.5 / torch.finfo(DOUBLE).eps ** 2)


def test_growths_are_values():
    assert Quadratic() == Quadratic(1)
    assert Linear(0.1) != Linear(0.2)
    for growth in GROWTHS:
        assert copy.deepcopy(growth) == growth == pickle.loads(pickle.dumps(growth))
        assert growth.value == pytest.approx(0.3 if growth.parameter == "rate" else 0.7)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Quadratic(-0.1), "rate must be a finite number of at least 0"),
        (lambda: Linear(math.inf), "rate must be a finite number of at least 0"),
        (lambda: Linear("fast"), "rate must be a number"),
        (lambda: Exponential(0.0), "discount must be above 0 and at most 1"),
        (lambda: Exponential(1.01), "discount must be above 0 and at most 1"),
        (lambda: Exponential(math.nan), "discount must be above 0 and at most 1"),
        (lambda: Exponential(True), "discount must be a number"),
    ],
)
def test_what_is_no_growth_is_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_ages():
    times = torch.tensor([0.0, 2.0, 2.0, 5.0], dtype=DOUBLE)
    assert ages(times, torch.tensor(5.0)).tolist() == [5.0, 3.0, 3.0, 0.0]
    with pytest.raises(InputError, match=r"now is 4, and 1 of 4 times are later or NaN, such as 5\."):
        ages(times, torch.tensor(4.0))
    with pytest.raises(InputError, match="later or NaN"):
        ages(torch.tensor([math.nan]), torch.tensor(4.0))
